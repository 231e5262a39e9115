/* SPDX-License-Identifier: Apache-2.0
 *
 * main: finds the command and exits with what it returns; nothing else in headrace exits.
 *
 * SIGPIPE is ignored for the whole process: a reader of stderr or stdout that went away must not
 * end a run of hours. Instead a failed write to stdout turns a successful command into a failed
 * one. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

struct command {
    const char *name, *help;
    int (*fn)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", "Answer the prompts of one or more manifests; go on where the last run stopped.",
     hr_cmd_run},
    {"status", "Tell how far the jobs under an output folder are, live or dead.", hr_cmd_status},
    {"tokenize", "Turn text into token ids and back, JSON lines in and out.", hr_cmd_tokenize},
    {"render", "Render chat templates, JSON lines in and out.", hr_cmd_render},
    {"verify", "Compare a model's tokens and logits with transformers', and bf16 with f32.", hr_cmd_verify},
    {"bench", "Measure prefill and decode speed, load time and memory.", hr_cmd_bench},
};
#define N_COMMANDS ((int)(sizeof commands / sizeof commands[0]))

static const struct command *find(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void print_help(FILE *to) {
    fprintf(to, "headrace brings prompts to a model: prompt shards in, raw_responses.jsonl out.\n\n"
                "usage: headrace COMMAND [arguments] [options]\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-10s%s\n", commands[i].name, commands[i].help);
    fprintf(
        to,
        "\n'headrace help COMMAND' lists its options; 'headrace --version' tells about the build.\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration or locked, 3 done with\n"
        "rejected rows (verify: a bound is broken), 4 interrupted (the same command goes on).\n");
}

static int unknown_command(const char *word) {
    const char *names[N_COMMANDS + 1];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    names[N_COMMANDS] = "help";
    const char *near = hr_options_nearest(word + strspn(word, "-"), names, N_COMMANDS + 1);
    if (near)
        hr_error("unknown command '%s'; did you mean '%s'?", word, near);
    else
        hr_error("unknown command '%s'; 'headrace help' lists them", word);
    return HR_EXIT_USAGE;
}

static int help_command(int argc, char **argv) {
    if (argc < 2) {
        print_help(stdout);
        return HR_EXIT_DONE;
    }
    const struct command *c = find(argv[1]);
    if (!c) return unknown_command(argv[1]);
    char flag[] = "--help", *args[] = {argv[1], flag, NULL};
    return c->fn(2, args);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return HR_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        hr_version_print();
        return HR_EXIT_DONE;
    }
    if (strcmp(argv[1], "help") == 0) return help_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return help_command(1, argv);
    const struct command *c = find(argv[1]);
    return c ? c->fn(argc - 1, argv + 1) : unknown_command(argv[1]);
}

/* A file that got the number of a closed stderr would be written full of talk. */
static void keep_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) abort();
}

int main(int argc, char **argv) {
    keep_standard_files();
    signal(SIGPIPE, SIG_IGN);
    int code = dispatch(argc, argv);
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && code == HR_EXIT_DONE) {
        hr_error("could not write to stdout");
        code = HR_EXIT_FAILED;
    }
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * options: the command line of one command, as a table.
 *
 * A command fills a table of options whose `out` points at its own variables (holding the
 * defaults), and calls hr_options_parse once. Help is made from the same table, so the two cannot
 * disagree. Only long names exist: `--name VALUE` or `--name=VALUE`; a flag is `--name`; `--` ends
 * the options; a lone `-` is an argument. Given twice, the last one wins. There are no
 * abbreviations: a script that used one would break when a new option arrives.
 *
 *     bool json = false;
 *     const struct hr_opt opts[] = {
 *         {"json", NULL, "Output", "Print JSON on stdout. Default: a table.", HR_OPT_FLAG, &json},
 *         {"threads", "N", "Engine", "Use N threads. Default: all usable cores.", HR_OPT_INT,
 *          &threads, .min = 1, .max = 1024},
 *     };
 *     const struct hr_command_line cl = {
 *         "status", "DIR", "Tells how far ...", opts, HR_N_OPTS(opts), 1, 1};
 *     int n_args, code;
 *     if (!hr_options_parse(&cl, argc, argv, &n_args, &code)) return code;
 *     // arguments are argv[0 .. n_args-1] */
#ifndef HR_CMD_OPTIONS_H
#define HR_CMD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum hr_opt_type {
    HR_OPT_FLAG,   /* bool *: set to true */
    HR_OPT_INT,    /* int64_t *: a whole number, min..max checked when max > min */
    HR_OPT_COUNT,  /* int64_t *: as INT, with K, M, G (thousands) or Ki, Mi, Gi (1024s) behind it */
    HR_OPT_REAL,   /* double *: a finite number, min..max checked when max > min */
    HR_OPT_STR,    /* const char **: borrowed from argv; an empty text is refused */
    HR_OPT_CHOICE, /* int *: index into `value`, which lists the choices: "bf16|f32" */
};

struct hr_opt {
    const char *name;  /* without dashes */
    const char *value; /* in help ("N", "PATH"), the choices, or NULL for a flag */
    const char *group; /* heading in help; options of one group stand together in the table */
    const char *help;  /* one sentence, and the default */
    enum hr_opt_type type;
    void *out;   /* written only when the option is given */
    bool *given; /* set to true when it is given; may be NULL */
    double min, max;
    bool once; /* of a STR that was NULL: twice is a mistake; of others the last one counts */
};
#define HR_N_OPTS(table) ((int)(sizeof(table) / sizeof((table)[0])))

struct hr_command_line {
    const char *name;  /* of the command */
    const char *usage; /* its arguments, for help: "MANIFEST..." */
    const char *about; /* what it does: one to three sentences */
    const struct hr_opt *opts;
    int n_opts;
    int args_min, args_max; /* arguments that are not options */
};

/* argv[0] is the command's name. True: go on, the arguments are argv[0 .. *n_args-1] (moved to the
 * front). False: help was printed to stdout or one error line to stderr; return *exit_code. */
HR_MUST_USE bool hr_options_parse(const struct hr_command_line *cl, int argc, char **argv,
                                  int *n_args, int *exit_code);

/* The parts of hr_options_parse, without any printing. Errors: HR_ERR_CONFIG. */
HR_MUST_USE enum hr_status hr_options_scan(const struct hr_command_line *cl, int argc, char **argv,
                                           int *n_args, bool *help, struct hr_err *err);
/* Help as text, lines of at most 80 columns (a long word excepted). */
void hr_options_help(const struct hr_command_line *cl, struct hr_buf *out);

/* Of n names the one that a person most likely meant by `word`, or NULL when none is near. */
const char *hr_options_nearest(const char *word, const char *const *names, int n);

#endif

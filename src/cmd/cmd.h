/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd: the commands of the binary and the exit codes that they return.
 *
 * A command gets its own name as argv[0] and what follows it on the command line; it reads its
 * options with options.h, talks through base/log.h, writes what a program may want to read to
 * stdout, and returns an exit code. Only main.c exits. */
#ifndef HR_CMD_CMD_H
#define HR_CMD_CMD_H

#include "base/status.h"

enum hr_exit {
    HR_EXIT_DONE = 0,        /* all is done, or the cap is reached */
    HR_EXIT_FAILED = 1,      /* the operating system, a device or headrace itself failed */
    HR_EXIT_USAGE = 2,       /* wrong usage or configuration, or somebody else holds the lock */
    HR_EXIT_REJECTS = 3,     /* done, but some rows were rejected, or verify found a bound broken */
    HR_EXIT_INTERRUPTED = 4, /* the same command goes on from here */
    HR_EXIT_CANARY = 5,      /* done, but a row came out otherwise when it was computed again */
};

/* The exit code that a failed call means: usage for HR_ERR_CONFIG, HR_ERR_LOCKED, HR_ERR_FORMAT,
 * HR_ERR_UNSUPPORTED, HR_ERR_LIMIT and HR_ERR_NOTFOUND (an input is wrong), interrupted for
 * HR_ERR_INTERRUPTED and HR_ERR_NOSPACE (make room, run again), failed for the rest. */
int hr_cmd_exit_code(enum hr_status code);

int hr_cmd_run(int argc, char **argv);
int hr_cmd_status(int argc, char **argv);
int hr_cmd_tokenize(int argc, char **argv);
int hr_cmd_render(int argc, char **argv);
int hr_cmd_verify(int argc, char **argv);
int hr_cmd_bench(int argc, char **argv);

/* "0.1.0", or "0.1.0 (89ed35c)" when built from a git checkout. Static. */
const char *hr_version(void);
/* Prints version and build facts to stdout, a line a fact. */
void hr_version_print(void);

#endif

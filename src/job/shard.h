/* SPDX-License-Identifier: Apache-2.0
 *
 * shard: lines of .jsonl, .jsonl.gz and .jsonl.zst files, one after the other, in bounded memory.
 *
 * A line ends at \n (a \r before it is dropped; U+2028, U+0085 and the like do not end one); a BOM at
 * a file's start is dropped; blank lines (spaces, tabs) are skipped but counted. A line longer than
 * HR_LINE_MAX is given as too long, without its bytes, and reading goes on after it. */
#ifndef HR_JOB_SHARD_H
#define HR_JOB_SHARD_H

#include <stdbool.h>

#include "base/buf.h"

#define HR_LINE_MAX (16u << 20) /* bytes; no prompt is longer, and a reader must not be starved */

struct hr_shard_reader;

/* paths borrowed until close. Files are opened when their turn comes. */
HR_MUST_USE enum hr_status hr_shard_open(char *const *paths, int n_paths, struct hr_shard_reader **out,
                                         struct hr_err *err);
void hr_shard_close(struct hr_shard_reader **r);

struct hr_line {
    const char *p; /* borrowed until the next call */
    size_t len;
    int i_shard;
    int64_t line_no; /* 1-based, in its file (after decompression) */
    bool too_long;
    bool torn; /* compressed file broken here: the rest of this shard cannot be read (p: message) */
};
/* False at the end of the last shard. Errors: HR_ERR_IO for a file that cannot be opened or read. */
HR_MUST_USE enum hr_status hr_shard_next(struct hr_shard_reader *r, struct hr_line *line, bool *more,
                                         struct hr_err *err);

/* Counts the lines that are not blank in all shards, up to `max` (0: all). Checks *stop now and then. */
HR_MUST_USE enum hr_status hr_shard_count(char *const *paths, int n_paths, int64_t max,
                                          const volatile bool *stop, int64_t *n, struct hr_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * store_file: a file that only grows, private to src/job: raw_responses.jsonl and rejects.jsonl.
 *
 * `size` is the part that counts; an append that fails is undone down to it, so that a file never
 * keeps half of a failed write. Positions are explicit (pwrite): a retry writes over what a failed
 * undo may have left. */
#ifndef HR_JOB_STORE_FILE_H
#define HR_JOB_STORE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct hr_file {
    int fd;       /* owned; -1: not open */
    char *path;   /* owned */
    int64_t size; /* bytes that count */
    bool unsynced;
};

/* Opens or makes it; size is the file's. Refuses what is not a regular file. */
HR_MUST_USE enum hr_status hr_file_open(struct hr_file *f, const char *path, struct hr_err *err);
void hr_file_close(struct hr_file *f); /* zeroed with fd -1 is valid */
/* All of it, or HR_ERR_NOSPACE (ENOSPC, EDQUOT) or HR_ERR_IO with the file as before. Not yet on
 * the disk. */
HR_MUST_USE enum hr_status hr_file_append(struct hr_file *f, const void *data, size_t len,
                                          struct hr_err *err);
HR_MUST_USE enum hr_status hr_file_sync(struct hr_file *f, struct hr_err *err);
HR_MUST_USE enum hr_status hr_file_cut(struct hr_file *f, int64_t size, struct hr_err *err);
/* Appends len bytes from `offset` to out; *whole false when the file ends before. */
HR_MUST_USE enum hr_status hr_file_read(const struct hr_file *f, int64_t offset, size_t len,
                                        struct hr_buf *out, bool *whole, struct hr_err *err);
/* Makes the directory entries of new files in `dir` durable, where the file system can. */
void hr_dir_sync(const char *dir);
/* mkdir -p. */
HR_MUST_USE enum hr_status hr_dir_make(const char *dir, struct hr_err *err);

#endif

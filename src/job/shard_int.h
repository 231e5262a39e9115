/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_int: what a compressed format is to the shard reader: a stream of plain bytes over a file.
 *
 * A codec holds a bounded input buffer and the library's window, nothing that grows with the file.
 * Concatenated members (gzip) and frames (zstd) are one stream. */
#ifndef HR_JOB_SHARD_INT_H
#define HR_JOB_SHARD_INT_H

#include <stdbool.h>

#include "base/status.h"

struct hr_shard_codec {
    const char *suffix; /* of the file's name, with its dot */
    void *(*create)(void);
    /* Up to cap bytes from fd into dst; *n = 0 only at the end. HR_ERR_FORMAT: the compressed data
     * are broken or end too early (what was decoded before has been given); HR_ERR_IO: read(2)
     * failed. */
    enum hr_status (*read)(void *state, int fd, char *dst, size_t cap, size_t *n,
                           struct hr_err *err);
    void (*destroy)(void *state);
};
extern const struct hr_shard_codec hr_shard_gz, hr_shard_zst;

#define HR_SHARD_CHUNK 262144 /* one read(2): large enough that calls do not count, small to hold  \
                               */

/* read(2) that goes on after a signal. */
enum hr_status hr_shard_read_fd(int fd, void *dst, size_t cap, size_t *n, struct hr_err *err);

#endif

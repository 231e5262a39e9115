/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_zst: .zst shards through libzstd. The only file that knows it.
 *
 * Frames that follow one another are one stream; skippable frames are skipped; an empty file is an
 * empty stream, as for zstd(1). The window is bounded by the library's default (128 MiB): a frame
 * made with a longer one is refused instead of taking memory that nobody planned. */
#include <stdlib.h>
#include <zstd.h>

#include "base/buf.h"
#include "job/shard_int.h"

/* Enough to see a frame's header begin; from there on the library says how much it wants. */
#define FIRST_HINT 9

struct zst {
    ZSTD_DCtx *ctx;
    size_t pos, have; /* bytes[pos .. have) are read and not consumed */
    size_t hint;      /* bytes to feed next: one block, so that a broken one spoils no whole one */
    bool at_end;      /* of the file */
    bool in_frame;    /* the last call left a frame open */
    char bytes[HR_SHARD_CHUNK];
};

static void *zst_create(void) {
    struct zst *s = hr_xcalloc(1, sizeof *s);
    s->ctx = ZSTD_createDCtx();
    if (s->ctx == NULL) {
        free(s);
        return NULL;
    }
    s->hint = FIRST_HINT;
    return s;
}

static void zst_destroy(void *state) {
    struct zst *s = state;
    if (s == NULL) return;
    ZSTD_freeDCtx(s->ctx);
    free(s);
}

static enum hr_status zst_read(void *state, int fd, char *dst, size_t cap, size_t *n,
                               struct hr_err *err) {
    struct zst *s = state;
    ZSTD_outBuffer out = {dst, cap, 0};
    *n = 0;
    while (out.pos == 0) {
        if (s->pos == s->have && !s->at_end) {
            size_t got = 0;
            enum hr_status st = hr_shard_read_fd(fd, s->bytes, sizeof s->bytes, &got, err);
            if (st < 0) return st;
            s->at_end = got == 0;
            s->pos = 0;
            s->have = got;
        }
        if (s->at_end && !s->in_frame) return HR_OK;
        size_t n_feed = s->have - s->pos < s->hint ? s->have - s->pos : s->hint;
        ZSTD_inBuffer in = {s->bytes + s->pos, n_feed, 0};
        size_t rc = ZSTD_decompressStream(s->ctx, &out, &in);
        if (ZSTD_isError(rc))
            return hr_err_set(err, HR_ERR_FORMAT, "broken zstd data (%s)", ZSTD_getErrorName(rc));
        s->pos += in.pos;
        s->in_frame = rc != 0;
        s->hint = rc != 0 ? rc : FIRST_HINT;
        if (s->at_end && s->in_frame && out.pos == 0)
            return hr_err_set(err, HR_ERR_FORMAT, "the zstd data end in the middle");
    }
    *n = out.pos;
    return HR_OK;
}

const struct hr_shard_codec hr_shard_zst = {".zst", zst_create, zst_read, zst_destroy};

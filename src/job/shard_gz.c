/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_gz: .gz shards through zlib. The only file that knows it.
 *
 * Members that follow one another are one stream, as in gzip(1); zero bytes after the last one are
 * padding. Anything else after a member, a wrong checksum and an early end are HR_ERR_FORMAT. */
#include <stdlib.h>
#include <zlib.h>

#include "base/buf.h"
#include "job/shard_int.h"

struct gz {
    z_stream z;
    bool at_end;     /* of the file */
    bool in_member;  /* false before a member's first byte */
    bool any_member; /* an empty file is not a gzip file */
    unsigned char in[HR_SHARD_CHUNK];
};

static void *gz_create(void) {
    struct gz *g = hr_xcalloc(1, sizeof *g);
    if (inflateInit2(&g->z, 15 + 16) != Z_OK) { /* 16: gzip headers only */
        free(g);
        return NULL;
    }
    return g;
}

static void gz_destroy(void *state) {
    struct gz *g = state;
    if (g == NULL) return;
    inflateEnd(&g->z);
    free(g);
}

/* Skips padding between members; true when a new member begins. */
static bool next_member(struct gz *g) {
    while (g->any_member && g->z.avail_in > 0 && *g->z.next_in == 0)
        g->z.next_in++, g->z.avail_in--;
    if (g->z.avail_in == 0) return false;
    inflateReset(&g->z);
    return g->in_member = g->any_member = true;
}

static enum hr_status gz_read(void *state, int fd, char *dst, size_t cap, size_t *n,
                              struct hr_err *err) {
    struct gz *g = state;
    *n = 0;
    g->z.next_out = (unsigned char *)dst;
    g->z.avail_out = (unsigned)cap;
    while (g->z.avail_out == cap) {
        if (g->z.avail_in == 0 && !g->at_end) {
            size_t got = 0;
            enum hr_status st = hr_shard_read_fd(fd, g->in, sizeof g->in, &got, err);
            if (st < 0) return st;
            g->at_end = got == 0;
            g->z.next_in = g->in;
            g->z.avail_in = (unsigned)got;
        }
        if (!g->in_member && !next_member(g)) {
            if (!g->at_end) continue;
            if (g->any_member) return HR_OK;
            return hr_err_set(err, HR_ERR_FORMAT, "the gzip data end before they begin");
        }
        int rc = inflate(&g->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END) {
            g->in_member = false;
        } else if (rc == Z_BUF_ERROR && g->z.avail_out == cap) {
            if (g->at_end) return hr_err_set(err, HR_ERR_FORMAT, "the gzip data end in the middle");
        } else if (rc != Z_OK) {
            if (g->z.avail_out < cap) break; /* what came before the break first; it fails again */
            return hr_err_set(err, HR_ERR_FORMAT, "broken gzip data (%s)",
                              g->z.msg != NULL ? g->z.msg : zError(rc));
        }
    }
    *n = cap - g->z.avail_out;
    return HR_OK;
}

const struct hr_shard_codec hr_shard_gz = {".gz", gz_create, gz_read, gz_destroy};

/* SPDX-License-Identifier: Apache-2.0
 *
 * shard: lines out of files, one chunk of plain bytes at a time.
 *
 * Invariant: the bytes at [begin, end) of the buffer are read and not given yet, and [begin,
 * scanned) holds no newline. The buffer grows to HR_LINE_MAX and one chunk, whatever the files
 * hold; a longer line is thrown away while it is read. The codec goes by the file's name (.gz,
 * .zst, else plain), so a pipe works too. A compressed file that breaks gives the whole lines
 * before the break, then one line marked torn; the part of a line before the break is not a line.
 */
#include "job/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job/shard_int.h"

struct hr_shard_reader {
    char *const *paths;
    int n_paths, i_shard;               /* i_shard: the open file, or the next one */
    int fd;                             /* -1: none is open */
    const struct hr_shard_codec *codec; /* NULL: plain */
    void *codec_state;
    int64_t line_no; /* lines given or skipped of this file */
    bool at_start;   /* nothing of this file has been looked at: a BOM may stand here */
    bool at_end;     /* the file has no more bytes than the buffer holds */
    bool too_long;   /* inside a line that is thrown away */
    bool torn;       /* the codec failed; torn_msg says how */
    struct hr_err torn_msg;
    char *buf; /* owned */
    size_t cap, begin, end, scanned;
};

enum hr_status hr_shard_read_fd(int fd, void *dst, size_t cap, size_t *n, struct hr_err *err) {
    ssize_t got;
    do got = read(fd, dst, cap);
    while (got < 0 && errno == EINTR);
    if (got < 0) return hr_err_set(err, HR_ERR_IO, "cannot be read: %s", strerror(errno));
    *n = (size_t)got;
    return HR_OK;
}

enum hr_status hr_shard_open(char *const *paths, int n_paths, struct hr_shard_reader **out,
                             struct hr_err *err) {
    struct hr_shard_reader *r = hr_xcalloc(1, sizeof *r);
    r->paths = paths;
    r->n_paths = n_paths;
    r->fd = -1;
    *out = r;
    return HR_OK;
}

static void close_file(struct hr_shard_reader *r) {
    if (r->codec != NULL) r->codec->destroy(r->codec_state);
    if (r->fd >= 0) close(r->fd);
    r->codec = NULL;
    r->codec_state = NULL;
    r->fd = -1;
}

void hr_shard_close(struct hr_shard_reader **r) {
    if (r == NULL || *r == NULL) return;
    close_file(*r);
    free((*r)->buf);
    free(*r);
    *r = NULL;
}

static bool ends_with(const char *s, const char *suffix) {
    size_t n = strlen(s), k = strlen(suffix);
    return n > k && strcmp(s + n - k, suffix) == 0;
}

static enum hr_status open_file(struct hr_shard_reader *r, struct hr_err *err) {
    const char *path = r->paths[r->i_shard];
    struct stat sb;
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0) return hr_err_set(err, HR_ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(r->fd, &sb) == 0 && S_ISDIR(sb.st_mode))
        return hr_err_set(err, HR_ERR_IO, "%s: is a directory, not a shard", path);
    if (ends_with(path, hr_shard_gz.suffix)) r->codec = &hr_shard_gz;
    if (ends_with(path, hr_shard_zst.suffix)) r->codec = &hr_shard_zst;
    if (r->codec != NULL && (r->codec_state = r->codec->create()) == NULL)
        return hr_err_set(err, HR_ERR_NOMEM, "%s: no memory to decompress", path);
    r->line_no = 0;
    r->begin = r->end = r->scanned = 0;
    r->at_start = true;
    r->at_end = r->too_long = r->torn = false;
    return HR_OK;
}

/* Moves the open line to the buffer's start and appends what one read gives. */
static enum hr_status fill(struct hr_shard_reader *r, struct hr_err *err) {
    if (r->begin > 0) {
        memmove(r->buf, r->buf + r->begin, r->end - r->begin);
        r->end -= r->begin;
        r->scanned -= r->begin;
        r->begin = 0;
    }
    if (r->cap - r->end < HR_SHARD_CHUNK) {
        r->cap = r->end + HR_SHARD_CHUNK > 2 * r->cap ? r->end + HR_SHARD_CHUNK : 2 * r->cap;
        if (r->cap > HR_LINE_MAX + 2 * HR_SHARD_CHUNK) r->cap = HR_LINE_MAX + 2 * HR_SHARD_CHUNK;
        r->buf = hr_xrealloc(r->buf, r->cap);
    }
    size_t n = 0;
    enum hr_status st =
        r->codec == NULL
            ? hr_shard_read_fd(r->fd, r->buf + r->end, HR_SHARD_CHUNK, &n, err)
            : r->codec->read(r->codec_state, r->fd, r->buf + r->end, HR_SHARD_CHUNK, &n, err);
    if (st == HR_ERR_FORMAT) {
        const char *why = err != NULL ? err->msg : "broken data";
        if (r->line_no > 0)
            hr_err_set(&r->torn_msg, st, "the rest of the shard is lost after line %lld: %s",
                       (long long)r->line_no, why);
        else
            hr_err_set(&r->torn_msg, st, "no line of the shard can be read: %s", why);
        r->torn = r->at_end = true;
        r->too_long = false;
        r->begin = r->scanned = r->end = 0;
        return HR_OK;
    }
    if (st < 0) return hr_err_prefix(err, "%s", r->paths[r->i_shard]);
    r->end += n;
    r->at_end = n == 0;
    return HR_OK;
}

/* The next line's bytes without its end; false when the file has none left. *too_long: dropped. */
static enum hr_status next_raw(struct hr_shard_reader *r, const char **p, size_t *len, bool *more,
                               struct hr_err *err) {
    for (;;) {
        char *nl =
            r->end > r->scanned ? memchr(r->buf + r->scanned, '\n', r->end - r->scanned) : NULL;
        if (nl != NULL || (r->at_end && r->end > r->begin) || (r->at_end && r->too_long)) {
            *p = r->buf + r->begin;
            *len = (nl != NULL ? (size_t)(nl - r->buf) : r->end) - r->begin;
            r->begin = r->scanned = nl != NULL ? (size_t)(nl - r->buf) + 1 : r->end;
            *more = true;
            return HR_OK;
        }
        if (r->at_end) {
            *more = false;
            return HR_OK;
        }
        r->scanned = r->end;
        if (r->end - r->begin > HR_LINE_MAX + 4) r->too_long = true; /* 4: a BOM and a CR */
        if (r->too_long) r->begin = r->end = r->scanned = 0;
        enum hr_status st = fill(r, err);
        if (st < 0) return st;
    }
}

static bool is_blank_line(const char *p, size_t len) {
    while (len > 0 && (*p == ' ' || *p == '\t' || *p == '\r')) p++, len--;
    return len == 0;
}

/* The next line that is not blank of the open file; *more false at its end. */
static enum hr_status next_in_file(struct hr_shard_reader *r, struct hr_line *line, bool *more,
                                   struct hr_err *err) {
    for (;;) {
        const char *p = "";
        size_t len = 0;
        r->too_long = false;
        enum hr_status st = next_raw(r, &p, &len, more, err);
        if (st < 0) return st;
        if (!*more && !r->torn) return HR_OK;
        *line = (struct hr_line){.i_shard = r->i_shard, .line_no = r->line_no + 1};
        if (!*more) {
            line->p = r->torn_msg.msg;
            line->len = strlen(r->torn_msg.msg);
            line->torn = *more = true;
            r->torn = false; /* told once; at_end stays */
            return HR_OK;
        }
        r->line_no++;
        if (r->at_start && len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) p += 3, len -= 3;
        r->at_start = false;
        if (len > 0 && p[len - 1] == '\r') len--;
        line->too_long = r->too_long || len > HR_LINE_MAX;
        if (!line->too_long && is_blank_line(p, len)) continue;
        line->p = line->too_long ? "" : p;
        line->len = line->too_long ? 0 : len;
        return HR_OK;
    }
}

enum hr_status hr_shard_next(struct hr_shard_reader *r, struct hr_line *line, bool *more,
                             struct hr_err *err) {
    struct hr_err local; /* fill() reads the message back */
    if (err == NULL) err = &local;
    while (r->i_shard < r->n_paths) {
        enum hr_status st = r->fd < 0 ? open_file(r, err) : HR_OK;
        if (st >= 0) st = next_in_file(r, line, more, err);
        if (st < 0) {
            close_file(r);
            return st;
        }
        if (*more) return HR_OK;
        close_file(r);
        r->i_shard++;
    }
    *more = false;
    return HR_OK;
}

enum hr_status hr_shard_count(char *const *paths, int n_paths, int64_t max,
                              const volatile bool *stop, int64_t *n, struct hr_err *err) {
    struct hr_shard_reader *r = NULL;
    struct hr_line line;
    bool more = true;
    int64_t count = 0;
    enum hr_status st = hr_shard_open(paths, n_paths, &r, err);
    while (st >= 0 && more && (max == 0 || count < max)) {
        if (stop != NULL && *stop)
            st = hr_err_set(err, HR_ERR_INTERRUPTED, "counting the lines was interrupted");
        else
            st = hr_shard_next(r, &line, &more, err);
        if (st >= 0 && more && !line.torn) count++;
    }
    hr_shard_close(&r);
    if (st >= 0) *n = count;
    return st;
}

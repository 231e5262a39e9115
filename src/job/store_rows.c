/* SPDX-License-Identifier: Apache-2.0
 *
 * store_rows: the start of a run: does raw_responses.jsonl hold what state.db says, and what else?
 *
 * Only sizes and the tail are looked at. The committed rows are checked from the last one backwards
 * until one is whole (its bytes are there and have its CRC); the others lost their bytes and are
 * set aside. What follows the last whole row is read line by line: a line is kept if and only if
 * all before it were and it ends with a newline, carries an identity that state.db knows, and
 * either is a set-aside row with the recorded length and CRC (somebody moved rows) or belongs to a
 * sample without an outcome (the process died between its write and its transaction). From the
 * first other line on, everything is cut off and kept in raw_responses.torn; set-aside rows that
 * were not met again are redone.
 *
 * Order: the cut bytes saved, the file cut and synced, then one transaction. A kill in between
 * leaves a file that this very procedure mends at the next start. */
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/jscan.h"
#include "base/log.h"
#include "job/store_int.h"

#define CHUNK_BYTES   (1u << 20)
#define ROW_BYTES_MAX (256u << 20) /* what is longer without a newline is not a row */

/* Lines from `pos` on. */
struct scan {
    const struct hr_file *f;
    struct hr_buf buf;
    size_t at;   /* of pos in buf */
    int64_t pos; /* in the file */
};

/* *line NULL: no whole line is left. Borrowed until the next call. */
static enum hr_status scan_line(struct scan *s, const char **line, size_t *len,
                                struct hr_err *err) {
    *line = NULL;
    for (;;) {
        size_t n = s->buf.len - s->at;
        const char *p = s->buf.data + s->at, *nl = n ? memchr(p, '\n', n) : NULL;
        if (nl) {
            *line = p;
            *len = (size_t)(nl - p) + 1;
            return HR_OK;
        }
        int64_t left = s->f->size - s->pos - (int64_t)n;
        if (left <= 0 || n > ROW_BYTES_MAX) return HR_OK;
        if (n > 0) memmove(s->buf.data, p, n);
        s->buf.len = n;
        s->at = 0;
        bool whole;
        size_t want = left < (int64_t)CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        enum hr_status code = hr_file_read(s->f, s->pos + (int64_t)n, want, &s->buf, &whole, err);
        if (code) return code;
        if (!whole)
            return hr_err_set(err, HR_ERR_IO, "%s: it became shorter while it was read",
                              s->f->path);
    }
}

/* Sets committed rows aside until the last one is whole; *end: where it ends (0: none). */
static enum hr_status check_marks(struct hr_store *st, int64_t *end, int64_t *n_aside,
                                  struct hr_err *err) {
    struct hr_buf bytes = {0};
    bool found, whole = false;
    *end = *n_aside = 0;
    /* Rows that begin past the end go at once: there are millions when the file is gone. */
    enum hr_status code = hr_db_run(st->db, "INSERT INTO aside SELECT * FROM done WHERE offset>=?",
                                    HR_ARGS(HR_INT(st->rows.size)), err);
    if (!code) *n_aside = hr_db_changes(st->db);
    if (!code)
        code = hr_db_run(st->db, "DELETE FROM done WHERE offset>=?", HR_ARGS(HR_INT(st->rows.size)),
                         err);
    while (!code) {
        int64_t m[3]; /* offset, length, crc */
        code =
            hr_db_get(st->db, "SELECT offset, length, crc FROM done ORDER BY offset DESC LIMIT 1",
                      HR_NO_ARGS, m, 3, &found, err);
        if (code || !found) break;
        hr_buf_clear(&bytes);
        code = hr_file_read(&st->rows, m[0], (size_t)m[1], &bytes, &whole, err);
        if (code) break;
        if (whole && hr_crc32c(0, bytes.data, bytes.len) == (uint32_t)m[2]) {
            *end = m[0] + m[1];
            break;
        }
        code = hr_db_run(st->db, "INSERT INTO aside SELECT * FROM done WHERE offset=?",
                         HR_ARGS(HR_INT(m[0])), err);
        if (!code)
            code = hr_db_run(st->db, "DELETE FROM done WHERE offset=?", HR_ARGS(HR_INT(m[0])), err);
        ++*n_aside;
    }
    hr_buf_finish(&bytes);
    return code;
}

struct counts {
    int64_t prompt, completion;
    bool length, repetitive;
};

/* The counts of a row that its transaction did not record; false when it is not a row. */
static bool row_counts(const char *line, size_t len, struct counts *c) {
    struct hr_jval root, usage, n, reason;
    if (hr_jscan_validate(line, len, &root, NULL) || root.type != HR_JOBJECT) return false;
    if (!hr_jscan_get(&root, "usage", &usage) || usage.type != HR_JOBJECT) return false;
    if (!hr_jscan_get(&usage, "prompt_tokens", &n) || n.type != HR_JNUMBER ||
        !hr_jscan_int(&n, &c->prompt))
        return false;
    if (!hr_jscan_get(&usage, "completion_tokens", &n) || n.type != HR_JNUMBER ||
        !hr_jscan_int(&n, &c->completion))
        return false;
    if (!hr_jscan_get(&root, "finish_reason", &reason) || reason.type != HR_JSTRING) return false;
    c->length = hr_jscan_str_eq(&reason, "length", 6);
    c->repetitive = hr_jscan_get(&root, "repetitive", &n) && n.type == HR_JTRUE;
    return true;
}

enum line_kind { LINE_KEPT, LINE_FOREIGN /* a row of some other state.db */, LINE_BAD };

/* A sample without an outcome: its row counts from now on, for the run that wrote it. */
static enum hr_status adopt(struct hr_store *st, int64_t row, int sample, int64_t offset,
                            const char *line, size_t len, const struct counts *n,
                            struct hr_err *err) {
    int64_t journalled = 0;
    bool found;
    enum hr_status code = hr_db_run(
        st->db, "INSERT INTO done VALUES(?,?,?,?,?,?,?,?,?)",
        HR_ARGS(HR_INT(offset), HR_INT((int64_t)len), HR_INT(hr_crc32c(0, line, len)), HR_INT(row),
                HR_INT(sample), HR_INT(n->prompt), HR_INT(n->completion), HR_INT(n->length),
                HR_INT(n->repetitive)),
        err);
    if (!code)
        code = hr_db_get(
            st->db, "SELECT ifnull(sum(length(tokens)),0)/4 FROM journal WHERE row=? AND sample=?",
            HR_ARGS(HR_INT(row), HR_INT(sample)), &journalled, 1, &found, err);
    if (!code)
        code = hr_db_run(st->db, "DELETE FROM journal WHERE row=? AND sample=?",
                         HR_ARGS(HR_INT(row), HR_INT(sample)), err);
    if (!code)
        code = hr_db_run(st->db,
                         "UPDATE tally SET rows_done=rows_done+1, rows_length=rows_length+?,"
                         "rows_repetitive=rows_repetitive+?,"
                         "prompt_tokens=prompt_tokens+?, completion_tokens=completion_tokens+?",
                         HR_ARGS(HR_INT(n->length), HR_INT(n->repetitive), HR_INT(n->prompt),
                                 HR_INT(n->completion)),
                         err);
    int64_t fresh = n->completion > journalled ? n->completion - journalled : 0;
    if (!code)
        code = hr_db_run(
            st->db,
            "UPDATE runs SET rows_done=rows_done+1, rows_length=rows_length+?,"
            "rows_repetitive=rows_repetitive+?,"
            "prompt_tokens=prompt_tokens+?, completion_tokens=completion_tokens+?,"
            "sampled_tokens=sampled_tokens+? WHERE id=(SELECT max(id) FROM runs)",
            HR_ARGS(HR_INT(n->length), HR_INT(n->repetitive), HR_INT(n->prompt),
                    HR_INT(n->completion), HR_INT(fresh)),
            err);
    return code;
}

/* A set-aside row that stands somewhere else now. */
static enum hr_status take_back(struct hr_store *st, int64_t row, int sample, int64_t offset,
                                struct hr_err *err) {
    enum hr_status code =
        hr_db_run(st->db,
                  "INSERT INTO done SELECT ?3, length, crc, row, sample, prompt_tokens,"
                  "completion_tokens, is_length, is_repetitive FROM aside WHERE row=?1 AND sample=?2",
                  HR_ARGS(HR_INT(row), HR_INT(sample), HR_INT(offset)), err);
    if (code) return code;
    return hr_db_run(st->db, "DELETE FROM aside WHERE row=? AND sample=?",
                     HR_ARGS(HR_INT(row), HR_INT(sample)), err);
}

static enum hr_status judge_line(struct hr_store *st, int64_t offset, const char *line, size_t len,
                                 enum line_kind *kind, bool *adopted, struct hr_err *err) {
    uint8_t ident[16];
    int occurrence, sample;
    int64_t row, one, mark[2];
    bool found;
    struct counts n;
    *kind = LINE_BAD;
    *adopted = false;
    if (!st->identify(line, len, ident, &occurrence, &sample) || sample < 0) return HR_OK;
    if (!row_counts(line, len, &n)) return HR_OK;
    enum hr_status code = hr_db_get(
        st->db, "SELECT row FROM rows WHERE i0=? AND i1=? AND occurrence=?",
        HR_ARGS(HR_INT(hr_store_key(ident, 0)), HR_INT(hr_store_key(ident, 1)), HR_INT(occurrence)),
        &row, 1, &found, err);
    if (code) return code;
    if (!found) {
        *kind = LINE_FOREIGN;
        return HR_OK;
    }
    code = hr_db_get(
        st->db,
        "SELECT 1 FROM done WHERE row=?1 AND sample=?2 UNION ALL SELECT 1 FROM rejects WHERE "
        "row=?1 AND row>=0 AND (sample=?2 OR sample<0)",
        HR_ARGS(HR_INT(row), HR_INT(sample)), &one, 1, &found, err);
    if (code || found) return code;
    code = hr_db_get(st->db, "SELECT length, crc FROM aside WHERE row=? AND sample=?",
                     HR_ARGS(HR_INT(row), HR_INT(sample)), mark, 2, &found, err);
    if (code) return code;
    bool damaged =
        found && (mark[0] != (int64_t)len || (uint32_t)mark[1] != hr_crc32c(0, line, len));
    if (damaged) return HR_OK;
    code = found ? take_back(st, row, sample, offset, err)
                 : adopt(st, row, sample, offset, line, len, &n, err);
    if (code) return code;
    *kind = LINE_KEPT;
    *adopted = !found;
    return HR_OK;
}

/* Reads the lines from *end on and moves *end to the end of the last one that is kept. */
static enum hr_status scan_tail(struct hr_store *st, int64_t *end, bool any_aside,
                                struct hr_store_recovery *r, struct hr_err *err) {
    struct scan s = {.f = &st->rows, .pos = *end};
    enum line_kind kind = LINE_KEPT;
    enum hr_status code = HR_OK;
    while (!code && kind == LINE_KEPT) {
        const char *line;
        size_t len = 0;
        bool adopted;
        code = scan_line(&s, &line, &len, err);
        if (code || !line) break;
        code = judge_line(st, s.pos, line, len, &kind, &adopted, err);
        if (code || kind != LINE_KEPT) break;
        s.at += len;
        s.pos += (int64_t)len;
        if (adopted) r->n_adopted++;
    }
    hr_buf_finish(&s.buf);
    if (!code && kind == LINE_FOREIGN && s.pos == 0 && any_aside)
        code =
            hr_err_set(err, HR_ERR_CONFIG,
                       "%s and %s do not belong together: none of the rows of one is in the other; "
                       "move one of them away (or is --state wrong?)",
                       st->rows.path, st->state_path);
    *end = s.pos;
    return code;
}

/* Appends the bytes from `from` on to raw_responses.torn, ended by a newline. */
static enum hr_status save_torn(struct hr_store *st, int64_t from, struct hr_err *err) {
    struct hr_buf path = {0}, bytes = {0};
    struct hr_file torn = {.fd = -1};
    hr_buf_printf(&path, "%s/raw_responses.torn", st->dir);
    enum hr_status code = hr_file_open(&torn, hr_buf_cstr(&path), err);
    while (!code && from < st->rows.size) {
        int64_t left = st->rows.size - from;
        size_t n = left < (int64_t)CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        bool whole;
        hr_buf_clear(&bytes);
        code = hr_file_read(&st->rows, from, n, &bytes, &whole, err);
        if (code || bytes.len == 0) break;
        from += (int64_t)bytes.len;
        if (from == st->rows.size && bytes.data[bytes.len - 1] != '\n') hr_buf_putc(&bytes, '\n');
        code = hr_file_append(&torn, bytes.data, bytes.len, err);
    }
    if (!code) code = hr_file_sync(&torn, err);
    hr_file_close(&torn);
    hr_buf_finish(&bytes);
    hr_buf_finish(&path);
    return code;
}

static enum hr_status drop_aside(struct hr_store *st, int *n_redo, struct hr_err *err) {
    int64_t n[1] = {0};
    bool found;
    enum hr_status code =
        hr_db_get(st->db, "SELECT count(*) FROM aside", HR_NO_ARGS, n, 1, &found, err);
    if (!code)
        code = hr_db_run(
            st->db,
            "UPDATE tally SET (rows_done, rows_length, rows_repetitive, prompt_tokens,"
            "completion_tokens) = ("
            "SELECT rows_done-count(*), rows_length-ifnull(sum(is_length),0),"
            "rows_repetitive-ifnull(sum(is_repetitive),0),"
            "tally.prompt_tokens-ifnull(sum(aside.prompt_tokens),0),"
            "tally.completion_tokens-ifnull(sum(aside.completion_tokens),0) FROM aside)",
            HR_NO_ARGS, err);
    if (!code) code = hr_db_run(st->db, "DELETE FROM aside", HR_NO_ARGS, err);
    if (!code) *n_redo = (int)n[0];
    return code;
}

/* A state.db that has never seen a run, beside rows: nothing could be told about them. */
static enum hr_status refuse_orphans(struct hr_store *st, struct hr_err *err) {
    int64_t one;
    bool found;
    enum hr_status code =
        hr_db_get(st->db, "SELECT 1 FROM runs LIMIT 1", HR_NO_ARGS, &one, 1, &found, err);
    if (code || found || st->rows.size == 0) return code;
    return hr_err_set(
        err, HR_ERR_CONFIG,
        "%s has rows, but %s knows nothing of them; bring its state file back (is --state "
        "missing?), or move the rows away",
        st->rows.path, st->state_path);
}

enum hr_status hr_store_recover_rows(struct hr_store *st, struct hr_store_recovery *r,
                                     struct hr_err *err) {
    int64_t end, n_aside;
    enum hr_status code = refuse_orphans(st, err);
    if (!code) code = hr_db_begin(st->db, true, err);
    if (code) return code;
    code = check_marks(st, &end, &n_aside, err);
    if (code) goto fail;
    if (n_aside == 0 && end == st->rows.size) {
        hr_db_rollback(st->db); /* the ordinary case: nothing to write */
        return HR_OK;
    }
    code = scan_tail(st, &end, n_aside > 0, r, err);
    if (!code) code = drop_aside(st, &r->n_redo, err);
    if (code) goto fail;
    r->n_cut_bytes = st->rows.size - end;
    if (r->n_cut_bytes > 0) {
        code = save_torn(st, end, err);
        if (!code) code = hr_file_cut(&st->rows, end, err);
    }
    st->rows.unsynced = true; /* adopted rows were never synced by us */
    if (!code) code = hr_file_sync(&st->rows, err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) goto fail;
    return HR_OK;
fail:
    hr_db_rollback(st->db);
    return code;
}

/* rejects.jsonl counts as far as tally.rejects_bytes: what follows was written by a process that
 * died before its transaction, and its lines will be met again. When it is shorter, the lines that
 * are gone are forgotten and so written again. */
enum hr_status hr_store_recover_rejects(struct hr_store *st, struct hr_err *err) {
    int64_t t[2] = {0}, rest[2] = {0}; /* lines, bytes */
    bool found;
    enum hr_status code = hr_db_get(st->db, "SELECT rejects, rejects_bytes FROM tally", HR_NO_ARGS,
                                    t, 2, &found, err);
    if (code) return code;
    st->n_rejects = t[0];
    if (st->rejects.size == t[1]) return HR_OK;
    if (st->rejects.size > t[1]) return hr_file_cut(&st->rejects, t[1], err);
    code = hr_db_begin(st->db, true, err);
    if (code) return code;
    code = hr_db_run(st->db, "DELETE FROM rejects WHERE end>?", HR_ARGS(HR_INT(st->rejects.size)),
                     err);
    if (!code)
        code = hr_db_get(st->db, "SELECT count(*), ifnull(max(end),0) FROM rejects", HR_NO_ARGS,
                         rest, 2, &found, err);
    if (!code)
        code = hr_db_run(st->db, "UPDATE tally SET rejects=?, rejects_bytes=?",
                         HR_ARGS(HR_INT(rest[0]), HR_INT(rest[1])), err);
    if (!code) code = hr_file_cut(&st->rejects, rest[1], err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) {
        hr_db_rollback(st->db);
        return code;
    }
    hr_warn("%s: %lld lines are not in the file any more; they are written again when they are met",
            st->rejects.path, (long long)(t[0] - rest[0]));
    st->n_rejects = rest[0];
    return HR_OK;
}

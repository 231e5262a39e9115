/* SPDX-License-Identifier: Apache-2.0
 *
 * store_seen: input rows and rejected lines as a pass over the input meets them.
 *
 * Most identities are there once; `rows.pass` then says whether this pass has met the row. An
 * identity that is there more often has a record in dup_idents (how many rows are known, how many
 * this pass has met) and, for each content, one in dup_rows (the last occurrence met; those of one
 * content are met in rising order), so that a prompt that stands a million times in the input costs
 * each time the same.
 *
 * The rule: a row gets the lowest unmet occurrence with its content; when there is none, it is a
 * new duplicate if all known rows of the identity were met, else a known row has changed its
 * content. That is refused if anything was made of the row, or if it may be one of several. If
 * nothing was (its samples are missing or rejected), the row is taken with its new content. */
#include <string.h>

#include "base/assert.h"
#include "job/store_int.h"

struct known {
    int n; /* rows of the identity that were found: 0, 1, or 2 for "more" */
    int64_t row, pass;
    uint8_t content[16];
};

static void key_bytes(int64_t lo, int64_t hi, uint8_t out[16]) {
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)((uint64_t)lo >> (8 * i));
        out[8 + i] = (uint8_t)((uint64_t)hi >> (8 * i));
    }
}

static enum hr_status look_up(struct hr_store *st, const uint8_t ident[16], struct known *k,
                              struct hr_err *err) {
    struct hr_cursor *c;
    enum hr_status code = hr_db_query(
        st->db, "SELECT row, c0, c1, pass FROM rows WHERE i0=? AND i1=? LIMIT 2",
        HR_ARGS(HR_INT(hr_store_key(ident, 0)), HR_INT(hr_store_key(ident, 1))), &c, err);
    *k = (struct known){0};
    for (bool more = true; !code;) {
        code = hr_cursor_next(c, &more, err);
        if (code || !more) break;
        if (k->n++ > 0) continue;
        k->row = hr_cursor_int(c, 0);
        key_bytes(hr_cursor_int(c, 1), hr_cursor_int(c, 2), k->content);
        k->pass = hr_cursor_int(c, 3);
    }
    return code;
}

static enum hr_status edited(const char *id_text, struct hr_err *err) {
    struct hr_buf id = {0};
    hr_buf_put_cut(&id, id_text, strlen(id_text), HR_STORE_ID_MAX);
    enum hr_status code = hr_err_set(
        err, HR_ERR_CONFIG,
        "row id %s was edited: it has other content than in an earlier run; undo the edit, "
        "or give the row a new id",
        hr_buf_cstr(&id));
    hr_buf_finish(&id);
    return code;
}

/* What meeting a row means: found out first, done as a whole afterwards, so that a call that failed
 * can be made again. */
struct plan {
    struct hr_store_op ops[4];
    int n_ops;
    struct hr_store_seen seen;
    bool edits;
};

static void add_op(struct plan *p, struct hr_store_op op, const uint8_t ident[16],
                   const uint8_t content[16]) {
    memcpy(op.key, ident, 16);
    if (content) memcpy(op.key2, content, 16);
    p->ops[p->n_ops++] = op;
}

static void add_row(struct hr_store *st, struct plan *p, const uint8_t ident[16],
                    const uint8_t content[16], int64_t occurrence) {
    struct hr_store_op op = {.kind = HR_OP_ROW, .a = st->next_row, .b = occurrence, .c = st->run};
    add_op(p, op, ident, content);
    p->seen =
        (struct hr_store_seen){.row = st->next_row, .occurrence = (int)occurrence, .is_new = true};
}

static void add_ident(struct hr_store *st, struct plan *p, const uint8_t ident[16], int64_t met,
                      int64_t n_known) {
    struct hr_store_op op = {.kind = HR_OP_IDENT, .a = met, .b = n_known, .c = st->run};
    add_op(p, op, ident, NULL);
}

static void add_group(struct hr_store *st, struct plan *p, const uint8_t ident[16],
                      const uint8_t content[16], int64_t last) {
    struct hr_store_op op = {.kind = HR_OP_GROUP, .a = last, .c = st->run};
    add_op(p, op, ident, content);
}

/* An identity that is there once has come with other content. */
static enum hr_status plan_edit(struct hr_store *st, const struct known *k, const uint8_t ident[16],
                                const uint8_t content[16], const char *id_text, struct plan *p,
                                struct hr_err *err) {
    int64_t n[2] = {0}; /* anything made; rejects */
    bool found;
    enum hr_status code = hr_db_get(
        st->db,
        "SELECT EXISTS(SELECT 1 FROM done WHERE row=?1) OR "
        "EXISTS(SELECT 1 FROM journal WHERE row=?1),"
        "(SELECT count(*) FROM rejects WHERE row=?1 AND row>=0)",
        HR_ARGS(HR_INT(k->row)), n, 2, &found, err);
    if (code) return code;
    if (n[0]) return edited(id_text, err);
    struct hr_store_op op = {.kind = HR_OP_EDIT, .a = k->row, .c = st->run};
    add_op(p, op, ident, content);
    p->seen = (struct hr_store_seen){.row = k->row, .n_forgotten = (int)n[1]};
    p->edits = true;
    return HR_OK;
}

/* The identity is there once. */
static enum hr_status plan_single(struct hr_store *st, const struct known *k,
                                  const uint8_t ident[16], const uint8_t content[16],
                                  const char *id_text, struct plan *p, struct hr_err *err) {
    bool same = memcmp(k->content, content, 16) == 0;
    if (k->pass != st->run) {
        if (!same) return plan_edit(st, k, ident, content, id_text, p, err);
        struct hr_store_op met = {.kind = HR_OP_MET, .a = k->row, .c = st->run};
        add_op(p, met, ident, content);
        p->seen = (struct hr_store_seen){.row = k->row};
        return HR_OK;
    }
    add_row(st, p, ident, content, 1);
    add_ident(st, p, ident, 2, 2);
    add_group(st, p, ident, k->content, 0);
    add_group(st, p, ident, content,
              1); /* writes over the one before when the contents are equal */
    return HR_OK;
}

/* The identity is there more than once. */
static enum hr_status plan_duplicate(struct hr_store *st, const uint8_t ident[16],
                                     const uint8_t content[16], const char *id_text, struct plan *p,
                                     struct hr_err *err) {
    int64_t all[3] = {0}, group[2] = {0},
            next[2] = {0}; /* pass, met, known; pass, last; row, occurrence */
    bool found, is_known = false;
    enum hr_status code = hr_db_get(st->db, "SELECT pass, met, known FROM dup_idents WHERE ident=?",
                                    HR_ARGS(HR_BLOB(ident, 16)), all, 3, &found, err);
    if (code) return code;
    HR_ASSERT(found);
    code = hr_db_get(st->db, "SELECT pass, last FROM dup_rows WHERE ident=? AND content=?",
                     HR_ARGS(HR_BLOB(ident, 16), HR_BLOB(content, 16)), group, 2, &found, err);
    int64_t met = all[0] == st->run ? all[1] : 0, n_known = all[2];
    int64_t last = found && group[0] == st->run ? group[1] : -1;
    if (!code && met < n_known)
        code =
            hr_db_get(st->db,
                      "SELECT row, occurrence FROM rows WHERE i0=?1 AND i1=?2 AND c0=?3 AND c1=?4 "
                      "AND occurrence>?5 ORDER BY occurrence LIMIT 1",
                      HR_ARGS(HR_INT(hr_store_key(ident, 0)), HR_INT(hr_store_key(ident, 1)),
                              HR_INT(hr_store_key(content, 0)), HR_INT(hr_store_key(content, 1)),
                              HR_INT(last)),
                      next, 2, &is_known, err);
    if (code) return code;
    if (is_known) {
        add_ident(st, p, ident, met + 1, n_known);
        add_group(st, p, ident, content, next[1]);
        p->seen = (struct hr_store_seen){.row = next[0], .occurrence = (int)next[1]};
        return HR_OK;
    }
    if (met < n_known) return edited(id_text, err);
    add_row(st, p, ident, content, n_known);
    add_ident(st, p, ident, met + 1, n_known + 1);
    add_group(st, p, ident, content, n_known);
    return HR_OK;
}

/* Is there an outcome for every sample of a known row? */
static enum hr_status nothing_left(struct hr_store *st, int64_t row, int n_samples, bool *yes,
                                   struct hr_err *err) {
    int64_t n[3] = {0};
    bool found;
    enum hr_status code = hr_db_get(
        st->db,
        "SELECT (SELECT count(*) FROM done WHERE row=?1 AND sample<?2),"
        "(SELECT count(*) FROM rejects WHERE row=?1 AND row>=0 AND sample>=0 AND sample<?2),"
        "(SELECT count(*) FROM rejects WHERE row=?1 AND row>=0 AND sample<0)",
        HR_ARGS(HR_INT(row), HR_INT(n_samples)), n, 3, &found, err);
    if (!code) *yes = n[2] > 0 || n[0] + n[1] >= n_samples;
    return code;
}

enum hr_status hr_store_see(struct hr_store *st, const uint8_t ident[16], const uint8_t content[16],
                            const char *id_text, int n_samples, struct hr_store_seen *out,
                            struct hr_err *err) {
    HR_ASSERT(st->run > 0);
    struct known k;
    struct plan p = {.n_ops = 0};
    enum hr_status code = hr_store_batch_begin(st, err);
    if (!code) code = look_up(st, ident, &k, err);
    if (code) return code;
    if (k.n == 0)
        add_row(st, &p, ident, content, 0);
    else if (k.n == 1)
        code = plan_single(st, &k, ident, content, id_text, &p, err);
    else
        code = plan_duplicate(st, ident, content, id_text, &p, err);
    if (!code && !p.seen.is_new && !p.edits)
        code = nothing_left(st, p.seen.row, n_samples, &p.seen.duplicate_of_done, err);
    if (!code) code = hr_store_batch_do(st, p.ops, p.n_ops, err);
    if (code) return code;
    if (p.seen.is_new) st->next_row++;
    st->n_rejects -= p.seen.n_forgotten;
    *out = p.seen;
    return HR_OK;
}

enum hr_status hr_store_see_line(struct hr_store *st, const uint8_t hash[16], int *occurrence,
                                 struct hr_err *err) {
    HR_ASSERT(st->run > 0);
    int64_t line[2] = {0}; /* pass, times met in it */
    bool found = false;
    enum hr_status code = hr_store_batch_begin(st, err);
    if (!code)
        code = hr_db_get(st->db, "SELECT pass, n FROM lines WHERE hash=?",
                         HR_ARGS(HR_BLOB(hash, 16)), line, 2, &found, err);
    if (code) return code;
    int64_t n = found && line[0] == st->run ? line[1] : 0;
    struct hr_store_op op = {.kind = HR_OP_LINE, .a = n + 1, .c = st->run};
    memcpy(op.key, hash, 16);
    code = hr_store_batch_do(st, &op, 1, err);
    if (!code) *occurrence = (int)n;
    return code;
}

enum hr_status hr_store_reject(struct hr_store *st, const uint8_t key[16], int64_t row, int sample,
                               const char *json, size_t len, bool *was_known, struct hr_err *err) {
    HR_ASSERT(len > 0 && json[len - 1] == '\n');
    int64_t one;
    bool known = false;
    enum hr_status code = hr_store_batch_begin(st, err);
    if (!code)
        code = hr_db_get(st->db, "SELECT 1 FROM rejects WHERE key=?", HR_ARGS(HR_BLOB(key, 16)),
                         &one, 1, &known, err);
    if (!code && !known) {
        struct hr_store_op op = {.kind = HR_OP_REJECT, .sample = sample, .a = row < 0 ? -1 : row};
        op.b = st->rejects.size + (int64_t)(st->rejects_new.len + len);
        memcpy(op.key, key, 16);
        code = hr_store_batch_do(st, &op, 1, err);
    }
    if (code) return code;
    if (!known) {
        hr_buf_append(&st->rejects_new, json, len);
        st->n_rejects++;
    }
    *was_known = known;
    return HR_OK;
}

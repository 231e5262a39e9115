/* SPDX-License-Identifier: Apache-2.0
 *
 * store_batch: the open transaction of small changes; its idea and invariant are in store_int.h. */
#include <string.h>

#include "base/assert.h"
#include "job/store_int.h"

int64_t hr_store_key(const uint8_t key[16], int half) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)key[8 * half + i] << (8 * i);
    return (int64_t)v;
}

static enum hr_status apply_reject(struct hr_db *db, const struct hr_store_op *o, struct hr_err *err) {
    enum hr_status code =
        hr_db_run(db, "INSERT OR REPLACE INTO rejects VALUES(?,?,?,?)",
                  HR_ARGS(HR_BLOB(o->key, 16), HR_INT(o->a), HR_INT(o->sample), HR_INT(o->b)), err);
    if (code || o->a < 0) return code;
    return hr_db_run(db, "DELETE FROM journal WHERE row=?1 AND (?2 < 0 OR sample=?2)",
                     HR_ARGS(HR_INT(o->a), HR_INT(o->sample)), err);
}

/* Its lines stay in rejects.jsonl, which only grows. */
static enum hr_status apply_edit(struct hr_db *db, const struct hr_store_op *o, struct hr_err *err) {
    enum hr_status code = hr_db_run(db, "UPDATE rows SET c0=?2, c1=?3, pass=?4 WHERE row=?1",
                                    HR_ARGS(HR_INT(o->a), HR_INT(hr_store_key(o->key2, 0)),
                                            HR_INT(hr_store_key(o->key2, 1)), HR_INT(o->c)),
                                    err);
    if (code) return code;
    return hr_db_run(db, "DELETE FROM rejects WHERE row=?1 AND row>=0", HR_ARGS(HR_INT(o->a)), err);
}

/* Every statement leaves the same state when it is done a second time. */
static enum hr_status apply(struct hr_db *db, const struct hr_store_op *o, struct hr_err *err) {
    switch (o->kind) {
    case HR_OP_ROW: /* a: row, b: occurrence, c: pass; keys: ident, content */
        return hr_db_run(db, "INSERT OR REPLACE INTO rows VALUES(?,?,?,?,?,?,?)",
                         HR_ARGS(HR_INT(o->a), HR_INT(hr_store_key(o->key, 0)),
                                 HR_INT(hr_store_key(o->key, 1)), HR_INT(hr_store_key(o->key2, 0)),
                                 HR_INT(hr_store_key(o->key2, 1)), HR_INT(o->b), HR_INT(o->c)),
                         err);
    case HR_OP_MET: /* a: row, c: pass */
        return hr_db_run(db, "UPDATE rows SET pass=?2 WHERE row=?1",
                         HR_ARGS(HR_INT(o->a), HR_INT(o->c)), err);
    case HR_OP_IDENT: /* a: rows met, b: rows known, c: pass */
        return hr_db_run(db, "INSERT OR REPLACE INTO dup_idents VALUES(?,?,?,?)",
                         HR_ARGS(HR_BLOB(o->key, 16), HR_INT(o->c), HR_INT(o->a), HR_INT(o->b)),
                         err);
    case HR_OP_GROUP: /* a: last occurrence met, c: pass */
        return hr_db_run(
            db, "INSERT OR REPLACE INTO dup_rows VALUES(?,?,?,?)",
            HR_ARGS(HR_BLOB(o->key, 16), HR_BLOB(o->key2, 16), HR_INT(o->c), HR_INT(o->a)), err);
    case HR_OP_LINE: /* a: times met, c: pass */
        return hr_db_run(db, "INSERT OR REPLACE INTO lines VALUES(?,?,?)",
                         HR_ARGS(HR_BLOB(o->key, 16), HR_INT(o->c), HR_INT(o->a)), err);
    case HR_OP_EDIT: /* a: row, c: pass; key2: content */
        return apply_edit(db, o, err);
    case HR_OP_REJECT: /* a: row or -1, b: where its line ends in rejects.jsonl */
        break;
    }
    HR_ASSERT(o->kind == HR_OP_REJECT);
    return apply_reject(db, o, err);
}

static enum hr_status apply_all(struct hr_store *st, const struct hr_store_op *ops, int n,
                                struct hr_err *err) {
    enum hr_status code = HR_OK;
    for (int i = 0; i < n && !code; i++) code = apply(st->db, &ops[i], err);
    /* Also when SQLite has kept the transaction: half a row's operations must not stay in it. */
    if (code) hr_db_rollback(st->db);
    return code;
}

static enum hr_status reopen(struct hr_store *st, struct hr_err *err) {
    if (hr_db_in_transaction(st->db)) return HR_OK;
    enum hr_status code = hr_db_begin(st->db, false, err);
    return code ? code : apply_all(st, st->ops, st->n_ops, err);
}

/* Lines of rejects may be in the file before their transaction: they do not count until then. */
static enum hr_status write_rejects(struct hr_store *st, struct hr_err *err) {
    if (st->rejects_new.len == 0) return HR_OK;
    enum hr_status code =
        hr_file_append(&st->rejects, st->rejects_new.data, st->rejects_new.len, err);
    if (!code) hr_buf_clear(&st->rejects_new);
    return code;
}

enum hr_status hr_store_batch_begin(struct hr_store *st, struct hr_err *err) {
    HR_ASSERT(!st->readonly);
    enum hr_status code = HR_OK;
    if (st->n_ops + 8 > HR_STORE_OPS_MAX)
        code = hr_store_batch_commit(st, err);
    else if (st->rejects_new.len > HR_STORE_REJECTS_MAX)
        code = write_rejects(st, err);
    return code ? code : reopen(st, err);
}

enum hr_status hr_store_batch_do(struct hr_store *st, const struct hr_store_op *ops, int n,
                                 struct hr_err *err) {
    HR_ASSERT(hr_db_in_transaction(st->db));
    HR_ASSERT(st->n_ops + n <= HR_STORE_OPS_MAX);
    enum hr_status code = apply_all(st, ops, n, err);
    if (code) return code;
    memcpy(st->ops + st->n_ops, ops, (size_t)n * sizeof *ops);
    st->n_ops += n;
    return HR_OK;
}

enum hr_status hr_store_batch_commit(struct hr_store *st, struct hr_err *err) {
    HR_ASSERT(!st->readonly);
    if (st->n_ops == 0) {
        hr_db_rollback(st->db); /* opened for an operation that came to nothing */
        return HR_OK;
    }
    enum hr_status code = reopen(st, err);
    if (!code) code = write_rejects(st, err);
    if (!code)
        code = hr_db_run(st->db, "UPDATE tally SET rejects=?, rejects_bytes=?",
                         HR_ARGS(HR_INT(st->n_rejects), HR_INT(st->rejects.size)), err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) {
        hr_db_rollback(st->db); /* nobody else shall wait while our caller waits for room */
        return code;
    }
    st->n_ops = 0;
    st->unsynced = true;
    return HR_OK;
}

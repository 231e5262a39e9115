/* SPDX-License-Identifier: Apache-2.0
 *
 * store_int: the store from the inside, for store*.c only.
 *
 * Rows seen, lines counted and rejects come by the hundred thousand, so they share one open
 * transaction, the batch. SQLite may throw a transaction away on its own (a full disk), while the
 * caller already uses the row numbers that it was given; so the batch's changes are also kept as a
 * list of operations and done again at the next turn. Invariant: state.db as committed + ops = what
 * the callers were told. */
#ifndef HR_JOB_STORE_INT_H
#define HR_JOB_STORE_INT_H

#include "job/store.h"
#include "job/store_db.h"
#include "job/store_file.h"

/* 4 MiB: a long batch changes a page of an index more than once before it is written. */
#define HR_STORE_OPS_MAX     65536
#define HR_STORE_REJECTS_MAX (256u << 10) /* bytes of rejects that wait for one write */

struct hr_store_op {
    enum { HR_OP_ROW, HR_OP_MET, HR_OP_IDENT, HR_OP_GROUP, HR_OP_LINE, HR_OP_REJECT, HR_OP_EDIT } kind;
    int sample;
    int64_t a, b, c; /* their meaning per kind: see apply() in store_batch.c */
    uint8_t key[16], key2[16];
};

struct hr_store {
    char *dir, *state_path; /* owned */
    bool readonly;
    int version; /* of the schema that was found; 0: none */
    int lock_fd, state_lock_fd; /* owned; -1: none */
    struct hr_db *db;
    struct hr_file rows, rejects;
    bool (*identify)(const char *line, size_t len, uint8_t ident[16], int *occurrence, int *sample);
    int64_t run;             /* id of this run and of its pass over the input; 0: not begun */
    int64_t next_row;        /* the number of the next new row */
    struct hr_store_op *ops; /* owned, [HR_STORE_OPS_MAX] */
    int n_ops;
    struct hr_buf rejects_new; /* lines of the batch that are not in the file yet */
    int64_t n_rejects;         /* in all, the batch's included */
    bool unsynced;             /* something was committed since the last synced commit */
    struct hr_buf out;         /* the rows of one commit, for one write */
};

/* Opens the batch's transaction unless it is open, and makes room for a few operations in it. */
HR_MUST_USE enum hr_status hr_store_batch_begin(struct hr_store *st, struct hr_err *err);
/* Does all n operations and remembers them, or none. */
HR_MUST_USE enum hr_status hr_store_batch_do(struct hr_store *st, const struct hr_store_op *ops,
                                             int n, struct hr_err *err);
/* Writes the rejects, then commits the batch, to the operating system. Afterwards no transaction is
 * open. */
HR_MUST_USE enum hr_status hr_store_batch_commit(struct hr_store *st, struct hr_err *err);

/* The start: sizes and tails (store_rows.c). */
HR_MUST_USE enum hr_status hr_store_recover_rows(struct hr_store *st, struct hr_store_recovery *r,
                                                 struct hr_err *err);
HR_MUST_USE enum hr_status hr_store_recover_rejects(struct hr_store *st, struct hr_err *err);

/* Identities are two integers in the database: an index entry is then half as long as with blobs.
 */
int64_t hr_store_key(const uint8_t key[16], int half);

#endif

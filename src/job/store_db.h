/* SPDX-License-Identifier: Apache-2.0
 *
 * store_db: SQL for the store, private to src/job: statements that are prepared once, transactions
 * of two strengths, and SQLite's errors in our own words. What the tables mean is said in store.c.
 *
 * A statement is known by the address of its text, so every `sql` must be a string literal. A busy
 * database is waited for without end, with a line every few seconds, until *stop is set: somebody's
 * shell must not cost a night's work. */
#ifndef HR_JOB_STORE_DB_H
#define HR_JOB_STORE_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct hr_db;

enum hr_db_mode {
    HR_DB_WRITE,  /* made when it is not there; WAL */
    HR_DB_READ,   /* beside a writer, or over the WAL that a killed one left */
    HR_DB_FROZEN, /* nobody writes and there is no WAL: no file beside it is touched or made */
};

/* stop: borrowed until close, or NULL. Errors: HR_ERR_IO naming --state where WAL does not work;
 * HR_ERR_FORMAT when the file is not a database or is damaged. */
HR_MUST_USE enum hr_status hr_db_open(const char *path, enum hr_db_mode mode,
                                      const volatile bool *stop, struct hr_db **out,
                                      struct hr_err *err);
void hr_db_close(struct hr_db **db);

/* One argument of a statement; blobs and texts are borrowed for the call. */
struct hr_val {
    enum { HR_VAL_INT, HR_VAL_BLOB, HR_VAL_TEXT } type;
    int64_t i;
    const void *p;
    size_t len;
};
#define HR_INT(x)     ((struct hr_val){HR_VAL_INT, (x), NULL, 0})
#define HR_BLOB(b, n) ((struct hr_val){HR_VAL_BLOB, 0, (b), (n)})
#define HR_TEXT(s)    ((struct hr_val){HR_VAL_TEXT, 0, (s), strlen(s)})
#define HR_ARGS(...)                                                                               \
    (const struct hr_val[]){__VA_ARGS__},                                                          \
        (int)(sizeof((struct hr_val[]){__VA_ARGS__}) / sizeof(struct hr_val))
#define HR_NO_ARGS NULL, 0

/* Plain statements without arguments or results, separated by semicolons; not kept. */
HR_MUST_USE enum hr_status hr_db_script(struct hr_db *db, const char *sql, struct hr_err *err);
/* A statement without a result. */
HR_MUST_USE enum hr_status hr_db_run(struct hr_db *db, const char *sql, const struct hr_val *args,
                                     int n_args, struct hr_err *err);
int hr_db_changes(const struct hr_db *db); /* rows changed by the last hr_db_run */
/* The first row of a result as n integers (NULL reads as 0); *found false: there is none, out is
 * kept. */
HR_MUST_USE enum hr_status hr_db_get(struct hr_db *db, const char *sql, const struct hr_val *args,
                                     int n_args, int64_t *out, int n, bool *found,
                                     struct hr_err *err);

/* Several rows: begin, next until *more is false or a failure, which end it; or end it earlier. The
 * transaction cannot be committed while one is open. */
struct hr_cursor;
HR_MUST_USE enum hr_status hr_db_query(struct hr_db *db, const char *sql, const struct hr_val *args,
                                       int n_args, struct hr_cursor **out, struct hr_err *err);
HR_MUST_USE enum hr_status hr_cursor_next(struct hr_cursor *c, bool *more, struct hr_err *err);
int64_t hr_cursor_int(struct hr_cursor *c, int col);
const char *hr_cursor_text(struct hr_cursor *c, int col); /* borrowed until next; never NULL */
const void *hr_cursor_blob(struct hr_cursor *c, int col, size_t *len);
void hr_cursor_end(struct hr_cursor *c);

/* A write transaction. `synced`: its commit returns when it is on the disk (synchronous FULL); else
 * it is in the operating system's hands (NORMAL: a killed process loses nothing, a power cut may
 * lose the last ones whole, never a part or the database). A failed commit has rolled back. */
HR_MUST_USE enum hr_status hr_db_begin(struct hr_db *db, bool synced, struct hr_err *err);
HR_MUST_USE enum hr_status hr_db_commit(struct hr_db *db, struct hr_err *err);
void hr_db_rollback(struct hr_db *db); /* also when none is open */
bool hr_db_in_transaction(const struct hr_db *db);

#endif

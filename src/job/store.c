/* SPDX-License-Identifier: Apache-2.0
 *
 * store: what a dataset job has on the disk; see store.h. In DIR/<dataset>/:
 *
 *   raw_responses.jsonl   one row a finished sample; only grows
 *   raw_responses.torn    bytes that a start has cut off the former, kept for people
 *   rejects.jsonl         one line a rejected line or sample; rejects.jsonl.<n>: earlier tries
 *   state.db (-wal, -shm) SQLite, WAL; elsewhere with --state (then PATH.lock beside it)
 *   lock                  held while a run lives; "pid N on host H"
 *
 * A ROW IS COMMITTED if and only if table `done` has a mark of it and the file holds, at the mark's
 * offset, `length` bytes with its CRC-32C. A REJECT IS COMMITTED if and only if `rejects` has its
 * key and rejects.jsonl is at least `end` bytes long. A TOKEN IS JOURNALLED if and only if it is in
 * a blob of `journal` (int32, little-endian, appended in the order of seq) and its sample has no
 * outcome.
 *
 * Order of a commit: the input rows that it speaks of -> rows appended in one write -> fdatasync ->
 * one transaction, synced. So a kill leaves at worst whole rows without a mark, or a torn one, at
 * the end of the file; what a start does with them is said in store_rows.c. Of the file and
 * state.db that disagree, the file is right: a mark without its bytes is dropped and the sample
 * done again.
 *
 *   settings, facts       key -> value; what all runs agree on / what the next run wants
 *   rows                  an input row: identity i0,i1, content c0,c1 (16 bytes each, little-endian
 *                         halves), occurrence in its identity, pass = run that met it last
 *   dup_idents, dup_rows  bookkeeping of identities with more than one row: store_seen.c
 *   done                  a finished sample; its offset is the key, so marks lie in file order
 *   aside                 shape of done; empty outside a start
 *   journal               (row, sample, seq) -> tokens
 *   lines                 hash of a rejected line -> how often the pass `pass` has met it
 *   rejects               key -> row (-1: none), sample (-1: all), end of its line in rejects.jsonl
 *   runs                  a run's start, end and counters
 *   tally                 one row: sums over done and rejects, kept in their transactions, so that
 *                         nobody has to count ten million marks
 *
 * application_id is "HRst", user_version the version of this schema: a newer one is refused, an older one is
 * brought up to date by the first run, and `status` reads it as it is. */
#include "job/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "job/record.h"
#include "job/store_int.h"
#include "job/store_lock.h"

#define SCHEMA_VERSION 3
#define APPLICATION_ID 0x48527374 /* "HRst" */

/* Counters that version 1 had, and those that came with later ones. Version 3 marks repetitive rows. */
#define COUNTERS_1(X)                                                                              \
    X(rows_done)                                                                                   \
    X(rows_length) X(rejects) X(prompt_tokens) X(completion_tokens) X(sampled_tokens)              \
        X(prefill_tokens) X(cached_tokens) X(resumed_tokens) X(recomputed_tokens) X(preemptions)   \
            X(decode_steps) X(running_sum) X(active_ns)
#define COUNTERS_2(X) X(canaries_picked) X(canaries_checked) X(canaries_failed)
#define COUNTERS_3(X) X(rows_repetitive)
#define COUNTERS(X)   COUNTERS_1(X) COUNTERS_2(X) COUNTERS_3(X)

#define X_COLUMN(name) ", " #name " INTEGER NOT NULL DEFAULT 0"
#define MARK_COLUMNS                                                                               \
    "(offset INTEGER PRIMARY KEY, length INTEGER NOT NULL, crc INTEGER NOT NULL,"                  \
    " row INTEGER NOT NULL, sample INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,"              \
    " completion_tokens INTEGER NOT NULL, is_length INTEGER NOT NULL,"                                 \
    " is_repetitive INTEGER NOT NULL DEFAULT 0);"

static const char schema[] =
    "CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE facts(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE rows(row INTEGER PRIMARY KEY, i0 INTEGER NOT NULL, i1 INTEGER NOT NULL,"
    " c0 INTEGER NOT NULL, c1 INTEGER NOT NULL, occurrence INTEGER NOT NULL, pass INTEGER NOT "
    "NULL);"
    "CREATE INDEX rows_ident ON rows(i0, c0, occurrence);"
    "CREATE TABLE dup_idents(ident BLOB PRIMARY KEY, pass INTEGER NOT NULL, met INTEGER NOT NULL,"
    " known INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE dup_rows(ident BLOB, content BLOB, pass INTEGER NOT NULL, last INTEGER NOT NULL,"
    " PRIMARY KEY(ident, content)) WITHOUT ROWID;"
    "CREATE TABLE done" MARK_COLUMNS "CREATE UNIQUE INDEX done_sample ON done(row, sample);"
    "CREATE TABLE aside" MARK_COLUMNS "CREATE UNIQUE INDEX aside_sample ON aside(row, sample);"
    "CREATE TABLE journal(row INTEGER, sample INTEGER, seq INTEGER, tokens BLOB NOT NULL,"
    " PRIMARY KEY(row, sample, seq)) WITHOUT ROWID;"
    "CREATE TABLE lines(hash BLOB PRIMARY KEY, pass INTEGER NOT NULL, n INTEGER NOT NULL) WITHOUT "
    "ROWID;"
    "CREATE TABLE rejects(key BLOB PRIMARY KEY, row INTEGER NOT NULL, sample INTEGER NOT NULL,"
    " end INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX rejects_row ON rejects(row, sample) WHERE row>=0;"
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, started TEXT NOT NULL, ended TEXT NOT NULL DEFAULT "
    "'',"
    " how TEXT NOT NULL DEFAULT '', version TEXT NOT NULL, host TEXT NOT NULL" COUNTERS(
        X_COLUMN) ");"
                  "CREATE TABLE tally(rows_done INTEGER NOT NULL, rows_length INTEGER NOT NULL,"
                  " prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, rejects "
                  "INTEGER NOT NULL,"
                  " rejects_bytes INTEGER NOT NULL, n_flushes INTEGER NOT NULL,"
                  " rows_repetitive INTEGER NOT NULL DEFAULT 0);"
                  "INSERT INTO tally VALUES(0,0,0,0,0,0,0,0);";

/* ---- opening ---- */

/* Owned by the caller. */
static char *join(const char *a, const char *b) {
    struct hr_buf path = {0};
    hr_buf_puts(&path, a);
    hr_buf_puts(&path, b);
    hr_buf_putc(&path, 0);
    return path.data;
}

static struct hr_store *create(const struct hr_store_opts *opts) {
    struct hr_store *st = hr_xcalloc(1, sizeof *st);
    st->lock_fd = st->state_lock_fd = st->rows.fd = st->rejects.fd = -1;
    st->dir = hr_xstrdup(opts->dir);
    st->state_path = opts->state_path ? hr_xstrdup(opts->state_path) : join(opts->dir, "/state.db");
    st->identify = opts->identify ? opts->identify : hr_record_identify_row;
    return st;
}

/* The directory's lock, and one on a state.db elsewhere, which two directories might share. */
static enum hr_status take_locks(struct hr_store *st, bool elsewhere, struct hr_err *err) {
    char *path = join(st->dir, "/lock"), *beside = join(st->state_path, ".lock");
    enum hr_status code = hr_lock_take(path, &st->lock_fd, err);
    if (!code && elsewhere) code = hr_lock_take(beside, &st->state_lock_fd, err);
    free(path);
    free(beside);
    return code;
}

static enum hr_status make_state_dir(const struct hr_store *st, struct hr_err *err) {
    char *path = hr_xstrdup(st->state_path), *slash = strrchr(path, '/');
    enum hr_status code = HR_OK;
    if (slash && slash != path) {
        *slash = 0;
        code = hr_dir_make(path, err);
    }
    free(path);
    return code;
}

static enum hr_status open_files(struct hr_store *st, struct hr_err *err) {
    char *rows = join(st->dir, "/raw_responses.jsonl"), *rejects = join(st->dir, "/rejects.jsonl");
    enum hr_status code = hr_file_open(&st->rows, rows, err);
    if (!code) code = hr_file_open(&st->rejects, rejects, err);
    if (!code) hr_dir_sync(st->dir);
    free(rows);
    free(rejects);
    return code;
}

/* SQLite's log needs memory that processes share and locks that hold, which network file systems
 * promise and do not always keep. */
static void warn_network(const char *path) {
    struct statfs s;
    if (statfs(path, &s) != 0) return;
    const char *what = s.f_type == 0x6969                                 ? "NFS"
                       : s.f_type == 0xFF534D42 || s.f_type == 0xFE534D42 ? "SMB"
                       : s.f_type == 0x0BD00BD0                           ? "Lustre"
                                                                          : NULL;
    if (what)
        hr_warn("%s is on a network file system (%s), which SQLite does not trust; --state PATH "
                "puts it "
                "on a local disk",
                path, what);
}

static enum hr_status pragma(struct hr_store *st, const char *sql, int64_t *value,
                             struct hr_err *err) {
    bool found;
    return hr_db_get(st->db, sql, HR_NO_ARGS, value, 1, &found, err);
}

/* Is it ours, and of a version that we know (st->version)? *fresh: there is nothing in it yet. */
static enum hr_status check_schema(struct hr_store *st, bool *fresh, struct hr_err *err) {
    int64_t version = 0, app = 0, n_tables = 0;
    enum hr_status code = pragma(st, "PRAGMA user_version", &version, err);
    if (!code) code = pragma(st, "PRAGMA application_id", &app, err);
    if (!code) code = pragma(st, "SELECT count(*) FROM sqlite_schema", &n_tables, err);
    if (code) return code;
    *fresh = n_tables == 0 && app == 0 && version == 0;
    st->version = (int)version;
    if (*fresh) return HR_OK;
    if (app != APPLICATION_ID || version < 1)
        return hr_err_set(err, HR_ERR_CONFIG, "%s is not a state file of headrace", st->state_path);
    if (version > SCHEMA_VERSION)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "%s was written by a newer headrace (format %d; this one knows %d)",
                          st->state_path, (int)version, SCHEMA_VERSION);
    return HR_OK;
}

static enum hr_status make_schema(struct hr_store *st, struct hr_err *err) {
    char stamp[96];
    snprintf(stamp, sizeof stamp, "PRAGMA application_id=%d; PRAGMA user_version=%d",
             APPLICATION_ID, SCHEMA_VERSION);
    enum hr_status code = hr_db_begin(st->db, true, err);
    if (!code) code = hr_db_script(st->db, schema, err);
    if (!code) code = hr_db_script(st->db, stamp, err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) hr_db_rollback(st->db);
    return code;
}

#define X_ALTER(name) "ALTER TABLE runs ADD COLUMN " #name " INTEGER NOT NULL DEFAULT 0;"

static enum hr_status upgrade_schema(struct hr_store *st, struct hr_err *err) {
    static const char to_3[] =
        COUNTERS_3(X_ALTER) "ALTER TABLE done ADD COLUMN is_repetitive INTEGER NOT NULL DEFAULT 0;"
                            "ALTER TABLE aside ADD COLUMN is_repetitive INTEGER NOT NULL DEFAULT 0;"
                            "ALTER TABLE tally ADD COLUMN rows_repetitive INTEGER NOT NULL DEFAULT 0;"
                            "PRAGMA user_version=3";
    enum hr_status code = hr_db_begin(st->db, true, err);
    if (!code && st->version < 2) code = hr_db_script(st->db, COUNTERS_2(X_ALTER), err);
    if (!code) code = hr_db_script(st->db, to_3, err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) hr_db_rollback(st->db);
    return code;
}

static enum hr_status open_state(struct hr_store *st, const volatile bool *stop,
                                 struct hr_err *err) {
    bool fresh;
    enum hr_status code = hr_db_open(st->state_path, HR_DB_WRITE, stop, &st->db, err);
    if (!code) warn_network(st->state_path);
    if (!code) code = check_schema(st, &fresh, err);
    if (!code && fresh) code = make_schema(st, err);
    else if (!code && st->version < SCHEMA_VERSION) code = upgrade_schema(st, err);
    if (!code) code = pragma(st, "SELECT ifnull(max(row),-1)+1 FROM rows", &st->next_row, err);
    return code;
}

static enum hr_status count_unfinished(struct hr_store *st, struct hr_store_recovery *r,
                                       struct hr_err *err) {
    int64_t n[2] = {0};
    bool found;
    enum hr_status code =
        hr_db_get(st->db,
                  "SELECT count(*), ifnull(sum(n),0) FROM (SELECT sum(length(tokens))/4 AS n "
                  "FROM journal GROUP BY row, sample)",
                  HR_NO_ARGS, n, 2, &found, err);
    if (code) return code;
    r->n_unfinished = (int)n[0];
    r->n_unfinished_tokens = n[1];
    return HR_OK;
}

enum hr_status hr_store_open(const struct hr_store_opts *opts, struct hr_store **out,
                             struct hr_store_recovery *recovery, struct hr_err *err) {
    struct hr_store *st = create(opts);
    struct hr_store_recovery r = {0};
    st->ops = hr_xmalloc(HR_STORE_OPS_MAX * sizeof *st->ops);
    enum hr_status code = hr_dir_make(st->dir, err);
    if (!code) code = make_state_dir(st, err);
    if (!code) code = take_locks(st, opts->state_path != NULL, err);
    if (!code) code = open_files(st, err);
    if (!code) code = open_state(st, opts->stop, err);
    if (!code) code = hr_store_recover_rows(st, &r, err);
    if (!code) code = hr_store_recover_rejects(st, err);
    if (!code) code = count_unfinished(st, &r, err);
    if (code) {
        hr_store_close(&st);
        return code;
    }
    *out = st;
    *recovery = r;
    return HR_OK;
}

/* What is still in the batch is dropped: the next run meets those lines again. */
void hr_store_close(struct hr_store **stp) {
    struct hr_store *st = *stp;
    if (!st) return;
    hr_db_close(&st->db);
    hr_file_close(&st->rows);
    hr_file_close(&st->rejects);
    hr_lock_release(&st->state_lock_fd);
    hr_lock_release(&st->lock_fd); /* last: until here nobody else may touch the directory */
    hr_buf_finish(&st->rejects_new);
    hr_buf_finish(&st->out);
    free(st->ops);
    free(st->dir);
    free(st->state_path);
    free(st);
    *stp = NULL;
}

enum hr_status hr_store_open_readonly(const struct hr_store_opts *opts, struct hr_store **out,
                                      bool *live, struct hr_err *err) {
    struct hr_store *st = create(opts);
    struct stat s;
    char *lock = join(st->dir, "/lock"), *wal = join(st->state_path, "-wal");
    bool fresh = false, held = hr_lock_held(lock), has_wal = stat(wal, &s) == 0 && s.st_size > 0;
    enum hr_status code = HR_OK;
    free(lock);
    free(wal);
    st->readonly = true;
    if (stat(st->state_path, &s) != 0)
        code = hr_err_set(err, HR_ERR_NOTFOUND, "%s: there is no such file; nothing has run here",
                          st->state_path);
    /* Without a log and a writer the file alone is everything, also in a folder that we may not
     * write. */
    if (!code)
        code = hr_db_open(st->state_path, held || has_wal ? HR_DB_READ : HR_DB_FROZEN, opts->stop,
                          &st->db, err);
    if (!code) code = check_schema(st, &fresh, err);
    if (!code && fresh)
        code =
            hr_err_set(err, HR_ERR_NOTFOUND, "%s is empty; nothing has run here", st->state_path);
    if (code) {
        hr_store_close(&st);
        return code;
    }
    *out = st;
    *live = held;
    return HR_OK;
}

/* ---- settings, facts, runs ---- */

static void show(struct hr_buf *b, const char *value) {
    if (!value)
        hr_buf_puts(b, "not set");
    else
        hr_buf_printf(b, "%.60s%s", value, strlen(value) > 60 ? "..." : "");
}

static void differs(struct hr_buf *b, const char *key, const char *was, const char *is) {
    hr_buf_printf(b, "%s%s was ", b->len ? "; " : "", key);
    show(b, was);
    hr_buf_puts(b, ", is now ");
    show(b, is);
}

/* Merges two sorted lists; *n_stored: how many are stored. */
static enum hr_status compare(struct hr_store *st, const struct hr_store_setting *settings, int n,
                              struct hr_buf *diff, int *n_stored, struct hr_err *err) {
    struct hr_cursor *c;
    bool more;
    int i = 0;
    *n_stored = 0;
    enum hr_status code =
        hr_db_query(st->db, "SELECT key, value FROM settings ORDER BY key", HR_NO_ARGS, &c, err);
    if (!code) code = hr_cursor_next(c, &more, err);
    while (!code && (more || i < n)) {
        const char *key = more ? hr_cursor_text(c, 0) : NULL,
                   *value = more ? hr_cursor_text(c, 1) : NULL;
        int order = !more ? 1 : i == n ? -1 : strcmp(key, settings[i].key);
        if (order < 0)
            differs(diff, key, value, NULL);
        else if (order > 0)
            differs(diff, settings[i].key, NULL, settings[i].value);
        else if (strcmp(value, settings[i].value) != 0)
            differs(diff, key, value, settings[i].value);
        if (order >= 0) i++;
        if (order > 0) continue;
        ++*n_stored;
        code = hr_cursor_next(c, &more, err);
    }
    return code;
}

/* What has been made with the settings that are stored; NULL: nothing yet. */
static enum hr_status what_is_held(struct hr_store *st, const char **what, struct hr_err *err) {
    int64_t has[3] = {0};
    bool found;
    enum hr_status code = hr_db_get(st->db,
                                    "SELECT EXISTS(SELECT 1 FROM done), EXISTS(SELECT 1 FROM journal),"
                                    "EXISTS(SELECT 1 FROM rejects)",
                                    HR_NO_ARGS, has, 3, &found, err);
    if (!code) *what = has[0] ? "rows" : has[1] ? "unfinished rows" : has[2] ? "rejects" : NULL;
    return code;
}

enum hr_status hr_store_check(struct hr_store *st, const struct hr_store_setting *settings, int n,
                              bool *is_new, struct hr_err *err) {
    struct hr_buf diff = {0};
    const char *what = NULL;
    int n_stored = 0;
    for (int i = 1; i < n; i++) HR_ASSERT(strcmp(settings[i - 1].key, settings[i].key) < 0);
    enum hr_status code = hr_store_batch_commit(st, err);
    if (!code) code = what_is_held(st, &what, err);
    if (!code && what) code = compare(st, settings, n, &diff, &n_stored, err);
    if (!code && n_stored > 0 && diff.len > 0)
        code = hr_err_set(err, HR_ERR_CONFIG,
                          "%s holds %s made with other settings, which must not be mixed: %s",
                          st->dir, what, hr_buf_cstr(&diff));
    if (!code) *is_new = what == NULL;
    hr_buf_finish(&diff);
    return code;
}

enum hr_status hr_store_bind(struct hr_store *st, const struct hr_store_setting *settings, int n,
                             struct hr_err *err) {
    bool is_new;
    enum hr_status code = hr_store_check(st, settings, n, &is_new, err);
    if (!code) code = hr_db_begin(st->db, true, err);
    if (code) return code;
    code = hr_db_run(st->db, "DELETE FROM settings", HR_NO_ARGS, err);
    for (int i = 0; i < n && !code; i++)
        code = hr_db_run(st->db, "INSERT INTO settings VALUES(?,?)",
                         HR_ARGS(HR_TEXT(settings[i].key), HR_TEXT(settings[i].value)), err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) hr_db_rollback(st->db);
    return code;
}

/* One statement in a transaction of its own; the batch goes first. */
static enum hr_status run_alone(struct hr_store *st, bool synced, const char *sql,
                                const struct hr_val *args, int n_args, struct hr_err *err) {
    enum hr_status code = hr_store_batch_commit(st, err);
    if (!code) code = hr_db_begin(st->db, synced, err);
    if (code) return code;
    code = hr_db_run(st->db, sql, args, n_args, err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) {
        hr_db_rollback(st->db);
        return code;
    }
    st->unsynced = !synced;
    return HR_OK;
}

enum hr_status hr_store_set_fact(struct hr_store *st, const char *key, const char *value,
                                 struct hr_err *err) {
    return run_alone(st, false, "INSERT OR REPLACE INTO facts VALUES(?,?)",
                     HR_ARGS(HR_TEXT(key), HR_TEXT(value)), err);
}

enum hr_status hr_store_get_fact(struct hr_store *st, const char *key, struct hr_buf *value,
                                 struct hr_err *err) {
    struct hr_cursor *c;
    bool more;
    enum hr_status code =
        hr_db_query(st->db, "SELECT value FROM facts WHERE key=?", HR_ARGS(HR_TEXT(key)), &c, err);
    if (!code) code = hr_cursor_next(c, &more, err);
    if (code) return code;
    if (!more) return hr_err_set(err, HR_ERR_NOTFOUND, "%s: no fact \"%s\"", st->state_path, key);
    hr_buf_puts(value, hr_cursor_text(c, 0));
    hr_cursor_end(c);
    return HR_OK;
}

/* Synced, so that a state.db beside rows always knows that there was a run. */
enum hr_status hr_store_begin_run(struct hr_store *st, const char *version, const char *host,
                                  struct hr_err *err) {
    char now[25];
    int64_t id;
    hr_clock_iso(now);
    enum hr_status code =
        run_alone(st, true, "INSERT INTO runs(started, version, host) VALUES(?,?,?)",
                  HR_ARGS(HR_TEXT(now), HR_TEXT(version), HR_TEXT(host)), err);
    if (!code) code = pragma(st, "SELECT max(id) FROM runs", &id, err);
    if (!code) st->run = id;
    return code;
}

#define X_SET(name) ", " #name "=?"
#define X_ARG(name) HR_INT(c->name),

/* Within the caller's transaction. */
static enum hr_status put_counters(struct hr_store *st, const struct hr_run_counters *c,
                                   struct hr_err *err) {
    return hr_db_run(st->db, "UPDATE runs SET id=id" COUNTERS(X_SET) " WHERE id=?",
                     HR_ARGS(COUNTERS(X_ARG) HR_INT(st->run)), err);
}

enum hr_status hr_store_end_run(struct hr_store *st, const struct hr_run_counters *counters,
                                const char *how, struct hr_err *err) {
    char now[25];
    hr_clock_iso(now);
    enum hr_status code = hr_store_flush(st, err);
    if (!code) code = hr_db_begin(st->db, true, err);
    if (code) return code;
    code = put_counters(st, counters, err);
    if (!code)
        code = hr_db_run(st->db, "UPDATE runs SET ended=?, how=? WHERE id=?",
                         HR_ARGS(HR_TEXT(now), HR_TEXT(how), HR_INT(st->run)), err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) hr_db_rollback(st->db);
    return code;
}

/* ---- samples ---- */

enum hr_status hr_store_sample(struct hr_store *st, int64_t row, int sample,
                               enum hr_sample_state *state, struct hr_err *err) {
    int64_t s = HR_SAMPLE_MISSING;
    bool found;
    enum hr_status code =
        hr_db_get(st->db,
                  "SELECT CASE WHEN EXISTS(SELECT 1 FROM done WHERE row=?1 AND sample=?2) THEN 1 "
                  "WHEN EXISTS(SELECT 1 FROM rejects WHERE row=?1 AND row>=0 AND (sample=?2 OR "
                  "sample<0)) THEN 2 "
                  "ELSE 0 END",
                  HR_ARGS(HR_INT(row), HR_INT(sample)), &s, 1, &found, err);
    _Static_assert(HR_SAMPLE_MISSING == 0 && HR_SAMPLE_DONE == 1 && HR_SAMPLE_REJECTED == 2,
                   "the statement speaks in numbers");
    if (!code) *state = (enum hr_sample_state)s;
    return code;
}

enum hr_status hr_store_journalled(struct hr_store *st, int64_t row, int sample,
                                   struct hr_ids *tokens, struct hr_err *err) {
    struct hr_cursor *c;
    bool more;
    size_t len_before = tokens->len;
    enum hr_status code =
        hr_db_query(st->db, "SELECT tokens FROM journal WHERE row=? AND sample=? ORDER BY seq",
                    HR_ARGS(HR_INT(row), HR_INT(sample)), &c, err);
    while (!code) {
        code = hr_cursor_next(c, &more, err);
        if (code || !more) break;
        size_t len;
        const uint8_t *p = hr_cursor_blob(c, 0, &len);
        for (size_t i = 0; i + 4 <= len; i += 4)
            hr_ids_push(tokens, (int32_t)((uint32_t)p[i] | (uint32_t)p[i + 1] << 8 |
                                          (uint32_t)p[i + 2] << 16 | (uint32_t)p[i + 3] << 24));
    }
    if (code) tokens->len = len_before;
    return code;
}

static enum hr_status put_tokens(struct hr_store *st, const struct hr_store_tokens *t,
                                 struct hr_err *err) {
    struct hr_buf *blob = &st->out;
    hr_buf_clear(blob);
    for (int i = 0; i < t->n; i++) {
        uint32_t v = (uint32_t)t->ids[i];
        uint8_t le[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
        hr_buf_append(blob, le, 4);
    }
    return hr_db_run(
        st->db,
        "INSERT INTO journal VALUES(?1, ?2, (SELECT ifnull(max(seq),-1)+1 FROM journal "
        "WHERE row=?1 AND sample=?2), ?3)",
        HR_ARGS(HR_INT(t->row), HR_INT(t->sample), HR_BLOB(blob->data, blob->len)), err);
}

enum hr_status hr_store_journal(struct hr_store *st, const struct hr_store_tokens *tokens, int n,
                                const struct hr_run_counters *counters, bool sync,
                                struct hr_err *err) {
    enum hr_status code = hr_store_batch_commit(st, err);
    if (!code && sync) code = hr_file_sync(&st->rejects, err);
    if (!code) code = hr_db_begin(st->db, sync, err);
    if (code) return code;
    for (int i = 0; i < n && !code; i++)
        if (tokens[i].n > 0) code = put_tokens(st, &tokens[i], err);
    if (!code) code = put_counters(st, counters, err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) {
        hr_db_rollback(st->db);
        return code;
    }
    st->unsynced = !sync;
    return HR_OK;
}

static enum hr_status put_mark(struct hr_store *st, const struct hr_store_done *d, int64_t offset,
                               struct hr_err *err) {
    enum hr_status code = hr_db_run(st->db, "INSERT INTO done VALUES(?,?,?,?,?,?,?,?,?)",
                                    HR_ARGS(HR_INT(offset), HR_INT((int64_t)d->len),
                                            HR_INT(hr_crc32c(0, d->line, d->len)), HR_INT(d->row),
                                            HR_INT(d->sample), HR_INT(d->prompt_tokens),
                                            HR_INT(d->completion_tokens), HR_INT(d->length),
                                            HR_INT(d->repetitive)),
                                    err);
    if (code) return code;
    return hr_db_run(st->db, "DELETE FROM journal WHERE row=? AND sample=?",
                     HR_ARGS(HR_INT(d->row), HR_INT(d->sample)), err);
}

static enum hr_status put_marks(struct hr_store *st, const struct hr_store_done *rows, int n,
                                int64_t offset, const struct hr_run_counters *counters,
                                struct hr_err *err) {
    int64_t n_length = 0, n_repetitive = 0, prompt = 0, completion = 0;
    enum hr_status code = hr_db_begin(st->db, true, err);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        code = put_mark(st, &rows[i], offset, err);
        offset += (int64_t)rows[i].len;
        n_length += rows[i].length;
        n_repetitive += rows[i].repetitive;
        prompt += rows[i].prompt_tokens;
        completion += rows[i].completion_tokens;
    }
    if (!code)
        code = hr_db_run(st->db,
                         "UPDATE tally SET rows_done=rows_done+?, rows_length=rows_length+?,"
                         "prompt_tokens=prompt_tokens+?, completion_tokens=completion_tokens+?,"
                         "rows_repetitive=rows_repetitive+?",
                         HR_ARGS(HR_INT(n), HR_INT(n_length), HR_INT(prompt), HR_INT(completion),
                                 HR_INT(n_repetitive)),
                         err);
    if (!code) code = put_counters(st, counters, err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code) hr_db_rollback(st->db);
    return code;
}

enum hr_status hr_store_commit(struct hr_store *st, const struct hr_store_done *rows, int n,
                               const struct hr_run_counters *counters, struct hr_err *err) {
    int64_t size_before = st->rows.size;
    HR_ASSERT(st->run > 0);
    enum hr_status code = hr_store_batch_commit(st, err);
    hr_buf_clear(&st->out);
    for (int i = 0; i < n; i++) {
        HR_ASSERT(rows[i].len > 0 && rows[i].line[rows[i].len - 1] == '\n');
        hr_buf_append(&st->out, rows[i].line, rows[i].len);
    }
    if (!code) code = hr_file_sync(&st->rejects, err);
    if (!code) code = hr_file_append(&st->rows, st->out.data, st->out.len, err);
    if (code) return code;
    code = hr_file_sync(&st->rows, err);
    if (!code) code = put_marks(st, rows, n, size_before, counters, err);
    if (code) {
        /* The bytes go too. Were this to fail, a retry writes over them, or a start adopts them. */
        struct hr_err ignored;
        if (hr_file_cut(&st->rows, size_before, &ignored)) st->rows.size = size_before;
        return code;
    }
    st->unsynced = false;
    return HR_OK;
}

enum hr_status hr_store_flush(struct hr_store *st, struct hr_err *err) {
    enum hr_status code = hr_store_batch_commit(st, err);
    if (!code) code = hr_file_sync(&st->rejects, err);
    if (code || !st->unsynced) return code;
    /* A synced commit makes all earlier ones durable too, but only one that changes a byte is
     * synced. */
    return run_alone(st, true, "UPDATE tally SET n_flushes=n_flushes+1", HR_NO_ARGS, err);
}

enum hr_status hr_store_forget_rejects(struct hr_store *st, struct hr_err *err) {
    enum hr_status code = hr_store_flush(st, err);
    if (code || st->n_rejects == 0) return code;
    char *from = hr_xstrdup(st->rejects.path), *to = NULL;
    int n = 0;
    do {
        char suffix[16];
        snprintf(suffix, sizeof suffix, ".%d", ++n);
        free(to);
        to = join(from, suffix);
    } while (access(to, F_OK) == 0);
    /* The file first: a kill after it leaves a state.db that finds its lines gone, and forgets
     * them. */
    if (rename(from, to) != 0)
        code = hr_err_set(err, HR_ERR_IO, "%s: cannot be renamed to %s", from, to);
    if (!code) {
        hr_file_close(&st->rejects);
        code = hr_file_open(&st->rejects, from, err);
    }
    if (!code) {
        hr_dir_sync(st->dir);
        code = hr_db_begin(st->db, true, err);
    }
    if (!code) code = hr_db_run(st->db, "DELETE FROM rejects", HR_NO_ARGS, err);
    if (!code)
        code = hr_db_run(st->db, "UPDATE tally SET rejects=0, rejects_bytes=0", HR_NO_ARGS, err);
    if (!code) code = hr_db_commit(st->db, err);
    if (code)
        hr_db_rollback(st->db);
    else
        st->n_rejects = 0;
    free(from);
    free(to);
    return code;
}

/* ---- totals ---- */

static void copy_text(char *dst, size_t cap, const char *src) {
    snprintf(dst, cap, "%s", src);
}

#define X_SELECT(name) ", " #name
#define X_ZERO(name)   ", 0"
#define X_READ(name)   r->c.name = hr_cursor_int(c, i_col++);
#define X_ADD(name)    t->sum.name += r->c.name;
#define RUNS_FROM(columns)                                                                         \
    "SELECT id, started, ended, how, version, host" columns " FROM runs ORDER BY id"

static enum hr_status read_runs(struct hr_store *st, struct hr_store_totals *t,
                                struct hr_err *err) {
    struct hr_cursor *c;
    bool more;
    int cap = 0;
    static const char *const by_version[SCHEMA_VERSION + 1] = {
        [1] = RUNS_FROM(COUNTERS_1(X_SELECT) COUNTERS_2(X_ZERO) COUNTERS_3(X_ZERO)),
        [2] = RUNS_FROM(COUNTERS_1(X_SELECT) COUNTERS_2(X_SELECT) COUNTERS_3(X_ZERO)),
        [3] = RUNS_FROM(COUNTERS(X_SELECT)),
    };
    const char *sql = by_version[st->readonly ? st->version : SCHEMA_VERSION];
    enum hr_status code = hr_db_query(st->db, sql, HR_NO_ARGS, &c, err);
    while (!code) {
        code = hr_cursor_next(c, &more, err);
        if (code || !more) break;
        if (t->n_runs == cap) {
            cap = cap ? 2 * cap : 8;
            t->runs = hr_xrealloc(t->runs, (size_t)cap * sizeof *t->runs);
        }
        struct hr_store_run *r = &t->runs[t->n_runs++];
        int i_col = 6;
        r->id = hr_cursor_int(c, 0);
        copy_text(r->started, sizeof r->started, hr_cursor_text(c, 1));
        copy_text(r->ended, sizeof r->ended, hr_cursor_text(c, 2));
        copy_text(r->how, sizeof r->how, hr_cursor_text(c, 3));
        copy_text(r->version, sizeof r->version, hr_cursor_text(c, 4));
        copy_text(r->host, sizeof r->host, hr_cursor_text(c, 5));
        COUNTERS(X_READ)
        COUNTERS(X_ADD)
    }
    return code;
}

enum hr_status hr_store_totals(struct hr_store *st, struct hr_store_totals *out,
                               struct hr_err *err) {
    struct hr_store_totals t = {0};
    int64_t v[6] = {0};
    bool found;
    enum hr_status code = st->readonly ? HR_OK : hr_store_batch_commit(st, err);
    if (!code)
        code = hr_db_get(
            st->db,
            st->readonly && st->version < 3
                ? "SELECT rows_done, rows_length, rejects, prompt_tokens, completion_tokens, 0 FROM tally"
                : "SELECT rows_done, rows_length, rejects, prompt_tokens, completion_tokens,"
                  "rows_repetitive FROM tally",
            HR_NO_ARGS, v, 6, &found, err);
    if (!code) code = read_runs(st, &t, err);
    if (code) {
        hr_store_totals_finish(&t);
        return code;
    }
    t.rows_done = v[0], t.rows_length = v[1], t.rejects = v[2];
    t.prompt_tokens = v[3], t.completion_tokens = v[4], t.rows_repetitive = v[5];
    *out = t;
    return HR_OK;
}

enum hr_status hr_store_lengths(struct hr_store *st, hr_store_length_fn fn, void *arg,
                                struct hr_err *err) {
    struct hr_cursor *c;
    enum hr_status code = hr_db_query(
        st->db,
        "SELECT completion_tokens, count(*) FROM done GROUP BY completion_tokens ORDER BY 1",
        HR_NO_ARGS, &c, err);
    bool more = !code;
    while (more && !(code = hr_cursor_next(c, &more, err)) && more)
        fn(arg, (int)hr_cursor_int(c, 0), hr_cursor_int(c, 1));
    return code;
}

enum hr_status hr_store_length(struct hr_store *st, const uint8_t ident[16], int occurrence, int sample,
                               int *completion_tokens, struct hr_err *err) {
    int64_t n = 0;
    bool found;
    enum hr_status code = hr_db_get(
        st->db,
        "SELECT completion_tokens FROM rows JOIN done USING(row) WHERE i0=? AND i1=? AND occurrence=? AND sample=?",
        HR_ARGS(HR_INT(hr_store_key(ident, 0)), HR_INT(hr_store_key(ident, 1)), HR_INT(occurrence),
                HR_INT(sample)),
        &n, 1, &found, err);
    if (!code) *completion_tokens = found ? (int)n : 0;
    return code;
}

void hr_store_totals_finish(struct hr_store_totals *t) {
    free(t->runs);
    *t = (struct hr_store_totals){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * store_db: see store_db.h. The only file that includes sqlite3.h.
 *
 * SQLite's own automatic checkpoint is off: it would come inside a journal transaction, which must
 * not wait for a disk. After a commit with a long log we run one ourselves. synchronous is NORMAL
 * or FULL, never OFF: OFF would also leave out the syncs of a checkpoint, and a power cut in one
 * could then ruin the database.
 *
 * Source: https://sqlite.org/wal.html, https://sqlite.org/rescode.html. */
#include "job/store_db.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

#define N_STMT_MAX     96    /* distinct statements of the store, with room to grow */
#define CACHE_KIB      24576 /* page cache: the same for ten thousand and ten million rows */
#define WAL_PAGES_MAX  16384 /* 64 MiB: then the log is copied into the database, a page once */
#define BUSY_SLEEP_MS  25    /* between two tries at a busy database */
#define BUSY_SAY_MS    3000  /* between two lines about it */
#define BUSY_READER_MS 5000  /* how long a reader waits: only for somebody's recovery */

struct hr_cursor {
    struct hr_db *db;
    const char *sql; /* address is the key */
    sqlite3_stmt *stmt;
};

struct hr_db {
    sqlite3 *h;
    char *path;
    enum hr_db_mode mode;
    const volatile bool *stop;
    struct hr_cursor stmts[N_STMT_MAX];
    int n_stmts;
    int n_wal_pages;
    bool is_open; /* the file is; WAL may not have been tried yet */
    bool synced;  /* the present setting of PRAGMA synchronous is FULL */
    int64_t busy_since_ns, busy_said_ns;
};

/* SQLite forgets the system's error number when a failed commit is rolled back inside the same
 * call, and a full disk must be told from a broken one; so errno is cleared before a call and
 * looked at after it. */
static int exec(struct hr_db *db, const char *sql) {
    errno = 0;
    return sqlite3_exec(db->h, sql, NULL, NULL, NULL);
}

static int step(sqlite3_stmt *s) {
    errno = 0;
    return sqlite3_step(s);
}

/* The one place where a result code becomes a status. */
static enum hr_status fail(struct hr_db *db, int rc, struct hr_err *err) {
    int sys = db->h ? sqlite3_system_errno(db->h) : 0, e = sys ? sys : errno;
    const char *text = db->h ? sqlite3_errmsg(db->h) : sqlite3_errstr(rc);
    int xrc = db->h ? sqlite3_extended_errcode(db->h) : rc;
    bool no_space = (rc & 0xff) == SQLITE_IOERR && (e == ENOSPC || e == EDQUOT);
    if ((rc & 0xff) == SQLITE_FULL || no_space)
        return hr_err_set(err, HR_ERR_NOSPACE, "%s: no space left on its device", db->path);
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return hr_err_set(err, HR_ERR_LOCKED, "%s: another program has locked it", db->path);
    case SQLITE_PROTOCOL:
        break;
    case SQLITE_NOMEM:
        return hr_err_set(err, HR_ERR_NOMEM, "%s: out of memory", db->path);
    case SQLITE_NOTADB:
        return hr_err_set(err, HR_ERR_FORMAT, "%s is not a state file of headrace", db->path);
    case SQLITE_CORRUPT:
        return hr_err_set(err, HR_ERR_FORMAT, "%s is damaged (%s); restore it from a copy",
                          db->path, text);
    case SQLITE_CONSTRAINT:
        return hr_err_set(err, HR_ERR_FAILED, "%s: %s", db->path, text);
    }
    /* Opening has shown already that the file itself can be opened: what cannot is the memory
     * beside it. */
    bool shm = (rc & 0xff) == SQLITE_PROTOCOL || ((rc & 0xff) == SQLITE_CANTOPEN && db->is_open) ||
               xrc == SQLITE_IOERR_SHMOPEN || xrc == SQLITE_IOERR_SHMSIZE ||
               xrc == SQLITE_IOERR_SHMLOCK || xrc == SQLITE_IOERR_SHMMAP ||
               xrc == SQLITE_IOERR_LOCK;
    if (shm)
        return hr_err_set(err, HR_ERR_IO,
                          "%s: this file system does not support shared memory or locks for SQLite "
                          "(%s); put it on a local disk with --state PATH",
                          db->path, text);
    return hr_err_set(err, HR_ERR_IO, "%s: %s (SQLite code %d)%s%s", db->path, text, xrc,
                      sys ? ": " : "", sys ? strerror(sys) : "");
}

static void sleep_ms(int ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* Is it worth another try? Sleeps; says so now and then. */
static bool wait_busy(struct hr_db *db, bool first) {
    int64_t now = hr_clock_ns();
    if (first) db->busy_since_ns = db->busy_said_ns = now;
    if (db->stop && *db->stop) return false;
    int64_t waited_ms = (now - db->busy_since_ns) / 1000000;
    if (db->mode != HR_DB_WRITE && waited_ms > BUSY_READER_MS) return false;
    if ((now - db->busy_said_ns) / 1000000 >= BUSY_SAY_MS) {
        hr_warn("%s is locked by another program; waiting for it (%d s so far, nothing is lost)",
                db->path, (int)(waited_ms / 1000));
        db->busy_said_ns = now;
    }
    sleep_ms(BUSY_SLEEP_MS);
    return true;
}

static int on_busy(void *arg, int n_before) {
    return wait_busy(arg, n_before == 0);
}

static int on_wal(void *arg, sqlite3 *h, const char *name, int n_pages) {
    ((struct hr_db *)arg)->n_wal_pages = n_pages;
    return SQLITE_OK;
}

enum hr_status hr_db_script(struct hr_db *db, const char *sql, struct hr_err *err) {
    int rc = exec(db, sql);
    return rc == SQLITE_OK ? HR_OK : fail(db, rc, err);
}

/* file:PATH?immutable=1, with what a URI gives a meaning to escaped. */
static void frozen_uri(const char *path, struct hr_buf *uri) {
    hr_buf_puts(uri, "file:");
    for (const char *p = path; *p; p++) {
        if (strchr("%?# ", *p))
            hr_buf_printf(uri, "%%%02X", (unsigned char)*p);
        else
            hr_buf_putc(uri, *p);
    }
    hr_buf_puts(uri, "?immutable=1");
}

static enum hr_status set_wal(struct hr_db *db, struct hr_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->h, "PRAGMA journal_mode=WAL", -1, &s, NULL);
    if (rc == SQLITE_OK) rc = step(s);
    bool wal = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(s, 0), "wal") == 0;
    enum hr_status code = HR_OK;
    if (rc != SQLITE_ROW)
        code = fail(db, rc, err);
    else if (!wal)
        code = hr_err_set(err, HR_ERR_IO,
                          "%s: this file system cannot hold SQLite's write-ahead log; put it on a "
                          "local disk with --state PATH",
                          db->path);
    sqlite3_finalize(s);
    return code;
}

enum hr_status hr_db_open(const char *path, enum hr_db_mode mode, const volatile bool *stop,
                          struct hr_db **out, struct hr_err *err) {
    struct hr_db *db = hr_xcalloc(1, sizeof *db);
    struct hr_buf uri = {0};
    db->path = hr_xstrdup(path);
    db->mode = mode;
    db->stop = stop;
    frozen_uri(path, &uri);
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    flags |=
        mode == HR_DB_WRITE ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    if (mode == HR_DB_FROZEN) flags |= SQLITE_OPEN_URI;
    const char *name = mode == HR_DB_FROZEN ? hr_buf_cstr(&uri) : path;
    errno = 0;
    int rc = sqlite3_open_v2(name, &db->h, flags, NULL);
    enum hr_status code = HR_OK;
    if (rc != SQLITE_OK) {
        code = fail(db, rc, err);
        goto fail;
    }
    sqlite3_busy_handler(db->h, on_busy, db);
    sqlite3_wal_hook(db->h, on_wal, db); /* takes the place of the automatic checkpoint */
    char pragmas[256];
    /* Memory-mapped reads would turn a disk's error into SIGBUS, and count as ours. */
    sqlite3_snprintf(sizeof pragmas, pragmas,
                     "PRAGMA cache_size=-%d; PRAGMA mmap_size=0; PRAGMA temp_store=FILE;"
                     "PRAGMA journal_size_limit=67108864; PRAGMA synchronous=NORMAL",
                     CACHE_KIB);
    code = hr_db_script(db, pragmas, err);
    if (!code) code = hr_db_script(db, "PRAGMA user_version", err); /* opens and reads it */
    db->is_open = !code;
    if (!code && mode == HR_DB_WRITE) code = set_wal(db, err);
    /* Reads a page and takes a lock: what does not work shall show itself here. */
    if (!code) code = hr_db_script(db, "SELECT count(*) FROM sqlite_schema", err);
    if (code) goto fail;
    hr_buf_finish(&uri);
    *out = db;
    return HR_OK;
fail:
    hr_buf_finish(&uri);
    hr_db_close(&db);
    return code;
}

void hr_db_close(struct hr_db **dbp) {
    struct hr_db *db = *dbp;
    if (!db) return;
    hr_db_rollback(db);
    for (int i = 0; i < db->n_stmts; i++) sqlite3_finalize(db->stmts[i].stmt);
    /* A reader leaves the log of a killed writer where it is. */
    if (db->h && db->mode != HR_DB_WRITE)
        sqlite3_db_config(db->h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    sqlite3_close(db->h);
    free(db->path);
    free(db);
    *dbp = NULL;
}

static enum hr_status bind(struct hr_cursor *c, const struct hr_val *args, int n,
                           struct hr_err *err) {
    HR_ASSERT(sqlite3_bind_parameter_count(c->stmt) == n);
    for (int i = 0; i < n; i++) {
        const struct hr_val *v = &args[i];
        int rc;
        if (v->type == HR_VAL_INT)
            rc = sqlite3_bind_int64(c->stmt, i + 1, v->i);
        else if (v->type == HR_VAL_BLOB)
            rc = sqlite3_bind_blob64(c->stmt, i + 1, v->len ? v->p : "", v->len, SQLITE_STATIC);
        else
            rc = sqlite3_bind_text64(c->stmt, i + 1, v->p, v->len, SQLITE_STATIC, SQLITE_UTF8);
        if (rc != SQLITE_OK) return fail(c->db, rc, err);
    }
    return HR_OK;
}

enum hr_status hr_db_query(struct hr_db *db, const char *sql, const struct hr_val *args, int n_args,
                           struct hr_cursor **out, struct hr_err *err) {
    struct hr_cursor *c = NULL;
    for (int i = 0; i < db->n_stmts && !c; i++)
        if (db->stmts[i].sql == sql) c = &db->stmts[i];
    if (!c) {
        HR_ASSERT(db->n_stmts < N_STMT_MAX);
        c = &db->stmts[db->n_stmts];
        *c = (struct hr_cursor){.db = db, .sql = sql};
        int rc = sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &c->stmt, NULL);
        if (rc != SQLITE_OK) return fail(db, rc, err);
        db->n_stmts++;
    }
    enum hr_status code = bind(c, args, n_args, err);
    if (code) {
        hr_cursor_end(c);
        return code;
    }
    *out = c;
    return HR_OK;
}

enum hr_status hr_cursor_next(struct hr_cursor *c, bool *more, struct hr_err *err) {
    int rc = step(c->stmt);
    if (rc == SQLITE_ROW) {
        *more = true;
        return HR_OK;
    }
    enum hr_status code = rc == SQLITE_DONE ? HR_OK : fail(c->db, rc, err);
    hr_cursor_end(c);
    if (!code) *more = false;
    return code;
}

int64_t hr_cursor_int(struct hr_cursor *c, int col) {
    return sqlite3_column_int64(c->stmt, col);
}

const char *hr_cursor_text(struct hr_cursor *c, int col) {
    const char *s = (const char *)sqlite3_column_text(c->stmt, col);
    return s ? s : "";
}

const void *hr_cursor_blob(struct hr_cursor *c, int col, size_t *len) {
    const void *p = sqlite3_column_blob(c->stmt, col);
    *len = p ? (size_t)sqlite3_column_bytes(c->stmt, col) : 0;
    return p;
}

void hr_cursor_end(struct hr_cursor *c) {
    sqlite3_reset(c->stmt);
    sqlite3_clear_bindings(c->stmt); /* the arguments are no longer ours */
}

enum hr_status hr_db_run(struct hr_db *db, const char *sql, const struct hr_val *args, int n_args,
                         struct hr_err *err) {
    struct hr_cursor *c;
    bool more = true;
    enum hr_status code = hr_db_query(db, sql, args, n_args, &c, err);
    while (!code && more) code = hr_cursor_next(c, &more, err);
    return code;
}

int hr_db_changes(const struct hr_db *db) {
    return sqlite3_changes(db->h);
}

enum hr_status hr_db_get(struct hr_db *db, const char *sql, const struct hr_val *args, int n_args,
                         int64_t *out, int n, bool *found, struct hr_err *err) {
    struct hr_cursor *c;
    bool more = false;
    enum hr_status code = hr_db_query(db, sql, args, n_args, &c, err);
    if (!code) code = hr_cursor_next(c, &more, err);
    if (code) return code;
    if (more) {
        HR_ASSERT(sqlite3_column_count(c->stmt) == n);
        for (int i = 0; i < n; i++) out[i] = hr_cursor_int(c, i);
        hr_cursor_end(c);
    }
    *found = more;
    return HR_OK;
}

enum hr_status hr_db_begin(struct hr_db *db, bool synced, struct hr_err *err) {
    HR_ASSERT(sqlite3_get_autocommit(db->h));
    if (db->synced != synced) {
        enum hr_status code =
            hr_db_script(db, synced ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err);
        if (code) return code;
        db->synced = synced;
    }
    /* IMMEDIATE takes the writer's place now, so that nothing after it can find the database busy.
     * SQLite does not ask the busy handler in every case (somebody's recovery), hence our own turn.
     */
    for (bool first = true;; first = false) {
        int rc = exec(db, "BEGIN IMMEDIATE");
        if (rc == SQLITE_OK) return HR_OK;
        if ((rc & 0xff) != SQLITE_BUSY || !wait_busy(db, first)) return fail(db, rc, err);
    }
}

enum hr_status hr_db_commit(struct hr_db *db, struct hr_err *err) {
    int rc = exec(db, "COMMIT");
    if (rc != SQLITE_OK) {
        enum hr_status code = fail(db, rc, err);
        hr_db_rollback(db);
        return code;
    }
    /* A checkpoint that fails, or finds a reader in its way, has lost nothing: the log stays, and
     * the next commit tries again. */
    if (db->n_wal_pages > WAL_PAGES_MAX &&
        sqlite3_wal_checkpoint_v2(db->h, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL) == SQLITE_OK)
        db->n_wal_pages = 0;
    return HR_OK;
}

void hr_db_rollback(struct hr_db *db) {
    if (!db->h || sqlite3_get_autocommit(db->h)) return;
    for (int i = 0; i < db->n_stmts; i++) sqlite3_reset(db->stmts[i].stmt);
    sqlite3_exec(db->h, "ROLLBACK", NULL, NULL, NULL);
}

bool hr_db_in_transaction(const struct hr_db *db) {
    return !sqlite3_get_autocommit(db->h);
}

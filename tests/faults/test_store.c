/* SPDX-License-Identifier: Apache-2.0
 *
 * faults/store: a small job against the store, with a fault at its k-th change of a file, for every
 * k.
 *
 * A child runs the job and meets the fault; a second child runs the job again without one. Then:
 * every row is in raw_responses.jsonl exactly once with its bytes, every reject once, state.db says
 * the same, nothing is left to mend. Before it goes on, the second child also checks what the first
 * was promised: what a call reported done or journalled before the fault is there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "faults_io.h"
#include "job/store.h"

/* The input: rows with their samples, and what is wrong with them. */
struct input {
    const char *id; /* NULL: a malformed line */
    int n_samples;
    enum { FINE, TOO_LONG, NUMERIC } fate; /* rejected as a whole at once; its sample, half way */
};
static const struct input inputs[] = {
    {"r0", 1, FINE},    {NULL},          {"r1", 2, FINE},     {"twin", 1, FINE},
    {"twin", 1, FINE},  {NULL},          {"r2", 2, TOO_LONG}, {"r3", 1, FINE},
    {"r4", 1, NUMERIC}, {"r5", 1, FINE},
};
#define N_INPUTS   (int)(sizeof inputs / sizeof inputs[0])
#define N_FIRST    5 /* inputs that are read before the first tokens are made */
#define N_FLIGHTS  16
#define N_ROWS     7 /* finished samples in the end */
#define N_REJECTS  4
#define TOKENS_MAX 16

struct flight {
    int i_input, sample, occurrence;
    int64_t row;
    int32_t ids[TOKENS_MAX];
    int n, n_journalled;
    bool is_over;
};

/* What the first life was told, by flight; shared with the second. */
struct promises {
    int n_journalled[N_FLIGHTS], n_synced[N_FLIGHTS];
    bool is_done[N_FLIGHTS];
    int n_rejects; /* after a flush */
};
static struct promises *promised;

static char root[64], dir[96], synced[96];

struct job {
    struct hr_store *st;
    struct hr_run_counters c;
    struct flight flights[N_FLIGHTS];
    int n_flights;
    int n_rejects;
    int n_equal_lines; /* malformed lines met */
    struct hr_err err;
};

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s (fault %d at call %d)\n", __FILE__, __LINE__, #x,           \
                    (int)faults->kind, faults->at);                                                \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

/* A full disk is waited for, as the run does; anything else ends the job. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum hr_status try_code;                                                                   \
        int n_tries = 0;                                                                           \
        do try_code = (call);                                                                      \
        while (try_code == HR_ERR_NOSPACE && ++n_tries < 10);                                      \
        if (try_code) return try_code;                                                             \
    } while (0)

static void hash16(const char *s, uint8_t out[16]) {
    uint8_t full[32];
    hr_sha256(s, strlen(s), full);
    memcpy(out, full, 16);
}

static bool identify(const char *line, size_t len, uint8_t ident[16], int *occurrence,
                     int *sample) {
    char copy[512], id[32];
    if (len >= sizeof copy) return false;
    memcpy(copy, line, len);
    copy[len] = 0;
    if (sscanf(copy, "{\"id\":\"%31[^\"]\",\"occurrence\":%d,\"sample\":%d", id, occurrence,
               sample) != 3)
        return false;
    hash16(id, ident);
    return true;
}

/* The answer that the model would give: it depends on the sample's identity alone. The first row is
 * over after one round, before anything was synced but its own commit. */
static int n_tokens_of(const struct flight *f) {
    return 3 + (f->i_input * 5 + f->sample * 3) % (TOKENS_MAX - 3);
}

static int32_t token_of(const struct flight *f, int i) {
    return f->i_input * 1000 + f->sample * 100 + i;
}

static void write_row(const struct flight *f, char *out, size_t cap) {
    int n = snprintf(out, cap, "{\"id\":\"%s\",\"occurrence\":%d,\"sample\":%d,\"response\":\"",
                     inputs[f->i_input].id, f->occurrence, f->sample);
    for (int i = 0; i < n_tokens_of(f); i++)
        n += snprintf(out + n, cap - (size_t)n, "%d ", token_of(f, i));
    snprintf(
        out + n, cap - (size_t)n,
        "\",\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":%d}}\n",
        n_tokens_of(f));
}

static enum hr_status reject(struct job *j, const char *name, int64_t row, int sample) {
    uint8_t key[16];
    char line[64];
    bool known;
    hash16(name, key);
    snprintf(line, sizeof line, "{\"reject\":\"%s\"}\n", name);
    TRY(hr_store_reject(j->st, key, row, sample, line, strlen(line), &known, &j->err));
    j->n_rejects++;
    return HR_OK;
}

static enum hr_status add_flight(struct job *j, int i_input, int sample,
                                 const struct hr_store_seen *s) {
    enum hr_sample_state state;
    struct hr_ids ids = {0};
    struct flight *f = &j->flights[j->n_flights];
    int i_flight = j->n_flights++;
    *f = (struct flight){
        .i_input = i_input, .sample = sample, .occurrence = s->occurrence, .row = s->row};
    TRY(hr_store_sample(j->st, s->row, sample, &state, &j->err));
    f->is_over = state != HR_SAMPLE_MISSING;
    CHECK(!promised->is_done[i_flight] || state == HR_SAMPLE_DONE);
    if (f->is_over) return HR_OK;
    TRY(hr_store_journalled(j->st, s->row, sample, &ids, &j->err));
    for (size_t i = 0; i < ids.len; i++) CHECK(ids.data[i] == token_of(f, (int)i));
    CHECK((int)ids.len <= n_tokens_of(f));
    CHECK((int)ids.len >= (faults->kind == FAULT_POWER ? promised->n_synced[i_flight]
                                                       : promised->n_journalled[i_flight]));
    if (ids.len > 0) memcpy(f->ids, ids.data, ids.len * sizeof *ids.data);
    f->n = f->n_journalled = (int)ids.len;
    hr_ids_finish(&ids);
    return HR_OK;
}

static enum hr_status take_in(struct job *j, int from, int to) {
    for (int i = from; i < to; i++) {
        const struct input *in = &inputs[i];
        uint8_t ident[16];
        struct hr_store_seen seen;
        char name[32];
        hash16(in->id ? in->id : "{", ident);
        if (!in->id) {
            int occurrence;
            TRY(hr_store_see_line(j->st, ident, &occurrence, &j->err));
            CHECK(occurrence == j->n_equal_lines++);
            snprintf(name, sizeof name, "line %d", occurrence);
            TRY(reject(j, name, -1, -1));
            continue;
        }
        TRY(hr_store_see(j->st, ident, ident, in->id, in->n_samples, &seen, &j->err));
        if (in->fate == TOO_LONG) TRY(reject(j, in->id, seen.row, -1));
        for (int s = 0; s < in->n_samples && in->fate != TOO_LONG; s++)
            TRY(add_flight(j, i, s, &seen));
    }
    return HR_OK;
}

static enum hr_status commit_row(struct job *j, struct flight *f) {
    char line[512];
    write_row(f, line, sizeof line);
    struct hr_store_done d = {.row = f->row,
                              .sample = f->sample,
                              .line = line,
                              .len = strlen(line),
                              .prompt_tokens = 2,
                              .completion_tokens = n_tokens_of(f)};
    j->c.rows_done++;
    TRY(hr_store_commit(j->st, &d, 1, &j->c, &j->err));
    f->is_over = promised->is_done[f - j->flights] = true;
    return HR_OK;
}

static enum hr_status journal_all(struct job *j, bool sync) {
    struct hr_store_tokens t[N_FLIGHTS];
    int n = 0;
    for (int i = 0; i < j->n_flights; i++) {
        struct flight *f = &j->flights[i];
        if (f->is_over || f->n == f->n_journalled) continue;
        t[n++] = (struct hr_store_tokens){f->row, f->sample, f->ids + f->n_journalled,
                                          f->n - f->n_journalled};
    }
    TRY(hr_store_journal(j->st, t, n, &j->c, sync, &j->err));
    for (int i = 0; i < j->n_flights; i++) {
        struct flight *f = &j->flights[i];
        if (f->is_over) continue;
        f->n_journalled = promised->n_journalled[i] = f->n;
        if (sync) promised->n_synced[i] = f->n;
    }
    return HR_OK;
}

/* Every flight gets three tokens a round; some are over after it. */
static enum hr_status generate(struct job *j) {
    bool any = true;
    for (int i_round = 0; any; i_round++) {
        any = false;
        for (int i = 0; i < j->n_flights; i++) {
            struct flight *f = &j->flights[i];
            for (int k = 0; k < 3 && !f->is_over && f->n < n_tokens_of(f);
                 k++, f->n++, j->c.sampled_tokens++)
                f->ids[f->n] = token_of(f, f->n);
        }
        TRY(journal_all(j, i_round % 2 == 1));
        for (int i = 0; i < j->n_flights; i++) {
            struct flight *f = &j->flights[i];
            if (f->is_over) continue;
            if (inputs[f->i_input].fate == NUMERIC) {
                TRY(reject(j, inputs[f->i_input].id, f->row, f->sample));
                f->is_over = true;
            } else if (f->n == n_tokens_of(f)) {
                TRY(commit_row(j, f));
            } else {
                any = true;
            }
        }
    }
    return HR_OK;
}

static enum hr_status run_job(struct job *j) {
    struct hr_store_opts o = {.dir = dir, .identify = identify};
    struct hr_store_recovery r;
    struct hr_store_setting settings[] = {{"model", "m"}, {"seed", "1"}};
    TRY(hr_store_open(&o, &j->st, &r, &j->err));
    if (promised->n_rejects > 0) {
        struct hr_store_totals t;
        TRY(hr_store_totals(j->st, &t, &j->err));
        CHECK(t.rejects >= promised->n_rejects);
        hr_store_totals_finish(&t);
    }
    TRY(hr_store_bind(j->st, settings, 2, &j->err));
    TRY(hr_store_begin_run(j->st, "1", "h", &j->err));
    TRY(hr_store_set_fact(j->st, "state", "running", &j->err));
    TRY(take_in(j, 0, N_FIRST));
    TRY(generate(j));
    TRY(take_in(j, N_FIRST, N_INPUTS));
    TRY(hr_store_flush(j->st, &j->err));
    promised->n_rejects = j->n_rejects;
    TRY(generate(j));
    TRY(hr_store_end_run(j->st, &j->c, "done", &j->err));
    return HR_OK;
}

/* The exit code of a life: 0 finished, 1 gave up after an error, 2 a check failed, or FAULT_EXIT.
 */
static int live(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct job j = {0};
        enum hr_status code = run_job(&j);
        hr_store_close(&j.st);
        if (code && faults->kind != FAULT_EIO) fprintf(stderr, "%s\n", j.err.msg);
        _exit(code ? 1 : 0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid) abort();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static char *slurp(const char *name) {
    char path[160];
    struct hr_buf b = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    for (int c; f && (c = getc(f)) != EOF;) hr_buf_putc(&b, (char)c);
    if (f) fclose(f);
    hr_buf_putc(&b, 0);
    return b.data;
}

/* `line` is in `text`, at a line's start, once. Returns its length. */
static size_t expect_once(const char *text, const char *line) {
    const char *first = strstr(text, line);
    CHECK(first != NULL);
    CHECK(first == text || first[-1] == '\n');
    CHECK(strstr(first + 1, line) == NULL);
    return strlen(line);
}

static void check_files(void) {
    char *rows = slurp("raw_responses.jsonl"), *rejects = slurp("rejects.jsonl"), line[512];
    size_t n_row_bytes = 0, n_reject_bytes = 0;
    int n_twins = 0, n_rows = 0;
    for (int i = 0; i < N_INPUTS; i++) {
        if (!inputs[i].id || inputs[i].fate != FINE) continue;
        int occurrence = strcmp(inputs[i].id, "twin") == 0 ? n_twins++ : 0;
        for (int s = 0; s < inputs[i].n_samples; s++, n_rows++) {
            struct flight f = {.i_input = i, .sample = s, .occurrence = occurrence};
            write_row(&f, line, sizeof line);
            n_row_bytes += expect_once(rows, line);
        }
    }
    CHECK(n_rows == N_ROWS);
    CHECK(n_row_bytes == strlen(rows));
    n_reject_bytes += expect_once(rejects, "{\"reject\":\"line 0\"}\n");
    n_reject_bytes += expect_once(rejects, "{\"reject\":\"line 1\"}\n");
    n_reject_bytes += expect_once(rejects, "{\"reject\":\"r2\"}\n");
    n_reject_bytes += expect_once(rejects, "{\"reject\":\"r4\"}\n");
    CHECK(n_reject_bytes == strlen(rejects));
    free(rows);
    free(rejects);
}

/* Opens the finished job once more: nothing to mend, and the sums are right. */
static void check_state(void) {
    fflush(stdout);
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        struct hr_store_opts o = {.dir = dir, .identify = identify};
        struct hr_store *st = NULL;
        struct hr_store_recovery r;
        struct hr_store_totals t;
        CHECK(hr_store_open(&o, &st, &r, NULL) == HR_OK);
        CHECK(r.n_adopted == 0 && r.n_cut_bytes == 0 && r.n_redo == 0 && r.n_unfinished == 0);
        CHECK(hr_store_totals(st, &t, NULL) == HR_OK);
        CHECK(t.rows_done == N_ROWS);
        CHECK(t.rejects == N_REJECTS);
        CHECK(t.prompt_tokens == 2 * N_ROWS);
        CHECK(t.sum.rows_done >= N_ROWS);
        hr_store_totals_finish(&t);
        hr_store_close(&st);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid) abort();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fresh_folders(void) {
    char cmd[320];
    snprintf(cmd, sizeof cmd, "rm -rf %s && mkdir -p %s %s", root, dir, synced);
    if (system(cmd) != 0) abort();
    memset(promised, 0, sizeof *promised);
}

/* One life with a fault, one without, and the checks. False: the job ended before the k-th call. */
static bool one_fault(enum fault_kind kind, int at, unsigned keep) {
    fresh_folders();
    faults->kind = kind;
    faults->at = at;
    faults->n = 0;
    int code = live();
    bool met = faults->n >= at;
    CHECK(met ? code == FAULT_EXIT || code == 0 || code == 1 : code == 0);
    if (kind == FAULT_NOSPACE) CHECK(code == 0); /* the same life goes on */
    if (kind == FAULT_POWER && met) faults_power_cut(keep);
    faults->kind = kind == FAULT_POWER ? FAULT_POWER : FAULT_NONE;
    faults->at = 1 << 30; /* no fault in the second life, but its promises are judged by the kind */
    CHECK(live() == 0);
    faults->kind = FAULT_NONE;
    faults->at = at;
    check_files();
    check_state();
    return met;
}

int main(int argc, char **argv) {
    static const char *const names[FAULT_KINDS] = {"none",  "kill",    "torn",
                                                   "power", "nospace", "eio"};
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.32s/headrace-faults-%d", tmp ? tmp : "/tmp", (int)getpid());
    snprintf(dir, sizeof dir, "%s/job", root);
    snprintf(synced, sizeof synced, "%s/synced", root);
    faults_init(dir, synced);
    promised =
        mmap(NULL, sizeof *promised, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (promised == MAP_FAILED || argc != 2) return 1;
    hr_log_set_level(HR_LOG_ERROR);
    for (int kind = FAULT_KILL; kind < FAULT_KINDS; kind++) {
        if (strcmp(argv[1], names[kind]) != 0) continue;
        int at = 1;
        while (
            one_fault((enum fault_kind)kind, at, kind == FAULT_POWER ? (unsigned)(at * 7) % 16 : 0))
            at++;
        if (kind == FAULT_POWER) /* once more with nothing but what was synced */
            for (int k = 1; k < at; k++) one_fault(FAULT_POWER, k, 0);
        printf("%s: %d places, all mended\n", names[kind], at - 1);
        CHECK(at > 100); /* the calls were really ours */
    }
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", root);
    return system(cmd) == 0 ? 0 : 1;
}

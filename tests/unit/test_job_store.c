/* SPDX-License-Identifier: Apache-2.0
 *
 * job_store: what the store promises to a run that comes after: rows exactly once whatever was done
 * to the files, identities that keep their numbers, one lock, settings that do not mix. Kills at
 * every write are tests/faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "job/store.h"

static char dir[64];
static int n_warnings;

static void count_warnings(void *arg, enum hr_log_level level, const char *line, size_t len) {
    n_warnings += level == HR_LOG_WARN;
}

static void hash16(const char *s, uint8_t out[16]) {
    uint8_t full[32];
    hr_sha256(s, strlen(s), full);
    memcpy(out, full, 16);
}

static bool identify(const char *line, size_t len, uint8_t ident[16], int *occurrence,
                     int *sample) {
    char copy[256], id[32];
    if (len >= sizeof copy) return false;
    memcpy(copy, line, len);
    copy[len] = 0;
    int n = sscanf(copy, "{\"id\":\"%31[^\"]\",\"occurrence\":%d,\"sample\":%d", id, occurrence,
                   sample);
    if (n != 3) return false;
    hash16(id, ident);
    return true;
}

static void shell(const char *fmt, ...) {
    struct hr_buf cmd = {0};
    va_list ap;
    va_start(ap, fmt);
    hr_buf_vprintf(&cmd, fmt, ap);
    va_end(ap);
    assert_int_equal(system(hr_buf_cstr(&cmd)), 0);
    hr_buf_finish(&cmd);
}

/* A child that ends with this process, however a test fails. */
static pid_t fork_child(void) {
    pid_t pid = fork();
    if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static struct hr_store_opts opts(void) {
    return (struct hr_store_opts){.dir = dir, .identify = identify};
}

static struct hr_store *open_store(struct hr_store_recovery *r) {
    struct hr_store_opts o = opts();
    struct hr_store *st = NULL;
    struct hr_store_recovery dummy;
    struct hr_err err = {0};
    if (hr_store_open(&o, &st, r ? r : &dummy, &err)) fail_msg("%s", err.msg);
    return st;
}

static struct hr_store *begin(struct hr_store_recovery *r) {
    struct hr_store *st = open_store(r);
    assert_int_equal(hr_store_begin_run(st, "0.1.0", "mill", NULL), HR_OK);
    return st;
}

static struct hr_store_seen see(struct hr_store *st, const char *id, const char *content) {
    uint8_t i[16], c[16];
    struct hr_store_seen s = {0};
    struct hr_err err = {0};
    hash16(id, i), hash16(content, c);
    if (hr_store_see(st, i, c, id, 1, &s, &err)) fail_msg("%s", err.msg);
    return s;
}

static enum hr_status try_see(struct hr_store *st, const char *id, const char *content) {
    uint8_t i[16], c[16];
    struct hr_store_seen s = {0};
    hash16(id, i), hash16(content, c);
    return hr_store_see(st, i, c, id, 1, &s, NULL);
}

static void row_text(char *line, size_t cap, const char *id, int occurrence) {
    snprintf(
        line, cap,
        "{\"id\":\"%s\",\"occurrence\":%d,\"sample\":0,\"response\":\"said %s\",\"finish_reason\":"
        "\"length\",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n",
        id, occurrence, id);
}

static enum hr_status try_finish(struct hr_store *st, int64_t row, const char *id) {
    char line[256];
    row_text(line, sizeof line, id, 0);
    struct hr_store_done d = {.row = row,
                              .line = line,
                              .len = strlen(line),
                              .prompt_tokens = 3,
                              .completion_tokens = 4,
                              .length = true};
    struct hr_run_counters c = {.rows_done = row + 1, .sampled_tokens = 4 * (row + 1)};
    return hr_store_commit(st, &d, 1, &c, NULL);
}

static void finish_row(struct hr_store *st, int64_t row, const char *id) {
    assert_int_equal(try_finish(st, row, id), HR_OK);
}

static enum hr_sample_state state_of(struct hr_store *st, int64_t row) {
    enum hr_sample_state s;
    assert_int_equal(hr_store_sample(st, row, 0, &s, NULL), HR_OK);
    return s;
}

/* A run over rows r0..r<n-1> that ends well. */
static void run_rows(int n) {
    struct hr_store *st = begin(NULL);
    for (int i = 0; i < n; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        int64_t row = see(st, id, id).row;
        if (state_of(st, row) == HR_SAMPLE_MISSING) finish_row(st, row, id);
    }
    assert_int_equal(hr_store_end_run(st, &(struct hr_run_counters){.rows_done = n}, "done", NULL),
                     HR_OK);
    hr_store_close(&st);
    assert_null(st);
}

static char *slurp(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    struct hr_buf b = {0};
    int c;
    while (f && (c = getc(f)) != EOF) hr_buf_putc(&b, (char)c);
    if (f) fclose(f);
    hr_buf_putc(&b, 0);
    return b.data;
}

static void assert_rows_are(int n) {
    char *text = slurp("raw_responses.jsonl"), line[256], id[16];
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "r%d", i);
        row_text(line, sizeof line, id, 0);
        char *first = strstr(text, line);
        assert_non_null(first);
        assert_null(strstr(first + 1, line));
        total += strlen(line);
    }
    assert_int_equal(strlen(text), total);
    free(text);
}

static int setup(void **state) {
    snprintf(dir, sizeof dir, "/tmp/headrace-store-XXXXXX");
    hr_log_set_level(HR_LOG_WARN);
    hr_log_set_sink(count_warnings, NULL);
    n_warnings = 0;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    shell("rm -rf %s", dir);
    return 0;
}

static void finished_rows_stay_done_in_the_next_run(void **state) {
    run_rows(3);
    struct hr_store_recovery r;
    struct hr_store *st = begin(&r);
    assert_int_equal(r.n_redo + r.n_adopted + r.n_unfinished, 0);
    struct hr_store_seen s = see(st, "r1", "r1");
    assert_true(!s.is_new && s.duplicate_of_done && s.row == 1 && s.occurrence == 0);
    s = see(st, "new", "new");
    assert_true(s.is_new && !s.duplicate_of_done && s.row == 3);
    hr_store_close(&st);
    assert_rows_are(3);
}

static void a_second_process_is_told_who_holds_the_lock(void **state) {
    struct hr_store *st = open_store(NULL);
    int status;
    pid_t pid = fork_child();
    if (pid == 0) {
        struct hr_store_opts o = opts();
        struct hr_store *second = NULL;
        struct hr_store_recovery r;
        struct hr_err err = {0};
        char want[32];
        snprintf(want, sizeof want, "pid %ld on host", (long)getppid());
        enum hr_status code = hr_store_open(&o, &second, &r, &err);
        _exit(code == HR_ERR_LOCKED && strstr(err.msg, want) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    hr_store_close(&st);
}

static void a_killed_holder_leaves_no_lock(void **state) {
    int ready[2], status;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork_child();
    if (pid == 0) {
        open_store(NULL);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    struct hr_store *st = open_store(NULL);
    char *text = slurp("lock"), want[32];
    snprintf(want, sizeof want, "pid %ld on host ", (long)getpid());
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
    free(text);
    hr_store_close(&st);
    close(ready[0]), close(ready[1]);
}

static void two_folders_cannot_share_one_state_file(void **state) {
    char a[96], b[96], db[96];
    snprintf(a, sizeof a, "%s/a", dir), snprintf(b, sizeof b, "%s/b", dir);
    snprintf(db, sizeof db, "%s/far/state.db", dir);
    struct hr_store_opts oa = {.dir = a, .state_path = db}, ob = {.dir = b, .state_path = db};
    struct hr_store *first = NULL, *second = NULL;
    struct hr_store_recovery r;
    assert_int_equal(hr_store_open(&oa, &first, &r, NULL), HR_OK);
    assert_int_equal(hr_store_open(&ob, &second, &r, NULL), HR_ERR_LOCKED);
    assert_null(second);
    assert_int_equal(access(db, F_OK), 0);
    hr_store_close(&first);
}

static void a_cut_last_row_is_done_once_more(void **state) {
    run_rows(5);
    for (int cut = 1; cut <= 7; cut += 6) {
        shell("truncate -s -%d %s/raw_responses.jsonl", cut, dir);
        struct hr_store_recovery r;
        struct hr_store *st = open_store(&r);
        assert_int_equal(r.n_redo, 1);
        assert_int_equal(state_of(st, 3), HR_SAMPLE_DONE);
        assert_int_equal(state_of(st, 4), HR_SAMPLE_MISSING);
        struct hr_store_totals t;
        assert_int_equal(hr_store_totals(st, &t, NULL), HR_OK);
        assert_int_equal(t.rows_done, 4);
        assert_int_equal(t.rows_length, 4);
        assert_int_equal(t.completion_tokens, 16);
        hr_store_totals_finish(&t);
        hr_store_close(&st);
        run_rows(5);
        assert_rows_are(5);
    }
}

static void a_damaged_last_row_is_done_once_more(void **state) {
    run_rows(3);
    shell("printf x | dd of=%s/raw_responses.jsonl bs=1 conv=notrunc seek=$(($(stat -c%%s "
          "%s/raw_responses.jsonl)-90)) 2>/dev/null",
          dir, dir);
    struct hr_store_recovery r;
    struct hr_store *st = open_store(&r);
    assert_int_equal(r.n_redo, 1);
    assert_true(r.n_cut_bytes > 0);
    hr_store_close(&st);
    run_rows(3);
    assert_rows_are(3);
    char *torn = slurp("raw_responses.torn");
    assert_non_null(strstr(torn, "\"id\":\"r2\""));
    free(torn);
}

static void rows_of_a_file_that_is_gone_are_done_once_more(void **state) {
    run_rows(4);
    shell("rm %s/raw_responses.jsonl", dir);
    struct hr_store_recovery r;
    struct hr_store *st = open_store(&r);
    assert_int_equal(r.n_redo, 4);
    hr_store_close(&st);
    run_rows(4);
    assert_rows_are(4);
}

static void whole_rows_that_were_moved_stay_done(void **state) {
    run_rows(4);
    shell("cd %s && sort -r raw_responses.jsonl > x && mv x raw_responses.jsonl", dir);
    struct hr_store_recovery r;
    struct hr_store *st = open_store(&r);
    assert_int_equal(r.n_redo + r.n_adopted + (int)r.n_cut_bytes, 0);
    for (int i = 0; i < 4; i++) assert_int_equal(state_of(st, i), HR_SAMPLE_DONE);
    hr_store_close(&st);
    assert_rows_are(4);
    st = open_store(&r);
    assert_int_equal(r.n_redo, 0);
    hr_store_close(&st);
}

static void whole_known_rows_past_the_last_commit_are_adopted(void **state) {
    char line[256];
    struct hr_store *st = begin(NULL);
    see(st, "r0", "r0"), see(st, "r1", "r1"), see(st, "r2", "r2");
    finish_row(st, 0, "r0");
    int32_t ids[] = {7, 8, 9};
    struct hr_store_tokens t = {.row = 1, .ids = ids, .n = 3};
    struct hr_run_counters c = {.rows_done = 1, .sampled_tokens = 7};
    assert_int_equal(hr_store_journal(st, &t, 1, &c, false, NULL), HR_OK);
    hr_store_close(&st);
    row_text(line, sizeof line, "r1", 0);
    char path[128];
    snprintf(path, sizeof path, "%s/raw_responses.jsonl", dir);
    FILE *f = fopen(path, "a");
    fputs(line, f);
    fputs("{\"id\":\"r2\",\"occ", f);
    fclose(f);
    struct hr_store_recovery r;
    st = open_store(&r);
    assert_int_equal(r.n_adopted, 1);
    assert_int_equal(r.n_cut_bytes, 15);
    assert_int_equal(r.n_redo, 0);
    assert_int_equal(r.n_unfinished, 0);
    assert_int_equal(state_of(st, 1), HR_SAMPLE_DONE);
    assert_int_equal(state_of(st, 2), HR_SAMPLE_MISSING);
    struct hr_store_totals sum;
    assert_int_equal(hr_store_totals(st, &sum, NULL), HR_OK);
    assert_int_equal(sum.rows_done, 2);
    assert_int_equal(sum.sum.rows_done, 2);
    assert_int_equal(sum.sum.sampled_tokens,
                     8); /* 4 + 3 journalled + the one that only the row had */
    hr_store_totals_finish(&sum);
    hr_store_close(&st);
    run_rows(3);
    assert_rows_are(3);
}

static void rows_of_another_job_are_refused_untouched(void **state) {
    run_rows(2);
    char line[256];
    row_text(line, sizeof line, "alien", 0);
    char path[128];
    snprintf(path, sizeof path, "%s/raw_responses.jsonl", dir);
    FILE *f = fopen(path, "w");
    fputs(line, f);
    fclose(f);
    struct hr_store_opts o = opts();
    struct hr_store *st = NULL;
    struct hr_store_recovery r;
    assert_int_equal(hr_store_open(&o, &st, &r, NULL), HR_ERR_CONFIG);
    char *text = slurp("raw_responses.jsonl");
    assert_string_equal(text, line);
    free(text);
}

static void rows_without_their_state_file_are_refused_untouched(void **state) {
    run_rows(2);
    shell("rm %s/state.db*", dir);
    struct hr_store_opts o = opts();
    struct hr_store *st = NULL;
    struct hr_store_recovery r;
    assert_int_equal(hr_store_open(&o, &st, &r, NULL), HR_ERR_CONFIG);
    assert_rows_are(2);
}

static void equal_rows_keep_their_occurrence_in_any_order(void **state) {
    struct hr_store *st = begin(NULL);
    const char *contents[] = {"A", "B", "A", "C", "A"};
    int64_t rows[5];
    for (int i = 0; i < 5; i++) {
        struct hr_store_seen s = see(st, "x", contents[i]);
        assert_true(s.is_new);
        assert_int_equal(s.occurrence, i);
        rows[i] = s.row;
    }
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    hr_store_close(&st);
    st = begin(NULL);
    const int order[] = {3, 0, 2, 1, 4};
    for (int i = 0; i < 5; i++) {
        struct hr_store_seen s = see(st, "x", contents[order[i]]);
        assert_false(s.is_new);
        assert_int_equal(s.occurrence, order[i]);
        assert_int_equal(s.row, rows[order[i]]);
    }
    struct hr_store_seen s = see(st, "x", "D");
    assert_true(s.is_new);
    assert_int_equal(s.occurrence, 5);
    hr_store_close(&st);
}

static void an_edited_row_is_refused_and_a_new_duplicate_is_not(void **state) {
    struct hr_store *st = begin(NULL);
    finish_row(st, see(st, "a", "1").row, "a");
    see(st, "b", "1"), see(st, "b", "2");
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    hr_store_close(&st);
    st = begin(NULL);
    assert_int_equal(try_see(st, "a", "9"), HR_ERR_CONFIG);
    see(st, "b", "2");
    assert_int_equal(try_see(st, "b", "2"), HR_ERR_CONFIG);
    assert_int_equal(see(st, "b", "1").occurrence, 0);
    assert_int_equal(see(st, "b", "2").occurrence, 2);
    assert_int_equal(see(st, "a", "1").occurrence, 0);
    hr_store_close(&st);
}

static void rejects_are_listed_once_across_runs(void **state) {
    for (int i_run = 0; i_run < 3; i_run++) {
        struct hr_store *st = begin(NULL);
        uint8_t hash[16], key[16];
        hash16("{", hash);
        for (int i = 0; i < 3; i++) { /* three equal bad lines */
            int occurrence;
            bool known;
            assert_int_equal(hr_store_see_line(st, hash, &occurrence, NULL), HR_OK);
            assert_int_equal(occurrence, i);
            char text[32];
            snprintf(text, sizeof text, "{ %d", occurrence);
            hash16(text, key);
            assert_int_equal(hr_store_reject(st, key, -1, -1, "{\"line\":1}\n", 11, &known, NULL),
                             HR_OK);
            assert_int_equal(known, i_run > 0);
        }
        assert_int_equal(hr_store_flush(st, NULL), HR_OK);
        hr_store_close(&st);
        char *text = slurp("rejects.jsonl");
        assert_int_equal(strlen(text), 33);
        free(text);
        /* What a killed run may leave: a line whose transaction never was. */
        shell("printf '{\"line\":' >> %s/rejects.jsonl", dir);
    }
    shell("truncate -s 15 %s/rejects.jsonl", dir);
    struct hr_store *st = begin(NULL);
    struct hr_store_totals t;
    assert_int_equal(hr_store_totals(st, &t, NULL), HR_OK);
    assert_int_equal(t.rejects, 1);
    hr_store_totals_finish(&t);
    hr_store_close(&st);
}

static void a_rejected_sample_has_its_outcome_until_it_is_forgotten(void **state) {
    struct hr_store *st = begin(NULL);
    uint8_t key[16];
    bool known;
    hash16("k", key);
    int64_t row = see(st, "r0", "r0").row, whole = see(st, "r1", "r1").row;
    assert_int_equal(hr_store_reject(st, key, row, 0, "{}\n", 3, &known, NULL), HR_OK);
    hash16("l", key);
    assert_int_equal(hr_store_reject(st, key, whole, -1, "{}\n", 3, &known, NULL), HR_OK);
    assert_int_equal(state_of(st, row), HR_SAMPLE_REJECTED);
    assert_int_equal(state_of(st, whole), HR_SAMPLE_REJECTED);
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    hr_store_close(&st);
    st = begin(NULL);
    assert_true(see(st, "r0", "r0").duplicate_of_done);
    assert_true(see(st, "r1", "r1").duplicate_of_done);
    assert_int_equal(hr_store_forget_rejects(st, NULL), HR_OK);
    assert_int_equal(state_of(st, row), HR_SAMPLE_MISSING);
    assert_int_equal(hr_store_reject(st, key, whole, -1, "{}\n", 3, &known, NULL), HR_OK);
    assert_false(known);
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    hr_store_close(&st);
    char *old = slurp("rejects.jsonl.1"), *now = slurp("rejects.jsonl");
    assert_string_equal(old, "{}\n{}\n");
    assert_string_equal(now, "{}\n");
    free(old), free(now);
}

/* Rows of two samples: what was made of them decides whether they may be edited. */
static void a_row_of_which_nothing_was_made_may_be_edited(void **state) {
    struct hr_store *st = begin(NULL);
    struct hr_run_counters c = {0};
    struct hr_store_totals t;
    uint8_t key[16];
    bool known;
    const char *const ids[] = {"rejected", "missing", "half", "begun"};
    int64_t rows[4];
    for (int i = 0; i < 4; i++) rows[i] = see(st, ids[i], "1").row;
    for (int i = 0; i < 3; i++) { /* both samples of the first, the second one of "half" */
        char text[8] = {(char)('k' + i)};
        hash16(text, key);
        assert_int_equal(hr_store_reject(st, key, rows[i < 2 ? 0 : 2], i < 2 ? i : 1, "{}\n", 3, &known, NULL),
                         HR_OK);
    }
    finish_row(st, rows[2], "half");
    const struct hr_store_tokens tokens = {.row = rows[3], .sample = 1, .ids = (int32_t[]){7}, .n = 1};
    assert_int_equal(hr_store_journal(st, &tokens, 1, &c, true, NULL), HR_OK);
    hr_store_close(&st);

    st = begin(NULL);
    struct hr_store_seen s = see(st, "rejected", "2");
    assert_int_equal(s.row, rows[0]);
    assert_int_equal(s.n_forgotten, 2);
    assert_false(s.is_new || s.duplicate_of_done);
    assert_int_equal(state_of(st, rows[0]), HR_SAMPLE_MISSING);
    s = see(st, "missing", "2");
    assert_int_equal(s.row, rows[1]);
    assert_int_equal(s.n_forgotten, 0);
    assert_int_equal(try_see(st, "half", "2"), HR_ERR_CONFIG);
    assert_int_equal(try_see(st, "begun", "2"), HR_ERR_CONFIG);
    assert_int_equal(hr_store_totals(st, &t, NULL), HR_OK);
    assert_int_equal(t.rejects, 1);
    hr_store_totals_finish(&t);
    /* Its new content may be rejected, too, under the same key. */
    hash16("k", key);
    assert_int_equal(hr_store_reject(st, key, rows[0], 0, "{}\n", 3, &known, NULL), HR_OK);
    assert_false(known);
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    hr_store_close(&st);

    st = begin(NULL);
    assert_int_equal(hr_store_totals(st, &t, NULL), HR_OK);
    assert_int_equal(t.rejects, 2);
    hr_store_totals_finish(&t);
    assert_int_equal(see(st, "rejected", "2").n_forgotten, 0);
    assert_int_equal(state_of(st, rows[0]), HR_SAMPLE_REJECTED);
    finish_row(st, see(st, "missing", "2").row, "missing");
    hr_store_close(&st);
    st = begin(NULL);
    assert_int_equal(try_see(st, "missing", "1"), HR_ERR_CONFIG);
    hr_store_close(&st);
}

static void a_failed_append_leaves_the_file_as_it_was(void **state) {
    struct hr_store *st = begin(NULL);
    int64_t row = see(st, "r0", "r0").row;
    finish_row(st, row, "r0");
    row = see(st, "r1", "r1").row;
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){1 << 20, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    char *big = malloc(2 << 20);
    memset(big, 'x', 2 << 20);
    big[(2 << 20) - 1] = '\n';
    struct hr_store_done d = {.row = row, .line = big, .len = 2 << 20};
    struct hr_run_counters c = {0};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(hr_store_commit(st, &d, 1, &c, NULL), HR_ERR_IO);
    assert_rows_are(1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    finish_row(st, row, "r1");
    assert_rows_are(2);
    hr_store_close(&st);
    free(big);
}

static void journalled_tokens_come_back_in_order_and_go_with_the_row(void **state) {
    struct hr_store *st = begin(NULL);
    int64_t row = see(st, "r0", "r0").row;
    see(st, "r1", "r1");
    int32_t ids[] = {1, -2, 300000, 4};
    struct hr_run_counters c = {0};
    for (int i = 0; i < 4; i++) {
        struct hr_store_tokens t = {.row = row, .ids = ids + i, .n = 1};
        assert_int_equal(hr_store_journal(st, &t, 1, &c, i == 3, NULL), HR_OK);
    }
    hr_store_close(&st);
    struct hr_store_recovery r;
    st = begin(&r);
    assert_int_equal(r.n_unfinished, 1);
    assert_int_equal(r.n_unfinished_tokens, 4);
    struct hr_ids got = {0};
    assert_int_equal(hr_store_journalled(st, row, 0, &got, NULL), HR_OK);
    assert_int_equal(got.len, 4);
    assert_memory_equal(got.data, ids, sizeof ids);
    see(st, "r0", "r0");
    finish_row(st, row, "r0");
    got.len = 0;
    assert_int_equal(hr_store_journalled(st, row, 0, &got, NULL), HR_OK);
    assert_int_equal(got.len, 0);
    hr_ids_finish(&got);
    hr_store_close(&st);
}

static void other_settings_are_refused_by_name(void **state) {
    struct hr_store *st = open_store(NULL);
    struct hr_err err = {0};
    struct hr_store_setting a[] = {
        {"model", "m"}, {"sampling.temperature", "0"}, {"template", "t"}};
    struct hr_store_setting b[] = {
        {"model", "m"}, {"sampling.temperature", "1"}, {"tokenizer", "k"}};
    bool is_new;
    assert_int_equal(hr_store_bind(st, a, 3, &err), HR_OK);
    assert_int_equal(hr_store_bind(st, a, 3, &err), HR_OK);
    assert_int_equal(hr_store_begin_run(st, "0.1.0", "mill", NULL), HR_OK);
    finish_row(st, see(st, "r0", "r0").row, "r0");
    assert_int_equal(hr_store_bind(st, b, 3, &err), HR_ERR_CONFIG);
    assert_non_null(strstr(err.msg, "holds rows made with"));
    assert_non_null(strstr(err.msg, "sampling.temperature was 0, is now 1"));
    assert_non_null(strstr(err.msg, "template was t, is now not set"));
    assert_non_null(strstr(err.msg, "tokenizer was not set, is now k"));
    assert_null(strstr(err.msg, "model was"));
    hr_store_close(&st);
    st = open_store(NULL);
    assert_int_equal(hr_store_check(st, b, 3, &is_new, &err), HR_ERR_CONFIG);
    assert_int_equal(hr_store_check(st, a, 3, &is_new, &err), HR_OK);
    assert_false(is_new);
    hr_store_close(&st);
}

/* Until something was made with them, settings are only what a run was called with. */
static void settings_may_change_while_nothing_was_made(void **state) {
    struct hr_store *st = begin(NULL);
    struct hr_err err = {0};
    struct hr_store_setting a[] = {{"model", "m"}, {"seed", "0"}}, b[] = {{"model", "k"}};
    bool is_new = false;
    uint8_t key[16];
    assert_int_equal(hr_store_bind(st, a, 2, &err), HR_OK);
    int64_t row = see(st, "r0", "r0").row;
    assert_int_equal(hr_store_check(st, b, 1, &is_new, &err), HR_OK);
    assert_true(is_new);
    assert_int_equal(hr_store_bind(st, b, 1, &err), HR_OK);
    struct hr_store_tokens t = {.row = row, .ids = (int32_t[]){7}, .n = 1};
    assert_int_equal(hr_store_journal(st, &t, 1, &(struct hr_run_counters){0}, true, &err), HR_OK);
    assert_int_equal(hr_store_check(st, a, 2, &is_new, &err), HR_ERR_CONFIG);
    assert_non_null(strstr(err.msg, "holds unfinished rows made with"));
    assert_non_null(strstr(err.msg, "model was k, is now m"));
    finish_row(st, row, "r0");
    assert_int_equal(hr_store_check(st, b, 1, &is_new, &err), HR_OK);
    hr_store_close(&st);
    shell("rm -rf %s/*", dir);
    st = begin(NULL);
    assert_int_equal(hr_store_bind(st, a, 2, &err), HR_OK);
    hash16("line", key);
    assert_int_equal(hr_store_reject(st, key, -1, -1, "{}\n", 3, &is_new, &err), HR_OK);
    assert_int_equal(hr_store_bind(st, b, 1, &err), HR_ERR_CONFIG);
    assert_non_null(strstr(err.msg, "holds rejects made with"));
    hr_store_close(&st);
}

static void status_reads_beside_a_live_run_and_after_a_kill(void **state) {
    struct hr_store_opts o = opts();
    struct hr_store *reader = NULL;
    struct hr_store_totals t;
    bool live;
    assert_int_equal(hr_store_open_readonly(&o, &reader, &live, NULL), HR_ERR_NOTFOUND);
    int ready[2], status;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork_child();
    if (pid == 0) {
        struct hr_store *st = begin(NULL);
        see(st, "r0", "r0");
        finish_row(st, 0, "r0");
        if (hr_store_set_fact(st, "cap", "100", NULL)) _exit(1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hr_store_open_readonly(&o, &reader, &live, NULL), HR_OK);
        assert_int_equal(live, i == 0);
        assert_int_equal(hr_store_totals(reader, &t, NULL), HR_OK);
        assert_int_equal(t.rows_done, 1);
        assert_int_equal(t.n_runs, 1);
        assert_string_equal(t.runs[0].ended, "");
        assert_int_equal(t.sum.sampled_tokens, 4);
        hr_store_totals_finish(&t);
        struct hr_buf cap = {0};
        assert_int_equal(hr_store_get_fact(reader, "cap", &cap, NULL), HR_OK);
        assert_string_equal(hr_buf_cstr(&cap), "100");
        assert_int_equal(hr_store_get_fact(reader, "none", &cap, NULL), HR_ERR_NOTFOUND);
        hr_buf_finish(&cap);
        hr_store_close(&reader);
        if (i == 0) {
            assert_int_equal(kill(pid, SIGKILL), 0);
            assert_int_equal(waitpid(pid, &status, 0), pid);
        }
    }
    close(ready[0]), close(ready[1]);
    struct hr_store *st = open_store(NULL); /* the log of the killed run is still there */
    assert_int_equal(state_of(st, 0), HR_SAMPLE_DONE);
    hr_store_close(&st);
}

static void status_leaves_a_closed_job_as_it_is(void **state) {
    run_rows(1);
    shell("cd %s && ls > ../%s.before 2>/dev/null || ls > /dev/null", dir, strrchr(dir, '/') + 1);
    struct hr_store_opts o = opts();
    struct hr_store *reader = NULL;
    bool live;
    assert_int_equal(hr_store_open_readonly(&o, &reader, &live, NULL), HR_OK);
    assert_false(live);
    shell("cd %s && ls | cmp - ../%s.before", dir, strrchr(dir, '/') + 1);
    shell("rm %s.before", dir);
    hr_store_close(&reader);
}

static void a_place_without_shared_memory_is_refused_naming_the_option(void **state) {
    shell("ln -s /nowhere %s/state.db-shm", dir); /* nothing can be mapped under this name */
    struct hr_store_opts o = opts();
    struct hr_store *st = NULL;
    struct hr_store_recovery r;
    struct hr_err err;
    assert_int_equal(hr_store_open(&o, &st, &r, &err), HR_ERR_IO);
    assert_non_null(strstr(err.msg, "--state PATH"));
}

static void a_newer_or_foreign_state_file_is_refused(void **state) {
    char db[128], old[128];
    snprintf(db, sizeof db, "%s/state.db", dir);
    snprintf(old, sizeof old, "%s/keep", dir);
    run_rows(0);
    assert_int_equal(rename(db, old), 0);
    struct hr_store_opts o = opts();
    struct hr_store *st = NULL;
    struct hr_store_recovery r;
    struct hr_err err;
    FILE *f = fopen(db, "w");
    for (int i = 0; i < 4096; i++) fputc('z', f);
    fclose(f);
    assert_int_equal(hr_store_open(&o, &st, &r, &err), HR_ERR_FORMAT);
    assert_int_equal(rename(old, db), 0);
    int fd = open(db, O_RDWR); /* user_version is at byte 60 of the header, big-endian */
    assert_int_equal(pwrite(fd, "\0\0\0\x63", 4, 60), 4);
    close(fd);
    assert_int_equal(hr_store_open(&o, &st, &r, &err), HR_ERR_CONFIG);
    assert_non_null(strstr(err.msg, "newer"));
}

/* The other program holds the write lock for a while through a second process. */
static void a_busy_state_file_is_waited_for(void **state) {
    if (system("command -v sqlite3 >/dev/null") != 0) skip();
    struct hr_store *st = begin(NULL);
    see(st, "r0", "r0");
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    shell("(printf 'BEGIN EXCLUSIVE;\\n'; touch %s/held; sleep 4; printf 'COMMIT;\\n') | sqlite3 "
          "%s/state.db "
          "& sleep 0.5",
          dir, dir);
    n_warnings = 0;
    finish_row(st, 0, "r0");
    assert_int_equal(n_warnings, 1);
    hr_store_close(&st);
    assert_rows_are(1);
}

static void a_busy_state_file_can_be_given_up(void **state) {
    if (system("command -v sqlite3 >/dev/null") != 0) skip();
    static volatile bool stop;
    struct hr_store_opts o = opts();
    o.stop = &stop;
    struct hr_store *st = NULL;
    struct hr_store_recovery r;
    stop = false;
    assert_int_equal(hr_store_open(&o, &st, &r, NULL), HR_OK);
    assert_int_equal(hr_store_begin_run(st, "", "", NULL), HR_OK);
    see(st, "r0", "r0");
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    shell("(printf 'BEGIN EXCLUSIVE;\\n'; sleep 1.5) | sqlite3 %s/state.db & sleep 0.5", dir);
    stop = true;
    assert_int_equal(try_finish(st, 0, "r0"), HR_ERR_LOCKED);
    stop = false;
    finish_row(st, 0, "r0");
    hr_store_close(&st);
    assert_rows_are(1);
}

static void a_hundred_thousand_equal_rows_cost_no_more_than_others(void **state) {
    struct hr_store *st = begin(NULL);
    for (int i = 0; i < 100000; i++) {
        struct hr_store_seen s = see(st, "same", "same");
        assert_int_equal(s.occurrence, i);
    }
    assert_int_equal(hr_store_flush(st, NULL), HR_OK);
    hr_store_close(&st);
    st = begin(NULL);
    for (int i = 0; i < 100000; i++) {
        struct hr_store_seen s = see(st, "same", "same");
        assert_true(!s.is_new && s.occurrence == i);
    }
    hr_store_close(&st);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(finished_rows_stay_done_in_the_next_run),
        T(a_second_process_is_told_who_holds_the_lock),
        T(a_killed_holder_leaves_no_lock),
        T(two_folders_cannot_share_one_state_file),
        T(a_cut_last_row_is_done_once_more),
        T(a_damaged_last_row_is_done_once_more),
        T(rows_of_a_file_that_is_gone_are_done_once_more),
        T(whole_rows_that_were_moved_stay_done),
        T(whole_known_rows_past_the_last_commit_are_adopted),
        T(rows_of_another_job_are_refused_untouched),
        T(rows_without_their_state_file_are_refused_untouched),
        T(equal_rows_keep_their_occurrence_in_any_order),
        T(an_edited_row_is_refused_and_a_new_duplicate_is_not),
        T(a_row_of_which_nothing_was_made_may_be_edited),
        T(rejects_are_listed_once_across_runs),
        T(a_rejected_sample_has_its_outcome_until_it_is_forgotten),
        T(a_failed_append_leaves_the_file_as_it_was),
        T(journalled_tokens_come_back_in_order_and_go_with_the_row),
        T(other_settings_are_refused_by_name),
        T(settings_may_change_while_nothing_was_made),
        T(status_reads_beside_a_live_run_and_after_a_kill),
        T(status_leaves_a_closed_job_as_it_is),
        T(a_place_without_shared_memory_is_refused_naming_the_option),
        T(a_newer_or_foreign_state_file_is_refused),
        T(a_busy_state_file_is_waited_for),
        T(a_busy_state_file_can_be_given_up),
        T(a_hundred_thousand_equal_rows_cost_no_more_than_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

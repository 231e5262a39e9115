/* SPDX-License-Identifier: Apache-2.0
 *
 * job/progress, job/loop, job/runlog: what a person is told about a run, at any width; what the
 * loop promises about order; that run.log is whole lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "job/loop.h"
#include "job/progress.h"
#include "job/runlog.h"

#define S INT64_C(1000000000)

static const struct hr_progress half_way = {
    .dataset = "B2_opencodeinstruct",
    .rows_done = 12,
    .rows_total = 164,
    .completion_tokens = 12000,
    .running = 72,
    .queued = 79,
    .kv_used_tokens = 153179,
    .kv_total_tokens = 159277,
    .tok_s = 930.63,
    .inflight_tokens = 20000,
};

static void the_periodic_line_begins_with_the_fields_people_grep_for(void **state) {
    struct hr_buf b = {0};
    hr_progress_periodic(&half_way, &b);
    assert_string_equal(
        hr_buf_cstr(&b),
        "Decode batch, #running-req: 72, #token: 153179, token usage: 0.96, "
        "gen throughput (token/s): 930.63, #queue-req: 79, rows: 12/164, ETA: 2m22s");
    hr_buf_finish(&b);
}

static void a_phase_takes_the_place_of_the_numbers(void **state) {
    struct hr_progress p = half_way;
    struct hr_buf b = {0};
    p.phase = "paused: no space left on /data\n\x1b[2J";
    hr_progress_periodic(&p, &b);
    assert_non_null(strstr(hr_buf_cstr(&b), "B2_opencodeinstruct: paused: no space left on /data"));
    hr_buf_clear(&b);
    hr_progress_live(&p, 200, &b);
    assert_null(strchr(hr_buf_cstr(&b), '\n'));
    assert_null(strchr(b.data, '\x1b'));
    hr_buf_finish(&b);
}

static void the_live_line_fits_any_width_and_keeps_the_rows(void **state) {
    struct hr_buf b = {0};
    for (int width = 20; width < 300; width++) {
        hr_buf_clear(&b);
        hr_progress_live(&half_way, width, &b);
        assert_true((int)b.len <= width);
        assert_non_null(strstr(hr_buf_cstr(&b), "12/164"));
    }
    assert_string_equal(b.data,
                        "B2_opencodeinstruct  [==>                         ] 12/164  931 tok/s"
                        "  72 running  79 queued  KV 96%  ETA 2m22s");
    hr_buf_finish(&b);
}

static void a_long_name_is_cut_between_characters(void **state) {
    struct hr_progress p = half_way;
    struct hr_buf b = {0};
    p.dataset = "\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf"
                "\xa8\xe9\xaf\xa8";
    p.phase = "loading";
    hr_progress_live(&p, 20, &b); /* a third of 20 columns: six characters */
    assert_string_equal(hr_buf_cstr(&b),
                        "\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf\xa8\xe9\xaf\xa8"
                        "\xe9\xaf\xa8  loading");
    hr_buf_finish(&b);
}

static void the_rate_looks_back_one_window_and_falls_when_nothing_comes(void **state) {
    struct hr_rate r = {0};
    assert_true(hr_rate_per_s(&r, 0) == 0);
    for (int i = 0; i <= 1000; i++)
        hr_rate_add(&r, i * S / 10, i < 500 ? i * 100 : 50000 + (i - 500) * 10);
    double v = hr_rate_per_s(&r, 100 * S); /* 1000 a second long ago, 100 a second now */
    assert_true(v > 99 && v < 101);
    v = hr_rate_per_s(&r, 105 * S);
    assert_true(v > 45 && v < 55);
    assert_true(hr_rate_per_s(&r, 200 * S) == 0);
    struct hr_rate fast = {0}; /* a point each millisecond still spans the window */
    for (int i = 0; i <= 20000; i++) hr_rate_add(&fast, i * S / 1000, i / 1000 * 1000);
    v = hr_rate_per_s(&fast, 20 * S);
    assert_true(v > 950 && v < 1150);
}

static void the_end_is_estimated_from_the_mean_length_and_the_cap(void **state) {
    struct hr_progress p = {.dataset = "d",
                            .rows_done = 10,
                            .rows_total = 110,
                            .completion_tokens = 1000,
                            .tok_s = 100,
                            .running = 5,
                            .inflight_tokens = 500};
    /* 95 rows of 100 tokens, and 5 that are at 100 already and may take half of that again. */
    assert_true(hr_progress_eta_s(&p) == 97.5);
    p.inflight_tokens = 100;
    assert_true(hr_progress_eta_s(&p) == 99); /* 80 tokens to go each */
    p.inflight_tokens = 2000;
    assert_true(hr_progress_eta_s(&p) == 195); /* 3000 tokens of 15 rows: the mean is 200 or more */
    p.inflight_tokens = 500;
    p.cap_tokens = 2500;
    assert_true(hr_progress_eta_s(&p) == 10);
    p.rows_total = -1;
    assert_true(hr_progress_eta_s(&p) == 10);
    p.rows_total = 110, p.rows_done = 0, p.cap_tokens = 0;
    assert_true(hr_progress_eta_s(&p) == -1); /* none has finished, and nobody has said how long they are */
    p.expected_tokens = 1500;
    assert_true(hr_progress_eta_s(&p) == 10);
    p.rows_total = -1, p.rows_done = 10;
    p.cap_tokens = 0;
    assert_true(hr_progress_eta_s(&p) == -1);
    p.rows_total = 110, p.rejects = 100;
    assert_true(hr_progress_eta_s(&p) == 0);
    p.rejects = 0, p.tok_s = 0;
    assert_true(hr_progress_eta_s(&p) == -1);
}

static void durations_and_counts_read_like_words(void **state) {
    const struct {
        double s;
        const char *text;
    } cases[] = {{-1, "?"},         {0, "0.0s"},     {9.94, "9.9s"},
                 {9.96, "10s"},     {59.6, "1m00s"}, {192, "3m12s"},
                 {3599.7, "1h00m"}, {3720, "1h02m"}, {183600, "2d03h"}};
    struct hr_buf b = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hr_buf_clear(&b);
        hr_format_duration(cases[i].s, &b);
        assert_string_equal(hr_buf_cstr(&b), cases[i].text);
    }
    const int64_t counts[] = {0, 999, 1000, 1234567, -1000, INT64_MIN};
    const char *texts[] = {"0",         "999",    "1,000",
                           "1,234,567", "-1,000", "-9,223,372,036,854,775,808"};
    for (size_t i = 0; i < 6; i++) {
        hr_buf_clear(&b);
        hr_format_count(counts[i], &b);
        assert_string_equal(hr_buf_cstr(&b), texts[i]);
    }
    hr_buf_finish(&b);
}

static void the_summary_names_truncated_rows_and_the_distance_from_the_cap(void **state) {
    struct hr_summary s = {.dataset = "demo",
                           .how = "stopped at the cap",
                           .dir = "prepared/demo",
                           .rows_done = 10,
                           .rows_total = 24,
                           .rows_length = 4,
                           .rows_repetitive = 3,
                           .rejects = 2,
                           .over_cap = 12,
                           .prompt_tokens = 1234,
                           .completion_tokens = 10150,
                           .cap_tokens = 10000,
                           .resumed_tokens = 321,
                           .resumed_rows = 3,
                           .canaries_picked = 1200,
                           .canaries_checked = 1199,
                           .run_rows = 7,
                           .run_tokens = 7000,
                           .active_ns = 70 * S};
    struct hr_buf b = {0};
    hr_summary_format(&s, &b);
    assert_string_equal(
        hr_buf_cstr(&b),
        "demo: stopped at the cap, 10 of 24 rows, 2 rejected\n"
        "  tokens     1,234 prompt, 10,150 completion, 1015.0 a row\n"
        "  length     4/10 rows ended in length (max_tokens or the context), 3 of them repetitive\n"
        "  this run   7 rows, 7,000 tokens in 1m10s, 100.0 tok/s\n"
        "  resumed    321 tokens of 3 unfinished rows\n"
        "  cap        10,000 tokens, 150 above it (1.50 %), 12 rows over the cap\n"
        "  canaries   1,199 of 1,200 picked rows computed again, 0 differ, 1 not checked: the run was stopped before\n"
        "  rejects    2, see prepared/demo/rejects.jsonl\n"
        "  files      prepared/demo/raw_responses.jsonl");
    hr_buf_clear(&b);
    s.canaries_failed = 2;
    s.canaries_checked = 1200;
    hr_summary_format(&s, &b);
    assert_non_null(strstr(hr_buf_cstr(&b), "1,200 of 1,200 picked rows computed again, 2 DIFFER: see run.log\n"));
    hr_buf_finish(&b);
}

static void one_of_a_thing_is_no_plural_and_nothing_is_not_told(void **state) {
    struct hr_summary s = {.dataset = "d", .how = "done", .dir = "o/d"};
    struct hr_buf b = {0};
    hr_summary_format(&s, &b);
    assert_string_equal(hr_buf_cstr(&b), "d: done, 0 of 0 rows, 0 rejected\n"
                                         "  tokens     0 prompt, 0 completion\n"
                                         "  this run   0 rows, 0 tokens in 0.0s\n"
                                         "  files      o/d/raw_responses.jsonl");
    s = (struct hr_summary){.dataset = "d",
                            .how = "done",
                            .dir = "o/d",
                            .rows_done = 1,
                            .rows_total = 1,
                            .rows_length = 1,
                            .rejects = 1200,
                            .rejects_named = 5,
                            .over_cap = 1,
                            .cap_tokens = 1,
                            .resumed_tokens = 1,
                            .resumed_rows = 1,
                            .canaries_picked = 1,
                            .canaries_checked = 1,
                            .run_rows = 1,
                            .run_tokens = 1};
    hr_buf_clear(&b);
    hr_summary_format(&s, &b);
    assert_string_equal(hr_buf_cstr(&b), "d: done, 1 of 1 row, 1,200 rejected\n"
                                         "  tokens     0 prompt, 0 completion, 0.0 a row\n"
                                         "  length     1/1 row ended in length (max_tokens or the context)\n"
                                         "  this run   1 row, 1 token in 0.0s\n"
                                         "  resumed    1 token of 1 unfinished row\n"
                                         "  cap        1 token, 1 below it (100.00 %), 1 row over the cap\n"
                                         "  canaries   1 of 1 picked row computed again, 0 differ\n"
                                         "  rejects    5 named above, and 1,195 more, see o/d/rejects.jsonl\n"
                                         "  files      o/d/raw_responses.jsonl");
    s.rows_total = -1, s.rejects = 5, s.rows_done = s.rows_length = 20000, s.dir = "a\nb";
    hr_buf_clear(&b);
    hr_summary_format(&s, &b);
    assert_non_null(strstr(hr_buf_cstr(&b), "d: done, 20,000 rows, 5 rejected\n"));
    assert_non_null(strstr(hr_buf_cstr(&b), "  length     20,000/20,000 rows ended"));
    assert_non_null(strstr(hr_buf_cstr(&b), "  rejects    5 named above; see a\\nb/rejects.jsonl\n"));
    assert_non_null(strstr(hr_buf_cstr(&b), "  files      a\\nb/raw_responses.jsonl"));
    hr_buf_finish(&b);
}

/* ---- loop ---- */

struct trial {
    struct hr_loop *loop;
    struct hr_wake *wake;
    struct hr_timer *timer;
    int order[64], n, n_ticks, n_rings, n_signals, in_work, overlapped;
};
struct step {
    struct trial *t;
    int i;
};

static void serial_work(void *arg) {
    struct step *s = arg;
    if (__atomic_add_fetch(&s->t->in_work, 1, __ATOMIC_SEQ_CST) > 1)
        __atomic_store_n(&s->t->overlapped, 1, __ATOMIC_SEQ_CST);
    usleep((useconds_t)(s->i % 3) * 1000);
    __atomic_sub_fetch(&s->t->in_work, 1, __ATOMIC_SEQ_CST);
}

static void serial_done(void *arg) {
    struct step *s = arg;
    if (s->t->timer) hr_timer_set(s->t->timer, 5);
    s->t->order[s->t->n++] = s->i;
    if (hr_loop_pending(s->t->loop) == 0) hr_loop_stop(s->t->loop);
}

static void serial_items_never_overlap_and_keep_their_order(void **state) {
    struct trial t = {0};
    struct step steps[50];
    assert_int_equal(hr_loop_create(&t.loop, NULL), HR_OK);
    for (int i = 0; i < 50; i++) {
        steps[i] = (struct step){&t, i};
        hr_loop_serial(t.loop, serial_work, serial_done, &steps[i]);
    }
    assert_int_equal(hr_loop_serial_pending(t.loop), 50);
    hr_loop_run(t.loop);
    assert_int_equal(hr_loop_serial_pending(t.loop), 0);
    assert_false(t.overlapped);
    for (int i = 0; i < 50; i++) assert_int_equal(t.order[i], i);
    hr_loop_destroy(&t.loop);
    assert_null(t.loop);
}

static void *ring_often(void *arg) {
    struct trial *t = arg;
    for (int i = 0; i < 1000; i++) hr_wake_ring(t->wake);
    return NULL;
}

static void on_tick(void *arg) {
    struct trial *t = arg;
    if (++t->n_ticks == 1) raise(SIGHUP);
    if (t->n_ticks == 3) hr_timer_set(t->timer, 0);
}

static void on_ring(void *arg) {
    struct trial *t = arg;
    t->n_rings++;
}

static void on_signal(void *arg, int signum) {
    struct trial *t = arg;
    t->n_signals += signum == SIGHUP;
}

static void destroying_the_loop_waits_for_its_work(void **state) {
    struct trial t = {0};
    struct step steps[8];
    assert_int_equal(hr_loop_create(&t.loop, NULL), HR_OK);
    assert_int_equal(hr_loop_timer(t.loop, 1, on_tick, &t, &t.timer, NULL), HR_OK);
    for (int i = 0; i < 8; i++) {
        steps[i] = (struct step){&t, i};
        if (i % 2)
            hr_loop_work(t.loop, serial_work, serial_done, &steps[i]);
        else
            hr_loop_serial(t.loop, serial_work, serial_done, &steps[i]);
    }
    hr_loop_destroy(&t.loop);
    assert_int_equal(t.n, 8);
    assert_int_equal(t.n_ticks, 0); /* what a timer would touch may be gone */
}

static void stop_all(void *arg) {
    struct trial *t = arg;
    if (t->n_ticks >= 3 && t->n_rings > 0) hr_loop_stop(t->loop);
}

static void timers_signals_and_bells_call_the_loop(void **state) {
    struct trial t = {0};
    pthread_t thread;
    struct hr_timer *end;
    assert_int_equal(hr_loop_create(&t.loop, NULL), HR_OK);
    assert_int_equal(hr_loop_wake(t.loop, on_ring, &t, &t.wake, NULL), HR_OK);
    assert_int_equal(hr_loop_timer(t.loop, 1, on_tick, &t, &t.timer, NULL), HR_OK);
    assert_int_equal(hr_loop_timer(t.loop, 30, stop_all, &t, &end, NULL), HR_OK);
    assert_int_equal(hr_loop_signal(t.loop, SIGHUP, on_signal, &t, NULL), HR_OK);
    assert_int_equal(pthread_create(&thread, NULL, ring_often, &t), 0);
    hr_loop_run(t.loop);
    pthread_join(thread, NULL);
    assert_int_equal(t.n_ticks, 3);
    assert_int_equal(t.n_signals, 1);
    assert_true(t.n_rings >= 1 && t.n_rings <= 1000);
    hr_loop_destroy(&t.loop);
}

/* ---- run.log ---- */

static void run_log_has_whole_lines_behind_its_first_record(void **state) {
    char dir[] = "/tmp/headrace-test-XXXXXX", path[64], text[4096] = "";
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/run.log", dir);
    FILE *f = fopen(path, "w");
    fputs("torn by a ki", f);
    fclose(f);
    struct hr_runlog *log = hr_runlog_create();
    hr_runlog_add(log, dir, "{\"version\":\"1\"}");
    hr_log_set_level(HR_LOG_WARN);
    hr_info("not said");
    hr_log_set_level(HR_LOG_INFO);
    hr_info("said %d", 7);
    hr_progress_record(&half_way);
    hr_runlog_destroy(&log);
    assert_null(log);
    hr_info("after the run");
    f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    assert_memory_equal(text, "torn by a ki\n{\"version\":\"1\"}\n2", 30);
    assert_non_null(strstr(text, "Z info said 7\n"));
    assert_non_null(strstr(text, "Z info Decode batch, #running-req: 72,"));
    assert_null(strstr(text, "not said"));
    assert_null(strstr(text, "after the run"));
    unlink(path);
    rmdir(dir);
}

static void a_run_log_that_cannot_be_opened_or_written_fails_nothing(void **state) {
    struct hr_runlog *log = hr_runlog_create();
    hr_runlog_add(log, "/nonexistent/folder", "{}");
    hr_info("still here");
    hr_runlog_destroy(&log);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_periodic_line_begins_with_the_fields_people_grep_for),
        cmocka_unit_test(a_phase_takes_the_place_of_the_numbers),
        cmocka_unit_test(the_live_line_fits_any_width_and_keeps_the_rows),
        cmocka_unit_test(a_long_name_is_cut_between_characters),
        cmocka_unit_test(the_rate_looks_back_one_window_and_falls_when_nothing_comes),
        cmocka_unit_test(the_end_is_estimated_from_the_mean_length_and_the_cap),
        cmocka_unit_test(durations_and_counts_read_like_words),
        cmocka_unit_test(the_summary_names_truncated_rows_and_the_distance_from_the_cap),
        cmocka_unit_test(one_of_a_thing_is_no_plural_and_nothing_is_not_told),
        cmocka_unit_test(serial_items_never_overlap_and_keep_their_order),
        cmocka_unit_test(destroying_the_loop_waits_for_its_work),
        cmocka_unit_test(timers_signals_and_bells_call_the_loop),
        cmocka_unit_test(run_log_has_whole_lines_behind_its_first_record),
        cmocka_unit_test(a_run_log_that_cannot_be_opened_or_written_fails_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

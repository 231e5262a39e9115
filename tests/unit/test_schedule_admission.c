/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: whom a plan admits, and when: the order of the lines, what is kept free for those that run, and what
 * is known of lengths. Small jobs with an expected answer each; what holds for all jobs is in
 * test_schedule_audit.c and test_schedule_schedule.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/schedule.h"

enum { PAGE = HR_KV_PAGE_TOKENS, N_TOKENS = 200 * PAGE, N_ROWS_MAX = 64 };

struct row {
    struct hr_seq seq;
    int32_t tokens[N_TOKENS];
};

static struct row rows[N_ROWS_MAX];

/* Row i of n_prompt tokens, of which the first n_common are those of all others. */
static struct hr_seq *row(int i, int n_common, int n_prompt, int n_max) {
    struct row *r = &rows[i];
    for (int k = 0; k < N_TOKENS; k++) r->tokens[k] = k < n_common ? k : 10000 * (i + 1) + k;
    r->seq = (struct hr_seq){.tokens = r->tokens, .n_prompt = n_prompt, .n_tokens = n_prompt, .n_max = n_max};
    return &r->seq;
}

static struct hr_sched *create(struct hr_sched_opts o) {
    if (!o.max_running) o.max_running = N_ROWS_MAX;
    if (!o.step_tokens) o.step_tokens = 4096;
    if (!o.decode_steps) o.decode_steps = 1;
    if (!o.window) o.window = 256;
    if (!o.passes_max) o.passes_max = 64;
    return hr_sched_create(&o);
}

static void submit(struct hr_sched *s, struct hr_seq *seq) {
    assert_true(hr_sched_submit(s, seq));
}

/* One step; who has all its tokens ends. Returns the pieces that there were; `first`, when not NULL, is the first. */
static int step(struct hr_sched *s, struct hr_seq **first) {
    const struct hr_sched_piece *p;
    const struct hr_kv_order *o;
    struct hr_seq *sampled[N_ROWS_MAX];
    int n_before, n = hr_sched_plan(s, &p), n_sampled = 0;
    hr_sched_take_orders(s, &o, &n_before);
    if (first) *first = n > 0 ? p[0].seq : NULL;
    for (int i = 0; i < n; i++)
        if (p[i].samples) sampled[n_sampled++] = p[i].seq;
    hr_sched_commit(s);
    hr_sched_check(s);
    for (int i = 0; i < n_sampled; i++)
        if (++sampled[i]->n_tokens == sampled[i]->n_max)
            hr_sched_finish(s, sampled[i], sampled[i]->n_max - sampled[i]->n_prompt);
    return n;
}

/* What is not over is given up. */
static void destroy(struct hr_sched **s, int n_rows) {
    for (int i = 0; i < n_rows; i++)
        if (rows[i].seq.kv.pages) hr_sched_finish(*s, &rows[i].seq, -1);
    hr_sched_destroy(s);
}

/* ---- lines -------------------------------------------------------------------------------------- */

static void the_row_with_the_most_cached_starts_first(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 40, .max_running = 1});
    struct hr_seq *first;
    static const int n_common[4] = {5 * PAGE, 0, PAGE, 3 * PAGE}, then[4] = {0, 3, 2, 1};
    submit(s, row(0, n_common[0], 5 * PAGE, 5 * PAGE + 1));
    step(s, NULL);
    for (int i = 1; i < 4; i++) submit(s, row(i, n_common[i], 5 * PAGE, 5 * PAGE + 1));
    for (int i = 1; i < 4; i++) {
        step(s, &first);
        assert_ptr_equal(first, &rows[then[i]].seq);
    }
    destroy(&s, 4);
}

static void rows_behind_the_window_wait(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 40, .max_running = 1, .window = 2});
    struct hr_seq *first;
    submit(s, row(0, 5 * PAGE, 5 * PAGE, 5 * PAGE + 1));
    step(s, NULL);
    for (int i = 1; i < 4; i++) submit(s, row(i, i == 3 ? 4 * PAGE : 0, 5 * PAGE, 5 * PAGE + 1));
    static const int then[4] = {0, 1, 3, 2}; /* the third has the most cached, but two stand before it */
    for (int i = 1; i < 4; i++) {
        step(s, &first);
        assert_ptr_equal(first, &rows[then[i]].seq);
    }
    destroy(&s, 4);
}

/* Four run; the oldest needs the whole pool for a while. When it has ended the others come back, oldest first,
 * although the youngest has the most cached, and before one that has waited all the time. */
static void who_was_preempted_comes_back_in_the_order_of_age(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 20, .n_host_pages = 40, .max_running = 4});
    const struct hr_sched_piece *p;
    for (int i = 0; i < 4; i++) submit(s, row(i, 0, 1 + i * 2 * PAGE, 20 * PAGE));
    assert_int_equal(step(s, NULL), 4);
    submit(s, row(4, 0, 4, 5));
    rows[0].seq.n_tokens = 20 * PAGE - 1;
    assert_int_equal(step(s, NULL), 1); /* and it ends */
    for (int i = 1; i < 4; i++) assert_true(rows[i].seq.started && !rows[i].seq.running);
    assert_int_equal(hr_sched_plan(s, &p), 4);
    for (int i = 0; i < 4; i++) assert_ptr_equal(p[i].seq, &rows[i + 1].seq);
    hr_sched_commit(s);
    destroy(&s, 5);
}

/* Row 2 is preempted in its prompt because row 0 needs the pool; row 1 sees to it that all of that prompt is cached
 * when it comes back, with a short prompt of its own and the same tokens behind it. */
static void what_is_found_on_coming_back_counts_as_cached(void **state) {
    enum { N_PROMPT = 62 * PAGE };
    struct hr_sched *s = create((struct hr_sched_opts){
        .n_pages = 68, .n_host_pages = 68, .max_running = 4, .step_tokens = 400});
    struct hr_sched_counts c;
    submit(s, row(0, 0, 4, 50 * PAGE));
    submit(s, row(1, N_PROMPT, 2 * PAGE, 66 * PAGE));
    step(s, NULL);
    row(2, N_PROMPT, N_PROMPT, N_PROMPT + 2)->group = 1;
    submit(s, &rows[2].seq);
    step(s, NULL);
    const int n_first = rows[2].seq.n_computed;
    assert_in_range(n_first, 20 * PAGE, 30 * PAGE);
    rows[0].seq.n_tokens = 41 * PAGE;
    for (int i = 0; i < 3; i++) step(s, NULL);
    assert_true(rows[2].seq.started && !rows[2].seq.running);
    hr_sched_finish(s, &rows[0].seq, -1);
    rows[1].seq.n_tokens = 63 * PAGE;
    for (int i = 0; i < 10 && rows[2].seq.kv.pages; i++) step(s, NULL);
    hr_sched_counts(s, &c);
    assert_int_equal(c.groups[1].preemptions, 1);
    assert_in_range(c.groups[1].prefill_tokens, n_first - 2 * PAGE, n_first); /* and the last page, or less */
    assert_int_equal(c.groups[1].cached_tokens + c.groups[1].prefill_tokens, N_PROMPT);
    destroy(&s, 3);
}

static void waiting_rows_are_looked_at_every_so_many_steps_and_when_one_ends(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 40, .decode_steps = 5});
    submit(s, row(0, 0, 4, 100));
    submit(s, row(1, 0, 4, 100));
    assert_int_equal(step(s, NULL), 2);
    submit(s, row(2, 0, 4, 100));
    for (int i = 1; i < 5; i++) assert_int_equal(step(s, NULL), 2);
    assert_int_equal(step(s, NULL), 3);
    submit(s, row(3, 0, 4, 100));
    assert_int_equal(step(s, NULL), 3);
    hr_sched_finish(s, &rows[0].seq, 10);
    assert_int_equal(step(s, NULL), 3); /* the new one takes its place at once */
    assert_true(rows[3].seq.running);
    destroy(&s, 4);
}

static void who_waits_for_pages_is_looked_at_in_every_step(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 40, .step_tokens = 64, .decode_steps = 100});
    for (int i = 0; i < 2; i++) submit(s, row(i, 8 * PAGE, 9 * PAGE, 20 * PAGE));
    for (int i = 0; i < 4; i++) step(s, NULL); /* two for the prefix */
    assert_true(rows[1].seq.running);
    destroy(&s, 2);
}

static void groups_of_which_no_work_is_known_share_alike(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 40, .max_running = 6});
    struct hr_sched_counts c;
    for (int i = 0; i < 16; i++) {
        row(i, 0, 4, 10)->group = i / 8;
        submit(s, &rows[i].seq);
    }
    step(s, NULL);
    hr_sched_counts(s, &c);
    assert_true(c.groups[0].n_running == 3 && c.groups[1].n_running == 3);
    destroy(&s, 16);
}

/* Of the first group, which has by far the most to do, one runs and the other waits for what that computes. */
static void a_group_that_waits_for_pages_does_not_hold_the_others(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 100, .step_tokens = 64});
    hr_sched_set_work(s, 0, 1e6);
    for (int i = 0; i < 2; i++) submit(s, row(i, 40 * PAGE, 50 * PAGE, 50 * PAGE + 1));
    for (int i = 2; i < 5; i++) {
        row(i, 0, 4, 5)->group = 1;
        submit(s, &rows[i].seq);
    }
    assert_int_equal(step(s, NULL), 4);
    assert_true(rows[0].seq.running && !rows[1].seq.started && rows[4].seq.started);
    destroy(&s, 5);
}

/* Row 0 computes a prefix for rows 1 to 20, and row 21 needs nearly the whole pool: it waits for that, they only
 * for the prefix. */
static void rows_behind_a_prefix_start_with_it_whoever_else_waits(void **state) {
    enum { N = 22, N_COMMON = 40 * PAGE };
    for (int has_large = 0; has_large < 2; has_large++) {
        struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 200, .step_tokens = 256});
        submit(s, row(0, N_COMMON, N_COMMON + PAGE, N_COMMON + 60 * PAGE));
        for (int i = 1; i < N - 1; i++) submit(s, row(i, N_COMMON, N_COMMON + PAGE, N_COMMON + 3 * PAGE));
        if (has_large) submit(s, row(N - 1, 0, 180 * PAGE, 180 * PAGE + 20));
        for (int i = 0; i < 5; i++) step(s, NULL); /* three for the prefix */
        for (int i = 0; i < N - 1; i++) assert_true(rows[i].seq.running);
        if (has_large) assert_false(rows[N - 1].seq.started);
        destroy(&s, N - 1 + has_large);
    }
}

/* Rows 0 to 7 decode and leave little of a step; row 8 has a long prompt and row 9 the same: it waits for long. */
static void short_rows_do_not_wait_behind_one_that_waits_for_pages(void **state) {
    enum { N_SHORT = 50 };
    struct hr_sched *s = create((struct hr_sched_opts){
        .n_pages = 4096, .max_running = 24, .step_tokens = 24, .passes_max = 4});
    for (int i = 0; i < 8; i++) submit(s, row(i, 0, 4, N_TOKENS));
    for (int i = 8; i < 10; i++) submit(s, row(i, 150 * PAGE, 150 * PAGE, N_TOKENS));
    for (int i = 10; i < 10 + N_SHORT; i++) submit(s, row(i, 0, 4, 6));
    for (int i = 0; i < 40; i++) step(s, NULL);
    for (int i = 10; i < 10 + N_SHORT; i++) assert_null(rows[i].seq.kv.pages); /* all are over */
    assert_false(rows[9].seq.started);
    assert_int_equal(rows[9].seq.n_passed, 0); /* they have taken nothing from it */
    for (int i = 0; i < 400 && !rows[9].seq.started; i++) step(s, NULL);
    assert_true(rows[9].seq.started);
    destroy(&s, 10 + N_SHORT);
}

static void a_cold_row_that_runs_alone_makes_room(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 100, .n_host_pages = 200});
    row(0, 0, 60 * PAGE, 90 * PAGE)->cold = true;
    submit(s, &rows[0].seq);
    step(s, NULL);
    assert_true(rows[0].seq.running);
    submit(s, row(1, 0, 70 * PAGE, 70 * PAGE + 5));
    step(s, NULL);
    assert_true(rows[1].seq.running && !rows[0].seq.running);
    for (int i = 0; i < 5; i++) step(s, NULL);
    assert_true(rows[0].seq.running); /* from its beginning */
    destroy(&s, 2);
}

static void a_cold_row_that_runs_beside_others_is_waited_for(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 100, .n_host_pages = 200});
    submit(s, row(0, 0, 30 * PAGE, 50 * PAGE));
    row(1, 0, 50 * PAGE, 60 * PAGE)->cold = true;
    submit(s, &rows[1].seq);
    assert_int_equal(step(s, NULL), 2);
    submit(s, row(2, 0, 40 * PAGE, 50 * PAGE));
    assert_int_equal(step(s, NULL), 2);
    assert_true(rows[1].seq.running && !rows[2].seq.started);
    destroy(&s, 3);
}

/* ---- what is kept free -------------------------------------------------------------------------- */

/* How many of 9 rows, which may get long, run when the first 8 have a page each and the pool has n_pages. */
static int n_of_nine(int n_pages, int n_host_pages) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = n_pages, .n_host_pages = n_host_pages});
    struct hr_sched_counts c;
    for (int i = 0; i < 8; i++) {
        submit(s, row(i, 0, 4, 10 * PAGE));
        rows[i].seq.n_expected = 8; /* known to be short while they are admitted */
    }
    assert_int_equal(step(s, NULL), 8);
    for (int i = 0; i < 8; i++) rows[i].seq.n_expected = 0;
    submit(s, row(8, 0, 4, 10 * PAGE));
    step(s, NULL);
    hr_sched_counts(s, &c);
    destroy(&s, 9);
    return c.n_running;
}

static void with_a_host_tier_a_page_is_kept_for_every_four_that_run(void **state) {
    assert_int_equal(n_of_nine(10, 10), 8);
    assert_int_equal(n_of_nine(11, 11), 9);
}

/* Who was admitted has its prompt still to compute: the pages that are free are spoken for. */
static void no_more_start_than_their_prompts_have_room(void **state) {
    for (int n_host = 0; n_host <= 54; n_host += 54) {
        struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 54, .n_host_pages = n_host, .step_tokens = 64});
        struct hr_sched_counts c;
        for (int i = 0; i < 20; i++) submit(s, row(i, 0, 10 * PAGE, 10 * PAGE + 2)); /* eleven pages each */
        for (int i = 0; i < 30; i++) {
            assert_in_range(step(s, NULL), 1, 4);
            hr_sched_counts(s, &c);
            assert_int_equal(c.groups[0].preemptions, 0);
        }
        destroy(&s, 20);
    }
}

static void a_host_tier_of_half_the_pool_lets_it_be_filled(void **state) {
    assert_int_equal(n_of_nine(40, 0), 8);
    assert_int_equal(n_of_nine(40, 19), 8);
    assert_int_equal(n_of_nine(40, 20), 9);
}

static void pages_that_others_hold_need_no_room(void **state) {
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 12, .n_host_pages = 12});
    submit(s, row(0, 8 * PAGE, 8 * PAGE + 4, 8 * PAGE + 8));
    submit(s, row(1, 8 * PAGE, 8 * PAGE + 4, 8 * PAGE + 8));
    assert_int_equal(step(s, NULL), 1);
    assert_int_equal(step(s, NULL), 2); /* three pages are free, and it needs one of its own */
    destroy(&s, 2);
}

/* Three rows of ten pages end within sixteen steps; a long one that needs more than the ten that are free may start. */
static void what_ends_soon_gives_its_pages_back(void **state) {
    for (int ends_soon = 0; ends_soon < 2; ends_soon++) {
        struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 40});
        for (int i = 0; i < 3; i++) {
            row(i, 0, 4, 400)->n_expected = 156;
            rows[i].seq.n_tokens = 150; /* resumed */
            submit(s, &rows[i].seq);
        }
        assert_int_equal(step(s, NULL), 3);
        for (int i = 0; i < 3 && !ends_soon; i++) rows[i].seq.n_expected = 300;
        row(3, 0, 4, 600)->n_expected = 590;
        submit(s, &rows[3].seq);
        assert_int_equal(step(s, NULL), 3 + ends_soon);
        destroy(&s, 4);
    }
}

/* What the first plan of a job is told of lengths. */
struct lengths_known {
    int prior;              /* hr_sched_opts.expected */
    int n_finished;         /* rows finished before, with ... */
    int completion[2];      /* ... so many tokens in turn */
    int expected[2], n_max; /* of each row, in turn */
};

/* How many of 60 rows of one page it admits to a pool of 64 without a host tier. */
static int n_admitted(struct lengths_known k) {
    enum { N = 60 };
    struct hr_sched *s = create((struct hr_sched_opts){.n_pages = 64, .expected = {k.prior}});
    struct hr_sched_counts c;
    const struct hr_sched_piece *p;
    for (int i = 0; i < k.n_finished; i++) {
        submit(s, row(0, 0, 4, 1000));
        hr_sched_finish(s, &rows[0].seq, k.completion[i % 2]);
    }
    for (int i = 0; i < N; i++) {
        row(i, 0, 4, k.n_max ? k.n_max : 1000)->n_expected = k.expected[i % 2];
        submit(s, &rows[i].seq);
    }
    hr_sched_plan(s, &p);
    hr_sched_counts(s, &c);
    hr_sched_commit(s);
    destroy(&s, N);
    return c.n_running;
}

static void without_a_host_tier_what_is_known_of_lengths_decides(void **state) {
    const int n_nothing_known = n_admitted((struct lengths_known){0});
    assert_in_range(n_nothing_known, 4, 30);
    assert_int_equal(n_admitted((struct lengths_known){.n_max = 14}), 60); /* none can need a second page */
    assert_int_equal(n_admitted((struct lengths_known){.prior = 8}), 60);
    assert_int_equal(n_admitted((struct lengths_known){.prior = 3000}), 3); /* of 17 pages in the time looked at */
    assert_int_equal(n_admitted((struct lengths_known){.expected = {8, 8}}), 60);
    assert_int_equal(n_admitted((struct lengths_known){.expected = {900, 900}}), 3);
    assert_int_equal(n_admitted((struct lengths_known){.n_finished = 8, .completion = {8, 8}}), 60);
    assert_int_equal(n_admitted((struct lengths_known){.n_finished = 8, .completion = {900, 900}}), 3);
    assert_int_equal(n_admitted((struct lengths_known){.n_finished = 8, .completion = {0, 0}}), 60);
    /* Those that failed tell nothing. */
    assert_int_equal(n_admitted((struct lengths_known){.n_finished = 8, .completion = {-1, -1}}), n_nothing_known);
    /* Half of them long: 8.5 pages a row would let 7 in, and the deviation keeps one out. */
    assert_int_equal(n_admitted((struct lengths_known){.n_finished = 8, .completion = {8, 900}}), 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_row_with_the_most_cached_starts_first),
        cmocka_unit_test(rows_behind_the_window_wait),
        cmocka_unit_test(who_was_preempted_comes_back_in_the_order_of_age),
        cmocka_unit_test(what_is_found_on_coming_back_counts_as_cached),
        cmocka_unit_test(waiting_rows_are_looked_at_every_so_many_steps_and_when_one_ends),
        cmocka_unit_test(who_waits_for_pages_is_looked_at_in_every_step),
        cmocka_unit_test(groups_of_which_no_work_is_known_share_alike),
        cmocka_unit_test(a_group_that_waits_for_pages_does_not_hold_the_others),
        cmocka_unit_test(rows_behind_a_prefix_start_with_it_whoever_else_waits),
        cmocka_unit_test(short_rows_do_not_wait_behind_one_that_waits_for_pages),
        cmocka_unit_test(a_cold_row_that_runs_alone_makes_room),
        cmocka_unit_test(a_cold_row_that_runs_beside_others_is_waited_for),
        cmocka_unit_test(with_a_host_tier_a_page_is_kept_for_every_four_that_run),
        cmocka_unit_test(no_more_start_than_their_prompts_have_room),
        cmocka_unit_test(a_host_tier_of_half_the_pool_lets_it_be_filled),
        cmocka_unit_test(pages_that_others_hold_need_no_room),
        cmocka_unit_test(what_ends_soon_gives_its_pages_back),
        cmocka_unit_test(without_a_host_tier_what_is_known_of_lengths_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

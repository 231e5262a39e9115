/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: a random job driven to its end must finish every sequence once, whatever the pool's size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "schedule/schedule.h"

#define N_SEQS 200

struct job {
    struct hr_seq seqs[N_SEQS];
    int target[N_SEQS]; /* known tokens at the end */
    int n_finished, next;
    uint64_t seed, counter;
};

static int draw(struct job *j, int lo, int hi) {
    return lo + (int)(hr_rng_uniform(j->seed, 1, j->counter++) * (hi - lo + 1));
}

static void fill(struct job *j, int n_max_tokens) {
    for (int i = 0; i < N_SEQS; i++) {
        int n_prompt = draw(j, 1, n_max_tokens / 2), n_max = draw(j, n_prompt + 1, n_max_tokens);
        j->target[i] = draw(j, n_prompt + 1, n_max);
        int known = draw(j, 0, 3) ? n_prompt : draw(j, n_prompt, j->target[i] - 1); /* some are resumed */
        j->seqs[i] = (struct hr_seq){
            .user = j, .group = i % 3, .n_prompt = n_prompt, .n_tokens = known, .n_max = n_max};
    }
}

/* No page twice, each sequence's rows follow its pages, no more rows than the budget. */
static void check_plan(const struct hr_sched_piece *p, int n, const struct hr_sched_opts *o) {
    bool *used = calloc((size_t)o->n_pages, sizeof *used);
    int rows = 0;
    for (int i = 0; i < n; i++) {
        const struct hr_seq *s = p[i].seq;
        rows += p[i].n_rows;
        assert_true(p[i].n_rows > 0);
        assert_int_equal(p[i].pos0, s->n_computed);
        assert_int_equal(p[i].samples, p[i].pos0 + p[i].n_rows == s->n_tokens);
        assert_true(s->n_pages * o->page_tokens >= p[i].pos0 + p[i].n_rows);
        for (int k = 0; k < s->n_pages; k++) {
            assert_false(used[s->pages[k]]);
            used[s->pages[k]] = true;
        }
    }
    assert_true(rows <= o->step_tokens);
    free(used);
}

static void drive(int n_pages, int max_running, int step_tokens, int n_max_tokens, uint64_t seed,
                  struct hr_sched_counts *counts) {
    struct hr_sched_opts o = {.page_tokens = 16, .max_running = max_running, .step_tokens = step_tokens,
                              .scatter = seed, .n_pages = n_pages};
    struct hr_sched *s = hr_sched_create(&o);
    struct job *j = calloc(1, sizeof *j);
    j->seed = seed;
    fill(j, n_max_tokens);
    for (int n_steps = 0; j->n_finished < N_SEQS; n_steps++) {
        assert_true(n_steps < 200000);
        while (j->next < N_SEQS && draw(j, 0, 2)) {
            assert_true(hr_sched_submit(s, &j->seqs[j->next]));
            j->next++;
        }
        const struct hr_sched_piece *p;
        int n = hr_sched_plan(s, &p);
        check_plan(p, n, &o);
        struct hr_seq *sampled[64];
        int n_sampled = 0;
        for (int i = 0; i < n; i++)
            if (p[i].samples) sampled[n_sampled++] = p[i].seq;
        hr_sched_commit(s);
        for (int i = 0; i < n_sampled; i++) {
            int k = (int)(sampled[i] - j->seqs);
            if (++sampled[i]->n_tokens < j->target[k]) continue;
            hr_sched_finish(s, sampled[i], j->target[k] - sampled[i]->n_prompt);
            j->n_finished++;
        }
        hr_sched_counts(s, counts);
        assert_true(n > 0 || counts->n_waiting == 0);
    }
    assert_int_equal(counts->n_pages_used, 0);
    free(j);
    hr_sched_destroy(&s);
}

static int64_t preemptions(const struct hr_sched_counts *c) {
    return c->groups[0].preemptions + c->groups[1].preemptions + c->groups[2].preemptions;
}

static void every_sequence_ends_once_in_a_large_pool(void **state) {
    struct hr_sched_counts c;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        drive(4096, 32, 64, 400, seed, &c);
        assert_int_equal(preemptions(&c), 0);
        assert_int_equal(c.groups[1].recomputed_tokens, 0);
    }
}

static void every_sequence_ends_once_when_the_pool_is_far_too_small(void **state) {
    struct hr_sched_counts c;
    int64_t n = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        drive(25 + (int)seed, 32, 40 + (int)seed, 400, seed, &c); /* 25 pages hold one longest sequence */
        n += preemptions(&c);
    }
    assert_true(n > 0); /* or this test shows nothing */
}

static void one_sequence_at_a_time_works(void **state) {
    struct hr_sched_counts c;
    drive(25, 1, 1, 400, 3, &c);
    assert_int_equal(preemptions(&c), 0);
}

static void a_sequence_that_never_fits_is_not_taken(void **state) {
    struct hr_sched_opts o = {.page_tokens = 16, .max_running = 4, .step_tokens = 8, .n_pages = 4};
    struct hr_sched *s = hr_sched_create(&o);
    struct hr_seq too_long = {.n_prompt = 10, .n_tokens = 10, .n_max = 65}, fits = too_long;
    fits.n_max = 64;
    assert_false(hr_sched_submit(s, &too_long));
    assert_true(hr_sched_submit(s, &fits));
    hr_sched_finish(s, &fits, -1);
    hr_sched_destroy(&s);
}

static void a_long_prompt_does_not_hold_decodes_back(void **state) {
    struct hr_sched_opts o = {.page_tokens = 16, .max_running = 4, .step_tokens = 8, .n_pages = 100};
    struct hr_sched *s = hr_sched_create(&o);
    struct hr_seq a = {.n_prompt = 500, .n_tokens = 500, .n_max = 600},
                  b = {.n_prompt = 1, .n_tokens = 1, .n_max = 20};
    const struct hr_sched_piece *p;
    assert_true(hr_sched_submit(s, &a) && hr_sched_submit(s, &b));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(hr_sched_plan(s, &p), 2);
        assert_int_equal(p[0].n_rows, 7);
        assert_true(p[1].seq == &b && p[1].samples);
        hr_sched_commit(s);
        b.n_tokens++;
    }
    hr_sched_finish(s, &a, -1);
    hr_sched_finish(s, &b, 10);
    hr_sched_destroy(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_ends_once_in_a_large_pool),
        cmocka_unit_test(every_sequence_ends_once_when_the_pool_is_far_too_small),
        cmocka_unit_test(one_sequence_at_a_time_works),
        cmocka_unit_test(a_sequence_that_never_fits_is_not_taken),
        cmocka_unit_test(a_long_prompt_does_not_hold_decodes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

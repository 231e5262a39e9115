/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: random jobs driven to their end must finish every sequence once, whatever the pool's size, with
 * every position of every page as its reader expects (kv_memory.h), and nobody passed too often. Some are cold,
 * and now and then what one has computed is spoiled: only who is called suspect may still meet it.
 *
 * HEADRACE_LONG=1: ten times as many sequences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "kv_memory.h"
#include "schedule/lengths.h"
#include "schedule/schedule.h"

#define N_MAX_TOKENS 400
#define PASSES_MAX   20

struct item {
    struct hr_seq seq;
    int32_t tokens[N_MAX_TOKENS];
    int target; /* known tokens at the end */
    bool finished;
    bool tainted; /* holds pages that were spoiled */
};

struct job {
    const struct hr_kv_order *late; /* [n_late]: to be carried out before the next ones */
    int n_late;
    int64_t beside;
    struct item *items;
    int n_items, n_finished, next;
    uint64_t seed, counter;
    struct memory mem;
    struct hr_sched_opts opts;
    int64_t n_suspect, n_steps, cached, recomputed, prefill, preemptions, loads;
    double used_share; /* mean share of the pool in use by running ones while others waited */
    int64_t n_used;
};

static int draw(struct job *j, int lo, int hi) {
    return lo + (int)(hr_rng_uniform(j->seed, 1, j->counter++) * (hi - lo + 1));
}

/* A third behind a long shared prefix, a third samples of one prompt, a third alone. */
static void fill(struct job *j) {
    for (int i = 0; i < j->n_items; i++) {
        struct item *it = &j->items[i];
        int n_prompt = draw(j, 1, N_MAX_TOKENS / 2), kind = i % 3;
        for (int k = 0; k < N_MAX_TOKENS; k++) it->tokens[k] = kind == 0 && k < 90 ? 5 : draw(j, 0, 3);
        if (kind == 1 && i % 9 != 1) {
            n_prompt = j->items[i - 3].seq.n_prompt;
            memcpy(it->tokens, j->items[i - 3].tokens, (size_t)n_prompt * sizeof *it->tokens);
        }
        int n_max = draw(j, n_prompt + 1, N_MAX_TOKENS);
        it->target = draw(j, n_prompt + 1, n_max);
        bool resumed = draw(j, 0, 3) == 0;
        it->seq = (struct hr_seq){.user = it, .group = kind, .tokens = it->tokens, .n_prompt = n_prompt,
                                  .n_tokens = resumed ? draw(j, n_prompt, it->target - 1) : n_prompt,
                                  .n_max = n_max, .n_expected = i % 5 == 0 ? n_max - n_prompt : 0,
                                  .cold = draw(j, 0, 9) == 0};
    }
}

/* No more rows than the budget; contents right; then what was computed is written. */
static int compute(struct job *j, const struct hr_sched_piece *p, int n) {
    int rows = 0;
    for (int i = 0; i < n; i++) {
        const struct hr_seq *s = p[i].seq;
        rows += p[i].n_rows;
        assert_true(p[i].n_rows > 0 && s->kv.n_pages * HR_KV_PAGE_TOKENS >= p[i].pos0 + p[i].n_rows);
        assert_int_equal(p[i].pos0, s->n_computed);
        assert_int_equal(p[i].samples, p[i].pos0 + p[i].n_rows == s->n_tokens);
        assert_true(s->n_passed <= PASSES_MAX);
    }
    for (int i = 0; i < n; i++) {
        const struct hr_seq *s = p[i].seq;
        int end = p[i].pos0 + p[i].n_rows;
        if (((struct item *)s->user)->tainted) memory_taint(&j->mem, s->kv.pages, p[i].pos0, end);
        else assert_int_equal(memory_compute(&j->mem, s->tokens, s->kv.pages, p[i].pos0, end), -1);
    }
    return rows;
}

/* Copies that may run beside a step are done as late as they may be, or at any time before. */
static void obey_late(struct job *j) {
    memory_obey(&j->mem, j->late, j->n_late);
    j->n_late = 0;
}

static void obey(struct job *j, struct hr_sched *s) {
    const struct hr_kv_order *o;
    int n_before;
    obey_late(j);
    int n = hr_sched_take_orders(s, &o, &n_before);
    assert_in_range(n_before, 0, n);
    memory_obey(&j->mem, o, n_before);
    j->late = o + n_before;
    j->n_late = n - n_before;
    j->beside += j->n_late;
    if (draw(j, 0, 1)) obey_late(j);
}

static void step(struct job *j, struct hr_sched *s) {
    const struct hr_sched_piece *p;
    struct hr_sched_counts c;
    int n = hr_sched_plan(s, &p), n_sampled = 0;
    struct hr_seq *sampled[64];
    obey(j, s);
    hr_sched_counts(s, &c);
    assert_true(n > 0 || c.n_waiting == 0); /* nobody waits beside an idle machine */
    assert_true(compute(j, p, n) <= j->opts.step_tokens);
    if (c.n_waiting > 0) {
        j->used_share += (double)c.n_pages_running / j->opts.n_pages;
        j->n_used++;
    }
    for (int i = 0; i < n; i++)
        if (p[i].samples) sampled[n_sampled++] = p[i].seq;
    hr_sched_commit(s);
    for (int i = 0; i < n_sampled; i++) {
        struct item *it = sampled[i]->user;
        if (++sampled[i]->n_tokens < it->target) continue;
        assert_false(it->finished);
        it->finished = true;
        hr_sched_finish(s, sampled[i], it->target - sampled[i]->n_prompt);
        j->n_finished++;
    }
}

/* What one has computed was found wrong: from here on it is, and so is what follows from it. */
static void spoil_one(struct job *j, struct hr_sched *s) {
    const struct item *it = &j->items[draw(j, 0, j->n_items - 1)];
    if (it - j->items >= j->next || it->seq.n_tokens < HR_KV_PAGE_TOKENS) return;
    obey_late(j);
    for (int i = 0; i < j->next; i++) {
        struct item *q = &j->items[i];
        if (q->finished || q->seq.kv.n_tail == 0 || q->seq.kv.i_tail == 0) continue;
        if (memcmp(q->tokens, it->tokens, HR_KV_PAGE_TOKENS * sizeof *q->tokens) != 0) continue;
        memset(j->mem.host[q->seq.kv.host_tail], 0xff, sizeof *j->mem.host);
    }
    hr_sched_spoil(s, it->seq.tokens, it->seq.n_tokens);
    for (int i = 0; i < j->next; i++) {
        struct item *q = &j->items[i];
        if (q->finished || !q->seq.suspect) continue;
        assert_false(q->seq.cold);
        j->n_suspect++;
        if (q->seq.kv.n_nodes == 0) continue; /* waits, or computes its first page itself */
        if (memcmp(q->tokens, it->tokens, HR_KV_PAGE_TOKENS * sizeof *q->tokens) != 0) continue;
        q->tainted = true;
        memory_taint(&j->mem, q->seq.kv.pages, 0, q->seq.n_computed);
    }
}

/* A sequence that failed, running or waiting, is over at once. */
static void abort_one(struct job *j, struct hr_sched *s) {
    struct item *it = &j->items[draw(j, 0, j->n_items - 1)];
    if (it->finished || it - j->items >= j->next) return;
    it->finished = true;
    hr_sched_finish(s, &it->seq, -1);
    j->n_finished++;
}

/* spoils: in how many of a thousand steps something is spoiled. */
static void drive_spoiled(struct job *j, struct hr_sched_opts o, int n_items, uint64_t seed, int spoils) {
    *j = (struct job){.opts = o, .n_items = n_items, .seed = seed};
    j->opts.window = 30;
    j->opts.passes_max = PASSES_MAX;
    j->opts.scatter = seed;
    if (!j->opts.decode_steps) j->opts.decode_steps = 1;
    j->items = calloc((size_t)n_items, sizeof *j->items);
    memory_init(&j->mem, o.n_pages, o.n_host_pages);
    fill(j);
    struct hr_sched *s = hr_sched_create(&j->opts);
    struct hr_sched_counts c;
    for (j->n_steps = 0; j->n_finished < n_items; j->n_steps++) {
        assert_true(j->n_steps < 400LL * n_items);
        while (j->next < n_items && draw(j, 0, 2)) assert_true(hr_sched_submit(s, &j->items[j->next++].seq));
        step(j, s);
        if (draw(j, 0, 199) == 0) abort_one(j, s);
        if (draw(j, 0, 999) < spoils) spoil_one(j, s);
        /* Who comes back from a preemption computes what it has lost. */
        for (int i = 0; i < j->next; i++) j->items[i].tainted &= j->items[i].seq.running;
        hr_sched_check(s);
    }
    obey(j, s);
    obey_late(j);
    hr_sched_check(s);
    hr_sched_counts(s, &c);
    assert_int_equal(c.n_pages_running, 0);
    assert_int_equal(c.kv.n_host_tails, 0);
    for (int g = 0; g < 3; g++) {
        j->cached += c.groups[g].cached_tokens;
        j->prefill += c.groups[g].prefill_tokens;
        j->recomputed += c.groups[g].recomputed_tokens;
        j->preemptions += c.groups[g].preemptions;
    }
    j->loads = c.kv.loads;
    printf("# %d pages, %d host, %d running: %lld steps, %.2f of the pool used, %lld prefilled, %lld cached, %lld "
           "recomputed, %lld preempted, %lld loads\n",
           o.n_pages, o.n_host_pages, o.max_running, (long long)j->n_steps,
           j->n_used ? j->used_share / (double)j->n_used : 0, (long long)j->prefill, (long long)j->cached,
           (long long)j->recomputed, (long long)j->preemptions, (long long)j->loads);
    hr_sched_destroy(&s);
    memory_finish(&j->mem);
    free(j->items);
}

static void drive(struct job *j, struct hr_sched_opts o, int n_items, uint64_t seed) {
    drive_spoiled(j, o, n_items, seed, 0);
}

static int size(int n) {
    return getenv("HEADRACE_LONG") ? 10 * n : n;
}

static void every_sequence_ends_once_in_a_large_pool(void **state) {
    struct job j;
    drive(&j, (struct hr_sched_opts){.n_pages = 4096, .max_running = 32, .step_tokens = 64}, size(300), 1);
    assert_true(j.preemptions == 0 && j.recomputed == 0 && j.cached > 0);
}

static void every_sequence_ends_once_when_the_pool_is_far_too_small(void **state) {
    struct job j;
    int64_t n = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) { /* 25 pages hold one longest sequence */
        drive(&j, (struct hr_sched_opts){.n_pages = 25 + 3 * (int)seed, .max_running = 32,
                                         .step_tokens = 40 + (int)seed, .decode_steps = 1 + (int)seed % 4},
              size(310), seed);
        n += j.preemptions;
    }
    assert_true(n > 0);
}

static void with_a_host_tier_nothing_is_computed_twice(void **state) {
    struct job j;
    int64_t n = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        drive(&j, (struct hr_sched_opts){.n_pages = 60, .n_host_pages = 2000, .max_running = 32,
                                         .step_tokens = 48},
              size(310), seed);
        assert_int_equal(j.recomputed, 0);
        assert_true(j.used_share / (double)j.n_used > 0.85);
        assert_true(j.beside > j.loads); /* most saves need not be waited for */
        n += j.preemptions;
    }
    assert_true(n > 0);
}

static void a_host_tier_that_is_too_small_loses_nothing_but_time(void **state) {
    struct job j;
    for (uint64_t seed = 1; seed <= 6; seed++)
        drive(&j, (struct hr_sched_opts){.n_pages = 40, .n_host_pages = 12 * (int)seed, .max_running = 24,
                                         .step_tokens = 32},
              size(100), seed);
}

/* What runs has copies as well; they must not take the room of those of what was preempted. */
static void a_host_tier_smaller_than_the_pool_is_worth_having(void **state) {
    static const int n_host[] = {0, 40, 60, 120, 240};
    int64_t n_steps[5] = {0};
    for (int i = 0; i < 5; i++) {
        struct job j;
        int64_t recomputed = 0, prefill = 0;
        for (uint64_t seed = 1; seed <= 2; seed++) {
            drive(&j, (struct hr_sched_opts){.n_pages = 120, .n_host_pages = n_host[i], .max_running = 32,
                                             .step_tokens = 48}, 310, seed);
            recomputed += j.recomputed;
            prefill += j.prefill;
            n_steps[i] += j.n_steps;
        }
        if (i > 0) assert_true(100 * recomputed < prefill);
        if (n_host[i] >= 120) assert_int_equal(recomputed, 0);
        if (i > 0) assert_true(100 * n_steps[i] < 102 * n_steps[0]); /* none is worse than none at all */
    }
}

static void what_is_spoiled_reaches_suspects_alone(void **state) {
    struct job j;
    int64_t n_suspect = 0, n_preempted = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        drive_spoiled(&j, (struct hr_sched_opts){.n_pages = 50, .n_host_pages = seed % 2 ? 300 : 0, .max_running = 24,
                                                 .step_tokens = 48}, size(150), seed, 20);
        n_suspect += j.n_suspect;
        n_preempted += j.preemptions;
    }
    assert_true(n_suspect > 0 && n_preempted > 0);
}

/* It has lost its pages, but what it has sampled came of them. One that shares no page with them goes free. */
static void who_is_preempted_is_suspect_as_well(void **state) {
    struct hr_sched_opts o = {.max_running = 3, .step_tokens = 128, .n_pages = 8, .decode_steps = 1, .window = 8,
                              .n_host_pages = 32};
    struct hr_sched *s = hr_sched_create(&o);
    static int32_t tokens[3][128];
    struct hr_seq row[3];
    const struct hr_sched_piece *p;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 128; k++) tokens[i][k] = 100 * i + k;
        row[i] = (struct hr_seq){.tokens = tokens[i], .n_prompt = 20, .n_tokens = 20, .n_max = 128};
        assert_true(hr_sched_submit(s, &row[i]));
    }
    assert_int_equal(hr_sched_plan(s, &p), 3);
    hr_sched_commit(s);
    row[0].n_tokens = 120; /* needs the whole pool */
    assert_int_equal(hr_sched_plan(s, &p), 1);
    hr_sched_commit(s);
    hr_sched_spoil(s, row[1].tokens, 20);
    assert_true(!row[0].suspect && row[1].suspect && !row[2].suspect);
    assert_true(row[1].kv.n_tail == 0 && row[2].kv.n_tail == 4);
    for (int i = 0; i < 3; i++) hr_sched_finish(s, &row[i], -1);
    hr_sched_destroy(&s);
}

/* Cold ones come after the others, alone with the machine they run as any other, and count nowhere. */
static void a_cold_sequence_comes_last_and_is_preempted_first(void **state) {
    struct hr_sched_opts o = {.max_running = 2, .step_tokens = 128, .n_pages = 8, .decode_steps = 1, .window = 8,
                              .passes_max = 16, .n_host_pages = 32};
    struct hr_sched *s = hr_sched_create(&o);
    static int32_t tokens[4][128];
    struct hr_seq cold = {.tokens = tokens[0], .n_prompt = 40, .n_tokens = 40, .n_max = 50, .cold = true}, row[3];
    const struct hr_sched_piece *p;
    struct hr_sched_counts c;
    assert_true(hr_sched_submit(s, &cold));
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 128; k++) tokens[1 + i][k] = 100 * i + k;
        row[i] = (struct hr_seq){.tokens = tokens[1 + i], .n_prompt = 8, .n_tokens = 8, .n_max = 128};
        assert_true(hr_sched_submit(s, &row[i]));
    }
    assert_int_equal(hr_sched_plan(s, &p), 2); /* it was first in the line, but two rows run */
    assert_true(p[0].seq == &row[0] && p[1].seq == &row[1]);
    hr_sched_commit(s);
    hr_sched_finish(s, &row[0], 1);
    row[1].n_tokens++;
    assert_int_equal(hr_sched_plan(s, &p), 2); /* passed by two, an eighth of what others are */
    assert_true(p[1].seq == &cold && p[1].n_rows == 40);
    hr_sched_commit(s);
    hr_sched_check(s);
    hr_sched_counts(s, &c);
    assert_true(c.n_running == 2 && c.groups[0].n_running == 1);
    cold.n_tokens++;
    row[1].n_tokens = 100; /* needs seven of the eight pages */
    hr_sched_plan(s, &p);
    assert_true(p[0].seq == &row[1] && !cold.running && !cold.started && cold.n_computed == 0);
    hr_sched_commit(s);
    hr_sched_check(s);
    hr_sched_counts(s, &c);
    assert_int_equal(c.groups[0].preemptions, 0);
    assert_int_equal(c.groups[0].prefill_tokens, 16); /* of row 0 and row 1; row 2 has not begun */
    for (int i = 1; i < 3; i++) hr_sched_finish(s, &row[i], 1);
    assert_int_equal(hr_sched_plan(s, &p), 1);
    assert_true(p[0].seq == &cold && p[0].pos0 == 0 && p[0].n_rows == 41);
    hr_sched_finish(s, &cold, -1);
    hr_sched_destroy(&s);
}

static void what_is_left_of_a_step_goes_to_cold_ones_last(void **state) {
    struct hr_sched_opts o = {.max_running = 2, .step_tokens = 32, .n_pages = 40, .decode_steps = 1, .window = 8};
    struct hr_sched *s = hr_sched_create(&o);
    static int32_t ta[100], tb[200] = {9};
    struct hr_seq cold = {.tokens = ta, .n_prompt = 60, .n_tokens = 60, .n_max = 100, .cold = true},
                  row = {.tokens = tb, .n_prompt = 150, .n_tokens = 150, .n_max = 200};
    const struct hr_sched_piece *p;
    assert_true(hr_sched_submit(s, &cold));
    assert_int_equal(hr_sched_plan(s, &p), 1);
    assert_int_equal(p[0].n_rows, 32);
    hr_sched_commit(s);
    assert_true(hr_sched_submit(s, &row));
    assert_int_equal(hr_sched_plan(s, &p), 2);
    assert_true(p[0].seq == &row && p[0].n_rows == 31 && p[1].n_rows == 1);
    hr_sched_commit(s);
    hr_sched_finish(s, &row, -1);
    hr_sched_finish(s, &cold, -1);
    hr_sched_destroy(&s);
}

static void one_sequence_at_a_time_works(void **state) {
    struct job j;
    drive(&j, (struct hr_sched_opts){.n_pages = 25, .max_running = 1, .step_tokens = 1}, size(40), 3);
    assert_int_equal(j.preemptions, 0);
}

static void a_sequence_that_never_fits_is_not_taken(void **state) {
    struct hr_sched_opts o = {.max_running = 4, .step_tokens = 8, .n_pages = 4, .decode_steps = 1, .window = 8};
    struct hr_sched *s = hr_sched_create(&o);
    int32_t tokens[65] = {0};
    struct hr_seq too_long = {.tokens = tokens, .n_prompt = 10, .n_tokens = 10, .n_max = 65}, fits = too_long;
    fits.n_max = 64;
    assert_false(hr_sched_submit(s, &too_long));
    assert_true(hr_sched_submit(s, &fits));
    hr_sched_finish(s, &fits, -1);
    hr_sched_destroy(&s);
}

static void a_long_prompt_does_not_hold_decodes_back(void **state) {
    struct hr_sched_opts o = {.max_running = 4, .step_tokens = 8, .n_pages = 100, .decode_steps = 1, .window = 8};
    struct hr_sched *s = hr_sched_create(&o);
    static int32_t ta[600], tb[20] = {9};
    struct hr_seq a = {.tokens = ta, .n_prompt = 500, .n_tokens = 500, .n_max = 600},
                  b = {.tokens = tb, .n_prompt = 1, .n_tokens = 1, .n_max = 20};
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

static void a_short_prompt_does_not_wait_behind_a_long_one(void **state) {
    struct hr_sched_opts o = {.max_running = 4, .step_tokens = 64, .n_pages = 200, .decode_steps = 1, .window = 8};
    struct hr_sched *s = hr_sched_create(&o);
    static int32_t ta[2000], tb[60] = {9};
    struct hr_seq a = {.tokens = ta, .n_prompt = 1900, .n_tokens = 1900, .n_max = 2000},
                  b = {.tokens = tb, .n_prompt = 40, .n_tokens = 40, .n_max = 60};
    const struct hr_sched_piece *p;
    assert_true(hr_sched_submit(s, &a) && hr_sched_submit(s, &b));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hr_sched_plan(s, &p), 2);
        assert_true(p[0].n_rows >= 31);
        assert_int_equal(p[1].samples, i == 1);
        hr_sched_commit(s);
    }
    hr_sched_finish(s, &a, -1);
    hr_sched_finish(s, &b, -1);
    hr_sched_destroy(&s);
}

static void a_shared_prefix_is_computed_once_even_when_all_start_at_once(void **state) {
    enum { N = 16, N_PROMPT = 100, N_COMMON = 80 };
    struct hr_sched_opts o = {.max_running = N, .step_tokens = 64, .n_pages = 400, .decode_steps = 1, .window = 32};
    struct hr_sched *s = hr_sched_create(&o);
    static int32_t tokens[N][120];
    struct hr_seq seq[N];
    const struct hr_sched_piece *p;
    struct hr_sched_counts c;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 120; k++) tokens[i][k] = k < N_COMMON ? k : 1000 * i + k;
        seq[i] = (struct hr_seq){.tokens = tokens[i], .n_prompt = N_PROMPT, .n_tokens = N_PROMPT, .n_max = 120};
        assert_true(hr_sched_submit(s, &seq[i]));
    }
    for (int i = 0, n; i < 100; i++) {
        n = hr_sched_plan(s, &p);
        struct hr_seq *sampled[N];
        int n_sampled = 0;
        for (int k = 0; k < n; k++)
            if (p[k].samples) sampled[n_sampled++] = p[k].seq;
        hr_sched_commit(s);
        for (int k = 0; k < n_sampled; k++)
            if (++sampled[k]->n_tokens == 120) hr_sched_finish(s, sampled[k], 20);
    }
    hr_sched_counts(s, &c);
    assert_int_equal(c.n_running + c.n_waiting, 0);
    assert_int_equal(c.groups[0].prefill_tokens, N_COMMON + N * (N_PROMPT - N_COMMON));
    assert_int_equal(c.groups[0].cached_tokens, (N - 1) * N_COMMON);
    hr_sched_destroy(&s);
}

/* A sequence that fits into one page: 4 prompt tokens, then n_out. */
struct small {
    struct hr_seq seq;
    int32_t tokens[16];
    int n_out, started_at;
};

static void small_init(struct small *q, int group, int n_out, int n_expected) {
    *q = (struct small){.n_out = n_out, .started_at = -1};
    q->seq = (struct hr_seq){.user = q, .group = group, .tokens = q->tokens, .n_prompt = 4, .n_tokens = 4,
                             .n_max = 16, .n_expected = n_expected};
}

/* One step; n_of counts its pieces by group. */
static void small_step(struct hr_sched *s, int i_step, int n_of[2]) {
    const struct hr_sched_piece *p;
    struct hr_seq *sampled[64];
    int n = hr_sched_plan(s, &p), n_sampled = 0;
    for (int i = 0; i < n; i++) {
        struct small *q = p[i].seq->user;
        n_of[q->seq.group]++;
        if (q->started_at < 0) q->started_at = i_step;
        if (p[i].samples) sampled[n_sampled++] = p[i].seq;
    }
    hr_sched_commit(s);
    for (int i = 0; i < n_sampled; i++) {
        struct small *q = sampled[i]->user;
        if (++q->seq.n_tokens == 4 + q->n_out) hr_sched_finish(s, &q->seq, q->n_out);
    }
}

static void groups_run_in_proportion_to_the_work_they_have_left(void **state) {
    enum { N = 400, RUNNING = 8 };
    struct hr_sched_opts o = {.max_running = RUNNING, .step_tokens = 64, .n_pages = 100, .decode_steps = 1, .window = 8};
    struct hr_sched *s = hr_sched_create(&o);
    static struct small seqs[N];
    int left[2] = {300, 100}, last[2] = {0};
    for (int i = 0; i < N; i++) { /* the first group's rows all come first */
        small_init(&seqs[i], i >= 300, 4, 0);
        assert_true(hr_sched_submit(s, &seqs[i].seq));
    }
    for (int step = 0; left[0] + left[1] > 0; step++) {
        int n_of[2] = {0};
        for (int g = 0; g < 2; g++) hr_sched_set_work(s, g, 4 * left[g]);
        small_step(s, step, n_of);
        if (step < 100) assert_in_range(n_of[0], 5, 7); /* three slots of four */
        assert_true(left[0] + left[1] < RUNNING || n_of[0] + n_of[1] == RUNNING);
        left[0] = left[1] = 0;
        for (int i = 0; i < N; i++) {
            if (seqs[i].seq.n_tokens == 8) continue;
            left[i >= 300]++;
            last[i >= 300] = step;
        }
    }
    assert_in_range(last[0] - last[1] + 8, 0, 16); /* both end together */
    hr_sched_destroy(&s);
}

static void a_small_group_is_not_starved_by_a_large_one(void **state) {
    struct hr_sched_opts o = {.max_running = 4, .step_tokens = 64, .n_pages = 100, .decode_steps = 1, .window = 8};
    struct hr_sched *s = hr_sched_create(&o);
    static struct small seqs[60];
    int n_of[2] = {0};
    for (int i = 0; i < 60; i++) {
        small_init(&seqs[i], i == 59, 4, 0);
        assert_true(hr_sched_submit(s, &seqs[i].seq));
    }
    hr_sched_set_work(s, 0, 1e9);
    for (int i = 0; i < 100; i++) small_step(s, i, n_of);
    assert_int_equal(seqs[59].started_at, 0);
    hr_sched_destroy(&s);
}

static void the_longest_known_row_of_the_window_starts_first(void **state) {
    struct hr_sched_opts o = {.max_running = 1, .step_tokens = 64, .n_pages = 100, .decode_steps = 1, .window = 8,
                              .passes_max = 3};
    struct hr_sched *s = hr_sched_create(&o);
    static struct small seqs[6];
    int n_of[2] = {0};
    static const int expected[6] = {2, 5, 9, 7, 1, 8}; /* 8, the last, is passed over by nobody */
    for (int i = 0; i < 6; i++) {
        small_init(&seqs[i], 0, 1, expected[i]);
        assert_true(hr_sched_submit(s, &seqs[i].seq));
    }
    for (int i = 0; i < 10; i++) small_step(s, i, n_of);
    /* 9, 8, 7; by then three have passed the first one, whose turn it is; then 5 and 1. */
    static const int at[6] = {3, 4, 0, 2, 5, 1};
    for (int i = 0; i < 6; i++) assert_int_equal(seqs[i].started_at, at[i]);
    hr_sched_destroy(&s);
}

static void the_chance_to_get_further_follows_the_rows_that_have_finished(void **state) {
    struct hr_lengths l = {0};
    /* Nobody has finished: memoryless with the prior's mean. */
    assert_true(fabs(hr_lengths_survives(&l, 500, 100, 100) - exp(-1)) < 1e-12);
    for (int i = 0; i < 50; i++) hr_lengths_learn(&l, 100);
    for (int i = 0; i < 50; i++) hr_lengths_learn(&l, 1000);
    assert_true(fabs(hr_lengths_survives(&l, 0, 50, 1) - 1) < 1e-12);
    assert_true(fabs(hr_lengths_survives(&l, 0, 500, 1) - 0.5) < 1e-12);
    assert_true(fabs(hr_lengths_survives(&l, 200, 500, 1) - 1) < 1e-12);
    assert_true(fabs(hr_lengths_survives(&l, 200, 900, 1)) < 1e-12);
    /* Longer than all: half as much again. */
    assert_true(fabs(hr_lengths_survives(&l, 2000, 1001, 1) - exp(-1)) < 1e-12);
    for (int now = 0, before = 1; now < 100000; now += 97) {
        double p = hr_lengths_survives(&l, now, now / 3, 1);
        assert_true(p >= 0 && p <= before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_ends_once_in_a_large_pool),
        cmocka_unit_test(every_sequence_ends_once_when_the_pool_is_far_too_small),
        cmocka_unit_test(with_a_host_tier_nothing_is_computed_twice),
        cmocka_unit_test(a_host_tier_that_is_too_small_loses_nothing_but_time),
        cmocka_unit_test(a_host_tier_smaller_than_the_pool_is_worth_having),
        cmocka_unit_test(what_is_spoiled_reaches_suspects_alone),
        cmocka_unit_test(who_is_preempted_is_suspect_as_well),
        cmocka_unit_test(a_cold_sequence_comes_last_and_is_preempted_first),
        cmocka_unit_test(what_is_left_of_a_step_goes_to_cold_ones_last),
        cmocka_unit_test(one_sequence_at_a_time_works),
        cmocka_unit_test(a_sequence_that_never_fits_is_not_taken),
        cmocka_unit_test(a_long_prompt_does_not_hold_decodes_back),
        cmocka_unit_test(a_short_prompt_does_not_wait_behind_a_long_one),
        cmocka_unit_test(a_shared_prefix_is_computed_once_even_when_all_start_at_once),
        cmocka_unit_test(groups_run_in_proportion_to_the_work_they_have_left),
        cmocka_unit_test(a_small_group_is_not_starved_by_a_large_one),
        cmocka_unit_test(the_longest_known_row_of_the_window_starts_first),
        cmocka_unit_test(the_chance_to_get_further_follows_the_rows_that_have_finished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

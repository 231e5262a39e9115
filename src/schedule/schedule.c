/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: continuous batching with chunked prefill over a pool of pages; see schedule.h.
 *
 * A step takes decode rows first (one a sequence that is up to date), then fills the token budget with
 * prompt chunks in order of admission. Admission looks at pages that are free now, less what the running
 * ones are still expected to need, by the mean completion length that the group has shown so far. A wrong
 * guess costs a preemption, never a deadlock. */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

/* Before a group has finished anything its rows are expected to be this long: near the mean of chat
 * answers; the true mean takes over with the first rows. */
#define EXPECTED_PRIOR 256

struct group {
    int64_t n_finished, sum_completion; /* of completions: they teach the expected length */
    struct hr_sched_group_counts counts;
};

struct hr_sched {
    struct hr_sched_opts opts;
    struct hr_kv_pages *pool;
    struct hr_seq *head, *tail; /* waiting */
    int n_waiting;
    struct hr_seq **running; /* owned; [max_running], oldest first */
    int n_running;
    struct hr_sched_piece *pieces; /* owned; [max_running] */
    int n_pieces;
    struct group groups[HR_SCHED_GROUPS_MAX];
};

struct hr_sched *hr_sched_create(const struct hr_sched_opts *opts) {
    HR_ASSERT(opts->max_running > 0 && opts->step_tokens >= opts->max_running);
    struct hr_sched *s = hr_xcalloc(1, sizeof *s);
    s->opts = *opts;
    s->pool = hr_kv_pages_create(opts->n_pages, opts->scatter);
    s->running = hr_xcalloc((size_t)opts->max_running, sizeof(struct hr_seq *));
    s->pieces = hr_xcalloc((size_t)opts->max_running, sizeof *s->pieces);
    return s;
}

void hr_sched_destroy(struct hr_sched **ps) {
    struct hr_sched *s = *ps;
    if (!s) return;
    hr_kv_pages_destroy(&s->pool);
    free(s->running);
    free(s->pieces);
    free(s);
    *ps = NULL;
}

static int pages_for(const struct hr_sched *s, int n_tokens) {
    return (n_tokens + s->opts.page_tokens - 1) / s->opts.page_tokens;
}

static void wait_push(struct hr_sched *s, struct hr_seq *seq, bool front) {
    seq->prev = front ? NULL : s->tail;
    seq->next = front ? s->head : NULL;
    if (seq->prev) seq->prev->next = seq;
    else s->head = seq;
    if (seq->next) seq->next->prev = seq;
    else s->tail = seq;
    s->n_waiting++;
}

static void wait_remove(struct hr_sched *s, struct hr_seq *seq) {
    if (seq->prev) seq->prev->next = seq->next;
    else s->head = seq->next;
    if (seq->next) seq->next->prev = seq->prev;
    else s->tail = seq->prev;
    seq->prev = seq->next = NULL;
    s->n_waiting--;
}

bool hr_sched_submit(struct hr_sched *s, struct hr_seq *seq) {
    HR_ASSERT(seq->n_tokens > 0 && seq->n_tokens < seq->n_max);
    HR_ASSERT(seq->group >= 0 && seq->group < HR_SCHED_GROUPS_MAX);
    if (pages_for(s, seq->n_max) > s->opts.n_pages) return false;
    seq->n_computed = seq->n_high = seq->n_pages = 0;
    seq->running = false;
    seq->pages = hr_xmalloc((size_t)pages_for(s, seq->n_max) * sizeof *seq->pages);
    wait_push(s, seq, false);
    return true;
}

/* Tokens that seq will hold when it ends, as far as one can tell. */
static int expected_tokens(const struct hr_sched *s, const struct hr_seq *seq) {
    const struct group *g = &s->groups[seq->group];
    int64_t mean = g->n_finished ? g->sum_completion / g->n_finished : EXPECTED_PRIOR;
    int64_t n = seq->n_prompt + mean;
    if (n < seq->n_tokens + 1) n = seq->n_tokens + 1; /* it has outlived the guess already */
    return n > seq->n_max ? seq->n_max : (int)n;
}

/* Pages that the running sequences are still expected to take. */
static int pages_promised(const struct hr_sched *s) {
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        int more = pages_for(s, expected_tokens(s, s->running[i])) - s->running[i]->n_pages;
        n += more > 0 ? more : 0;
    }
    return n;
}

static void admit(struct hr_sched *s) {
    int promised = pages_promised(s);
    while (s->n_running < s->opts.max_running && s->head) {
        struct hr_seq *seq = s->head;
        int need = pages_for(s, expected_tokens(s, seq));
        if (s->n_running > 0 && hr_kv_pages_n_free(s->pool) - promised < need) return;
        promised += need;
        wait_remove(s, seq);
        seq->running = true;
        s->running[s->n_running++] = seq;
    }
}

static void release_pages(struct hr_sched *s, struct hr_seq *seq) {
    hr_kv_pages_give(s->pool, seq->pages, seq->n_pages);
    seq->n_pages = 0;
    seq->n_computed = 0;
}

static void remove_running(struct hr_sched *s, struct hr_seq *seq) {
    int i = 0;
    while (s->running[i] != seq) i++;
    memmove(s->running + i, s->running + i + 1, (size_t)(--s->n_running - i) * sizeof *s->running);
    seq->running = false;
}

static void preempt(struct hr_sched *s, struct hr_seq *seq) {
    release_pages(s, seq);
    remove_running(s, seq);
    wait_push(s, seq, true);
    s->groups[seq->group].counts.preemptions++;
}

/* Pages for the first n_tokens of running[i], preempting younger ones. False when running[i] itself is
 * the youngest and there are none: it was preempted then. */
static bool take_pages(struct hr_sched *s, int i, int n_tokens) {
    struct hr_seq *seq = s->running[i];
    while (seq->n_pages < pages_for(s, n_tokens)) {
        int32_t id = hr_kv_pages_take(s->pool);
        if (id >= 0) {
            seq->pages[seq->n_pages++] = id;
            continue;
        }
        struct hr_seq *victim = s->running[s->n_running - 1];
        HR_ASSERT(victim != seq || i > 0); /* the oldest always fits: submit has checked it */
        preempt(s, victim);
        if (victim == seq) return false;
    }
    return true;
}

static void add_piece(struct hr_sched *s, int i, int n_rows) {
    struct hr_seq *seq = s->running[i];
    s->pieces[s->n_pieces++] = (struct hr_sched_piece){
        .seq = seq,
        .pos0 = seq->n_computed,
        .n_rows = n_rows,
        .samples = seq->n_computed + n_rows == seq->n_tokens,
    };
}

int hr_sched_plan(struct hr_sched *s, const struct hr_sched_piece **pieces) {
    admit(s);
    s->n_pieces = 0;
    int budget = s->opts.step_tokens;
    /* Oldest first, so that a preempted one (always the youngest) has no piece yet. */
    for (int i = 0; i < s->n_running; i++) {
        struct hr_seq *seq = s->running[i];
        int n = seq->n_tokens - seq->n_computed;
        /* Each running sequence after this one may need a decode row of the budget. */
        int room = budget - (s->n_running - 1 - i);
        if (n > room) n = room;
        HR_ASSERT(n > 0);
        if (!take_pages(s, i, seq->n_computed + n)) break;
        add_piece(s, i, n);
        budget -= n;
    }
    *pieces = s->pieces;
    return s->n_pieces;
}

void hr_sched_commit(struct hr_sched *s) {
    for (int i = 0; i < s->n_pieces; i++) {
        struct hr_seq *seq = s->pieces[i].seq;
        struct hr_sched_group_counts *counts = &s->groups[seq->group].counts;
        int end = seq->n_computed + s->pieces[i].n_rows;
        if (seq->n_computed < seq->n_high) {
            int again = (end < seq->n_high ? end : seq->n_high) - seq->n_computed;
            counts->recomputed_tokens += again;
        }
        int fresh_prompt = (end < seq->n_prompt ? end : seq->n_prompt) - seq->n_high;
        if (fresh_prompt > 0) counts->prefill_tokens += fresh_prompt;
        seq->n_computed = end;
        if (end > seq->n_high) seq->n_high = end;
    }
    s->n_pieces = 0;
    int used = 0;
    for (int i = 0; i < s->n_running; i++) used += s->running[i]->n_pages;
    HR_ASSERT(used + hr_kv_pages_n_free(s->pool) == s->opts.n_pages);
}

void hr_sched_finish(struct hr_sched *s, struct hr_seq *seq, int n_completion) {
    release_pages(s, seq);
    if (seq->running) remove_running(s, seq);
    else wait_remove(s, seq);
    free(seq->pages);
    seq->pages = NULL;
    if (n_completion >= 0) {
        s->groups[seq->group].n_finished++;
        s->groups[seq->group].sum_completion += n_completion;
    }
}

void hr_sched_counts(const struct hr_sched *s, struct hr_sched_counts *out) {
    *out = (struct hr_sched_counts){
        .n_running = s->n_running,
        .n_waiting = s->n_waiting,
        .n_pages = s->opts.n_pages,
        .n_pages_used = s->opts.n_pages - hr_kv_pages_n_free(s->pool),
    };
    for (int i = 0; i < HR_SCHED_GROUPS_MAX; i++) out->groups[i] = s->groups[i].counts;
}

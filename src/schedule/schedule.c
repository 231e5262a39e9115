/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: continuous batching with chunked prefill over cached pages; see schedule.h. */
#include "schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "schedule/lengths.h"

/* Before a group has finished anything its rows are expected to be this long: near the mean of chat
 * answers; the true lengths take over with the first rows. */
#define EXPECTED_PRIOR 256

/* A cold one comes last, but an alarm should come soon after the rows that it speaks of: it is passed by this
 * part of what others are. */
#define COLD_PASSES(passes_max) ((passes_max) / 8)

/* Standard deviations of the need for pages that are kept free without a host tier. None ends the random jobs
 * of the unit test in 10 % fewer steps than a whole one, but computes four times as many tokens again; half of
 * one has most of the gain for half of the price. */
#define SPREAD 0.5

struct line {
    struct hr_seq *head, *tail;
};

struct group {
    struct line waiting;
    double work; /* see hr_sched_set_work; above 0 */
    struct hr_lengths lengths;
    struct hr_sched_group_counts counts;
};

struct hr_sched {
    struct hr_sched_opts opts;
    struct hr_kv *kv;
    struct line preempted; /* before all groups */
    struct line cold;      /* after all groups */
    int n_waiting;         /* in all lines */
    struct hr_seq **running; /* owned; [max_running], oldest first */
    int n_running;
    struct hr_sched_piece *pieces; /* owned; [max_running] */
    int n_pieces;
    int *rows; /* owned; [max_running]: rows of the step for running[i] */
    int64_t n_steps, *written; /* owned; [n_pages]: the last step that writes the page */
    int until_look; /* steps until the waiting ones are looked at again */
    struct group groups[HR_SCHED_GROUPS_MAX];
};

struct hr_sched *hr_sched_create(const struct hr_sched_opts *opts) {
    HR_ASSERT(opts->max_running > 0 && opts->step_tokens >= opts->max_running);
    HR_ASSERT(opts->decode_steps > 0 && opts->window > 0 && opts->passes_max >= 0);
    struct hr_sched *s = hr_xcalloc(1, sizeof *s);
    s->opts = *opts;
    s->kv = hr_kv_create(&(struct hr_kv_opts){
        .n_pages = opts->n_pages, .n_host_pages = opts->n_host_pages, .scatter = opts->scatter});
    s->running = hr_xcalloc((size_t)opts->max_running, sizeof(struct hr_seq *));
    s->pieces = hr_xcalloc((size_t)opts->max_running, sizeof *s->pieces);
    s->rows = hr_xcalloc((size_t)opts->max_running, sizeof *s->rows);
    s->written = hr_xcalloc((size_t)opts->n_pages, sizeof *s->written);
    for (int i = 0; i < HR_SCHED_GROUPS_MAX; i++) s->groups[i].work = 1;
    return s;
}

void hr_sched_destroy(struct hr_sched **ps) {
    struct hr_sched *s = *ps;
    if (!s) return;
    hr_kv_destroy(&s->kv);
    free(s->running);
    free(s->pieces);
    free(s->rows);
    free(s->written);
    free(s);
    *ps = NULL;
}

static int pages_for(int n_tokens) {
    return (n_tokens + HR_KV_PAGE_TOKENS - 1) / HR_KV_PAGE_TOKENS;
}

/* ---- the lines ---------------------------------------------------------------------------------- */

static struct line *line_of(struct hr_sched *s, const struct hr_seq *seq) {
    return seq->cold ? &s->cold : seq->started ? &s->preempted : &s->groups[seq->group].waiting;
}

static void wait_push(struct hr_sched *s, struct hr_seq *seq, bool front) {
    struct line *l = line_of(s, seq);
    seq->prev = front ? NULL : l->tail;
    seq->next = front ? l->head : NULL;
    if (seq->prev) seq->prev->next = seq;
    else l->head = seq;
    if (seq->next) seq->next->prev = seq;
    else l->tail = seq;
    s->n_waiting++;
}

static void wait_remove(struct hr_sched *s, struct hr_seq *seq) {
    struct line *l = line_of(s, seq);
    if (seq->prev) seq->prev->next = seq->next;
    else l->head = seq->next;
    if (seq->next) seq->next->prev = seq->prev;
    else l->tail = seq->prev;
    seq->prev = seq->next = NULL;
    s->n_waiting--;
}

void hr_sched_set_work(struct hr_sched *s, int group, double work) {
    s->groups[group].work = work > 1 ? work : 1;
}

bool hr_sched_submit(struct hr_sched *s, struct hr_seq *seq) {
    HR_ASSERT(seq->n_tokens > 0 && seq->n_tokens < seq->n_max && seq->n_prompt <= seq->n_tokens);
    HR_ASSERT(seq->group >= 0 && seq->group < HR_SCHED_GROUPS_MAX);
    int n_pages = pages_for(seq->n_max);
    if (n_pages > s->opts.n_pages) return false;
    seq->n_computed = seq->n_high = seq->n_passed = seq->n_kept = 0;
    seq->running = seq->started = seq->suspect = seq->promised = false;
    seq->hint = (struct hr_kv_hint){0};
    seq->kv = (struct hr_kv_seq){.pages = hr_xmalloc((size_t)n_pages * sizeof(int32_t)),
                                 .nodes = hr_xmalloc((size_t)n_pages * sizeof(struct hr_kv_node *)),
                                 .cold = seq->cold};
    if (!seq->cold) hr_kv_know(s->kv, seq->tokens, seq->n_prompt);
    wait_push(s, seq, false);
    return true;
}

/* ---- admission ---------------------------------------------------------------------------------- */

/* Chance that seq brings more than n_more further tokens. */
static double survives(const struct hr_sched *s, const struct hr_seq *seq, int n_more) {
    int n_now = seq->n_tokens - seq->n_prompt, prior = s->opts.expected[seq->group];
    if (n_more >= seq->n_max - seq->n_tokens) return 0;
    if (seq->n_expected > n_now) return n_now + n_more < seq->n_expected;
    return hr_lengths_survives(&s->groups[seq->group].lengths, n_now, n_more, prior > 0 ? prior : EXPECTED_PRIOR);
}

/* The most pages that the running sequences and `next` are expected to have taken more than they have given
 * back, at any time within the horizon, and SPREAD standard deviations. */
static int future_need(const struct hr_sched *s, const struct hr_seq *next) {
    double most = 0;
    for (int k = 1; k <= HR_SCHED_HORIZON / HR_KV_PAGE_TOKENS; k++) {
        int steps = k * HR_KV_PAGE_TOKENS;
        double p = survives(s, next, steps), need = p * k, var = p * (1 - p) * k * k;
        for (int i = 0; i < s->n_running; i++) {
            const struct hr_seq *seq = s->running[i];
            int known = pages_for(seq->n_tokens + 1) - seq->kv.n_pages;
            int own = seq->kv.n_pages - pages_for(seq->n_prompt); /* those of the prompt may be shared */
            int swing = known + k + (own > 0 ? own : 0);
            p = survives(s, seq, steps);
            need += p * swing - (swing - known - k);
            var += p * (1 - p) * swing * swing;
        }
        if (need + SPREAD * sqrt(var) > most) most = need + SPREAD * sqrt(var);
    }
    return (int)ceil(most);
}

static bool better(const struct hr_seq *a, const struct hr_seq *b) {
    if (!b) return true;
    if (a->hint.n_pages != b->hint.n_pages) return a->hint.n_pages > b->hint.n_pages;
    return b->n_expected > 0 && a->n_expected > b->n_expected;
}

/* Of one line, the sequence to admit next. Nobody passes a preempted one, or one that was passed often, but while
 * it waits for a page that is just being computed. */
static struct hr_seq *choose(struct hr_sched *s, const struct line *l) {
    struct hr_seq *best = NULL;
    int n = 0;
    for (struct hr_seq *q = l->head; q && n < s->opts.window; q = q->next, n++) {
        hr_kv_peek(s->kv, q->tokens, q->n_tokens, &q->hint, &q->promised);
        if (q->promised) continue;
        if (q->started || q->n_passed >= s->opts.passes_max) return q;
        if (better(q, best)) best = q;
    }
    return best;
}

/* The group with somebody in its line that runs least for the work it has left; -1: none but those tried. */
static int next_group(const struct hr_sched *s, const bool *tried) {
    int best = -1;
    for (int i = 0; i < HR_SCHED_GROUPS_MAX; i++) {
        const struct group *g = &s->groups[i], *b = &s->groups[best < 0 ? 0 : best];
        if (!g->waiting.head || tried[i]) continue;
        double mine = (double)g->counts.n_running * b->work, other = (double)b->counts.n_running * g->work;
        if (best < 0 || mine < other || (mine == other && g->work > b->work)) best = i;
    }
    return best;
}

/* Whose turn it is; NULL: everybody waits for pages that are just being computed. */
static struct hr_seq *choose_any(struct hr_sched *s) {
    bool tried[HR_SCHED_GROUPS_MAX] = {false};
    struct hr_seq *q = choose(s, &s->preempted);
    if (q) return q;
    if (s->cold.head && s->cold.head->n_passed >= COLD_PASSES(s->opts.passes_max)) return s->cold.head;
    for (int i; (i = next_group(s, tried)) >= 0; tried[i] = true)
        if ((q = choose(s, &s->groups[i].waiting)) != NULL) return q;
    return s->cold.head;
}

static void start(struct hr_sched *s, struct hr_seq *seq, int have) {
    struct group *g = &s->groups[seq->group];
    for (struct hr_seq *q = line_of(s, seq)->head; q != seq; q = q->next) q->n_passed += !q->promised;
    if (s->cold.head && !seq->cold && !seq->started) s->cold.head->n_passed++;
    wait_remove(s, seq);
    if (seq->n_kept) hr_kv_forget(s->kv, seq->tokens, seq->n_kept);
    seq->n_kept = 0;
    /* One that was preempted may come back to more than it had: another has computed the same meanwhile. */
    int hit = (have < seq->n_prompt ? have : seq->n_prompt) - seq->n_high;
    if (hit > 0) g->counts.cached_tokens += hit;
    if (have > seq->n_high) seq->n_high = have;
    seq->started = seq->running = true;
    seq->n_computed = have;
    int i = s->n_running++;
    for (; i > 0 && !seq->cold && s->running[i - 1]->cold; i--) s->running[i] = s->running[i - 1];
    s->running[i] = seq;
    g->counts.n_running += !seq->cold;
}

/* Pages to keep free when `next` is admitted: at least those that the ones who run need for the tokens that they
 * have. With a host tier that can take what is preempted a wrong guess costs a copy of a few pages, so only the
 * next four steps are provided for (a sequence takes a page in sixteen); without one it costs computing again, so
 * the horizon decides. */
static int reserve(const struct hr_sched *s, const struct hr_seq *next) {
    int now = 0;
    for (int i = 0; i < s->n_running; i++) now += pages_for(s->running[i]->n_tokens + 1) - s->running[i]->kv.n_pages;
    if (s->opts.n_host_pages >= s->opts.n_pages / 2) return now + s->n_running / 4;
    int later = future_need(s, next);
    return later > now ? later : now;
}

static bool fits(const struct hr_sched *s, const struct hr_seq *seq) {
    struct hr_kv_match m = {0};
    if (s->n_running == 0) return true; /* submit has checked that it fits alone */
    if (!seq->cold) hr_kv_match(s->kv, seq->tokens, seq->n_tokens, &m);
    int pinned = m.n_pages - m.n_loads - m.n_unpinned;
    return hr_kv_n_available(s->kv) >= pages_for(seq->n_tokens + 1) - pinned + reserve(s, seq);
}

static void preempt(struct hr_sched *s, struct hr_seq *seq);

static void admit(struct hr_sched *s) {
    if (s->n_running > 0 && s->until_look > 0) return;
    s->until_look = s->opts.decode_steps;
    while (s->n_running < s->opts.max_running && s->n_waiting > 0) {
        struct hr_seq *q = choose_any(s);
        if (!q) s->until_look = 1; /* those pages come soon */
        if (!q) return;
        while (!fits(s, q)) {
            /* Where others run too, what a cold one holds is waited for like what they hold. */
            if (q->cold || !s->running[0]->cold) return;
            preempt(s, s->running[s->n_running - 1]);
        }
        int have = hr_kv_attach(s->kv, &q->kv, q->tokens, q->n_tokens, q->n_prompt);
        if (have < 0) return;
        start(s, q, have);
    }
}

/* ---- the step ----------------------------------------------------------------------------------- */

static void remove_running(struct hr_sched *s, struct hr_seq *seq) {
    int i = 0;
    while (s->running[i] != seq) i++;
    memmove(s->running + i, s->running + i + 1, (size_t)(--s->n_running - i) * sizeof *s->running);
    seq->running = false;
    s->groups[seq->group].counts.n_running -= !seq->cold;
}

static void preempt(struct hr_sched *s, struct hr_seq *seq) {
    /* Itself is the user that its own pages have. */
    if (!seq->cold) seq->n_kept = seq->n_computed;
    if (!seq->cold) hr_kv_know(s->kv, seq->tokens, seq->n_kept);
    hr_kv_preempt(s->kv, &seq->kv, seq->n_computed);
    if (seq->cold) {
        seq->started = false;
        seq->n_computed = seq->n_passed = 0;
        remove_running(s, seq);
        wait_push(s, seq, false);
        return;
    }
    seq->n_computed = 0;
    remove_running(s, seq);
    wait_push(s, seq, true);
    s->groups[seq->group].counts.preemptions++;
}

/* Pages for the first n_tokens of running[i], preempting younger ones. False when running[i] itself is the
 * youngest and there are none: it was preempted then. */
static bool take_pages(struct hr_sched *s, int i, int n_tokens) {
    struct hr_seq *seq = s->running[i];
    while (!hr_kv_grow(s->kv, &seq->kv, n_tokens)) {
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

/* Tokens that running[i] still has to compute beyond the rows it was given. */
static int unserved(const struct hr_sched *s, int i) {
    return s->running[i]->n_tokens - s->running[i]->n_computed - s->rows[i];
}

static int give(struct hr_sched *s, int i, int n) {
    if (n > unserved(s, i)) n = unserved(s, i);
    s->rows[i] += n;
    return n;
}

/* Shares the token budget out: a row for each (all that a decode wants), then half of what is left to the
 * oldest prompt, so that a long one gets on, and the rest to those with the least to do, so that nobody's
 * first token waits behind somebody's book. */
static void share_budget(struct hr_sched *s) {
    int left = s->opts.step_tokens, oldest = -1;
    for (int i = 0; i < s->n_running; i++) {
        s->rows[i] = 0;
        left -= give(s, i, 1);
        if (oldest < 0 && unserved(s, i) > 0) oldest = i;
    }
    if (oldest >= 0) left -= give(s, oldest, (left + 1) / 2);
    while (left > 0) {
        int least = -1;
        for (int i = 0; i < s->n_running; i++) {
            if (s->running[i]->cold && least >= 0 && !s->running[least]->cold) break; /* after all others */
            if (unserved(s, i) > 0 && (least < 0 || unserved(s, i) < unserved(s, least))) least = i;
        }
        if (least < 0) return;
        left -= give(s, least, left);
    }
}

int hr_sched_plan(struct hr_sched *s, const struct hr_sched_piece **pieces) {
    admit(s);
    share_budget(s);
    s->n_pieces = 0;
    /* Oldest first, so that a preempted one (always the youngest) has no piece yet. */
    for (int i = 0; i < s->n_running; i++) {
        if (!take_pages(s, i, s->running[i]->n_computed + s->rows[i])) break;
        add_piece(s, i, s->rows[i]);
    }
    *pieces = s->pieces;
    return s->n_pieces;
}

/* Tokens [n_computed, end) of the sequence were computed. */
static void count_computed(struct hr_sched_group_counts *counts, const struct hr_seq *seq, int end) {
    if (seq->n_computed < seq->n_high)
        counts->recomputed_tokens += (end < seq->n_high ? end : seq->n_high) - seq->n_computed;
    int fresh = (end < seq->n_prompt ? end : seq->n_prompt) - seq->n_high;
    if (fresh > 0) counts->prefill_tokens += fresh;
}

void hr_sched_commit(struct hr_sched *s) {
    for (int i = 0; i < s->n_pieces; i++) {
        struct hr_seq *seq = s->pieces[i].seq;
        int end = seq->n_computed + s->pieces[i].n_rows;
        if (!seq->cold) count_computed(&s->groups[seq->group].counts, seq, end);
        seq->n_computed = end;
        if (end > seq->n_high) seq->n_high = end;
        hr_kv_computed(s->kv, &seq->kv, end);
    }
    s->n_pieces = 0;
    s->until_look--;
}

int hr_sched_take_orders(struct hr_sched *s, const struct hr_kv_order **orders, int *n_before) {
    int n_all = hr_kv_take_orders(s->kv, orders), n = n_all;
    s->n_steps++;
    for (int i = 0; n > 0 && i < s->n_pieces; i++) {
        const struct hr_sched_piece *p = &s->pieces[i];
        int last = (p->pos0 + p->n_rows - 1) / HR_KV_PAGE_TOKENS;
        for (int k = p->pos0 / HR_KV_PAGE_TOKENS; k <= last; k++) s->written[p->seq->kv.pages[k]] = s->n_steps;
    }
    while (n > 0 && (*orders)[n - 1].kind == HR_KV_SAVE && s->written[(*orders)[n - 1].page] != s->n_steps) n--;
    *n_before = n;
    return n_all;
}

void hr_sched_finish(struct hr_sched *s, struct hr_seq *seq, int n_completion) {
    hr_kv_release(s->kv, &seq->kv);
    if (!seq->cold) hr_kv_forget(s->kv, seq->tokens, seq->n_prompt);
    if (seq->n_kept) hr_kv_forget(s->kv, seq->tokens, seq->n_kept);
    if (seq->running) remove_running(s, seq);
    else wait_remove(s, seq);
    free(seq->kv.pages);
    free(seq->kv.nodes);
    seq->kv = (struct hr_kv_seq){0};
    if (n_completion >= 0) hr_lengths_learn(&s->groups[seq->group].lengths, n_completion);
    s->until_look = 0; /* somebody may take its place at once */
}

void hr_sched_spoil(struct hr_sched *s, const int32_t *tokens, int n_tokens) {
    enum { PAGE_BYTES = HR_KV_PAGE_TOKENS * sizeof *tokens };
    if (n_tokens < HR_KV_PAGE_TOKENS) return;
    hr_kv_spoil(s->kv, tokens, n_tokens);
    for (int i = 0; i < s->n_running; i++) {
        struct hr_seq *q = s->running[i];
        if (q->kv.n_nodes > 0 && memcmp(q->tokens, tokens, PAGE_BYTES) == 0) q->suspect = true;
    }
    for (struct hr_seq *q = s->preempted.head; q; q = q->next) {
        if (q->n_high < HR_KV_PAGE_TOKENS || memcmp(q->tokens, tokens, PAGE_BYTES) != 0) continue;
        q->suspect = true;
        hr_kv_drop_tail(s->kv, &q->kv);
    }
}

void hr_sched_counts(const struct hr_sched *s, struct hr_sched_counts *out) {
    *out = (struct hr_sched_counts){.n_running = s->n_running, .n_waiting = s->n_waiting};
    hr_kv_get_counts(s->kv, &out->kv);
    out->n_pages_running = out->kv.n_pinned + out->kv.n_private;
    for (int i = 0; i < HR_SCHED_GROUPS_MAX; i++) out->groups[i] = s->groups[i].counts;
}

void hr_sched_check(const struct hr_sched *s) {
    hr_kv_check(s->kv);
    for (int i = 0; i < s->n_running; i++) {
        const struct hr_seq *seq = s->running[i];
        HR_ASSERT(seq->running && seq->n_computed <= seq->kv.n_pages * HR_KV_PAGE_TOKENS);
        HR_ASSERT(seq->kv.n_nodes == (seq->cold ? 0 : seq->n_computed / HR_KV_PAGE_TOKENS));
        HR_ASSERT(i == 0 || seq->cold >= s->running[i - 1]->cold);
    }
    int n = 0;
    for (int i = -2; i < HR_SCHED_GROUPS_MAX; i++) {
        const struct line *l = i < -1 ? &s->cold : i < 0 ? &s->preempted : &s->groups[i].waiting;
        for (const struct hr_seq *q = l->head; q; q = q->next, n++) {
            HR_ASSERT(!q->running && q->kv.n_pages == 0 && (!q->next || q->next->prev == q));
            HR_ASSERT(q->cold == (i == -2) && q->started == (i == -1) && (i < 0 || q->group == i));
        }
    }
    HR_ASSERT(n == s->n_waiting);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * engine: the step loop; see engine.h.
 *
 * A step: take what came in; let the scheduler say which tokens to compute; lay them out as a batch; run
 * the model; sample the rows that reached their last known token; push those tokens through the stop
 * rules; queue what happened. Memory is taken when the engine or a request is created, never in a step. */
#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/queue.h"
#include "engine/flight.h"
#include "model/llama.h"

_Static_assert(HR_KV_PAGE_TOKENS == HR_PAGE_TOKENS, "a page is a page");
_Static_assert(HR_SCHED_GROUPS_MAX == HR_ENGINE_GROUPS_MAX, "a group is a group");

#define REQUESTS_MAX 4096  /* on their way in */
#define WINDOW       256   /* waiting requests among which admission chooses the next */
#define PASSES_MAX   64    /* requests that may start before one that came earlier */
#define COPIES_MAX   1024  /* pages copied in one go: several full steps' worth */
#define EVENTS_MAX   65536 /* several seconds of tokens: a slow disk must not stall the loop */

struct hr_engine {
    struct hr_model *model; /* borrowed */
    struct hr_engine_opts opts;
    struct hr_sched *sched;
    struct hr_queue *requests, *events; /* of struct hr_flight *, of struct hr_event */
    pthread_t thread;
    bool has_thread, told_of_pages;
    atomic_bool stop;
    atomic_llong work[HR_SCHED_GROUPS_MAX]; /* see hr_engine_set_work; 0: not told */
    pthread_mutex_t stats_lock;
    struct hr_engine_stats stats;
    struct hr_sched_group_counts group_stats[HR_SCHED_GROUPS_MAX];
    /* The step's batch, [step_tokens] or [max_running]. */
    int32_t *tokens, *positions, *slots, *out_rows;
    struct hr_batch_seq *seqs;
    struct hr_flight **out_flights;
    struct hr_sample_row *rows;
    struct hr_sampled *sampled;
    struct hr_event *step_events;
    struct hr_kv_copy *copies; /* [COPIES_MAX]; lent to the backend while it copies */
    struct hr_flight **live; /* every flight that the scheduler holds; [n_live] */
    int n_live, cap_live;
};

static void emit(struct hr_engine *e, const struct hr_event *ev, int n) {
    while (n > 0) {
        size_t k = hr_queue_push(e->events, ev, (size_t)n, true);
        if (k == 0) return; /* closed: nobody listens any more */
        ev += k;
        n -= (int)k;
    }
    e->opts.wake(e->opts.wake_arg);
}

static void live_add(struct hr_engine *e, struct hr_flight *f) {
    if (e->n_live == e->cap_live) {
        e->cap_live = e->cap_live ? 2 * e->cap_live : 256;
        e->live = hr_xrealloc(e->live, (size_t)e->cap_live * sizeof(struct hr_flight *));
    }
    e->live[e->n_live++] = f;
}

/* The flight leaves the engine; its last event has been made. */
static void retire(struct hr_engine *e, struct hr_flight *f, int n_completion) {
    hr_sched_finish(e->sched, &f->seq, n_completion);
    int i = 0;
    while (e->live[i] != f) i++;
    e->live[i] = e->live[--e->n_live];
    hr_flight_destroy(&f);
}

static void take_requests(struct hr_engine *e, bool wait) {
    struct hr_flight *f;
    while (hr_queue_pop(e->requests, &f, 1, wait) == 1) {
        wait = false;
        if (f->finished) { /* the journal held its last token already */
            struct hr_event end = f->end;
            hr_flight_destroy(&f);
            emit(e, &end, 1);
            continue;
        }
        live_add(e, f);
        HR_ASSERT(hr_sched_submit(e->sched, &f->seq)); /* hr_engine_submit has checked that it fits */
    }
}

static void lay_out(struct hr_engine *e, const struct hr_sched_piece *pieces, int n_pieces,
                    struct hr_batch *batch) {
    int n = 0, n_out = 0;
    for (int i = 0; i < n_pieces; i++) {
        const struct hr_sched_piece *p = &pieces[i];
        struct hr_flight *f = p->seq->user;
        e->seqs[i] = (struct hr_batch_seq){
            .row0 = n, .n_rows = p->n_rows, .pos0 = p->pos0, .pages = p->seq->kv.pages};
        for (int k = 0; k < p->n_rows; k++, n++) {
            int pos = p->pos0 + k;
            e->tokens[n] = f->tokens[pos];
            e->positions[n] = pos;
            e->slots[n] = p->seq->kv.pages[pos / HR_PAGE_TOKENS] * HR_PAGE_TOKENS + pos % HR_PAGE_TOKENS;
        }
        if (p->samples) {
            e->out_flights[n_out] = f;
            e->out_rows[n_out++] = n - 1;
        }
    }
    *batch = (struct hr_batch){
        .n_tokens = n,
        .tokens = e->tokens,
        .positions = e->positions,
        .slots = e->slots,
        .n_seqs = n_pieces,
        .seqs = e->seqs,
        .n_out = n_out,
        .out_rows = e->out_rows,
    };
}

/* Where the numbers of a sequence that has no next token first went wrong: its steps are computed once more,
 * in order, and looked at. The bits that this writes to its pages, shared ones too, are those that are there.
 * The step's own batch has served and is written over, and so is the first of out_flights. */
static void find_fault(struct hr_engine *e, struct hr_flight *f, struct hr_fault *fault) {
    const int n = f->seq.n_tokens, chunk = e->opts.step_tokens;
    fault->stage = HR_STAGE_NONE;
    for (int pos = 0; pos < n && fault->stage == HR_STAGE_NONE; pos += chunk) {
        struct hr_sched_piece piece = {.seq = &f->seq,
                                       .pos0 = pos,
                                       .n_rows = n - pos < chunk ? n - pos : chunk,
                                       .samples = n - pos <= chunk};
        struct hr_batch batch;
        lay_out(e, &piece, 1, &batch);
        hr_model_find_fault(e->model, &batch, fault);
    }
    if (fault->stage == HR_STAGE_NONE && f->n_seen > 0) fault->stage = HR_STAGE_PENALTIES;
}

/* A canary has ended otherwise than the row before it: what that was computed from leaves the cache, and who
 * goes on with it is named. */
static void spoil(struct hr_engine *e, struct hr_flight *canary) {
    const struct hr_request *r = canary->request;
    memcpy(canary->tokens + r->n_prompt, r->canary, (size_t)r->n_canary * sizeof *r->canary);
    hr_sched_spoil(e->sched, canary->tokens, r->n_prompt + r->n_canary);
    for (int i = 0; i < e->n_live; i++) {
        struct hr_flight *f = e->live[i];
        if (!f->seq.suspect || f->told) continue;
        f->told = true;
        emit(e, &(struct hr_event){.kind = HR_EVENT_SUSPECT, .request = f->request}, 1);
    }
}

/* The next token of a canary against the one that is known. True when the canary is over: *ev says how. */
static bool check(struct hr_engine *e, struct hr_flight *f, int32_t token, struct hr_event *ev) {
    const struct hr_request *r = f->request;
    int n = f->seq.n_tokens - f->seq.n_prompt;
    bool same = token == r->canary[n], last = n + 1 == r->n_canary;
    *ev = (struct hr_event){.kind = HR_EVENT_CHECKED, .request = f->request, .token = token, .n_tokens = n};
    if (same) {
        hr_flight_push(f, token);
        if (!f->finished && !last) return false;
        ev->n_tokens++;
        ev->token = -1;
        ev->finish = f->end.finish;
        ev->same = f->finished && last && f->end.finish == r->canary_finish &&
                   f->end.stop_index == r->canary_stop_index;
    }
    if (!ev->same) spoil(e, f);
    retire(e, f, -1);
    return true;
}

/* Samples the out rows and applies the stop rules; returns the number of events made. *n_sampled: tokens of
 * completions, without those of canaries. */
static int sample(struct hr_engine *e, int n_out, int *n_sampled) {
    int n_events = 0;
    *n_sampled = n_out;
    for (int i = 0; i < n_out; i++) hr_flight_sample_row(e->out_flights[i], &e->rows[i]);
    hr_model_sample(e->model, n_out, e->rows, e->sampled);
    for (int i = 0; i < n_out; i++) {
        struct hr_flight *f = e->out_flights[i];
        int32_t token = e->sampled[i].token;
        if (f->request->canary) {
            --*n_sampled;
            n_events += check(e, f, token, &e->step_events[n_events]);
            continue;
        }
        if (token < 0) {
            struct hr_event *end = &e->step_events[n_events++];
            *end = (struct hr_event){.kind = HR_EVENT_FINISH,
                                     .request = f->request,
                                     .finish = HR_FINISH_NUMERIC,
                                     .n_tokens = f->seq.n_tokens - f->seq.n_prompt,
                                     .n_bytes = f->scan.n_bytes};
            find_fault(e, f, &end->fault);
            retire(e, f, -1);
            continue;
        }
        e->step_events[n_events++] =
            (struct hr_event){.kind = HR_EVENT_TOKEN, .request = f->request, .token = token};
        hr_flight_push(f, token);
        if (!f->finished) continue;
        e->step_events[n_events++] = f->end;
        retire(e, f, f->end.n_tokens);
    }
    return n_events;
}

/* Pages are free, in the tree or a sequence's own: what is missing would be missed at hour nine. */
static void check_pages(struct hr_engine *e, const struct hr_kv_counts *c) {
    bool whole = c->n_free + c->n_tree + c->n_private == c->n_pages &&
                 c->n_host_free + c->n_host_tree + c->n_host_tails == c->n_host_pages;
    HR_DASSERT(whole);
    if (whole || e->told_of_pages) return;
    e->told_of_pages = true;
    hr_error("KV pages do not add up: %d free, %d in the tree, %d private of %d; on the host %d, %d and %d of %d; the "
             "run goes on, but please report this",
             c->n_free, c->n_tree, c->n_private, c->n_pages, c->n_host_free, c->n_host_tree, c->n_host_tails,
             c->n_host_pages);
}

static void publish_stats(struct hr_engine *e, int n_sampled) {
    struct hr_sched_counts c;
    hr_sched_counts(e->sched, &c);
    check_pages(e, &c.kv);
    pthread_mutex_lock(&e->stats_lock);
    struct hr_engine_stats *s = &e->stats;
    s->decode_steps += n_sampled > 0;
    s->sampled_tokens += n_sampled;
    s->n_running = c.n_running;
    s->n_waiting = c.n_waiting;
    s->kv_tokens_used = (int64_t)c.n_pages_running * HR_PAGE_TOKENS;
    s->kv_used_sum += n_sampled > 0 ? s->kv_tokens_used : 0;
    s->saves = c.kv.saves;
    s->loads = c.kv.loads;
    s->evictions = c.kv.evictions;
    s->host_evictions = c.kv.host_evictions;
    memcpy(e->group_stats, c.groups, sizeof c.groups);
    pthread_mutex_unlock(&e->stats_lock);
}

/* Starts orders [i0, i1), at most COPIES_MAX. */
static void start_copies(struct hr_engine *e, const struct hr_kv_order *orders, int i0, int i1) {
    for (int i = i0; i < i1; i++)
        e->copies[i - i0] = (struct hr_kv_copy){
            .page = orders[i].page, .host_page = orders[i].host_page, .to_host = orders[i].kind == HR_KV_SAVE};
    hr_model_kv_copy(e->model, e->copies, i1 - i0);
}

/* Carries out the copies between device and host that the scheduler has ordered: what the step needs now, the
 * rest beside it. */
static void copy_pages(struct hr_engine *e) {
    const struct hr_kv_order *orders;
    hr_model_kv_copy_wait(e->model); /* those beside the last step */
    int before, n = hr_sched_take_orders(e->sched, &orders, &before), i = 0;
    if (before < n - COPIES_MAX) before = n - COPIES_MAX;
    for (int end; i < before; i = end) {
        end = before - i < COPIES_MAX ? before : i + COPIES_MAX;
        start_copies(e, orders, i, end);
        hr_model_kv_copy_wait(e->model);
    }
    start_copies(e, orders, i, n);
}

/* One step; false when there was nothing to do. */
static bool step(struct hr_engine *e) {
    const struct hr_sched_piece *pieces;
    for (int i = 0; i < HR_SCHED_GROUPS_MAX; i++) hr_sched_set_work(e->sched, i, (double)atomic_load(&e->work[i]));
    int n_pieces = hr_sched_plan(e->sched, &pieces);
    copy_pages(e);
    if (n_pieces == 0) return false;
    struct hr_batch batch;
    lay_out(e, pieces, n_pieces, &batch);
    hr_model_forward(e->model, &batch);
    hr_sched_commit(e->sched);
    int n_sampled, n_events = sample(e, batch.n_out, &n_sampled);
    publish_stats(e, n_sampled);
    if (n_events > 0) emit(e, e->step_events, n_events);
    return true;
}

static void *loop(void *arg) {
    struct hr_engine *e = arg;
    bool idle = true;
    while (!atomic_load(&e->stop)) {
        take_requests(e, idle);
        idle = !atomic_load(&e->stop) && !step(e);
        if (idle) publish_stats(e, 0);
    }
    hr_model_kv_copy_wait(e->model);
    return NULL;
}

enum hr_status hr_engine_create(struct hr_model *model, const struct hr_engine_opts *opts,
                                struct hr_engine **out, struct hr_err *err) {
    struct hr_engine *e = hr_xcalloc(1, sizeof *e);
    size_t n_rows = (size_t)opts->step_tokens, n_seqs = (size_t)opts->max_running;
    e->model = model;
    e->opts = *opts;
    e->stats.kv_tokens = (int64_t)opts->n_pages * HR_PAGE_TOKENS;
    pthread_mutex_init(&e->stats_lock, NULL);
    struct hr_sched_opts sched = {
        .n_pages = opts->n_pages,
        .n_host_pages = opts->n_host_pages,
        .max_running = opts->max_running,
        .step_tokens = opts->step_tokens,
        .decode_steps = opts->decode_steps > 0 ? opts->decode_steps : 1,
        .window = WINDOW,
        .passes_max = PASSES_MAX,
        .scatter = opts->scatter,
    };
    memcpy(sched.expected, opts->expected, sizeof sched.expected);
    e->sched = hr_sched_create(&sched);
    e->requests = hr_queue_create(sizeof(struct hr_flight *), REQUESTS_MAX);
    e->events = hr_queue_create(sizeof(struct hr_event), EVENTS_MAX);
    e->tokens = hr_xmalloc(n_rows * sizeof *e->tokens);
    e->positions = hr_xmalloc(n_rows * sizeof *e->positions);
    e->slots = hr_xmalloc(n_rows * sizeof *e->slots);
    e->out_rows = hr_xmalloc(n_seqs * sizeof *e->out_rows);
    e->seqs = hr_xmalloc(n_seqs * sizeof *e->seqs);
    e->out_flights = hr_xmalloc(n_seqs * sizeof(struct hr_flight *));
    e->rows = hr_xmalloc(n_seqs * sizeof *e->rows);
    e->sampled = hr_xmalloc(n_seqs * sizeof *e->sampled);
    e->copies = hr_xmalloc(COPIES_MAX * sizeof *e->copies);
    e->step_events = hr_xmalloc(2 * n_seqs * sizeof *e->step_events);
    if (pthread_create(&e->thread, NULL, loop, e)) {
        hr_engine_destroy(&e);
        return hr_err_set(err, HR_ERR_FAILED, "cannot start the engine's thread");
    }
    e->has_thread = true;
    *out = e;
    return HR_OK;
}

void hr_engine_stop(struct hr_engine *e) {
    if (!e->has_thread) return;
    atomic_store(&e->stop, true);
    hr_queue_close(e->requests);
    pthread_join(e->thread, NULL);
    e->has_thread = false;
}

void hr_engine_destroy(struct hr_engine **pe) {
    struct hr_engine *e = *pe;
    if (!e) return;
    hr_queue_close(e->events); /* a loop that waits for room gives up */
    hr_engine_stop(e);
    struct hr_flight *f;
    while (hr_queue_pop(e->requests, &f, 1, false) == 1) hr_flight_destroy(&f);
    while (e->n_live > 0) retire(e, e->live[0], -1);
    hr_sched_destroy(&e->sched);
    hr_queue_destroy(&e->requests);
    hr_queue_destroy(&e->events);
    pthread_mutex_destroy(&e->stats_lock);
    free(e->tokens);
    free(e->positions);
    free(e->slots);
    free(e->out_rows);
    free(e->seqs);
    free(e->out_flights);
    free(e->rows);
    free(e->sampled);
    free(e->step_events);
    free(e->copies);
    free(e->live);
    free(e);
    *pe = NULL;
}

bool hr_engine_submit(struct hr_engine *e, struct hr_request *r) {
    if ((int64_t)r->n_prompt + r->max_tokens > hr_engine_kv_tokens(e)) return false;
    struct hr_flight *f = hr_flight_create(r, &e->opts.token_bytes);
    if (hr_queue_push(e->requests, &f, 1, true) == 0) hr_flight_destroy(&f); /* stopped meanwhile */
    return true;
}

void hr_engine_set_work(struct hr_engine *e, int group, int64_t tokens) {
    atomic_store(&e->work[group], tokens);
}

int64_t hr_engine_kv_tokens(const struct hr_engine *e) {
    return (int64_t)e->opts.n_pages * HR_PAGE_TOKENS;
}

int hr_engine_events(struct hr_engine *e, struct hr_event *events, int n) {
    return (int)hr_queue_pop(e->events, events, (size_t)n, false);
}

void hr_engine_get_stats(struct hr_engine *e, struct hr_engine_stats *out, int i_group,
                         struct hr_engine_group_stats *group) {
    pthread_mutex_lock(&e->stats_lock);
    *out = e->stats;
    if (group) {
        const struct hr_sched_group_counts *c = &e->group_stats[i_group];
        *group = (struct hr_engine_group_stats){.n_running = c->n_running,
                                                .prefill_tokens = c->prefill_tokens,
                                                .cached_tokens = c->cached_tokens,
                                                .recomputed_tokens = c->recomputed_tokens,
                                                .preemptions = c->preemptions};
    }
    pthread_mutex_unlock(&e->stats_lock);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * run_output: what the engine reports becomes tokens, journal entries and committed rows.
 *
 * The engine's events are taken on the loop as they come. Finished samples wait in a list; one commit a
 * dataset is out at a time and takes all that wait, so a slow disk makes commits larger, never the engine
 * slower. A row counts as done when its commit has ended, not before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/run_int.h"
#include "job/repetition.h"
#include "text/detok.h"

#define SYNC_EVERY_NS  INT64_C(3000000000) /* a power cut may cost this much work in flight */
#define RETRY_EVERY_NS INT64_C(2000000000) /* a full disk is asked again */
#define COMMIT_ROWS    256 /* at most, so that a batch of lines gets its turn */

static struct dataset *dataset_of(const struct hr_request *req) {
    return ((struct sample *)req->user)->row->ds;
}

/* ---- to the engine ------------------------------------------------------------------------------ */

static void rebuild_flight(struct dataset *ds) {
    hr_budget_flight_clear(&ds->budget);
    for (const struct sample *s = ds->flying.head; s; s = s->next)
        hr_budget_flight_add(&ds->budget, (int)s->tokens.len, s->request.max_tokens);
}

static void submit(struct run *r, struct dataset *ds, struct sample *s) {
    if (!ds->began) {
        struct hr_engine_stats st;
        hr_engine_get_stats(r->engine, &st, 0, NULL);
        ds->began = true;
        ds->first_ns = ds->last_ns = hr_clock_ns();
        /* The rate counts from the first row on, not from a tick before or seconds after it. */
        if (!r->any_began) r->rate = (struct hr_rate){0};
        if (!r->any_began) hr_rate_add(&r->rate, ds->first_ns, 0);
        r->any_began = true;
        ds->first_step = st.decode_steps;
    }
    list_remove(&ds->ready, s);
    list_push(&ds->flying, s);
    HR_ASSERT(hr_engine_submit(r->engine, &s->request)); /* the intake has checked that it fits */
}

/* What the journal holds is work that is paid for: it is finished whatever the cap says. A capped dataset
 * sends no row ahead to wait inside the engine: whether it may start is decided by how those before it end. */
static bool may_start(struct dataset *ds, const struct sample *s) {
    if (ds->budget.cap <= 0 || s->resumed.len > 0) return true;
    if (ds->flying.n >= ds->run->engine_opts.max_running) return false;
    rebuild_flight(ds);
    return hr_budget_may_start(&ds->budget, s->request.max_tokens);
}

void run_submit_ready(struct run *r) {
    if (r->model_state != MODEL_READY || r->stopping || r->no_space) return;
    for (int i = 0; i < r->n_datasets && r->n_datasets > 1; i++)
        hr_engine_set_work(r->engine, i, run_work_left(&r->datasets[i]));
    for (int i = 0; i < r->n_datasets; i++) {
        struct dataset *ds = &r->datasets[i];
        while (ds->ready.head && may_start(ds, ds->ready.head)) submit(r, ds, ds->ready.head);
        if (!ds->ready.head || ds->flying.n || ds->finished.n || ds->store_work) continue;
        /* Nothing in flight and still no more may start: this is the cap. */
        ds->capped = true;
        ds->input_done = true;
        while (ds->ready.head) {
            struct sample *s = ds->ready.head;
            list_remove(&ds->ready, s);
            sample_free(s);
        }
    }
}

/* ---- from the engine ---------------------------------------------------------------------------- */

void run_take_events(struct run *r) {
    struct hr_event ev[256];
    int n;
    while (r->engine && (n = hr_engine_events(r->engine, ev, 256)) > 0) {
        for (int i = 0; i < n; i++) {
            struct sample *s = ev[i].request->user;
            struct dataset *ds = dataset_of(ev[i].request);
            if (ev[i].kind == HR_EVENT_TOKEN) {
                hr_ids_push(&s->tokens, ev[i].token);
                ds->counters.running_sum++;
                r->n_tokens_seen++;
                continue;
            }
            if (ev[i].kind == HR_EVENT_SUSPECT) {
                run_canary_suspect(r, s);
                continue;
            }
            if (ev[i].kind == HR_EVENT_CHECKED) {
                run_canary_checked(r, s, &ev[i]);
                continue;
            }
            HR_ASSERT((int)s->tokens.len == ev[i].n_tokens || ev[i].finish == HR_FINISH_NUMERIC);
            s->end = ev[i];
            s->repetitive =
                ev[i].finish == HR_FINISH_LENGTH && hr_is_repetitive(s->tokens.data, s->tokens.len);
            ds->last_ns = hr_clock_ns();
            /* Its tokens count from here on, however long its commit takes. */
            if (s->end.finish != HR_FINISH_NUMERIC) hr_budget_rows(&ds->budget, (int)s->tokens.len, 1);
            list_remove(&ds->flying, s);
            list_push(&ds->finished, s);
        }
    }
}

/* ---- commits ------------------------------------------------------------------------------------ */

struct commit {
    struct run *run;
    struct dataset *ds;
    struct sample *samples[COMMIT_ROWS];
    int n;
    struct hr_run_counters counters; /* with these rows */
    int64_t rows_total; /* to be told to `status`; -1: nothing new */
    enum hr_status st;
    struct hr_err err;
};

static void stop_reason(const struct sample *s, struct hr_buf *out) {
    const struct hr_sampling_spec *sp = &s->row->prompt.sampling;
    switch (s->end.finish) {
    case HR_FINISH_STOP_STRING:
        hr_buf_json_str(out, sp->stop[s->end.stop_index], sp->stop_len[s->end.stop_index]);
        return;
    case HR_FINISH_STOP_ID: hr_buf_printf(out, "%d", s->tokens.data[s->tokens.len - 1]); return;
    case HR_FINISH_LENGTH:
        if (s->row->prompt.context_limited) hr_buf_puts(out, "\"context\"");
        return;
    case HR_FINISH_EOS:
    case HR_FINISH_NUMERIC: return;
    }
}

static void write_row(const struct sample *s, const struct hr_tokenizer *tok, struct hr_buf *out) {
    const struct row *row = s->row;
    const struct hr_event *e = &s->end;
    enum { OPEN, REASONING, CLOSE, TEXT, N_PARTS };
    struct hr_buf part[N_PARTS] = {0}, reason = {0};
    const size_t cut[N_PARTS] = {(size_t)e->preface_begin, (size_t)e->preface_end, (size_t)e->answer_begin,
                                 (size_t)e->n_bytes};
    size_t dropped = hr_detok_parts(tok, s->tokens.data, s->tokens.len, cut, N_PARTS, part);
    stop_reason(s, &reason);
    struct hr_answer a = {
        .sample = s->index,
        .occurrence = row->occurrence,
        .reasoning = e->has_preface ? hr_buf_cstr(&part[REASONING]) : NULL,
        .reasoning_len = part[REASONING].len,
        .text = part[TEXT].data,
        .text_len = part[TEXT].len,
        .dropped_bytes = (int)dropped,
        .finish_reason = s->end.finish == HR_FINISH_LENGTH ? "length" : "stop",
        .repetitive = s->repetitive,
        .stop_reason_json = reason.len ? hr_buf_cstr(&reason) : NULL,
        .prompt_tokens = (int)row->prompt.ids.len,
        .completion_tokens = (int)s->tokens.len,
        .seed = row->prompt.sampling.seed,
        .prompt_ids = row->ds->m->output_token_ids ? row->prompt.ids.data : NULL,
        .completion_ids = row->ds->m->output_token_ids ? s->tokens.data : NULL,
    };
    hr_record_write_row(&row->record, row->ds->m, &a, out);
    for (int i = 0; i < N_PARTS; i++) hr_buf_finish(&part[i]);
    hr_buf_finish(&reason);
}

/* Which value of which layer and token was the first that was not finite. */
static void say_where(const struct sample *s, char *out, size_t n) {
    const struct hr_fault *f = &s->end.fault;
    const struct hr_ids *prompt = &s->row->prompt.ids;
    char place[120];
    if (f->stage == HR_STAGE_PENALTIES) {
        snprintf(out, n, "the model's own were finite, the row's penalties made them overflow");
        return;
    }
    if (f->stage == HR_STAGE_NONE) {
        snprintf(out, n, "computed again all were finite, so test the machine's memory, then use --retry-rejects");
        return;
    }
    bool in_prompt = f->position < (int)prompt->len;
    int i = in_prompt ? f->position : f->position - (int)prompt->len;
    hr_fault_describe(f, place, sizeof place);
    snprintf(out, n, "the first such value is in %s, at token %d of the %s (id %d)", place, i,
             in_prompt ? "prompt" : "completion", (int)(in_prompt ? prompt->data : s->tokens.data)[i]);
}

static enum hr_status reject_numeric(struct commit *c, const struct sample *s) {
    const struct row *row = s->row;
    struct hr_buf line = {0};
    char where[200], reason[400];
    bool known;
    uint8_t key[16];
    say_where(s, where, sizeof where);
    snprintf(reason, sizeof reason,
             "the model's logits for completion token %d were not finite (NaN or infinite): %s", s->end.n_tokens,
             where);
    const struct hr_manifest *m = row->ds->m;
    run_key("sample", row->record.ident, 16, row->occurrence, s->index, key);
    hr_record_write_reject(&row->record.id_json, m->dataset, m->shards[row->i_shard], row->line_no, s->index,
                           reason, &line);
    enum hr_status st =
        hr_store_reject(c->ds->store, key, row->id, s->index, line.data, line.len, &known, &c->err);
    hr_buf_finish(&line);
    return st;
}

static void commit_work(void *arg) {
    struct commit *c = arg;
    struct hr_store_done done[COMMIT_ROWS];
    struct hr_buf lines[COMMIT_ROWS] = {0};
    int n = 0;
    for (int i = 0; i < c->n && !c->st; i++) {
        struct sample *s = c->samples[i];
        if (s->end.finish == HR_FINISH_NUMERIC) {
            c->st = reject_numeric(c, s);
            continue;
        }
        write_row(s, c->run->text.tokenizer, &lines[n]);
        done[n] = (struct hr_store_done){
            .row = s->row->id,
            .sample = s->index,
            .line = lines[n].data,
            .len = lines[n].len,
            .prompt_tokens = (int)s->row->prompt.ids.len,
            .completion_tokens = (int)s->tokens.len,
            .length = s->end.finish == HR_FINISH_LENGTH,
            .repetitive = s->repetitive,
        };
        n++;
    }
    if (c->rows_total >= 0) run_set_fact(c->ds, "rows_total", c->rows_total);
    if (!c->st) c->st = hr_store_commit(c->ds->store, done, n, &c->counters, &c->err);
    for (int i = 0; i < n; i++) hr_buf_finish(&lines[i]);
}

static void count_finished(struct hr_run_counters *k, const struct sample *s) {
    k->sampled_tokens += (int64_t)(s->tokens.len - s->n_journalling);
    if (s->end.finish == HR_FINISH_NUMERIC) {
        k->rejects++;
        return;
    }
    k->rows_done++;
    k->rows_length += s->end.finish == HR_FINISH_LENGTH;
    k->rows_repetitive += s->repetitive;
    k->prompt_tokens += (int64_t)s->row->prompt.ids.len;
    k->completion_tokens += (int64_t)s->tokens.len;
}

void run_write_failed(struct run *r, enum hr_status st, const struct hr_err *err) {
    if (st == HR_ERR_LOCKED && r->stopping) { /* it has waited long enough: this is a stop all the same */
        if (!r->store_broken)
            hr_warn("%s: what was sampled since is sampled again by the next run", err->msg);
        r->store_broken = true;
        return;
    }
    if (st != HR_ERR_NOSPACE) {
        r->store_broken = true;
        run_fail(r, err);
        return;
    }
    r->retry_ns = hr_clock_ns() + RETRY_EVERY_NS;
    if (r->no_space) return;
    r->no_space = true;
    hr_warn("paused: %s; the run goes on by itself when there is room (Ctrl-C stops it, resumable)", err->msg);
}

void run_space_again(struct run *r) {
    if (!r->no_space) return;
    r->no_space = false;
    hr_info("there is room again: the run goes on");
}

static void commit_ended(struct commit *c) {
    struct dataset *ds = c->ds;
    for (int i = 0; i < c->n; i++) {
        struct sample *s = c->samples[i];
        if (s->end.finish == HR_FINISH_NUMERIC) {
            ds->n_numeric++;
            ds->rejects++;
            atomic_fetch_add(&ds->n_named, 1);
            char where[200];
            struct hr_buf id = {0};
            run_put_id(s->row, &id);
            say_where(s, where, sizeof where);
            hr_warn("%s: row %s sample %d rejected: logits were not finite: %s", ds->m->dataset, hr_buf_cstr(&id),
                    s->index, where);
            hr_buf_finish(&id);
        } else {
            ds->rows_done++;
            ds->rows_length += s->end.finish == HR_FINISH_LENGTH;
            ds->rows_repetitive += s->repetitive;
            if (run_canary_take(s)) continue;
        }
        sample_free(s);
    }
}

static void commit_done(void *arg) {
    struct commit *c = arg;
    struct run *r = c->run;
    c->ds->store_work = false;
    if (c->st) {
        /* Nothing of it counts: the samples wait as before, the counters forget them. */
        for (int i = c->n - 1; i >= 0; i--) {
            struct sample *s = c->samples[i];
            struct hr_run_counters *k = &c->ds->counters, delta = {0};
            count_finished(&delta, s);
            k->sampled_tokens -= delta.sampled_tokens;
            k->rejects -= delta.rejects;
            k->rows_done -= delta.rows_done;
            k->rows_length -= delta.rows_length;
            k->rows_repetitive -= delta.rows_repetitive;
            k->prompt_tokens -= delta.prompt_tokens;
            k->completion_tokens -= delta.completion_tokens;
            list_push(&c->ds->finished, s);
        }
        run_write_failed(r, c->st, &c->err);
    } else {
        run_space_again(r);
        commit_ended(c);
    }
    free(c);
    run_pump(r);
}

/* What the engine knows and the loop does not count itself. */
static void refresh_counters(struct run *r, struct dataset *ds) {
    struct hr_engine_stats st;
    struct hr_engine_group_stats g;
    if (!r->engine || !ds->began || ds->ended) return;
    hr_engine_get_stats(r->engine, &st, ds->group, &g);
    ds->counters.prefill_tokens = g.prefill_tokens;
    ds->counters.cached_tokens = g.cached_tokens;
    ds->counters.recomputed_tokens = g.recomputed_tokens;
    ds->counters.preemptions = g.preemptions;
    ds->counters.decode_steps = st.decode_steps - ds->first_step;
    /* Time while no row is in the engine is no time of the rows: reading on past a million bad lines, or a
     * slow disk's last commit. */
    ds->counters.active_ns = (ds->flying.n ? hr_clock_ns() : ds->last_ns) - ds->first_ns;
    ds->ended = ds->input_done && !ds->ready.n && !ds->flying.n && !ds->finished.n;
}

/* How many rows there are, when `status` has not heard it yet; else -1. */
static int64_t untold_total(struct dataset *ds) {
    if (ds->rows_total < 0 || ds->total_told) return -1;
    ds->total_told = true;
    return ds->rows_total * ds->sampling.n;
}

static void start_commit(struct run *r, struct dataset *ds) {
    struct commit *c = hr_xcalloc(1, sizeof *c);
    c->run = r;
    c->ds = ds;
    while (ds->finished.head && c->n < COMMIT_ROWS) {
        struct sample *s = ds->finished.head;
        list_remove(&ds->finished, s);
        count_finished(&ds->counters, s);
        c->samples[c->n++] = s;
    }
    c->rows_total = untold_total(ds);
    ds->store_work = true;
    refresh_counters(r, ds);
    c->counters = ds->counters;
    hr_loop_serial(r->loop, commit_work, commit_done, c);
}

void run_start_commits(struct run *r) {
    if (r->no_space && hr_clock_ns() < r->retry_ns) return;
    for (int i = 0; i < r->n_datasets; i++) {
        struct dataset *ds = &r->datasets[i];
        if (ds->finished.n && !ds->store_work) start_commit(r, ds);
    }
}

/* ---- journal ------------------------------------------------------------------------------------ */

struct journal_part {
    struct dataset *ds;
    struct hr_store_tokens *tokens; /* owned, ids too */
    int n;
    struct hr_run_counters counters;
    int64_t rows_total, running, queued; /* to be told to `status`; -1: nothing new */
};

struct journal {
    struct run *run;
    bool sync;
    struct journal_part *parts; /* owned, [n_datasets] */
    enum hr_status st;
    struct hr_err err;
};

static void journal_work(void *arg) {
    struct journal *j = arg;
    for (int i = 0; i < j->run->n_datasets && !j->st; i++) {
        struct journal_part *p = &j->parts[i];
        if (p->rows_total >= 0) run_set_fact(p->ds, "rows_total", p->rows_total);
        if (p->running >= 0) run_set_fact(p->ds, "running", p->running);
        if (p->queued >= 0) run_set_fact(p->ds, "queued", p->queued);
        if (p->ds->store)
            j->st = hr_store_journal(p->ds->store, p->tokens, p->n, &p->counters, j->sync, &j->err);
    }
}

static void journal_done(void *arg) {
    struct journal *j = arg;
    struct run *r = j->run;
    r->journal_out = false;
    for (int i = 0; i < r->n_datasets; i++) {
        struct journal_part *p = &j->parts[i];
        struct dataset *ds = p->ds;
        for (int pass = 0; pass < 2; pass++) {
            struct sample *s = pass ? ds->finished.head : ds->flying.head;
            for (; s; s = s->next) {
                if (!j->st) {
                    s->n_journalled = s->n_journalling;
                    continue;
                }
                /* It did not arrive: the tokens go with the next write. */
                ds->counters.sampled_tokens -= (int64_t)(s->n_journalling - s->n_journalled);
                s->n_journalling = s->n_journalled;
            }
        }
        for (int k = 0; k < p->n; k++) free((void *)p->tokens[k].ids);
        free(p->tokens);
    }
    if (j->st) run_write_failed(r, j->st, &j->err);
    else if (j->sync) r->sync_ns = hr_clock_ns();
    if (!j->st) run_space_again(r);
    free(j->parts);
    free(j);
    run_pump(r);
}

/* Numbers that `status` shows of a live run, as far as they are new. */
static void gather_facts(struct run *r, struct dataset *ds, struct journal_part *p) {
    struct hr_engine_stats st;
    struct hr_engine_group_stats g;
    hr_engine_get_stats(r->engine, &st, ds->group, &g);
    int64_t queued = ds->ready.n + ds->flying.n - g.n_running;
    if (queued < 0) queued = 0;
    p->running = g.n_running != ds->running_told ? g.n_running : -1;
    p->queued = queued != ds->queued_told ? queued : -1;
    ds->running_told = g.n_running;
    ds->queued_told = queued;
    p->rows_total = untold_total(ds);
}

static void gather(struct run *r, struct dataset *ds, struct journal_part *p) {
    p->ds = ds;
    p->tokens = hr_xcalloc((size_t)ds->flying.n, sizeof *p->tokens);
    for (struct sample *s = ds->flying.head; s; s = s->next) {
        size_t n = s->tokens.len - s->n_journalling;
        if (n == 0) continue;
        int32_t *ids = hr_xmalloc(n * sizeof *ids);
        memcpy(ids, s->tokens.data + s->n_journalling, n * sizeof *ids);
        p->tokens[p->n++] =
            (struct hr_store_tokens){.row = s->row->id, .sample = s->index, .ids = ids, .n = (int)n};
        s->n_journalling = s->tokens.len;
        ds->counters.sampled_tokens += (int64_t)n;
    }
    refresh_counters(r, ds);
    p->counters = ds->counters;
    gather_facts(r, ds, p);
}

void run_start_journal(struct run *r) {
    if (!r->journal_due || r->journal_out || (r->no_space && hr_clock_ns() < r->retry_ns)) return;
    r->journal_due = false;
    struct journal *j = hr_xcalloc(1, sizeof *j);
    j->run = r;
    j->sync = hr_clock_ns() - r->sync_ns > SYNC_EVERY_NS || r->stopping;
    j->parts = hr_xcalloc((size_t)r->n_datasets, sizeof *j->parts);
    for (int i = 0; i < r->n_datasets; i++) gather(r, &r->datasets[i], &j->parts[i]);
    r->journal_out = true;
    hr_loop_serial(r->loop, journal_work, journal_done, j);
}

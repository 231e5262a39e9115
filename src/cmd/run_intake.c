/* SPDX-License-Identifier: Apache-2.0
 *
 * run_intake: lines become samples that wait for the engine.
 *
 * Reading is done in small batches on the serial worker, only as far ahead as the engine needs, so that
 * memory does not grow with the shards and a commit never waits long behind it. Every line that is met has
 * one outcome: known as done or rejected, rejected now, or a sample in the ready list. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cmd/run_int.h"

/* A batch ends after so many lines or so much time, whichever is first: a commit may be waiting. */
#define BATCH_LINES 8192
#define BATCH_NS    INT64_C(50000000)
#define WANTED_MIN  16 /* samples that wait of each dataset */
#define ROOM_NS     250000000 /* between two looks whether a full disk has room again */
#define NAME_REJECTS 5 /* of each dataset in a run: they tell what is wrong, rejects.jsonl has the rest */

struct intake {
    struct run *run;
    struct dataset *ds;
    int n_want;
    struct sample_list ready;
    int64_t n_lines, n_rejects, n_skipped, extra_samples;
    int64_t n_forgotten; /* rejects of rows that were edited since */
    bool end;
    enum hr_status st;
    struct hr_err err;
};

void list_push(struct sample_list *l, struct sample *s) {
    s->prev = l->tail;
    s->next = NULL;
    if (l->tail) l->tail->next = s;
    else l->head = s;
    l->tail = s;
    l->n++;
}

void list_remove(struct sample_list *l, struct sample *s) {
    if (s->prev) s->prev->next = s->next;
    else l->head = s->next;
    if (s->next) s->next->prev = s->prev;
    else l->tail = s->prev;
    s->prev = s->next = NULL;
    l->n--;
}

static void row_unref(struct row *row) {
    if (--row->n_refs > 0) return;
    hr_record_finish(&row->record);
    hr_cmd_prompt_finish(&row->prompt);
    free(row);
}

void sample_free(struct sample *s) {
    row_unref(s->row);
    hr_ids_finish(&s->tokens);
    hr_ids_finish(&s->resumed);
    free(s);
}

void run_put_id(const struct row *row, struct hr_buf *out) {
    hr_buf_put_cut(out, row->record.id_json.data, row->record.id_json.len, HR_STORE_ID_MAX);
}

void run_key(const char *domain, const void *bytes, size_t len, int64_t a, int64_t b, uint8_t out[16]) {
    struct hr_sha256 h;
    uint8_t d[32];
    hr_sha256_init(&h);
    hr_sha256_update(&h, domain, strlen(domain) + 1);
    hr_sha256_update(&h, bytes, len);
    hr_sha256_update(&h, &a, sizeof a);
    hr_sha256_update(&h, &b, sizeof b);
    hr_sha256_final(&h, d);
    memcpy(out, d, 16);
}

/* A line that is half taken cannot be met again later, so a full disk is waited for in the midst of it;
 * what the store was told before is not lost by that. False: do not try again. */
static bool wait_for_room(const struct intake *in, enum hr_status st, bool *said) {
    if (st != HR_ERR_NOSPACE || atomic_load(&in->run->stop_workers)) return false;
    if (!*said) hr_warn("paused: %s; reading goes on when there is room", in->err.msg);
    *said = true;
    nanosleep(&(struct timespec){.tv_nsec = ROOM_NS}, NULL);
    return true;
}

static enum hr_status reject(struct intake *in, const uint8_t key[16], const struct hr_line *line,
                             const struct hr_buf *id_json, int64_t row, int sample, const char *reason) {
    struct hr_buf text = {0};
    bool known = false, said = false;
    enum hr_status st;
    const struct hr_manifest *m = in->ds->m;
    hr_record_write_reject(id_json, m->dataset, m->shards[line->i_shard], line->line_no,
                           row >= 0 ? sample : -1, reason, &text);
    do st = hr_store_reject(in->ds->store, key, row, sample, text.data, text.len, &known, &in->err);
    while (wait_for_room(in, st, &said));
    hr_buf_finish(&text);
    if (known) in->n_skipped++;
    else in->n_rejects++;
    if (st || known || atomic_load(&in->ds->n_named) >= NAME_REJECTS) return st;
    hr_warn("%s: %s:%lld rejected: %s", m->dataset, m->shards[line->i_shard], (long long)line->line_no, reason);
    atomic_fetch_add(&in->ds->n_named, 1);
    return HR_OK;
}

static enum hr_status reject_line(struct intake *in, const struct hr_line *line,
                                  const struct hr_buf *id_json, const char *reason) {
    uint8_t hash[16], key[16];
    const char *shard = in->ds->m->shards[line->i_shard];
    /* A line whose bytes are not there is known by its place. */
    if (line->too_long || line->torn) run_key("place", shard, strlen(shard), line->line_no, 0, hash);
    else run_key("line", line->p, line->len, 0, 0, hash);
    int occurrence = 0;
    bool said = false;
    enum hr_status st;
    do st = hr_store_see_line(in->ds->store, hash, &occurrence, &in->err);
    while (wait_for_room(in, st, &said));
    if (st) return st;
    run_key("reject", hash, sizeof hash, occurrence, 0, key);
    return reject(in, key, line, id_json, -1, -1, reason);
}

void run_describe_thinking(const struct dataset *ds, struct hr_buf *out) {
    hr_buf_puts(out, "between ");
    hr_buf_json_str(out, ds->think_open, strlen(ds->think_open)); /* it may hold a line's end */
    hr_buf_puts(out, " and ");
    hr_buf_json_str(out, ds->think_close, strlen(ds->think_close));
}

struct hr_preface run_preface(const struct dataset *ds, const struct hr_cmd_prompt *p) {
    const char *open = ds->think_open, *close = ds->think_close;
    if (!close) return (struct hr_preface){0};
    return (struct hr_preface){
        .open = open,
        .close = close,
        .open_len = strlen(open),
        .close_len = strlen(close),
        .begun = hr_think_is_begun(&p->rendered, open, strlen(open)),
    };
}

/* The arrays that hr_request wants are those of the row's resolved sampling. */
static void fill_request(const struct run *r, struct sample *s) {
    const struct row *row = s->row;
    const struct hr_sampling_spec *sp = &row->prompt.sampling;
    int past = 0;
    uint8_t stream[16];
    struct hr_err err;
    if (row->ds->past && hr_store_length(row->ds->past, row->record.ident, row->occurrence, s->index, &past, &err))
        hr_debug("%s: %s", r->opts.lengths_from, err.msg); /* a hint that cannot be had is none */
    run_key("stream", row->record.ident, 16, row->occurrence, s->index, stream);
    s->request = (struct hr_request){
        .user = s,
        .group = row->ds->group,
        .prompt = row->prompt.ids.data,
        .n_prompt = (int)row->prompt.ids.len,
        .resumed = s->resumed.data,
        .n_resumed = (int)s->resumed.len,
        .max_tokens = row->prompt.max_tokens,
        .n_expected = past ? past : (int)row->record.n_expected,
        .temperature = (float)sp->temperature,
        .top_p = (float)sp->top_p,
        .min_p = (float)sp->min_p,
        .repetition_penalty = (float)sp->repetition_penalty,
        .presence_penalty = (float)sp->presence_penalty,
        .frequency_penalty = (float)sp->frequency_penalty,
        .top_k = sp->top_k > INT32_MAX ? 0 : (int)sp->top_k,
        .seed = (uint64_t)sp->seed,
        .ignore_eos = sp->ignore_eos,
        .eos = r->text.eos_ids,
        .n_eos = r->text.n_eos,
        .stop_ids = sp->stop_token_ids.data,
        .n_stop_ids = (int)sp->stop_token_ids.len,
        .stop = (const char *const *)sp->stop,
        .stop_len = sp->stop_len,
        .n_stop = sp->n_stop,
        .preface = run_preface(row->ds, &row->prompt),
    };
    memcpy(&s->request.stream, stream, sizeof s->request.stream);
}

static enum hr_status add_sample(struct intake *in, struct row *row, int index) {
    struct sample *s = hr_xcalloc(1, sizeof *s);
    s->row = row;
    s->index = index;
    row->n_refs++;
    enum hr_status st = hr_store_journalled(in->ds->store, row->id, index, &s->resumed, &in->err);
    if (st) {
        sample_free(s);
        return st;
    }
    /* A row whose max_tokens shrank cannot be here: settings are compared first. */
    if ((int64_t)s->resumed.len > row->prompt.max_tokens) s->resumed.len = (size_t)row->prompt.max_tokens;
    hr_ids_append(&s->tokens, s->resumed.data, s->resumed.len);
    s->n_journalled = s->n_journalling = s->resumed.len;
    fill_request(in->run, s);
    list_push(&in->ready, s);
    return HR_OK;
}

/* Prepares the prompt of a row that has missing samples. *reason is set when the row cannot run. */
static enum hr_status prepare(struct intake *in, struct row *row, struct hr_err *reason) {
    const struct run *r = in->run;
    struct dataset *ds = in->ds;
    const struct hr_model_config *cfg = hr_model_file_config(r->mf);
    enum hr_status st = hr_cmd_prompt_make(&row->prompt, &row->record, ds->m, &ds->sampling, &r->text,
                                       cfg->n_ctx, cfg->n_vocab, &ds->now, reason);
    if (st) return st;
    int64_t need = (int64_t)row->prompt.ids.len + row->prompt.max_tokens;
    int64_t have = (int64_t)r->engine_opts.n_pages * HR_PAGE_TOKENS;
    if (need > have)
        return hr_err_set(reason, HR_ERR_LIMIT,
                          "prompt and answer may need %lld tokens of KV cache, which holds %lld; raise "
                          "--kv-tokens or lower max_tokens",
                          (long long)need, (long long)have);
    return HR_OK;
}

/* Samples of a row that nobody has finished yet: missing[i] is set. */
static enum hr_status find_missing(struct intake *in, int64_t row_id, int n_samples, bool *missing,
                                   int *n_missing) {
    for (int i = 0; i < n_samples; i++) {
        enum hr_sample_state state;
        enum hr_status st = hr_store_sample(in->ds->store, row_id, i, &state, &in->err);
        if (st) return st;
        missing[i] = state == HR_SAMPLE_MISSING;
        *n_missing += missing[i];
    }
    return HR_OK;
}

static enum hr_status reject_samples(struct intake *in, struct row *row, const struct hr_line *line,
                                     const bool *missing, int n, const char *reason) {
    for (int i = 0; i < n; i++) {
        uint8_t key[16];
        if (!missing[i]) continue;
        run_key("sample", row->record.ident, 16, row->occurrence, i, key);
        enum hr_status st = reject(in, key, line, &row->record.id_json, row->id, i, reason);
        if (st) return st;
    }
    return HR_OK;
}

static enum hr_status take_row(struct intake *in, struct row *row, const struct hr_line *line,
                               int n_samples) {
    bool *missing = hr_xcalloc((size_t)n_samples, sizeof *missing);
    int n_missing = 0;
    struct hr_err reason;
    enum hr_status st = find_missing(in, row->id, n_samples, missing, &n_missing);
    in->n_skipped += n_samples - n_missing;
    if (!st && n_missing > 0) {
        if (prepare(in, row, &reason)) st = reject_samples(in, row, line, missing, n_samples, reason.msg);
        else
            for (int i = 0; i < n_samples && !st; i++)
                if (missing[i]) st = add_sample(in, row, i);
    }
    free(missing);
    return st;
}

static enum hr_status take_line(struct intake *in, const struct hr_line *line) {
    struct dataset *ds = in->ds;
    struct hr_record *rec = &ds->intake_record;
    struct hr_err reason;
    if (line->too_long)
        return reject_line(in, line, NULL, "the line is longer than 16 MiB");
    if (line->torn) return reject_line(in, line, NULL, line->p);
    if (hr_record_parse(rec, ds->m, line->p, line->len, &reason))
        return reject_line(in, line, rec->id_json.len ? &rec->id_json : NULL, reason.msg);
    int n_samples = (int)(rec->sampling.has_n ? rec->sampling.n : ds->sampling.n);
    in->extra_samples += n_samples - 1;
    struct hr_store_seen seen;
    enum hr_status st;
    bool said = false;
    do st = hr_store_see(ds->store, rec->ident, rec->content, hr_buf_cstr(&rec->id_json), n_samples, &seen,
                         &in->err);
    while (wait_for_room(in, st, &said));
    if (st) {
        const char *shard = ds->m->shards[line->i_shard];
        return hr_err_prefix(&in->err, "%s:%lld", shard, (long long)line->line_no);
    }
    in->n_forgotten += seen.n_forgotten;
    if (seen.duplicate_of_done) { /* the store has just looked at every sample */
        in->n_skipped += n_samples;
        return HR_OK;
    }
    struct row *row = hr_xcalloc(1, sizeof *row);
    row->n_refs = 1; /* ours, until the samples have theirs */
    row->ds = ds;
    row->id = seen.row;
    row->i_shard = line->i_shard;
    row->line_no = line->line_no;
    row->occurrence = seen.occurrence;
    row->record = *rec;
    *rec = (struct hr_record){0};
    st = take_row(in, row, line, n_samples);
    row_unref(row);
    return st;
}

static void intake_work(void *arg) {
    struct intake *in = arg;
    struct dataset *ds = in->ds;
    int64_t deadline = hr_clock_ns() + BATCH_NS;
    for (int n = 0; n < BATCH_LINES && in->ready.n < in->n_want; n++) {
        struct hr_line line;
        bool more = true;
        if (in->run->opts.limit >= 0 && ds->n_lines >= in->run->opts.limit) more = false;
        else in->st = hr_shard_next(ds->reader, &line, &more, &in->err);
        if (in->st) break;
        in->end = !more;
        if (in->end) break;
        ds->n_lines++;
        in->n_lines++;
        if ((in->st = take_line(in, &line)) || (n % 64 == 63 && hr_clock_ns() > deadline)) break;
    }
    /* Rejects and seen rows of a batch become durable together. */
    if (!in->st) in->st = hr_store_flush(ds->store, &in->err);
}

static void intake_done(void *arg) {
    struct intake *in = arg;
    struct run *r = in->run;
    struct dataset *ds = in->ds;
    r->intake_out = false;
    while (in->ready.head) {
        struct sample *s = in->ready.head;
        list_remove(&in->ready, s);
        if (s->resumed.len) {
            ds->resumed_rows++;
            ds->resumed_tokens += (int64_t)s->resumed.len;
            ds->counters.resumed_tokens += (int64_t)s->resumed.len;
        }
        list_push(&ds->ready, s);
    }
    ds->rejects += in->n_rejects - in->n_forgotten;
    ds->counters.rejects += in->n_rejects;
    ds->n_skipped += in->n_skipped;
    ds->n_met += in->n_lines;
    ds->extra_samples += in->extra_samples;
    if (in->end && !in->st) ds->input_done = true;
    if (in->st == HR_ERR_NOSPACE || in->st == HR_ERR_LOCKED) run_write_failed(r, in->st, &in->err);
    else if (in->st) run_fail(r, &in->err);
    else run_space_again(r);
    free(in);
    run_pump(r);
}

/* Samples that may wait besides those that run: enough for the engine to go on while a slow commit keeps
 * the serial worker from reading. Several datasets share them. */
int run_intake_window(const struct run *r) {
    int n = 2 * r->engine_opts.max_running;
    return n < 64 ? 64 : n;
}

/* Samples of the dataset that wait for the engine or in it; canaries are as much memory. */
static int n_waiting(const struct dataset *ds) {
    struct hr_engine_stats st;
    struct hr_engine_group_stats g = {0};
    if (ds->run->engine) hr_engine_get_stats(ds->run->engine, &st, ds->group, &g);
    int running = g.n_running < ds->flying.n ? (int)g.n_running : ds->flying.n;
    return ds->ready.n + ds->flying.n - running + ds->canaries.n;
}

/* Its share of the window, by the work it has left of `all` that is still to be read; a few at least, for it may be the only one that may start
 * rows: others may be near their caps. */
static int n_wanted(const struct dataset *ds, double all) {
    const struct run *r = ds->run;
    int n = (int)ceil((double)run_intake_window(r) * (double)run_work_left(ds) / all);
    int few = r->engine_opts.max_running < WANTED_MIN ? r->engine_opts.max_running : WANTED_MIN;
    return n > few ? n : few;
}

/* Reads on in the dataset that lacks the greatest part of what it wants. */
void run_start_intake(struct run *r) {
    struct dataset *next = NULL;
    int n_next = 0;
    double most = 0, all = 0;
    if (r->intake_out || r->stopping || (r->no_space && hr_clock_ns() < r->retry_ns)) return;
    for (int i = 0; i < r->n_datasets; i++)
        if (!r->datasets[i].input_done) all += (double)run_work_left(&r->datasets[i]);
    for (int i = 0; i < r->n_datasets; i++) {
        struct dataset *ds = &r->datasets[i];
        if (ds->input_done) continue;
        int wanted = n_wanted(ds, all), missing = wanted - n_waiting(ds);
        if ((double)missing / wanted <= most) continue;
        most = (double)missing / wanted;
        next = ds;
        n_next = missing;
    }
    if (!next) return;
    struct intake *in = hr_xcalloc(1, sizeof *in);
    in->run = r;
    in->ds = next;
    in->n_want = n_next;
    r->intake_out = true;
    hr_loop_serial(r->loop, intake_work, intake_done, in);
}

/* ---- how many rows there are, for the bar and the ETA ------------------------------------------- */

struct counting {
    struct run *run;
    struct dataset *ds;
    int64_t n;
    enum hr_status st;
};

static void count_work(void *arg) {
    struct counting *c = arg;
    const struct hr_manifest *m = c->ds->m;
    int64_t max = c->run->opts.limit > 0 ? c->run->opts.limit : 0;
    struct hr_err err; /* the reader will say it where it matters */
    c->st = hr_shard_count(m->shards, m->n_shards, max, (const volatile bool *)&c->run->stop_workers, &c->n,
                           &err);
}

static void start_count(struct run *r, int i);

static void count_done(void *arg) {
    struct counting *c = arg;
    if (!c->st) c->ds->rows_total = c->n;
    if (!c->st && c->ds->group + 1 < c->run->n_datasets) start_count(c->run, c->ds->group + 1);
    free(c);
}

/* One dataset at a time: more of them would keep all workers from the rows. */
static void start_count(struct run *r, int i) {
    struct counting *c = hr_xcalloc(1, sizeof *c);
    c->run = r;
    c->ds = &r->datasets[i];
    hr_loop_work(r->loop, count_work, count_done, c);
}

void run_start_counting(struct run *r) {
    start_count(r, 0);
}

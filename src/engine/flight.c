/* SPDX-License-Identifier: Apache-2.0
 *
 * flight: stop rules and sampler memory of one request; see flight.h. */
#include "engine/flight.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/rng.h"

static bool contains(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* Counts a token of the prompt (add 0) or of the completion (add 1). */
static void see(struct hr_flight *f, int32_t token, int add) {
    if (!f->seen) return;
    int lo = 0, hi = f->n_seen;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (f->seen[mid] < token) lo = mid + 1;
        else hi = mid;
    }
    if (lo == f->n_seen || f->seen[lo] != token) {
        size_t n = (size_t)(f->n_seen - lo) * sizeof *f->seen;
        memmove(f->seen + lo + 1, f->seen + lo, n);
        memmove(f->seen_count + lo + 1, f->seen_count + lo, n);
        f->seen[lo] = token;
        f->seen_count[lo] = 0;
        f->n_seen++;
    }
    f->seen_count[lo] += add;
}

static int compare_ids(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void see_prompt(struct hr_flight *f) {
    const struct hr_request *r = f->request;
    memcpy(f->seen, r->prompt, (size_t)r->n_prompt * sizeof *f->seen);
    qsort(f->seen, (size_t)r->n_prompt, sizeof *f->seen, compare_ids);
    for (int i = 0; i < r->n_prompt; i++)
        if (f->n_seen == 0 || f->seen[f->n_seen - 1] != f->seen[i]) f->seen[f->n_seen++] = f->seen[i];
    memset(f->seen_count, 0, (size_t)f->n_seen * sizeof *f->seen_count);
}

struct hr_flight *hr_flight_create(struct hr_request *r, const struct hr_engine_bytes *bytes) {
    HR_ASSERT(r->n_prompt > 0 && r->max_tokens > 0 && r->n_resumed <= r->max_tokens);
    HR_ASSERT(!r->canary || (r->n_resumed == 0 && r->n_canary > 0 && r->n_canary <= r->max_tokens));
    struct hr_flight *f = hr_xcalloc(1, sizeof *f);
    size_t n_max = (size_t)r->n_prompt + (size_t)r->max_tokens;
    f->request = r;
    f->tokens = hr_xmalloc(n_max * sizeof *f->tokens);
    memcpy(f->tokens, r->prompt, (size_t)r->n_prompt * sizeof *f->tokens);
    f->seq = (struct hr_seq){
        .user = f,
        .group = r->group,
        .tokens = f->tokens,
        .n_tokens = r->n_prompt,
        .n_prompt = r->n_prompt,
        .n_max = (int)n_max,
        .cold = r->canary != NULL,
        .n_expected = r->n_expected < r->max_tokens ? r->n_expected : r->max_tokens,
    };
    /* Nothing but max_tokens can end it. */
    if (r->ignore_eos && r->n_stop == 0 && r->n_stop_ids == 0) f->seq.n_expected = r->max_tokens;
    hr_scan_init(&f->scan, r, bytes, f->tokens + r->n_prompt);
    if (r->repetition_penalty != 1 || r->presence_penalty != 0 || r->frequency_penalty != 0) {
        f->seen = hr_xmalloc(n_max * sizeof *f->seen);
        f->seen_count = hr_xmalloc(n_max * sizeof *f->seen_count);
        see_prompt(f);
    }
    for (int i = 0; i < r->n_resumed && !f->finished; i++) hr_flight_push(f, r->resumed[i]);
    return f;
}

void hr_flight_destroy(struct hr_flight **pf) {
    struct hr_flight *f = *pf;
    if (!f) return;
    free(f->tokens);
    hr_scan_finish(&f->scan);
    free(f->seen);
    free(f->seen_count);
    free(f);
    *pf = NULL;
}

static void finish(struct hr_flight *f, enum hr_finish how) {
    const struct hr_scan *s = &f->scan;
    bool stops = how == HR_FINISH_STOP_STRING, has_preface = s->preface_begin >= 0;
    f->finished = true;
    f->end = (struct hr_event){
        .kind = HR_EVENT_FINISH,
        .request = f->request,
        .finish = how,
        .stop_index = stops ? s->stop_index : -1,
        .n_tokens = f->seq.n_tokens - f->seq.n_prompt,
        .n_bytes = stops ? s->stop_at : s->n_bytes,
        .has_preface = has_preface,
        .preface_begin = has_preface ? s->preface_begin : 0,
        .preface_end = has_preface ? s->preface_end : 0,
        .answer_begin = has_preface ? s->answer_begin : 0,
    };
}

void hr_flight_push(struct hr_flight *f, int32_t token) {
    HR_ASSERT(!f->finished && f->seq.n_tokens < f->seq.n_max);
    const struct hr_request *r = f->request;
    int n = f->seq.n_tokens - f->seq.n_prompt; /* tokens before this one */
    f->tokens[f->seq.n_tokens++] = token;
    see(f, token, 1);
    bool is_eos = !r->ignore_eos && contains(r->eos, r->n_eos, token);
    bool is_stop = is_eos || contains(r->stop_ids, r->n_stop_ids, token);
    bool is_last = is_stop || f->seq.n_tokens == f->seq.n_max;
    bool stops = !is_stop && hr_scan_push(&f->scan, n);
    if (is_last && !stops) stops = hr_scan_end(&f->scan, is_stop ? n : n + 1);
    if (stops) finish(f, HR_FINISH_STOP_STRING);
    else if (is_last) finish(f, is_eos ? HR_FINISH_EOS : is_stop ? HR_FINISH_STOP_ID : HR_FINISH_LENGTH);
}

void hr_flight_sample_row(const struct hr_flight *f, struct hr_sample_row *row) {
    const struct hr_request *r = f->request;
    int n_completion = f->seq.n_tokens - f->seq.n_prompt;
    *row = (struct hr_sample_row){
        .temperature = r->temperature,
        .top_p = r->top_p,
        .min_p = r->min_p,
        .top_k = r->top_k,
        .repetition_penalty = r->repetition_penalty,
        .presence_penalty = r->presence_penalty,
        .frequency_penalty = r->frequency_penalty,
        .uniform = hr_rng_uniform(r->seed, r->stream, (uint64_t)n_completion),
        .n_seen = f->n_seen,
        .seen = f->seen,
        .seen_count = f->seen_count,
    };
}

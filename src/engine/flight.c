/* SPDX-License-Identifier: Apache-2.0
 *
 * flight: stop rules and sampler memory of one request; see flight.h. */
#include "engine/flight.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/rng.h"

/* What the token adds where the completion stands now. */
static size_t token_text(struct hr_flight *f, const struct hr_engine_bytes *b, int32_t token, const char **p) {
    if (token < 0 || token >= b->n_tokens || (b->hidden && b->hidden[token])) return 0;
    bool first = !f->started && b->first_offset;
    const uint32_t *offset = first ? b->first_offset : b->offset;
    *p = (const char *)(first ? b->first_bytes : b->bytes) + offset[token];
    f->started = true;
    return offset[token + 1] - offset[token];
}

/* How many of these bytes are stripped from the front of the completion. */
static size_t strip(struct hr_flight *f, const struct hr_engine_bytes *b, const char *p, size_t len) {
    size_t n = 0;
    while (n < len && f->n_strip > 0 && (uint8_t)p[n] == b->strip) n++, f->n_strip--;
    if (n < len) f->n_strip = 0;
    return n;
}

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
    f->n_strip = bytes->n_strip;
    for (int i = 0; i < r->n_stop; i++) {
        HR_ASSERT(r->stop_len[i] > 0);
        if (r->stop_len[i] > f->stop_len_max) f->stop_len_max = r->stop_len[i];
    }
    if (f->stop_len_max > 0) {
        size_t longest = 0;
        for (int i = 0; i < bytes->n_tokens; i++) {
            size_t n = bytes->offset[i + 1] - bytes->offset[i];
            if (n > longest) longest = n;
        }
        f->tail = hr_xmalloc(f->stop_len_max + longest);
    }
    if (r->repetition_penalty != 1 || r->presence_penalty != 0 || r->frequency_penalty != 0) {
        f->seen = hr_xmalloc(n_max * sizeof *f->seen);
        f->seen_count = hr_xmalloc(n_max * sizeof *f->seen_count);
        see_prompt(f);
    }
    for (int i = 0; i < r->n_resumed && !f->finished; i++) hr_flight_push(f, r->resumed[i], bytes);
    return f;
}

void hr_flight_destroy(struct hr_flight **pf) {
    struct hr_flight *f = *pf;
    if (!f) return;
    free(f->tokens);
    free(f->tail);
    free(f->seen);
    free(f->seen_count);
    free(f);
    *pf = NULL;
}

static void finish(struct hr_flight *f, enum hr_finish how, int stop_index, int64_t n_bytes) {
    f->finished = true;
    f->end = (struct hr_event){
        .kind = HR_EVENT_FINISH,
        .request = f->request,
        .finish = how,
        .stop_index = stop_index,
        .n_tokens = f->seq.n_tokens - f->seq.n_prompt,
        .n_bytes = n_bytes,
    };
}

/* Appends a token's bytes to the tail and looks for stop strings that end in them. Returns the index of
 * the one that begins leftmost and *begin, its offset in the tail; -1 for none. */
static int find_stop(struct hr_flight *f, const char *p, size_t len, size_t *begin) {
    const struct hr_request *r = f->request;
    size_t keep = f->stop_len_max - 1; /* older bytes cannot be part of a new match */
    if (f->tail_len > keep) {
        memmove(f->tail, f->tail + f->tail_len - keep, keep);
        f->tail_len = keep;
    }
    memcpy(f->tail + f->tail_len, p, len);
    f->tail_len += len;
    int found = -1;
    for (int i = 0; i < r->n_stop; i++) {
        const char *at = memmem(f->tail, f->tail_len, r->stop[i], r->stop_len[i]);
        if (!at || (found >= 0 && (size_t)(at - f->tail) >= *begin)) continue;
        *begin = (size_t)(at - f->tail);
        found = i;
    }
    return found;
}

void hr_flight_push(struct hr_flight *f, int32_t token, const struct hr_engine_bytes *bytes) {
    HR_ASSERT(!f->finished && f->seq.n_tokens < f->seq.n_max);
    const struct hr_request *r = f->request;
    f->tokens[f->seq.n_tokens++] = token;
    see(f, token, 1);
    if (!r->ignore_eos && contains(r->eos, r->n_eos, token)) {
        finish(f, HR_FINISH_EOS, -1, f->n_bytes);
        return;
    }
    if (contains(r->stop_ids, r->n_stop_ids, token)) {
        finish(f, HR_FINISH_STOP_ID, -1, f->n_bytes);
        return;
    }
    const char *text = NULL;
    size_t len = token_text(f, bytes, token, &text), skip = strip(f, bytes, text, len);
    f->n_bytes += (int64_t)len;
    if (f->stop_len_max > 0 && len > skip) {
        size_t begin = 0;
        int i = find_stop(f, text + skip, len - skip, &begin);
        if (i >= 0) {
            finish(f, HR_FINISH_STOP_STRING, i, f->n_bytes - (int64_t)(f->tail_len - begin));
            return;
        }
    }
    if (f->seq.n_tokens == f->seq.n_max) finish(f, HR_FINISH_LENGTH, -1, f->n_bytes);
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

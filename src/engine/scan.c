/* SPDX-License-Identifier: Apache-2.0
 *
 * scan: the stages of a completion's bytes; see scan.h.
 *
 * FRONT: it is open whether there is a preface. PREFACE: in it, looking for its end. ANSWER: behind it, or
 * there is none; stop strings are looked for. In the first two a hidden token counts with its bytes where
 * they go on with a tag or begin one (a model's tags are often such tokens); elsewhere it is passed over, for
 * it is not in the text whose reader sees the tag. In the last hidden tokens do not count. */
#include "engine/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

struct piece {
    const char *p;
    size_t len;
    bool hidden;
};

static struct piece piece_of(const struct hr_scan *s, int i) {
    const struct hr_engine_bytes *b = s->bytes;
    int32_t id = s->tokens[i];
    if (id < 0 || id >= b->n_tokens) return (struct piece){.hidden = true};
    bool first = i == s->i_first && b->first_offset;
    const uint32_t *offset = first ? b->first_offset : b->offset;
    return (struct piece){
        .p = (const char *)(first ? b->first_bytes : b->bytes) + offset[id],
        .len = offset[id + 1] - offset[id],
        .hidden = b->hidden && b->hidden[id],
    };
}

static size_t longest_token(const struct hr_engine_bytes *b) {
    size_t longest = 0;
    for (int i = 0; i < b->n_tokens; i++) {
        size_t n = b->offset[i + 1] - b->offset[i];
        size_t n_first = b->first_offset ? b->first_offset[i + 1] - b->first_offset[i] : 0;
        if (n > longest) longest = n;
        if (n_first > longest) longest = n_first;
    }
    return longest;
}

static void restart(struct hr_scan *s, enum hr_scan_stage stage) {
    s->stage = stage;
    s->i_first = -1;
    s->n_strip = s->bytes->n_strip;
    s->n_open = s->tail_len = 0;
    s->n_bytes = 0;
    s->preface_begin = stage == HR_SCAN_PREFACE ? 0 : -1;
}

void hr_scan_init(struct hr_scan *s, const struct hr_request *r, const struct hr_engine_bytes *bytes,
                  const int32_t *tokens) {
    *s = (struct hr_scan){.request = r, .bytes = bytes, .tokens = tokens, .stop_index = -1};
    HR_ASSERT(!r->preface.close || (r->preface.open_len > 0 && r->preface.close_len > 0));
    for (int i = 0; i < r->n_stop; i++) {
        HR_ASSERT(r->stop_len[i] > 0);
        if (r->stop_len[i] > s->stop_len_max) s->stop_len_max = r->stop_len[i];
    }
    size_t keep = r->preface.close && r->preface.close_len > s->stop_len_max ? r->preface.close_len
                                                                             : s->stop_len_max;
    if (keep > 0) {
        size_t n = keep + longest_token(bytes);
        s->tail = hr_xmalloc(n);
        s->tail_hidden = hr_xmalloc(n * sizeof *s->tail_hidden);
    }
    restart(s, r->preface.close ? HR_SCAN_FRONT : HR_SCAN_ANSWER);
}

void hr_scan_finish(struct hr_scan *s) {
    free(s->tail);
    free(s->tail_hidden);
    *s = (struct hr_scan){0};
}

/* How many of a token's bytes are stripped from the front of the completion. */
static size_t strip(struct hr_scan *s, const struct piece *t) {
    size_t n = 0;
    while (n < t->len && s->n_strip > 0 && (uint8_t)t->p[n] == s->bytes->strip) n++, s->n_strip--;
    if (n < t->len) s->n_strip = 0;
    return n;
}

/* Appends bytes to the tail, of which `keep` older ones stay: more cannot be part of a new match. */
static void push_tail(struct hr_scan *s, size_t keep, const char *p, size_t len, bool hidden) {
    if (s->tail_len > keep) {
        memmove(s->tail, s->tail + s->tail_len - keep, keep);
        memmove(s->tail_hidden, s->tail_hidden + s->tail_len - keep, keep * sizeof *s->tail_hidden);
        s->tail_len = keep;
    }
    memcpy(s->tail + s->tail_len, p, len);
    for (size_t i = 0; i < len; i++) s->tail_hidden[s->tail_len + i] = hidden;
    s->tail_len += len;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* True when the preface's first tag is complete, *from bytes of this token included. *is_none: it cannot be
 * there any more; so too when a hidden token is the end of a preface that the prompt has begun. */
static bool match_open(struct hr_scan *s, const struct piece *t, size_t *from, bool *is_none) {
    const struct hr_preface *q = &s->request->preface;
    size_t n_open = s->n_open;
    for (*from = 0; *from < t->len; ++*from) {
        char c = t->p[*from];
        if (n_open == 0 && is_space(c)) continue;
        if (c != q->open[n_open]) {
            *is_none = !t->hidden || (q->begun && memmem(t->p, t->len, q->close, q->close_len));
            return false;
        }
        if (++n_open < q->open_len) continue;
        ++*from;
        s->stage = HR_SCAN_PREFACE;
        s->preface_begin = s->n_bytes - (t->hidden ? 0 : (int64_t)(t->len - *from));
        s->tail_len = 0;
        return true;
    }
    s->n_open = n_open;
    return false;
}

/* The place in n_bytes of the tail's byte i. */
static int64_t place_in_tail(const struct hr_scan *s, size_t i) {
    int64_t place = s->n_bytes;
    for (; i < s->tail_len; i++) place -= !s->tail_hidden[i];
    return place;
}

/* Does the tail end in a beginning of the last tag? */
static bool ends_in_close(const struct hr_scan *s) {
    const struct hr_preface *q = &s->request->preface;
    size_t n = q->close_len - 1 < s->tail_len ? q->close_len - 1 : s->tail_len;
    while (n > 0 && memcmp(s->tail + s->tail_len - n, q->close, n) != 0) n--;
    return n > 0;
}

/* True when the preface ends in this token, whose first *from bytes (before: already taken; after: too) are
 * not of the answer. */
static bool match_close(struct hr_scan *s, const struct piece *t, size_t *from) {
    const struct hr_preface *q = &s->request->preface;
    size_t n = t->len - *from;
    push_tail(s, q->close_len - 1, t->p + *from, n, t->hidden);
    const char *at = memmem(s->tail, s->tail_len, q->close, q->close_len);
    if (!at) {
        if (t->hidden && !ends_in_close(s)) s->tail_len -= n;
        return false;
    }
    size_t begin = (size_t)(at - s->tail), end = begin + q->close_len;
    s->preface_end = place_in_tail(s, begin);
    s->answer_begin = place_in_tail(s, end);
    s->stage = HR_SCAN_ANSWER;
    *from = t->len - (s->tail_len - end);
    s->tail_len = 0;
    return true;
}

/* Looks for stop strings that end in these bytes: the one that begins leftmost, ties by list order. */
static bool match_stop(struct hr_scan *s, const char *p, size_t len) {
    const struct hr_request *r = s->request;
    if (s->stop_len_max == 0 || len == 0) return false;
    push_tail(s, s->stop_len_max - 1, p, len, false);
    size_t begin = 0;
    for (int i = 0; i < r->n_stop; i++) {
        const char *at = memmem(s->tail, s->tail_len, r->stop[i], r->stop_len[i]);
        if (!at || (s->stop_index >= 0 && (size_t)(at - s->tail) >= begin)) continue;
        begin = (size_t)(at - s->tail);
        s->stop_index = i;
    }
    if (s->stop_index < 0) return false;
    s->stop_at = s->n_bytes - (int64_t)(s->tail_len - begin);
    return true;
}

/* There is no first tag: a preface that has begun before the completion began with it, else there is
 * none. The first n tokens are taken again. */
static bool decide(struct hr_scan *s, int n) {
    restart(s, s->request->preface.begun ? HR_SCAN_PREFACE : HR_SCAN_ANSWER);
    for (int i = 0; i < n; i++)
        if (hr_scan_push(s, i)) return true;
    return false;
}

bool hr_scan_push(struct hr_scan *s, int i) {
    bool is_none = false;
    size_t from = 0, n_stripped = 0;
    struct piece t = piece_of(s, i);
    if (!t.hidden) {
        if (s->i_first < 0) s->i_first = i;
        t = piece_of(s, i);
        s->n_bytes += (int64_t)t.len;
        n_stripped = strip(s, &t);
    }
    if (s->stage == HR_SCAN_FRONT && !match_open(s, &t, &from, &is_none)) return is_none && decide(s, i + 1);
    if (s->stage == HR_SCAN_PREFACE && !match_close(s, &t, &from)) return false;
    if (t.hidden) return false;
    if (from < n_stripped) from = n_stripped;
    return match_stop(s, t.p + from, t.len - from);
}

bool hr_scan_end(struct hr_scan *s, int n) {
    bool stops = s->stage == HR_SCAN_FRONT && decide(s, n);
    if (s->stage == HR_SCAN_PREFACE) s->preface_end = s->answer_begin = s->n_bytes;
    return stops;
}

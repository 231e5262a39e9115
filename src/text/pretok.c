/* SPDX-License-Identifier: Apache-2.0
 *
 * pretok: the steps.
 *
 * One step reads the pieces of the step before and writes new ones, always in the order of the text
 * and never empty. A split is done in two halves, as in the reference: the matches and the gaps
 * between them cover a piece; then the behaviour says which of them are glued, kept or dropped. The
 * hand-written splitters have no gaps, so they write pieces at once. */
#include "text/pretok.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "text/uniclass.h"

const uint16_t hr_byte_alphabet[256] = {
    256, 257, 258, 259, 260, 261, 262, 263, 264, 265, 266, 267, 268, 269, 270, 271, 272, 273, 274,
    275, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 33,  34,  35,  36,  37,
    38,  39,  40,  41,  42,  43,  44,  45,  46,  47,  48,  49,  50,  51,  52,  53,  54,  55,  56,
    57,  58,  59,  60,  61,  62,  63,  64,  65,  66,  67,  68,  69,  70,  71,  72,  73,  74,  75,
    76,  77,  78,  79,  80,  81,  82,  83,  84,  85,  86,  87,  88,  89,  90,  91,  92,  93,  94,
    95,  96,  97,  98,  99,  100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113,
    114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 289, 290, 291, 292, 293, 294,
    295, 296, 297, 298, 299, 300, 301, 302, 303, 304, 305, 306, 307, 308, 309, 310, 311, 312, 313,
    314, 315, 316, 317, 318, 319, 320, 321, 322, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170,
    171, 172, 323, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189,
    190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208,
    209, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225, 226, 227,
    228, 229, 230, 231, 232, 233, 234, 235, 236, 237, 238, 239, 240, 241, 242, 243, 244, 245, 246,
    247, 248, 249, 250, 251, 252, 253, 254, 255,
};

/* The bytes without a printable character of their own got U+0100 and up, in order: 0..32, 127..160
 * and 173. */
int hr_byte_of_char(uint32_t cp) {
    if (cp < 256) return hr_byte_alphabet[cp] == cp ? (int)cp : -1;
    if (cp < 256 + 33) return (int)cp - 256;
    if (cp < 256 + 67) return (int)cp - (256 + 33) + 127;
    return cp == 256 + 67 ? 173 : -1;
}

void hr_pretok_finish(struct hr_pretok *p) {
    for (int i = 0; i < p->n_steps; i++) {
        hr_regex_destroy(&p->steps[i].regex);
        free(p->steps[i].literal);
    }
    free(p->steps);
    *p = (struct hr_pretok){0};
}

enum hr_status hr_pretok_add(struct hr_pretok *p, struct hr_pretok_step step, struct hr_err *err) {
    bool rewrites = step.type == HR_PRETOK_METASPACE || step.type == HR_PRETOK_BYTE_LEVEL;
    p->steps = hr_xrealloc(p->steps, (size_t)(p->n_steps + 1) * sizeof *p->steps);
    step.mapped = p->mapped;
    p->steps[p->n_steps++] = step;
    if (p->mapped && rewrites) {
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "pre_tokenizer: ByteLevel or Metaspace after ByteLevel is not supported");
    }
    if (step.type == HR_PRETOK_BYTE_LEVEL) p->mapped = true;
    return HR_OK;
}

enum hr_status hr_pretok_add_regex(struct hr_pretok *p, const char *pattern, size_t len,
                                   enum hr_split_behavior behavior, bool invert,
                                   struct hr_err *err) {
    struct hr_pretok_step step = {.type = HR_PRETOK_SPLIT, .behavior = behavior, .invert = invert};
    bool keeps_all = behavior == HR_SPLIT_ISOLATED || (behavior == HR_SPLIT_REMOVED && invert);
    if (!p->mapped && keeps_all) step.fn = hr_splitter_find(pattern, len);
    if (!step.fn) {
        enum hr_status st = hr_regex_compile(pattern, len, &step.regex, err);
        if (st) return st;
    }
    return hr_pretok_add(p, step, err);
}

void hr_pieces_finish(struct hr_pieces *p) {
    free(p->spans);
    free(p->prev);
    free(p->is_match);
    hr_buf_finish(&p->own);
    hr_buf_finish(&p->spare);
    hr_buf_finish(&p->regex.stack);
    *p = (struct hr_pieces){0};
}

static inline void add(struct hr_pieces *p, size_t begin, size_t end) {
    if (begin == end) return;
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 64;
        p->spans = hr_xrealloc(p->spans, p->cap * sizeof *p->spans);
    }
    p->spans[p->n++] = (struct hr_span){begin, end};
}

/* A part of a piece while it is split: pieces[n_first..] hold the parts, is_match their kind. */
static void add_part(struct hr_pieces *p, size_t n_first, size_t begin, size_t end, bool match) {
    size_t k = p->n - n_first;
    if (begin == end) return;
    if (k == p->match_cap) {
        p->match_cap = p->match_cap ? p->match_cap * 2 : 64;
        p->is_match = hr_xrealloc(p->is_match, p->match_cap);
    }
    p->is_match[k] = match;
    add(p, begin, end);
}

static void glue_previous(struct hr_span *v, const uint8_t *match, size_t *n) {
    size_t k = 0;
    bool was_match = false;
    for (size_t i = 0; i < *n; i++) {
        if (match[i] && !was_match && k > 0)
            v[k - 1].end = v[i].end;
        else
            v[k++] = v[i];
        was_match = match[i];
    }
    *n = k;
}

static void glue_next(struct hr_span *v, const uint8_t *match, size_t *n) {
    size_t k = 0;
    for (size_t i = 0; i < *n; i++) {
        bool follower_gap = i + 1 < *n && !match[i + 1];
        if (match[i] && follower_gap)
            v[i + 1].begin = v[i].begin;
        else
            v[k++] = v[i];
    }
    *n = k;
}

/* Turns the parts from n_first on into pieces. */
static void behave(struct hr_pieces *p, size_t n_first, enum hr_split_behavior behavior) {
    struct hr_span *v = p->spans + n_first;
    size_t n = p->n - n_first, k = 0;
    switch (behavior) {
    case HR_SPLIT_ISOLATED:
        return;
    case HR_SPLIT_REMOVED:
        for (size_t i = 0; i < n; i++)
            if (!p->is_match[i]) v[k++] = v[i];
        n = k;
        break;
    case HR_SPLIT_CONTIGUOUS:
        for (size_t i = 0; i < n; i++) {
            if (k > 0 && p->is_match[i] == p->is_match[i - 1])
                v[k - 1].end = v[i].end;
            else
                v[k++] = v[i];
        }
        n = k;
        break;
    case HR_SPLIT_MERGED_PREVIOUS:
        glue_previous(v, p->is_match, &n);
        break;
    case HR_SPLIT_MERGED_NEXT:
        glue_next(v, p->is_match, &n);
        break;
    }
    p->n = n_first + n;
}

static bool find_literal(const char *s, size_t len, size_t from, const char *lit, size_t n,
                         size_t *begin, size_t *end) {
    const char *hit = n && from < len ? memmem(s + from, len - from, lit, n) : NULL;
    if (!hit) return false;
    *begin = (size_t)(hit - s);
    *end = *begin + n;
    return true;
}

static void split_by(struct hr_pieces *p, const struct hr_pretok_step *step, struct hr_span piece) {
    size_t n_first = p->n, done = 0, from = 0, begin, end, last_end = SIZE_MAX;
    const char *s = p->s + piece.begin;
    size_t len = piece.end - piece.begin;
    struct hr_regex_text text = {s, len, step->mapped ? hr_byte_alphabet : NULL};
    while (from <= len) {
        bool found = step->regex ? hr_regex_find(step->regex, &text, from, &p->regex, &begin, &end)
                                 : find_literal(s, len, from, step->literal, step->literal_len,
                                                &begin, &end);
        if (!found) break;
        if (begin ==
            end) { /* an empty match: cuts here, then the search goes on one character later */
            if (end == len) break;
            int n = 1;
            if (!step->mapped) hr_utf8_get(s + end, &n);
            from = end + (size_t)n;
            if (begin == last_end) continue;
        } else {
            from = end;
        }
        last_end = end;
        add_part(p, n_first, piece.begin + done, piece.begin + begin, step->invert);
        add_part(p, n_first, piece.begin + begin, piece.begin + end, !step->invert);
        done = end;
    }
    add_part(p, n_first, piece.begin + done, piece.end, step->invert);
    behave(p, n_first, step->behavior);
}

static void split_fast(struct hr_pieces *p, hr_split_fn fn, struct hr_span piece) {
    const char *s = p->s + piece.begin;
    size_t len = piece.end - piece.begin;
    for (size_t pos = 0, end; pos < len; pos = end) {
        end = fn(s, len, pos);
        add(p, piece.begin + pos, piece.begin + end);
    }
}

/* Splits by a property of single characters; `each`: a match is one character, not a run. */
static void split_where(struct hr_pieces *p, const struct hr_pretok_step *step,
                        struct hr_span piece, bool (*is)(uint32_t cp), bool each,
                        enum hr_split_behavior behavior) {
    size_t n_first = p->n, begin = piece.begin, pos = piece.begin;
    bool was = false;
    while (pos < piece.end) {
        int n = 1;
        uint32_t cp =
            step->mapped ? hr_byte_alphabet[(unsigned char)p->s[pos]] : hr_utf8_get(p->s + pos, &n);
        bool now = is(cp);
        if (now != was || (now && each)) {
            add_part(p, n_first, begin, pos, was);
            begin = pos;
        }
        was = now;
        pos += (size_t)n;
    }
    add_part(p, n_first, begin, piece.end, was);
    behave(p, n_first, behavior);
}

static bool is_numeric(uint32_t cp) {
    return hr_uni_props(cp) & HR_UNI_NUMERIC;
}
static bool is_white(uint32_t cp) {
    return hr_uni_is_space(cp);
}

/* \w+|[^\w\s]+ as Rust's regex crate reads it. */
static void split_words(struct hr_pieces *p, const struct hr_pretok_step *step,
                        struct hr_span piece) {
    enum { WHITE, WORD, OTHER } last = WHITE, now;
    size_t begin = piece.begin;
    for (size_t pos = piece.begin; pos < piece.end;) {
        int n = 1;
        uint32_t cp =
            step->mapped ? hr_byte_alphabet[(unsigned char)p->s[pos]] : hr_utf8_get(p->s + pos, &n);
        now = hr_uni_is_rust_word(cp) ? WORD : hr_uni_is_space(cp) ? WHITE : OTHER;
        if (now != last) {
            if (last != WHITE) add(p, begin, pos);
            begin = pos;
        }
        last = now;
        pos += (size_t)n;
    }
    if (last != WHITE) add(p, begin, piece.end);
}

/* Starts a new text for a step that rewrites pieces; the old one stays readable until it is done.
 */
static struct hr_buf *rewrite(struct hr_pieces *p) {
    hr_buf_clear(&p->spare);
    return &p->spare;
}

static void rewritten(struct hr_pieces *p) {
    struct hr_buf t = p->own;
    p->own = p->spare;
    p->spare = t;
    p->s = p->own.data;
    p->len = p->own.len;
}

static void step_prefix_space(struct hr_pieces *p) {
    struct hr_buf *b = rewrite(p);
    for (size_t i = 0; i < p->prev_n; i++) {
        struct hr_span *v = &p->prev[i];
        size_t begin = b->len;
        if (p->s[v->begin] != ' ') hr_buf_putc(b, ' ');
        hr_buf_append(b, p->s + v->begin, v->end - v->begin);
        *v = (struct hr_span){begin, b->len};
    }
    rewritten(p);
}

static void step_metaspace(struct hr_pieces *p, const struct hr_pretok_step *step, bool at_start) {
    struct hr_buf *b = rewrite(p);
    const char *lit = step->literal;
    size_t n_lit = step->literal_len;
    for (size_t i = 0; i < p->prev_n; i++) {
        struct hr_span *v = &p->prev[i];
        size_t begin = b->len, n = v->end - v->begin;
        const char *s = p->s + v->begin;
        bool has = s[0] == ' ' || (n >= n_lit && memcmp(s, lit, n_lit) == 0);
        bool first = at_start && v->begin == 0;
        if (!has &&
            (step->prepend == HR_PREPEND_ALWAYS || (step->prepend == HR_PREPEND_FIRST && first))) {
            hr_buf_append(b, lit, n_lit);
        }
        for (size_t k = 0; k < n; k++) {
            if (s[k] == ' ')
                hr_buf_append(b, lit, n_lit);
            else
                hr_buf_putc(b, s[k]);
        }
        *v = (struct hr_span){begin, b->len};
    }
    rewritten(p);
    struct hr_pretok_step cut = {
        .behavior = HR_SPLIT_MERGED_NEXT, .literal = step->literal, .literal_len = n_lit};
    for (size_t i = 0; i < p->prev_n; i++) {
        if (step->split)
            split_by(p, &cut, p->prev[i]);
        else
            add(p, p->prev[i].begin, p->prev[i].end);
    }
}

static void run_step(struct hr_pieces *p, const struct hr_pretok_step *step, bool at_start) {
    if (step->type == HR_PRETOK_METASPACE) {
        step_metaspace(p, step, at_start);
        return;
    }
    if (step->type == HR_PRETOK_BYTE_LEVEL && step->add_prefix_space) step_prefix_space(p);
    hr_split_fn gpt2 = hr_splitter_find(hr_pattern_gpt2, strlen(hr_pattern_gpt2));
    for (size_t i = 0; i < p->prev_n; i++) {
        struct hr_span v = p->prev[i];
        switch (step->type) {
        case HR_PRETOK_BYTE_LEVEL:
            if (step->use_regex)
                split_fast(p, gpt2, v);
            else
                add(p, v.begin, v.end);
            break;
        case HR_PRETOK_SPLIT:
            if (step->fn)
                split_fast(p, step->fn, v);
            else
                split_by(p, step, v);
            break;
        case HR_PRETOK_DIGITS:
            split_where(p, step, v, is_numeric, step->individual, HR_SPLIT_ISOLATED);
            break;
        case HR_PRETOK_PUNCTUATION:
            split_where(p, step, v, hr_uni_is_punct, true, step->behavior);
            break;
        case HR_PRETOK_WHITESPACE_SPLIT:
            split_where(p, step, v, is_white, true, HR_SPLIT_REMOVED);
            break;
        case HR_PRETOK_WHITESPACE:
            split_words(p, step, v);
            break;
        case HR_PRETOK_METASPACE:
            break;
        }
    }
}

void hr_pretok_run(const struct hr_pretok *p, const char *s, size_t len, bool at_start,
                   struct hr_pieces *out) {
    out->s = s;
    out->len = len;
    out->n = 0;
    add(out, 0, len);
    for (int i = 0; i < p->n_steps; i++) {
        const struct hr_pretok_step *step = &p->steps[i];
        if (step->type == HR_PRETOK_BYTE_LEVEL && !step->use_regex && !step->add_prefix_space)
            continue;
        struct hr_span *t = out->prev;
        size_t cap = out->prev_cap;
        out->prev = out->spans;
        out->prev_n = out->n;
        out->prev_cap = out->cap;
        out->spans = t;
        out->cap = cap;
        out->n = 0;
        run_step(out, step, at_start);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * normalizer: the steps, each from one buffer into the other.
 *
 * A text that a step does not change is passed on by its pointer: NFC over ASCII, which is nearly
 * all of the work, copies nothing. */
#include "text/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/uniclass.h"

void hr_normalizer_finish(struct hr_normalizer *n) {
    for (int i = 0; i < n->n_steps; i++) {
        free(n->steps[i].from);
        free(n->steps[i].to);
        hr_regex_destroy(&n->steps[i].regex);
        hr_charsmap_destroy(&n->steps[i].charsmap);
    }
    free(n->steps);
    *n = (struct hr_normalizer){0};
}

void hr_normalizer_add(struct hr_normalizer *n, struct hr_norm_step step) {
    n->steps = hr_xrealloc(n->steps, (size_t)(n->n_steps + 1) * sizeof *n->steps);
    n->steps[n->n_steps++] = step;
}

void hr_norm_work_finish(struct hr_norm_work *w) {
    for (int i = 0; i < 2; i++) {
        hr_buf_finish(&w->text[i]);
        hr_buf_finish(&w->mark[i]);
    }
    hr_buf_finish(&w->regex.stack);
}

static void append_marks(struct hr_buf *mark, uint8_t value, size_t n) {
    hr_buf_reserve(mark, n);
    memset(mark->data + mark->len, value, n);
    mark->len += n;
}

/* One replaced stretch: its new text is marked when any byte of the old was. */
static void put_replacement(const struct hr_norm_step *step, const uint8_t *mark, size_t begin,
                            size_t end, struct hr_buf *text, struct hr_buf *out_mark) {
    uint8_t m = 0;
    hr_buf_append(text, step->to, step->to_len);
    if (!mark) return;
    for (size_t i = begin; i < end; i++) m |= mark[i];
    append_marks(out_mark, m, step->to_len);
}

static void replace(const struct hr_norm_step *step, const char *s, size_t len, const uint8_t *mark,
                    struct hr_regex_scratch *scratch, struct hr_buf *text,
                    struct hr_buf *out_mark) {
    size_t done = 0, from = 0, begin = 0, end = 0;
    struct hr_regex_text rt = {s, len, NULL};
    while (from < len) {
        if (step->regex) {
            if (!hr_regex_find(step->regex, &rt, from, scratch, &begin, &end)) break;
        } else {
            const char *hit = memmem(s + from, len - from, step->from, step->from_len);
            if (!hit) break;
            begin = (size_t)(hit - s);
            end = begin + step->from_len;
        }
        hr_buf_append(text, s + done, begin - done);
        if (mark) hr_buf_append(out_mark, mark + done, begin - done);
        put_replacement(step, mark, begin, end, text, out_mark);
        done = from = end;
        if (begin == end && end < len) { /* an empty match: what follows it is kept */
            int n;
            hr_utf8_get(s + end, &n);
            from = end + (size_t)n;
        }
    }
    hr_buf_append(text, s + done, len - done);
    if (mark) hr_buf_append(out_mark, mark + done, len - done);
}

static void put_char(uint32_t cp, const uint8_t *mark, struct hr_buf *text,
                     struct hr_buf *out_mark) {
    char bytes[4];
    int n = hr_utf8_put(cp, bytes);
    hr_buf_append(text, bytes, (size_t)n);
    if (mark) append_marks(out_mark, *mark, (size_t)n);
}

/* What Nmt takes out: controls that carry no text. */
static bool nmt_drops(uint32_t cp) {
    return (cp >= 1 && cp <= 8) || cp == 0xb || (cp >= 0xe && cp <= 0x1f) || cp == 0x7f ||
           cp == 0x8f || cp == 0x9f;
}

static bool nmt_is_space(uint32_t cp) {
    static const uint16_t spaces[] = {9,      0xa,    0xc,    0xd,    0x1680,
                                      0x200b, 0x200c, 0x200d, 0x200e, 0x200f,
                                      0x2028, 0x2029, 0x2581, 0xfeff, 0xfffd};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (spaces[i] == cp) return true;
    return false;
}

/* The steps that look at one character at a time. */
static void each_char(enum hr_norm_type type, const char *s, size_t len, const uint8_t *mark,
                      struct hr_buf *text, struct hr_buf *out_mark) {
    int n, n_lower;
    for (size_t i = 0; i < len; i += (size_t)n) {
        uint32_t cp = hr_utf8_get(s + i, &n), lower[2];
        const uint8_t *m = mark ? mark + i : NULL;
        if (type == HR_NORM_LOWER) {
            n_lower = hr_uni_lower(cp, lower);
            for (int k = 0; k < n_lower; k++) put_char(lower[k], m, text, out_mark);
        } else if (type == HR_NORM_STRIP_ACCENTS) {
            if (!hr_uni_is_accent(cp)) put_char(cp, m, text, out_mark);
        } else if (!nmt_drops(cp)) {
            put_char(nmt_is_space(cp) ? ' ' : cp, m, text, out_mark);
        }
    }
}

/* Narrows s to what is left between white characters at its ends. */
static void strip(const struct hr_norm_step *step, const char **s, size_t *len,
                  const uint8_t **mark) {
    size_t begin = 0, end = *len;
    int n;
    while (step->left && begin < end && hr_uni_is_space(hr_utf8_get(*s + begin, &n)))
        begin += (size_t)n;
    while (step->right && begin < end) {
        size_t p = end;
        do p--;
        while (((unsigned char)(*s)[p] & 0xc0) == 0x80);
        if (!hr_uni_is_space(hr_utf8_get(*s + p, &n))) break;
        end = p;
    }
    *s += begin;
    *len = end - begin;
    if (*mark) *mark += begin;
}

static bool unchanged(const struct hr_norm_step *step, const char *s, size_t len) {
    if (step->type == HR_NORM_FORM) return step->form == HR_NFC && hr_uni_is_nfc(s, len);
    return step->type == HR_NORM_REPLACE && !step->regex &&
           !memmem(s, len, step->from, step->from_len);
}

static void run_step(const struct hr_norm_step *step, const char *s, size_t len,
                     const uint8_t *mark, struct hr_regex_scratch *scratch, struct hr_buf *text,
                     struct hr_buf *out_mark) {
    switch (step->type) {
    case HR_NORM_FORM:
        hr_uni_normalize(step->form, s, len, mark, text, out_mark);
        break;
    case HR_NORM_REPLACE:
        replace(step, s, len, mark, scratch, text, out_mark);
        break;
    case HR_NORM_PREPEND:
        hr_buf_append(text, step->to, step->to_len);
        hr_buf_append(text, s, len);
        if (mark) append_marks(out_mark, 0, step->to_len);
        if (mark) hr_buf_append(out_mark, mark, len);
        break;
    case HR_NORM_CHARSMAP:
        hr_charsmap_run(step->charsmap, s, len, mark, text, out_mark);
        break;
    case HR_NORM_LOWER:
    case HR_NORM_STRIP_ACCENTS:
    case HR_NORM_NMT:
        each_char(step->type, s, len, mark, text, out_mark);
        break;
    case HR_NORM_STRIP: /* narrows the text where it is */
        break;
    }
}

void hr_normalizer_run(const struct hr_normalizer *n, const char *s, size_t len,
                       const uint8_t *mark, struct hr_norm_work *w, const char **out,
                       size_t *out_len, const uint8_t **out_mark) {
    int k = 0;
    for (int i = 0; i < n->n_steps && len > 0; i++) {
        const struct hr_norm_step *step = &n->steps[i];
        if (step->type == HR_NORM_STRIP) {
            strip(step, &s, &len, &mark);
            continue;
        }
        if (unchanged(step, s, len)) continue;
        struct hr_buf *text = &w->text[k], *m = &w->mark[k];
        hr_buf_clear(text);
        hr_buf_clear(m);
        run_step(step, s, len, mark, &w->regex, text, m);
        s = text->data;
        len = text->len;
        if (mark) mark = (const uint8_t *)m->data;
        k ^= 1;
    }
    *out = s;
    *out_len = len;
    *out_mark = mark;
}

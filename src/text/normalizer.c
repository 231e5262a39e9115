/* SPDX-License-Identifier: Apache-2.0
 *
 * normalizer: the steps, each from one buffer into the other.
 *
 * A text that a step does not change is passed on by its pointer: NFC over ASCII, which is nearly
 * all of the work, copies nothing. */
#include "text/normalizer.h"

#include <stdlib.h>
#include <string.h>

void hr_normalizer_finish(struct hr_normalizer *n) {
    for (int i = 0; i < n->n_steps; i++) {
        free(n->steps[i].from);
        free(n->steps[i].to);
        hr_regex_destroy(&n->steps[i].regex);
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

static bool unchanged(const struct hr_norm_step *step, const char *s, size_t len) {
    if (step->type == HR_NORM_FORM) return step->form == HR_NFC && hr_uni_is_nfc(s, len);
    return step->type == HR_NORM_REPLACE && !step->regex &&
           !memmem(s, len, step->from, step->from_len);
}

void hr_normalizer_run(const struct hr_normalizer *n, const char *s, size_t len,
                       const uint8_t *mark, struct hr_norm_work *w, const char **out,
                       size_t *out_len, const uint8_t **out_mark) {
    int k = 0;
    for (int i = 0; i < n->n_steps && len > 0; i++) {
        const struct hr_norm_step *step = &n->steps[i];
        if (unchanged(step, s, len)) continue;
        struct hr_buf *text = &w->text[k], *m = &w->mark[k];
        hr_buf_clear(text);
        hr_buf_clear(m);
        if (step->type == HR_NORM_FORM) {
            hr_uni_normalize(step->form, s, len, mark, text, m);
        } else if (step->type == HR_NORM_REPLACE) {
            replace(step, s, len, mark, &w->regex, text, m);
        } else {
            hr_buf_append(text, step->to, step->to_len);
            hr_buf_append(text, s, len);
            if (mark) append_marks(m, 0, step->to_len);
            if (mark) hr_buf_append(m, mark, len);
        }
        s = text->data;
        len = text->len;
        if (mark) mark = (const uint8_t *)m->data;
        k ^= 1;
    }
    *out = s;
    *out_len = len;
    *out_mark = mark;
}

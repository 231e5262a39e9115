/* SPDX-License-Identifier: Apache-2.0
 *
 * normalizer: what is done to a text before it is split: normal forms, replacements, prefixes.
 *
 * A chain of steps over one stretch of text (between added tokens). Marks (which bytes a user
 * wrote) go through every step, so that an added token that is matched after it still knows who
 * wrote it. Source: tokenizers 0.23.3, src/normalizers. */
#ifndef HR_TEXT_NORMALIZER_H
#define HR_TEXT_NORMALIZER_H

#include "text/charsmap.h"
#include "text/regex.h"
#include "text/unicode.h"

enum hr_norm_type {
    HR_NORM_FORM,
    HR_NORM_PREPEND,
    HR_NORM_REPLACE,
    HR_NORM_CHARSMAP, /* Precompiled */
    HR_NORM_LOWER,
    HR_NORM_STRIP,
    HR_NORM_STRIP_ACCENTS,
    HR_NORM_NMT,
};

struct hr_norm_step {
    enum hr_norm_type type;
    enum hr_uni_form form;
    char *from, *to; /* owned: REPLACE's literal, REPLACE's or PREPEND's text */
    size_t from_len, to_len;
    struct hr_regex *regex;       /* owned: REPLACE by a pattern; NULL: by the literal */
    struct hr_charsmap *charsmap; /* owned: CHARSMAP */
    bool left, right;             /* STRIP: which ends */
};

struct hr_normalizer {
    struct hr_norm_step *steps; /* owned */
    int n_steps;
};

void hr_normalizer_finish(struct hr_normalizer *n); /* zeroed is valid */
/* Appends a step and takes over what it owns. */
void hr_normalizer_add(struct hr_normalizer *n, struct hr_norm_step step);

/* Buffers of one call; zeroed is valid, may be used again. */
struct hr_norm_work {
    struct hr_buf text[2], mark[2];
    struct hr_regex_scratch regex;
};
void hr_norm_work_finish(struct hr_norm_work *w);

/* Runs the chain over s. mark: NULL, or a flag a byte [len]. The results are borrowed from the work
 * (or are s and mark themselves when nothing changed). */
void hr_normalizer_run(const struct hr_normalizer *n, const char *s, size_t len,
                       const uint8_t *mark, struct hr_norm_work *w, const char **out,
                       size_t *out_len, const uint8_t **out_mark);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * regex: the regular expressions of pre-tokenizers and normalizers, with the reference's Unicode.
 *
 * A backtracking matcher for the part of Oniguruma's Ruby syntax that tokenizers use: characters,
 * classes (nested, &&), \p{..}, groups, (?i:), alternatives, greedy, lazy and possessive counts,
 * look-around, anchors. An own one because the property tables of the libraries at hand are of
 * other Unicode versions than the reference's, and text in a newer script would split differently.
 * What it does not know is refused when the pattern is compiled, with the offset. It never uses the
 * C stack for text: only for nesting inside the pattern, which is bounded. */
#ifndef HR_TEXT_REGEX_H
#define HR_TEXT_REGEX_H

#include <stdbool.h>

#include "base/buf.h"

struct hr_regex;

HR_MUST_USE enum hr_status hr_regex_compile(const char *pattern, size_t len, struct hr_regex **out,
                                            struct hr_err *err);
void hr_regex_destroy(struct hr_regex **re);

/* Text to search: UTF-8, or bytes that each stand for one character of the byte alphabet (what
 * follows a ByteLevel step sees that form). */
struct hr_regex_text {
    const char *s;
    size_t len;
    const uint16_t *alphabet; /* NULL: UTF-8; otherwise the code point of each byte [256] */
};

/* The stack of a search, kept between searches by the caller; zeroed is valid. */
struct hr_regex_scratch {
    struct hr_buf stack;
};

/* The first match that begins at or after `from`; false when there is none. */
bool hr_regex_find(const struct hr_regex *re, const struct hr_regex_text *text, size_t from,
                   struct hr_regex_scratch *scratch, size_t *begin, size_t *end);

#endif

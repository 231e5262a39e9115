/* SPDX-License-Identifier: Apache-2.0
 *
 * pretok: pre-tokenizers: a text into the pieces that the model sees one at a time.
 *
 * A chain of steps; each splits every piece of the step before. A step after ByteLevel sees each
 * byte as a character of the byte alphabet, as the reference does (Falcon's digits depend on it),
 * although the bytes themselves are never rewritten here. Source: tokenizers 0.23.3,
 * src/pre_tokenizers. */
#ifndef HR_TEXT_PRETOK_H
#define HR_TEXT_PRETOK_H

#include "text/regex.h"
#include "text/splitter.h"
#include "text/tokenizer.h"

enum hr_pretok_type {
    HR_PRETOK_BYTE_LEVEL,
    HR_PRETOK_SPLIT,
    HR_PRETOK_DIGITS,
    HR_PRETOK_PUNCTUATION,
    HR_PRETOK_METASPACE,
    HR_PRETOK_WHITESPACE_SPLIT, /* cuts at white characters and drops them */
    HR_PRETOK_WHITESPACE,       /* runs of word characters, runs of others, no white ones */
};

enum hr_split_behavior {
    HR_SPLIT_REMOVED,
    HR_SPLIT_ISOLATED,
    HR_SPLIT_MERGED_PREVIOUS,
    HR_SPLIT_MERGED_NEXT,
    HR_SPLIT_CONTIGUOUS,
};

enum hr_prepend { HR_PREPEND_NEVER, HR_PREPEND_FIRST, HR_PREPEND_ALWAYS };

struct hr_pretok_step {
    enum hr_pretok_type type;
    enum hr_split_behavior behavior;  /* SPLIT, PUNCTUATION */
    bool invert;                      /* SPLIT */
    bool add_prefix_space, use_regex; /* BYTE_LEVEL */
    bool individual;                  /* DIGITS */
    bool split;                       /* METASPACE */
    enum hr_prepend prepend;          /* METASPACE */
    bool mapped;                      /* set by hr_pretok_add: comes after BYTE_LEVEL */
    hr_split_fn fn; /* SPLIT: hand-written and without gaps, when every match is kept; or NULL */
    struct hr_regex *regex; /* SPLIT: owned; NULL with fn or literal */
    char *literal;          /* SPLIT by a string, METASPACE's replacement: owned */
    size_t literal_len;
};

struct hr_pretok {
    struct hr_pretok_step *steps; /* owned */
    int n_steps;
    bool mapped; /* a ByteLevel step is there */
};

void hr_pretok_finish(struct hr_pretok *p); /* zeroed is valid */

/* Appends a step and takes over what it owns, also on failure. */
HR_MUST_USE enum hr_status hr_pretok_add(struct hr_pretok *p, struct hr_pretok_step step,
                                         struct hr_err *err);
/* Appends a Split step by a regular expression (hand-written splitter when there is one). */
HR_MUST_USE enum hr_status hr_pretok_add_regex(struct hr_pretok *p, const char *pattern, size_t len,
                                               enum hr_split_behavior behavior, bool invert,
                                               struct hr_err *err);

/* The work of one call; zeroed is valid, may be used again. s and spans are the result: pieces of
 * s. */
struct hr_pieces {
    const char *s; /* the text given, or own.data when a step had to change it */
    size_t len;
    struct hr_span *spans; /* owned */
    size_t n, cap;
    struct hr_span *prev; /* owned: the pieces of the step before */
    size_t prev_n, prev_cap;
    uint8_t *is_match; /* owned, scratch of one split */
    size_t match_cap;
    struct hr_buf own, spare;
    struct hr_regex_scratch regex;
};
void hr_pieces_finish(struct hr_pieces *p);

/* Splits s. `at_start`: s begins where the input begins (Metaspace "first"). */
void hr_pretok_run(const struct hr_pretok *p, const char *s, size_t len, bool at_start,
                   struct hr_pieces *out);

/* The byte alphabet of GPT-2: the code point that stands for each byte, and back (-1: none). */
extern const uint16_t hr_byte_alphabet[256];
int hr_byte_of_char(uint32_t cp);

#endif

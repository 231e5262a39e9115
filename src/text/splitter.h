/* SPDX-License-Identifier: Apache-2.0
 *
 * splitter: the well-known pre-tokenizer patterns, written by hand.
 *
 * Each equals its regular expression on every text (a test compares them with regex.h), is several
 * times faster, and covers the whole text: there are no gaps between its matches. */
#ifndef HR_TEXT_SPLITTER_H
#define HR_TEXT_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>

/* The end of the piece of s[0..len) that begins at pos; pos < len, the result is > pos. */
typedef size_t (*hr_split_fn)(const char *s, size_t len, size_t pos);

/* The splitter of a pattern, by its exact text; NULL when none was written for it. */
hr_split_fn hr_splitter_find(const char *pattern, size_t len);

/* The patterns by name, for files that do not hold theirs. Static. */
extern const char hr_pattern_gpt2[], hr_pattern_llama3[], hr_pattern_qwen2[], hr_pattern_qwen35[],
    hr_pattern_o200k[], hr_pattern_tekken[], hr_pattern_kimi[];

#endif

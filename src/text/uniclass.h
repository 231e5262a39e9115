/* SPDX-License-Identifier: Apache-2.0
 *
 * uniclass: questions about characters that only some tokenizers ask, each answered as the
 * component that asks it does.
 *
 * They follow other versions of Unicode than unicode.h, and are rare enough to be answered by
 * searching sorted ranges. scripts/gen-uniclass.py makes the tables and says where from. */
#ifndef HR_TEXT_UNICLASS_H
#define HR_TEXT_UNICLASS_H

#include <stdbool.h>

#include "text/unicode.h"

/* The word characters of the Whitespace pre-tokenizer: numbers such as U+00B2 are none, letters in
 * circles are. */
bool hr_uni_is_rust_word(uint32_t cp);

bool hr_uni_is_accent(uint32_t cp); /* what StripAccents takes away */

/* Writes the lower case of cp (one or two characters) and returns how many. No context: a final
 * sigma is mapped as any other. */
int hr_uni_lower(uint32_t cp, uint32_t out[2]);

/* The end of the grapheme cluster that begins at pos < len. For the Precompiled normalizer, which
 * asks whether a cluster is shorter than six bytes: two rules that only join characters to clusters
 * of six or more are left out (pairs of regional indicators, Indic conjuncts).
 * Source: Unicode Annex 29. */
size_t hr_uni_cluster_end(const char *s, size_t len, size_t pos);

#endif

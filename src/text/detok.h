/* SPDX-License-Identifier: Apache-2.0
 *
 * detok: token ids to text, one at a time, never half a character.
 *
 * The rule: the text of a completion is hr_tokenizer_decode(ids, skip_special = true), except that
 * an incomplete character at the very end is dropped (the token ids still hold it). So special
 * tokens add nothing, bytes that can never become UTF-8 turn into U+FFFD as soon as that is
 * certain, and what could still become a character is held back. Feeding the same ids again
 * rebuilds the state. */
#ifndef HR_TEXT_DETOK_H
#define HR_TEXT_DETOK_H

#include "text/tokenizer.h"

struct hr_detok {
    const struct hr_tokenizer *tok; /* borrowed */
    struct hr_buf held;             /* bytes not yet part of the text */
    bool keep_special;
    bool started;    /* a token has been fed */
    bool held_bytes; /* `held` is a run of byte tokens (SentencePiece) */
    int n_strip;     /* characters that may still be stripped from the front */
};

void hr_detok_init(struct hr_detok *d, const struct hr_tokenizer *tok);
void hr_detok_finish(struct hr_detok *d); /* frees; zeroed is valid */

/* Appends what `id` makes certain: whole characters only. */
void hr_detok_push(struct hr_detok *d, int32_t id, struct hr_buf *out);

/* The end: appends what is still certain and drops an incomplete character. Returns how many bytes
 * were dropped. Afterwards the state is as after hr_detok_init. */
size_t hr_detok_end(struct hr_detok *d, struct hr_buf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * detok: token ids to text, never half a character.
 *
 * The rule: the text of a completion is hr_tokenizer_decode(ids, skip_special = true), except that
 * an incomplete character at the very end is dropped (the token ids still hold it). So special
 * tokens add nothing, bytes that can never become UTF-8 turn into U+FFFD as soon as that is
 * certain, and what could still become a character is held back. */
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

/* Where the text is cut: something else follows, so what is held becomes U+FFFD now. */
void hr_detok_cut(struct hr_detok *d, struct hr_buf *out);

/* The end: appends what is still certain and drops an incomplete character. Returns how many bytes
 * were dropped. Afterwards the state is as after hr_detok_init. */
size_t hr_detok_end(struct hr_detok *d, struct hr_buf *out);

/* The text of a completion in parts. Places are counted in the completion's token bytes (struct
 * hr_token_bytes; hidden tokens do not count): the text of those up to cut[0] is appended to
 * out[0], of those from there to cut[1] to out[1] and so on; what lies behind the last cut is left
 * out. cut: ascending, n_cuts >= 1. All of it is decoded as one text, so only its very front is
 * stripped. Returns the bytes of an incomplete character that were dropped: only at the end of the
 * ids; before a cut such bytes are followed by something, and become U+FFFD. */
size_t hr_detok_parts(const struct hr_tokenizer *tok, const int32_t *ids, size_t n,
                      const size_t *cut, int n_cuts, struct hr_buf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder: the second half of a tokenizer: what each token adds to a text.
 *
 * Two kinds. ByteLevel: each token stands for bytes; the whole is read as UTF-8 and each maximal
 * invalid part becomes one U+FFFD. Chars (SentencePiece's): each token stands for characters,
 * except byte tokens <0xXX>: a run of these is UTF-8 or, if the run as a whole is not, one U+FFFD a
 * byte. Source: tokenizers 0.23.3, src/decoders. */
#ifndef HR_TEXT_DECODER_H
#define HR_TEXT_DECODER_H

#include <stdbool.h>

#include "base/buf.h"

enum hr_decoder_kind { HR_DECODER_BYTE_LEVEL, HR_DECODER_CHARS };

enum { HR_DECODER_REPLACES = 4 };

struct hr_decoder {
    enum hr_decoder_kind kind;
    /* CHARS, in the order in which they apply: */
    int n_replaces;
    struct {
        char *from, *to; /* owned */
        size_t from_len, to_len;
    } replace[HR_DECODER_REPLACES];
    bool byte_fallback;
    char
        *metaspace; /* owned, or NULL: this string becomes a space, or nothing in the first token */
    size_t metaspace_len;
    bool metaspace_drop_first;
    char strip; /* ASCII; taken from the front of the whole text, at most n_strip times */
    int n_strip;
};

void hr_decoder_finish(struct hr_decoder *d); /* zeroed is valid */

/* What a token whose text is s adds: appends its bytes. *is_byte: a byte token of CHARS. `first`:
 * it is the first token of the text. */
void hr_decoder_token(const struct hr_decoder *d, const char *s, size_t len, bool first,
                      struct hr_buf *out, bool *is_byte);

#endif

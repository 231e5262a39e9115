/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_int: the parts of a tokenizer, for the two files that build one and the one that runs
 * it.
 *
 * The text of every id is kept as its file writes it (`text`), and as it decodes (`decoded`). An
 * added token's text wins over the model's for the same id, as in the reference. */
#ifndef HR_TEXT_TOKENIZER_INT_H
#define HR_TEXT_TOKENIZER_INT_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/unigram.h"

enum { HR_ID_EXISTS = 1, HR_ID_SPECIAL = 2, HR_ID_ADDED = 4, HR_ID_BYTE = 8 };

/* A guard against a file that names a huge id: arrays are as long as the highest one. */
enum { HR_VOCAB_MAX = 1 << 24 };

struct hr_tokenizer {
    struct hr_normalizer normalizer;
    struct hr_pretok pretok;
    struct hr_bpe bpe;
    struct hr_unigram unigram; /* in place of bpe, when it is used */
    struct hr_decoder decoder;
    struct hr_added_token *added; /* owned */
    int n_added;
    struct hr_trie raw, normalized; /* added tokens by the round in which they match */
    struct hr_ids prefix, suffix;   /* what the post-processor puts around a text */
    int n_ids;                      /* 1 + the highest id */
    int n_model;                    /* 1 + the highest id of the model, without added tokens */
    uint8_t *flags;                 /* owned [n_ids] */
    struct hr_buf text, decoded;    /* of all ids, one after the other */
    uint32_t *text_offset;          /* owned [n_ids + 1] */
    uint32_t *decoded_offset;       /* owned [n_ids + 1] */
    struct hr_buf first;            /* as decoded, of a text's first token; empty: no difference */
    uint32_t *first_offset;         /* owned [n_ids + 1], or NULL */
    bool *hidden;                   /* owned [n_ids]: HR_ID_SPECIAL, or no token */
    struct hr_token_bytes token_bytes; /* borrows the tables */
};

/* While a tokenizer is built: each id's text, borrowed from the file. */
struct hr_token_text {
    const char *s; /* NULL: no such id */
    size_t len;
    uint8_t flags;
};

/* Builds the vocabulary part: bpe's tokens from `texts` (those that are HR_ID_EXISTS and not only
 * added), the text tables, the tries. texts[i].flags say what each id is. n_merges: room for them.
 */
HR_MUST_USE enum hr_status hr_tokenizer_set_vocab(struct hr_tokenizer *t,
                                                  const struct hr_token_text *model, int n_ids,
                                                  size_t n_merges, struct hr_err *err);
/* Takes over an added token. Before hr_tokenizer_seal. */
void hr_tokenizer_add_added(struct hr_tokenizer *t, struct hr_added_token token);
/* Last step: the tables of texts, the tries. `model` as above. */
HR_MUST_USE enum hr_status hr_tokenizer_seal(struct hr_tokenizer *t,
                                             const struct hr_token_text *model, struct hr_err *err);

/* Reads a merge's or token's text through the byte alphabet; false when it is not written in it. */
bool hr_tokenizer_to_bytes(const char *s, size_t len, struct hr_buf *out);

#endif

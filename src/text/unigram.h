/* SPDX-License-Identifier: Apache-2.0
 *
 * unigram: the Unigram model: of all ways to cut a piece into tokens, the one of the highest sum of
 * scores.
 *
 * A character without a token of its own is unknown and scores ten below the lowest score; unknown
 * neighbours are one token. Sums are f64 from left to right and a later path must be better, not
 * equal, exactly as the reference adds and compares: ties decide ids. Source: Kudo 2018,
 * arXiv:1804.10959; tokenizers 0.23.3, src/models/unigram/model.rs. */
#ifndef HR_TEXT_UNIGRAM_H
#define HR_TEXT_UNIGRAM_H

#include <stdbool.h>

#include "text/tokenizer.h"

struct hr_unigram_edge { /* node and byte to node; in a hash table */
    uint32_t node;       /* UINT32_MAX: free */
    uint32_t child;
    uint8_t byte;
};

struct hr_unigram {
    bool used;      /* the tokenizer's model is this one */
    double *scores; /* owned [n_tokens] */
    uint32_t *size; /* owned [n_tokens]: bytes of each token */
    int n_tokens;
    struct hr_unigram_edge *edges; /* owned */
    size_t edge_mask, n_edges;
    int32_t *token_at; /* owned: the token that ends in a node; -1 */
    uint32_t n_nodes;
    size_t size_max; /* bytes of the longest token */
    double unk_score;
    int32_t unk; /* -1: none */
    bool byte_fallback;
    int32_t byte_id[256]; /* of <0xXX>; -1: none */
};

/* Tokens texts[i] of len[i] bytes with scores[i]; of equal texts the last one counts. */
void hr_unigram_init(struct hr_unigram *u, const char *const *texts, const size_t *len,
                     const double *scores, int n_tokens, int32_t unk, bool byte_fallback);
void hr_unigram_finish(struct hr_unigram *u); /* zeroed is valid */

/* The work of one call; zeroed is valid, may be used again. */
struct hr_unigram_scratch {
    struct hr_buf came;   /* int32_t a place: how the best path comes there */
    struct hr_buf scores; /* double: of the best paths to the places just ahead, in a ring */
    struct hr_buf path;   /* size_t: places of a path that is written */
};
void hr_unigram_scratch_finish(struct hr_unigram_scratch *s);

/* Appends the ids of the pieces of s. Memory is that of the longest stretch in which the paths do
 * not meet, four bytes a byte. Errors: HR_ERR_FORMAT for an unknown character without an unknown
 * token. */
HR_MUST_USE enum hr_status hr_unigram_encode(const struct hr_unigram *u, const char *s,
                                             const struct hr_span *pieces, size_t n_pieces,
                                             struct hr_unigram_scratch *scratch, struct hr_ids *out,
                                             struct hr_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe: byte-pair encoding of pieces: the vocabulary, the merges, and the merging.
 *
 * Invariant: a piece's ids are those of merging its symbols pair by pair, always the pair of the
 * lowest rank, leftmost first. With byte_level a symbol is a byte and tokens are held as the bytes
 * that they stand for; otherwise a symbol is a character. Source: Sennrich et al. 2016,
 * arXiv:1508.07909; tokenizers 0.23.3, src/models/bpe. */
#ifndef HR_TEXT_BPE_H
#define HR_TEXT_BPE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "text/tokenizer.h"

struct hr_bpe_pair {
    uint64_t key; /* left id in the high half, right id in the low; UINT64_MAX: free */
    uint32_t rank;
    int32_t id;
};

struct hr_bpe {
    int n_tokens;        /* 1 + the highest id */
    struct hr_buf bytes; /* all tokens, one after the other */
    uint32_t *offset;    /* owned: token i is bytes[offset[i] .. offset[i] + size[i]) */
    uint32_t *size;      /* owned: 0 for an id without a form that a text can have */
    size_t size_max;
    struct hr_bpe_slot {
        uint32_t hash;
        int32_t id; /* -1: free */
    } * slots;      /* owned: tokens by their bytes */
    size_t slot_mask;
    struct hr_bpe_pair *pairs; /* owned */
    size_t pair_mask, n_pairs;
    uint64_t *joins; /* owned: bit set of (character, next character) that some merge may join */
    bool all_bytes;  /* not byte_level: each byte has a token for want of a better; set by hr_bpe_merges_done */
    bool can_cut;    /* a piece may be cut where no merge joins; set by hr_bpe_merges_done */
    _Atomic uint8_t
        *whole; /* owned: is token i what merging makes of its bytes? 0: not looked yet */
    bool byte_level, ignore_merges, fuse_unk, byte_fallback;
    int32_t unk;          /* -1: characters without a token vanish */
    int32_t byte_id[256]; /* byte_level: the token of each byte; otherwise of <0xXX>; -1: none */
};

/* An empty model for tokens 0 .. n_tokens-1 and up to n_merges merges. */
void hr_bpe_init(struct hr_bpe *b, int n_tokens, size_t n_merges, bool byte_level);
void hr_bpe_finish(struct hr_bpe *b); /* zeroed is valid */

/* Gives token `id` its bytes. Each id once; two ids must not have the same bytes: the first stays.
 */
void hr_bpe_add_token(struct hr_bpe *b, int32_t id, const char *s, size_t len);
/* After all tokens: fills byte_id. */
void hr_bpe_tokens_done(struct hr_bpe *b);
/* The id of a token by its bytes; -1. */
int32_t hr_bpe_find(const struct hr_bpe *b, const char *s, size_t len);
/* A merge; of equal pairs the last one stays, as in the reference. False: a part or the result is
 * no token. */
bool hr_bpe_add_merge(struct hr_bpe *b, uint32_t rank, const char *left, size_t left_len,
                      const char *right, size_t right_len);

/* Makes merges of all pairs of tokens whose texts together are a token: as a vocabulary without a
 * list of merges means it (tiktoken's ranks, SentencePiece's scores). rank[i] is the rank of a pair
 * that makes token i; UINT32_MAX: none does, and i is no part of one. Equal ranks: leftmost first.
 */
void hr_bpe_add_all_merges(struct hr_bpe *b, const uint32_t *rank);
/* After the last merge, and after unk and byte_fallback are set. */
void hr_bpe_merges_done(struct hr_bpe *b);

/* The work of one call; zeroed is valid, may be used again. */
struct hr_bpe_scratch {
    struct hr_ids ids;                     /* of the look at a whole token */
    struct hr_ids symbols, tokens, starts; /* of a window */
    struct hr_ids seam;                    /* of two tokens at its border */
    struct hr_buf nodes, heap;
};
void hr_bpe_scratch_finish(struct hr_bpe_scratch *s);

/* Appends the ids of the pieces of s. Thread-safe with a scratch of one's own. */
void hr_bpe_encode(const struct hr_bpe *b, const char *s, const struct hr_span *pieces,
                   size_t n_pieces, struct hr_bpe_scratch *scratch, struct hr_ids *out);

/* How many ids a piece has at the least, as seen without merging: no token is longer than the longest. 0 where that
 * says nothing, because characters may vanish or share an unknown token. */
size_t hr_bpe_at_least(const struct hr_bpe *b, const char *s, size_t len);

#endif

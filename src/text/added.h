/* SPDX-License-Identifier: Apache-2.0
 *
 * added: added tokens: strings that are found in a text before the model sees it.
 *
 * Matches are leftmost, longest, without overlap; a match that must not count (a special token
 * written by a user, a token that asks for single words) is passed over whole, as in the reference.
 * Source: tokenizers 0.23.3, src/tokenizer/added_vocabulary.rs. */
#ifndef HR_TEXT_ADDED_H
#define HR_TEXT_ADDED_H

#include <stdbool.h>

#include "base/buf.h"

struct hr_added_token {
    char *content; /* owned */
    size_t len;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
};

struct hr_trie_node {
    uint32_t child, sibling; /* indices of nodes; 0: none */
    int32_t token;           /* index of the added token that ends here; -1 */
    uint8_t byte;
};

/* The strings of one matching round. */
struct hr_trie {
    struct hr_trie_node *nodes; /* owned; node 0 is the root */
    size_t n, cap;
    uint32_t root[256]; /* the root's children */
};

void hr_trie_finish(struct hr_trie *t); /* zeroed is valid: matches nothing */
/* The last string added wins when two are equal. Empty strings are ignored. */
void hr_trie_add(struct hr_trie *t, const char *s, size_t len, int32_t token);
/* The longest string of the trie at s[pos..]; its token, or -1. */
int32_t hr_trie_match(const struct hr_trie *t, const char *s, size_t len, size_t pos, size_t *end);

/* One match: an added token and the bytes that it takes. */
struct hr_added_match {
    size_t begin, end;
    const struct hr_added_token *token;
};

/* Which special tokens do not count: `arg` is the caller's. */
typedef bool (*hr_added_skip_fn)(void *arg, size_t begin, size_t end);

/* The next match at or after *pos (the end of the previous one, 0 at first), which it moves on.
 * `skip` is asked for special tokens only. False: no more. */
bool hr_added_next(const struct hr_trie *t, const struct hr_added_token *tokens, const char *s,
                   size_t len, size_t *pos, hr_added_skip_fn skip, void *arg,
                   struct hr_added_match *out);

#endif

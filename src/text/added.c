/* SPDX-License-Identifier: Apache-2.0
 *
 * added: a trie over bytes, tried at each place where a token can begin. Tokens are short, so this
 * is linear in the text; memchr-like skipping over the bytes that begin no token is what makes it
 * fast. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "text/uniclass.h"

void hr_trie_finish(struct hr_trie *t) {
    free(t->nodes);
    *t = (struct hr_trie){0};
}

static uint32_t new_node(struct hr_trie *t, uint8_t byte) {
    if (t->n == 0) t->n = 1; /* node 0 stands for "none" */
    if (t->n >= t->cap) {
        t->cap = t->cap ? t->cap * 2 : 256;
        t->nodes = hr_xrealloc(t->nodes, t->cap * sizeof *t->nodes);
    }
    t->nodes[t->n] = (struct hr_trie_node){.token = -1, .byte = byte};
    return (uint32_t)t->n++;
}

static uint32_t find_child(const struct hr_trie *t, uint32_t node, uint8_t byte) {
    uint32_t k = t->nodes[node].child;
    while (k && t->nodes[k].byte != byte) k = t->nodes[k].sibling;
    return k;
}

void hr_trie_add(struct hr_trie *t, const char *s, size_t len, int32_t token) {
    if (len == 0) return;
    uint8_t first = (uint8_t)s[0];
    if (!t->root[first]) t->root[first] = new_node(t, first);
    uint32_t node = t->root[first];
    for (size_t i = 1; i < len; i++) {
        uint32_t child = find_child(t, node, (uint8_t)s[i]);
        if (!child) {
            child = new_node(t, (uint8_t)s[i]);
            t->nodes[child].sibling = t->nodes[node].child;
            t->nodes[node].child = child;
        }
        node = child;
    }
    t->nodes[node].token = token;
}

int32_t hr_trie_match(const struct hr_trie *t, const char *s, size_t len, size_t pos, size_t *end) {
    int32_t best = -1;
    uint32_t node = t->root[(uint8_t)s[pos]];
    for (size_t i = pos + 1; node; i++) {
        if (t->nodes[node].token >= 0) {
            best = t->nodes[node].token;
            *end = i;
        }
        if (i == len) break;
        node = find_child(t, node, (uint8_t)s[i]);
    }
    return best;
}

static bool word_before(const char *s, size_t pos) {
    int n;
    if (pos == 0) return false;
    do pos--;
    while (((unsigned char)s[pos] & 0xc0) == 0x80);
    return hr_uni_is_rust_word(hr_utf8_get(s + pos, &n));
}

static bool word_at(const char *s, size_t len, size_t pos) {
    int n;
    return pos < len && hr_uni_is_rust_word(hr_utf8_get(s + pos, &n));
}

static size_t spaces_before(const char *s, size_t pos, size_t least) {
    int n;
    while (pos > least) {
        size_t p = pos;
        do p--;
        while (((unsigned char)s[p] & 0xc0) == 0x80);
        if (!hr_uni_is_space(hr_utf8_get(s + p, &n))) break;
        pos = p;
    }
    return pos;
}

static size_t spaces_after(const char *s, size_t len, size_t pos) {
    int n;
    while (pos < len && hr_uni_is_space(hr_utf8_get(s + pos, &n))) pos += (size_t)n;
    return pos;
}

bool hr_added_next(const struct hr_trie *t, const struct hr_added_token *tokens, const char *s,
                   size_t len, size_t *pos, hr_added_skip_fn skip, void *arg,
                   struct hr_added_match *out) {
    if (t->n == 0) return false;
    size_t taken = *pos;
    for (size_t i = *pos, end; i < len;) {
        int32_t k = t->root[(uint8_t)s[i]] ? hr_trie_match(t, s, len, i, &end) : -1;
        if (k < 0) {
            i++;
            continue;
        }
        const struct hr_added_token *token = &tokens[k];
        bool no = (token->special && skip(arg, i, end)) ||
                  (token->single_word && (word_before(s, i) || word_at(s, len, end)));
        if (no) {
            i = end;
            continue;
        }
        out->token = token;
        out->begin = token->lstrip ? spaces_before(s, i, taken) : i;
        out->end = token->rstrip ? spaces_after(s, len, end) : end;
        *pos = out->end;
        return true;
    }
    *pos = len;
    return false;
}

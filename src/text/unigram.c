/* SPDX-License-Identifier: Apache-2.0
 *
 * unigram: a trie in a hash table, and Viterbi's search over it.
 *
 * Each place of a piece keeps the best path to it. When many places are behind, the paths to all
 * places that are still open are followed back to where they meet; what lies before that is certain
 * and is written, so that a text of any length needs a block. The sums are never restarted: that
 * would round otherwise. */
#include "text/unigram.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "text/unicode.h"

#define FREE        UINT32_MAX
#define UNK_PENALTY 10.0 /* the reference's K_UNK_PENALTY */

enum { BLOCK = 1 << 16 };

/* How a path comes to a place: by a token's id, by an unknown character of -n bytes, or not yet. */
enum { NO_PATH = -5 };

static inline size_t edge_slot(const struct hr_unigram *u, uint32_t node, uint8_t byte) {
    uint64_t x = ((uint64_t)node << 8 | byte) * 0x9e3779b97f4a7c15u;
    size_t i = (x ^ x >> 29) & u->edge_mask;
    while (u->edges[i].node != FREE && (u->edges[i].node != node || u->edges[i].byte != byte))
        i = (i + 1) & u->edge_mask;
    return i;
}

static void make_edges(struct hr_unigram *u, size_t size) {
    struct hr_unigram_edge *old = u->edges;
    size_t n_old = old ? u->edge_mask + 1 : 0;
    u->edges = hr_xmalloc(size * sizeof *u->edges);
    u->edge_mask = size - 1;
    for (size_t i = 0; i < size; i++) u->edges[i].node = FREE;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].node == FREE) continue;
        u->edges[edge_slot(u, old[i].node, old[i].byte)] = old[i];
    }
    free(old);
}

static void add_token(struct hr_unigram *u, const char *s, size_t len, int32_t id,
                      uint32_t *n_cap) {
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        if (u->n_edges * 2 > u->edge_mask) make_edges(u, (u->edge_mask + 1) * 2);
        struct hr_unigram_edge *e = &u->edges[edge_slot(u, node, (uint8_t)s[i])];
        if (e->node == FREE) {
            if (u->n_nodes == *n_cap) {
                *n_cap *= 2;
                u->token_at = hr_xrealloc(u->token_at, *n_cap * sizeof *u->token_at);
            }
            u->token_at[u->n_nodes] = -1;
            *e = (struct hr_unigram_edge){node, u->n_nodes++, (uint8_t)s[i]};
            u->n_edges++;
        }
        node = e->child;
    }
    if (len > 0) u->token_at[node] = id;
    if (len > u->size_max) u->size_max = len;
}

static int32_t find_token(const struct hr_unigram *u, const char *s, size_t len) {
    uint32_t node = 0;
    if (len == 0 || len > u->size_max) return -1;
    for (size_t i = 0; i < len; i++) {
        const struct hr_unigram_edge *e = &u->edges[edge_slot(u, node, (uint8_t)s[i])];
        if (e->node == FREE) return -1;
        node = e->child;
    }
    return u->token_at[node];
}

void hr_unigram_init(struct hr_unigram *u, const char *const *texts, const size_t *len,
                     const double *scores, int n_tokens, int32_t unk, bool byte_fallback) {
    uint32_t n_cap = 1024;
    double least = 0;
    *u = (struct hr_unigram){.used = true, .n_tokens = n_tokens, .unk = unk, .n_nodes = 1};
    u->byte_fallback = byte_fallback;
    u->scores = hr_xcalloc((size_t)n_tokens + 1, sizeof *u->scores);
    u->size = hr_xcalloc((size_t)n_tokens + 1, sizeof *u->size);
    u->token_at = hr_xmalloc(n_cap * sizeof *u->token_at);
    u->token_at[0] = -1;
    make_edges(u, 4096);
    for (int i = 0; i < n_tokens; i++) {
        u->scores[i] = scores[i];
        u->size[i] = (uint32_t)len[i];
        if (i == 0 || scores[i] < least) least = scores[i];
        add_token(u, texts[i], len[i], i, &n_cap);
    }
    u->unk_score = least - UNK_PENALTY;
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        u->byte_id[i] = find_token(u, name, 6);
    }
}

void hr_unigram_finish(struct hr_unigram *u) {
    free(u->scores);
    free(u->size);
    free(u->edges);
    free(u->token_at);
    *u = (struct hr_unigram){0};
}

void hr_unigram_scratch_finish(struct hr_unigram_scratch *s) {
    hr_buf_finish(&s->came);
    hr_buf_finish(&s->scores);
    hr_buf_finish(&s->path);
}

/* The search over one piece. came[0] belongs to the place `base`; n_came of them are set up. */
struct search {
    const struct hr_unigram *u;
    const char *s;
    size_t len, base, n_came;
    int32_t *came;  /* scratch->came */
    double *scores; /* scratch->scores: the place p's is scores[p & ring_mask] */
    size_t ring_mask;
    struct hr_unigram_scratch *scratch;
    struct hr_ids *out;
    size_t unk_begin, unk_end; /* unknown neighbours that are not yet written; equal: none */
};

static size_t back_of(const struct search *x, size_t place) {
    int32_t came = x->came[place - x->base];
    return came >= 0 ? x->u->size[came] : (size_t)-came;
}

/* Room and fresh places up to `end`. */
static void open_to(struct search *x, size_t end) {
    size_t n = end - x->base + 1;
    if (n <= x->n_came) return;
    x->scratch->came.len = x->n_came * sizeof *x->came;
    hr_buf_reserve(&x->scratch->came, (n - x->n_came) * sizeof *x->came);
    x->came = (int32_t *)x->scratch->came.data;
    while (x->n_came < n) x->came[x->n_came++] = NO_PATH;
}

/* The ring holds the places that a token from `pos` reaches, and the most that a character does. */
static void make_ring(struct search *x) {
    size_t n = 8;
    while (n < x->u->size_max + 1) n *= 2;
    hr_buf_clear(&x->scratch->scores);
    hr_buf_reserve(&x->scratch->scores, n * sizeof *x->scores);
    x->scores = (double *)x->scratch->scores.data;
    x->ring_mask = n - 1;
}

static inline void offer(struct search *x, size_t place, double score, int32_t came) {
    int32_t *to = &x->came[place - x->base];
    double *best = &x->scores[place & x->ring_mask];
    if (*to != NO_PATH && !(score > *best)) return;
    *to = came;
    *best = score;
}

static void write_unknown(struct search *x) {
    const struct hr_unigram *u = x->u;
    size_t n = x->unk_end - x->unk_begin;
    const char *s = x->s + x->unk_begin;
    x->unk_begin = x->unk_end;
    if (n == 0) return;
    int32_t id = find_token(u, s, n);
    bool bytes = id < 0 && u->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++) bytes = u->byte_id[(unsigned char)s[i]] >= 0;
    if (!bytes) hr_ids_push(x->out, id >= 0 ? id : u->unk);
    for (size_t i = 0; i < n && bytes; i++) hr_ids_push(x->out, u->byte_id[(unsigned char)s[i]]);
}

/* Writes the best path from `base` to `end`, and makes `end` the base. */
static void commit(struct search *x, size_t end) {
    struct hr_buf *path = &x->scratch->path;
    hr_buf_clear(path);
    for (size_t p = end; p > x->base; p -= back_of(x, p)) hr_buf_append(path, &p, sizeof p);
    for (size_t i = path->len / sizeof(size_t); i-- > 0;) {
        size_t p = ((const size_t *)path->data)[i];
        int32_t came = x->came[p - x->base];
        if (came < 0 || came == x->u->unk) {
            if (x->unk_begin == x->unk_end) x->unk_begin = p - back_of(x, p);
            x->unk_end = p;
            continue;
        }
        write_unknown(x);
        hr_ids_push(x->out, came);
    }
    x->n_came -= end - x->base;
    memmove(x->came, x->came + (end - x->base), x->n_came * sizeof *x->came);
    x->base = end;
}

/* Where the paths to all open places (from `pos` on) meet. */
static size_t meeting_place(const struct search *x, size_t pos) {
    size_t a = pos;
    for (size_t p = pos + 1; p < x->base + x->n_came; p++) {
        size_t b = p;
        if (x->came[p - x->base] == NO_PATH) continue;
        while (a != b) {
            size_t *later = a > b ? &a : &b;
            *later -= back_of(x, *later);
        }
    }
    return a;
}

/* Offers all tokens that begin at pos; the character there is mblen bytes long. False: it is
 * unknown, and there is no unknown token. */
static bool offer_tokens(struct search *x, size_t pos, size_t mblen) {
    const struct hr_unigram *u = x->u;
    size_t reach = x->len - pos < u->size_max ? x->len - pos : u->size_max;
    open_to(x, pos + (reach > mblen ? reach : mblen));
    double score = x->scores[pos & x->ring_mask];
    bool single = false;
    uint32_t node = 0;
    for (size_t n = 1; n <= reach; n++) {
        const struct hr_unigram_edge *e = &u->edges[edge_slot(u, node, (uint8_t)x->s[pos + n - 1])];
        if (e->node == FREE) break;
        node = e->child;
        int32_t id = u->token_at[node];
        if (id < 0) continue;
        offer(x, pos + n, u->scores[id] + score, id);
        single |= n == mblen;
    }
    if (single) return true;
    if (u->unk < 0) return false;
    offer(x, pos + mblen, u->unk_score + score, -(int32_t)mblen);
    return true;
}

static enum hr_status search_piece(struct search *x, struct hr_err *err) {
    size_t block = BLOCK;
    make_ring(x);
    open_to(x, x->base);
    x->scores[x->base & x->ring_mask] = 0;
    for (size_t pos = x->base; pos < x->len;) {
        int mblen;
        hr_utf8_get(x->s + pos, &mblen);
        if (!offer_tokens(x, pos, (size_t)mblen))
            return hr_err_set(err, HR_ERR_FORMAT,
                              "a character has no token and the tokenizer no unknown token");
        pos += (size_t)mblen;
        if (pos - x->base < block || pos == x->len) continue;
        size_t meet = meeting_place(x, pos);
        if (meet > x->base)
            commit(x, meet);
        else
            block *= 2;
    }
    commit(x, x->len);
    write_unknown(x);
    return HR_OK;
}

enum hr_status hr_unigram_encode(const struct hr_unigram *u, const char *s,
                                 const struct hr_span *pieces, size_t n_pieces,
                                 struct hr_unigram_scratch *scratch, struct hr_ids *out,
                                 struct hr_err *err) {
    for (size_t i = 0; i < n_pieces; i++) {
        struct search x = {.u = u,
                           .s = s,
                           .len = pieces[i].end,
                           .base = pieces[i].begin,
                           .scratch = scratch,
                           .out = out};
        enum hr_status st = search_piece(&x, err);
        if (st) return st;
    }
    return HR_OK;
}

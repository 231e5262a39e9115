/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe: two hash tables and two ways of merging.
 *
 * Most pieces are a token as a whole; whether merging would make that very token is found out once
 * for each token and remembered, so such a piece costs one look-up. A short piece is merged in
 * place by looking for the lowest rank again and again (its ranks fit two cache lines); a long one
 * with a heap, so that a text without any split stays n log n. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "text/unicode.h"

enum { SHORT_MAX = 48 };
#define NO_RANK UINT32_MAX

enum whole { UNKNOWN, YES, NO };

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static inline uint32_t hash_bytes(const char *s, size_t len) {
    uint64_t h = len * 0x9e3779b97f4a7c15u, w;
    for (; len >= 8; s += 8, len -= 8) {
        memcpy(&w, s, 8);
        h = mix(h ^ w) * 0xd6e8feb86659fd93u;
    }
    w = 0;
    for (size_t i = 0; i < len; i++) w |= (uint64_t)(unsigned char)s[i] << 8 * i;
    h = mix(h ^ w) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

static size_t table_size(size_t n) {
    size_t size = 64;
    while (size < n * 2) size *= 2;
    return size;
}

void hr_bpe_init(struct hr_bpe *b, int n_tokens, size_t n_merges, bool byte_level) {
    *b = (struct hr_bpe){.n_tokens = n_tokens, .byte_level = byte_level, .unk = -1};
    size_t n = (size_t)n_tokens + 1, n_slots = table_size(n), n_pairs = table_size(n_merges);
    b->offset = hr_xcalloc(n, sizeof *b->offset);
    b->size = hr_xcalloc(n, sizeof *b->size);
    b->whole = hr_xcalloc(n, sizeof *b->whole);
    b->slots = hr_xmalloc(n_slots * sizeof *b->slots);
    b->slot_mask = n_slots - 1;
    for (size_t i = 0; i < n_slots; i++) b->slots[i].id = -1;
    b->pairs = hr_xmalloc(n_pairs * sizeof *b->pairs);
    b->pair_mask = n_pairs - 1;
    for (size_t i = 0; i < n_pairs; i++) b->pairs[i].key = UINT64_MAX;
    for (int i = 0; i < 256; i++) b->byte_id[i] = -1;
}

void hr_bpe_finish(struct hr_bpe *b) {
    hr_buf_finish(&b->bytes);
    free(b->offset);
    free(b->size);
    free((void *)b->whole);
    free(b->slots);
    free(b->pairs);
    *b = (struct hr_bpe){0};
}

/* The slot that holds these bytes, or the free one where they belong. */
static inline size_t find_slot(const struct hr_bpe *b, const char *s, size_t len, uint32_t hash) {
    size_t i = hash & b->slot_mask;
    for (; b->slots[i].id >= 0; i = (i + 1) & b->slot_mask) {
        int32_t id = b->slots[i].id;
        if (b->slots[i].hash == hash && b->size[id] == len &&
            memcmp(b->bytes.data + b->offset[id], s, len) == 0) {
            break;
        }
    }
    return i;
}

void hr_bpe_add_token(struct hr_bpe *b, int32_t id, const char *s, size_t len) {
    HR_ASSERT(id >= 0 && id < b->n_tokens && b->bytes.len + len <= UINT32_MAX);
    if (len == 0) return;
    uint32_t hash = hash_bytes(s, len);
    size_t i = find_slot(b, s, len, hash);
    if (b->slots[i].id >= 0) return;
    b->offset[id] = (uint32_t)b->bytes.len;
    b->size[id] = (uint32_t)len;
    hr_buf_append(&b->bytes, s, len);
    b->slots[i] = (struct hr_bpe_slot){hash, id};
    if (len > b->size_max) b->size_max = len;
}

int32_t hr_bpe_find(const struct hr_bpe *b, const char *s, size_t len) {
    if (len == 0 || len > b->size_max) return -1;
    return b->slots[find_slot(b, s, len, hash_bytes(s, len))].id;
}

void hr_bpe_tokens_done(struct hr_bpe *b) {
    static const char digits[] = "0123456789ABCDEF";
    for (int i = 0; i < 256; i++) {
        char byte = (char)i, name[] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>'};
        b->byte_id[i] =
            b->byte_level ? hr_bpe_find(b, &byte, 1) : hr_bpe_find(b, name, sizeof name);
    }
}

static inline struct hr_bpe_pair *find_pair(const struct hr_bpe *b, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = mix(key * 0xd6e8feb86659fd93u) & b->pair_mask;
    while (b->pairs[i].key != key && b->pairs[i].key != UINT64_MAX) i = (i + 1) & b->pair_mask;
    return &b->pairs[i];
}

bool hr_bpe_add_merge(struct hr_bpe *b, uint32_t rank, const char *left, size_t left_len,
                      const char *right, size_t right_len) {
    struct hr_buf both = {0};
    hr_buf_append(&both, left, left_len);
    hr_buf_append(&both, right, right_len);
    int32_t l = hr_bpe_find(b, left, left_len), r = hr_bpe_find(b, right, right_len);
    int32_t id = hr_bpe_find(b, both.data, both.len);
    hr_buf_finish(&both);
    if (l < 0 || r < 0 || id < 0) return false;
    struct hr_bpe_pair *p = find_pair(b, l, r);
    *p = (struct hr_bpe_pair){(uint64_t)(uint32_t)l << 32 | (uint32_t)r, rank, id};
    return true;
}

void hr_bpe_scratch_finish(struct hr_bpe_scratch *s) {
    hr_ids_finish(&s->ids);
    hr_buf_finish(&s->nodes);
    hr_buf_finish(&s->heap);
}

/* A character without a token: its bytes' tokens when all are there, else the unknown token. */
static void push_unknown(const struct hr_bpe *b, const char *s, size_t n, bool *was_unk,
                         struct hr_ids *out) {
    bool bytes = b->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++) bytes = b->byte_id[(unsigned char)s[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < n; i++) hr_ids_push(out, b->byte_id[(unsigned char)s[i]]);
        *was_unk = false;
    } else if (b->unk >= 0) {
        if (!(b->fuse_unk && *was_unk)) hr_ids_push(out, b->unk);
        *was_unk = true;
    }
}

static void symbols_of(const struct hr_bpe *b, const char *s, size_t len, struct hr_ids *out) {
    bool was_unk = false;
    for (size_t i = 0; i < len;) {
        int n = 1;
        if (!b->byte_level) hr_utf8_get(s + i, &n);
        int32_t id =
            b->byte_level ? b->byte_id[(unsigned char)s[i]] : hr_bpe_find(b, s + i, (size_t)n);
        if (id >= 0) {
            hr_ids_push(out, id);
            was_unk = false;
        } else {
            push_unknown(b, s + i, (size_t)n, &was_unk, out);
        }
        i += (size_t)n;
    }
}

/* Merges v[0..n) in place; returns how many are left. n <= SHORT_MAX. */
static size_t merge_short(const struct hr_bpe *b, int32_t *v, size_t n) {
    uint32_t rank[SHORT_MAX];
    int32_t made[SHORT_MAX];
#define LOOK(i)                                                                                    \
    do {                                                                                           \
        const struct hr_bpe_pair *p = find_pair(b, v[i], v[(i) + 1]);                              \
        rank[i] = p->key == UINT64_MAX ? NO_RANK : p->rank;                                        \
        made[i] = p->id;                                                                           \
    } while (0)
    for (size_t i = 0; i + 1 < n; i++) LOOK(i);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        v[best] = made[best];
        n--;
        for (size_t i = best + 1; i < n; i++) v[i] = v[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            made[i] = made[i + 1];
        }
        if (best > 0) LOOK(best - 1);
        if (best + 1 < n) LOOK(best);
    }
#undef LOOK
    return n;
}

/* A symbol of a long piece, in a list by index; UINT32_MAX: none. A dead one has rank NO_RANK. */
struct sym {
    int32_t id, made;
    uint32_t prev, next, rank;
};

static void heap_down(uint64_t *h, size_t n, size_t i) {
    uint64_t x = h[i];
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && h[k + 1] < h[k]) k++;
        if (h[k] >= x) break;
        h[i] = h[k];
    }
    h[i] = x;
}

static void heap_push(struct hr_buf *heap, uint64_t x) {
    hr_buf_append(heap, &x, sizeof x);
    uint64_t *h = (uint64_t *)heap->data;
    size_t i = heap->len / sizeof x - 1;
    for (; i > 0 && h[(i - 1) / 2] > x; i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
    h[i] = x;
}

static void look(const struct hr_bpe *b, struct sym *s, uint32_t i) {
    s[i].rank = NO_RANK;
    if (s[i].next == UINT32_MAX) return;
    const struct hr_bpe_pair *p = find_pair(b, s[i].id, s[s[i].next].id);
    if (p->key == UINT64_MAX) return;
    s[i].rank = p->rank;
    s[i].made = p->id;
}

/* The same with a heap of (rank, place): an entry whose rank is no longer its place's is stale. */
static size_t merge_long(const struct hr_bpe *b, int32_t *v, size_t n,
                         struct hr_bpe_scratch *scratch) {
    struct hr_buf *heap = &scratch->heap, *nodes = &scratch->nodes;
    HR_ASSERT(n < UINT32_MAX);
    hr_buf_clear(heap);
    hr_buf_clear(nodes);
    hr_buf_reserve(nodes, n * sizeof(struct sym));
    struct sym *s = (struct sym *)nodes->data;
    for (size_t i = 0; i < n; i++) {
        s[i] = (struct sym){v[i], -1, (uint32_t)i - 1, i + 1 < n ? (uint32_t)i + 1 : UINT32_MAX, 0};
    }
    for (size_t i = 0; i < n; i++) {
        look(b, s, (uint32_t)i);
        uint64_t entry = (uint64_t)s[i].rank << 32 | i;
        if (s[i].rank != NO_RANK) hr_buf_append(heap, &entry, sizeof entry);
    }
    uint64_t *h = (uint64_t *)heap->data;
    for (size_t n_heap = heap->len / sizeof *h, i = n_heap / 2; i-- > 0;) heap_down(h, n_heap, i);
    while (heap->len > 0) {
        h = (uint64_t *)heap->data;
        uint64_t top = h[0];
        size_t n_heap = heap->len / sizeof *h - 1;
        h[0] = h[n_heap];
        heap->len -= sizeof *h;
        if (n_heap > 0) heap_down(h, n_heap, 0);
        uint32_t i = (uint32_t)top, j = s[i].next;
        if (s[i].rank != top >> 32) continue;
        s[i].id = s[i].made;
        s[i].next = s[j].next;
        s[j].rank = NO_RANK;
        if (s[i].next != UINT32_MAX) s[s[i].next].prev = i;
        look(b, s, i);
        if (s[i].rank != NO_RANK) heap_push(heap, (uint64_t)s[i].rank << 32 | i);
        uint32_t p = s[i].prev;
        if (p == UINT32_MAX) continue;
        look(b, s, p);
        if (s[p].rank != NO_RANK) heap_push(heap, (uint64_t)s[p].rank << 32 | p);
    }
    size_t k = 0;
    for (uint32_t i = 0; i != UINT32_MAX; i = s[i].next) v[k++] = s[i].id;
    return k;
}

static void merge_piece(const struct hr_bpe *b, const char *s, size_t len,
                        struct hr_bpe_scratch *scratch, struct hr_ids *out) {
    size_t before = out->len;
    symbols_of(b, s, len, out);
    size_t n = out->len - before;
    if (n < 2) return;
    int32_t *v = out->data + before;
    out->len = before + (n <= SHORT_MAX ? merge_short(b, v, n) : merge_long(b, v, n, scratch));
}

/* Threads may find the same answer at the same time; they write the same byte. */
static bool is_whole(const struct hr_bpe *b, int32_t id, struct hr_bpe_scratch *scratch) {
    uint8_t state = atomic_load_explicit(&b->whole[id], memory_order_relaxed);
    if (state == UNKNOWN) {
        scratch->ids.len = 0;
        merge_piece(b, b->bytes.data + b->offset[id], b->size[id], scratch, &scratch->ids);
        state = scratch->ids.len == 1 && scratch->ids.data[0] == id ? YES : NO;
        atomic_store_explicit(&b->whole[id], state, memory_order_relaxed);
    }
    return state == YES;
}

void hr_bpe_encode(const struct hr_bpe *b, const char *s, const struct hr_span *pieces,
                   size_t n_pieces, struct hr_bpe_scratch *scratch, struct hr_ids *out) {
    for (size_t i = 0; i < n_pieces; i++) {
        const char *piece = s + pieces[i].begin;
        size_t len = pieces[i].end - pieces[i].begin;
        int32_t id = hr_bpe_find(b, piece, len);
        if (id >= 0 && (b->ignore_merges || is_whole(b, id, scratch)))
            hr_ids_push(out, id);
        else
            merge_piece(b, piece, len, scratch, out);
    }
}

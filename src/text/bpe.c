/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe: two hash tables and two ways of merging.
 *
 * Most pieces are a token as a whole; whether merging would make that very token is found out once
 * for each token and remembered, so such a piece costs one look-up. A short piece is merged in
 * place by looking for the lowest rank again and again (its ranks fit two cache lines); a long one
 * with a heap.
 *
 * Two ways keep a text without any split, as SentencePiece's models see it, fast and small, and
 * neither changes an id. Cuts: when no merge has a left part that ends in x and a right part that
 * begins with y, nothing is ever merged over x|y, and both sides are merged alone. Windows: tokens
 * are the result for a text if each two neighbours are the result for their own text, because the
 * first merge over a border of theirs would also be made there. So a window is merged, its last
 * tokens are thrown away, the next window begins after the rest, and the two tokens at the seam are
 * tried together; if they do not hold, the piece is done again in larger windows. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "text/unicode.h"

enum { SHORT_MAX = 48 };
enum { WINDOW = 1 << 15 }; /* symbols: its nodes fit a second-level cache */
/* Pairs of characters: ASCII exactly, the others by a hash; a collision only loses a cut. */
enum { JOIN_ASCII = 128 * 128, JOIN_HASHED = 1 << 20 };
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
    if (!byte_level) b->joins = hr_xcalloc((JOIN_ASCII + JOIN_HASHED) / 64, sizeof *b->joins);
}

void hr_bpe_finish(struct hr_bpe *b) {
    hr_buf_finish(&b->bytes);
    free(b->offset);
    free(b->size);
    free((void *)b->whole);
    free(b->slots);
    free(b->pairs);
    free(b->joins);
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

static size_t join_bit(uint32_t left, uint32_t right) {
    if ((left | right) < 128) return left << 7 | right;
    return JOIN_ASCII +
           (mix(((uint64_t)left << 21 | right) * 0xd6e8feb86659fd93u) & (JOIN_HASHED - 1));
}

static inline bool joins(const struct hr_bpe *b, uint32_t left, uint32_t right) {
    size_t i = join_bit(left, right);
    return b->joins[i >> 6] >> (i & 63) & 1;
}

static void note_join(struct hr_bpe *b, int32_t left, int32_t right) {
    const char *s = b->bytes.data + b->offset[left], *p = s + b->size[left] - 1;
    int n;
    while (p > s && ((unsigned char)*p & 0xc0) == 0x80) p--;
    size_t i = join_bit(hr_utf8_get(p, &n), hr_utf8_get(b->bytes.data + b->offset[right], &n));
    b->joins[i >> 6] |= (uint64_t)1 << (i & 63);
}

static void grow_pairs(struct hr_bpe *b) {
    struct hr_bpe_pair *old = b->pairs;
    size_t n_old = b->pair_mask + 1, n = n_old * 2;
    b->pairs = hr_xmalloc(n * sizeof *b->pairs);
    b->pair_mask = n - 1;
    for (size_t i = 0; i < n; i++) b->pairs[i].key = UINT64_MAX;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].key == UINT64_MAX) continue;
        *find_pair(b, (int32_t)(old[i].key >> 32), (int32_t)(uint32_t)old[i].key) = old[i];
    }
    free(old);
}

static void add_pair(struct hr_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t made) {
    if (b->n_pairs * 2 > b->pair_mask) grow_pairs(b);
    struct hr_bpe_pair *p = find_pair(b, left, right);
    b->n_pairs += p->key == UINT64_MAX;
    *p = (struct hr_bpe_pair){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, made};
    if (b->joins) note_join(b, left, right);
}

void hr_bpe_add_all_merges(struct hr_bpe *b, const uint32_t *rank) {
    for (int32_t i = 0; i < b->n_tokens; i++) {
        const char *s = b->bytes.data + b->offset[i];
        size_t len = b->size[i];
        for (size_t k = 1; k < len && rank[i] != NO_RANK; k++) {
            if (!b->byte_level && ((unsigned char)s[k] & 0xc0) == 0x80) continue;
            int32_t left = hr_bpe_find(b, s, k), right = hr_bpe_find(b, s + k, len - k);
            if (left < 0 || right < 0 || rank[left] == NO_RANK || rank[right] == NO_RANK) continue;
            add_pair(b, left, right, rank[i], i);
        }
    }
}

/* Cutting needs each symbol to be a character's: a merge of a byte token or of the unknown token is
 * not seen in `joins`, and a character that vanishes lets its neighbours touch. */
void hr_bpe_merges_done(struct hr_bpe *b) {
    if (b->byte_level) return;
    b->all_bytes = b->byte_fallback;
    for (int i = 0; i < 256; i++) b->all_bytes &= b->byte_id[i] >= 0;
    b->can_cut = b->unk >= 0 || b->all_bytes;
    for (size_t i = 0; i <= b->pair_mask && b->can_cut; i++) {
        int32_t part[2] = {(int32_t)(b->pairs[i].key >> 32), (int32_t)(uint32_t)b->pairs[i].key};
        for (int k = 0; k < 2 && b->pairs[i].key != UINT64_MAX; k++) {
            if (part[k] == b->unk) b->can_cut = false;
            for (int byte = 0; byte < 256 && b->byte_fallback && b->size[part[k]] == 6; byte++)
                if (part[k] == b->byte_id[byte]) b->can_cut = false;
        }
    }
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
    add_pair(b, l, r, rank, id);
    return true;
}

void hr_bpe_scratch_finish(struct hr_bpe_scratch *s) {
    hr_ids_finish(&s->ids);
    hr_ids_finish(&s->symbols);
    hr_ids_finish(&s->tokens);
    hr_ids_finish(&s->starts);
    hr_ids_finish(&s->seam);
    hr_buf_finish(&s->nodes);
    hr_buf_finish(&s->heap);
}

/* A piece on its way to symbols. */
struct reader {
    const char *s;
    size_t len, i;
    bool unk_pending; /* an unknown token that the next known character, or the end, will write */
};

static void flush_unknown(const struct hr_bpe *b, struct reader *r, struct hr_ids *out) {
    if (r->unk_pending) hr_ids_push(out, b->unk);
    r->unk_pending = false;
}

/* A character without a token: its bytes' tokens when all are there, else the unknown token. The
 * reference writes that one late, so byte tokens go before it. */
static void push_unknown(const struct hr_bpe *b, struct reader *r, size_t n, struct hr_ids *out) {
    const char *s = r->s + r->i;
    bool bytes = b->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++) bytes = b->byte_id[(unsigned char)s[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < n; i++) hr_ids_push(out, b->byte_id[(unsigned char)s[i]]);
    } else if (b->unk >= 0) {
        if (!b->fuse_unk) flush_unknown(b, r, out);
        r->unk_pending = true;
    }
}

/* Reads characters until their end or until `out` holds n_max. */
static void symbols_of(const struct hr_bpe *b, struct reader *r, size_t n_max, struct hr_ids *out) {
    while (r->i < r->len && out->len < n_max) {
        const char *s = r->s + r->i;
        int n = 1;
        if (!b->byte_level) hr_utf8_get(s, &n);
        int32_t id = b->byte_level ? b->byte_id[(unsigned char)*s] : hr_bpe_find(b, s, (size_t)n);
        if (id >= 0) {
            flush_unknown(b, r, out);
            hr_ids_push(out, id);
        } else {
            push_unknown(b, r, (size_t)n, out);
        }
        r->i += (size_t)n;
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

static void start_list(const struct hr_bpe *b, const int32_t *v, size_t n, struct sym *s,
                       struct hr_buf *heap) {
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
}

/* The same with a heap of (rank, place): an entry whose rank is no longer its place's is stale.
 * starts: NULL, or gets the first symbol of each token. */
static size_t merge_long(const struct hr_bpe *b, int32_t *v, size_t n,
                         struct hr_bpe_scratch *scratch, struct hr_ids *starts) {
    struct hr_buf *heap = &scratch->heap, *nodes = &scratch->nodes;
    HR_ASSERT(n < UINT32_MAX);
    hr_buf_clear(heap);
    hr_buf_clear(nodes);
    hr_buf_reserve(nodes, n * sizeof(struct sym));
    struct sym *s = (struct sym *)nodes->data;
    start_list(b, v, n, s, heap);
    while (heap->len > 0) {
        uint64_t *h = (uint64_t *)heap->data;
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
    for (uint32_t i = 0; i != UINT32_MAX; i = s[i].next) {
        v[k++] = s[i].id;
        if (starts) hr_ids_push(starts, (int32_t)i);
    }
    return k;
}

static size_t merge(const struct hr_bpe *b, int32_t *v, size_t n, struct hr_bpe_scratch *scratch) {
    if (n < 2) return n;
    return n <= SHORT_MAX ? merge_short(b, v, n) : merge_long(b, v, n, scratch, NULL);
}

/* Do two neighbours stay as they are when their symbols are merged alone? */
static bool holds(const struct hr_bpe *b, const int32_t *symbols, size_t n, int32_t left,
                  int32_t right, struct hr_bpe_scratch *scratch) {
    struct hr_ids *v = &scratch->seam;
    v->len = 0;
    hr_ids_append(v, symbols, n);
    return merge(b, v->data, n, scratch) == 2 && v->data[0] == left && v->data[1] == right;
}

/* A piece in windows of n_max symbols; false: a seam does not hold, and nothing is certain. In
 * scratch->symbols stand the n_lead symbols of the last token written, then those not yet written.
 */
static bool merge_windows(const struct hr_bpe *b, struct reader *r, size_t n_max,
                          struct hr_bpe_scratch *scratch, struct hr_ids *out) {
    struct hr_ids *sym = &scratch->symbols, *v = &scratch->tokens, *starts = &scratch->starts;
    size_t n_lead = 0;
    sym->len = 0;
    for (;;) {
        symbols_of(b, r, n_lead + n_max, sym);
        bool last = r->i == r->len;
        size_t n = sym->len - n_lead, n_sure = last ? n : n - n / 8, k = 0;
        v->len = starts->len = 0;
        hr_ids_append(v, sym->data + n_lead, n);
        if (n > 0) v->len = merge_long(b, v->data, n, scratch, starts);
        hr_ids_push(starts, (int32_t)n);
        if (n_lead > 0 && v->len > 0 &&
            !holds(b, sym->data, n_lead + (size_t)starts->data[1], out->data[out->len - 1],
                   v->data[0], scratch))
            return false;
        while (k < v->len && (size_t)starts->data[k + 1] <= n_sure) k++;
        hr_ids_append(out, v->data, k);
        if (last) return true;
        if (k == 0) return false; /* a token as long as a window */
        size_t drop = n_lead + (size_t)starts->data[k - 1];
        n_lead = (size_t)(starts->data[k] - starts->data[k - 1]);
        memmove(sym->data, sym->data + drop, (sym->len - drop) * sizeof *sym->data);
        sym->len -= drop;
    }
}

/* Merges r's characters; an unknown token at their end stays pending. */
static void merge_piece(const struct hr_bpe *b, struct reader *r, struct hr_bpe_scratch *scratch,
                        struct hr_ids *out) {
    size_t before = out->len;
    if (r->len - r->i <= WINDOW) {
        symbols_of(b, r, SIZE_MAX, out);
        size_t n = out->len - before;
        if (n > 1) out->len = before + merge(b, out->data + before, n, scratch);
        return;
    }
    struct reader start = *r;
    for (size_t n_max = WINDOW; !merge_windows(b, r, n_max, scratch, out); n_max *= 8) {
        out->len = before;
        *r = start;
    }
}

/* Threads may find the same answer at the same time; they write the same byte. */
static bool is_whole(const struct hr_bpe *b, int32_t id, struct hr_bpe_scratch *scratch) {
    uint8_t state = atomic_load_explicit(&b->whole[id], memory_order_relaxed);
    if (state == UNKNOWN) {
        struct reader r = {.s = b->bytes.data + b->offset[id], .len = b->size[id]};
        scratch->ids.len = 0;
        merge_piece(b, &r, scratch, &scratch->ids);
        flush_unknown(b, &r, &scratch->ids);
        state = scratch->ids.len == 1 && scratch->ids.data[0] == id ? YES : NO;
        atomic_store_explicit(&b->whole[id], state, memory_order_relaxed);
    }
    return state == YES;
}

/* The end of the part that begins at pos: the next place that no merge joins. */
static size_t next_cut(const struct hr_bpe *b, const char *s, size_t len, size_t pos) {
    int n;
    uint32_t left = hr_utf8_get(s + pos, &n);
    for (pos += (size_t)n; pos < len; pos += (size_t)n) {
        uint32_t right = hr_utf8_get(s + pos, &n);
        if (!joins(b, left, right)) break;
        left = right;
    }
    return pos;
}

static void merge_parts(const struct hr_bpe *b, const char *s, size_t len,
                        struct hr_bpe_scratch *scratch, struct hr_ids *out) {
    struct reader r = {.s = s};
    for (size_t end; r.i < len; r.i = end) {
        end = b->can_cut ? next_cut(b, s, len, r.i) : len;
        int32_t id = hr_bpe_find(b, s + r.i, end - r.i);
        if (id >= 0 && is_whole(b, id, scratch)) {
            flush_unknown(b, &r, out);
            hr_ids_push(out, id);
            continue;
        }
        r.len = end;
        merge_piece(b, &r, scratch, out);
    }
    flush_unknown(b, &r, out);
}

void hr_bpe_encode(const struct hr_bpe *b, const char *s, const struct hr_span *pieces,
                   size_t n_pieces, struct hr_bpe_scratch *scratch, struct hr_ids *out) {
    for (size_t i = 0; i < n_pieces; i++) {
        const char *piece = s + pieces[i].begin;
        size_t len = pieces[i].end - pieces[i].begin;
        int32_t id = b->ignore_merges ? hr_bpe_find(b, piece, len) : -1;
        if (id >= 0)
            hr_ids_push(out, id);
        else
            merge_parts(b, piece, len, scratch, out);
    }
}

size_t hr_bpe_at_least(const struct hr_bpe *b, const char *s, size_t len) {
    size_t n = 0;
    if (len < b->size_max || !(b->byte_level || b->all_bytes)) return 0;
    for (size_t i = 0; i < len; i++) n += b->all_bytes || b->byte_id[(uint8_t)s[i]] >= 0;
    return n / b->size_max;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * attend: causal attention over pages, for prefill and decode alike.
 *
 * A work item is a block of rows of one sequence with the query heads of one KV head; they share
 * the loads of K and V. Every row goes through its own positions in segments of HR_ATTN_SEGMENT
 * from position 0: scores, softmax, weighted values, each in order of position, and merges each
 * segment's (max, sum, output) into the whole, in order, also when there is just one. So which rows
 * share a block, and with it chunking, batch and threads, changes no bit. With a window a row's
 * positions start at its first one inside; the segments stay where they are, and one that the row
 * does not see is not merged.
 *
 * Slots past a row's position are never read as values and are cut off before the softmax: pages
 * are reused, and what an earlier sequence left there may be NaN. So are those before the window.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/assert.h"

#define SEGMENT_PAGES (HR_ATTN_SEGMENT / HR_PAGE_TOKENS)

_Static_assert(HR_ATTN_SEGMENT % HR_PAGE_TOKENS == 0, "a segment is whole pages");

struct attend_job {
    struct hr_tensor *y;
    const struct hr_tensor *q;
    const struct hr_kv_store *kv;
    int layer, group, rows_each;
    int window; /* 0: none */
};

/* What a work item computes: rows r0 .. r1-1 of a sequence with the query heads of one KV head. */
struct block {
    const struct attend_job *job;
    const struct hr_batch_seq *seq;
    int r0, r1, kv_head;
    const struct hr_cpu_scratch *scratch;
};

static int min_int(int a, int b) {
    return a < b ? a : b;
}

static int max_int(int a, int b) {
    return a > b ? a : b;
}

/* The K and V blocks of n pages of the sequence. */
static void find_pages(const struct block *b, int page0, int n, const char **k, const char **v) {
    const struct hr_kv_store *kv = b->job->kv;
    size_t elem = hr_cpu_elem(kv->dtype);
    for (int i = 0; i < n; i++) {
        int32_t page = b->seq->pages[page0 + i];
        HR_ASSERT(page >= 0 && page < kv->n_pages);
        size_t block = ((size_t)b->job->layer * (size_t)kv->n_pages + (size_t)page) *
                           (size_t)kv->shape.n_kv_heads +
                       (size_t)b->kv_head;
        k[i] = (const char *)kv->mem.data + block * kv->block_elems * elem;
        v[i] = k[i] + kv->k_elems * elem;
    }
}

/* Copies the block's queries together, each padded with zeros to ldv, in the KV store's dtype. */
static void load_q(const struct block *b) {
    const struct attend_job *j = b->job;
    const struct hr_tensor *q = j->q;
    bool widen = q->dtype != j->kv->dtype;
    size_t dim = (size_t)j->kv->shape.head_dim, from = hr_cpu_elem(q->dtype);
    size_t elem = hr_cpu_elem(j->kv->dtype), ldq = (size_t)j->kv->ldv * elem;
    char *dst = b->scratch->q;
    for (int r = b->r0; r < b->r1; r++) {
        const char *row = (const char *)q->mem.data + (size_t)(b->seq->row0 + r) * q->ld * from;
        for (int h = 0; h < j->group; h++, dst += ldq) {
            const char *head = row + (size_t)(b->kv_head * j->group + h) * dim * from;
            if (widen)
                for (size_t i = 0; i < dim; i++)
                    ((float *)dst)[i] = hr_cpu_from_bf16(((const hr_bf16 *)head)[i]);
            else
                memcpy(dst, head, dim * elem);
            memset(dst + dim * elem, 0, ldq - dim * elem);
        }
    }
}

/* Of n_q queries from the i-th on, with pages page0 .. n_pages-1 of the segment. */
static void scores(const struct hr_cpu *be, const struct block *b, int i, int n_q, const char **k,
                   int page0, int n_pages) {
    int ldv = b->job->kv->ldv, dim = b->job->kv->shape.head_dim;
    size_t ldq = (size_t)ldv;
    float *s = b->scratch->s + (size_t)i * HR_ATTN_SEGMENT + page0 * HR_PAGE_TOKENS;
    k += page0;
    n_pages -= page0;
    if (b->job->kv->dtype == HR_F32)
        be->k.scores_f32(s, (const float *)b->scratch->q + (size_t)i * ldq, ldq, n_q,
                         (const float *const *)k, n_pages, dim);
    else
        be->k.scores_bf16(s, (const hr_bf16 *)b->scratch->q + (size_t)i * ldq, ldq, n_q,
                          (const hr_bf16 *const *)k, n_pages, dim);
}

static void values(const struct hr_cpu *be, const struct block *b, int i, int n_q, const char **v,
                   int t0, int t1) {
    int ldv = b->job->kv->ldv;
    float *o = b->scratch->o_seg + (size_t)i * (size_t)ldv;
    const float *p = b->scratch->s + (size_t)i * HR_ATTN_SEGMENT;
    if (b->job->kv->dtype == HR_F32)
        be->k.values_f32(o, p, n_q, (const float *const *)v, t0, t1, ldv);
    else
        be->k.values_bf16(o, p, n_q, (const hr_bf16 *const *)v, t0, t1, ldv);
}

/* Row r sees positions first_seen .. n_valid-1 of the segment at seg0. */
static int n_valid(const struct block *b, int r, int seg0) {
    return min_int(HR_ATTN_SEGMENT, b->seq->pos0 + r + 1 - seg0);
}

static int first_seen(const struct block *b, int r, int seg0) {
    return b->job->window ? max_int(0, b->seq->pos0 + r + 1 - b->job->window - seg0) : 0;
}

/* Rows first .. last-1 of the block: those that see something of a segment, and where their
 * positions in it begin and end. */
struct reach {
    int seg0, first, last;
    int page0, n_pages; /* pages of the segment that a row sees: page0 .. n_pages-1 */
    int from, to;       /* positions that all of the rows see; none when from >= to */
};

static struct reach reach_of(const struct block *b, int seg0) {
    struct reach x = {.seg0 = seg0, .first = max_int(seg0 - b->seq->pos0, b->r0), .last = b->r1};
    while (first_seen(b, x.last - 1, seg0) >= HR_ATTN_SEGMENT) x.last--;
    x.page0 = first_seen(b, x.first, seg0) / HR_PAGE_TOKENS;
    x.n_pages = (n_valid(b, x.last - 1, seg0) + HR_PAGE_TOKENS - 1) / HR_PAGE_TOKENS;
    x.from = first_seen(b, x.last - 1, seg0);
    x.to = n_valid(b, x.first, seg0);
    return x;
}

/* Softmax of a row's scores. It starts at a whole vector: what lies before the window gets no
 * weight, whatever is stored there. */
static void weigh(const struct hr_cpu *be, const struct block *b, int r, int i, int seg0) {
    float *s = b->scratch->s + (size_t)i * HR_ATTN_SEGMENT;
    float scale = b->job->kv->shape.scale, cap = b->job->kv->shape.softcap;
    int from = first_seen(b, r, seg0), at = from / HR_PAGE_TOKENS * HR_PAGE_TOKENS;
    int to = n_valid(b, r, seg0);
    if (cap > 0) {
        be->k.softcap(s + from, to - from, scale, cap);
        scale = 1;
    }
    for (int t = at; t < from; t++) s[t] = -INFINITY;
    be->k.softmax(s + at, to - at, scale, &b->scratch->m_seg[i], &b->scratch->sum_seg[i]);
}

/* Weighted values, each row's in order of position: what only it and some others see, what all see
 * and share the loads of, and again what only some see. */
static void weigh_values(const struct hr_cpu *be, const struct block *b, const struct reach *x,
                         const char **v) {
    int group = b->job->group, i0 = (x->first - b->r0) * group;
    bool shared = x->from < x->to;
    for (int r = x->first, i = i0; r < x->last; r++, i += group) {
        int from = first_seen(b, r, x->seg0), to = shared ? x->from : n_valid(b, r, x->seg0);
        if (from < to) values(be, b, i, group, v, from, to);
    }
    if (!shared) return;
    values(be, b, i0, (x->last - x->first) * group, v, x->from, x->to);
    for (int r = x->first, i = i0; r < x->last; r++, i += group)
        if (n_valid(b, r, x->seg0) > x->to)
            values(be, b, i, group, v, x->to, n_valid(b, r, x->seg0));
}

/* One segment, for the rows of the block that see something of it. */
static void attend_segment(const struct hr_cpu *be, const struct block *b, int seg0) {
    const char *k[SEGMENT_PAGES], *v[SEGMENT_PAGES];
    const struct hr_cpu_scratch *s = b->scratch;
    int group = b->job->group;
    size_t ldv = (size_t)b->job->kv->ldv;
    struct reach x = reach_of(b, seg0);
    int i0 = (x.first - b->r0) * group, n_q = (x.last - x.first) * group;
    find_pages(b, seg0 / HR_PAGE_TOKENS, x.n_pages, k, v);
    scores(be, b, i0, n_q, k, x.page0, x.n_pages);
    memset(s->o_seg + (size_t)i0 * ldv, 0, (size_t)n_q * ldv * sizeof *s->o_seg);
    for (int r = x.first, i = i0; r < x.last; r++)
        for (int h = 0; h < group; h++, i++) weigh(be, b, r, i, seg0);
    weigh_values(be, b, &x, v);
    for (int i = i0; i < i0 + n_q; i++)
        be->k.attn_merge(s->o + (size_t)i * ldv, &s->m[i], &s->sum[i], s->o_seg + (size_t)i * ldv,
                         s->m_seg[i], s->sum_seg[i], (int)ldv);
}

static void store_y(const struct hr_cpu *be, const struct block *b) {
    const struct attend_job *j = b->job;
    const struct hr_cpu_scratch *s = b->scratch;
    int dim = j->kv->shape.head_dim, ldv = j->kv->ldv;
    for (int r = b->r0, i = 0; r < b->r1; r++) {
        for (int h = 0; h < j->group; h++, i++) {
            float *o = s->o + (size_t)i * (size_t)ldv, inv = 1.0f / s->sum[i];
            size_t at = (size_t)(b->kv_head * j->group + h) * (size_t)dim;
            int row = b->seq->row0 + r;
            if (be->base.act == HR_F32) {
                be->k.scale(hr_cpu_row_f32(j->y, row) + at, o, inv, dim);
            } else {
                be->k.scale(o, o, inv, dim);
                be->k.to_bf16(hr_cpu_row_bf16(j->y, row) + at, o, dim);
            }
        }
    }
}

static void attend_block(const struct hr_cpu *be, const struct block *b) {
    const struct hr_cpu_scratch *s = b->scratch;
    int n_q = (b->r1 - b->r0) * b->job->group;
    load_q(b);
    memset(s->o, 0, (size_t)n_q * (size_t)b->job->kv->ldv * sizeof *s->o);
    for (int i = 0; i < n_q; i++) s->m[i] = -INFINITY, s->sum[i] = 0;
    int seen = first_seen(b, b->r0, 0); /* the first position that any row sees */
    for (int seg0 = seen / HR_ATTN_SEGMENT * HR_ATTN_SEGMENT; seg0 < b->seq->pos0 + b->r1;
         seg0 += HR_ATTN_SEGMENT)
        attend_segment(be, b, seg0);
    store_y(be, b);
}

/* Items of a sequence: its row blocks, each with all KV heads. */
static void attend_items(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct attend_job *j = arg;
    int n_kv = j->kv->shape.n_kv_heads, lo = 0, hi = be->batch->n_seqs;
    while (hi - lo > 1) { /* the sequence that i0 belongs to */
        int mid = (lo + hi) / 2;
        if (be->seq_item0[mid] <= i0)
            lo = mid;
        else
            hi = mid;
    }
    for (int i = i0; i < i1; i++) {
        while (i >= be->seq_item0[lo + 1]) lo++;
        const struct hr_batch_seq *seq = &be->batch->seqs[lo];
        int item = i - be->seq_item0[lo], r0 = item / n_kv * j->rows_each;
        struct block b = {.job = j,
                          .seq = seq,
                          .r0 = r0,
                          .r1 = min_int(r0 + j->rows_each, seq->n_rows),
                          .kv_head = item % n_kv,
                          .scratch = &be->scratch[i_thread]};
        attend_block(be, &b);
    }
}

void hr_cpu_attend(struct hr_backend *base, struct hr_tensor *y, const struct hr_tensor *q,
                   const struct hr_kv_store *kv, int layer, int window) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    const struct hr_attn_shape *s = &kv->shape;
    HR_ASSERT(be->batch && layer >= 0 && layer < kv->n_layers && window >= 0);
    HR_ASSERT(q->dtype == base->act && q->n_cols == s->n_heads * s->head_dim);
    HR_ASSERT(y->dtype == base->act && y->n_cols == q->n_cols);
    struct attend_job j = {.y = y, .q = q, .kv = kv, .layer = layer, .window = window};
    j.group = s->n_heads / s->n_kv_heads;
    j.rows_each = j.group >= HR_CPU_ATTN_QUERIES ? 1 : HR_CPU_ATTN_QUERIES / j.group;
    double positions = 0;
    be->seq_item0[0] = 0;
    for (int i = 0; i < be->batch->n_seqs; i++) {
        const struct hr_batch_seq *seq = &be->batch->seqs[i];
        HR_ASSERT(seq->n_rows >= 1 && seq->pos0 >= 0 && seq->row0 >= 0);
        HR_ASSERT(seq->row0 + seq->n_rows <= q->n_rows && seq->row0 + seq->n_rows <= y->n_rows);
        int n_blocks = (seq->n_rows + j.rows_each - 1) / j.rows_each;
        be->seq_item0[i + 1] = be->seq_item0[i] + n_blocks * s->n_kv_heads;
        int seen = seq->pos0 + seq->n_rows;
        positions += (double)seq->n_rows * (window ? min_int(window, seen) : seen);
    }
    int n_items = be->seq_item0[be->batch->n_seqs];
    hr_cpu_region_enter(&y->mem);
    hr_cpu_region_enter(&q->mem);
    hr_cpu_region_enter(&kv->mem);
    /* two multiply-adds a position and dimension, about 16 of them a nanosecond */
    hr_cpu_run(be, n_items, 1, positions * q->n_cols / 8 / n_items, attend_items, &j);
    hr_cpu_region_leave(&kv->mem);
    hr_cpu_region_leave(&q->mem);
    hr_cpu_region_leave(&y->mem);
}

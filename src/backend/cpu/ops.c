/* SPDX-License-Identifier: Apache-2.0
 *
 * ops: embedding, norms, matmuls, rotary positions and gated activation of the CPU backend.
 *
 * An operation opens the memory that it names, splits rows or outputs over the threads, never a
 * sum, and closes the memory again. Times an item (in ns) are rough: they only say whether it pays
 * to wake the helpers. */
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/assert.h"

/* Rows of a matmul that one piece computes at most. Below it the weights are read from memory
 * exactly once; above it there is arithmetic enough that a second read does not matter. */
#define MATMUL_ROWS 256

static void store_row(const struct hr_cpu *be, struct hr_tensor *y, int row, const float *v,
                      int n) {
    if (y->dtype == HR_F32)
        memcpy(hr_cpu_row_f32(y, row), v, (size_t)n * sizeof *v);
    else
        be->k.to_bf16(hr_cpu_row_bf16(y, row), v, n);
}

struct embed_job {
    struct hr_tensor *y;
    const struct hr_weight *w;
    float scale;
};

static void embed_rows(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct embed_job *j = arg;
    for (int i = i0; i < i1; i++) {
        int32_t id = be->batch->tokens[i];
        HR_ASSERT(id >= 0 && id < j->w->n_out);
        const char *panel =
            (const char *)j->w->mem.data + (size_t)(id / HR_CPU_PANEL) * j->w->panel_bytes;
        float *y = hr_cpu_row_f32(j->y, i);
        int lane = id % HR_CPU_PANEL, n_in = j->w->n_in;
        if (be->base.act == HR_F32) {
            const float *w = (const float *)panel + lane;
            for (int k = 0; k < n_in; k++) y[k] = w[(size_t)k * HR_CPU_PANEL] * j->scale;
        } else {
            const hr_bf16 *w = (const hr_bf16 *)panel + 2 * lane;
            for (int k = 0; k < n_in; k++)
                y[k] = hr_cpu_from_bf16(w[(size_t)(k / 2) * 2 * HR_CPU_PANEL + k % 2]) * j->scale;
        }
    }
}

void hr_cpu_embed(struct hr_backend *base, struct hr_tensor *y, const struct hr_weight *w,
                  float scale) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(be->batch && y->dtype == HR_F32 && y->n_cols == w->n_in);
    HR_ASSERT(be->batch->n_tokens <= y->n_rows);
    struct embed_job j = {y, w, scale};
    hr_cpu_region_enter(&y->mem);
    hr_cpu_region_enter(&w->mem);
    hr_cpu_run(be, be->batch->n_tokens, 1, 3.0 * w->n_in, embed_rows, &j);
    hr_cpu_region_leave(&w->mem);
    hr_cpu_region_leave(&y->mem);
}

struct norm_job {
    struct hr_tensor *y;
    const struct hr_tensor *x, *w;
    float eps;
    bool only_out;
};

static void norm_rows(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct norm_job *j = arg;
    float *row = be->scratch[i_thread].row;
    for (int i = i0; i < i1; i++) {
        int from = j->only_out ? be->batch->out_rows[i] : i;
        be->k.rmsnorm(row, hr_cpu_row_f32(j->x, from), hr_cpu_row_f32(j->w, 0), j->x->n_cols,
                      j->eps);
        store_row(be, j->y, i, row, j->x->n_cols);
    }
}

void hr_cpu_rmsnorm(struct hr_backend *base, struct hr_tensor *y, const struct hr_tensor *x,
                    const struct hr_tensor *w, float eps, bool only_out) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(be->batch && x->dtype == HR_F32 && w->dtype == HR_F32 && y->dtype == base->act);
    HR_ASSERT(x->n_cols == y->n_cols && w->n_cols == x->n_cols && be->batch->n_tokens <= x->n_rows);
    int n = only_out ? be->batch->n_out : be->batch->n_tokens;
    HR_ASSERT(n <= y->n_rows);
    struct norm_job j = {y, x, w, eps, only_out};
    hr_cpu_region_enter(&y->mem);
    hr_cpu_region_enter(&x->mem);
    hr_cpu_region_enter(&w->mem);
    hr_cpu_run(be, n, 1, 0.5 * x->n_cols, norm_rows, &j);
    hr_cpu_region_leave(&w->mem);
    hr_cpu_region_leave(&x->mem);
    hr_cpu_region_leave(&y->mem);
}

struct add_job {
    struct hr_tensor *x;
    const struct hr_tensor *y, *w;
    float eps;
};

static void add_norm_rows(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct add_job *j = arg;
    float *row = be->scratch[i_thread].row;
    for (int i = i0; i < i1; i++) {
        float *x = hr_cpu_row_f32(j->x, i);
        be->k.rmsnorm(row, hr_cpu_row_f32(j->y, i), hr_cpu_row_f32(j->w, 0), j->x->n_cols, j->eps);
        for (int k = 0; k < j->x->n_cols; k++) x[k] += row[k];
    }
}

void hr_cpu_add_rmsnorm(struct hr_backend *base, struct hr_tensor *x, const struct hr_tensor *y,
                        const struct hr_tensor *w, float eps) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(be->batch && x->dtype == HR_F32 && y->dtype == HR_F32 && w->dtype == HR_F32);
    HR_ASSERT(x->n_cols == y->n_cols && w->n_cols == x->n_cols);
    HR_ASSERT(be->batch->n_tokens <= x->n_rows && be->batch->n_tokens <= y->n_rows);
    struct add_job j = {x, y, w, eps};
    hr_cpu_region_enter(&x->mem);
    hr_cpu_region_enter(&y->mem);
    hr_cpu_region_enter(&w->mem);
    hr_cpu_run(be, be->batch->n_tokens, 1, 0.7 * x->n_cols, add_norm_rows, &j);
    hr_cpu_region_leave(&w->mem);
    hr_cpu_region_leave(&y->mem);
    hr_cpu_region_leave(&x->mem);
}

void hr_cpu_to_act(struct hr_backend *base, struct hr_tensor *y, const struct hr_tensor *x) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(be->batch && x->dtype == HR_F32 && y->dtype == base->act && x->n_cols == y->n_cols);
    HR_ASSERT(be->batch->n_tokens <= x->n_rows && be->batch->n_tokens <= y->n_rows);
    hr_cpu_region_enter(&y->mem);
    hr_cpu_region_enter(&x->mem);
    for (int i = 0; i < be->batch->n_tokens; i++)
        store_row(be, y, i, hr_cpu_row_f32(x, i), x->n_cols);
    hr_cpu_region_leave(&x->mem);
    hr_cpu_region_leave(&y->mem);
}

struct softcap_job {
    struct hr_tensor *x;
    float cap;
};

static void softcap_rows(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct softcap_job *j = arg;
    for (int i = i0; i < i1; i++) be->k.softcap(hr_cpu_row_f32(j->x, i), j->x->n_cols, 1, j->cap);
}

void hr_cpu_softcap(struct hr_backend *base, struct hr_tensor *x, int n_rows, float cap) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(x->dtype == HR_F32 && n_rows >= 0 && n_rows <= x->n_rows && cap > 0);
    struct softcap_job j = {x, cap};
    hr_cpu_region_enter(&x->mem);
    hr_cpu_run(be, n_rows, 1, 1.0 * x->n_cols, softcap_rows, &j);
    hr_cpu_region_leave(&x->mem);
}

struct matmul_job {
    struct hr_tensor *y;
    const struct hr_tensor *x, *bias;
    const struct hr_weight *w;
    int n_rows, rows_each, n_row_blocks, panels_each;
    bool accumulate;
};

/* Items go through the row blocks of one stretch of panels before the next stretch. */
static void matmul_piece(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct matmul_job *j = arg;
    for (int i = i0; i < i1; i++) {
        int p0 = i / j->n_row_blocks * j->panels_each, r0 = i % j->n_row_blocks * j->rows_each;
        int np = j->w->n_panels - p0 < j->panels_each ? j->w->n_panels - p0 : j->panels_each;
        int nr = j->n_rows - r0 < j->rows_each ? j->n_rows - r0 : j->rows_each;
        const char *w = (const char *)j->w->mem.data + (size_t)p0 * j->w->panel_bytes;
        const float *bias = j->bias ? hr_cpu_row_f32(j->bias, 0) + p0 * HR_CPU_PANEL : NULL;
        float *y = hr_cpu_row_f32(j->y, r0) + p0 * HR_CPU_PANEL;
        if (be->base.act == HR_F32)
            be->k.gemm_f32(y, j->y->ld, hr_cpu_row_f32(j->x, r0), j->x->ld, (const float *)w, bias,
                           nr, np, j->w->n_in, j->accumulate);
        else
            be->k.gemm_bf16(y, j->y->ld, hr_cpu_row_bf16(j->x, r0), j->x->ld, (const hr_bf16 *)w,
                            bias, nr, np, j->w->n_in, j->accumulate);
    }
}

/* Pieces of about 32 us, so that the threads end together, but at least four panels, which one row
 * takes at once, and no more pieces than work. */
static int panels_in_a_piece(const struct hr_cpu *be, const struct hr_weight *w, int n_rows) {
    double panel_ns = (double)w->panel_bytes / 20 + (double)w->n_in * HR_CPU_PANEL * n_rows / 80;
    int n = (int)(32000 / panel_ns) / 4 * 4, fair = w->n_panels / (2 * be->n_threads) / 4 * 4;
    if (n > fair) n = fair;
    return n < 4 ? 4 : n;
}

void hr_cpu_matmul(struct hr_backend *base, struct hr_tensor *y, const struct hr_tensor *x,
                   const struct hr_weight *w, const struct hr_tensor *bias, int n_rows,
                   bool accumulate) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(x->dtype == base->act && y->dtype == HR_F32 && x->n_cols == w->n_in &&
              y->n_cols == w->n_out);
    HR_ASSERT(n_rows >= 0 && n_rows <= x->n_rows && n_rows <= y->n_rows);
    HR_ASSERT(!bias || (bias->dtype == HR_F32 && bias->n_cols == w->n_out));
    if (n_rows == 0) return;
    struct matmul_job j = {
        .y = y, .x = x, .bias = bias, .w = w, .n_rows = n_rows, .accumulate = accumulate};
    j.n_row_blocks = (n_rows + MATMUL_ROWS - 1) / MATMUL_ROWS;
    j.rows_each = (n_rows + j.n_row_blocks - 1) / j.n_row_blocks;
    j.panels_each = panels_in_a_piece(be, w, j.rows_each);
    int n_stretches = (w->n_panels + j.panels_each - 1) / j.panels_each;
    hr_cpu_region_enter(&y->mem);
    hr_cpu_region_enter(&x->mem);
    hr_cpu_region_enter(&w->mem);
    if (bias) hr_cpu_region_enter(&bias->mem);
    hr_cpu_run(be, n_stretches * j.n_row_blocks, 1, (double)w->panel_bytes * j.panels_each / 20,
               matmul_piece, &j);
    if (bias) hr_cpu_region_leave(&bias->mem);
    hr_cpu_region_leave(&w->mem);
    hr_cpu_region_leave(&x->mem);
    hr_cpu_region_leave(&y->mem);
}

struct rope_job {
    struct hr_tensor *q;
    struct hr_kv_store *kv;
    int layer;
    const struct hr_tensor *qkv, *q_norm, *k_norm, *cos_sin;
};

/* k of one head into its page: bf16 [head_dim/2][16][2], f32 [head_dim][16]. */
static void write_k(const struct hr_cpu *be, void *block, int offset, const float *k,
                    const struct hr_kv_store *kv) {
    int head_dim = kv->shape.head_dim;
    if (kv->dtype == HR_F32) {
        float *at = (float *)block + offset;
        for (int d = 0; d < head_dim; d++) at[d * HR_PAGE_TOKENS] = k[d];
        return;
    }
    hr_bf16 rounded[HR_CPU_HEAD_MAX], *at = (hr_bf16 *)block + 2 * offset;
    be->k.to_bf16(rounded, k, head_dim);
    for (int d = 0; d < head_dim; d++) at[(d / 2) * 2 * HR_PAGE_TOKENS + d % 2] = rounded[d];
}

static void write_v(const struct hr_cpu *be, void *block, int offset, const float *v,
                    const struct hr_kv_store *kv) {
    size_t at = kv->k_elems + (size_t)offset * (size_t)kv->ldv;
    int n = kv->shape.head_dim;
    if (kv->dtype == HR_F32)
        memcpy((float *)block + at, v, (size_t)n * sizeof *v);
    else
        be->k.to_bf16((hr_bf16 *)block + at, v, n);
}

/* Norms and rotates `n` heads that lie side by side. */
static void turn_heads(const struct hr_cpu *be, const struct rope_job *j, float *heads, int n,
                       const struct hr_tensor *norm, const float *cs) {
    const struct hr_attn_shape *s = &j->kv->shape;
    int wide = norm && norm->n_cols != s->head_dim ? n : 1; /* heads that one norm covers */
    for (int h = 0; h < n; h++) {
        float *head = heads + (size_t)h * (size_t)s->head_dim;
        if (norm && h % wide == 0)
            be->k.rmsnorm(head, head, hr_cpu_row_f32(norm, 0), wide * s->head_dim, s->qk_eps);
        if (cs) be->k.rope(head, cs, s->rope_dim);
    }
}

static void rope_rows(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct rope_job *j = arg;
    const struct hr_kv_store *kv = j->kv;
    const struct hr_attn_shape *s = &kv->shape;
    float *row = be->scratch[i_thread].row;
    for (int i = i0; i < i1; i++) {
        int32_t pos = be->batch->positions[i], slot = be->batch->slots[i];
        HR_ASSERT(pos >= 0 && (!j->cos_sin || pos < j->cos_sin->n_rows));
        HR_ASSERT(slot >= 0 && slot / HR_PAGE_TOKENS < kv->n_pages);
        const float *cs = j->cos_sin ? hr_cpu_row_f32(j->cos_sin, pos) : NULL;
        const float *src = hr_cpu_row_f32(j->qkv, i);
        memcpy(row, src, (size_t)j->qkv->n_cols * sizeof *row);
        turn_heads(be, j, row, s->n_heads, j->q_norm, cs);
        turn_heads(be, j, row + (size_t)s->n_heads * (size_t)s->head_dim, s->n_kv_heads, j->k_norm,
                   cs);
        store_row(be, j->q, i, row, s->n_heads * s->head_dim);
        size_t block0 = ((size_t)j->layer * (size_t)kv->n_pages + (size_t)(slot / HR_PAGE_TOKENS)) *
                        (size_t)s->n_kv_heads;
        for (int h = 0; h < s->n_kv_heads; h++) {
            void *block = (char *)kv->mem.data +
                          (block0 + (size_t)h) * kv->block_elems * hr_cpu_elem(kv->dtype);
            const float *k = row + (size_t)(s->n_heads + h) * (size_t)s->head_dim;
            write_k(be, block, slot % HR_PAGE_TOKENS, k, kv);
            write_v(be, block, slot % HR_PAGE_TOKENS,
                    k + (size_t)s->n_kv_heads * (size_t)s->head_dim, kv);
        }
    }
}

void hr_cpu_rope_write(struct hr_backend *base, struct hr_tensor *q, struct hr_kv_store *kv,
                       int layer, const struct hr_tensor *qkv, const struct hr_tensor *q_norm,
                       const struct hr_tensor *k_norm, const struct hr_tensor *cos_sin) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    const struct hr_attn_shape *s = &kv->shape;
    HR_ASSERT(be->batch && layer >= 0 && layer < kv->n_layers);
    HR_ASSERT(qkv->dtype == HR_F32 &&
              qkv->n_cols == (s->n_heads + 2 * s->n_kv_heads) * s->head_dim);
    HR_ASSERT(q->dtype == base->act && q->n_cols == s->n_heads * s->head_dim);
    HR_ASSERT(!cos_sin || (cos_sin->dtype == HR_F32 && cos_sin->n_cols == s->rope_dim));
    HR_ASSERT(!q_norm || q_norm->n_cols == s->head_dim || q_norm->n_cols == q->n_cols);
    HR_ASSERT(!k_norm || k_norm->n_cols == s->head_dim ||
              k_norm->n_cols == s->n_kv_heads * s->head_dim);
    HR_ASSERT(be->batch->n_tokens <= q->n_rows && be->batch->n_tokens <= qkv->n_rows);
    const struct hr_cpu_region *all[] = {&q->mem,
                                         &kv->mem,
                                         &qkv->mem,
                                         cos_sin ? &cos_sin->mem : NULL,
                                         q_norm ? &q_norm->mem : NULL,
                                         k_norm ? &k_norm->mem : NULL};
    struct rope_job j = {q, kv, layer, qkv, q_norm, k_norm, cos_sin};
    for (int i = 0; i < 6; i++)
        if (all[i]) hr_cpu_region_enter(all[i]);
    hr_cpu_run(be, be->batch->n_tokens, 1, 1.5 * qkv->n_cols, rope_rows, &j);
    for (int i = 0; i < 6; i++)
        if (all[i]) hr_cpu_region_leave(all[i]);
}

struct gate_job {
    struct hr_tensor *y;
    const struct hr_tensor *gate_up;
    void (*fn)(float *y, const float *g, const float *u, int n);
};

static void gate_rows(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct gate_job *j = arg;
    float *row = be->scratch[i_thread].row;
    for (int i = i0; i < i1; i++) {
        const float *g = hr_cpu_row_f32(j->gate_up, i);
        j->fn(row, g, g + j->y->n_cols, j->y->n_cols);
        store_row(be, j->y, i, row, j->y->n_cols);
    }
}

static void gate(struct hr_cpu *be, const struct gate_job *j) {
    const struct hr_tensor *y = j->y, *gate_up = j->gate_up;
    HR_ASSERT(be->batch && gate_up->dtype == HR_F32 && y->dtype == be->base.act);
    HR_ASSERT(gate_up->n_cols == 2 * y->n_cols);
    HR_ASSERT(be->batch->n_tokens <= y->n_rows && be->batch->n_tokens <= gate_up->n_rows);
    hr_cpu_region_enter(&y->mem);
    hr_cpu_region_enter(&gate_up->mem);
    hr_cpu_run(be, be->batch->n_tokens, 1, 1.0 * y->n_cols, gate_rows, (void *)j);
    hr_cpu_region_leave(&gate_up->mem);
    hr_cpu_region_leave(&y->mem);
}

void hr_cpu_silu_mul(struct hr_backend *base, struct hr_tensor *y,
                     const struct hr_tensor *gate_up) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    gate(be, &(struct gate_job){y, gate_up, be->k.silu_mul});
}

void hr_cpu_gelu_mul(struct hr_backend *base, struct hr_tensor *y,
                     const struct hr_tensor *gate_up) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    gate(be, &(struct gate_job){y, gate_up, be->k.gelu_mul});
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * data: tensors, packed weights and the KV store of the CPU backend: taken, filled, read, given
 * back.
 *
 * All memory is taken here, the scratch of the operations too, so that a step allocates nothing. KV
 * and activations are touched at once: a machine that cannot hold them says so now. (The KV cache's host tier
 * is touched by kvcopy.c.) */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/assert.h"
#include "base/buf.h"

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* Zeroes memory that is zero: this is what makes the system hand it out. */
static void touch(struct hr_cpu_region *r) {
    hr_cpu_region_enter(r);
    memset(r->data, 0, r->bytes);
    hr_cpu_region_leave(r);
}

static void *scratch_alloc(size_t bytes) {
    void *p = aligned_alloc(64, round_up(bytes ? bytes : 1, 64));
    if (p) memset(p, 0, bytes);
    return p;
}

/* Scratch for rows of n_cols; keeps what is there when it is wide enough. */
static enum hr_status grow_rows(struct hr_cpu *be, int n_cols, struct hr_err *err) {
    if (n_cols <= be->scratch_cols) return HR_OK;
    size_t n = round_up((size_t)n_cols, HR_CPU_PANEL);
    for (int i = 0; i < be->n_threads; i++) {
        struct hr_cpu_scratch *s = &be->scratch[i];
        free(s->row), free(s->raw), free(s->e), free(s->bucket), free(s->cands);
        s->row = scratch_alloc(n * sizeof *s->row);
        s->raw = scratch_alloc(n * sizeof *s->raw);
        s->e = scratch_alloc(n * sizeof *s->e);
        s->bucket = scratch_alloc(n * sizeof *s->bucket);
        s->cands = scratch_alloc(n * sizeof *s->cands);
        if (!s->row || !s->raw || !s->e || !s->bucket || !s->cands) {
            be->scratch_cols = 0;
            return hr_err_set(err, HR_ERR_NOMEM, "no memory for rows of %d values", n_cols);
        }
    }
    be->scratch_cols = n_cols;
    return HR_OK;
}

enum hr_status hr_cpu_tensor_create(struct hr_backend *base, enum hr_dtype dtype, int n_rows,
                                    int n_cols, const char *name, struct hr_tensor **out,
                                    struct hr_err *err) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(n_rows >= 1 && n_cols >= 1 && n_cols <= INT_MAX - HR_CPU_PANEL);
    struct hr_tensor *t = hr_xcalloc(1, sizeof *t);
    t->dtype = dtype;
    t->n_rows = n_rows;
    t->n_cols = n_cols;
    t->ld = round_up((size_t)n_cols, HR_CPU_PANEL);
    if (grow_rows(be, n_cols, err) != HR_OK) goto fail;
    if (hr_cpu_region_init(be, &t->mem, (size_t)n_rows * t->ld * hr_cpu_elem(dtype), name, err) !=
        HR_OK)
        goto fail;
    touch(&t->mem);
    *out = t;
    return HR_OK;
fail:
    hr_cpu_tensor_destroy(base, &t);
    return HR_ERR_NOMEM;
}

void hr_cpu_tensor_destroy(struct hr_backend *base, struct hr_tensor **t) {
    if (!*t) return;
    hr_cpu_region_finish(&(*t)->mem);
    free(*t);
    *t = NULL;
}

void hr_cpu_tensor_write(struct hr_backend *base, struct hr_tensor *t, int row0, int n_rows,
                         const float *src) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 <= t->n_rows - n_rows);
    hr_cpu_region_enter(&t->mem);
    for (int r = row0; r < row0 + n_rows; r++, src += t->n_cols) {
        if (t->dtype == HR_F32)
            memcpy(hr_cpu_row_f32(t, r), src, (size_t)t->n_cols * sizeof *src);
        else
            be->k.to_bf16(hr_cpu_row_bf16(t, r), src, t->n_cols);
    }
    hr_cpu_region_leave(&t->mem);
}

void hr_cpu_tensor_read(struct hr_backend *base, const struct hr_tensor *t, int row0, int n_rows,
                        float *dst) {
    HR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 <= t->n_rows - n_rows);
    hr_cpu_region_enter(&t->mem);
    for (int r = row0; r < row0 + n_rows; r++, dst += t->n_cols) {
        if (t->dtype == HR_F32) {
            memcpy(dst, hr_cpu_row_f32(t, r), (size_t)t->n_cols * sizeof *dst);
            continue;
        }
        const hr_bf16 *row = hr_cpu_row_bf16(t, r);
        for (int i = 0; i < t->n_cols; i++) dst[i] = hr_cpu_from_bf16(row[i]);
    }
    hr_cpu_region_leave(&t->mem);
}

enum hr_status hr_cpu_weight_create(struct hr_backend *base, int n_out, int n_in, const char *name,
                                    struct hr_weight **out, struct hr_err *err) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(n_out >= 1 && n_in >= 1 && n_out <= INT_MAX - HR_CPU_PANEL && n_in < INT_MAX);
    struct hr_weight *w = hr_xcalloc(1, sizeof *w);
    w->n_out = n_out;
    w->n_in = n_in;
    w->n_panels = (n_out + HR_CPU_PANEL - 1) / HR_CPU_PANEL;
    size_t k = base->act == HR_F32 ? (size_t)n_in : round_up((size_t)n_in, 2);
    w->panel_bytes = k * HR_CPU_PANEL * hr_cpu_elem(base->act);
    if (hr_cpu_region_init(be, &w->mem, (size_t)w->n_panels * w->panel_bytes, name, err) != HR_OK) {
        hr_cpu_weight_destroy(base, &w);
        return HR_ERR_NOMEM;
    }
    *out = w;
    return HR_OK;
}

void hr_cpu_weight_destroy(struct hr_backend *base, struct hr_weight **w) {
    if (!*w) return;
    hr_cpu_region_finish(&(*w)->mem);
    free(*w);
    *w = NULL;
}

/* Outputs of one panel from `lane0` on. K is the outer loop: the panel is written front to back. */
static void pack_bf16(const struct hr_cpu *be, hr_bf16 *panel, int lane0, int n, const float *src,
                      int n_in) {
    float pair[2 * HR_CPU_PANEL];
    hr_bf16 packed[2 * HR_CPU_PANEL];
    for (int i = 0; i < n_in; i += 2, panel += 2 * HR_CPU_PANEL) {
        for (int j = 0; j < n; j++) {
            const float *at = src + (size_t)j * (size_t)n_in + i;
            pair[2 * j] = at[0];
            pair[2 * j + 1] = i + 1 < n_in ? at[1] : 0;
        }
        be->k.to_bf16(packed, pair, 2 * n);
        memcpy(panel + 2 * lane0, packed, (size_t)n * 2 * sizeof *packed);
    }
}

static void pack_f32(float *panel, int lane0, int n, const float *src, int n_in) {
    for (int i = 0; i < n_in; i++, panel += HR_CPU_PANEL)
        for (int j = 0; j < n; j++) panel[lane0 + j] = src[(size_t)j * (size_t)n_in + i];
}

void hr_cpu_weight_write(struct hr_backend *base, struct hr_weight *w, int row0, int n_rows,
                         const float *src) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 <= w->n_out - n_rows);
    hr_cpu_region_enter(&w->mem);
    for (int r = row0; r < row0 + n_rows;) {
        int lane0 = r % HR_CPU_PANEL, n = HR_CPU_PANEL - lane0;
        if (n > row0 + n_rows - r) n = row0 + n_rows - r;
        void *panel = (char *)w->mem.data + (size_t)(r / HR_CPU_PANEL) * w->panel_bytes;
        if (base->act == HR_F32)
            pack_f32(panel, lane0, n, src, w->n_in);
        else
            pack_bf16(be, panel, lane0, n, src, w->n_in);
        src += (size_t)n * (size_t)w->n_in;
        r += n;
    }
    hr_cpu_region_leave(&w->mem);
}

/* Scratch for n_q queries of a head padded to ldv. */
static enum hr_status grow_attn(struct hr_cpu *be, int n_q, int ldv, struct hr_err *err) {
    if (n_q <= be->attn_q && ldv <= be->attn_ldv) return HR_OK;
    if (n_q < be->attn_q) n_q = be->attn_q;
    if (ldv < be->attn_ldv) ldv = be->attn_ldv;
    be->attn_q = be->attn_ldv = 0;
    size_t q = (size_t)n_q, row = q * (size_t)ldv;
    for (int i = 0; i < be->n_threads; i++) {
        struct hr_cpu_scratch *s = &be->scratch[i];
        free(s->q), free(s->s), free(s->o), free(s->o_seg), free(s->m);
        s->q = scratch_alloc(row * sizeof(float));
        s->s = scratch_alloc(q * HR_ATTN_SEGMENT * sizeof *s->s);
        s->o = scratch_alloc(row * sizeof *s->o);
        s->o_seg = scratch_alloc(row * sizeof *s->o_seg);
        s->m = scratch_alloc(4 * q * sizeof *s->m);
        if (!s->q || !s->s || !s->o || !s->o_seg || !s->m)
            return hr_err_set(err, HR_ERR_NOMEM, "no memory for the scratch of attention");
        s->sum = s->m + q;
        s->m_seg = s->m + 2 * q;
        s->sum_seg = s->m + 3 * q;
    }
    be->attn_q = n_q;
    be->attn_ldv = ldv;
    return HR_OK;
}

enum hr_status hr_cpu_kv_create(struct hr_backend *base, enum hr_dtype dtype, int n_layers,
                                int n_pages, int n_host_pages, const struct hr_attn_shape *shape,
                                struct hr_kv_store **out, struct hr_err *err) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(n_layers >= 1 && n_pages >= 1 && n_host_pages >= 0);
    HR_ASSERT(dtype == base->act || dtype == HR_F32);
    HR_ASSERT(shape->n_heads >= 1 && shape->n_kv_heads >= 1);
    if (shape->head_dim < 1 || shape->head_dim > HR_CPU_HEAD_MAX)
        return hr_err_set(err, HR_ERR_UNSUPPORTED, "head size %d: at most %d is supported",
                          shape->head_dim, HR_CPU_HEAD_MAX);
    if (shape->n_heads % shape->n_kv_heads || shape->rope_dim < 0 || shape->rope_dim % 2 ||
        shape->rope_dim > shape->head_dim)
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "attention of %d heads over %d KV heads, %d of %d dimensions rotated",
                          shape->n_heads, shape->n_kv_heads, shape->rope_dim, shape->head_dim);
    struct hr_kv_store *kv = hr_xcalloc(1, sizeof *kv);
    kv->dtype = dtype;
    kv->n_layers = n_layers;
    kv->n_pages = n_pages;
    kv->shape = *shape;
    kv->ldv = (int)round_up((size_t)shape->head_dim, 16);
    kv->k_elems = round_up((size_t)shape->head_dim, 2) * HR_PAGE_TOKENS;
    kv->block_elems = kv->k_elems + (size_t)kv->ldv * HR_PAGE_TOKENS;
    kv->page_bytes = (size_t)shape->n_kv_heads * kv->block_elems * hr_cpu_elem(dtype);
    kv->n_host_pages = n_host_pages;
    int group = shape->n_heads / shape->n_kv_heads;
    if (grow_attn(be, group > HR_CPU_ATTN_QUERIES ? group : HR_CPU_ATTN_QUERIES, kv->ldv, err) !=
        HR_OK)
        goto fail;
    size_t token_page = (size_t)n_layers * kv->page_bytes;
    if (hr_cpu_region_init(be, &kv->mem, (size_t)n_pages * token_page, "the KV cache", err) != HR_OK)
        goto fail;
    touch(&kv->mem);
    if (n_host_pages > 0 && hr_cpu_region_init(be, &kv->host, (size_t)n_host_pages * token_page,
                                               "the host tier of the KV cache", err) != HR_OK)
        goto fail;
#ifdef HR_DEBUG
    kv->host_crc = hr_xcalloc((size_t)n_host_pages, sizeof *kv->host_crc);
#endif
    if (n_host_pages > 0 && hr_cpu_copier_create(kv, err) != HR_OK) goto fail;
    *out = kv;
    return HR_OK;
fail:
    hr_cpu_kv_destroy(base, &kv);
    return err->code;
}

void hr_cpu_kv_destroy(struct hr_backend *base, struct hr_kv_store **kv) {
    if (!*kv) return;
    hr_cpu_copier_destroy(*kv);
    hr_cpu_region_finish(&(*kv)->mem);
    hr_cpu_region_finish(&(*kv)->host);
    free((*kv)->host_crc);
    free(*kv);
    *kv = NULL;
}

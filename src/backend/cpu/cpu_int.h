/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_int: what the files of the CPU backend share: the table of kernels, memory regions, tensors.
 *
 * Layouts. A tensor row has a stride that is a multiple of 32 elements; what lies past n_cols is
 * zero for activations that a kernel reads past their end and undefined elsewhere. A weight is
 * stored in panels of 32 outputs: bf16 [n_out/32][n_in/2][32][2], so that one 32-bit lane holds two
 * neighbours of K of one output; f32 [n_out/32][n_in][32]. K and N are padded with zeros. The KV
 * store is [layer][page][kv head] blocks, each K then V: K as bf16 [head_dim/2][16 tokens][2] or
 * f32 [head_dim][16], so that a vector holds the scores of 16 tokens; V as [16][head_dim], the head
 * padded to 16.
 *
 * A kernel works for one thread on memory that it is given; it knows no tensor and no batch. */
#ifndef HR_BACKEND_CPU_INT_H
#define HR_BACKEND_CPU_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/cpu.h"

typedef uint16_t hr_bf16; /* the upper half of an f32 */

#define HR_CPU_PANEL    32  /* outputs in a panel of packed weights */
#define HR_CPU_HEAD_MAX 512 /* largest head_dim: bounds the buffers of one head */
/* Queries (rows x heads of one KV head) that share the loads of K and V: enough that loads cost
 * little, few enough that scores and outputs of all stay in the second-level cache. */
#define HR_CPU_ATTN_QUERIES 48
/* The sampler's buckets: 1/16 in the logit, down to where exp is below 1e-13 of the best. */
#define HR_CPU_BUCKETS       512
#define HR_CPU_BUCKETS_A_NAT 16

/* One instruction-set tier. Filled once when a backend opens: ref, then each tier that the machine
 * has and the mask allows overwrites what it does better. None aliases; none fails. */
struct hr_cpu_kernels {
    const char *tier; /* static; part of `numerics` */

    /* y[r][0..32 n_panels) (+)= x[r] W^T (+ bias), r < n_rows.  x [n_rows, k] stride ldx elements,
     * for bf16 padded with a zero when k is odd; w: n_panels packed panels, one after the other;
     * bias [32 n_panels] or NULL; y stride ldy. One f32 chain an output over all of k, in order,
     * whatever n_rows and n_panels are; then + bias; then, with `accumulate`, y + that. */
    void (*gemm_bf16)(float *y, size_t ldy, const hr_bf16 *x, size_t ldx, const hr_bf16 *w,
                      const float *bias, int n_rows, int n_panels, int k, bool accumulate);
    void (*gemm_f32)(float *y, size_t ldy, const float *x, size_t ldx, const float *w,
                     const float *bias, int n_rows, int n_panels, int k, bool accumulate);

    /* s[i][16 p + t] = q[i] . K of token t of page p.  q [n_q] rows of stride ldq elements (bf16:
     * head padded with a zero to an even number); k_pages [n_pages] blocks of K; s
     * [n_q][HR_ATTN_SEGMENT]. One chain a score over head_dim, in order. */
    void (*scores_bf16)(float *s, const hr_bf16 *q, size_t ldq, int n_q,
                        const hr_bf16 *const *k_pages, int n_pages, int head_dim);
    void (*scores_f32)(float *s, const float *q, size_t ldq, int n_q, const float *const *k_pages,
                       int n_pages, int head_dim);

    /* o[i] += sum of p[i][t] V[t] for t0 <= t < t1, in order of t, one chain an element.
     * p [n_q][HR_ATTN_SEGMENT]; v_pages blocks of V with rows of `ldv` elements, ldv % 16 == 0;
     * o [n_q][ldv]. */
    void (*values_bf16)(float *o, const float *p, int n_q, const hr_bf16 *const *v_pages, int t0,
                        int t1, int ldv);
    void (*values_f32)(float *o, const float *p, int n_q, const float *const *v_pages, int t0,
                       int t1, int ldv);

    /* In place: s = exp(scale s - m), m = max(scale s) over the first n; the rest of the last 16
     * becomes 0. *m and *sum are outputs; the sum in 16 lanes, then as a tree. NaN gives NaN. */
    void (*softmax)(float *s, int n, float scale, float *m, float *sum);
    /* s = cap tanh(scale s / cap) in place; NaN for what is not finite. */
    void (*softcap)(float *s, int n, float scale, float cap);
    /* Merges a segment into what came before: o, *m, *sum of the whole so far; n elements. */
    void (*attn_merge)(float *o, float *m, float *sum, const float *o_seg, float m_seg,
                       float sum_seg, int n);

    /* y = x / sqrt(mean(x^2) + eps) * w over n elements; y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps);
    /* Rotates x in place, rotate-half form; cs: rope_dim/2 cosines, then as many sines. */
    void (*rope)(float *x, const float *cs, int rope_dim);
    /* y = g / (1 + exp(-g)) * u. */
    void (*silu_mul)(float *y, const float *g, const float *u, int n);
    /* y = g / (1 + exp(-2 sqrt(2/pi) (g + 0.044715 g^3))) * u. */
    void (*gelu_mul)(float *y, const float *g, const float *u, int n);
    void (*scale)(float *y, const float *x, float by, int n);
    /* Round to nearest even; NaN stays NaN. */
    void (*to_bf16)(hr_bf16 *y, const float *x, int n);

    /* Sampling. max_of: the largest of x; *bad when there is a NaN or +inf. */
    float (*max_of)(const float *x, int n, bool *bad);
    /* Sum of exp(x - m), lanes in f64, in a fixed order. */
    double (*sum_exp)(const float *x, int n, float m);
    /* x = (x - m) / t in place, e = exp(x), and the bucket of x: HR_CPU_BUCKETS_A_NAT a unit below
     * 0, the last one for all the rest. t > 0, x <= m. */
    void (*temper)(float *x, float *e, uint16_t *bucket, int n, float m, float t);
};

void hr_cpu_init_ref(struct hr_cpu_kernels *k);
void hr_cpu_init_avx2(struct hr_cpu_kernels *k, unsigned flags);
void hr_cpu_init_avx512bf16(struct hr_cpu_kernels *k, unsigned flags);

/* Device memory: zeroed, on huge pages where the system has them: small regions share slabs,
 * because a huge page each would waste most of it. With a guard each region has its own pages,
 * which can be touched only between enter and leave (these may be nested and called by several
 * threads). */
struct hr_cpu_slab {
    void *map;
    size_t bytes, used;
    int n_live; /* regions in it, and 1 while it is the backend's current one */
};
struct hr_cpu_region {
    void *data; /* aligned to 64 bytes and more; NULL: no memory */
    size_t bytes;
    struct hr_cpu_slab *slab; /* the data's home; shared */
    bool guard;
    int n_inside;
    pthread_mutex_t lock; /* of n_inside; used with a guard only */
};
struct hr_cpu;
HR_MUST_USE enum hr_status hr_cpu_region_init(struct hr_cpu *be, struct hr_cpu_region *r,
                                              size_t bytes, const char *name, struct hr_err *err);
void hr_cpu_region_finish(struct hr_cpu_region *r);
void hr_cpu_slab_release(struct hr_cpu_slab **slab);
void hr_cpu_region_enter(const struct hr_cpu_region *r);
void hr_cpu_region_leave(const struct hr_cpu_region *r);

struct hr_tensor {
    enum hr_dtype dtype;
    int n_rows, n_cols;
    size_t ld; /* elements */
    struct hr_cpu_region mem;
};

struct hr_weight {
    int n_out, n_in, n_panels;
    size_t panel_bytes;
    struct hr_cpu_region mem;
};

struct hr_kv_store {
    enum hr_dtype dtype; /* of k and v */
    int n_layers, n_pages;
    struct hr_attn_shape shape;
    int ldv;                     /* head_dim padded to 16 */
    size_t k_elems, block_elems; /* of one (layer, page, head): K, K and V */
    size_t page_bytes;           /* of one page of one layer */
    struct hr_cpu_region mem;    /* [layer][page][head] blocks */
    int n_host_pages;
    struct hr_cpu_region host; /* [host page][layer][head] blocks */
    uint32_t *host_crc;        /* owned; [n_host_pages] in debug builds, else NULL */
    struct hr_cpu_copier *copier; /* owned; NULL without a host tier */
};

/* A token while sampling: its logit below the best, the exp of it. */
struct hr_cpu_cand {
    float z, e;
    int32_t id;
};

/* Scratch of one thread; host memory. */
struct hr_cpu_scratch {
    /* of `scratch_cols` elements: */
    float *row, *raw, *e; /* raw: logits before penalties; e: weights while sampling */
    uint16_t *bucket;
    struct hr_cpu_cand *cands;
    /* of attend: */
    void *q;                          /* [n_q][ldv] as the KV store's dtype */
    float *s, *o, *o_seg;             /* [n_q][HR_ATTN_SEGMENT], [n_q][ldv], [n_q][ldv] */
    float *m, *sum, *m_seg, *sum_seg; /* [n_q] of o and of o_seg; one allocation, at m */
};

struct hr_cpu {
    struct hr_backend base;
    struct hr_cpu_kernels k;
    struct hr_pool *pool; /* borrowed */
    int n_threads, max_tokens;
    bool guard;
    struct hr_cpu_slab *slab;       /* where the next small region goes; shared with its regions */
    const struct hr_batch *batch;   /* borrowed between step_begin and step_end */
    struct hr_cpu_scratch *scratch; /* [n_threads], owned */
    int scratch_cols;               /* widest f32 tensor so far */
    int attn_q, attn_ldv;           /* what the attention scratch holds */
    int *seq_item0;                 /* [max_tokens + 1], owned: first work item of each sequence */
};

/* Calls fn(be, arg, i_thread, i0, i1) over 0..n_items-1 in pieces of `grain`, on all threads when
 * the whole takes long enough (n_items * item_ns) to be worth waking them. Which thread gets which
 * piece is not fixed, so a piece's result must not depend on it. */
typedef void (*hr_cpu_items_fn)(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1);
void hr_cpu_run(struct hr_cpu *be, int n_items, int grain, double item_ns, hr_cpu_items_fn fn,
                void *arg);

static inline size_t hr_cpu_elem(enum hr_dtype t) {
    return t == HR_F32 ? sizeof(float) : sizeof(hr_bf16);
}
static inline float *hr_cpu_row_f32(const struct hr_tensor *t, int row) {
    return (float *)t->mem.data + (size_t)row * t->ld;
}
static inline hr_bf16 *hr_cpu_row_bf16(const struct hr_tensor *t, int row) {
    return (hr_bf16 *)t->mem.data + (size_t)row * t->ld;
}
static inline float hr_cpu_from_bf16(hr_bf16 b) {
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)b << 16};
    return v.f;
}

/* The operations, one file each group: data.c (create, write, read), kvcopy.c, ops.c, attend.c, sample.c. */
enum hr_status hr_cpu_tensor_create(struct hr_backend *be, enum hr_dtype dtype, int n_rows,
                                    int n_cols, const char *name, struct hr_tensor **out,
                                    struct hr_err *err);
void hr_cpu_tensor_destroy(struct hr_backend *be, struct hr_tensor **t);
void hr_cpu_tensor_write(struct hr_backend *be, struct hr_tensor *t, int row0, int n_rows,
                         const float *src);
void hr_cpu_tensor_read(struct hr_backend *be, const struct hr_tensor *t, int row0, int n_rows,
                        float *dst);
enum hr_status hr_cpu_weight_create(struct hr_backend *be, int n_out, int n_in, const char *name,
                                    struct hr_weight **out, struct hr_err *err);
void hr_cpu_weight_destroy(struct hr_backend *be, struct hr_weight **w);
void hr_cpu_weight_write(struct hr_backend *be, struct hr_weight *w, int row0, int n_rows,
                         const float *src);
enum hr_status hr_cpu_kv_create(struct hr_backend *be, enum hr_dtype dtype, int n_layers,
                                int n_pages, int n_host_pages, const struct hr_attn_shape *shape,
                                struct hr_kv_store **out, struct hr_err *err);
void hr_cpu_kv_destroy(struct hr_backend *be, struct hr_kv_store **kv);
HR_MUST_USE enum hr_status hr_cpu_copier_create(struct hr_kv_store *kv, struct hr_err *err);
void hr_cpu_copier_destroy(struct hr_kv_store *kv); /* what is out must have been waited for */
void hr_cpu_kv_copy(struct hr_backend *be, struct hr_kv_store *kv, const struct hr_kv_copy *copies,
                    int n);
void hr_cpu_kv_copy_wait(struct hr_backend *be, struct hr_kv_store *kv);
void hr_cpu_embed(struct hr_backend *be, struct hr_tensor *y, const struct hr_weight *w,
                  float scale);
void hr_cpu_rmsnorm(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *x,
                    const struct hr_tensor *w, float eps, bool only_out);
void hr_cpu_matmul(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *x,
                   const struct hr_weight *w, const struct hr_tensor *bias, int n_rows,
                   bool accumulate);
void hr_cpu_rope_write(struct hr_backend *be, struct hr_tensor *q, struct hr_kv_store *kv,
                       int layer, const struct hr_tensor *qkv, const struct hr_tensor *q_norm,
                       const struct hr_tensor *k_norm, const struct hr_tensor *cos_sin);
void hr_cpu_attend(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *q,
                   const struct hr_kv_store *kv, int layer, int window);
void hr_cpu_silu_mul(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *gate_up);
void hr_cpu_gelu_mul(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *gate_up);
void hr_cpu_add_rmsnorm(struct hr_backend *be, struct hr_tensor *x, const struct hr_tensor *y,
                        const struct hr_tensor *w, float eps);
void hr_cpu_to_act(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *x);
void hr_cpu_softcap(struct hr_backend *be, struct hr_tensor *x, int n_rows, float cap);
void hr_cpu_sample(struct hr_backend *be, struct hr_tensor *logits, int n_rows,
                   const struct hr_sample_row *rows, struct hr_sampled *out);

#endif

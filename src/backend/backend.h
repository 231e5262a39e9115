/* SPDX-License-Identifier: Apache-2.0
 *
 * backend: the operations that a model's forward pass needs, on tensors that only a backend can touch.
 *
 * A backend is a table of functions. Tensors, weights and the KV store are opaque: their memory may be
 * a GPU's, so nothing outside src/backend and gpu dereferences it. Host data crosses in tensor_write,
 * tensor_read, weight_write and in the batch description of a step.
 *
 * Same bytes (docs/design.md): an output depends on its own row alone. Matmul keeps one f32 accumulator
 * chain an output over all of K, in order of K; threads and tiles split N and rows, never K. Attention
 * takes KV in segments of HR_ATTN_SEGMENT positions from position 0 and merges them in order, always.
 * So any number of rows, of threads and any chunking of a prompt give the same bits.
 *
 * Precision: the residual stream, norms, softmax and logits are f32. `act` below means the backend's
 * activation type, fixed when it is opened: HR_BF16 (matmul inputs, q, k, v, KV and weights in bf16,
 * f32 sums, round to nearest even) or HR_F32 (all in f32, for checking). */
#ifndef HR_BACKEND_BACKEND_H
#define HR_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum hr_dtype { HR_F32, HR_BF16 };

#define HR_PAGE_TOKENS  16  /* tokens in a KV page */
#define HR_ATTN_SEGMENT 256 /* KV positions that one softmax partial covers; a multiple of a page */

struct hr_tensor;   /* [n_rows, n_cols] activations or a vector, row-major, dtype fixed */
struct hr_weight;   /* [n_out, n_in] matrix in the backend's own layout and in `act` */
struct hr_kv_store; /* k and v of all layers: n_pages pages of HR_PAGE_TOKENS tokens, and host pages */

/* A run of consecutive positions of one sequence that a step computes. */
struct hr_batch_seq {
    int row0, n_rows;     /* rows of the step's tensors */
    int pos0;             /* position of row0 in the sequence; KV of [0, pos0) is in the pages */
    const int32_t *pages; /* page ids of positions 0 .. pos0+n_rows-1, borrowed for the step */
};

/* What one step computes. Host memory, borrowed until the step's last operation. */
struct hr_batch {
    int n_tokens; /* rows of the step, 1..max_tokens */
    const int32_t *tokens;    /* [n_tokens] ids */
    const int32_t *positions; /* [n_tokens] */
    const int32_t *slots;     /* [n_tokens] where k and v go: page * HR_PAGE_TOKENS + offset */
    int n_seqs;
    const struct hr_batch_seq *seqs;
    int n_out;               /* rows that need logits, 0..max_out */
    const int32_t *out_rows; /* [n_out] ascending rows of the step */
};

/* Shape of an attention layer's projections, the same in all layers. */
struct hr_attn_shape {
    int n_heads, n_kv_heads, head_dim;
    int rope_dim;  /* rotated dims of a head (rotate-half form: pairs i, i + rope_dim/2) */
    float scale;   /* of q.k, usually 1/sqrt(head_dim) */
    float qk_eps;  /* of the q and k norms, when there are any */
    float softcap; /* scores become softcap * tanh(scale q.k / softcap); 0: they stay */
};

/* Sampling of one row of logits. Everything is host data, borrowed for the call. Applied in this order:
 * penalties (repetition, then frequency, then presence), banned tokens, temperature, top-k, top-p (of
 * what top-k left), min-p. What is left is a list, most probable first, equal ones by id; `uniform` is
 * the share of its mass at which the token is drawn. */
struct hr_sample_row {
    float temperature; /* <= 0 (or below HR_TEMPERATURE_MIN): greedy, ties go to the lowest id */
    float top_p;       /* 1: off; keeps the token that crosses */
    float min_p;       /* 0: off; of the most probable token's probability */
    int top_k;         /* <= 0 or >= vocab: off */
    float repetition_penalty;                   /* 1: off; over prompt and completion */
    float presence_penalty, frequency_penalty;  /* 0: off; over the completion */
    double uniform;            /* in (0, 1): which token of the distribution */
    int n_seen;                /* distinct tokens in prompt and completion (0 when no penalty is on) */
    const int32_t *seen;       /* [n_seen] ascending ids */
    const int32_t *seen_count; /* [n_seen] how often in the completion (0: in the prompt alone) */
    int n_banned;              /* tokens that cannot be chosen (EOS under ignore_eos is not: see docs) */
    const int32_t *banned;
};
#define HR_TEMPERATURE_MIN 1e-5f

struct hr_sampled {
    int32_t token;  /* -1 when the row's logits hold NaN or +inf, or are all -inf */
    float logprob;  /* natural log of its probability before temperature and filters; f32 */
};

struct hr_backend;

/* A page of the KV cache to its copy in host memory, or back. */
struct hr_kv_copy {
    int32_t page, host_page;
    bool to_host;
};

struct hr_backend_ops {
    const char *name;

    void (*destroy)(struct hr_backend *be);

    /* Memory. All of it is taken when a model is opened, none in a step. `name` is for messages. */
    enum hr_status (*tensor_create)(struct hr_backend *be, enum hr_dtype dtype, int n_rows, int n_cols,
                                    const char *name, struct hr_tensor **out, struct hr_err *err);
    void (*tensor_destroy)(struct hr_backend *be, struct hr_tensor **t);
    /* Rows row0 .. row0+n_rows-1 from or to f32 host memory [n_rows, n_cols], converting to or from
     * the tensor's dtype. */
    void (*tensor_write)(struct hr_backend *be, struct hr_tensor *t, int row0, int n_rows,
                         const float *src);
    void (*tensor_read)(struct hr_backend *be, const struct hr_tensor *t, int row0, int n_rows,
                        float *dst);

    enum hr_status (*weight_create)(struct hr_backend *be, int n_out, int n_in, const char *name,
                                    struct hr_weight **out, struct hr_err *err);
    void (*weight_destroy)(struct hr_backend *be, struct hr_weight **w);
    /* Rows (outputs) row0 .. row0+n_rows-1 from f32 host memory [n_rows, n_in]; row0 % 32 == 0. May be
     * called by several threads at once on different rows (not while an operation runs). */
    void (*weight_write)(struct hr_backend *be, struct hr_weight *w, int row0, int n_rows,
                         const float *src);

    /* dtype of k and v: act, or HR_F32, which tells what rounding them does. n_host_pages (0: none): room
     * for copies of pages in host memory. */
    enum hr_status (*kv_create)(struct hr_backend *be, enum hr_dtype dtype, int n_layers, int n_pages,
                                int n_host_pages, const struct hr_attn_shape *shape,
                                struct hr_kv_store **out, struct hr_err *err);
    void (*kv_destroy)(struct hr_backend *be, struct hr_kv_store **kv);
    /* Starts n copies of pages of all layers, which are carried out in order, beside the steps that follow.
     * Until kv_copy_wait nobody writes a page that is being saved, or reads or writes one that is being
     * loaded, no second list is started, and `copies` stays.
     * In debug builds a host page carries a checksum that is verified when it is loaded (asserted). */
    void (*kv_copy)(struct hr_backend *be, struct hr_kv_store *kv, const struct hr_kv_copy *copies, int n);
    /* The copies that were started have taken effect for what follows. */
    void (*kv_copy_wait)(struct hr_backend *be, struct hr_kv_store *kv);

    /* One step: the operations between begin and end refer to this batch. */
    void (*step_begin)(struct hr_backend *be, const struct hr_batch *batch);
    void (*step_end)(struct hr_backend *be);

    /* y[i] = row tokens[i] of w, times scale.  y [n_tokens, dim] f32; w [vocab, dim]. */
    void (*embed)(struct hr_backend *be, struct hr_tensor *y, const struct hr_weight *w, float scale);

    /* y[i] = x[r] / sqrt(mean(x[r]^2) + eps) * w, r = i, or out_rows[i] with only_out.
     * x [*, dim] f32; w [1, dim] f32; y [*, dim] act. Sums in f32, in a fixed order.
     * Source: Zhang & Sennrich 2019, arXiv:1910.07467. */
    void (*rmsnorm)(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *x,
                    const struct hr_tensor *w, float eps, bool only_out);
    /* x[i] = x[i] + (y[i] / sqrt(mean(y[i]^2) + eps) * w): a norm behind a block, before its sum.
     * x, y [n_tokens, dim] f32; w [1, dim] f32. */
    void (*add_rmsnorm)(struct hr_backend *be, struct hr_tensor *x, const struct hr_tensor *y,
                        const struct hr_tensor *w, float eps);
    /* y[i] = x[i] rounded to act.  x [n_tokens, dim] f32; y [n_tokens, dim] act. */
    void (*to_act)(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *x);

    /* y[i] = x[i] W^T (+ bias) for i < n_rows; accumulate: y[i] = y[i] + that.
     * x [*, n_in] act; W [n_out, n_in]; bias [1, n_out] f32 or NULL; y [*, n_out] f32. */
    void (*matmul)(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *x,
                   const struct hr_weight *w, const struct hr_tensor *bias, int n_rows,
                   bool accumulate);

    /* Splits qkv [n_tokens, (n_heads + 2 n_kv_heads) * head_dim] f32 (all q heads, all k heads, all v
     * heads); q_norm, k_norm: RMSNorm weights f32, [1, head_dim] over each head or as wide as all heads
     * of q or k and over them together, or NULL; rotates q and k by cos_sin [max_pos, rope_dim] f32
     * (rope_dim/2 cosines, then as many sines; NULL: not at all) at `positions`; writes q [n_tokens, n_heads * head_dim] act, and k and v, rounded to the store's dtype, to their slots. */
    void (*rope_write)(struct hr_backend *be, struct hr_tensor *q, struct hr_kv_store *kv, int layer,
                       const struct hr_tensor *qkv, const struct hr_tensor *q_norm,
                       const struct hr_tensor *k_norm, const struct hr_tensor *cos_sin);

    /* Causal attention of each row over its sequence's pages, itself included; with a window (0: none) over
     * the last `window` positions alone, the row's own among them.
     * q, y [n_tokens, n_heads * head_dim] act. Head h reads kv head h / (n_heads / n_kv_heads).
     * Segments as above; p in f32, unnormalised, not rounded before it meets v.
     * Source: online softmax, Milakov & Gimelshein 2018, arXiv:1805.02867. */
    void (*attend)(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *q,
                   const struct hr_kv_store *kv, int layer, int window);

    /* y = silu(g) * u, g and u the halves of gate_up [n_tokens, 2 * n_ff] f32; y [n_tokens, n_ff] act. */
    void (*silu_mul)(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *gate_up);
    /* The same with the tanh form of GELU: g / (1 + exp(-2 sqrt(2/pi) (g + 0.044715 g^3))) * u.
     * Source: Hendrycks & Gimpel 2016, arXiv:1606.08415. */
    void (*gelu_mul)(struct hr_backend *be, struct hr_tensor *y, const struct hr_tensor *gate_up);

    /* x = cap * tanh(x / cap) for the first n_rows rows of x f32; NaN and infinities become NaN, so that
     * a row that went wrong is still seen. */
    void (*softcap)(struct hr_backend *be, struct hr_tensor *x, int n_rows, float cap);

    /* One token a row of logits [*, n_vocab] f32 (which it may overwrite).  rows, out [n_rows]. */
    void (*sample)(struct hr_backend *be, struct hr_tensor *logits, int n_rows,
                   const struct hr_sample_row *rows, struct hr_sampled *out);
};

/* First member of every backend's own struct. */
struct hr_backend {
    const struct hr_backend_ops *ops; /* static */
    enum hr_dtype act;
    char numerics[32]; /* what the bits depend on: "cpu-ref-f32", "cpu-avx512bf16" ... */
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * llama: the forward pass of the Llama family (Llama 1-3.x, Mistral, Phi-3, Gemma 2 and 3, OLMo 2, Qwen2, Qwen3, SmolLM2 and 3), written once
 * over backend.h.
 *
 * A model owns its weights, its KV store and its activations on one backend; all of that is taken when
 * it is created, nothing in a step. It refuses to know requests: it sees batches of tokens and slots. */
#ifndef HR_MODEL_LLAMA_H
#define HR_MODEL_LLAMA_H

#include "backend/backend.h"
#include "base/pool.h"
#include "model/fault.h"
#include "model/model_file.h"

struct hr_model;

struct hr_model_opts {
    int max_tokens; /* rows of a step */
    int max_out;    /* rows with logits of a step */
    int n_pages;    /* KV pages of HR_PAGE_TOKENS */
    int n_host_pages; /* host copies of pages; 0: none */
    bool kv_f32;      /* KV in f32 also where the backend computes in bf16: to tell what its rounding does */
    struct hr_pool *pool; /* borrowed for the call: reads and packs weights */
    /* done and total bytes of bf16 weights, first with done 0 when the other memory has been taken; never
     * falls; called on the creating thread. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
};

/* Bytes that hr_model_create will take from the backend, by part. */
struct hr_model_plan {
    uint64_t weights, kv, kv_host, activations, kv_per_token;
};
void hr_model_plan(const struct hr_model_config *cfg, enum hr_dtype act,
                   const struct hr_model_opts *opts, struct hr_model_plan *out);

/* Loads the weights of `mf` (borrowed for the call) onto `be` (borrowed until destroy). */
HR_MUST_USE enum hr_status hr_model_create(struct hr_backend *be, const struct hr_model_file *mf,
                                           const struct hr_model_opts *opts, struct hr_model **out,
                                           struct hr_err *err);
void hr_model_destroy(struct hr_model **m);

/* Starts copies of KV pages, and waits for them; see backend.h. */
void hr_model_kv_copy(struct hr_model *m, const struct hr_kv_copy *copies, int n);
void hr_model_kv_copy_wait(struct hr_model *m);

/* Computes a step: writes KV of all its tokens, leaves logits of its out_rows. */
void hr_model_forward(struct hr_model *m, const struct hr_batch *batch);
/* Computes the step again and reads back what each operation leaves: *out is the first value that is
 * not finite (in the logits: NaN or +infinity, or all of them -infinity), by operation, then by row.
 * Slow; the KV that it writes has the bits that it had. The logits are the step's, as after
 * hr_model_forward. */
void hr_model_find_fault(struct hr_model *m, const struct hr_batch *batch, struct hr_fault *out);
/* Samples from the logits of the last forward; rows, out [n_out]. Consumes them. */
void hr_model_sample(struct hr_model *m, int n_rows, const struct hr_sample_row *rows,
                     struct hr_sampled *out);
/* Logits of out row i_out of the last forward, [n_vocab] f32. For checks. */
void hr_model_logits(struct hr_model *m, int i_out, float *dst);

int hr_model_n_vocab(const struct hr_model *m);

#endif

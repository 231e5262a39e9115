/* SPDX-License-Identifier: Apache-2.0
 *
 * model_file: a model's files, opened and checked, nothing computed: a GGUF file, or a Hugging Face
 * directory (config.json, *.safetensors with or without an index).
 *
 * Opening maps the files and refuses a truncated or lying one (offsets past the end, overlaps,
 * wrong shapes, a missing tensor) by the tensor's name. Weights are read row by row as f32; the
 * caller puts them where they belong. Tensors go by their Hugging Face names whatever the file
 * calls them, and in the Hugging Face layout: the q and k rows that llama GGUFs store permuted
 * (interleaved rotary pairs) are given back in rotate-half order. */
#ifndef HR_MODEL_MODEL_FILE_H
#define HR_MODEL_MODEL_FILE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"

enum hr_rope_type {
    HR_ROPE_DEFAULT,
    HR_ROPE_LINEAR,
    HR_ROPE_DYNAMIC,
    HR_ROPE_LLAMA3,
    HR_ROPE_YARN,
    HR_ROPE_LONGROPE
};

#define HR_ROPE_PAIRS_MAX 256

/* How positions turn the pairs of a head; rope.c has the formulas. */
struct hr_rope {
    enum hr_rope_type type;
    double theta, factor;     /* factor: all types but default */
    double attention_factor;  /* of cosines and sines; 1 but for yarn and longrope */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn: turns in the original context, the ramp's ends */
    bool truncate;                            /* yarn: the ramp begins and ends at whole pairs */
    int original_ctx;                         /* context before it was stretched */
    float divisor[HR_ROPE_PAIRS_MAX];         /* longrope: of each pair, the set that is used */
};

#define HR_EOS_MAX    16
#define HR_LAYERS_MAX 1024

/* What sets a layer apart; hr_model_config.layer has the sum. */
enum hr_layer_flag { HR_LAYER_SLIDING = 1, HR_LAYER_NO_ROPE = 2 };

struct hr_model_config {
    char arch[32]; /* "llama", "qwen2", "qwen3", ... as Hugging Face's model_type */
    int n_layers, dim, n_heads, n_kv_heads, head_dim, n_ff, n_vocab;
    int n_ctx; /* max_position_embeddings */
    float rms_eps;
    bool tied_embeddings; /* logits use the embedding matrix */
    bool qkv_bias, o_bias, mlp_bias;
    bool fused; /* one matrix holds q, k and v, one gate and up (Phi-3) */
    bool qk_norm;       /* RMSNorm over each head of q and k (Qwen3, Gemma 3) */
    bool qk_norm_wide;  /* and not over each head but over all of q, all of k (OLMo 2) */
    bool no_pre_norms;  /* no norms before attention and feed-forward (OLMo 2) */
    bool post_norms;    /* norms behind attention and feed-forward too, before the sums (Gemma, OLMo 2) */
    bool norm_plus_one; /* the file's norm weights, q's and k's too, are to be taken plus 1 */
    bool gelu;          /* gated by the tanh form of GELU, else by SiLU */
    bool root_scale;    /* embeddings are scaled by sqrt(dim) */
    double attn_scale;  /* of q.k */
    double attn_softcap, final_softcap; /* of scores and logits; 0: none */
    int rope_dim; /* dimensions of a head that are rotated */
    struct hr_rope rope;
    bool two_ropes; /* sliding layers turn by sliding_rope, the others by rope */
    struct hr_rope sliding_rope;
    int window; /* positions that sliding layers see; 0: all, or it is longer than the context */
    uint8_t layer[HR_LAYERS_MAX]; /* enum hr_layer_flag of each */
};

struct hr_model_file;

/* `path`: a .gguf file or a directory. Messages name the file and the tensor or key. An
 * architecture that is not supported is HR_ERR_UNSUPPORTED with the list of those that are. */
HR_MUST_USE enum hr_status hr_model_file_open(const char *path, struct hr_model_file **out,
                                              struct hr_err *err);
/* For tokenizing and rendering alone: a GGUF's metadata, or just the directory. Neither
 * architecture nor weights are asked for: config() is NULL, there are no tensors. */
HR_MUST_USE enum hr_status hr_model_file_open_text(const char *path, struct hr_model_file **out,
                                                   struct hr_err *err);
void hr_model_file_close(struct hr_model_file **mf);
const struct hr_model_config *hr_model_file_config(const struct hr_model_file *mf);

/* A tensor by its Hugging Face name ("model.layers.3.self_attn.q_proj.weight"): vectors have
 * n_rows 1. NULL when the file has none. Borrowed from the file. */
struct hr_file_tensor;
const struct hr_file_tensor *hr_model_file_tensor(const struct hr_model_file *mf, const char *name);
void hr_file_tensor_shape(const struct hr_file_tensor *t, int *n_rows, int *n_cols);
/* Rows row0 .. row0+n_rows-1 as f32 [n_rows, n_cols]. Thread-safe. */
void hr_file_tensor_read(const struct hr_file_tensor *t, int row0, int n_rows, float *dst);

/* Bytes of all weights on the disk, and what to show a person: "SmolLM2 135M Instruct, GGUF Q4_1".
 */
uint64_t hr_model_file_bytes(const struct hr_model_file *mf);
const char *hr_model_file_describe(const struct hr_model_file *mf);

/* SHA-256 over what makes this model this model: configuration, tensor names, types, shapes, sizes;
 * not paths, times or the weights' bytes. */
void hr_model_file_fingerprint(const struct hr_model_file *mf, uint8_t out[32]);

bool hr_model_file_is_gguf(const struct hr_model_file *mf);
const char *hr_model_file_dir(const struct hr_model_file *mf); /* the directory of the files */

/* GGUF metadata by key, for the tokenizer; false when absent or of another type. Borrowed. */
bool hr_model_file_meta_str(const struct hr_model_file *mf, const char *key, const char **s,
                            size_t *len);
bool hr_model_file_meta_int(const struct hr_model_file *mf, const char *key,
                            int64_t *out); /* also bool */
bool hr_model_file_meta_real(const struct hr_model_file *mf, const char *key, double *out);
/* An array of any type: its length. Then its elements into [n] arrays, false when they are not
 * strings or, for int, not integers that fit, or not f32. */
bool hr_model_file_meta_array(const struct hr_model_file *mf, const char *key, size_t *n);
bool hr_model_file_meta_array_str(const struct hr_model_file *mf, const char *key, const char **s,
                                  size_t *len);
bool hr_model_file_meta_array_int(const struct hr_model_file *mf, const char *key, int32_t *out);
bool hr_model_file_meta_array_f32(const struct hr_model_file *mf, const char *key, float *out);

#endif

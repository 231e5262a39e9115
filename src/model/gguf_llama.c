/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_llama: configuration and tensor names of the GGUF files of the Llama family: llama, phi3, gemma2,
 * gemma3, olmo2, qwen2, qwen3 and smollm3.
 *
 * Keys are "ARCH.block_count" and so on. GGUF has no keys for biases, q/k norms and tied
 * embeddings: the tensors that are there say it. Llama 3's rope scaling is not in the keys either
 * but in a tensor, rope_freqs.weight, of the factors that divide each frequency; they are turned
 * back into the parameters that made them, so that both kinds of model files rotate by the same
 * numbers. Phi-3's longrope is two such tensors, rope_factors_{long,short}.weight.
 *
 * Files of arch "llama" (Mistral's and SmolLM2's too) and "smollm3" store the rows of q and k so that a rotary
 * pair is adjacent; files of the other archs do not.
 * Gemma files hold their norms with the 1 added; what they slide, and how the largest of them scales its
 * scores, is known by architecture and number of layers alone.
 * Source: ggml-org/llama.cpp,
 * gguf-py/gguf/constants.py, tensor_mapping.py, convert_hf_to_gguf.py (LlamaModel.permute,
 * generate_extra_tensors) and src/llama-model.cpp (load_hparams). */
#include "model/gguf_llama.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "model/model_config.h"
#include "model/rope.h"

struct name_pair {
    const char *gguf, *hf;
};

static const struct name_pair global_names[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

static const struct name_pair layer_names[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},       {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"}, /* of a fused model; see hf_name_in */
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"}, /* of a model with norms behind its blocks */
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

#define N_OF(a) (sizeof(a) / sizeof(a)[0])

static const char *pick(const struct name_pair *p, bool gguf) {
    return gguf ? p->gguf : p->hf;
}

/* Replaces the middle of PREFIX.N.MIDDLE.SUFFIX (or MIDDLE.SUFFIX) by its partner in the table. */
static bool translate(const char *name, bool from_gguf, char *out) {
    const char *prefix = from_gguf ? "blk." : "model.layers.";
    const char *to_prefix = from_gguf ? "model.layers." : "blk.";
    const struct name_pair *table = global_names;
    size_t n_table = N_OF(global_names);
    char number[16] = "";
    if (strncmp(name, prefix, strlen(prefix)) == 0) {
        name += strlen(prefix);
        size_t n_digits = strspn(name, "0123456789");
        if (n_digits == 0 || n_digits > 6 || name[n_digits] != '.') return false;
        snprintf(number, sizeof number, "%.*s.", (int)n_digits, name);
        name += n_digits + 1;
        table = layer_names;
        n_table = N_OF(layer_names);
    } else {
        to_prefix = "";
    }
    const char *suffix = strrchr(name, '.');
    if (!suffix || (strcmp(suffix, ".weight") != 0 && strcmp(suffix, ".bias") != 0)) return false;
    size_t len = (size_t)(suffix - name);
    for (size_t i = 0; i < n_table; i++) {
        const char *from = pick(&table[i], from_gguf);
        if (strlen(from) != len || memcmp(from, name, len) != 0) continue;
        int n = snprintf(out, HR_TENSOR_NAME_MAX, "%s%s%s%s", to_prefix, number,
                         pick(&table[i], !from_gguf), suffix);
        return n > 0 && n < HR_TENSOR_NAME_MAX;
    }
    return false;
}

bool hr_gguf_llama_hf_name(const char *gguf_name, char *out) {
    return translate(gguf_name, true, out);
}

bool hr_gguf_llama_gguf_name(const char *hf_name, char *out) {
    return translate(hf_name, false, out);
}

/* A name that means another tensor in this model than the table says. */
static const char *hf_name_in(const struct hr_model_config *c, const char *gguf_name,
                              const char *name, char *out) {
    const char *up = c->fused ? strstr(name, "mlp.up_proj.weight") : NULL;
    const char *norm = c->post_norms && strstr(gguf_name, ".ffn_norm.")
                           ? strstr(name, "post_attention_layernorm.weight")
                           : NULL;
    if (!up && !norm) return name;
    snprintf(out, HR_TENSOR_NAME_MAX, "%.*s%s", (int)((up ? up : norm) - name), name,
             up ? "mlp.gate_up_proj.weight" : "pre_feedforward_layernorm.weight");
    return out;
}

enum hr_status hr_gguf_llama_rename(struct hr_gguf *g, const struct hr_model_config *c,
                                    struct hr_err *err) {
    bool permuted = strcmp(c->arch, "llama") == 0 || strcmp(c->arch, "smollm3") == 0;
    char name[HR_TENSOR_NAME_MAX], other[HR_TENSOR_NAME_MAX];
    for (size_t i = 0; i < g->tensors.n; i++) {
        struct hr_file_tensor *t = &g->tensors.v[i];
        if (!hr_gguf_llama_hf_name(t->name, name)) continue;
        char *hf_name = hr_xstrdup(hf_name_in(c, t->name, name, other));
        free(t->name);
        t->name = hf_name;
        if (permuted && (strstr(name, ".q_proj.") || strstr(name, ".k_proj.")))
            t->rope_head_dim = c->head_dim;
    }
    return hr_tensor_table_sort(&g->tensors, err);
}

/* What Gemma files leave to their readers. */
struct gemma {
    const char *arch;
    int pattern;        /* every so manieth layer does not slide */
    int n_layers_large; /* the model that scales its scores by dim / n_heads, not by the head's size */
    double attn_softcap, final_softcap; /* defaults */
    double sliding_theta;               /* 0: all layers have the same rope */
};

static const struct gemma gemmas[] = {
    {.arch = "gemma2", .pattern = 2, .n_layers_large = 46, .attn_softcap = 50, .final_softcap = 30},
    {.arch = "gemma3", .pattern = 6, .n_layers_large = 62, .sliding_theta = 10000},
};

static const struct gemma *gemma_of(const char *arch) {
    for (size_t i = 0; i < N_OF(gemmas); i++)
        if (strcmp(gemmas[i].arch, arch) == 0) return &gemmas[i];
    return NULL;
}

/* "ARCH.suffix" into out[128]. */
static const char *arch_key(const char *arch, const char *suffix, char *out) {
    snprintf(out, 128, "%s.%s", arch, suffix);
    return out;
}

/* An integer key from 1 to 2^30, or an array of them that are all equal (some files state head
 * counts layer by layer). `def` when absent; def 0: it must be there. */
static enum hr_status get_int(const struct hr_gguf *g, const char *arch, const char *suffix,
                              int def, int *out, struct hr_err *err) {
    char key[128];
    int64_t v = def, other;
    const struct hr_gguf_kv *kv = hr_gguf_find(g, arch_key(arch, suffix, key));
    if (!kv && def == 0) return hr_err_set(err, HR_ERR_FORMAT, "metadata key %s is missing", key);
    if (kv && !kv->is_array && !hr_gguf_int(g, key, &v)) v = -1;
    if (kv && kv->is_array) {
        if (!hr_gguf_int_at(kv, 0, &v)) v = -1;
        for (uint64_t i = 1; v > 0 && i < kv->n; i++)
            if (!hr_gguf_int_at(kv, i, &other) || other != v)
                return hr_err_set(err, HR_ERR_UNSUPPORTED,
                                  "metadata key %s differs by layer, which is not supported", key);
    }
    if (kv && (v < 1 || v > 1 << 30))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "metadata key %s is not a whole number from 1 to 2^30", key);
    *out = (int)v;
    return HR_OK;
}

/* A number key; `def` when absent. */
static enum hr_status get_real(const struct hr_gguf *g, const char *arch, const char *suffix,
                               double def, double *out, struct hr_err *err) {
    char key[128];
    *out = def;
    if (!hr_gguf_find(g, arch_key(arch, suffix, key))) return HR_OK;
    if (!hr_gguf_real(g, key, out) || !isfinite(*out))
        return hr_err_set(err, HR_ERR_FORMAT, "metadata key %s is not a finite number", key);
    return HR_OK;
}

static enum hr_status read_sizes(const struct hr_gguf *g, struct hr_model_config *c,
                                 struct hr_err *err) {
    const char *a = c->arch;
    double eps = 0;
    int value_dim;
    enum hr_status rc = get_int(g, a, "block_count", 0, &c->n_layers, err);
    if (!rc) rc = get_int(g, a, "embedding_length", 0, &c->dim, err);
    if (!rc) rc = get_int(g, a, "attention.head_count", 0, &c->n_heads, err);
    if (!rc) rc = get_int(g, a, "attention.head_count_kv", c->n_heads, &c->n_kv_heads, err);
    if (!rc) rc = get_int(g, a, "feed_forward_length", 0, &c->n_ff, err);
    if (!rc) rc = get_int(g, a, "context_length", 0, &c->n_ctx, err);
    if (rc) return rc;
    int head_dim = c->dim / c->n_heads;
    if (head_dim < 1)
        return hr_err_set(err, HR_ERR_FORMAT, "%s.attention.head_count is above embedding_length",
                          a);
    rc = get_int(g, a, "attention.key_length", head_dim, &c->head_dim, err);
    if (!rc) rc = get_int(g, a, "attention.value_length", c->head_dim, &value_dim, err);
    if (!rc) rc = get_int(g, a, "rope.dimension_count", c->head_dim, &c->rope_dim, err);
    if (!rc) rc = get_real(g, a, "attention.layer_norm_rms_epsilon", 0, &eps, err);
    if (rc) return rc;
    c->rms_eps = (float)eps;
    c->attn_scale = 1 / sqrt(c->head_dim);
    bool partial = strcmp(a, "phi3") == 0;
    if (value_dim != c->head_dim || (c->rope_dim != c->head_dim && !partial))
        return hr_err_set(
            err, HR_ERR_UNSUPPORTED,
            "heads of %d with values of %d and %d rotated dimensions are not supported: "
            "all three must be equal",
            c->head_dim, value_dim, c->rope_dim);
    const struct hr_file_tensor *embed = hr_tensor_table_find(&g->tensors, "token_embd.weight");
    if (!embed) return hr_err_set(err, HR_ERR_FORMAT, "tensor token_embd.weight is missing");
    return get_int(g, a, "vocab_size", embed->n_rows, &c->n_vocab, err);
}

static enum hr_status refuse_what_is_not_llama(const struct hr_gguf *g,
                                               const struct hr_model_config *c,
                                               struct hr_err *err) {
    char key[128];
    int64_t v;
    if (hr_gguf_int(g, arch_key(c->arch, "expert_count", key), &v) && v > 0)
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "metadata key %s: mixtures of experts are not supported", key);
    if (strcmp(c->arch, "phi3") != 0 && !gemma_of(c->arch) &&
        hr_gguf_int(g, arch_key(c->arch, "attention.sliding_window", key), &v) && v > 0 &&
        v < c->n_ctx)
        return hr_err_set(
            err, HR_ERR_UNSUPPORTED,
            "metadata key %s: a sliding window shorter than the context is not supported", key);
    return HR_OK;
}

static enum hr_status read_yarn(const struct hr_gguf *g, double factor, struct hr_model_config *c,
                                struct hr_err *err) {
    static const char *const others[] = {"rope.scaling.attn_factor",
                                         "rope.scaling.yarn_log_multiplier",
                                         "rope.scaling.yarn_ext_factor",
                                         "rope.scaling.yarn_attn_factor"};
    struct hr_rope *r = &c->rope;
    char key[128];
    for (size_t i = 0; i < N_OF(others); i++)
        if (hr_gguf_find(g, arch_key(c->arch, others[i], key)))
            return hr_err_set(err, HR_ERR_UNSUPPORTED, "metadata key %s is not supported", key);
    r->type = HR_ROPE_YARN;
    r->factor = factor;
    r->attention_factor = hr_rope_yarn_scale(factor, 1);
    r->truncate = true;
    enum hr_status rc = get_int(g, c->arch, "rope.scaling.original_context_length", 0,
                                &r->original_ctx, err);
    if (!rc) rc = get_real(g, c->arch, "rope.scaling.yarn_beta_fast", 32, &r->beta_fast, err);
    if (!rc) rc = get_real(g, c->arch, "rope.scaling.yarn_beta_slow", 1, &r->beta_slow, err);
    return rc;
}

static enum hr_status read_rope(const struct hr_gguf *g, struct hr_model_config *c,
                                struct hr_err *err) {
    char key[128], text[64];
    const char *s = "linear"; /* what a factor without a type means */
    size_t len = strlen(s);
    double factor = 0, old = 0;
    hr_gguf_str(g, arch_key(c->arch, "rope.scaling.type", key), &s, &len);
    bool linear = len == 6 && memcmp(s, "linear", 6) == 0;
    bool longrope = len == 8 && memcmp(s, "longrope", 8) == 0; /* its factors are tensors */
    bool yarn = len == 4 && memcmp(s, "yarn", 4) == 0;
    if (!linear && !longrope && !yarn && !(len == 4 && memcmp(s, "none", 4) == 0))
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "metadata key %s: the rope type %s is not supported; supported are none, "
                          "linear, yarn, longrope and Llama 3's",
                          key, hr_printable(s, len, text, sizeof text));
    enum hr_status rc = get_real(g, c->arch, "rope.freq_base", 10000, &c->rope.theta, err);
    if (!rc) rc = get_real(g, c->arch, "rope.scaling.factor", 0, &factor, err);
    if (!rc) rc = get_real(g, c->arch, "rope.scale_linear", 0, &old, err);
    if (rc) return rc;
    if (factor == 0) factor = old;
    c->rope.factor = c->rope.attention_factor = 1;
    if (linear && factor != 0 && factor != 1) {
        c->rope.type = HR_ROPE_LINEAR;
        c->rope.factor = factor;
    }
    return yarn ? read_yarn(g, factor, c, err) : HR_OK;
}

/* Finds the parameters behind rope_freqs.weight: every Llama 3 model has low 1, high 4 and, when
 * the file does not say otherwise, 8192; the factor is the largest divisor. Divisors that these do
 * not reproduce come from another rule and are refused. */
static enum hr_status read_rope_freqs(const struct hr_gguf *g, struct hr_model_config *c,
                                      struct hr_err *err) {
    const struct hr_file_tensor *t = hr_tensor_table_find(&g->tensors, "rope_freqs.weight");
    int n = c->head_dim / 2;
    if (!t) return HR_OK;
    if (t->type != HR_QUANT_F32 || t->n_rows != 1 || t->n_cols != n)
        return hr_err_set(err, HR_ERR_FORMAT, "tensor rope_freqs.weight is not [%d] of F32", n);
    float *divisor = hr_xmalloc((size_t)n * sizeof *divisor);
    hr_dequant(t->type, t->data, n, divisor);
    double max = 1;
    for (int i = 0; i < n; i++)
        if ((double)divisor[i] > max) max = (double)divisor[i];
    struct hr_model_config fit = *c;
    fit.rope.type = HR_ROPE_LLAMA3;
    fit.rope.factor = max;
    fit.rope.low_freq_factor = 1;
    fit.rope.high_freq_factor = 4;
    enum hr_status rc = get_int(g, c->arch, "rope.scaling.original_context_length", 8192,
                                &fit.rope.original_ctx, err);
    for (int i = 0; i < n && !rc; i++) {
        /* The file's numbers went through f32 frequencies; NaN fails too. */
        double plain = pow(c->rope.theta, -2.0 * i / c->head_dim);
        double want = plain / hr_rope_freq(&fit.rope, c->head_dim, i);
        if (!(fabs((double)divisor[i] - want) <= 1e-4 * want))
            rc = hr_err_set(
                err, HR_ERR_UNSUPPORTED,
                "tensor rope_freqs.weight holds frequency factors that are not Llama 3's "
                "(number %d is %g), which is not supported",
                i, (double)divisor[i]);
    }
    free(divisor);
    if (rc || max == 1) return rc;
    if (c->rope.type != HR_ROPE_DEFAULT)
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "linear rope scaling together with rope_freqs.weight is not supported");
    *c = fit;
    return HR_OK;
}

/* Phi-3's longrope: the divisors of both sets are tensors. */
static enum hr_status read_longrope(const struct hr_gguf *g, struct hr_model_config *c,
                                    struct hr_err *err) {
    struct hr_rope *r = &c->rope;
    int n = c->rope_dim / 2;
    const struct hr_file_tensor *sets[2] = {
        hr_tensor_table_find(&g->tensors, "rope_factors_short.weight"),
        hr_tensor_table_find(&g->tensors, "rope_factors_long.weight")};
    if (!sets[0] && !sets[1]) return HR_OK;
    for (int i = 0; i < 2; i++)
        if (!sets[i] || sets[i]->type != HR_QUANT_F32 || sets[i]->n_rows != 1 ||
            sets[i]->n_cols != n || n > HR_ROPE_PAIRS_MAX)
            return hr_err_set(err, HR_ERR_FORMAT, "tensor rope_factors_%s.weight is not [%d] of F32",
                              i ? "long" : "short", n);
    enum hr_status rc = get_int(g, c->arch, "rope.scaling.original_context_length", c->n_ctx,
                                &r->original_ctx, err);
    if (!rc) rc = get_real(g, c->arch, "rope.scaling.attn_factor", 1, &r->attention_factor, err);
    if (rc) return rc;
    r->type = HR_ROPE_LONGROPE;
    r->factor = (double)c->n_ctx / r->original_ctx;
    const struct hr_file_tensor *set = sets[c->n_ctx > r->original_ctx];
    hr_dequant(set->type, set->data, n, r->divisor);
    for (int i = 0; i < n; i++)
        if (!(r->divisor[i] > 0 && r->divisor[i] < 1e6f))
            return hr_err_set(err, HR_ERR_FORMAT, "tensor %s: number %d is %g", set->name, i,
                              (double)r->divisor[i]);
    return HR_OK;
}

static enum hr_status read_gemma(const struct hr_gguf *g, const struct gemma *gemma,
                                 struct hr_model_config *c, struct hr_err *err) {
    struct hr_rope *r = &c->sliding_rope;
    enum hr_status rc = get_real(g, c->arch, "final_logit_softcapping", gemma->final_softcap,
                                 &c->final_softcap, err);
    if (!rc && gemma->attn_softcap > 0)
        rc = get_real(g, c->arch, "attn_logit_softcapping", gemma->attn_softcap, &c->attn_softcap,
                      err);
    if (!rc && gemma->sliding_theta > 0) {
        *r = (struct hr_rope){.type = HR_ROPE_DEFAULT, .factor = 1, .attention_factor = 1};
        c->two_ropes = true;
        rc = get_real(g, c->arch, "rope.freq_base_swa", gemma->sliding_theta, &r->theta, err);
    }
    if (c->n_layers == gemma->n_layers_large) c->attn_scale = 1 / sqrt(c->dim / c->n_heads);
    c->post_norms = c->gelu = c->root_scale = true;
    return rc;
}

/* Layers that look at a window; files of other architectures than these were refused with one. */
static void read_window(const struct hr_gguf *g, struct hr_model_config *c) {
    char key[128];
    int64_t v;
    const struct gemma *gemma = gemma_of(c->arch);
    int pattern = gemma ? gemma->pattern : 0;
    if (!hr_gguf_int(g, arch_key(c->arch, "attention.sliding_window", key), &v) || v < 1) return;
    for (int i = 0; i < c->n_layers; i++)
        if (pattern == 0 || (i + 1) % pattern != 0) c->layer[i] |= HR_LAYER_SLIDING;
    if (v < c->n_ctx) c->window = (int)v;
}

enum hr_status hr_model_config_from_gguf(const struct hr_gguf *g, struct hr_model_config *out,
                                         struct hr_err *err) {
    struct hr_model_config c = {0};
    const char *s;
    size_t len;
    if (!hr_gguf_str(g, "general.architecture", &s, &len))
        return hr_err_set(err, HR_ERR_FORMAT, "metadata key general.architecture is missing");
    hr_printable(s, len, c.arch, sizeof c.arch);
    const struct gemma *gemma = gemma_of(c.arch);
    enum hr_status rc = gemma ? HR_OK : hr_model_config_check_arch(c.arch, err);
    if (!rc) rc = read_sizes(g, &c, err);
    if (!rc) rc = refuse_what_is_not_llama(g, &c, err);
    if (!rc) rc = read_rope(g, &c, err);
    if (!rc) rc = read_rope_freqs(g, &c, err);
    if (!rc) rc = read_longrope(g, &c, err);
    if (!rc && gemma) rc = read_gemma(g, gemma, &c, err);
    if (rc) return rc;
    const struct hr_tensor_table *t = &g->tensors;
    c.tied_embeddings = !hr_tensor_table_find(t, "output.weight");
    c.qkv_bias = hr_tensor_table_find(t, "blk.0.attn_q.bias");
    c.o_bias = hr_tensor_table_find(t, "blk.0.attn_output.bias");
    c.mlp_bias = hr_tensor_table_find(t, "blk.0.ffn_gate.bias");
    c.qk_norm = hr_tensor_table_find(t, "blk.0.attn_q_norm.weight");
    if (strcmp(c.arch, "olmo2") == 0) c.qk_norm_wide = c.no_pre_norms = c.post_norms = true;
    c.fused = hr_tensor_table_find(t, "blk.0.attn_qkv.weight");
    rc = hr_model_config_check(&c, err);
    if (rc) return rc;
    read_window(g, &c);
    for (int i = 3; strcmp(c.arch, "smollm3") == 0 && i < c.n_layers; i += 4)
        c.layer[i] |= HR_LAYER_NO_ROPE; /* every fourth; the file does not say */
    *out = c;
    return rc;
}

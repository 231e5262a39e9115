/* SPDX-License-Identifier: Apache-2.0
 *
 * model_config: config.json of the llama family.
 *
 * A key that is absent takes the default of the architecture's configuration class in transformers;
 * a key that would change the computation in a way that the forward pass does not know is refused.
 * Source: huggingface/transformers, configuration_{llama,mistral,phi3,gemma2,gemma3,olmo2,qwen2,qwen3,smollm3}.py and
 * modeling_rope_utils.py (both spellings: "rope_scaling", and "rope_parameters" of version 5). */
#include "model/model_config.h"

#include <math.h>
#include <string.h>

#include "model/rope.h"
#include "model/weights.h"

#define ARCH_NAMES "llama, mistral, phi3, gemma2, gemma3_text, olmo2, qwen2, qwen3, smollm3"
#define ROPE_NAMES "default, linear, dynamic, llama3, yarn, longrope"

struct arch {
    const char *name;
    bool qkv_bias;             /* always has it, whatever attention_bias says */
    bool reads_attention_bias; /* attention_bias adds biases to q, k, v and o */
    bool reads_mlp_bias;
    bool qk_norm;
    int head_dim;       /* default; 0: hidden_size / num_attention_heads */
    bool fused;
    bool norms_behind;   /* OLMo 2: norms behind the blocks alone, and over all of q and k */
    bool gemma;          /* norms, activation and scales of Gemma 2 and 3 */
    bool partial_rotary; /* reads partial_rotary_factor */
    int original_ctx;    /* default of original_max_position_embeddings; 0: it has no such key */
    double attn_softcap, final_softcap; /* defaults */
    bool tied;           /* default of tie_word_embeddings */
    int no_rope;         /* every so manieth layer does not rotate, and slides when any do; 0: all rotate */
    int pattern;         /* every so manieth layer does not slide; 0: all that the window says do */
    double sliding_theta; /* rope of sliding layers by default; 0: as the others */
    double theta;        /* default of rope_theta; 0: 10000 */
    struct {
        int n_heads, n_kv_heads, n_vocab, n_ctx;
        double rms_eps;
    } sizes;             /* defaults; 0: none */
    int64_t window;      /* default of sliding_window; 0: none; WHOLE: the key is read */
    bool window_opt_in; /* sliding_window counts only with use_sliding_window */
};

#define WHOLE INT64_MAX /* a window that cuts nothing */

static const struct arch archs[] = {
    {.name = "llama", .reads_attention_bias = true, .reads_mlp_bias = true},
    {.name = "mistral", .window = 4096},
    {.name = "phi3",
     .fused = true,
     .partial_rotary = true,
     .original_ctx = 4096,
     .sizes.rms_eps = 1e-5,
     .window = WHOLE},
    {.name = "gemma2",
     .gemma = true,
     .tied = true,
     .reads_attention_bias = true,
     .head_dim = 256,
     .attn_softcap = 50,
     .final_softcap = 30,
     .pattern = 2,
     .sizes = {.n_heads = 8, .n_kv_heads = 4, .n_vocab = 256000, .n_ctx = 8192},
     .window = 4096},
    {.name = "gemma3_text",
     .gemma = true,
     .tied = true,
     .reads_attention_bias = true,
     .qk_norm = true,
     .head_dim = 256,
     .pattern = 6,
     .sliding_theta = 10000,
     .theta = 1e6,
     .sizes = {.n_heads = 8, .n_kv_heads = 4, .n_vocab = 262208, .n_ctx = 131072},
     .window = 4096},
    {.name = "qwen2", .qkv_bias = true, .window = 4096, .window_opt_in = true},
    {.name = "qwen3",
     .reads_attention_bias = true,
     .qk_norm = true,
     .head_dim = 128,
     .window = 4096,
     .window_opt_in = true},
    {.name = "olmo2",
     .reads_attention_bias = true,
     .qk_norm = true,
     .norms_behind = true,
     .sizes = {.n_vocab = 50304, .n_ctx = 2048, .rms_eps = 1e-5}},
    {.name = "smollm3",
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .tied = true,
     .no_rope = 4,
     .theta = 2e6,
     .sizes = {.n_heads = 16, .n_kv_heads = 4, .n_vocab = 128256, .n_ctx = 32768},
     .window = WHOLE,
     .window_opt_in = true},
};

static const struct arch *find_arch(const char *name) {
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strcmp(archs[i].name, name) == 0) return &archs[i];
    return NULL;
}

enum hr_status hr_model_config_check_arch(const char *arch, struct hr_err *err) {
    char text[64];
    if (find_arch(arch)) return HR_OK;
    return hr_err_set(err, HR_ERR_UNSUPPORTED,
                      "the architecture %s is not supported; supported are " ARCH_NAMES,
                      hr_printable(arch, strlen(arch), text, sizeof text));
}

static bool is_null(const struct hr_json *v) {
    return hr_json_type(v) == HR_JSON_NULL;
}

/* An integer from 1 to 2^30; `def` when the key is absent or null (0: it must be there). */
static enum hr_status get_int(const struct hr_json *root, const char *key, int def, int *out,
                              struct hr_err *err) {
    const struct hr_json *v = hr_json_get(root, key);
    int64_t i;
    if (is_null(v)) {
        if (def == 0) return hr_err_set(err, HR_ERR_FORMAT, "key \"%s\" is missing", key);
        *out = def;
        return HR_OK;
    }
    if (!hr_json_int(v, &i) || i < 1 || i > 1 << 30)
        return hr_err_set(err, HR_ERR_FORMAT, "key \"%s\" is not a whole number from 1 to 2^30",
                          key);
    *out = (int)i;
    return HR_OK;
}

/* A finite number above 0; `def` when the key is absent or null (0: it must be there). */
static enum hr_status get_real(const struct hr_json *root, const char *key, double def, double *out,
                               struct hr_err *err) {
    const struct hr_json *v = hr_json_get(root, key);
    if (is_null(v)) {
        if (def == 0) return hr_err_set(err, HR_ERR_FORMAT, "key \"%s\" is missing", key);
        *out = def;
        return HR_OK;
    }
    if (!hr_json_real(v, out) || !isfinite(*out) || *out <= 0)
        return hr_err_set(err, HR_ERR_FORMAT, "key \"%s\" is not a number above 0", key);
    return HR_OK;
}

static enum hr_status get_bool(const struct hr_json *root, const char *key, bool *out,
                               struct hr_err *err) {
    const struct hr_json *v = hr_json_get(root, key);
    *out = false;
    if (is_null(v) || hr_json_bool(v, out)) return HR_OK;
    return hr_err_set(err, HR_ERR_FORMAT, "key \"%s\" is neither true nor false", key);
}

static bool str_is(const struct hr_json *v, const char *text) {
    const char *s;
    size_t len;
    return hr_json_str(v, &s, &len) && len == strlen(text) && memcmp(s, text, len) == 0;
}

static enum hr_status read_llama3(const struct hr_json *p, int n_ctx, struct hr_rope *r,
                                  struct hr_err *err) {
    enum hr_status rc = get_real(p, "factor", 0, &r->factor, err);
    if (!rc) rc = get_real(p, "low_freq_factor", 0, &r->low_freq_factor, err);
    if (!rc) rc = get_real(p, "high_freq_factor", 0, &r->high_freq_factor, err);
    if (!rc) rc = get_int(p, "original_max_position_embeddings", n_ctx, &r->original_ctx, err);
    return rc;
}

static enum hr_status read_yarn(const struct hr_json *p, int n_ctx, struct hr_rope *r,
                                struct hr_err *err) {
    static const char *const scales[] = {"mscale", "mscale_all_dim"};
    double mscale[2] = {0, 0};
    enum hr_status rc =
        get_int(p, "original_max_position_embeddings", n_ctx, &r->original_ctx, err);
    if (!rc) rc = get_real(p, "factor", (double)n_ctx / r->original_ctx, &r->factor, err);
    if (!rc) rc = get_real(p, "beta_fast", 32, &r->beta_fast, err);
    if (!rc) rc = get_real(p, "beta_slow", 1, &r->beta_slow, err);
    if (!rc) rc = get_bool(p, "truncate", &r->truncate, err);
    if (is_null(hr_json_get(p, "truncate"))) r->truncate = true;
    /* 0 means what absence does. */
    for (int i = 0; i < 2; i++) hr_json_real(hr_json_get(p, scales[i]), &mscale[i]);
    double by = mscale[0] != 0 && mscale[1] != 0
                    ? hr_rope_yarn_scale(r->factor, mscale[0]) / hr_rope_yarn_scale(r->factor, mscale[1])
                    : hr_rope_yarn_scale(r->factor, 1);
    if (!rc) rc = get_real(p, "attention_factor", by, &r->attention_factor, err);
    return rc;
}

/* A list of the rotated pairs' divisors. */
static enum hr_status get_divisors(const struct hr_json *p, const char *key, int n, float *out,
                                   struct hr_err *err) {
    const struct hr_json *list = hr_json_get(p, key);
    double v;
    if (hr_json_type(list) != HR_JSON_ARRAY || hr_json_size(list) != (size_t)n)
        return hr_err_set(err, HR_ERR_FORMAT, "key \"%s\" is not a list of %d numbers", key, n);
    for (int i = 0; i < n; i++) {
        if (!hr_json_real(hr_json_at(list, (size_t)i), &v) || !(v > 0 && v < 1e6))
            return hr_err_set(err, HR_ERR_FORMAT,
                              "key \"%s\": number %d is not one above 0 and below 1e6", key, i);
        out[i] = (float)v;
    }
    return HR_OK;
}

static enum hr_status read_longrope(const struct hr_json *root, const struct hr_json *p,
                                    const struct arch *a, const struct hr_model_config *c,
                                    struct hr_rope *r, struct hr_err *err) {
    int n = c->rope_dim / 2;
    static const char original[] = "original_max_position_embeddings";
    float other[HR_ROPE_PAIRS_MAX];
    if (n > HR_ROPE_PAIRS_MAX)
        return hr_err_set(err, HR_ERR_UNSUPPORTED, "longrope over %d pairs: at most %d", n,
                          HR_ROPE_PAIRS_MAX);
    enum hr_status rc = get_int(p, original, a->original_ctx ? a->original_ctx : c->n_ctx,
                                &r->original_ctx, err);
    if (!rc && a->original_ctx) rc = get_int(root, original, r->original_ctx, &r->original_ctx, err);
    if (rc) return rc;
    bool is_long = c->n_ctx > r->original_ctx;
    rc = get_divisors(p, "short_factor", n, is_long ? other : r->divisor, err);
    if (!rc) rc = get_divisors(p, "long_factor", n, is_long ? r->divisor : other, err);
    if (!rc) rc = get_real(p, "factor", (double)c->n_ctx / r->original_ctx, &r->factor, err);
    if (rc) return rc;
    double by = r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log(r->original_ctx));
    return get_real(p, "attention_factor", by, &r->attention_factor, err);
}

static enum hr_status read_rope_type(const struct hr_json *root, const struct hr_json *p,
                                     const struct arch *a, const struct hr_model_config *c,
                                     struct hr_rope *r, struct hr_err *err) {
    const char *s = "default";
    size_t len = strlen(s);
    char text[64];
    const struct hr_json *type = hr_json_get(p, "rope_type");
    if (is_null(type)) type = hr_json_get(p, "type");
    if (!is_null(type) && !hr_json_str(type, &s, &len))
        return hr_err_set(err, HR_ERR_FORMAT, "key \"rope_type\" is not a string");
    r->factor = r->attention_factor = 1;
    if (is_null(type) || str_is(type, "default")) {
        r->type = HR_ROPE_DEFAULT;
        return HR_OK;
    }
    if (str_is(type, "linear")) {
        r->type = HR_ROPE_LINEAR;
        return get_real(p, "factor", 0, &r->factor, err);
    }
    if (str_is(type, "dynamic")) {
        r->type = HR_ROPE_DYNAMIC;
        return get_real(p, "factor", 0, &r->factor, err);
    }
    if (str_is(type, "yarn") && !a->fused) {
        r->type = HR_ROPE_YARN;
        return read_yarn(p, c->n_ctx, r, err);
    }
    if (str_is(type, "llama3")) {
        r->type = HR_ROPE_LLAMA3;
        return read_llama3(p, c->n_ctx, r, err);
    }
    /* "su" is longrope's first name; a Phi-3 that says "yarn" means it too. */
    if (str_is(type, "longrope") || str_is(type, "su") || (a->fused && str_is(type, "yarn"))) {
        r->type = HR_ROPE_LONGROPE;
        return read_longrope(root, p, a, c, r, err);
    }
    return hr_err_set(err, HR_ERR_UNSUPPORTED,
                      "the rope type %s is not supported; supported are " ROPE_NAMES,
                      hr_printable(s, len, text, sizeof text));
}

static enum hr_status refuse_nested(const struct hr_json *p, const char *name, struct hr_err *err) {
    const struct hr_json *value;
    const char *key;
    void *it = NULL;
    size_t key_len;
    if (!is_null(p) && hr_json_type(p) != HR_JSON_OBJECT)
        return hr_err_set(err, HR_ERR_FORMAT, "key \"%s\" is not an object", name);
    while (hr_json_next(p, &it, &key, &key_len, &value))
        if (hr_json_type(value) == HR_JSON_OBJECT)
            return hr_err_set(err, HR_ERR_UNSUPPORTED,
                              "key \"%s\" differs by kind of layer, which is not supported", name);
    return HR_OK;
}

/* "rope_scaling" when it is stated, as transformers prefers it, else "rope_parameters". */
static enum hr_status read_rope(const struct hr_json *root, const struct arch *a,
                                struct hr_model_config *c, struct hr_err *err) {
    const struct hr_json *scaling = hr_json_get(root, "rope_scaling");
    const struct hr_json *parameters = hr_json_get(root, "rope_parameters");
    const struct hr_json *p = is_null(scaling) ? parameters : scaling;
    const char *p_name = is_null(scaling) ? "rope_parameters" : "rope_scaling";
    double partial;
    enum hr_status rc = refuse_nested(p, p_name, err);
    if (!rc) rc = get_real(root, "partial_rotary_factor", 1, &partial, err);
    if (!rc) rc = get_real(p, "partial_rotary_factor", partial, &partial, err);
    if (rc) return rc;
    if (partial > 1 || (partial != 1 && !a->partial_rotary))
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "key \"partial_rotary_factor\" is %g, which is not supported", partial);
    c->rope_dim = (int)(c->head_dim * partial);
    rc = read_rope_type(root, p, a, c, &c->rope, err);
    if (rc) return hr_err_prefix(err, "key \"%s\"", p_name);

    double theta = a->theta > 0 ? a->theta : 10000;
    rc = get_real(root, "rope_theta", theta, &theta, err);
    if (!rc) rc = get_real(parameters, "rope_theta", theta, &theta, err);
    if (!rc) rc = get_real(p, "rope_theta", theta, &theta, err);
    c->rope.theta = theta;
    return rc;
}

/* Gemma 3's two: "rope_parameters" holds one object a kind of layer; before that, "rope_scaling"
 * and "rope_theta" were those of the full layers and "rope_local_base_freq" the sliding ones'. */
static enum hr_status read_two_ropes(const struct hr_json *root, const struct arch *a,
                                     struct hr_model_config *c, struct hr_err *err) {
    const struct hr_json *scaling = hr_json_get(root, "rope_scaling");
    const struct hr_json *parameters = hr_json_get(root, "rope_parameters");
    const struct hr_json *full = hr_json_get(parameters, "full_attention");
    const struct hr_json *sliding = hr_json_get(parameters, "sliding_attention");
    enum hr_status rc = HR_OK;
    if (!is_null(parameters) && is_null(full) && is_null(sliding))
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "key \"rope_parameters\" does not name kinds of layers");
    if (!is_null(scaling)) full = scaling;
    rc = refuse_nested(full, "full_attention", err);
    if (!rc) rc = refuse_nested(sliding, "sliding_attention", err);
    c->two_ropes = true;
    c->rope_dim = c->head_dim;
    if (!rc) rc = read_rope_type(root, full, a, c, &c->rope, err);
    if (!rc) rc = get_real(root, "rope_theta", a->theta, &c->rope.theta, err);
    if (!rc) rc = get_real(full, "rope_theta", c->rope.theta, &c->rope.theta, err);
    if (!rc) rc = read_rope_type(root, sliding, a, c, &c->sliding_rope, err);
    if (!rc)
        rc = get_real(root, "rope_local_base_freq", a->sliding_theta, &c->sliding_rope.theta, err);
    if (!rc) rc = get_real(sliding, "rope_theta", c->sliding_rope.theta, &c->sliding_rope.theta, err);
    return rc;
}

/* SmolLM3's layers without rotation: "no_rope_layers" has a 0 for each. */
static enum hr_status mark_no_rope(const struct hr_json *root, const struct arch *a,
                                   struct hr_model_config *c, struct hr_err *err) {
    const struct hr_json *list = hr_json_get(root, "no_rope_layers");
    int every = a->no_rope;
    int64_t rotates;
    enum hr_status rc = HR_OK;
    if (every) rc = get_int(root, "no_rope_layer_interval", every, &every, err);
    if (rc || !every) return rc;
    if (!is_null(list) && hr_json_size(list) != (size_t)c->n_layers)
        return hr_err_set(err, HR_ERR_FORMAT, "key \"no_rope_layers\" names %zu layers of %d",
                          hr_json_size(list), c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        rotates = (i + 1) % every != 0;
        if (!is_null(list) && !hr_json_int(hr_json_at(list, (size_t)i), &rotates))
            return hr_err_set(err, HR_ERR_FORMAT,
                              "key \"no_rope_layers\": number %d is not a whole number", i);
        if (!rotates) c->layer[i] |= HR_LAYER_NO_ROPE;
    }
    return HR_OK;
}

/* Sets the sliding layers: those that "layer_types" lists, else the architecture's. `first`: the
 * layers below it look at everything. */
static enum hr_status mark_sliding(const struct hr_json *types, const struct arch *a, int64_t first,
                                   int pattern, struct hr_model_config *c, struct hr_err *err) {
    bool listed = hr_json_size(types) > 0;
    for (size_t i = 0; i < hr_json_size(types); i++) {
        bool slides = str_is(hr_json_at(types, i), "sliding_attention");
        if ((slides && a->window == 0) ||
            (!slides && !str_is(hr_json_at(types, i), "full_attention")))
            return hr_err_set(err, HR_ERR_UNSUPPORTED,
                              "key \"layer_types\" has a kind of layer that is not supported");
    }
    if (listed && hr_json_size(types) != (size_t)c->n_layers)
        return hr_err_set(err, HR_ERR_FORMAT, "key \"layer_types\" names %zu layers of %d",
                          hr_json_size(types), c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        bool slides = a->window != 0 && i >= first && (pattern == 0 || (i + 1) % pattern != 0);
        if (a->no_rope) slides = c->layer[i] & HR_LAYER_NO_ROPE;
        if (listed) slides = str_is(hr_json_at(types, (size_t)i), "sliding_attention");
        if (slides) c->layer[i] |= HR_LAYER_SLIDING;
    }
    return HR_OK;
}

/* Which layers look at a window only, and how long it is. */
static enum hr_status read_window(const struct hr_json *root, const struct arch *a,
                                  struct hr_model_config *c, struct hr_err *err) {
    const struct hr_json *window = hr_json_get(root, "sliding_window");
    int64_t size = a->window, first = a->window_opt_in && !a->no_rope ? 28 : 0;
    bool on = a->window != 0;
    if (a->window_opt_in) {
        enum hr_status rc = get_bool(root, "use_sliding_window", &on, err);
        if (rc) return rc;
        if (!a->no_rope) hr_json_int(hr_json_get(root, "max_window_layers"), &first);
    }
    int pattern = 0;
    enum hr_status rc = HR_OK;
    if (a->pattern) rc = get_int(root, "sliding_window_pattern", a->pattern, &pattern, err);
    if (!rc) rc = mark_sliding(hr_json_get(root, "layer_types"), a, first, pattern, c, err);
    if (rc || !on || (window && is_null(window))) return rc;
    if (window && (!hr_json_int(window, &size) || size < 1))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "key \"sliding_window\" is not a whole number above 0");
    if (size < c->n_ctx) c->window = (int)size; /* a longer one never cuts anything */
    return HR_OK;
}

static enum hr_status read_sizes(const struct hr_json *root, const struct arch *a,
                                 struct hr_model_config *c, struct hr_err *err) {
    double eps = 0;
    enum hr_status rc = get_int(root, "num_hidden_layers", 0, &c->n_layers, err);
    if (!rc) rc = get_int(root, "hidden_size", 0, &c->dim, err);
    if (!rc) rc = get_int(root, "num_attention_heads", a->sizes.n_heads, &c->n_heads, err);
    int n_kv_heads = a->sizes.n_kv_heads ? a->sizes.n_kv_heads : c->n_heads;
    if (!rc) rc = get_int(root, "num_key_value_heads", n_kv_heads, &c->n_kv_heads, err);
    if (!rc) rc = get_int(root, "intermediate_size", 0, &c->n_ff, err);
    if (!rc) rc = get_int(root, "vocab_size", a->sizes.n_vocab, &c->n_vocab, err);
    if (!rc) rc = get_int(root, "max_position_embeddings", a->sizes.n_ctx, &c->n_ctx, err);
    if (rc) return rc;
    int head_dim = a->head_dim ? a->head_dim : c->dim / c->n_heads;
    if (head_dim == 0)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "key \"num_attention_heads\" is above \"hidden_size\"");
    rc = get_int(root, "head_dim", head_dim, &c->head_dim, err);
    if (!rc) rc = get_real(root, "rms_norm_eps", a->sizes.rms_eps > 0 ? a->sizes.rms_eps : 1e-6, &eps, err);
    c->rms_eps = (float)eps;
    c->attn_scale = 1 / sqrt(c->head_dim);
    return rc;
}

static enum hr_status read_flags(const struct hr_json *root, const struct arch *a,
                                 struct hr_model_config *c, struct hr_err *err) {
    bool attention_bias = false, mlp_bias = false;
    enum hr_status rc = get_bool(root, "tie_word_embeddings", &c->tied_embeddings, err);
    if (is_null(hr_json_get(root, "tie_word_embeddings"))) c->tied_embeddings = a->tied;
    if (!rc && a->reads_attention_bias) rc = get_bool(root, "attention_bias", &attention_bias, err);
    if (!rc && a->reads_mlp_bias) rc = get_bool(root, "mlp_bias", &mlp_bias, err);
    if (rc) return rc;
    c->qkv_bias = a->qkv_bias || attention_bias;
    c->o_bias = attention_bias;
    c->mlp_bias = mlp_bias;
    c->qk_norm = a->qk_norm;
    c->fused = a->fused;
    c->qk_norm_wide = c->no_pre_norms = c->post_norms = a->norms_behind;
    const char *act_key = a->gemma ? "hidden_activation" : "hidden_act";
    const char *known = a->gemma ? "gelu_pytorch_tanh" : "silu";
    const struct hr_json *act = hr_json_get(root, act_key);
    if (!is_null(act) && !str_is(act, known))
        return hr_err_set(err, HR_ERR_UNSUPPORTED, "key \"%s\": only %s is supported", act_key, known);
    if (!is_null(hr_json_get(root, "quantization_config")))
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "key \"quantization_config\": quantised safetensors are not supported; "
                          "use the unquantised model or a GGUF file");
    return HR_OK;
}

/* A cap: `def` when the key is absent, none (0) when it is null. */
static enum hr_status get_cap(const struct hr_json *root, const char *key, double def, double *out,
                              struct hr_err *err) {
    *out = hr_json_get(root, key) ? 0 : def;
    return is_null(hr_json_get(root, key)) ? HR_OK : get_real(root, key, 0, out, err);
}

static enum hr_status read_gemma(const struct hr_json *root, const struct arch *a,
                                 struct hr_model_config *c, struct hr_err *err) {
    double scalar = 0;
    bool both_ways = false;
    enum hr_status rc = get_real(root, "query_pre_attn_scalar", 256, &scalar, err);
    if (!rc) rc = get_bool(root, "use_bidirectional_attention", &both_ways, err);
    if (!rc) rc = get_cap(root, "final_logit_softcapping", a->final_softcap, &c->final_softcap, err);
    /* Gemma 3 has the key for its scores too, but its q and k norms took the cap's place. */
    if (!rc && a->attn_softcap > 0)
        rc = get_cap(root, "attn_logit_softcapping", a->attn_softcap, &c->attn_softcap, err);
    if (rc) return rc;
    if (both_ways)
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "key \"use_bidirectional_attention\" is not supported");
    c->attn_scale = 1 / sqrt(scalar);
    c->post_norms = c->norm_plus_one = c->gelu = c->root_scale = true;
    return HR_OK;
}

struct hr_norm_names hr_model_norm_names(const struct hr_model_config *c) {
    static const char behind_attn[] = "post_attention_layernorm.weight";
    static const char behind_ffn[] = "post_feedforward_layernorm.weight";
    if (c->no_pre_norms) return (struct hr_norm_names){NULL, behind_attn, NULL, behind_ffn};
    if (c->post_norms)
        return (struct hr_norm_names){"input_layernorm.weight", behind_attn,
                                      "pre_feedforward_layernorm.weight", behind_ffn};
    /* Llama's name for the norm before the feed-forward says where it is: behind attention. */
    return (struct hr_norm_names){"input_layernorm.weight", NULL, behind_attn, NULL};
}

enum hr_status hr_model_config_from_json(const struct hr_json *root, struct hr_model_config *out,
                                         struct hr_err *err) {
    struct hr_model_config c = {0};
    const char *s;
    size_t len;
    char name[sizeof c.arch];
    if (hr_json_type(root) != HR_JSON_OBJECT)
        return hr_err_set(err, HR_ERR_FORMAT, "it is not a JSON object");
    if (!hr_json_str(hr_json_get(root, "model_type"), &s, &len))
        return hr_err_set(err, HR_ERR_FORMAT, "key \"model_type\" is missing");
    hr_printable(s, len, name, sizeof name);
    enum hr_status rc = hr_model_config_check_arch(name, err);
    if (rc) return rc;
    const struct arch *a = find_arch(name);
    memcpy(c.arch, name, strlen(name));
    rc = read_sizes(root, a, &c, err);
    if (!rc) rc = read_flags(root, a, &c, err);
    if (!rc && a->gemma) rc = read_gemma(root, a, &c, err);
    if (!rc) rc = a->sliding_theta > 0 ? read_two_ropes(root, a, &c, err) : read_rope(root, a, &c, err);
    if (!rc) rc = hr_model_config_check(&c, err);
    if (!rc) rc = mark_no_rope(root, a, &c, err); /* a number of layers that is sane */
    if (!rc) rc = read_window(root, a, &c, err);
    if (!rc) *out = c;
    return rc;
}

static enum hr_status check_rope(const struct hr_rope *r, struct hr_err *err) {
    if (!isfinite(r->theta) || r->theta <= 1)
        return hr_err_set(err, HR_ERR_FORMAT, "the rope base %g is impossible", r->theta);
    if (r->type != HR_ROPE_DEFAULT && !(r->factor > 0 && r->factor <= 1e6))
        return hr_err_set(err, HR_ERR_FORMAT, "the rope factor %g is impossible", r->factor);
    if (!(r->attention_factor > 0 && r->attention_factor < 1e3))
        return hr_err_set(err, HR_ERR_FORMAT, "rope: the attention factor %g is impossible",
                          r->attention_factor);
    if (r->type == HR_ROPE_YARN && !(r->beta_fast < 1e6 && r->beta_slow < r->beta_fast))
        return hr_err_set(err, HR_ERR_FORMAT, "rope: beta_fast %g is not above beta_slow %g",
                          r->beta_fast, r->beta_slow);
    if (r->type == HR_ROPE_LLAMA3 &&
        !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "rope: high_freq_factor %g is not above low_freq_factor %g",
                          r->high_freq_factor, r->low_freq_factor);
    return HR_OK;
}

enum hr_status hr_model_config_check(const struct hr_model_config *c, struct hr_err *err) {
    const struct {
        const char *what;
        int value, max;
    } sizes[] = {
        {"layers", c->n_layers, HR_LAYERS_MAX}, {"hidden size", c->dim, 1 << 20},
        {"attention heads", c->n_heads, 4096}, {"key/value heads", c->n_kv_heads, 4096},
        {"head size", c->head_dim, 4096},      {"feed-forward size", c->n_ff, 1 << 22},
        {"vocabulary", c->n_vocab, 1 << 24},   {"context", c->n_ctx, 1 << 30},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
            return hr_err_set(err, HR_ERR_FORMAT, "%s: %d is not from 1 to %d", sizes[i].what,
                              sizes[i].value, sizes[i].max);
    if (c->n_heads % c->n_kv_heads != 0)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "%d attention heads are not a multiple of %d key/value heads", c->n_heads,
                          c->n_kv_heads);
    if (c->rope_dim < 2 || c->rope_dim > c->head_dim || c->rope_dim % 2 != 0)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "%d of a head's %d dimensions to rotate: odd or out of range",
                          c->rope_dim, c->head_dim);
    if (!isfinite(c->rms_eps) || c->rms_eps <= 0 || c->rms_eps >= 1)
        return hr_err_set(err, HR_ERR_FORMAT, "the RMSNorm epsilon %g is impossible",
                          (double)c->rms_eps);
    if (!(c->attn_scale > 0 && c->attn_scale <= 1e3))
        return hr_err_set(err, HR_ERR_FORMAT, "the scale %g of attention is impossible",
                          c->attn_scale);
    if (!(c->attn_softcap >= 0 && c->attn_softcap < 1e6 && c->final_softcap >= 0 &&
          c->final_softcap < 1e6))
        return hr_err_set(err, HR_ERR_FORMAT, "the soft caps %g and %g are impossible",
                          c->attn_softcap, c->final_softcap);
    enum hr_status rc = check_rope(&c->rope, err);
    if (!rc && c->two_ropes) rc = check_rope(&c->sliding_rope, err);
    return rc;
}

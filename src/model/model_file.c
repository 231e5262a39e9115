/* SPDX-License-Identifier: Apache-2.0
 *
 * model_file: opens either kind of model and holds it to what its configuration promises.
 *
 * A model is accepted if and only if its files are sound (gguf.c, safetensors.c), its configuration
 * is supported (model_config.c, gguf_llama.c), every tensor that the forward pass reads is there in
 * the shape that the configuration asks for, and no tensor is left over: one that nobody reads
 * means that the model computes something that we would not. Only buffers of rotary frequencies,
 * which follow from the configuration, and an output matrix beside tied embeddings may be ignored.
 */
#include "model/model_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/hash.h"
#include "model/gguf_llama.h"
#include "model/model_config.h"
#include "model/safetensors.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

struct hr_model_file {
    char *path, *dir; /* owned */
    bool is_gguf;
    bool has_weights; /* opened whole, so config and tensors are there */
    struct hr_gguf gguf;
    struct hr_safetensors st;
    struct hr_tensor_table *tensors; /* of whichever of the two */
    struct hr_model_config config;
    uint64_t n_bytes;
    char describe[192];
};

/* Walks the tensors of a forward pass; the first fault stops it. */
struct walk {
    struct hr_model_file *mf;
    struct hr_err *err;
    enum hr_status rc;
};

/* The name to show: a GGUF's own name stands beside the one that we use. */
static const char *shown_name(const struct hr_model_file *mf, const char *name, char *out,
                              size_t cap) {
    char own[HR_TENSOR_NAME_MAX];
    hr_printable(name, strlen(name), out, cap);
    size_t n = strlen(out);
    if (mf->is_gguf && hr_gguf_llama_gguf_name(name, own)) snprintf(out + n, cap - n, " (%s)", own);
    return out;
}

static void expect(struct walk *w, const char *name, int n_rows, int n_cols) {
    char text[2 * HR_TENSOR_NAME_MAX + 4];
    if (w->rc) return;
    struct hr_file_tensor *t = hr_tensor_table_find(w->mf->tensors, name);
    if (!t) {
        w->rc = hr_err_set(w->err, HR_ERR_FORMAT, "tensor %s is missing",
                           shown_name(w->mf, name, text, sizeof text));
    } else if (t->n_rows != n_rows || t->n_cols != n_cols) {
        w->rc = hr_err_set(w->err, HR_ERR_FORMAT,
                           "tensor %s has the shape [%d, %d]; the configuration asks for [%d, %d]",
                           shown_name(w->mf, name, text, sizeof text), t->n_rows, t->n_cols, n_rows,
                           n_cols);
    } else {
        t->used = true;
        w->mf->n_bytes += t->size;
    }
}

static void expect_in_layer(struct walk *w, int layer, const char *name, int n_rows, int n_cols) {
    char full[HR_TENSOR_NAME_MAX];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    expect(w, full, n_rows, n_cols);
}

static void expect_layer(struct walk *w, int i) {
    const struct hr_model_config *c = &w->mf->config;
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    struct hr_norm_names names = hr_model_norm_names(c);
    const char *const norms[] = {names.attn, names.attn_post, names.ffn, names.ffn_post};
    for (int n = 0; n < 4; n++)
        if (norms[n]) expect_in_layer(w, i, norms[n], 1, c->dim);
    if (c->fused) {
        expect_in_layer(w, i, "self_attn.qkv_proj.weight", q + 2 * kv, c->dim);
        expect_in_layer(w, i, "mlp.gate_up_proj.weight", 2 * c->n_ff, c->dim);
    } else {
        expect_in_layer(w, i, "self_attn.q_proj.weight", q, c->dim);
        expect_in_layer(w, i, "self_attn.k_proj.weight", kv, c->dim);
        expect_in_layer(w, i, "self_attn.v_proj.weight", kv, c->dim);
        expect_in_layer(w, i, "mlp.gate_proj.weight", c->n_ff, c->dim);
        expect_in_layer(w, i, "mlp.up_proj.weight", c->n_ff, c->dim);
    }
    expect_in_layer(w, i, "self_attn.o_proj.weight", c->dim, q);
    if (c->qkv_bias) {
        expect_in_layer(w, i, "self_attn.q_proj.bias", 1, q);
        expect_in_layer(w, i, "self_attn.k_proj.bias", 1, kv);
        expect_in_layer(w, i, "self_attn.v_proj.bias", 1, kv);
    }
    if (c->o_bias) expect_in_layer(w, i, "self_attn.o_proj.bias", 1, c->dim);
    if (c->qk_norm) {
        expect_in_layer(w, i, "self_attn.q_norm.weight", 1, c->qk_norm_wide ? q : c->head_dim);
        expect_in_layer(w, i, "self_attn.k_norm.weight", 1, c->qk_norm_wide ? kv : c->head_dim);
    }
    expect_in_layer(w, i, "mlp.down_proj.weight", c->dim, c->n_ff);
    if (c->mlp_bias) {
        expect_in_layer(w, i, "mlp.gate_proj.bias", 1, c->n_ff);
        expect_in_layer(w, i, "mlp.up_proj.bias", 1, c->n_ff);
        expect_in_layer(w, i, "mlp.down_proj.bias", 1, c->dim);
    }
}

static bool may_be_ignored(const struct hr_model_file *mf, const char *name) {
    static const char buffer[] = ".rotary_emb.inv_freq";
    static const char *const gguf_ropes[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                             "rope_factors_short.weight"};
    size_t len = strlen(name), n = strlen(buffer);
    if (len > n && strcmp(name + len - n, buffer) == 0) return true;
    for (size_t i = 0; mf->is_gguf && i < sizeof gguf_ropes / sizeof *gguf_ropes; i++)
        if (strcmp(name, gguf_ropes[i]) == 0) return true;
    return mf->config.tied_embeddings && strcmp(name, "lm_head.weight") == 0;
}

static enum hr_status check_tensors(struct hr_model_file *mf, struct hr_err *err) {
    const struct hr_model_config *c = &mf->config;
    struct walk w = {mf, err, HR_OK};
    char text[HR_TENSOR_NAME_MAX];
    expect(&w, "model.embed_tokens.weight", c->n_vocab, c->dim);
    for (int i = 0; i < c->n_layers && !w.rc; i++) expect_layer(&w, i);
    expect(&w, "model.norm.weight", 1, c->dim);
    if (!c->tied_embeddings) expect(&w, "lm_head.weight", c->n_vocab, c->dim);
    for (size_t i = 0; i < mf->tensors->n && !w.rc; i++) {
        const struct hr_file_tensor *t = &mf->tensors->v[i];
        if (!t->used && !may_be_ignored(mf, t->name))
            w.rc = hr_err_set(err, HR_ERR_UNSUPPORTED,
                              "tensor %s is not part of the %s architecture as its configuration "
                              "describes it; the model is not supported",
                              hr_printable(t->name, strlen(t->name), text, sizeof text), c->arch);
    }
    return w.rc;
}

/* The format that holds most of the weights' bytes. */
static const char *main_format(const struct hr_model_file *mf) {
    uint64_t bytes[HR_QUANT_N] = {0};
    int best = 0;
    for (size_t i = 0; i < mf->tensors->n; i++)
        bytes[mf->tensors->v[i].type] += mf->tensors->v[i].size;
    for (int i = 1; i < HR_QUANT_N; i++)
        if (bytes[i] > bytes[best]) best = i;
    return hr_quant_info[best].name;
}

static void set_describe(struct hr_model_file *mf) {
    const char *name;
    size_t len;
    char text[128];
    if (!mf->is_gguf || !hr_gguf_str(&mf->gguf, "general.name", &name, &len)) {
        const char *path = mf->is_gguf ? mf->path : mf->dir;
        const char *slash = strrchr(path, '/');
        name = slash && slash[1] ? slash + 1 : path;
        len = strlen(name);
    }
    hr_printable(name, len, text, sizeof text);
    snprintf(mf->describe, sizeof mf->describe, "%s, %s %s", text,
             mf->is_gguf ? "GGUF" : "safetensors",
             mf->has_weights ? main_format(mf) : "(text only)");
}

static enum hr_status open_gguf(struct hr_model_file *mf, bool weights, struct hr_err *err) {
    enum hr_status rc = hr_gguf_open(mf->path, &mf->gguf, err);
    if (rc || !weights) return rc;
    mf->tensors = &mf->gguf.tensors;
    rc = hr_model_config_from_gguf(&mf->gguf, &mf->config, err);
    if (!rc) rc = hr_gguf_llama_rename(&mf->gguf, &mf->config, err);
    if (!rc) rc = check_tensors(mf, err);
    if (rc) hr_err_prefix(err, "%s", mf->path);
    return rc;
}

static enum hr_status open_dir(struct hr_model_file *mf, bool weights, struct hr_err *err) {
    if (!weights) return HR_OK;
    struct hr_json *root = NULL;
    struct hr_buf path = {0};
    hr_buf_printf(&path, "%s/config.json", mf->path);
    enum hr_status rc = hr_json_parse_file(hr_buf_cstr(&path), CONFIG_BYTES_MAX, &root, err);
    if (rc) goto done;
    rc = hr_model_config_from_json(root, &mf->config, err);
    if (rc) {
        hr_err_prefix(err, "%s", hr_buf_cstr(&path));
        goto done;
    }
    rc = hr_safetensors_open(mf->path, &mf->st, err);
    if (rc) goto done;
    mf->tensors = &mf->st.tensors;
    rc = check_tensors(mf, err);
    if (rc) hr_err_prefix(err, "%s", mf->path);
done:
    hr_json_free(&root);
    hr_buf_finish(&path);
    return rc;
}

static char *parent_dir(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return hr_xstrdup(".");
    return slash == path ? hr_xstrdup("/") : hr_xstrndup(path, (size_t)(slash - path));
}

/* A directory's path without the slashes at its end, so that messages and names read well. */
static char *plain_path(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return hr_xstrndup(path, n);
}

static enum hr_status open_any(const char *path, bool weights, struct hr_model_file **out,
                               struct hr_err *err) {
    struct stat st;
    enum hr_status rc;
    struct hr_model_file *mf = hr_xcalloc(1, sizeof *mf);
    mf->path = plain_path(path);
    mf->is_gguf = stat(path, &st) < 0 || !S_ISDIR(st.st_mode);
    mf->has_weights = weights;
    mf->dir = mf->is_gguf ? parent_dir(mf->path) : hr_xstrdup(mf->path);
    rc = mf->is_gguf ? open_gguf(mf, weights, err) : open_dir(mf, weights, err);
    if (rc) {
        hr_model_file_close(&mf);
        return rc;
    }
    set_describe(mf);
    *out = mf;
    return HR_OK;
}

enum hr_status hr_model_file_open(const char *path, struct hr_model_file **out,
                                  struct hr_err *err) {
    return open_any(path, true, out, err);
}

enum hr_status hr_model_file_open_text(const char *path, struct hr_model_file **out,
                                       struct hr_err *err) {
    return open_any(path, false, out, err);
}

void hr_model_file_close(struct hr_model_file **mf) {
    if (!*mf) return;
    hr_gguf_close(&(*mf)->gguf);
    hr_safetensors_close(&(*mf)->st);
    free((*mf)->path);
    free((*mf)->dir);
    free(*mf);
    *mf = NULL;
}

const struct hr_model_config *hr_model_file_config(const struct hr_model_file *mf) {
    return mf->has_weights ? &mf->config : NULL;
}

const struct hr_file_tensor *hr_model_file_tensor(const struct hr_model_file *mf,
                                                  const char *name) {
    return mf->tensors ? hr_tensor_table_find(mf->tensors, name) : NULL;
}

void hr_file_tensor_shape(const struct hr_file_tensor *t, int *n_rows, int *n_cols) {
    *n_rows = t->n_rows;
    *n_cols = t->n_cols;
}

/* Where the file keeps row i of a projection whose rotary pairs it stores side by side: of a head's
 * rows, i < half pairs with i + half; the file has them at 2i and 2i + 1. */
static int stored_row(int head_dim, int i) {
    int half = head_dim / 2, in_head = i % head_dim;
    return i - in_head + 2 * (in_head % half) + in_head / half;
}

void hr_file_tensor_read(const struct hr_file_tensor *t, int row0, int n_rows, float *dst) {
    HR_ASSERT(row0 >= 0 && n_rows >= 0 && row0 <= t->n_rows - n_rows);
    size_t row_bytes = (size_t)(t->size / (uint64_t)t->n_rows), n_cols = (size_t)t->n_cols;
    if (t->rope_head_dim == 0 || n_rows == 0) {
        hr_dequant(t->type, t->data + (size_t)row0 * row_bytes, (int64_t)n_rows * t->n_cols, dst);
    } else if (t->n_rows == 1) { /* a bias: its elements are the rows' */
        float *stored = hr_xmalloc(n_cols * sizeof *stored);
        hr_dequant(t->type, t->data, t->n_cols, stored);
        for (int i = 0; i < t->n_cols; i++) dst[i] = stored[stored_row(t->rope_head_dim, i)];
        free(stored);
    } else {
        for (int i = 0; i < n_rows; i++)
            hr_dequant(t->type,
                       t->data + (size_t)stored_row(t->rope_head_dim, row0 + i) * row_bytes,
                       t->n_cols, dst + (size_t)i * n_cols);
    }
}

uint64_t hr_model_file_bytes(const struct hr_model_file *mf) {
    return mf->n_bytes;
}

const char *hr_model_file_describe(const struct hr_model_file *mf) {
    return mf->describe;
}

static void print_rope(struct hr_buf *b, const struct hr_rope *r, int rope_dim) {
    hr_buf_printf(b, "%d %d %a %a %a %a %a %a %a %d %d\n", rope_dim, (int)r->type, r->theta,
                  r->factor, r->attention_factor, r->low_freq_factor, r->high_freq_factor,
                  r->beta_fast, r->beta_slow, r->truncate, r->original_ctx);
    for (int i = 0; r->type == HR_ROPE_LONGROPE && i < rope_dim / 2; i++)
        hr_buf_printf(b, "%a ", (double)r->divisor[i]);
}

void hr_model_file_fingerprint(const struct hr_model_file *mf, uint8_t out[32]) {
    const struct hr_model_config *c = &mf->config;
    struct hr_buf b = {0};
    HR_ASSERT(mf->has_weights);
    hr_buf_printf(&b, "headrace model 2\n%s %d %d %d %d %d %d %d %d %a\n", c->arch, c->n_layers,
                  c->dim, c->n_heads, c->n_kv_heads, c->head_dim, c->n_ff, c->n_vocab, c->n_ctx,
                  (double)c->rms_eps);
    hr_buf_printf(&b, "%d %d %d %d %d\n", c->tied_embeddings, c->qkv_bias, c->o_bias, c->mlp_bias,
                  c->qk_norm);
    hr_buf_printf(&b, "%d\n", c->window);
    hr_buf_append(&b, (const char *)c->layer, (size_t)c->n_layers);
    hr_buf_printf(&b, "\n%d %d %d %d %d %d %d %a %a %a\n", c->fused, c->qk_norm_wide,
                  c->no_pre_norms, c->post_norms, c->norm_plus_one,
                  c->gelu, c->root_scale, c->attn_scale, c->attn_softcap, c->final_softcap);
    print_rope(&b, &c->rope, c->rope_dim);
    if (c->two_ropes) print_rope(&b, &c->sliding_rope, c->rope_dim);
    for (size_t i = 0; i < mf->tensors->n; i++) {
        const struct hr_file_tensor *t = &mf->tensors->v[i];
        hr_buf_printf(&b, "%s %s %d %d %" PRIu64 "\n", t->name, hr_quant_info[t->type].name,
                      t->n_rows, t->n_cols, t->size);
    }
    hr_sha256(b.data, b.len, out);
    hr_buf_finish(&b);
}

bool hr_model_file_is_gguf(const struct hr_model_file *mf) {
    return mf->is_gguf;
}

const char *hr_model_file_dir(const struct hr_model_file *mf) {
    return mf->dir;
}

bool hr_model_file_meta_str(const struct hr_model_file *mf, const char *key, const char **s,
                            size_t *len) {
    return hr_gguf_str(&mf->gguf, key, s, len);
}

bool hr_model_file_meta_int(const struct hr_model_file *mf, const char *key, int64_t *out) {
    return hr_gguf_int(&mf->gguf, key, out);
}

bool hr_model_file_meta_real(const struct hr_model_file *mf, const char *key, double *out) {
    return hr_gguf_real(&mf->gguf, key, out);
}

bool hr_model_file_meta_array(const struct hr_model_file *mf, const char *key, size_t *n) {
    const struct hr_gguf_kv *kv = hr_gguf_find(&mf->gguf, key);
    if (!kv || !kv->is_array) return false;
    *n = (size_t)kv->n;
    return true;
}

bool hr_model_file_meta_array_str(const struct hr_model_file *mf, const char *key, const char **s,
                                  size_t *len) {
    const struct hr_gguf_kv *kv = hr_gguf_find(&mf->gguf, key);
    if (!kv || !kv->is_array || kv->type != HR_GGUF_STRING) return false;
    hr_gguf_strs(kv, s, len);
    return true;
}

bool hr_model_file_meta_array_int(const struct hr_model_file *mf, const char *key, int32_t *out) {
    const struct hr_gguf_kv *kv = hr_gguf_find(&mf->gguf, key);
    int64_t v;
    if (!kv || !kv->is_array) return false;
    for (uint64_t i = 0; i < kv->n; i++) {
        if (!hr_gguf_int_at(kv, i, &v) || v < INT32_MIN || v > INT32_MAX) return false;
        out[i] = (int32_t)v;
    }
    return true;
}

bool hr_model_file_meta_array_f32(const struct hr_model_file *mf, const char *key, float *out) {
    const struct hr_gguf_kv *kv = hr_gguf_find(&mf->gguf, key);
    if (!kv || !kv->is_array || kv->type != HR_GGUF_F32) return false;
    memcpy(out, kv->data, (size_t)kv->n * sizeof *out); /* the file does not align it */
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * llama: weights, KV and forward pass of the Llama family; see llama.h.
 *
 * A layer, as in Touvron et al. 2023 (arXiv:2302.13971) with grouped queries:
 *     x += Wo attend(rope(Wqkv norm(x)))          x += Wdown (silu(Wgate h) * Wup h), h = norm(x)
 * Gemma (arXiv:2408.00118) norms both results before they are added and has gelu for silu; OLMo 2
 * (arXiv:2501.00656) norms the results alone.
 * q, k and v are one matrix of stacked rows, and so are gate and up: one pass over h each.
 * Rotary tables are made here and given to the backend: cos and sin of position * frequency (rope.c). */
#include "model/llama.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/model_config.h"
#include "model/rope.h"

struct layer {
    struct hr_tensor *attn_norm, *ffn_norm; /* [1, dim] or NULL; before the blocks */
    struct hr_tensor *attn_post, *ffn_post; /* [1, dim] or NULL; behind them, before the sum */
    struct hr_tensor *q_norm, *k_norm;      /* [1, head_dim], or over all heads, or NULL */
    struct hr_weight *qkv;                  /* [(n_heads + 2 n_kv_heads) head_dim, dim] */
    struct hr_weight *o;                    /* [dim, n_heads head_dim] */
    struct hr_weight *gate_up;              /* [2 n_ff, dim] */
    struct hr_weight *down;                 /* [dim, n_ff] */
    struct hr_tensor *qkv_bias, *o_bias, *gate_up_bias, *down_bias; /* [1, n_out] or NULL */
};

struct hr_model {
    struct hr_backend *be; /* borrowed */
    struct hr_model_config cfg;
    struct hr_attn_shape shape;
    struct layer *layers; /* owned, [n_layers] */
    struct hr_weight *embed, *lm_head; /* [n_vocab, dim]; lm_head == embed when tied */
    struct hr_tensor *out_norm;        /* [1, dim] */
    struct hr_tensor *cos_sin[2];      /* [n_ctx, rope_dim]; of sliding layers, when they differ, [1] */
    float embed_scale;
    struct hr_kv_store *kv;
    /* Activations, [max_tokens, *] and [max_out, *]. */
    struct hr_tensor *y; /* [max_tokens, dim] f32: a block's result before its norm; or NULL */
    struct hr_tensor *x, *h, *qkv, *q, *att, *gate_up, *ff, *h_out, *logits;
    /* While a fault is looked for: where it goes, borrowed; else NULL. */
    struct hr_fault *fault;
    float *row; /* owned; host memory for one row of any activation */
};

static int qkv_rows(const struct hr_model_config *c) {
    return (c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
}

void hr_model_plan(const struct hr_model_config *c, enum hr_dtype act, const struct hr_model_opts *o,
                   struct hr_model_plan *out) {
    uint64_t size = act == HR_F32 ? 4 : 2, dim = (uint64_t)c->dim, q = (uint64_t)c->n_heads * c->head_dim;
    uint64_t per_layer = (uint64_t)qkv_rows(c) * dim + dim * q + 3 * dim * (uint64_t)c->n_ff;
    uint64_t vocab = (uint64_t)c->n_vocab * dim * (c->tied_embeddings ? 1 : 2);
    out->weights = (per_layer * (uint64_t)c->n_layers + vocab) * size;
    out->kv_per_token = (uint64_t)c->n_layers * 2 * (uint64_t)c->n_kv_heads * c->head_dim * (o->kv_f32 ? 4 : size);
    out->kv = out->kv_per_token * HR_PAGE_TOKENS * (uint64_t)o->n_pages;
    out->kv_host = out->kv_per_token * HR_PAGE_TOKENS * (uint64_t)o->n_host_pages;
    uint64_t row = 4 * (dim + (uint64_t)qkv_rows(c) + 2 * (uint64_t)c->n_ff) +
                   size * (dim + 2 * q + (uint64_t)c->n_ff);
    if (c->post_norms) row += 4 * dim;
    uint64_t out_row = 4 * (uint64_t)c->n_vocab + size * dim;
    out->activations = row * (uint64_t)o->max_tokens + out_row * (uint64_t)o->max_out +
                       4 * (uint64_t)c->n_ctx * (uint64_t)c->rope_dim * (c->two_ropes ? 2 : 1);
}

/* ---- loading ------------------------------------------------------------------------------------ */

#define SOURCES_MAX 3
/* Rows that one thread reads and packs at a time: a multiple of weight_write's 32. */
#define CHUNK_ROWS 64

struct loader {
    struct hr_model *m;
    const struct hr_model_file *mf;
    const struct hr_model_opts *opts;
    uint64_t done, total; /* bytes */
    struct hr_err *err;
    /* The matrix being read by the pool: the rows of n_sources tensors, stacked. */
    const struct hr_file_tensor *sources[SOURCES_MAX];
    int n_sources, n_out, n_in;
    struct hr_weight *weight;
    atomic_int next_chunk;
};

/* Rows row0 .. row0+n-1 of the stacked matrix. */
static void read_stacked(const struct loader *ld, int row0, int n, float *dst) {
    for (int i = 0; i < ld->n_sources && n > 0; i++) {
        int rows, cols;
        hr_file_tensor_shape(ld->sources[i], &rows, &cols);
        if (row0 >= rows) {
            row0 -= rows;
            continue;
        }
        int k = rows - row0 < n ? rows - row0 : n;
        hr_file_tensor_read(ld->sources[i], row0, k, dst);
        dst += (size_t)k * (size_t)cols;
        n -= k;
        row0 = 0;
    }
    HR_ASSERT(n == 0);
}

/* So many rows of the present matrix have been begun. */
static void tell(const struct loader *ld, int n_rows) {
    uint64_t bytes = (uint64_t)n_rows * (uint64_t)ld->n_in * (ld->m->be->act == HR_F32 ? 4 : 2);
    if (ld->opts->progress) ld->opts->progress(ld->opts->progress_arg, ld->done + bytes, ld->total);
}

static void load_chunks(void *arg, int i_thread, int n_threads) {
    struct loader *ld = arg;
    struct hr_backend *be = ld->m->be;
    float *rows = malloc((size_t)CHUNK_ROWS * (size_t)ld->n_in * sizeof *rows);
    HR_ASSERT(rows);
    for (;;) {
        int row0 = atomic_fetch_add(&ld->next_chunk, 1) * CHUNK_ROWS;
        if (row0 >= ld->n_out) break;
        int n = ld->n_out - row0 < CHUNK_ROWS ? ld->n_out - row0 : CHUNK_ROWS;
        read_stacked(ld, row0, n, rows);
        be->ops->weight_write(be, ld->weight, row0, n, rows);
        /* The embeddings alone may be a third of a model: its progress shall not stand still for them. */
        if (i_thread == 0) tell(ld, row0 + n);
    }
    free(rows);
}

static const struct hr_file_tensor *find(struct loader *ld, int layer, const char *name) {
    char full[128];
    if (layer >= 0) snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    else snprintf(full, sizeof full, "%s", name);
    return hr_model_file_tensor(ld->mf, full);
}

/* A matrix whose rows are those of the named tensors, one after the other. */
static enum hr_status load_matrix(struct loader *ld, int layer, const char *const *names, int n_names,
                                  struct hr_weight **out) {
    ld->n_sources = n_names;
    ld->n_out = 0;
    for (int i = 0; i < n_names; i++) {
        int rows;
        ld->sources[i] = find(ld, layer, names[i]);
        if (!ld->sources[i])
            return hr_err_set(ld->err, HR_ERR_FORMAT, "tensor %s of layer %d is missing", names[i], layer);
        hr_file_tensor_shape(ld->sources[i], &rows, &ld->n_in);
        ld->n_out += rows;
    }
    struct hr_backend *be = ld->m->be;
    enum hr_status st = be->ops->weight_create(be, ld->n_out, ld->n_in, names[0], out, ld->err);
    if (st) return st;
    ld->weight = *out;
    atomic_store(&ld->next_chunk, 0);
    hr_pool_run(ld->opts->pool, load_chunks, ld);
    ld->done += (uint64_t)ld->n_out * (uint64_t)ld->n_in * (be->act == HR_F32 ? 4 : 2);
    tell(ld, 0);
    return HR_OK;
}

/* A vector [1, n] of the named tensors, one after the other, plus `plus`; NULL when the file has none
 * of them. */
static enum hr_status load_plus(struct loader *ld, int layer, const char *const *names, int n_names,
                                float plus, struct hr_tensor **out) {
    int n_cols = 0, cols[SOURCES_MAX], rows;
    const struct hr_file_tensor *t[SOURCES_MAX];
    for (int i = 0; i < n_names; i++) {
        t[i] = find(ld, layer, names[i]);
        if (!t[i]) return HR_OK;
        hr_file_tensor_shape(t[i], &rows, &cols[i]);
        n_cols += cols[i];
    }
    float *v = malloc((size_t)n_cols * sizeof *v);
    HR_ASSERT(v);
    for (int i = 0, at = 0; i < n_names; at += cols[i++]) hr_file_tensor_read(t[i], 0, 1, v + at);
    for (int i = 0; i < n_cols; i++) v[i] += plus;
    struct hr_backend *be = ld->m->be;
    enum hr_status st = be->ops->tensor_create(be, HR_F32, 1, n_cols, names[0], out, ld->err);
    if (!st) be->ops->tensor_write(be, *out, 0, 1, v);
    free(v);
    return st;
}

static enum hr_status load_vector(struct loader *ld, int layer, const char *const *names, int n_names,
                                  struct hr_tensor **out) {
    return load_plus(ld, layer, names, n_names, 0, out);
}

/* A norm's weights; `name` NULL: the model has none there. */
static enum hr_status load_norm(struct loader *ld, int layer, const char *name, struct hr_tensor **out) {
    if (!name) return HR_OK;
    return load_plus(ld, layer, &name, 1, ld->m->cfg.norm_plus_one ? 1 : 0, out);
}

#define NAMES(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static enum hr_status load_layer_vectors(struct loader *ld, int i, struct layer *l) {
    enum hr_status st;
    struct hr_norm_names norms = hr_model_norm_names(&ld->m->cfg);
    if ((st = load_norm(ld, i, norms.attn, &l->attn_norm)) ||
        (st = load_norm(ld, i, norms.attn_post, &l->attn_post)) ||
        (st = load_norm(ld, i, norms.ffn, &l->ffn_norm)) ||
        (st = load_norm(ld, i, norms.ffn_post, &l->ffn_post)) ||
        (st = load_norm(ld, i, "self_attn.q_norm.weight", &l->q_norm)) ||
        (st = load_norm(ld, i, "self_attn.k_norm.weight", &l->k_norm)) ||
        (st = load_vector(ld, i,
                          NAMES("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
                          &l->qkv_bias)) ||
        (st = load_vector(ld, i, NAMES("self_attn.o_proj.bias"), &l->o_bias)) ||
        (st = load_vector(ld, i, NAMES("mlp.gate_proj.bias", "mlp.up_proj.bias"), &l->gate_up_bias)) ||
        (st = load_vector(ld, i, NAMES("mlp.down_proj.bias"), &l->down_bias)))
        return st;
    return HR_OK;
}

/* A fused model's files stack the rows in the order that we do. */
static enum hr_status load_layer(struct loader *ld, int i, struct layer *l) {
    bool fused = ld->m->cfg.fused;
    enum hr_status st = load_layer_vectors(ld, i, l);
    if (!st && fused) st = load_matrix(ld, i, NAMES("self_attn.qkv_proj.weight"), &l->qkv);
    else if (!st)
        st = load_matrix(
            ld, i,
            NAMES("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
            &l->qkv);
    if (!st) st = load_matrix(ld, i, NAMES("self_attn.o_proj.weight"), &l->o);
    if (!st && fused) st = load_matrix(ld, i, NAMES("mlp.gate_up_proj.weight"), &l->gate_up);
    else if (!st)
        st = load_matrix(ld, i, NAMES("mlp.gate_proj.weight", "mlp.up_proj.weight"), &l->gate_up);
    if (!st) st = load_matrix(ld, i, NAMES("mlp.down_proj.weight"), &l->down);
    return st;
}

static enum hr_status make_rope(struct hr_model *m, const struct hr_rope *r, struct hr_tensor **out,
                                struct hr_err *err) {
    const struct hr_model_config *c = &m->cfg;
    struct hr_backend *be = m->be;
    enum hr_status st = be->ops->tensor_create(be, HR_F32, c->n_ctx, c->rope_dim, "rope", out, err);
    if (st) return st;
    int half = c->rope_dim / 2;
    float by = (float)r->attention_factor;
    float *row = malloc((size_t)c->rope_dim * sizeof *row);
    float *freq = malloc((size_t)half * sizeof *freq);
    HR_ASSERT(row && freq);
    /* The reference keeps inverse frequencies and angles in f32; so do we, or long contexts drift. */
    for (int i = 0; i < half; i++) freq[i] = (float)hr_rope_freq(r, c->rope_dim, i);
    for (int pos = 0; pos < c->n_ctx; pos++) {
        for (int i = 0; i < half; i++) {
            float angle = (float)pos * freq[i];
            row[i] = (float)cos(angle) * by;
            row[half + i] = (float)sin(angle) * by;
        }
        be->ops->tensor_write(be, *out, pos, 1, row);
    }
    free(freq);
    free(row);
    return HR_OK;
}

static enum hr_status make_activations(struct hr_model *m, const struct hr_model_opts *o,
                                       struct hr_err *err) {
    const struct hr_model_config *c = &m->cfg;
    struct hr_backend *be = m->be;
    int n_q = c->n_heads * c->head_dim;
    const struct {
        struct hr_tensor **t;
        enum hr_dtype dtype;
        int n_rows, n_cols;
        const char *name;
    } list[] = {
        {&m->x, HR_F32, o->max_tokens, c->dim, "residual"},
        {&m->h, be->act, o->max_tokens, c->dim, "normed"},
        {&m->qkv, HR_F32, o->max_tokens, qkv_rows(c), "qkv"},
        {&m->q, be->act, o->max_tokens, n_q, "q"},
        {&m->att, be->act, o->max_tokens, n_q, "attention"},
        {&m->gate_up, HR_F32, o->max_tokens, 2 * c->n_ff, "gate_up"},
        {&m->ff, be->act, o->max_tokens, c->n_ff, "ff"},
        {&m->h_out, be->act, o->max_out, c->dim, "normed_out"},
        {&m->logits, HR_F32, o->max_out, c->n_vocab, "logits"},
        {&m->y, HR_F32, o->max_tokens, c->dim, "block"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].t == &m->y && !c->post_norms) continue;
        enum hr_status st = be->ops->tensor_create(be, list[i].dtype, list[i].n_rows, list[i].n_cols,
                                                   list[i].name, list[i].t, err);
        if (st) return st;
    }
    size_t widest = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if ((size_t)list[i].n_cols > widest) widest = (size_t)list[i].n_cols;
    m->row = malloc(widest * sizeof *m->row);
    if (!m->row) return hr_err_set(err, HR_ERR_NOMEM, "no memory for a row of activations");
    enum hr_dtype kv = o->kv_f32 ? HR_F32 : be->act;
    return be->ops->kv_create(be, kv, c->n_layers, o->n_pages, o->n_host_pages, &m->shape, &m->kv, err);
}

static enum hr_status load_weights(struct hr_model *m, const struct hr_model_file *mf,
                                   const struct hr_model_opts *opts, struct hr_err *err) {
    struct hr_model_plan plan;
    hr_model_plan(&m->cfg, m->be->act, opts, &plan);
    struct loader ld = {.m = m, .mf = mf, .opts = opts, .total = plan.weights, .err = err};
    enum hr_status st;
    if (opts->progress) opts->progress(opts->progress_arg, 0, plan.weights);
    if ((st = load_matrix(&ld, -1, NAMES("model.embed_tokens.weight"), &m->embed))) return st;
    for (int i = 0; i < m->cfg.n_layers; i++)
        if ((st = load_layer(&ld, i, &m->layers[i]))) return st;
    if ((st = load_norm(&ld, -1, "model.norm.weight", &m->out_norm))) return st;
    if (m->cfg.tied_embeddings) {
        m->lm_head = m->embed;
        return HR_OK;
    }
    return load_matrix(&ld, -1, NAMES("lm_head.weight"), &m->lm_head);
}

/* Gemma's sqrt(dim) is a number of the model's own type: in bf16 it is rounded to that. */
static float embed_scale(const struct hr_model_config *c, enum hr_dtype act) {
    union {
        float f;
        uint32_t u;
    } v = {.f = c->root_scale ? (float)sqrt(c->dim) : 1};
    if (act == HR_BF16) v.u = (v.u + 0x7fff + (v.u >> 16 & 1)) & 0xffff0000u;
    return v.f;
}

enum hr_status hr_model_create(struct hr_backend *be, const struct hr_model_file *mf,
                               const struct hr_model_opts *opts, struct hr_model **out,
                               struct hr_err *err) {
    struct hr_model *m = calloc(1, sizeof *m);
    if (!m) return hr_err_set(err, HR_ERR_NOMEM, "no memory for the model's tables");
    m->be = be;
    m->cfg = *hr_model_file_config(mf);
    const struct hr_model_config *c = &m->cfg;
    m->shape = (struct hr_attn_shape){
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .rope_dim = c->rope_dim,
        .scale = (float)c->attn_scale,
        .qk_eps = c->rms_eps,
        .softcap = (float)c->attn_softcap,
    };
    m->embed_scale = embed_scale(c, be->act);
    m->layers = calloc((size_t)c->n_layers, sizeof *m->layers);
    enum hr_status st = m->layers ? HR_OK : hr_err_set(err, HR_ERR_NOMEM, "no memory for layers");
    if (st || (st = make_activations(m, opts, err)) || (st = make_rope(m, &c->rope, &m->cos_sin[0], err)) ||
        (c->two_ropes && (st = make_rope(m, &c->sliding_rope, &m->cos_sin[1], err))) ||
        (st = load_weights(m, mf, opts, err))) {
        hr_model_destroy(&m);
        return st;
    }
    *out = m;
    return HR_OK;
}

static void destroy_layer(struct hr_backend *be, struct layer *l) {
    struct hr_tensor **tensors[] = {&l->attn_norm, &l->attn_post,    &l->ffn_norm, &l->ffn_post,
                                    &l->q_norm,    &l->k_norm,       &l->qkv_bias, &l->o_bias,
                                    &l->gate_up_bias, &l->down_bias};
    struct hr_weight **weights[] = {&l->qkv, &l->o, &l->gate_up, &l->down};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        be->ops->tensor_destroy(be, tensors[i]);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        be->ops->weight_destroy(be, weights[i]);
}

void hr_model_destroy(struct hr_model **pm) {
    struct hr_model *m = *pm;
    if (!m) return;
    struct hr_backend *be = m->be;
    for (int i = 0; m->layers && i < m->cfg.n_layers; i++) destroy_layer(be, &m->layers[i]);
    free(m->layers);
    if (m->lm_head != m->embed) be->ops->weight_destroy(be, &m->lm_head);
    be->ops->weight_destroy(be, &m->embed);
    struct hr_tensor **tensors[] = {&m->out_norm, &m->cos_sin[0], &m->cos_sin[1], &m->x,  &m->y,
                                    &m->h,        &m->qkv,        &m->q,          &m->att, &m->gate_up,
                                    &m->ff,       &m->h_out,      &m->logits};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        be->ops->tensor_destroy(be, tensors[i]);
    be->ops->kv_destroy(be, &m->kv);
    free(m->row);
    free(m);
    *pm = NULL;
}

/* ---- forward ------------------------------------------------------------------------------------ */

/* A single -infinity is a logit like another: a token that cannot be. */
static bool row_is_sound(const float *v, int n, bool is_logits) {
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (!isfinite(v[i]) && (!is_logits || v[i] != -INFINITY)) return false;
        any |= v[i] != -INFINITY;
    }
    return any;
}

/* Called behind every operation, which costs a step nothing unless a fault is looked for. */
static void look(struct hr_model *m, const struct hr_batch *b, enum hr_stage stage, int layer,
                 const struct hr_tensor *t, int n_cols) {
    struct hr_fault *f = m->fault;
    if (!f || f->stage != HR_STAGE_NONE) return;
    bool only_out = stage == HR_STAGE_OUT_NORM || stage == HR_STAGE_LOGITS;
    for (int i = 0; i < (only_out ? b->n_out : b->n_tokens); i++) {
        m->be->ops->tensor_read(m->be, t, i, 1, m->row);
        if (row_is_sound(m->row, n_cols, stage == HR_STAGE_LOGITS)) continue;
        *f = (struct hr_fault){stage, layer, b->positions[only_out ? b->out_rows[i] : i]};
        return;
    }
}

/* h: x as a block takes it. */
static void enter_block(struct hr_model *m, const struct hr_tensor *norm) {
    const struct hr_backend_ops *op = m->be->ops;
    if (norm) op->rmsnorm(m->be, m->h, m->x, norm, m->cfg.rms_eps, false);
    else op->to_act(m->be, m->h, m->x);
}

/* x += w h (+ bias), with a norm in between where the model has one. */
static void add_block(struct hr_model *m, const struct hr_tensor *h, const struct hr_weight *w,
                      const struct hr_tensor *bias, const struct hr_tensor *post, int n) {
    const struct hr_backend_ops *op = m->be->ops;
    op->matmul(m->be, post ? m->y : m->x, h, w, bias, n, !post);
    if (post) op->add_rmsnorm(m->be, m->x, m->y, post, m->cfg.rms_eps);
}

void hr_model_forward(struct hr_model *m, const struct hr_batch *batch) {
    struct hr_backend *be = m->be;
    const struct hr_backend_ops *op = be->ops;
    const float eps = m->cfg.rms_eps;
    const int n = batch->n_tokens, dim = m->cfg.dim, n_q = m->cfg.n_heads * m->cfg.head_dim;

    op->step_begin(be, batch);
    op->embed(be, m->x, m->embed, m->embed_scale);
    look(m, batch, HR_STAGE_EMBED, 0, m->x, dim);
    for (int i = 0; i < m->cfg.n_layers; i++) {
        const struct layer *l = &m->layers[i];
        bool slides = m->cfg.layer[i] & HR_LAYER_SLIDING;
        const struct hr_tensor *cos_sin = m->cos_sin[slides && m->cfg.two_ropes];
        if (m->cfg.layer[i] & HR_LAYER_NO_ROPE) cos_sin = NULL;
        /* attention */
        enter_block(m, l->attn_norm);
        look(m, batch, HR_STAGE_ATTN_NORM, i, m->h, dim);
        op->matmul(be, m->qkv, m->h, l->qkv, l->qkv_bias, n, false);
        look(m, batch, HR_STAGE_QKV, i, m->qkv, qkv_rows(&m->cfg));
        op->rope_write(be, m->q, m->kv, i, m->qkv, l->q_norm, l->k_norm, cos_sin);
        look(m, batch, HR_STAGE_ROPE, i, m->q, n_q);
        op->attend(be, m->att, m->q, m->kv, i, slides ? m->cfg.window : 0);
        look(m, batch, HR_STAGE_ATTEND, i, m->att, n_q);
        add_block(m, m->att, l->o, l->o_bias, l->attn_post, n);
        look(m, batch, HR_STAGE_ATTN_OUT, i, m->x, dim);
        /* feed-forward */
        enter_block(m, l->ffn_norm);
        look(m, batch, HR_STAGE_FFN_NORM, i, m->h, dim);
        op->matmul(be, m->gate_up, m->h, l->gate_up, l->gate_up_bias, n, false);
        look(m, batch, HR_STAGE_GATE_UP, i, m->gate_up, 2 * m->cfg.n_ff);
        (m->cfg.gelu ? op->gelu_mul : op->silu_mul)(be, m->ff, m->gate_up);
        look(m, batch, HR_STAGE_FFN_ACT, i, m->ff, m->cfg.n_ff);
        add_block(m, m->ff, l->down, l->down_bias, l->ffn_post, n);
        look(m, batch, HR_STAGE_FFN_OUT, i, m->x, dim);
    }
    if (batch->n_out > 0) {
        op->rmsnorm(be, m->h_out, m->x, m->out_norm, eps, true);
        look(m, batch, HR_STAGE_OUT_NORM, 0, m->h_out, dim);
        op->matmul(be, m->logits, m->h_out, m->lm_head, NULL, batch->n_out, false);
        if (m->cfg.final_softcap > 0)
            op->softcap(be, m->logits, batch->n_out, (float)m->cfg.final_softcap);
        look(m, batch, HR_STAGE_LOGITS, 0, m->logits, m->cfg.n_vocab);
    }
    op->step_end(be);
}

void hr_model_find_fault(struct hr_model *m, const struct hr_batch *batch, struct hr_fault *out) {
    *out = (struct hr_fault){.stage = HR_STAGE_NONE};
    m->fault = out;
    hr_model_forward(m, batch);
    m->fault = NULL;
}

void hr_model_kv_copy(struct hr_model *m, const struct hr_kv_copy *copies, int n) {
    m->be->ops->kv_copy(m->be, m->kv, copies, n);
}

void hr_model_kv_copy_wait(struct hr_model *m) {
    m->be->ops->kv_copy_wait(m->be, m->kv);
}

void hr_model_sample(struct hr_model *m, int n_rows, const struct hr_sample_row *rows,
                     struct hr_sampled *out) {
    m->be->ops->sample(m->be, m->logits, n_rows, rows, out);
}

void hr_model_logits(struct hr_model *m, int i_out, float *dst) {
    m->be->ops->tensor_read(m->be, m->logits, i_out, 1, dst);
}

int hr_model_n_vocab(const struct hr_model *m) {
    return m->cfg.n_vocab;
}

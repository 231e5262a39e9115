/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_model: a model in one precision at a time: its greedy answers, or its logits along given answers.
 *
 * Precisions are loaded one after the other, so memory is that of the largest, and the references' logits.
 * References answer first and keep their logits; the precision that a run would use is loaded last and computes
 * along their answers, and along those of the goldens. Batches and chunks change no bit (docs/design.md), so
 * they are chosen for speed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/machine.h"
#include "cmd/verify_int.h"

#define STEP_TOKENS 256
#define OUT_ROWS    32 /* logits at a time along a given answer; each row is a whole vocabulary */
#define TALK_NS     INT64_C(3000000000)

struct precision {
    enum hr_dtype act;
    bool kv_f32;
    const char *title;
};

struct lab {
    struct verify *v;
    const struct precision *precision;
    struct hr_backend *be;
    struct hr_model *model;
    int n_vocab, n_seqs, pages_each, max_tokens, max_out;
    int32_t *tokens, *positions, *slots, *out_rows, *pages; /* owned; a step's batch */
    struct hr_batch_seq *seqs;                              /* owned, [n_seqs] */
    float *row;                                             /* owned, [n_vocab] */
    int64_t talked_ns;
};

/* Rows of one sequence in a step: tokens at pos0 .. pos0+n_rows-1; the last n_out of them give logits. */
struct piece {
    int seq, pos0, n_rows, n_out;
    const int32_t *tokens;
};

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static double gib(uint64_t bytes) {
    return (double)bytes / (double)(1ull << 30);
}

/* ---- a model ------------------------------------------------------------------------------------ */

static size_t longest(const struct verify_result *r) {
    size_t n = 0;
    for (int i = 0; i < r->n_cases; i++) n = max_size(n, r->cases[i].n_prompt + r->cases[i].n_answer);
    return n;
}

static struct hr_model_opts lab_opts(const struct lab *l) {
    return (struct hr_model_opts){
        .max_tokens = l->max_tokens,
        .max_out = l->max_out,
        .n_pages = l->n_seqs * l->pages_each,
        .kv_f32 = l->precision->kv_f32,
        .pool = l->v->pool,
    };
}

/* Sizes for n_seqs sequences of at most n_tokens that are computed together. */
static struct lab lab_init(struct verify *v, const struct precision *p, int n_seqs, size_t n_tokens) {
    return (struct lab){
        .v = v,
        .precision = p,
        .n_vocab = hr_model_file_config(v->mf)->n_vocab,
        .n_seqs = n_seqs,
        .pages_each = (int)((n_tokens + HR_PAGE_TOKENS - 1) / HR_PAGE_TOKENS),
        .max_tokens = n_seqs > STEP_TOKENS ? n_seqs : STEP_TOKENS,
        .max_out = n_seqs > OUT_ROWS ? n_seqs : OUT_ROWS,
    };
}

static uint64_t lab_bytes(const struct lab *l) {
    struct hr_model_opts o = lab_opts(l);
    struct hr_model_plan plan;
    hr_model_plan(hr_model_file_config(l->v->mf), l->precision->act, &o, &plan);
    return plan.weights + plan.kv + plan.activations;
}

static enum hr_status lab_open(struct lab *l, struct hr_err *err) {
    struct hr_cpu_opts cpu = {.act = l->precision->act, .cpu_mask = l->v->cpu_mask, .pool = l->v->pool,
                              .max_tokens = l->max_tokens};
    struct hr_model_opts o = lab_opts(l);
    enum hr_status st = hr_cpu_backend_open(&cpu, &l->be, err);
    if (st) return st;
    memcpy(l->v->numerics, l->be->numerics, sizeof l->v->numerics); /* of the last: what a run would use */
    hr_info("loading the model: %s", l->precision->title);
    if ((st = hr_model_create(l->be, l->v->mf, &o, &l->model, err))) return st;
    size_t n = (size_t)l->max_tokens, n_pages = (size_t)o.n_pages;
    l->tokens = hr_xmalloc(n * sizeof *l->tokens);
    l->positions = hr_xmalloc(n * sizeof *l->positions);
    l->slots = hr_xmalloc(n * sizeof *l->slots);
    l->out_rows = hr_xmalloc((size_t)l->max_out * sizeof *l->out_rows);
    l->seqs = hr_xmalloc((size_t)l->n_seqs * sizeof *l->seqs);
    l->pages = hr_xmalloc(n_pages * sizeof *l->pages);
    l->row = hr_xmalloc((size_t)l->n_vocab * sizeof *l->row);
    for (int i = 0; i < o.n_pages; i++) l->pages[i] = i;
    l->talked_ns = hr_clock_ns();
    return HR_OK;
}

static void lab_close(struct lab *l) {
    hr_model_destroy(&l->model);
    if (l->be) l->be->ops->destroy(l->be);
    free(l->tokens);
    free(l->positions);
    free(l->slots);
    free(l->out_rows);
    free(l->seqs);
    free(l->pages);
    free(l->row);
}

static void talk(struct lab *l, const char *what, size_t done, size_t all) {
    int64_t now = hr_clock_ns();
    if (now - l->talked_ns < TALK_NS) return;
    l->talked_ns = now;
    hr_info("%s: %s %zu of %zu", l->precision->title, what, done, all);
}

static void step(struct lab *l, const struct piece *pieces, int n_pieces) {
    int n = 0, n_out = 0;
    HR_ASSERT(n_pieces >= 1 && n_pieces <= l->n_seqs);
    for (int i = 0; i < n_pieces; i++) {
        const struct piece *p = &pieces[i];
        const int32_t *pages = l->pages + (size_t)p->seq * (size_t)l->pages_each;
        HR_ASSERT(n + p->n_rows <= l->max_tokens && n_out + p->n_out <= l->max_out);
        HR_ASSERT((p->pos0 + p->n_rows - 1) / HR_PAGE_TOKENS < l->pages_each);
        l->seqs[i] = (struct hr_batch_seq){.row0 = n, .n_rows = p->n_rows, .pos0 = p->pos0, .pages = pages};
        for (int k = 0; k < p->n_rows; k++, n++) {
            int pos = p->pos0 + k;
            l->tokens[n] = p->tokens[k];
            l->positions[n] = pos;
            l->slots[n] = pages[pos / HR_PAGE_TOKENS] * HR_PAGE_TOKENS + pos % HR_PAGE_TOKENS;
            if (k >= p->n_rows - p->n_out) l->out_rows[n_out++] = n;
        }
    }
    struct hr_batch batch = {.n_tokens = n, .tokens = l->tokens, .positions = l->positions, .slots = l->slots,
                             .n_seqs = n_pieces, .seqs = l->seqs, .n_out = n_out, .out_rows = l->out_rows};
    hr_model_forward(l->model, &batch);
}

/* Logits of an out row of the last step; refused when one is not finite: they would be no answer. */
static enum hr_status logits_of(struct lab *l, int i_out, const char *name, float *dst, struct hr_err *err) {
    hr_model_logits(l->model, i_out, dst);
    for (int i = 0; i < l->n_vocab; i++)
        if (!isfinite(dst[i]))
            return hr_err_set(err, HR_ERR_NUMERIC,
                              "prompt %s: the logits are not finite (%s); its weights are damaged, or overflow in "
                              "this precision",
                              name, l->precision->title);
    return HR_OK;
}

/* ---- a reference answers ------------------------------------------------------------------------ */

static bool is_end(const struct verify *v, int32_t token) {
    for (int i = 0; i < v->text.n_eos; i++)
        if (v->text.eos_ids[i] == token) return true;
    return false;
}

/* The next token of case i out of a row of the last step; it and the logits are kept. */
static enum hr_status answer_token(struct lab *l, struct verify_case *c, int i_out, struct hr_err *err) {
    float *dst = c->logits + c->n_answer * (size_t)l->n_vocab;
    enum hr_status st = logits_of(l, i_out, c->name, dst, err);
    if (st) return st;
    hr_ids_push(&c->ids, verify_best(dst, l->n_vocab));
    c->n_answer++;
    return HR_OK;
}

static int answer_max(const struct verify *v, const struct verify_case *c) {
    int room = hr_model_file_config(v->mf)->n_ctx - (int)c->n_prompt;
    return v->o.max_tokens < room ? (int)v->o.max_tokens : room;
}

static enum hr_status read_prompt(struct lab *l, int seq, struct verify_case *c, struct hr_err *err) {
    int n = (int)c->n_prompt;
    for (int pos = 0; pos < n; pos += STEP_TOKENS) {
        int k = n - pos < STEP_TOKENS ? n - pos : STEP_TOKENS;
        step(l, &(struct piece){seq, pos, k, pos + k == n, c->ids.data + pos}, 1);
    }
    return answer_token(l, c, 0, err);
}

/* All prompts, then their answers side by side. */
static enum hr_status answer(struct lab *l, struct verify_result *r, struct hr_err *err) {
    struct piece *pieces = hr_xmalloc((size_t)r->n_cases * sizeof *pieces);
    enum hr_status st = HR_OK;
    for (int i = 0; i < r->n_cases && !st; i++) {
        struct verify_case *c = &r->cases[i];
        c->logits = hr_xmalloc((size_t)answer_max(l->v, c) * (size_t)l->n_vocab * sizeof *c->logits);
        st = read_prompt(l, i, c, err);
        talk(l, "prompt", (size_t)i + 1, (size_t)r->n_cases);
    }
    for (int64_t n_done = 1; !st; n_done++) {
        int n = 0;
        for (int i = 0; i < r->n_cases; i++) {
            struct verify_case *c = &r->cases[i];
            int32_t last = c->ids.data[c->ids.len - 1];
            if (is_end(l->v, last) || (int)c->n_answer == answer_max(l->v, c)) continue;
            pieces[n++] = (struct piece){i, (int)c->ids.len - 1, 1, 1, c->ids.data + c->ids.len - 1};
        }
        if (n == 0) break;
        step(l, pieces, n);
        for (int i = 0; i < n && !st; i++) st = answer_token(l, &r->cases[pieces[i].seq], i, err);
        talk(l, "token", (size_t)n_done, (size_t)l->v->o.max_tokens);
    }
    free(pieces);
    return st;
}

/* ---- another precision computes along its answers ------------------------------------------------ */

static enum hr_status along_case(struct lab *l, struct verify_result *r, int i_case, struct hr_err *err) {
    const struct verify_case *c = &r->cases[i_case];
    int n_prompt = (int)c->n_prompt, n = n_prompt + (int)c->n_answer - 1;
    for (int pos = 0, k; pos < n; pos += k) {
        bool answers = pos >= n_prompt - 1;
        int limit = answers ? OUT_ROWS : STEP_TOKENS, end = answers ? n : n_prompt - 1;
        k = end - pos < limit ? end - pos : limit;
        step(l, &(struct piece){0, pos, k, answers ? k : 0, c->ids.data + pos}, 1);
        for (int i = 0; i < k && answers; i++) {
            enum hr_status st = logits_of(l, i, c->name, l->row, err);
            if (st) return st;
            verify_take(r, i_case, pos + i - (n_prompt - 1), l->row, l->n_vocab);
        }
    }
    return HR_OK;
}

static enum hr_status along(struct lab *l, struct verify_result *r, struct hr_err *err) {
    enum hr_status st = HR_OK;
    for (int i = 0; i < r->n_cases && !st; i++) {
        st = along_case(l, r, i, err);
        talk(l, "compared prompt", (size_t)i + 1, (size_t)r->n_cases);
    }
    return st;
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static const struct precision bf16 = {HR_BF16, false, "bf16 weights, bf16 KV cache"};
static const struct precision bf16_kv_f32 = {HR_BF16, true, "bf16 weights, f32 KV cache"};
static const struct precision f32 = {HR_F32, false, "f32 weights, f32 KV cache"};

static void add_cases(struct verify *v, struct verify_result *r, const char *name, const char *title) {
    verify_result_init(r, name, title, &v->o.bounds);
    for (int i = 0; i < v->n_prompts; i++) {
        const struct hr_ids *ids = &v->prompts[i].made.ids;
        struct verify_case *c = verify_add_case(r, v->prompts[i].name);
        hr_ids_append(&c->ids, ids->data, ids->len);
        c->n_prompt = ids->len;
    }
}

/* Bytes of logits that a reference will keep; *n_tokens grows to its longest sequence. */
static uint64_t kept_bytes(const struct verify *v, const struct verify_result *r, size_t *n_tokens) {
    uint64_t bytes = 0;
    for (int i = 0; i < r->n_cases; i++) {
        size_t n = (size_t)answer_max(v, &r->cases[i]);
        bytes += (uint64_t)n * (uint64_t)hr_model_file_config(v->mf)->n_vocab * sizeof(float);
        *n_tokens = max_size(*n_tokens, r->cases[i].n_prompt + n);
    }
    return bytes;
}

static enum hr_status check_memory(const struct lab *l, uint64_t kept, struct hr_err *err) {
    uint64_t need = lab_bytes(l) + kept, have = hr_cmd_free_memory();
    if (need <= have) return HR_OK;
    return hr_err_set(err, HR_ERR_CONFIG,
                      "%s: this needs %.2f GiB of memory (%.2f of it the references' logits) and %.2f GiB are free; "
                      "lower --limit or --max-tokens, or give --precision %s",
                      l->precision->title, gib(need), gib(kept), gib(have),
                      l->precision->act == HR_F32 ? "kv, which needs no f32 weights" : "none");
}

/* Answers for one result, and computes along the answers of another (NULL: of none). */
static enum hr_status answer_with(struct lab *l, struct verify_result *r, struct verify_result *also,
                                  struct hr_err *err) {
    enum hr_status st = lab_open(l, err);
    if (!st) st = answer(l, r, err);
    if (!st && also) st = along(l, also, err);
    lab_close(l);
    return st;
}

enum hr_status verify_compute(struct verify *v, struct hr_err *err) {
    bool is_bf16 = v->o.dtype == 0, kv = is_bf16 && v->o.precision != VERIFY_NONE;
    bool whole = is_bf16 && v->o.precision == VERIFY_ALL;
    size_t n = 0;
    enum hr_status st;
    if (!kv && !v->o.against) return HR_OK; /* text alone */
    if (kv) add_cases(v, &v->kv, "kv", "bf16 KV cache against f32 KV cache, bf16 weights in both");
    if (whole) add_cases(v, &v->f32, "f32", "bf16 against f32 in weights, KV cache and matmuls");
    uint64_t kept = kept_bytes(v, &v->kv, &n) + kept_bytes(v, &v->f32, &n);
    struct lab with_f32 = lab_init(v, &f32, v->n_prompts, n), with_kv_f32 = lab_init(v, &bf16_kv_f32, v->n_prompts, n);
    struct lab own = lab_init(v, is_bf16 ? &bf16 : &f32, 1, max_size(n, longest(&v->g.result)));
    if ((whole && (st = check_memory(&with_f32, kept, err))) ||
        (kv && (st = check_memory(&with_kv_f32, kept, err))) || (st = check_memory(&own, kept, err)) ||
        (whole && (st = answer_with(&with_f32, &v->f32, NULL, err))))
        return st;
    if (whole) verify_result_share(&v->f32_kv, "f32_kv", "with an f32 KV cache", &v->f32);
    if (kv && (st = answer_with(&with_kv_f32, &v->kv, &v->f32_kv, err))) return st;
    st = lab_open(&own, err);
    if (!st) st = along(&own, &v->g.result, err);
    if (!st) st = along(&own, &v->kv, err);
    if (!st) st = along(&own, &v->f32, err);
    lab_close(&own);
    return st;
}

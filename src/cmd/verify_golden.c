/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_golden: the file that tests/golden/make_goldens.py --model makes: what transformers says of a model.
 *
 *   line 1   {"format": "headrace-goldens", "version": 1, "model": {shape, config_sha256}, "chat": bool,
 *            "now": TIME, "n_prompts": N, "made_with": {"transformers": ..., "dtype": ...}}
 *   others   a row that a run could take, with "rendered", "prompt_ids", "greedy" (the answer) and "top": for
 *            each token of the answer [ids, logprobs, rest], best first, natural logarithms; rest is that of
 *            all other tokens together, or null
 *
 * A file is used as a whole or not at all: one that is torn, of another model or not of numbers is refused with
 * file and line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "cmd/verify_int.h"
#include "job/shard.h"

#define AGAIN "make it again with tests/golden/make_goldens.py --model"
/* Probabilities of a position are rounded to 7 decimals of their logarithm; more than this is damage. */
#define MASS_OFF 1e-3
#define CONFIG_BYTES_MAX ((size_t)16 << 20)

void verify_goldens_finish(struct verify_goldens *g) {
    for (int i = 0; i < g->n_prompts; i++) verify_prompt_finish(&g->prompts[i]);
    free(g->prompts);
    hr_buf_finish(&g->made_with);
    hr_buf_finish(&g->note);
    hr_buf_finish(&g->text.first);
    hr_buf_finish(&g->ids.first);
    hr_manifest_destroy(&g->m);
    verify_result_finish(&g->result);
}

/* ---- the head ----------------------------------------------------------------------------------- */

static const char *str_of(const struct hr_json *v, const char *otherwise) {
    const char *s;
    size_t len;
    return hr_json_str(v, &s, &len) ? s : otherwise;
}

static enum hr_status check_shape(const struct verify *v, const struct hr_json *model, struct hr_err *err) {
    const struct hr_model_config *c = hr_model_file_config(v->mf);
    const struct {
        const char *key;
        int ours;
    } shape[] = {
        {"vocab_size", c->n_vocab},           {"num_hidden_layers", c->n_layers},
        {"hidden_size", c->dim},              {"intermediate_size", c->n_ff},
        {"num_attention_heads", c->n_heads},  {"num_key_value_heads", c->n_kv_heads},
        {"head_dim", c->head_dim},
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        int64_t theirs = -1;
        if (!hr_json_int(hr_json_get(model, shape[i].key), &theirs))
            return hr_err_set(err, HR_ERR_FORMAT, "\"model\" does not say its %s; " AGAIN, shape[i].key);
        if (theirs != shape[i].ours)
            return hr_err_set(err, HR_ERR_CONFIG,
                              "these goldens are of another model: its %s is %lld, that of %s is %d; give the "
                              "model that they were made of, or " AGAIN " %s",
                              shape[i].key, (long long)theirs, v->o.model, shape[i].ours, v->o.model);
    }
    return HR_OK;
}

/* Whether config.json is the very file. Libraries rewrite it, so another one is worth a note, no more. */
static void compare_config(struct verify *v, const struct hr_json *model) {
    const char *theirs = str_of(hr_json_get(model, "config_sha256"), NULL);
    struct hr_buf path = {0}, text = {0};
    uint8_t digest[32];
    char ours[65] = "";
    if (!hr_model_file_is_gguf(v->mf)) {
        hr_buf_printf(&path, "%s/config.json", hr_model_file_dir(v->mf));
        FILE *f = fopen(hr_buf_cstr(&path), "rb");
        hr_buf_reserve(&text, CONFIG_BYTES_MAX);
        if (f) text.len = fread(text.data, 1, CONFIG_BYTES_MAX, f);
        if (f) fclose(f);
        hr_sha256(text.data, text.len, digest);
        hr_hex(digest, 32, ours);
    }
    if (!theirs || !*ours)
        hr_buf_puts(&v->g.note, "same shape; a GGUF file has no config.json to compare");
    else if (strcmp(theirs, ours) == 0) hr_buf_puts(&v->g.note, "same config.json");
    else hr_buf_puts(&v->g.note, "same shape, but another config.json than the goldens were made with");
    hr_buf_finish(&path);
    hr_buf_finish(&text);
}

static enum hr_status read_head(struct verify *v, const struct hr_json *head, int64_t *n_prompts, struct hr_err *err) {
    const struct hr_json *made = hr_json_get(head, "made_with"), *model = hr_json_get(head, "model");
    int64_t version = 0;
    bool chat = true;
    if (strcmp(str_of(hr_json_get(head, "format"), ""), "headrace-goldens") != 0)
        return hr_err_set(err, HR_ERR_FORMAT, "not a file of goldens; " AGAIN);
    if (!hr_json_int(hr_json_get(head, "version"), &version) || version != 1)
        return hr_err_set(err, HR_ERR_FORMAT, "goldens of version %lld; this headrace reads 1; " AGAIN,
                          (long long)version);
    if (!hr_json_int(hr_json_get(head, "n_prompts"), n_prompts) || *n_prompts < 1)
        return hr_err_set(err, HR_ERR_FORMAT, "\"n_prompts\" must be a number from 1 up; " AGAIN);
    enum hr_status st = check_shape(v, model, err);
    if (st) return st;
    compare_config(v, model);
    hr_json_bool(hr_json_get(head, "chat"), &chat);
    if (chat && !v->text.chat_template)
        return hr_err_set(err, HR_ERR_CONFIG, "these goldens went through a chat template; %s: %s", v->o.model,
                          v->text.no_template);
    v->g.m = verify_rows_manifest(v->o.against, chat);
    hr_buf_printf(&v->g.made_with, "transformers %s, %s", str_of(hr_json_get(made, "transformers"), "?"),
                  str_of(hr_json_get(made, "dtype"), "?"));
    if ((st = hr_cmd_parse_now(str_of(hr_json_get(head, "now"), ""), &v->g.now, err)))
        return hr_err_set(err, HR_ERR_FORMAT, "\"now\" must be a time such as 2026-11-29T21:52:30; " AGAIN);
    return HR_OK;
}

/* ---- a row -------------------------------------------------------------------------------------- */

static enum hr_status read_ids(const struct hr_json *array, const char *what, int n_vocab, struct hr_ids *out,
                               struct hr_err *err) {
    if (hr_json_type(array) != HR_JSON_ARRAY || hr_json_size(array) == 0)
        return hr_err_set(err, HR_ERR_FORMAT, "%s must be a list of token ids; " AGAIN, what);
    for (size_t i = 0; i < hr_json_size(array); i++) {
        int64_t id = -1;
        if (!hr_json_int(hr_json_at(array, i), &id) || id < 0 || id >= n_vocab)
            return hr_err_set(err, HR_ERR_FORMAT,
                              "%s: element %zu is not a token of this model (0 to %d); give the model that the "
                              "goldens were made of, or " AGAIN,
                              what, i + 1, n_vocab - 1);
        hr_ids_push(out, (int32_t)id);
    }
    return HR_OK;
}

/* One position: [ids, logprobs, rest]. Rounding left their sum a little off 1, which would be a KL of that size,
 * so it is made exactly 1. */
static enum hr_status read_top(const struct hr_json *v, int32_t token, int n_vocab, struct verify_top *out,
                               struct hr_err *err) {
    const struct hr_json *logprobs = hr_json_at(v, 1), *rest = hr_json_at(v, 2);
    struct hr_ids ids = {0};
    double sum = 0;
    enum hr_status st = read_ids(hr_json_at(v, 0), "the best tokens", n_vocab, &ids, err);
    out->ids = ids.data;
    if (st) return st;
    if (ids.len < 2)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "a position needs its two best tokens at least; " AGAIN " with a larger --top");
    if (hr_json_size(logprobs) != ids.len)
        return hr_err_set(err, HR_ERR_FORMAT, "%zu tokens have %zu log-probabilities; " AGAIN, ids.len,
                          hr_json_size(logprobs));
    out->n = (int)ids.len;
    out->logprobs = hr_xcalloc(ids.len, sizeof *out->logprobs);
    for (int i = 0; i < out->n; i++) {
        double *p = &out->logprobs[i];
        if (!hr_json_real(hr_json_at(logprobs, (size_t)i), p) || !isfinite(*p) || (i && *p > p[-1]))
            return hr_err_set(err, HR_ERR_FORMAT,
                              "log-probability %d is not a number, or larger than the one before; " AGAIN, i + 1);
        sum += exp(*p);
    }
    double log_rest = -INFINITY;
    if (hr_json_type(rest) != HR_JSON_NULL && (!hr_json_real(rest, &log_rest) || !isfinite(log_rest)))
        return hr_err_set(err, HR_ERR_FORMAT, "what the other tokens have together is not a number; " AGAIN);
    sum += exp(log_rest);
    if (!(fabs(sum - 1) < MASS_OFF))
        return hr_err_set(err, HR_ERR_FORMAT, "the probabilities sum to %.4f, not to 1; " AGAIN, sum);
    if (out->ids[0] != token)
        return hr_err_set(err, HR_ERR_FORMAT, "the answer has token %d where %d is the most probable; " AGAIN, token,
                          out->ids[0]);
    for (int i = 0; i < out->n; i++) out->logprobs[i] -= log(sum);
    out->rest = exp(log_rest) / sum;
    return HR_OK;
}

static enum hr_status read_case(const struct verify *v, const struct hr_json *row, struct verify_case *c,
                                struct hr_err *err) {
    const struct hr_model_config *cfg = hr_model_file_config(v->mf);
    const struct hr_json *top = hr_json_get(row, "top");
    enum hr_status st = read_ids(hr_json_get(row, "prompt_ids"), "\"prompt_ids\"", cfg->n_vocab, &c->ids, err);
    if (st) return st;
    c->n_prompt = c->ids.len;
    if ((st = read_ids(hr_json_get(row, "greedy"), "\"greedy\"", cfg->n_vocab, &c->ids, err))) return st;
    size_t n_answer = c->ids.len - c->n_prompt;
    if (c->ids.len > (size_t)cfg->n_ctx)
        return hr_err_set(err, HR_ERR_LIMIT, "%zu tokens; the model's context holds %d; " AGAIN, c->ids.len,
                          cfg->n_ctx);
    if (hr_json_size(top) != n_answer)
        return hr_err_set(err, HR_ERR_FORMAT, "\"top\" has %zu positions for %zu tokens; " AGAIN, hr_json_size(top),
                          n_answer);
    c->top = hr_xcalloc(n_answer, sizeof *c->top);
    c->n_answer = n_answer;
    for (size_t i = 0; i < n_answer; i++)
        if ((st = read_top(hr_json_at(top, i), c->ids.data[c->n_prompt + i], cfg->n_vocab, &c->top[i], err)))
            return hr_err_prefix(err, "position %zu of \"top\"", i + 1);
    return HR_OK;
}

/* ---- what our own template and tokenizer make of it --------------------------------------------- */

/* A few characters of the text around a byte, from the start of one. */
static void excerpt(const char *s, size_t len, size_t at, struct hr_buf *out) {
    size_t from = at > 12 ? at - 12 : 0, to = at + 24 < len ? at + 24 : len;
    while (from > 0 && ((unsigned char)s[from] & 0xc0) == 0x80) from--;
    while (to < len && ((unsigned char)s[to] & 0xc0) == 0x80) to++;
    hr_buf_json_str(out, s + (from < len ? from : len), to > from ? to - from : 0);
}

static void compare_text(struct verify_goldens *g, const struct verify_prompt *p, const char *theirs, size_t len) {
    const struct hr_buf *ours = &p->made.rendered.text;
    size_t n = 0;
    while (n < len && n < ours->len && ours->data[n] == theirs[n]) n++;
    bool equal = n == len && n == ours->len;
    g->text.n++;
    g->text.n_equal += equal;
    if (equal || g->text.first.len) return;
    hr_buf_printf(&g->text.first, "prompt %s, from byte %zu: ", p->name, n);
    excerpt(ours->data, ours->len, n, &g->text.first);
    hr_buf_puts(&g->text.first, " for the reference's ");
    excerpt(theirs, len, n, &g->text.first);
}

static void name_token(const struct verify *v, const int32_t *ids, size_t i, size_t n, struct hr_buf *out) {
    struct hr_buf text = {0};
    if (i < n) {
        hr_tokenizer_decode(v->text.tokenizer, ids + i, 1, false, &text);
        hr_buf_printf(out, "%d ", ids[i]);
        hr_buf_json_str(out, hr_buf_cstr(&text), text.len);
    } else {
        hr_buf_puts(out, "the end");
    }
    hr_buf_finish(&text);
}

static void compare_ids(struct verify *v, const struct verify_prompt *p, const struct verify_case *c) {
    struct verify_goldens *g = &v->g;
    const struct hr_ids *ours = &p->made.ids;
    size_t n = 0;
    while (n < c->n_prompt && n < ours->len && ours->data[n] == c->ids.data[n]) n++;
    bool equal = n == c->n_prompt && n == ours->len;
    g->ids.n++;
    g->ids.n_equal += equal;
    if (equal || g->ids.first.len) return;
    hr_buf_printf(&g->ids.first, "prompt %s, token %zu: ", p->name, n + 1);
    name_token(v, ours->data, n, ours->len, &g->ids.first);
    hr_buf_puts(&g->ids.first, " for the reference's ");
    name_token(v, c->ids.data, n, c->n_prompt, &g->ids.first);
}

static enum hr_status read_row(struct verify *v, const struct hr_line *line, const struct hr_json *row,
                               struct hr_err *err) {
    struct verify_goldens *g = &v->g;
    const char *rendered;
    size_t len;
    struct verify_prompt p;
    if (!hr_json_str(hr_json_get(row, "rendered"), &rendered, &len))
        return hr_err_set(err, HR_ERR_FORMAT, "\"rendered\" must be a text; " AGAIN);
    enum hr_status st = verify_prompt_make(v, g->m, line->p, line->len, &g->now, &p, err);
    if (st) return st;
    g->prompts = hr_xrealloc(g->prompts, ((size_t)g->n_prompts + 1) * sizeof *g->prompts);
    g->prompts[g->n_prompts++] = p;
    struct verify_case *c = verify_add_case(&g->result, p.name);
    if ((st = read_case(v, row, c, err))) return st;
    compare_text(g, &p, rendered, len);
    compare_ids(v, &p, c);
    if (v->o.prompts || v->n_prompts >= v->o.limit) return HR_OK;
    return verify_add_prompt(v, g->m, line->p, line->len, &g->now, err);
}

static enum hr_status read_line(struct verify *v, const struct hr_line *line, int64_t *n_prompts, struct hr_err *err) {
    struct hr_json *root = NULL;
    if (line->too_long) return hr_err_set(err, HR_ERR_LIMIT, "longer than 16 MiB; make it again with a smaller --top");
    if (line->torn) return hr_err_set(err, HR_ERR_FORMAT, "%s; copy the file again", line->p);
    enum hr_status st = hr_json_parse(line->p, line->len, &root, err);
    if (st) {
        hr_err_prefix(err, "torn or not JSON (copy the file again, or " AGAIN ")");
        return st;
    }
    st = v->g.m ? read_row(v, line, root, err) : read_head(v, root, n_prompts, err);
    hr_json_free(&root);
    return st;
}

enum hr_status verify_read_goldens(struct verify *v, struct hr_err *err) {
    char *path = (char *)v->o.against;
    struct hr_shard_reader *reader = NULL;
    int64_t n_prompts = 0;
    bool more = true;
    verify_result_init(&v->g.result, "goldens", "goldens", &v->o.bounds);
    enum hr_status st = hr_shard_open(&path, 1, &reader, err);
    while (!st) {
        struct hr_line line;
        if ((st = hr_shard_next(reader, &line, &more, err)) || !more) break;
        if ((st = read_line(v, &line, &n_prompts, err))) hr_err_prefix(err, "%s:%lld", path, (long long)line.line_no);
    }
    hr_shard_close(&reader);
    if (!st && (v->g.n_prompts == 0 || v->g.n_prompts != n_prompts))
        st = hr_err_set(err, HR_ERR_FORMAT,
                        "%s: the end is missing: %d of %lld prompts are there; copy the file again, or " AGAIN, path,
                        v->g.n_prompts, (long long)n_prompts);
    return st;
}

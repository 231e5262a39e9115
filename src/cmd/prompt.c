/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt: renders, tokenizes and resolves; see prompt.h. */
#include "cmd/prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/jscan.h"
#include "cmd/chat.h"

void hr_cmd_prompt_finish(struct hr_cmd_prompt *p) {
    hr_rendered_finish(&p->rendered);
    hr_ids_finish(&p->ids);
    hr_sampling_spec_finish(&p->sampling);
    *p = (struct hr_cmd_prompt){0};
}

void hr_cmd_prompt_defaults(struct hr_sampling_spec *s) {
    struct hr_sampling_spec d = {
        .has_temperature = true, .temperature = 1,
        .has_top_p = true, .top_p = 1,
        .has_top_k = true, .top_k = 0,
        .has_min_p = true, .min_p = 0,
        .has_repetition_penalty = true, .repetition_penalty = 1,
        .has_presence_penalty = true, .presence_penalty = 0,
        .has_frequency_penalty = true, .frequency_penalty = 0,
        .has_max_tokens = true, .max_tokens = -1,
        .has_stop = true, .n_stop = 0,
        .has_stop_token_ids = true,
        .has_ignore_eos = true, .ignore_eos = false,
        .has_seed = true, .seed = 0,
        .has_n = true, .n = 1,
    };
    hr_sampling_spec_merge(s, &d);
}

/* messages and the like, special tokens, the manifest's own and the row's. */
#define VARS_MAX (2 * HR_TEMPLATE_VARS_MAX + 32)

/* What the template sees, as JSON texts. */
struct context {
    struct hr_template_var vars[VARS_MAX];
    char names[VARS_MAX][HR_TEMPLATE_VAR_LEN_MAX + 1]; /* of the manifest's and the row's variables */
    size_t n;
};

static void add_var(struct context *c, const char *name, const char *json, size_t len, bool trusted) {
    if (c->n == VARS_MAX) return;
    c->vars[c->n++] = (struct hr_template_var){name, json, len, trusted};
}

/* The members of a JSON object; of equal names the last one added is seen. */
static void add_members(struct context *c, const struct hr_buf *object) {
    struct hr_jval all = {HR_JOBJECT, object->data, object->len}, key, value;
    struct hr_jiter it = {0};
    if (!object->len) return;
    struct hr_buf name = {0};
    while (c->n < VARS_MAX && hr_jscan_next(&all, &it, &key, &value)) {
        hr_buf_clear(&name);
        hr_jscan_str(&key, &name);
        snprintf(c->names[c->n], sizeof c->names[0], "%s", hr_buf_cstr(&name));
        add_var(c, c->names[c->n], value.p, value.len, false);
    }
    hr_buf_finish(&name);
}

static bool has_member(const struct hr_buf *object, const char *key) {
    struct hr_jval all = {HR_JOBJECT, object->data, object->len}, value;
    return object->len && hr_jscan_get(&all, key, &value);
}

static enum hr_status render(struct hr_cmd_prompt *p, const struct hr_record *record,
                             const struct hr_manifest *m, const struct hr_model_text *text,
                             const struct tm *now, struct hr_err *err) {
    struct context c = {0};
    const struct hr_buf *tools = &record->tools_json, *docs = &record->documents_json;
    bool has_tools = tools->len > 0 || has_member(&m->template_vars, "tools") ||
                     has_member(&record->template_vars, "tools");
    const struct hr_template *t = hr_model_text_template(text, has_tools);
    if (!t)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "%s; say \"chat\": false in the manifest to send prompts as they are", text->no_template);
    struct hr_buf messages = {0};
    hr_cmd_chat_messages(record->messages_json.data, record->messages_json.len, &messages);
    add_var(&c, "messages", messages.data, messages.len, false);
    add_var(&c, "tools", "null", 4, true);
    add_var(&c, "documents", "null", 4, true);
    add_var(&c, "add_generation_prompt", "true", 4, true);
    for (int i = 0; i < text->n_special; i++) c.vars[c.n++] = text->special[i];
    add_members(&c, &m->template_vars);
    if (tools->len) add_var(&c, "tools", tools->data, tools->len, false);
    if (docs->len) add_var(&c, "documents", docs->data, docs->len, false);
    add_members(&c, &record->template_vars);
    enum hr_status st = hr_template_render(t, c.vars, c.n, now, &hr_template_limits_default, &p->rendered, err);
    if (st) hr_err_prefix(err, "chat template");
    hr_buf_finish(&messages);
    return st;
}

static enum hr_status tokenize(struct hr_cmd_prompt *p, const struct hr_record *record,
                               const struct hr_manifest *m, const struct hr_model_text *text,
                               int n_ctx, const struct tm *now, struct hr_err *err) {
    /* What is far over the context needs no exact count: a line may have 16 MiB. */
    struct hr_encode_opts enc = {.parse_special = true, .n_max = 2 * (size_t)n_ctx};
    if (m->chat) {
        enum hr_status st = render(p, record, m, text, now, err);
        if (st) return st;
        enc.plain = p->rendered.user;
        enc.n_plain = p->rendered.n_user;
    } else {
        hr_buf_append(&p->rendered.text, record->prompt.data, record->prompt.len);
        enc.add_special = true;
        enc.parse_special = false;
    }
    enum hr_status st = hr_tokenizer_encode(text->tokenizer, p->rendered.text.data, p->rendered.text.len, &enc,
                                            &p->ids, err);
    if (st == HR_ERR_LIMIT)
        return hr_err_set(err, st,
                          "the prompt has more than %zu tokens; the model's context holds %d, one of them for the "
                          "answer",
                          enc.n_max, n_ctx);
    if (!st && !m->chat && text->add_bos && (p->ids.len == 0 || p->ids.data[0] != text->bos_id)) {
        hr_ids_push(&p->ids, 0); /* the tokenizer's file does not say it, its configuration does */
        memmove(p->ids.data + 1, p->ids.data, (p->ids.len - 1) * sizeof *p->ids.data);
        p->ids.data[0] = text->bos_id;
    }
    return st;
}

static enum hr_status fit(struct hr_cmd_prompt *p, int n_ctx, int n_vocab, struct hr_err *err) {
    int64_t n = (int64_t)p->ids.len;
    if (n == 0) return hr_err_set(err, HR_ERR_FORMAT, "the prompt has no tokens");
    if (n >= n_ctx)
        return hr_err_set(err, HR_ERR_LIMIT,
                          "the prompt has %lld tokens; the model's context holds %d, one of them for the "
                          "answer",
                          (long long)n, n_ctx);
    for (size_t i = 0; i < p->ids.len; i++)
        if (p->ids.data[i] >= n_vocab)
            return hr_err_set(err, HR_ERR_FORMAT,
                              "token id %d of the prompt is outside the model's vocabulary of %d",
                              p->ids.data[i], n_vocab);
    int64_t room = n_ctx - n, asked = p->sampling.max_tokens;
    p->context_limited = asked < 0 || asked > room;
    p->max_tokens = (int)(p->context_limited ? room : asked);
    return HR_OK;
}

enum hr_status hr_cmd_prompt_make(struct hr_cmd_prompt *p, const struct hr_record *record,
                              const struct hr_manifest *m,
                              const struct hr_sampling_spec *dataset_sampling,
                              const struct hr_model_text *text, int n_ctx, int n_vocab,
                              const struct tm *now, struct hr_err *err) {
    *p = (struct hr_cmd_prompt){0};
    hr_sampling_spec_merge(&p->sampling, &record->sampling);
    hr_sampling_spec_merge(&p->sampling, dataset_sampling);
    enum hr_status st;
    if ((st = tokenize(p, record, m, text, n_ctx, now, err)) || (st = fit(p, n_ctx, n_vocab, err)))
        hr_cmd_prompt_finish(p);
    return st;
}

enum hr_status hr_cmd_parse_now(const char *s, struct tm *tm, struct hr_err *err) {
    if (hr_clock_parse(s, tm)) return HR_OK;
    return hr_err_set(err, HR_ERR_CONFIG, "--now expects a time such as 2026-11-29T21:52:30, got '%s'", s);
}

void hr_cmd_prompt_visible(const struct hr_tokenizer *tok, const int32_t *ids, size_t n, const char *open,
                           const char *close, struct hr_buf *out) {
    for (size_t i = 0, k; i < n; i += k) {
        bool special = hr_tokenizer_is_special(tok, ids[i]);
        for (k = 1; !special && i + k < n && !hr_tokenizer_is_special(tok, ids[i + k]);) k++;
        if (special) hr_buf_puts(out, open);
        hr_tokenizer_decode(tok, ids + i, k, false, out);
        if (special) hr_buf_puts(out, close);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_prompts: the prompts that a model is looked at with, made exactly as a run makes them.
 *
 * They come from --prompts (a manifest, or rows), else from the goldens (verify_golden.c), else from here. A
 * row that a run would reject is named and left out. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/verify_int.h"
#include "job/record.h"
#include "job/shard.h"

/* Prose, code, numbers, another script: enough to see a wrong template or a broken tokenizer. */
static const char *const own_prompts[] = {
    "{\"id\":\"verify-1\",\"prompt\":\"Why is the sky blue? Answer in three sentences.\"}",
    "{\"id\":\"verify-2\",\"prompt\":\"Write a Python function that merges two sorted lists, with a docstring.\"}",
    "{\"id\":\"verify-3\",\"prompt\":\"A shop sells pens at 1.20 each. What do 35 pens cost? Show the steps.\"}",
    "{\"id\":\"verify-4\",\"prompt\":\"Traduis en anglais\\u00a0: \\u00ab\\u00a0L'eau fait tourner la roue.\\u00a0"
    "\\u00bb \\u6c34\\ud83d\\udeb0\"}",
};

struct hr_manifest *verify_rows_manifest(const char *path, bool chat) {
    struct hr_manifest *m = hr_xcalloc(1, sizeof *m);
    m->path = hr_xstrdup(path);
    m->dataset = hr_xstrdup("verify");
    m->id = hr_xstrdup("id");
    m->shards = hr_xmalloc(sizeof *m->shards);
    m->shards[m->n_shards++] = hr_xstrdup(path);
    m->chat = chat;
    return m;
}

void verify_prompt_finish(struct verify_prompt *p) {
    free(p->name);
    hr_cmd_prompt_finish(&p->made);
    *p = (struct verify_prompt){0};
}

/* Raw text has a BOS that the text itself does not show; in a chat the template wrote every token. */
static void look_at(const struct verify *v, bool chat, struct verify_prompt *p) {
    const struct hr_ids *ids = &p->made.ids;
    const struct hr_buf *text = &p->made.rendered.text;
    int32_t bos = v->text.bos_id;
    struct hr_buf back = {0};
    hr_tokenizer_decode(v->text.tokenizer, ids->data, ids->len, !chat, &back);
    size_t n = 0;
    while (n < back.len && n < text->len && back.data[n] == text->data[n]) n++;
    p->round_trip = n == back.len && n == text->len;
    p->differs_at = n;
    hr_buf_finish(&back);
    p->doubled_bos = bos >= 0 && ids->len > 1 && ids->data[0] == bos && ids->data[1] == bos;
    p->lacks_bos = bos >= 0 && v->text.add_bos && ids->data[0] != bos;
}

enum hr_status verify_prompt_make(const struct verify *v, const struct hr_manifest *m, const char *line, size_t len,
                                  const struct tm *now, struct verify_prompt *out, struct hr_err *err) {
    const struct hr_model_config *cfg = hr_model_file_config(v->mf);
    struct hr_record rec = {0};
    struct hr_sampling_spec sampling = {0};
    struct verify_prompt p = {0};
    hr_cmd_prompt_defaults(&sampling);
    enum hr_status st = hr_record_parse(&rec, m, line, len, err);
    if (!st) st = hr_cmd_prompt_make(&p.made, &rec, m, &sampling, &v->text, cfg->n_ctx, cfg->n_vocab, now, err);
    if (!st) {
        p.name = hr_xstrndup(rec.id_json.data, rec.id_json.len);
        look_at(v, m->chat, &p);
        *out = p;
    }
    hr_record_finish(&rec);
    hr_sampling_spec_finish(&sampling);
    return st;
}

enum hr_status verify_add_prompt(struct verify *v, const struct hr_manifest *m, const char *line, size_t len,
                                 const struct tm *now, struct hr_err *err) {
    struct verify_prompt p;
    enum hr_status st = verify_prompt_make(v, m, line, len, now, &p, err);
    if (st) return st;
    if (v->n_prompts == v->cap_prompts) {
        v->cap_prompts = v->cap_prompts ? 2 * v->cap_prompts : 8;
        v->prompts = hr_xrealloc(v->prompts, (size_t)v->cap_prompts * sizeof *v->prompts);
    }
    v->prompts[v->n_prompts++] = p;
    return HR_OK;
}

/* Rows in order until there are --limit good ones. */
static enum hr_status read_rows(struct verify *v, const struct hr_manifest *m, const struct tm *now,
                                struct hr_err *err) {
    struct hr_shard_reader *reader = NULL;
    enum hr_status st = hr_shard_open(m->shards, m->n_shards, &reader, err);
    bool more = true;
    while (!st && v->n_prompts < v->o.limit) {
        struct hr_line line;
        struct hr_err why;
        if ((st = hr_shard_next(reader, &line, &more, err)) || !more) break;
        if (line.too_long) hr_err_set(&why, HR_ERR_LIMIT, "the line is longer than 16 MiB");
        else if (line.torn) hr_err_set(&why, HR_ERR_FORMAT, "%s", line.p);
        else if (!verify_add_prompt(v, m, line.p, line.len, now, &why)) continue;
        hr_warn("%s:%lld: %s; left out", m->shards[line.i_shard], (long long)line.line_no, why.msg);
        v->n_bad_rows++;
    }
    hr_shard_close(&reader);
    if (!st && v->n_prompts == 0)
        st = hr_err_set(err, HR_ERR_FORMAT, "%s: no row can be a prompt; see docs/manifest.md for what a row holds",
                        m->path);
    return st;
}

static enum hr_status own_rows(struct verify *v, const struct tm *now, struct hr_err *err) {
    struct hr_manifest *m = verify_rows_manifest("built-in prompts", v->text.chat_template != NULL);
    enum hr_status st = HR_OK;
    for (size_t i = 0; i < sizeof own_prompts / sizeof *own_prompts && !st && v->n_prompts < v->o.limit; i++)
        st = verify_add_prompt(v, m, own_prompts[i], strlen(own_prompts[i]), now, err);
    hr_manifest_destroy(&m);
    return st;
}

enum hr_status verify_read_prompts(struct verify *v, struct hr_err *err) {
    struct hr_manifest *m = NULL;
    const char *path = v->o.prompts;
    size_t n = path ? strlen(path) : 0;
    struct tm now;
    char iso[25];
    if (!path && v->o.against) return HR_OK;
    hr_clock_iso(iso);
    enum hr_status st = hr_cmd_parse_now(iso, &now, err);
    if (st) return st;
    if (!path) return own_rows(v, &now, err);
    if (n > 5 && strcmp(path + n - 5, ".json") == 0) st = hr_manifest_load(path, &m, err);
    else m = verify_rows_manifest(path, v->text.chat_template != NULL);
    if (!st) st = read_rows(v, m, &now, err);
    hr_manifest_destroy(&m);
    return st;
}

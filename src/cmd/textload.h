/* SPDX-License-Identifier: Apache-2.0
 *
 * textload: what a model's files say about text: its tokenizer, its chat template, its special
 * tokens, which tokens end an answer, and how its makers would sample.
 *
 * Joins model (files) and text (meaning). From a GGUF: its metadata alone. From a directory:
 * tokenizer.json (or Kimi's tiktoken.model), tokenizer_config.json, special_tokens_map.json,
 * chat_template.jinja, additional_chat_templates/tool_use.jinja, config.json and
 * generation_config.json. */
#ifndef HR_CMD_TEXTLOAD_H
#define HR_CMD_TEXTLOAD_H

#include "job/manifest.h"
#include "model/model_file.h"
#include "text/template.h"
#include "text/think.h"
#include "text/tokenizer.h"

#define HR_SPECIAL_MAX 7

struct hr_model_text {
    struct hr_tokenizer *tokenizer; /* owned */
    char tokenizer_hash[65];        /* hex SHA-256 of what it was built from */

    struct hr_template *chat_template; /* owned; NULL: the model has none that can be used */
    char *no_template; /* owned; why there is none: "the model has no chat template"; else NULL */
    struct hr_template
        *tool_template; /* owned; for rows with tools; NULL: chat_template serves both */
    /* owned, or NULL: "chat_template.jinja", "tokenizer_config.json: default", ... */
    char *template_origin, *tool_origin;
    char chat_hash[65], tool_hash[65]; /* hex SHA-256 of each template's text; "" when there is none */
    char template_hash[65]; /* hex SHA-256 of the template or templates; "" when there is none */

    struct hr_think think; /* tags that the template names; owned */

    char *bos_token, *eos_token; /* owned; NULL: none */
    /* bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token, as far as the
     * model has them, ready for hr_template_render: trusted JSON strings, owned. */
    struct hr_template_var special[HR_SPECIAL_MAX];
    int n_special;

    int32_t bos_id;              /* -1: none */
    bool add_bos;                /* the files ask for bos_id before text that no template wrote */
    int32_t eos_ids[HR_EOS_MAX]; /* ascending; union of all places that name one */
    int n_eos;

    /* From generation_config.json: temperature, top_p, top_k, min_p, repetition_penalty as far as
     * it states them; "do_sample": false states temperature 0. Nothing from a GGUF. */
    struct hr_sampling_spec generation;
};

/* `mf` may come from hr_model_file_open or hr_model_file_open_text; it is not needed afterwards.
 * template_path: a file that is used in place of the model's own template, or NULL. Errors name the
 * file or metadata key. */
HR_MUST_USE enum hr_status hr_model_text_open(const struct hr_model_file *mf,
                                              const char *template_path, struct hr_model_text *out,
                                              struct hr_err *err);
void hr_model_text_finish(struct hr_model_text *t); /* zeroed is valid */

/* Appends which templates are used, each with the beginning of its hash, for a log. */
void hr_model_text_describe_templates(const struct hr_model_text *t, struct hr_buf *out);

/* The template for a row, with or without tools. NULL: the model has none. Borrowed. */
const struct hr_template *hr_model_text_template(const struct hr_model_text *t, bool has_tools);

#endif

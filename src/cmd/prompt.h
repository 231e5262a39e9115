/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt: from a record to what the engine is asked: prompt ids, and sampling with every setting resolved.
 *
 * Precedence of settings: row, command line, manifest, the model's generation_config, default. All
 * defaults are constants (docs/sampling.md). */
#ifndef HR_CMD_PROMPT_H
#define HR_CMD_PROMPT_H

#include <time.h>

#include "cmd/textload.h"
#include "job/record.h"
#include "text/template.h"

struct hr_cmd_prompt {
    struct hr_rendered rendered; /* text that was tokenized */
    struct hr_ids ids;
    struct hr_sampling_spec sampling; /* everything stated */
    int max_tokens;        /* clipped to the context */
    bool context_limited;  /* the context is what bounds the completion */
};
void hr_cmd_prompt_finish(struct hr_cmd_prompt *p);

/* States every setting that `s` leaves open: temperature 1, top_p 1, top_k 0, min_p 0, penalties off,
 * max_tokens to EOS or the context, no stops, seed 0, n 1. */
void hr_cmd_prompt_defaults(struct hr_sampling_spec *s);

/* dataset_sampling: resolved without the row. n_ctx: positions of the model. n_vocab: rows of its
 * embedding. Errors (for rejects.jsonl): HR_ERR_FORMAT or HR_ERR_LIMIT with the reason. */
HR_MUST_USE enum hr_status hr_cmd_prompt_make(struct hr_cmd_prompt *p, const struct hr_record *record,
                                          const struct hr_manifest *m,
                                          const struct hr_sampling_spec *dataset_sampling,
                                          const struct hr_model_text *text, int n_ctx, int n_vocab,
                                          const struct tm *now, struct hr_err *err);

/* --now: "2026-11-29T21:52:30" or "2026-11-29". Errors: HR_ERR_CONFIG. */
HR_MUST_USE enum hr_status hr_cmd_parse_now(const char *s, struct tm *tm, struct hr_err *err);

/* Appends the text of ids with each control token between `open` and `close`, so that a person sees what is
 * one and what is only text that looks like one. */
void hr_cmd_prompt_visible(const struct hr_tokenizer *tok, const int32_t *ids, size_t n, const char *open,
                           const char *close, struct hr_buf *out);

#endif

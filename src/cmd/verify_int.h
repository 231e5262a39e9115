/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_int: what the files of `headrace verify` share.
 *
 *   verify.c           the command: options, the order of things, the exit code
 *   verify_prompts.c   prompts from rows, a manifest, goldens or our own: rendered, tokenized, looked at
 *   verify_golden.c    the reference's file: read, checked, its texts and ids compared
 *   verify_model.c     a model in one precision: greedy answers, and logits of given answers
 *   verify_compare.c   two distributions a position: agreement, KL, where answers part; the bounds
 *   verify_report.c    what is printed, for people and as JSON
 */
#ifndef HR_CMD_VERIFY_INT_H
#define HR_CMD_VERIFY_INT_H

#include <time.h>

#include "backend/backend.h"
#include "base/pool.h"
#include "cmd/prompt.h"
#include "cmd/textload.h"
#include "job/manifest.h"
#include "model/llama.h"
#include "model/model_file.h"

enum verify_precision { VERIFY_ALL, VERIFY_KV, VERIFY_NONE };

/* What a comparison must keep to. The defaults are those of docs/fidelity.md. */
struct verify_bounds {
    double top1; /* share of positions whose most probable token is the reference's, at least */
    double kl;   /* mean of KL(reference || ours) in nats, at most */
    double lead; /* an answer may part only where the reference's own lead, in logits, is below this */
};

struct verify_opts {
    const char *model, *prompts, *against, *cpu_mask;
    int64_t limit, max_tokens, threads;
    int dtype;     /* 0 bf16, 1 f32 */
    int precision; /* enum verify_precision */
    bool ids, json;
    struct verify_bounds bounds;
    bool has_top1, has_kl, has_lead;
};

/* A prompt as the model sees it, and what is odd about it. */
struct verify_prompt {
    char *name; /* owned; the row's id as JSON text */
    struct hr_cmd_prompt made;
    bool round_trip;   /* the ids decode to the rendered text */
    size_t differs_at; /* else the first byte that differs */
    bool doubled_bos, lacks_bos;
};

/* The reference's most probable tokens at one position. */
struct verify_top {
    int n;
    int32_t *ids;     /* owned, [n], best first */
    double *logprobs; /* owned, [n] natural logarithms; with `rest` they make exactly 1 */
    double rest;      /* probability of all other tokens together */
};

/* An answer by a reference, which is computed again. */
struct verify_case {
    const char *name;      /* borrowed from its prompt */
    struct hr_ids ids;     /* the prompt, then the answer */
    size_t n_prompt, n_answer;
    float *logits;         /* owned; [n_answer, n_vocab] of a reference that we computed, or NULL */
    struct verify_top *top; /* owned; [n_answer] of one that was read, or NULL */
};

/* Where our greedy answer leaves the reference's. */
struct verify_parting {
    bool parts;
    int position; /* tokens of the answer before it */
    int32_t ours, reference;
    double lead; /* of the reference's token over its second, in logits */
};

struct verify_result {
    const char *name;  /* in --json: "goldens", "kv", "f32", "f32_kv" */
    const char *title; /* for people */
    struct verify_bounds bounds;
    struct verify_case *cases; /* owned, unless they are another result's */
    bool borrows;
    struct verify_parting *partings; /* owned, [n_cases] */
    int n_cases, cap_cases;
    int n_positions, n_agree;
    double kl_sum, kl_max;
    double rest_sum; /* probability that the reference's file does not spell out */
    bool tops;       /* KL is over the best tokens and all others as one: a lower bound */
};

/* One kind of equality of rendered prompts: how many hold, and the first that does not. */
struct verify_equal {
    int n, n_equal;
    struct hr_buf first; /* what differs, in words */
};

struct verify_goldens {
    struct hr_buf made_with; /* "transformers 5.24.0, float32" */
    struct hr_buf note;      /* about the model's identity; or empty */
    struct hr_manifest *m;   /* how its rows are read */
    struct tm now;
    struct verify_prompt *prompts; /* owned, [result.n_cases]: its rows, rendered by us */
    int n_prompts;
    struct verify_equal text, ids;
    struct verify_result result;
};

struct verify {
    struct verify_opts o;
    struct hr_model_file *mf;
    struct hr_model_text text;
    char model_hash[65];
    unsigned cpu_mask;
    struct hr_pool *pool;
    char numerics[32]; /* of the backend that was looked at */
    struct verify_prompt *prompts; /* owned */
    int n_prompts, cap_prompts;
    int64_t n_bad_rows;
    struct verify_goldens g; /* when o.against */
    struct verify_result kv, f32;
    struct verify_result f32_kv; /* of f32's cases: what is left when the KV cache alone is f32. No bound */
};

/* verify_prompts.c */

/* The manifest that reads rows of the usual shapes (messages, or prompt) of one file. */
struct hr_manifest *verify_rows_manifest(const char *path, bool chat);
/* A row becomes a prompt. Errors: why the row is no good; `out` is left as it was. */
HR_MUST_USE enum hr_status verify_prompt_make(const struct verify *v, const struct hr_manifest *m, const char *line,
                                              size_t len, const struct tm *now, struct verify_prompt *out,
                                              struct hr_err *err);
void verify_prompt_finish(struct verify_prompt *p); /* zeroed is valid */
/* The same, at the end of v->prompts. */
HR_MUST_USE enum hr_status verify_add_prompt(struct verify *v, const struct hr_manifest *m, const char *line,
                                             size_t len, const struct tm *now, struct hr_err *err);
/* Fills v->prompts from --prompts or, when there are no goldens either, from our own. */
HR_MUST_USE enum hr_status verify_read_prompts(struct verify *v, struct hr_err *err);

/* verify_golden.c */

/* Reads v->o.against and compares texts and ids; without --prompts its rows are v->prompts too. Errors name
 * file and line, and what to do. */
HR_MUST_USE enum hr_status verify_read_goldens(struct verify *v, struct hr_err *err);
void verify_goldens_finish(struct verify_goldens *g);

/* verify_model.c */

/* Loads the model in each precision that is needed, one after the other, and fills all results. */
HR_MUST_USE enum hr_status verify_compute(struct verify *v, struct hr_err *err);

/* verify_compare.c */

/* An empty result; cases are added with verify_add_case. */
void verify_result_init(struct verify_result *r, const char *name, const char *title, const struct verify_bounds *b);
void verify_result_finish(struct verify_result *r); /* zeroed is valid */
struct verify_case *verify_add_case(struct verify_result *r, const char *name);
/* An empty result over the cases of another, borrowed until that one is finished. */
void verify_result_share(struct verify_result *r, const char *name, const char *title,
                         const struct verify_result *of);
/* Most probable token; the lowest id among equals. */
int32_t verify_best(const float *logits, int n_vocab);
/* Our logits [n_vocab], all finite, at the answer's i-th token of a case. */
void verify_take(struct verify_result *r, int i_case, int i, const float *logits, int n_vocab);
/* Positions that may differ: what a model that differs at exactly the bound's rate exceeds once in a hundred. */
int verify_may_differ(double top1, int n_positions);
bool verify_top1_ok(const struct verify_result *r);
bool verify_kl_ok(const struct verify_result *r);
/* Answers that part, and those of them that part where the reference was sure. */
void verify_count_partings(const struct verify_result *r, int *n_part, int *n_sure);

/* verify_report.c */

/* Prints all; true when every bound is kept. */
bool verify_print_text(const struct verify *v);
bool verify_print_json(const struct verify *v);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest: what a dataset job is: which shards, what of a row is the prompt, how to sample.
 *
 * The JSON form is in manifests/manifest.schema.json. An unknown or misspelt key is refused with the
 * nearest right one. */
#ifndef HR_JOB_MANIFEST_H
#define HR_JOB_MANIFEST_H

#include <stdbool.h>

#include "base/buf.h"

/* Sampling as somebody stated it; has_x false: not stated, the next in precedence speaks (row,
 * command line, manifest, the model's generation_config, default). */
struct hr_sampling_spec {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty,
        has_presence_penalty, has_frequency_penalty, has_max_tokens, has_stop, has_stop_token_ids,
        has_ignore_eos, has_seed, has_n;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;
    int64_t max_tokens; /* has_max_tokens with -1: null, "to EOS or the context" */
    bool ignore_eos;
    int64_t seed;
    int64_t n;
    char **stop; /* owned */
    size_t *stop_len;
    int n_stop;
    struct hr_ids stop_token_ids;
};
void hr_sampling_spec_finish(struct hr_sampling_spec *s);
/* Fills what `into` does not state from `from` (deep copies). */
void hr_sampling_spec_merge(struct hr_sampling_spec *into, const struct hr_sampling_spec *from);

#define HR_TEMPLATE_VARS_MAX    32
#define HR_TEMPLATE_VAR_LEN_MAX 63 /* bytes of a variable's name */

/* Is this a variable that a prompt's rendering sets itself? Who sets it as well would silently lose it or the
 * prompt. */
bool hr_manifest_is_own_var(const char *name, size_t len);

struct hr_manifest {
    char *path;    /* of the manifest file; owned */
    char *dataset; /* owned: a plain name, [A-Za-z0-9._-], not starting with '.' */
    char *model;   /* owned or NULL; resolved relative to the manifest */
    char **shards; /* owned; globs expanded, sorted within a glob, in manifest order, no doubles */
    int n_shards;
    char *prompt;   /* owned or NULL: a field's name or a join template (job/prompt.h) */
    char *messages; /* owned or NULL: a field's name. Neither: a row's "messages", else its "prompt" */
    char *id;       /* owned: a field's name */
    char *system;   /* owned or NULL: literal text */
    bool chat;
    bool output_token_ids;
    struct hr_sampling_spec sampling;
    int64_t max_tokens_per_dataset; /* 0: no cap */
    /* What separates a row's reasoning from its answer: */
    enum hr_thinking {
        HR_THINKING_MODEL, /* the tags of the model's chat template; none without chat */
        HR_THINKING_OFF,   /* nothing does */
        HR_THINKING_TAGS,  /* think_open and think_close */
    } thinking;
    char *think_open, *think_close; /* owned or NULL; not empty, think_open begins with no white space */
    int64_t expected_tokens;        /* mean completion tokens that somebody expects; 0: not said */
    char *expected_tokens_field;    /* owned or NULL: the field with a row's own expectation */
    struct hr_buf template_vars;    /* JSON object text of extra template variables, or empty */
};

/* Errors: HR_ERR_CONFIG, the message begins with the path and names the key. A shard that does not
 * exist or a glob that matches nothing is an error. */
HR_MUST_USE enum hr_status hr_manifest_load(const char *path, struct hr_manifest **out,
                                            struct hr_err *err);
void hr_manifest_destroy(struct hr_manifest **m);

/* HR_ERR_CONFIG when `output` (a file that may not exist yet) is one of the shards or the manifest,
 * by path, symbolic link or hard link. */
HR_MUST_USE enum hr_status hr_manifest_check_output(const struct hr_manifest *m, const char *output,
                                                    struct hr_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * model_config: what a model's files say about its shape, as struct hr_model_config. Private to the
 * room.
 *
 * What the forward pass cannot do (an architecture, a rope type, experts) is
 * refused here by its name; nothing is guessed or silently left out. */
#ifndef HR_MODEL_MODEL_CONFIG_H
#define HR_MODEL_MODEL_CONFIG_H

#include "model/gguf.h"
#include "model/model_file.h"

/* From the root of config.json. Errors: HR_ERR_UNSUPPORTED, HR_ERR_FORMAT; the key is named. */
HR_MUST_USE enum hr_status hr_model_config_from_json(const struct hr_json *root,
                                                     struct hr_model_config *out,
                                                     struct hr_err *err);

/* From a GGUF's keys and, where GGUF has no key (biases, norms, tied embeddings, Llama 3's rope),
 * from which tensors it has. */
HR_MUST_USE enum hr_status
hr_model_config_from_gguf(const struct hr_gguf *g, struct hr_model_config *out, struct hr_err *err);

/* Bounds and relations that the forward pass relies on. Both of the above ask it. */
HR_MUST_USE enum hr_status hr_model_config_check(const struct hr_model_config *c,
                                                 struct hr_err *err);

/* What the norms of a layer are called; NULL: the model has none there. */
struct hr_norm_names {
    const char *attn, *attn_post, *ffn, *ffn_post;
};
struct hr_norm_names hr_model_norm_names(const struct hr_model_config *c);

/* HR_ERR_UNSUPPORTED unless `arch` is one of the list. */
HR_MUST_USE enum hr_status hr_model_config_check_arch(const char *arch, struct hr_err *err);

#endif

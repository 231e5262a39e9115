/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_llama: the llama family's names in a GGUF file and in a Hugging Face directory. Private to
 * the room. */
#ifndef HR_MODEL_GGUF_LLAMA_H
#define HR_MODEL_GGUF_LLAMA_H

#include "model/gguf.h"
#include "model/model_file.h"

#define HR_TENSOR_NAME_MAX 128

/* "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight", and back, into
 * out[HR_TENSOR_NAME_MAX]. False for a name that the family does not have. */
bool hr_gguf_llama_hf_name(const char *gguf_name, char *out);
bool hr_gguf_llama_gguf_name(const char *hf_name, char *out);

/* Gives the tensors their Hugging Face names (names that the family does not have stay) and marks
 * the q and k projections whose rows the file stores in interleaved rotary order. */
HR_MUST_USE enum hr_status hr_gguf_llama_rename(struct hr_gguf *g, const struct hr_model_config *c,
                                                struct hr_err *err);

#endif

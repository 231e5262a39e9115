/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: the weights of a Hugging Face directory: one model.safetensors, or several files
 * that model.safetensors.index.json names. Private to the room. */
#ifndef HR_MODEL_SAFETENSORS_H
#define HR_MODEL_SAFETENSORS_H

#include "model/weights.h"

#define HR_SAFETENSORS_FILES_MAX 4096

struct hr_safetensors {
    struct hr_map *maps; /* owned */
    size_t n_maps;
    struct hr_tensor_table tensors; /* of all files, sorted by name */
};

/* Errors: HR_ERR_NOTFOUND (no weights in the directory, or a file that the index names is missing),
 * HR_ERR_FORMAT (truncated, overlapping, gaps, a lying index: the tensor is named),
 * HR_ERR_UNSUPPORTED (a dtype). Messages begin with the path of the file. */
HR_MUST_USE enum hr_status hr_safetensors_open(const char *dir, struct hr_safetensors *out,
                                               struct hr_err *err);
void hr_safetensors_close(struct hr_safetensors *s); /* zeroed is valid */

#endif

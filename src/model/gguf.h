/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf: one GGUF file: its metadata and its tensors, under the names the file gives them. Private
 * to the room.
 *
 * Every count, length, type and offset of the file is checked when it is opened; afterwards reading
 * is free of surprises. Strings are borrowed from the mapping and not NUL-terminated. */
#ifndef HR_MODEL_GGUF_H
#define HR_MODEL_GGUF_H

#include "model/weights.h"

enum hr_gguf_type { /* the file's own numbers */
                    HR_GGUF_U8,
                    HR_GGUF_I8,
                    HR_GGUF_U16,
                    HR_GGUF_I16,
                    HR_GGUF_U32,
                    HR_GGUF_I32,
                    HR_GGUF_F32,
                    HR_GGUF_BOOL,
                    HR_GGUF_STRING,
                    HR_GGUF_ARRAY,
                    HR_GGUF_U64,
                    HR_GGUF_I64,
                    HR_GGUF_F64,
                    HR_GGUF_TYPE_N
};

struct hr_gguf_kv {
    const char *key;
    size_t key_len;
    enum hr_gguf_type type; /* of the value, or of an array's elements */
    bool is_array;
    uint64_t n;          /* elements; 1 for a scalar */
    const uint8_t *data; /* the first element as the file has it */
};

struct hr_gguf {
    struct hr_map map;
    uint32_t version;
    struct hr_gguf_kv *kv; /* owned; sorted by key */
    size_t n_kv;
    struct hr_tensor_table tensors; /* sorted by name */
};

/* Errors: HR_ERR_FORMAT (not GGUF, truncated, a lying count or offset: the tensor or key is named),
 * HR_ERR_UNSUPPORTED (version, byte order, a tensor type that is not in HR_QUANT_NAMES, one file of
 * a split model). Messages begin with the path. */
HR_MUST_USE enum hr_status hr_gguf_open(const char *path, struct hr_gguf *out, struct hr_err *err);
void hr_gguf_close(struct hr_gguf *g); /* zeroed is valid */

const struct hr_gguf_kv *hr_gguf_find(const struct hr_gguf *g, const char *key);
bool hr_gguf_str(const struct hr_gguf *g, const char *key, const char **s, size_t *len);
bool hr_gguf_int(const struct hr_gguf *g, const char *key,
                 int64_t *out); /* any integer type, bool */
bool hr_gguf_real(const struct hr_gguf *g, const char *key,
                  double *out); /* f32, f64 or an integer */
/* Element i of an array of integers; false when it is none or i is outside. */
bool hr_gguf_int_at(const struct hr_gguf_kv *kv, uint64_t i, int64_t *out);
/* All strings of an array of strings, s and len [kv->n]. */
void hr_gguf_strs(const struct hr_gguf_kv *kv, const char **s, size_t *len);

#endif

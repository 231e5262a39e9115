/* SPDX-License-Identifier: Apache-2.0
 *
 * weights: what the readers of both file formats share: a mapped file, and the table of tensors.
 * Private to the room.
 *
 * A tensor in a table has been checked against its file: its bytes lie inside the mapping, its size
 * is what type and shape say, and no other tensor's bytes overlap it. */
#ifndef HR_MODEL_WEIGHTS_H
#define HR_MODEL_WEIGHTS_H

#include <stdbool.h>

#include "base/status.h"
#include "model/dequant.h"

/* A whole file, read-only. */
struct hr_map {
    char *path; /* owned */
    const uint8_t *data;
    size_t size;
};
HR_MUST_USE enum hr_status hr_map_open(const char *path, struct hr_map *out, struct hr_err *err);
void hr_map_close(struct hr_map *m); /* zeroed is valid */

#define HR_TENSOR_DIM_MAX (1 << 30) /* rows or columns: they travel as int */

struct hr_file_tensor {
    char *name; /* owned; Hugging Face name (in a GGUF's own table: the file's) */
    enum hr_quant type;
    int n_rows, n_cols;
    const uint8_t *data; /* borrowed from the map */
    uint64_t size;
    int rope_head_dim; /* > 0: rows are stored in interleaved rotary order by heads of this many */
    bool used;         /* the forward pass reads it */
};

struct hr_tensor_table {
    struct hr_file_tensor *v; /* owned; sorted by name after hr_tensor_table_sort */
    size_t n, cap;
};

void hr_tensor_table_finish(struct hr_tensor_table *t);
struct hr_file_tensor *hr_tensor_table_add(struct hr_tensor_table *t, const char *name, size_t len);
/* Sorts by name; HR_ERR_FORMAT names a tensor that is there twice. */
HR_MUST_USE enum hr_status hr_tensor_table_sort(struct hr_tensor_table *t, struct hr_err *err);
struct hr_file_tensor *hr_tensor_table_find(const struct hr_tensor_table *t, const char *name);

/* Bytes that a tensor of this type and shape takes; false when a row is not whole blocks or when
 * the numbers do not fit. */
bool hr_tensor_size(enum hr_quant type, uint64_t n_rows, uint64_t n_cols, uint64_t *size);

/* Copies at most cap-1 bytes of a name from a file, with `?` for what is not printable, so that a
 * message or the log stays one line of plain text whatever the file says. Returns out. */
const char *hr_printable(const char *s, size_t len, char *out, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * json: configurations and manifests as a tree; jansson behind it, in json.c only.
 *
 * For small files that headrace reads whole (manifest, config.json, tokenizer.json, safetensors
 * headers). Rows go through jscan instead. Numbers are int64 or double. */
#ifndef HR_BASE_JSON_H
#define HR_BASE_JSON_H

#include <stdbool.h>

#include "base/buf.h"

struct hr_json; /* opaque node, borrowed from its document */

/* Parses; on success *out is the root, owned by the caller: hr_json_free(root). U+0000 is allowed in
 * strings; duplicate keys are refused. Errors: HR_ERR_FORMAT with "line L, column C: ...". */
HR_MUST_USE enum hr_status hr_json_parse(const char *text, size_t len, struct hr_json **out,
                                         struct hr_err *err);
/* Reads the file (at most max_bytes) and parses it; messages begin with the path. */
HR_MUST_USE enum hr_status hr_json_parse_file(const char *path, size_t max_bytes,
                                              struct hr_json **out, struct hr_err *err);
void hr_json_free(struct hr_json **root);

enum hr_json_type {
    HR_JSON_NULL, HR_JSON_BOOL, HR_JSON_INT, HR_JSON_REAL, HR_JSON_STRING, HR_JSON_ARRAY,
    HR_JSON_OBJECT,
};
enum hr_json_type hr_json_type(const struct hr_json *v); /* NULL pointer counts as HR_JSON_NULL */

/* Member or element; NULL when absent or when v is NULL or of another type. */
const struct hr_json *hr_json_get(const struct hr_json *object, const char *key);
const struct hr_json *hr_json_at(const struct hr_json *array, size_t i);
size_t hr_json_size(const struct hr_json *v); /* array or object; 0 for others */

/* Iterates an object in file order: *it NULL at the start. Returns false at the end. */
bool hr_json_next(const struct hr_json *object, void **it, const char **key, size_t *key_len,
                  const struct hr_json **value);

/* Typed reads; false when v is NULL or of another type (INT is a valid REAL). */
bool hr_json_str(const struct hr_json *v, const char **s, size_t *len); /* borrowed */
bool hr_json_int(const struct hr_json *v, int64_t *out);
bool hr_json_real(const struct hr_json *v, double *out);
bool hr_json_bool(const struct hr_json *v, bool *out);

/* Writes v back as compact JSON. */
void hr_json_dump(const struct hr_json *v, struct hr_buf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: reader of the safetensors format.
 *
 *     u64 n    n bytes of JSON: { NAME: {"dtype", "shape", "data_offsets": [begin, end]}, ...,
 *                                 "__metadata__": {STRING: STRING} }    then the tensors' bytes
 *
 * Offsets count from the end of the header. A file is valid if and only if the header lies inside
 * it; names are unique; end - begin is what dtype and shape say; and the tensors, in order of
 * offset, fill the rest of the file without gap or overlap (as the reference implementation
 * demands).
 *
 * The index is {"weight_map": {NAME: FILE}}; a tensor that it promises must be in the file that it
 * names, and FILE is a plain name, never a path.
 * Source: huggingface/safetensors README "Format"; safetensors/src/tensor.rs. */
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"

#define HEADER_BYTES_MAX ((uint64_t)100 << 20) /* the reference's own bound */
#define INDEX_BYTES_MAX  ((size_t)256 << 20)

static enum hr_status read_dtype(const struct hr_json *v, enum hr_quant *out, struct hr_err *err) {
    static const enum hr_quant known[] = {HR_QUANT_F32, HR_QUANT_F16, HR_QUANT_BF16};
    const char *s;
    size_t len;
    char text[32];
    if (!hr_json_str(v, &s, &len)) return hr_err_set(err, HR_ERR_FORMAT, "it has no dtype");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *name = hr_quant_info[known[i]].name;
        if (len != strlen(name) || memcmp(s, name, len) != 0) continue;
        *out = known[i];
        return HR_OK;
    }
    return hr_err_set(err, HR_ERR_UNSUPPORTED,
                      "its dtype %s is not supported; supported are F32, F16, BF16",
                      hr_printable(s, len, text, sizeof text));
}

/* [n] is one row of n; [a, b] a rows of b. */
static enum hr_status read_shape(const struct hr_json *v, uint64_t *n_rows, uint64_t *n_cols,
                                 struct hr_err *err) {
    size_t n_dims = hr_json_size(v);
    int64_t dim[2] = {1, 1};
    if (hr_json_type(v) != HR_JSON_ARRAY) return hr_err_set(err, HR_ERR_FORMAT, "it has no shape");
    if (n_dims < 1 || n_dims > 2)
        return hr_err_set(err, HR_ERR_UNSUPPORTED, "it has %zu dimensions, not 1 or 2", n_dims);
    for (size_t i = 0; i < n_dims; i++)
        if (!hr_json_int(hr_json_at(v, i), &dim[i]) || dim[i] < 1 || dim[i] > HR_TENSOR_DIM_MAX)
            return hr_err_set(err, HR_ERR_FORMAT, "dimension %zu of its shape is impossible", i);
    *n_rows = n_dims == 2 ? (uint64_t)dim[0] : 1;
    *n_cols = (uint64_t)dim[n_dims - 1];
    return HR_OK;
}

static enum hr_status read_tensor(const struct hr_map *map, uint64_t data_begin,
                                  const struct hr_json *v, struct hr_file_tensor *t,
                                  struct hr_err *err) {
    uint64_t n_rows = 0, n_cols = 0, room = map->size - data_begin;
    int64_t begin, end;
    enum hr_status rc = read_dtype(hr_json_get(v, "dtype"), &t->type, err);
    if (rc) return rc;
    rc = read_shape(hr_json_get(v, "shape"), &n_rows, &n_cols, err);
    if (rc) return rc;
    const struct hr_json *offsets = hr_json_get(v, "data_offsets");
    if (hr_json_size(offsets) != 2 || !hr_json_int(hr_json_at(offsets, 0), &begin) ||
        !hr_json_int(hr_json_at(offsets, 1), &end) || begin < 0 || end < begin)
        return hr_err_set(err, HR_ERR_FORMAT, "its data_offsets are malformed");
    if (!hr_tensor_size(t->type, n_rows, n_cols, &t->size) || t->size != (uint64_t)(end - begin))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "shape [%" PRIu64 ", %" PRIu64 "] of %s does not take the %" PRId64
                          " bytes of its data_offsets",
                          n_rows, n_cols, hr_quant_info[t->type].name, end - begin);
    if ((uint64_t)end > room)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "its bytes end at %" PRId64 " of %" PRIu64
                          ": the file is truncated or damaged",
                          end, room);
    t->n_rows = (int)n_rows;
    t->n_cols = (int)n_cols;
    t->data = map->data + data_begin + begin;
    return HR_OK;
}

static int by_data(const void *a, const void *b) {
    const struct hr_file_tensor *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

/* The tensors i0.. of the table are one file's; together they must tile its data. */
static enum hr_status check_tiling(const struct hr_map *map, uint64_t data_begin,
                                   struct hr_tensor_table *t, size_t i0, struct hr_err *err) {
    char name[128], other[128];
    const uint8_t *at = map->data + data_begin, *end = map->data + map->size;
    if (t->n > i0) qsort(t->v + i0, t->n - i0, sizeof *t->v, by_data);
    for (size_t i = i0; i < t->n; i++) {
        const struct hr_file_tensor *x = &t->v[i];
        hr_printable(x->name, strlen(x->name), name, sizeof name);
        if (x->data < at) /* never of the first: offsets are not negative */
            return hr_err_set(
                err, HR_ERR_FORMAT, "tensors %s and %s overlap",
                hr_printable(t->v[i - 1].name, strlen(t->v[i - 1].name), other, sizeof other),
                name);
        if (x->data > at)
            return hr_err_set(err, HR_ERR_FORMAT, "%td bytes before tensor %s belong to no tensor",
                              x->data - at, name);
        at = x->data + x->size;
    }
    if (at != end)
        return hr_err_set(err, HR_ERR_FORMAT, "%td bytes at the end belong to no tensor", end - at);
    return HR_OK;
}

static enum hr_status read_header(const struct hr_map *map, struct hr_json *root,
                                  uint64_t data_begin, struct hr_tensor_table *t,
                                  struct hr_err *err) {
    void *it = NULL;
    const char *key;
    size_t key_len, i0 = t->n;
    const struct hr_json *value;
    char name[128];
    if (hr_json_type(root) != HR_JSON_OBJECT)
        return hr_err_set(err, HR_ERR_FORMAT, "its header is not a JSON object");
    while (hr_json_next(root, &it, &key, &key_len, &value)) {
        if (key_len == strlen("__metadata__") && memcmp(key, "__metadata__", key_len) == 0)
            continue;
        hr_printable(key, key_len, name, sizeof name);
        if (key_len == 0 || memchr(key, 0, key_len))
            return hr_err_set(err, HR_ERR_FORMAT, "a tensor has the impossible name \"%s\"", name);
        struct hr_file_tensor *x = hr_tensor_table_add(t, key, key_len);
        if (read_tensor(map, data_begin, value, x, err))
            return hr_err_prefix(err, "tensor %s", name);
    }
    return check_tiling(map, data_begin, t, i0, err);
}

static enum hr_status add_file(struct hr_safetensors *s, const char *path, struct hr_err *err) {
    struct hr_json *root = NULL;
    struct hr_map *map = &s->maps[s->n_maps];
    enum hr_status rc = hr_map_open(path, map, err);
    if (rc) return rc;
    s->n_maps++;
    uint64_t n = 0;
    if (map->size >= sizeof n) memcpy(&n, map->data, sizeof n);
    if (map->size < sizeof n || n > map->size - sizeof n || n > HEADER_BYTES_MAX) {
        rc = hr_err_set(err, HR_ERR_FORMAT, "the header is cut off or malformed");
        goto done;
    }
    rc = hr_json_parse((const char *)map->data + sizeof n, (size_t)n, &root, err);
    if (rc) {
        hr_err_prefix(err, "header");
        goto done;
    }
    rc = read_header(map, root, sizeof n + n, &s->tensors, err);
done:
    if (rc) hr_err_prefix(err, "%s", path);
    hr_json_free(&root);
    return rc;
}

static char *join_path(const char *dir, const char *name) {
    struct hr_buf b = {0};
    hr_buf_printf(&b, "%s/%s", dir, name);
    char *path = hr_xstrdup(hr_buf_cstr(&b));
    hr_buf_finish(&b);
    return path;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The distinct file names of a weight_map, sorted: an array of n pointers, owned. */
static enum hr_status index_files(const struct hr_json *map, char ***out, size_t *n_out,
                                  struct hr_err *err) {
    void *it = NULL;
    const char *key, *file;
    size_t key_len, len, n = 0, n_names = hr_json_size(map);
    const struct hr_json *value;
    char text[128];
    enum hr_status rc = HR_OK;
    if (hr_json_type(map) != HR_JSON_OBJECT || n_names == 0)
        return hr_err_set(err, HR_ERR_FORMAT, "it has no \"weight_map\"");
    char **files = hr_xcalloc(n_names, sizeof *files);
    while (!rc && hr_json_next(map, &it, &key, &key_len, &value)) {
        if (!hr_json_str(value, &file, &len) || len == 0 || memchr(file, '/', len) ||
            memchr(file, 0, len))
            rc = hr_err_set(err, HR_ERR_FORMAT, "the file of tensor %s is not a plain name",
                            hr_printable(key, key_len, text, sizeof text));
        else
            files[n++] = hr_xstrndup(file, len);
    }
    if (n) qsort(files, n, sizeof *files, by_text);
    size_t n_unique = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_unique && strcmp(files[n_unique - 1], files[i]) == 0)
            free(files[i]);
        else
            files[n_unique++] = files[i];
    }
    if (!rc && n_unique > HR_SAFETENSORS_FILES_MAX)
        rc = hr_err_set(err, HR_ERR_LIMIT, "it names %zu files, at most %d are supported", n_unique,
                        HR_SAFETENSORS_FILES_MAX);
    *out = files;
    *n_out = n_unique;
    return rc;
}

/* Every promise of the index must be kept by the file that it names. */
static enum hr_status check_index(const struct hr_safetensors *s, const struct hr_json *map,
                                  struct hr_err *err) {
    void *it = NULL;
    const char *key, *file;
    size_t key_len, len;
    const struct hr_json *value;
    char text[128];
    while (hr_json_next(map, &it, &key, &key_len, &value)) {
        char *name = hr_xstrndup(key, key_len);
        const struct hr_file_tensor *t = hr_tensor_table_find(&s->tensors, name);
        free(name);
        bool kept = false;
        for (size_t i = 0; t && i < s->n_maps; i++) {
            const struct hr_map *m = &s->maps[i];
            if (t->data < m->data || t->data >= m->data + m->size) continue;
            const char *base = strrchr(m->path, '/') + 1;
            kept =
                hr_json_str(value, &file, &len) && len == strlen(base) && !memcmp(base, file, len);
        }
        if (!kept)
            return hr_err_set(err, HR_ERR_FORMAT,
                              "tensor %s is not in the file that the index names",
                              hr_printable(key, key_len, text, sizeof text));
    }
    return HR_OK;
}

static enum hr_status open_indexed(struct hr_safetensors *s, const char *dir,
                                   const char *index_path, struct hr_err *err) {
    struct hr_json *index = NULL;
    char **files = NULL;
    size_t n_files = 0;
    enum hr_status rc = hr_json_parse_file(index_path, INDEX_BYTES_MAX, &index, err);
    if (rc) return rc;
    const struct hr_json *map = hr_json_get(index, "weight_map");
    rc = index_files(map, &files, &n_files, err);
    if (rc) {
        hr_err_prefix(err, "%s", index_path);
        goto done;
    }
    s->maps = hr_xcalloc(n_files, sizeof *s->maps);
    for (size_t i = 0; i < n_files && !rc; i++) {
        char *path = join_path(dir, files[i]);
        rc = add_file(s, path, err);
        free(path);
    }
    if (rc) goto done;
    rc = hr_tensor_table_sort(&s->tensors, err);
    if (!rc) rc = check_index(s, map, err);
    if (rc) hr_err_prefix(err, "%s", index_path);
done:
    for (size_t i = 0; i < n_files; i++) free(files[i]);
    free(files);
    hr_json_free(&index);
    return rc;
}

enum hr_status hr_safetensors_open(const char *dir, struct hr_safetensors *out,
                                   struct hr_err *err) {
    struct hr_safetensors s = {0};
    enum hr_status rc;
    char *one = join_path(dir, "model.safetensors");
    char *index = join_path(dir, "model.safetensors.index.json");
    if (access(one, F_OK) == 0) {
        s.maps = hr_xcalloc(1, sizeof *s.maps);
        rc = add_file(&s, one, err);
        if (!rc) {
            rc = hr_tensor_table_sort(&s.tensors, err);
            if (rc) hr_err_prefix(err, "%s", one);
        }
    } else if (access(index, F_OK) == 0) {
        rc = open_indexed(&s, dir, index, err);
    } else {
        rc = hr_err_set(
            err, HR_ERR_NOTFOUND,
            "%s: no weights: neither model.safetensors nor model.safetensors.index.json", dir);
    }
    if (rc)
        hr_safetensors_close(&s);
    else
        *out = s;
    free(one);
    free(index);
    return rc;
}

void hr_safetensors_close(struct hr_safetensors *s) {
    hr_tensor_table_finish(&s->tensors);
    for (size_t i = 0; i < s->n_maps; i++) hr_map_close(&s->maps[i]);
    free(s->maps);
    *s = (struct hr_safetensors){0};
}

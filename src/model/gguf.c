/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf: reader of GGUF versions 2 and 3.
 *
 *     "GGUF"  u32 version  u64 n_tensors  u64 n_kv
 *     n_kv x       { string key, u32 type, value }         string: u64 length, bytes
 *                                                          array:  u32 type, u64 n, n values
 *     n_tensors x  { string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset }
 *     padding to `general.alignment` (32 unless stated), then the tensors' bytes
 *
 * dims[0] is the fastest: a matrix [n_rows, n_cols] has dims {n_cols, n_rows}. Offsets count from
 * the padded end of the header.
 *
 * A file is valid if and only if every field lies inside it; keys and tensor names are unique;
 * every offset is a multiple of the alignment; the tensors' bytes do not overlap; and each ends
 * inside the file. Nothing of the file is believed before that: a count is held against the bytes
 * that are left before memory is taken for it.
 * Source: ggml-org/ggml docs/gguf.md. */
#include "model/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

#define KEY_MIN_BYTES    (8 + 4 + 1)         /* length, type, a one-byte value */
#define TENSOR_MIN_BYTES (8 + 4 + 8 + 4 + 8) /* length, n_dims, one dim, type, offset */
#define NAME_MAX_BYTES   4096 /* a key or tensor name; the format says 2^16-1 and 64 */
#define DIMS_MAX         4

static const uint8_t type_size[HR_GGUF_TYPE_N] = {
    [HR_GGUF_U8] = 1,  [HR_GGUF_I8] = 1,  [HR_GGUF_U16] = 2, [HR_GGUF_I16] = 2,
    [HR_GGUF_U32] = 4, [HR_GGUF_I32] = 4, [HR_GGUF_F32] = 4, [HR_GGUF_BOOL] = 1,
    [HR_GGUF_U64] = 8, [HR_GGUF_I64] = 8, [HR_GGUF_F64] = 8,
};

/* What is left to read. A short read sets `broken` and yields zeros, so that a header's fields can
 * be read in one go and judged once. */
struct cursor {
    const uint8_t *p, *end;
    bool broken;
};

static const uint8_t *take(struct cursor *c, uint64_t n) {
    if (c->broken || n > (uint64_t)(c->end - c->p)) {
        c->broken = true;
        return NULL;
    }
    const uint8_t *p = c->p;
    c->p += n;
    return p;
}

static uint32_t take_u32(struct cursor *c) {
    uint32_t v = 0;
    const uint8_t *p = take(c, sizeof v);
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t take_u64(struct cursor *c) {
    uint64_t v = 0;
    const uint8_t *p = take(c, sizeof v);
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

static const char *take_str(struct cursor *c, size_t *len) {
    uint64_t n = take_u64(c);
    const uint8_t *p = take(c, n);
    *len = p ? (size_t)n : 0;
    return (const char *)p;
}

/* Reads one value's bytes (n elements of one type), checking every string of it. */
static void skip_values(struct cursor *c, enum hr_gguf_type type, uint64_t n) {
    if (type != HR_GGUF_STRING) {
        if (n > (uint64_t)(c->end - c->p))
            c->broken = true; /* so the product cannot overflow */
        else
            take(c, n * type_size[type]);
        return;
    }
    for (uint64_t i = 0; i < n && !c->broken; i++) {
        size_t len;
        take_str(c, &len);
    }
}

static enum hr_status read_kv(struct cursor *c, struct hr_gguf_kv *kv, uint64_t i_kv,
                              struct hr_err *err) {
    char name[80];
    kv->key = take_str(c, &kv->key_len);
    uint32_t type = take_u32(c);
    kv->n = 1;
    if (type == HR_GGUF_ARRAY) {
        kv->is_array = true;
        type = take_u32(c);
        kv->n = take_u64(c);
    }
    if (c->broken || kv->key_len > NAME_MAX_BYTES)
        return hr_err_set(err, HR_ERR_FORMAT, "metadata key %" PRIu64 " is cut off or malformed",
                          i_kv);
    hr_printable(kv->key, kv->key_len, name, sizeof name);
    if (type == HR_GGUF_ARRAY || type >= HR_GGUF_TYPE_N)
        return hr_err_set(err, HR_ERR_FORMAT, "metadata key %s has the unknown type %u", name,
                          type);
    kv->type = (enum hr_gguf_type)type;
    kv->data = c->p;
    skip_values(c, kv->type, kv->n);
    if (c->broken)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "the value of metadata key %s goes past the end of the file", name);
    return HR_OK;
}

static int key_cmp(const char *a, size_t a_len, const char *b, size_t b_len) {
    int c = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return c ? c : (a_len > b_len) - (a_len < b_len);
}

static int by_key(const void *a, const void *b) {
    const struct hr_gguf_kv *x = a, *y = b;
    return key_cmp(x->key, x->key_len, y->key, y->key_len);
}

static enum hr_status read_metadata(struct hr_gguf *g, struct cursor *c, uint64_t n_kv,
                                    struct hr_err *err) {
    g->kv = hr_xcalloc((size_t)n_kv, sizeof *g->kv);
    for (uint64_t i = 0; i < n_kv; i++) {
        enum hr_status rc = read_kv(c, &g->kv[i], i, err);
        if (rc) return rc;
        g->n_kv = (size_t)i + 1;
    }
    if (g->n_kv) qsort(g->kv, g->n_kv, sizeof *g->kv, by_key);
    for (size_t i = 1; i < g->n_kv; i++) {
        char name[80];
        if (by_key(&g->kv[i - 1], &g->kv[i]) == 0)
            return hr_err_set(err, HR_ERR_FORMAT, "metadata key %s is there twice",
                              hr_printable(g->kv[i].key, g->kv[i].key_len, name, sizeof name));
    }
    return HR_OK;
}

static bool quant_of(uint32_t ggml_type, enum hr_quant *out) {
    for (int i = 0; i < HR_QUANT_N; i++) {
        if (hr_quant_info[i].ggml_type != ggml_type) continue;
        *out = (enum hr_quant)i;
        return true;
    }
    return false;
}

/* One tensor's header; *offset is left for place_tensors, which knows where the data begins. */
static enum hr_status read_tensor(struct hr_gguf *g, struct cursor *c, uint64_t i_tensor,
                                  uint64_t *offset, struct hr_err *err) {
    char name[128];
    uint64_t dim[DIMS_MAX] = {1, 1, 1, 1};
    size_t len;
    const char *s = take_str(c, &len);
    uint32_t n_dims = take_u32(c);
    if (c->broken || len == 0 || len > NAME_MAX_BYTES || memchr(s, 0, len))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "the header of tensor %" PRIu64 " is cut off or malformed", i_tensor);
    hr_printable(s, len, name, sizeof name);
    if (n_dims < 1 || n_dims > DIMS_MAX)
        return hr_err_set(err, HR_ERR_FORMAT, "tensor %s claims %u dimensions", name, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) dim[i] = take_u64(c);
    uint32_t type = take_u32(c);
    *offset = take_u64(c);
    if (c->broken)
        return hr_err_set(err, HR_ERR_FORMAT, "the header of tensor %s is cut off", name);

    struct hr_file_tensor *t = hr_tensor_table_add(&g->tensors, s, len);
    if (!quant_of(type, &t->type))
        return hr_err_set(
            err, HR_ERR_UNSUPPORTED,
            "tensor %s has the ggml type %u, which is not supported; supported are %s", name, type,
            HR_QUANT_NAMES);
    if (dim[2] != 1 || dim[3] != 1)
        return hr_err_set(err, HR_ERR_UNSUPPORTED, "tensor %s has more than two dimensions", name);
    if (!hr_tensor_size(t->type, dim[1], dim[0], &t->size))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "tensor %s: the shape [%" PRIu64 ", %" PRIu64 "] is impossible for %s",
                          name, dim[1], dim[0], hr_quant_info[t->type].name);
    t->n_rows = (int)dim[1];
    t->n_cols = (int)dim[0];
    return HR_OK;
}

struct place {
    uint64_t offset;
    size_t i_tensor;
};

static int by_offset(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Turns offsets into pointers after checking that each tensor lies in the file and on no other. */
static enum hr_status place_tensors(struct hr_gguf *g, struct place *places, uint64_t data_begin,
                                    uint64_t alignment, struct hr_err *err) {
    char name[128], other[128];
    for (size_t i = 0; i < g->tensors.n; i++) {
        struct hr_file_tensor *t = &g->tensors.v[i];
        uint64_t offset = places[i].offset;
        hr_printable(t->name, strlen(t->name), name, sizeof name);
        if (offset % alignment != 0)
            return hr_err_set(err, HR_ERR_FORMAT,
                              "tensor %s: offset %" PRIu64 " is not a multiple of %" PRIu64, name,
                              offset, alignment);
        uint64_t room = data_begin < g->map.size ? g->map.size - data_begin : 0;
        if (offset > room || t->size > room - offset)
            return hr_err_set(err, HR_ERR_FORMAT,
                              "tensor %s needs %" PRIu64 " bytes at offset %" PRIu64
                              " of the data, which has %" PRIu64
                              ": the file is truncated or damaged",
                              name, t->size, offset, room);
        t->data = g->map.data + data_begin + offset;
    }
    if (g->tensors.n) qsort(places, g->tensors.n, sizeof *places, by_offset);
    for (size_t i = 1; i < g->tensors.n; i++) {
        const struct hr_file_tensor *a = &g->tensors.v[places[i - 1].i_tensor];
        const struct hr_file_tensor *b = &g->tensors.v[places[i].i_tensor];
        if (a->data + a->size > b->data)
            return hr_err_set(err, HR_ERR_FORMAT, "tensors %s and %s overlap",
                              hr_printable(a->name, strlen(a->name), name, sizeof name),
                              hr_printable(b->name, strlen(b->name), other, sizeof other));
    }
    return HR_OK;
}

static enum hr_status read_tensors(struct hr_gguf *g, struct cursor *c, uint64_t n_tensors,
                                   struct hr_err *err) {
    int64_t alignment = 32;
    enum hr_status rc = HR_OK;
    struct place *places = hr_xcalloc((size_t)n_tensors, sizeof *places);
    if (hr_gguf_find(g, "general.alignment") &&
        (!hr_gguf_int(g, "general.alignment", &alignment) || alignment < 8 || alignment > 1 << 20 ||
         (alignment & (alignment - 1)) != 0)) {
        rc = hr_err_set(err, HR_ERR_FORMAT,
                        "general.alignment is not a power of two from 8 to 2^20");
        goto done;
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        rc = read_tensor(g, c, i, &places[i].offset, err);
        if (rc) goto done;
        places[i].i_tensor = (size_t)i;
    }
    uint64_t a = (uint64_t)alignment, header = (uint64_t)(c->p - g->map.data);
    rc = place_tensors(g, places, (header + a - 1) / a * a, a, err);
    if (rc) goto done;
    rc = hr_tensor_table_sort(&g->tensors, err);
done:
    free(places);
    return rc;
}

static enum hr_status read_file(struct hr_gguf *g, struct hr_err *err) {
    struct cursor c = {g->map.data, g->map.data + g->map.size, false};
    const uint8_t *magic = take(&c, 4);
    g->version = take_u32(&c);
    uint64_t n_tensors = take_u64(&c), n_kv = take_u64(&c);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return hr_err_set(err, HR_ERR_FORMAT, "not a GGUF file (it does not begin with \"GGUF\")");
    if (c.broken) return hr_err_set(err, HR_ERR_FORMAT, "the GGUF header is cut off");
    if (g->version == __builtin_bswap32(2) || g->version == __builtin_bswap32(3))
        return hr_err_set(err, HR_ERR_UNSUPPORTED, "big-endian GGUF is not supported");
    if (g->version != 2 && g->version != 3)
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "GGUF version %u is not supported; supported are 2 and 3", g->version);
    uint64_t left = (uint64_t)(c.end - c.p);
    if (n_kv > left / KEY_MIN_BYTES || n_tensors > left / TENSOR_MIN_BYTES)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "the header claims %" PRIu64 " keys and %" PRIu64
                          " tensors, more than the file has room for",
                          n_kv, n_tensors);
    enum hr_status rc = read_metadata(g, &c, n_kv, err);
    if (rc) return rc;
    int64_t n_split = 1;
    if (hr_gguf_int(g, "split.count", &n_split) && n_split > 1)
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "this is one of %" PRId64
                          " files of a split model, which is not supported; merge them first "
                          "(gguf-split --merge)",
                          n_split);
    return read_tensors(g, &c, n_tensors, err);
}

enum hr_status hr_gguf_open(const char *path, struct hr_gguf *out, struct hr_err *err) {
    struct hr_gguf g = {0};
    enum hr_status rc = hr_map_open(path, &g.map, err);
    if (rc) return rc;
    rc = read_file(&g, err);
    if (rc) {
        hr_err_prefix(err, "%s", path);
        hr_gguf_close(&g);
        return rc;
    }
    *out = g;
    return HR_OK;
}

void hr_gguf_close(struct hr_gguf *g) {
    hr_tensor_table_finish(&g->tensors);
    free(g->kv);
    hr_map_close(&g->map);
    *g = (struct hr_gguf){0};
}

const struct hr_gguf_kv *hr_gguf_find(const struct hr_gguf *g, const char *key) {
    size_t lo = 0, hi = g->n_kv, len = strlen(key);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = key_cmp(g->kv[mid].key, g->kv[mid].key_len, key, len);
        if (c == 0) return &g->kv[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* The string at *p, advancing past it. Its length was checked when the file was opened. */
static const char *next_str(const uint8_t **p, size_t *len) {
    uint64_t n;
    memcpy(&n, *p, sizeof n);
    const char *s = (const char *)*p + sizeof n;
    *len = (size_t)n;
    *p += sizeof n + n;
    return s;
}

bool hr_gguf_str(const struct hr_gguf *g, const char *key, const char **s, size_t *len) {
    const struct hr_gguf_kv *kv = hr_gguf_find(g, key);
    if (!kv || kv->is_array || kv->type != HR_GGUF_STRING) return false;
    const uint8_t *p = kv->data;
    *s = next_str(&p, len);
    return true;
}

/* An integer (or bool) of the file's type at p; false for other types and beyond int64. */
static bool int_at(enum hr_gguf_type type, const uint8_t *p, int64_t *out) {
    uint64_t u = 0;
    switch (type) {
    case HR_GGUF_U8:
    case HR_GGUF_BOOL:
        *out = *p;
        return true;
    case HR_GGUF_I8:
        *out = (int8_t)*p;
        return true;
    case HR_GGUF_U16:
        memcpy(&u, p, 2);
        *out = (int64_t)u;
        return true;
    case HR_GGUF_I16:
        memcpy(&u, p, 2);
        *out = (int16_t)u;
        return true;
    case HR_GGUF_U32:
        memcpy(&u, p, 4);
        *out = (int64_t)u;
        return true;
    case HR_GGUF_I32:
        memcpy(&u, p, 4);
        *out = (int32_t)u;
        return true;
    case HR_GGUF_U64:
        memcpy(&u, p, 8);
        if (u > INT64_MAX) return false;
        *out = (int64_t)u;
        return true;
    case HR_GGUF_I64:
        memcpy(out, p, 8);
        return true;
    default:
        return false;
    }
}

bool hr_gguf_int(const struct hr_gguf *g, const char *key, int64_t *out) {
    const struct hr_gguf_kv *kv = hr_gguf_find(g, key);
    return kv && !kv->is_array && int_at(kv->type, kv->data, out);
}

bool hr_gguf_real(const struct hr_gguf *g, const char *key, double *out) {
    const struct hr_gguf_kv *kv = hr_gguf_find(g, key);
    int64_t i;
    float f;
    if (!kv || kv->is_array) return false;
    if (kv->type == HR_GGUF_F32) {
        memcpy(&f, kv->data, sizeof f);
        *out = (double)f;
    } else if (kv->type == HR_GGUF_F64) {
        memcpy(out, kv->data, sizeof *out);
    } else {
        if (!int_at(kv->type, kv->data, &i)) return false;
        *out = (double)i;
    }
    return true;
}

bool hr_gguf_int_at(const struct hr_gguf_kv *kv, uint64_t i, int64_t *out) {
    if (!kv->is_array || i >= kv->n || type_size[kv->type] == 0) return false;
    return int_at(kv->type, kv->data + i * type_size[kv->type], out);
}

void hr_gguf_strs(const struct hr_gguf_kv *kv, const char **s, size_t *len) {
    HR_ASSERT(kv->is_array && kv->type == HR_GGUF_STRING);
    const uint8_t *p = kv->data;
    for (uint64_t i = 0; i < kv->n; i++) s[i] = next_str(&p, &len[i]);
}

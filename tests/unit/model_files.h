/* SPDX-License-Identifier: Apache-2.0
 *
 * model_files: writes small model files for tests, right or wrong on purpose.
 *
 * A GGUF is put together from parts, so that a test can change one field; it is opened through
 * memory (no file is left behind). The standard model is a llama of one layer: 32 tokens, dim 32,
 * two heads of 16, one key/value head, feed-forward 64. */
#ifndef HR_TESTS_MODEL_FILES_H
#define HR_TESTS_MODEL_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "model/dequant.h"
#include "model/gguf.h"
#include "model/model_file.h"

#define GGUF_TENSORS_MAX 32

struct gguf_tensor {
    char name[64];
    uint32_t ggml_type;
    uint64_t n_rows, n_cols; /* n_rows 0: one dimension */
    uint64_t n_deep;         /* not 0: a third dimension */
    uint64_t offset;         /* assigned by gguf_layout */
    size_t size;
    struct hr_buf data;
};

struct gguf_file {
    uint32_t version;
    uint64_t n_kv;
    struct hr_buf kv;
    struct gguf_tensor tensors[GGUF_TENSORS_MAX];
    size_t n_tensors;
    size_t header_len; /* set by gguf_write */
};

static inline void put_u32(struct hr_buf *b, uint32_t v) {
    hr_buf_append(b, &v, sizeof v);
}

static inline void put_u64(struct hr_buf *b, uint64_t v) {
    hr_buf_append(b, &v, sizeof v);
}

static inline void put_str(struct hr_buf *b, const char *s) {
    put_u64(b, strlen(s));
    hr_buf_puts(b, s);
}

static inline void kv_key(struct gguf_file *f, const char *key, uint32_t type) {
    put_str(&f->kv, key);
    put_u32(&f->kv, type);
    f->n_kv++;
}

static inline void kv_u32(struct gguf_file *f, const char *key, uint32_t v) {
    kv_key(f, key, HR_GGUF_U32);
    put_u32(&f->kv, v);
}

static inline void kv_f32(struct gguf_file *f, const char *key, float v) {
    kv_key(f, key, HR_GGUF_F32);
    hr_buf_append(&f->kv, &v, sizeof v);
}

static inline void kv_str(struct gguf_file *f, const char *key, const char *v) {
    kv_key(f, key, HR_GGUF_STRING);
    put_str(&f->kv, v);
}

static inline struct gguf_tensor *gguf_find(struct gguf_file *f, const char *name) {
    for (size_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
    fail_msg("no tensor %s in the test's own file", name);
    return NULL;
}

/* Adds a tensor whose element i of row r is 1000 r + i (exact in f32), or zero bytes when it is not
 * F32. */
static inline struct gguf_tensor *gguf_add(struct gguf_file *f, const char *name,
                                           enum hr_quant type, uint64_t n_rows, uint64_t n_cols) {
    const struct hr_quant_info *info = &hr_quant_info[type];
    assert_true(f->n_tensors < GGUF_TENSORS_MAX);
    struct gguf_tensor *t = &f->tensors[f->n_tensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->ggml_type = info->ggml_type;
    t->n_rows = n_rows;
    t->n_cols = n_cols;
    uint64_t rows = n_rows ? n_rows : 1;
    for (uint64_t r = 0; type == HR_QUANT_F32 && r < rows; r++)
        for (uint64_t i = 0; i < n_cols; i++) {
            float v = (float)(1000 * r + i);
            hr_buf_append(&t->data, &v, sizeof v);
        }
    uint64_t blocks = rows * n_cols / (uint64_t)info->block_elems;
    for (uint64_t i = 0; type != HR_QUANT_F32 && i < blocks * (uint64_t)info->block_bytes; i++)
        hr_buf_putc(&t->data, 0);
    t->size = t->data.len;
    return t;
}

/* Offsets one after the other, padded to 32. */
static inline void gguf_layout(struct gguf_file *f) {
    uint64_t at = 0;
    for (size_t i = 0; i < f->n_tensors; i++) {
        f->tensors[i].offset = at;
        at += (f->tensors[i].size + 31) / 32 * 32;
    }
}

static inline void gguf_write(struct gguf_file *f, struct hr_buf *out) {
    hr_buf_clear(out);
    hr_buf_puts(out, "GGUF");
    put_u32(out, f->version ? f->version : 3);
    put_u64(out, f->n_tensors);
    put_u64(out, f->n_kv);
    hr_buf_append(out, f->kv.data, f->kv.len);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct gguf_tensor *t = &f->tensors[i];
        put_str(out, t->name);
        put_u32(out, t->n_deep ? 3 : t->n_rows ? 2 : 1);
        put_u64(out, t->n_cols);
        if (t->n_rows) put_u64(out, t->n_rows);
        if (t->n_deep) put_u64(out, t->n_deep);
        put_u32(out, t->ggml_type);
        put_u64(out, t->offset);
    }
    f->header_len = out->len;
    while (out->len % 32) hr_buf_putc(out, 0);
    for (size_t i = 0; i < f->n_tensors; i++) {
        hr_buf_append(out, f->tensors[i].data.data, f->tensors[i].data.len);
        while (out->len % 32) hr_buf_putc(out, 0);
    }
}

static inline void gguf_finish(struct gguf_file *f) {
    hr_buf_finish(&f->kv);
    for (size_t i = 0; i < f->n_tensors; i++) hr_buf_finish(&f->tensors[i].data);
    *f = (struct gguf_file){0};
}

static inline void gguf_llama_kv(struct gguf_file *f, const char *arch) {
    static const struct {
        const char *key;
        uint32_t v;
    } ints[] = {{"block_count", 1},          {"context_length", 128},
                {"embedding_length", 32},    {"feed_forward_length", 64},
                {"attention.head_count", 2}, {"attention.head_count_kv", 1}};
    char key[64];
    kv_str(f, "general.architecture", arch);
    kv_str(f, "general.name", "Test\n0.001M");
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, ints[i].key);
        kv_u32(f, key, ints[i].v);
    }
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    kv_f32(f, key, 10000);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    kv_f32(f, key, 1e-5f);
}

/* The standard model; matrices of `type` but q and k, which are F32 with telling values. */
static inline void gguf_llama(struct gguf_file *f, const char *arch, enum hr_quant type) {
    gguf_llama_kv(f, arch);
    gguf_add(f, "token_embd.weight", type, 32, 32);
    gguf_add(f, "blk.0.attn_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_add(f, "blk.0.attn_q.weight", HR_QUANT_F32, 32, 32);
    gguf_add(f, "blk.0.attn_k.weight", HR_QUANT_F32, 16, 32);
    gguf_add(f, "blk.0.attn_v.weight", type, 16, 32);
    gguf_add(f, "blk.0.attn_output.weight", type, 32, 32);
    gguf_add(f, "blk.0.ffn_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_add(f, "blk.0.ffn_gate.weight", type, 64, 32);
    gguf_add(f, "blk.0.ffn_up.weight", type, 64, 32);
    gguf_add(f, "blk.0.ffn_down.weight", type, 32, 64);
    gguf_add(f, "output_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_layout(f);
}

/* Opens `len` bytes as a file. */
static inline enum hr_status open_bytes(const char *data, size_t len, struct hr_model_file **mf,
                                        struct hr_err *err) {
    char path[64];
    int fd = memfd_create("model", 0);
    assert_true(fd >= 0);
    for (size_t at = 0; at < len;) {
        ssize_t n = write(fd, data + at, len - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *err = (struct hr_err){0};
    enum hr_status rc = hr_model_file_open(path, mf, err);
    close(fd);
    return rc;
}

static inline void assert_says(const struct hr_err *err, const char *what) {
    if (!strstr(err->msg, what)) fail_msg("\"%s\" does not say \"%s\"", err->msg, what);
}

/* Writes the file, expects it to be refused with this status and these words. */
static inline void assert_refused(struct gguf_file *f, enum hr_status status, const char *what) {
    struct hr_buf bytes = {0};
    struct hr_model_file *mf = NULL;
    struct hr_err err;
    gguf_write(f, &bytes);
    enum hr_status rc = open_bytes(bytes.data, bytes.len, &mf, &err);
    hr_buf_finish(&bytes);
    if (rc == HR_OK) hr_model_file_close(&mf);
    if (rc != status) fail_msg("status %d, not %d: %s", rc, status, err.msg);
    assert_says(&err, what);
    assert_null(mf);
}

static inline void open_gguf(struct gguf_file *f, struct hr_model_file **mf) {
    struct hr_buf bytes = {0};
    struct hr_err err;
    gguf_write(f, &bytes);
    if (open_bytes(bytes.data, bytes.len, mf, &err)) fail_msg("%s", err.msg);
    hr_buf_finish(&bytes);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * weights: mapped files and the table of tensors; see weights.h. */
#include "model/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"

enum hr_status hr_map_open(const char *path, struct hr_map *out, struct hr_err *err) {
    enum hr_status rc = HR_OK;
    void *data = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = errno == ENOENT ? HR_ERR_NOTFOUND : HR_ERR_IO;
        hr_err_set(err, rc, "%s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = hr_err_set(err, HR_ERR_FORMAT, "%s: not a regular file", path);
        goto done;
    }
    if (st.st_size == 0) {
        rc = hr_err_set(err, HR_ERR_FORMAT, "%s: the file is empty", path);
        goto done;
    }
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        rc = hr_err_set(err, HR_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
        goto done;
    }
    *out = (struct hr_map){hr_xstrdup(path), data, (size_t)st.st_size};
done:
    if (fd >= 0) close(fd);
    return rc;
}

void hr_map_close(struct hr_map *m) {
    if (m->data) munmap((void *)m->data, m->size);
    free(m->path);
    *m = (struct hr_map){0};
}

void hr_tensor_table_finish(struct hr_tensor_table *t) {
    for (size_t i = 0; i < t->n; i++) free(t->v[i].name);
    free(t->v);
    *t = (struct hr_tensor_table){0};
}

struct hr_file_tensor *hr_tensor_table_add(struct hr_tensor_table *t, const char *name,
                                           size_t len) {
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 256;
        t->v = hr_xrealloc(t->v, t->cap * sizeof *t->v);
    }
    struct hr_file_tensor *x = &t->v[t->n++];
    *x = (struct hr_file_tensor){.name = hr_xstrndup(name, len)};
    return x;
}

static int by_name(const void *a, const void *b) {
    const struct hr_file_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

enum hr_status hr_tensor_table_sort(struct hr_tensor_table *t, struct hr_err *err) {
    if (t->n == 0) return HR_OK;
    qsort(t->v, t->n, sizeof *t->v, by_name);
    for (size_t i = 1; i < t->n; i++)
        if (strcmp(t->v[i - 1].name, t->v[i].name) == 0)
            return hr_err_set(err, HR_ERR_FORMAT, "tensor %s is there twice", t->v[i].name);
    return HR_OK;
}

struct hr_file_tensor *hr_tensor_table_find(const struct hr_tensor_table *t, const char *name) {
    size_t lo = 0, hi = t->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(t->v[mid].name, name);
        if (c == 0) return &t->v[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

bool hr_tensor_size(enum hr_quant type, uint64_t n_rows, uint64_t n_cols, uint64_t *size) {
    const struct hr_quant_info *info = &hr_quant_info[type];
    if (n_rows < 1 || n_cols < 1 || n_rows > HR_TENSOR_DIM_MAX || n_cols > HR_TENSOR_DIM_MAX)
        return false;
    if (n_cols % (uint64_t)info->block_elems != 0) return false;
    /* At most 2^30 rows of 2^32 bytes: no overflow. */
    *size = n_rows * (n_cols / (uint64_t)info->block_elems * (uint64_t)info->block_bytes);
    return true;
}

const char *hr_printable(const char *s, size_t len, char *out, size_t cap) {
    HR_ASSERT(cap > 0);
    size_t n = len < cap - 1 ? len : cap - 1;
    for (size_t i = 0; i < n; i++) out[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
    out[n] = 0;
    return out;
}

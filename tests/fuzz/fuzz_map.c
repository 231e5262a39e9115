/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_map: files in memory for the readers of weights. The linker puts these functions in the
 * place of hr_map_open and hr_map_close (--wrap), so that the sanitizer guards both ends of a file:
 * a mapping is padded with zeros to its page, and a read past the end of the file would not be seen
 * there. */
#include <string.h>

#include "fuzz.h"
#include "model/weights.h"

enum { N_SERVED = 2 };
static struct {
    const char *name;
    const void *data;
    size_t len;
} served[N_SERVED];

void fuzz_serve(const char *name, const void *data, size_t len) {
    int i = 0;
    if (!name) {
        memset(served, 0, sizeof served);
        return;
    }
    while (i < N_SERVED && served[i].name && strcmp(served[i].name, name) != 0) i++;
    FUZZ_CHECK(i < N_SERVED);
    served[i].name = name;
    served[i].data = data;
    served[i].len = len;
}

enum hr_status __wrap_hr_map_open(const char *path, struct hr_map *out, struct hr_err *err);
void __wrap_hr_map_close(struct hr_map *m);

enum hr_status __wrap_hr_map_open(const char *path, struct hr_map *out, struct hr_err *err) {
    size_t n = strlen(path);
    for (int i = 0; i < N_SERVED && served[i].name; i++) {
        size_t len = strlen(served[i].name);
        if (n < len || strcmp(path + n - len, served[i].name) != 0) continue;
        if (served[i].len == 0)
            return hr_err_set(err, HR_ERR_FORMAT, "%s: the file is empty", path);
        const uint8_t *data = (const uint8_t *)fuzz_copy(served[i].data, served[i].len);
        *out = (struct hr_map){hr_xstrdup(path), data, served[i].len};
        return HR_OK;
    }
    return hr_err_set(err, HR_ERR_NOTFOUND, "%s: no such file", path);
}

void __wrap_hr_map_close(struct hr_map *m) {
    free((void *)m->data);
    free(m->path);
    *m = (struct hr_map){0};
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_charsmap: a length, a text of that many bytes, and a table of replaced strings. Whatever
 * table is accepted must turn any text into valid UTF-8, with marks or without, and into the same.
 */
#include <string.h>

#include "base/jscan.h"
#include "fuzz.h"
#include "text/charsmap.h"
#include "text/unicode.h"

static void run(const struct hr_charsmap *m, const char *text, size_t len) {
    struct hr_buf out = {0}, marked = {0}, out_mark = {0};
    char *mark = fuzz_copy(text, len); /* any flags; the first of two halves is the user's */
    for (size_t i = 0; i < len; i++) mark[i] = i < len / 2;
    size_t bad;
    hr_charsmap_run(m, text, len, NULL, &out, NULL);
    hr_charsmap_run(m, text, len, (const uint8_t *)mark, &marked, &out_mark);
    FUZZ_CHECK(hr_utf8_valid(out.data, out.len, &bad));
    FUZZ_CHECK(out.len == marked.len && out_mark.len == marked.len);
    FUZZ_CHECK(out.len == 0 || memcmp(out.data, marked.data, out.len) == 0);
    free(mark);
    hr_buf_finish(&out);
    hr_buf_finish(&marked);
    hr_buf_finish(&out_mark);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || data[0] >= size) return 0;
    struct hr_charsmap *m = NULL;
    struct hr_err err = {0};
    struct hr_buf valid = {0};
    size_t n = data[0], len = size - 1 - n;
    fuzz_make_utf8(&valid, data + 1, n);
    char *text = fuzz_copy(valid.data, valid.len), *table = fuzz_copy(data + 1 + n, len);
    if (hr_charsmap_create((const uint8_t *)table, len, &m, &err) == HR_OK) {
        run(m, text, valid.len);
        hr_charsmap_destroy(&m);
    } else {
        FUZZ_CHECK(err.msg[0] != 0 && m == NULL);
    }
    free(text);
    free(table);
    hr_buf_finish(&valid);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_shard: bytes as a .jsonl, .jsonl.gz or .jsonl.zst file (chosen by the first byte), followed
 * by a sound second shard, which must be reached whatever the first one was. Lines must come in
 * order, without their ends, inside the bound; counting must agree with reading. */
#include <string.h>

#include "fuzz.h"
#include "job/shard.h"

/* A few KiB of a compressed file can hold GiB; that takes time in proportion and shows nothing new.
 */
#define INPUT_MAX 4096

static bool is_blank(const struct hr_line *l) {
    for (size_t i = 0; i < l->len; i++)
        if (l->p[i] != ' ' && l->p[i] != '\t') return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst"};
    static const char good[] = "{\"id\":1}\r\n\n{\"id\":2}";
    if (size == 0 || size > INPUT_MAX) return 0;
    char first[FUZZ_PATH_MAX], second[FUZZ_PATH_MAX], *paths[] = {first, second};
    fuzz_path(first, names[data[0] % 3]);
    fuzz_path(second, "good.jsonl");
    fuzz_write(names[data[0] % 3], data + 1, size - 1);
    fuzz_write("good.jsonl", good, sizeof good - 1);

    struct hr_shard_reader *r = NULL;
    struct hr_err err = {0};
    struct hr_line line;
    int64_t n = 0, n_good = 0, line_no = 0, n_counted = 0;
    int i_shard = 0;
    bool more, torn = false;
    FUZZ_CHECK(hr_shard_open(paths, 2, &r, &err) == HR_OK);
    for (;;) {
        FUZZ_CHECK(hr_shard_next(r, &line, &more, &err) == HR_OK);
        if (!more) break;
        FUZZ_CHECK(line.i_shard >= i_shard && line.i_shard < 2);
        if (line.i_shard != i_shard) line_no = 0;
        i_shard = line.i_shard;
        FUZZ_CHECK(line.torn || line.line_no > line_no);
        line_no = line.line_no;
        if (line.torn) torn = true;
        if (!line.torn && !line.too_long) {
            FUZZ_CHECK(line.len <= HR_LINE_MAX && !memchr(line.p, '\n', line.len));
            FUZZ_CHECK(!is_blank(&line));
        }
        n++;
        n_good += i_shard == 1;
    }
    FUZZ_CHECK(n_good == 2);
    hr_shard_close(&r);
    FUZZ_CHECK(hr_shard_count(paths, 2, 0, NULL, &n_counted, &err) == HR_OK);
    FUZZ_CHECK(n_counted == n || (torn && n_counted == n - 1));
    return 0;
}

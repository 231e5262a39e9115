/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_record: a line of a shard, read with one of a few manifests (chosen by the first byte). A
 * row that is accepted is written as an output row, which must be one line of valid JSON that names
 * the same row; a refused one must have a reason and give a valid line of rejects.jsonl. */
#include <string.h>

#include "fuzz.h"
#include "job/record.h"

static const struct hr_manifest manifests[] = {
    {.dataset = "d", .id = "id", .chat = true},
    {.dataset = "d",
     .id = "id",
     .chat = true,
     .prompt = "{a}\n\n{b} {{x}}",
     .system = "be \"brief\""},
    {.dataset = "d", .id = "id", .prompt = "prompt", .output_token_ids = true},
    {.dataset = "d", .id = "key", .chat = true, .messages = "m", .system = ""},
};
#define N_MANIFESTS (sizeof manifests / sizeof manifests[0])

static void check_line(const struct hr_buf *line) {
    struct hr_jval root;
    struct hr_err err = {0};
    FUZZ_CHECK(line->len > 0 && memchr(line->data, '\n', line->len) == line->data + line->len - 1);
    FUZZ_CHECK(memchr(line->data, '\r', line->len) == NULL);
    if (hr_jscan_validate(line->data, line->len, &root, &err) != HR_OK) {
        fprintf(stderr, "%s\n", err.msg);
        FUZZ_CHECK(!"the written line is valid");
    }
    FUZZ_CHECK(root.type == HR_JOBJECT);
}

static void check_row(const struct hr_record *r, const struct hr_manifest *m) {
    static const int32_t ids[] = {1, 2, 3};
    const struct hr_answer a = {.sample = 1,
                                .occurrence = 2,
                                .text = "a\n\"b\"",
                                .text_len = 5,
                                .finish_reason = "stop",
                                .stop_reason_json = "\"\\n\"",
                                .prompt_tokens = 3,
                                .completion_tokens = 3,
                                .seed = 7,
                                .prompt_ids = ids,
                                .completion_ids = ids};
    struct hr_buf out = {0};
    uint8_t ident[16];
    int occurrence, sample;
    hr_record_write_row(r, m, &a, &out);
    check_line(&out);
    FUZZ_CHECK(hr_record_identify_row(out.data, out.len, ident, &occurrence, &sample));
    FUZZ_CHECK(memcmp(ident, r->ident, 16) == 0 && occurrence == 2 && sample == 1);
    hr_buf_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const struct hr_manifest *m = &manifests[data[0] % N_MANIFESTS];
    const uint8_t *newline =
        memchr(data + 1, '\n', size - 1); /* where the shard's reader ends it */
    size_t len = newline ? (size_t)(newline - data - 1) : size - 1;
    char *line = fuzz_copy(data + 1, len);
    struct hr_record r = {0};
    struct hr_err err = {0};
    uint8_t ident[16];
    int occurrence, sample;
    if (hr_record_parse(&r, m, line, len, &err) == HR_OK) {
        check_row(&r, m);
    } else {
        struct hr_buf out = {0};
        FUZZ_CHECK(err.msg[0] != 0);
        hr_record_write_reject(&r.id_json, "d", "s.jsonl", 1, -1, err.msg, &out);
        check_line(&out);
        hr_buf_finish(&out);
    }
    hr_record_identify_row(line, len, ident, &occurrence, &sample);
    hr_record_finish(&r);
    free(line);
    return 0;
}

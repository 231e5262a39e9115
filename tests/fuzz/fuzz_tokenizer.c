/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tokenizer: a tokenizer.json or, when it does not begin with '{', a file of tiktoken's ranks;
 * and behind a NUL a text for it. Whatever file is accepted must encode any text to ids of its
 * vocabulary, and decode them to valid UTF-8 in both ways that the header promises to be equal. */
#include "fuzz.h"

static enum hr_status create(const char *file, size_t len, struct hr_tokenizer **out,
                             struct hr_err *err) {
    if (len > 0 && file[0] == '{') return hr_tokenizer_create_json(file, len, out, err);
    const struct hr_rank_token end = {.id = (int32_t)hr_tokenizer_count_ranks(file, len),
                                      .s = "<|im_end|>",
                                      .len = 10,
                                      .special = true};
    return hr_tokenizer_create_ranks(file, len, NULL, &end, 1, out, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char fixed[] =
        "Hello  World's 12345\r\n\t->\xc3\xa9 e\xcc\x81<|im_end|> aaaaaaaa\xf0\x9f\x8d\xb5 ";
    char *file, *text;
    size_t file_len, text_len;
    struct hr_tokenizer *tok = NULL;
    struct hr_err err = {0};
    fuzz_cut(data, size, &file, &file_len, &text, &text_len);
    if (create(file, file_len, &tok, &err) == HR_OK) {
        fuzz_use_tokenizer(tok, fixed, sizeof fixed - 1);
        if (text) fuzz_use_tokenizer(tok, text, text_len);
        hr_tokenizer_destroy(&tok);
    } else {
        FUZZ_CHECK(err.msg[0] != 0 && tok == NULL);
    }
    free(file);
    free(text);
    return 0;
}

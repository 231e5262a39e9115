/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tokenizer: a tokenizer.json, and behind a NUL a text for it. Whatever file is accepted must
 * encode any text to ids of its vocabulary, and decode them to valid UTF-8 in both ways that the
 * header promises to be equal. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char fixed[] =
        "Hello  World's 12345\r\n\t->\xc3\xa9 e\xcc\x81<|im_end|> aaaaaaaa\xf0\x9f\x8d\xb5 ";
    char *json, *text;
    size_t json_len, text_len;
    struct hr_tokenizer *tok = NULL;
    struct hr_err err = {0};
    fuzz_cut(data, size, &json, &json_len, &text, &text_len);
    if (hr_tokenizer_create_json(json, json_len, &tok, &err) == HR_OK) {
        fuzz_use_tokenizer(tok, fixed, sizeof fixed - 1);
        if (text) fuzz_use_tokenizer(tok, text, text_len);
        hr_tokenizer_destroy(&tok);
    } else {
        FUZZ_CHECK(err.msg[0] != 0 && tok == NULL);
    }
    free(json);
    free(text);
    return 0;
}

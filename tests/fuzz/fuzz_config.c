/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_config: a config.json, and the same bytes as the other JSON files of a model's folder
 * (generation_config.json, tokenizer_config.json, special_tokens_map.json) beside a small sound
 * tokenizer. A shape that is accepted must be one whose plan and rotary angles are numbers. */
#include <math.h>
#include <string.h>

#include "cmd/textload.h"
#include "fuzz.h"
#include "model/llama.h"
#include "model/model_config.h"
#include "model/rope.h"

static const char tokenizer[] =
    "{\"added_tokens\":[{\"id\":2,\"content\":\"</s>\",\"special\":true}],\"decoder\":{\"type\":"
    "\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
    "\"vocab\":"
    "{\"a\":0,\"b\":1},\"merges\":[]}}";

static void check_rope(const struct hr_rope *r, int rope_dim) {
    for (int i = 0; i < rope_dim / 2; i++) FUZZ_CHECK(isfinite(hr_rope_freq(r, rope_dim, i)));
    FUZZ_CHECK(isfinite(r->attention_factor));
}

static void use_config(const struct hr_json *root) {
    struct hr_model_config c = {0};
    struct hr_model_plan plan;
    struct hr_err err = {0};
    const struct hr_model_opts opts = {.max_tokens = 512, .max_out = 64, .n_pages = 1024};
    if (hr_model_config_from_json(root, &c, &err) != HR_OK) {
        FUZZ_CHECK(err.msg[0] != 0);
        return;
    }
    FUZZ_CHECK(c.n_layers > 0 && c.dim > 0 && c.n_heads > 0 && c.head_dim > 0 && c.n_vocab > 0);
    FUZZ_CHECK(c.n_kv_heads > 0 && c.n_heads % c.n_kv_heads == 0 && c.n_ctx > 0 && c.rms_eps > 0);
    FUZZ_CHECK(c.rope_dim > 0 && c.rope_dim <= c.head_dim && isfinite(c.attn_scale));
    check_rope(&c.rope, c.rope_dim);
    if (c.two_ropes) check_rope(&c.sliding_rope, c.rope_dim);
    hr_model_plan(&c, HR_BF16, &opts, &plan);
    FUZZ_CHECK(plan.weights > 0 && plan.kv_per_token > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json", "special_tokens_map.json"};
    struct hr_json *root = NULL;
    struct hr_model_file *mf = NULL;
    struct hr_err err = {0};
    if (hr_json_parse((const char *)data, size, &root, &err) != HR_OK) {
        FUZZ_CHECK(err.msg[0] != 0 && root == NULL);
        return 0;
    }
    struct hr_buf text = {0};
    struct hr_json *again = NULL;
    hr_json_dump(root, &text);
    FUZZ_CHECK(hr_json_parse(text.data, text.len, &again, &err) == HR_OK);
    hr_json_free(&again);
    hr_buf_finish(&text);
    use_config(root);
    hr_json_free(&root);

    fuzz_write("tokenizer.json", tokenizer, sizeof tokenizer - 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) fuzz_write(names[i], data, size);
    FUZZ_CHECK(hr_model_file_open_text(fuzz_dir(), &mf, &err) == HR_OK);
    struct hr_model_text mt = {0};
    if (hr_model_text_open(mf, NULL, &mt, &err) != HR_OK) FUZZ_CHECK(err.msg[0] != 0);
    hr_model_text_finish(&mt);
    hr_model_file_close(&mf);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_gguf: any bytes as a GGUF file: its tensors are read as numbers, its vocabulary and template
 * are built and used, and it is opened as a model. */
#include <string.h>

#include "cmd/textload.h"
#include "fuzz.h"
#include "model/gguf.h"

static void read_tensor(const struct hr_file_tensor *t) {
    size_t n = (size_t)t->n_rows * (size_t)t->n_cols;
    float *values = malloc(n * sizeof *values);
    FUZZ_CHECK(values != NULL || n == 0);
    hr_file_tensor_read(t, 0, t->n_rows, values);
    if (t->n_rows > 1) hr_file_tensor_read(t, t->n_rows - 1, 1, values);
    free(values);
}

static void use_file(void) {
    struct hr_gguf g = {0};
    struct hr_err err = {0};
    if (hr_gguf_open("fuzz.gguf", &g, &err) != HR_OK) {
        FUZZ_CHECK(strncmp(err.msg, "fuzz.gguf", 9) == 0);
        return;
    }
    for (size_t i = 0; i < g.tensors.n; i++) read_tensor(&g.tensors.v[i]);
    for (size_t i = 0; i < g.n_kv; i++) {
        int64_t value;
        for (uint64_t k = 0; k <= g.kv[i].n && k < 64; k++) hr_gguf_int_at(&g.kv[i], k, &value);
    }
    hr_gguf_close(&g);
}

static void use_text(void) {
    static const char text[] = "Hello  World 123 <s> \xe2\x96\x81 \xf0\x9f\x8d\xb5";
    struct hr_model_file *mf = NULL;
    struct hr_model_text mt = {0};
    struct hr_err err = {0};
    if (hr_model_file_open_text("fuzz.gguf", &mf, &err) != HR_OK) return;
    if (hr_model_text_open(mf, NULL, &mt, &err) == HR_OK)
        fuzz_use_tokenizer(mt.tokenizer, text, sizeof text - 1);
    else
        FUZZ_CHECK(err.msg[0] != 0);
    hr_model_text_finish(&mt);
    hr_model_file_close(&mf);
}

static void use_model(void) {
    static const char *const names[] = {
        "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_proj.weight"};
    struct hr_model_file *mf = NULL;
    struct hr_err err = {0};
    uint8_t print[32];
    if (hr_model_file_open("fuzz.gguf", &mf, &err) != HR_OK) {
        FUZZ_CHECK(strncmp(err.msg, "fuzz.gguf", 9) == 0);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct hr_file_tensor *t = hr_model_file_tensor(mf, names[i]);
        if (t) read_tensor(t);
    }
    hr_model_file_fingerprint(mf, print);
    hr_model_file_close(&mf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_serve("fuzz.gguf", data, size);
    use_file();
    use_text();
    use_model();
    return 0;
}

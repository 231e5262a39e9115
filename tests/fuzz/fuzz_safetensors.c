/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_safetensors: a folder whose model.safetensors are these bytes; or, when they begin with '{',
 * whose index they are, beside two sound files. */
#include <string.h>

#include "fuzz.h"
#include "model/model_file.h"
#include "model/safetensors.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":8,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"head_dim\":8,\"vocab_size\":4,"
    "\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"
    "\"hidden_act\":\"silu\"}";
static const char part_a[] =
    "\x38\0\0\0\0\0\0\0"
    "{\"x\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}  abcd";
static const char part_b[] =
    "\x38\0\0\0\0\0\0\0"
    "{\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  abcd";

static void use_tensors(const struct hr_safetensors *s) {
    for (size_t i = 0; i < s->tensors.n; i++) {
        const struct hr_file_tensor *t = &s->tensors.v[i];
        float *values = malloc((size_t)t->n_rows * (size_t)t->n_cols * sizeof *values);
        hr_file_tensor_read(t, 0, t->n_rows, values);
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hr_safetensors s = {0};
    struct hr_model_file *mf = NULL;
    struct hr_err err = {0};
    fuzz_serve(NULL, NULL, 0);
    fuzz_write("config.json", config, sizeof config - 1);
    if (size > 0 && data[0] == '{') {
        fuzz_remove("model.safetensors");
        fuzz_write("model.safetensors.index.json", data, size);
        fuzz_write("a.safetensors", "", 0); /* their bytes are served below */
        fuzz_write("b.safetensors", "", 0);
        fuzz_serve("a.safetensors", part_a, sizeof part_a - 1);
        fuzz_serve("b.safetensors", part_b, sizeof part_b - 1);
    } else {
        fuzz_write("model.safetensors", "", 0);
        fuzz_serve("model.safetensors", data, size);
    }
    if (hr_safetensors_open(fuzz_dir(), &s, &err) == HR_OK)
        use_tensors(&s);
    else
        FUZZ_CHECK(strncmp(err.msg, fuzz_dir(), strlen(fuzz_dir())) == 0);
    hr_safetensors_close(&s);
    if (hr_model_file_open(fuzz_dir(), &mf, &err) == HR_OK) {
        uint8_t print[32];
        hr_model_file_fingerprint(mf, print);
        hr_model_file_close(&mf);
    }
    FUZZ_CHECK(mf == NULL);
    return 0;
}

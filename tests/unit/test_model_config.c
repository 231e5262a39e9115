/* SPDX-License-Identifier: Apache-2.0
 *
 * What model/model_config promises about config.json: defaults as in transformers, both spellings
 * of rope settings, and a refusal by name of what the forward pass cannot do. */
#include "model_files.h"

#include <math.h>

#include "base/json.h"
#include "model/model_config.h"

/* A configuration of `type` with `more` members; sizes as a small Llama's. */
static enum hr_status parse(const char *type, const char *more, struct hr_model_config *c,
                            struct hr_err *err) {
    struct hr_buf b = {0};
    struct hr_json *root = NULL;
    hr_buf_printf(&b,
                  "{\"model_type\":\"%s\",\"hidden_size\":64,\"num_hidden_layers\":2,"
                  "\"num_attention_heads\":4,\"intermediate_size\":96,\"vocab_size\":264,"
                  "\"max_position_embeddings\":1024%s%s}",
                  type, more[0] ? "," : "", more);
    *err = (struct hr_err){0};
    *c = (struct hr_model_config){0};
    enum hr_status rc = hr_json_parse(b.data, b.len, &root, err);
    if (rc) fail_msg("the test's own JSON: %s", err->msg);
    rc = hr_model_config_from_json(root, c, err);
    hr_json_free(&root);
    hr_buf_finish(&b);
    return rc;
}

static struct hr_model_config accept(const char *type, const char *more) {
    struct hr_model_config c;
    struct hr_err err;
    if (parse(type, more, &c, &err)) fail_msg("%s with %s: %s", type, more, err.msg);
    return c;
}

static void refuse(const char *type, const char *more, enum hr_status status, const char *what) {
    struct hr_model_config c;
    struct hr_err err;
    enum hr_status rc = parse(type, more, &c, &err);
    if (rc != status)
        fail_msg("%s with %s: status %d, not %d: %s", type, more, rc, status, err.msg);
    assert_says(&err, what);
    assert_int_equal(c.n_layers, 0); /* outputs are written on success only */
}

static void defaults_are_those_of_transformers(void **state) {
    struct hr_model_config c = accept("llama", "");
    assert_string_equal(c.arch, "llama");
    assert_true(c.n_layers == 2 && c.dim == 64 && c.n_heads == 4 && c.n_ff == 96);
    assert_true(c.n_vocab == 264 && c.n_ctx == 1024);
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_true(c.rms_eps == 1e-6f);
    assert_true(!c.tied_embeddings && !c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.qk_norm);
    assert_int_equal(c.rope.type, HR_ROPE_DEFAULT);
    assert_true(c.rope.theta == 10000 && c.rope.factor == 1);
    assert_int_equal(accept("qwen3", "").head_dim, 128);
    assert_true(accept("qwen3", "").qk_norm);
    assert_int_equal(accept("qwen2", "").head_dim, 16);
}

static void what_is_stated_is_read(void **state) {
    struct hr_model_config c = accept("llama", "\"num_key_value_heads\":2,\"head_dim\":32,"
                                               "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"
                                               "\"rope_theta\":500000,\"attention_bias\":true,"
                                               "\"mlp_bias\":true,\"hidden_act\":\"silu\"");
    assert_true(c.n_kv_heads == 2 && c.head_dim == 32 && c.rms_eps == 1e-5f);
    assert_true(c.tied_embeddings && c.qkv_bias && c.o_bias && c.mlp_bias);
    assert_true(c.rope.theta == 500000);
    c = accept("qwen2", "\"attention_bias\":true");
    assert_true(c.qkv_bias && !c.o_bias);
    c = accept("qwen3", "\"attention_bias\":true,\"head_dim\":null");
    assert_true(c.qkv_bias && c.o_bias && c.head_dim == 128);
    assert_false(accept("mistral", "\"attention_bias\":true,\"sliding_window\":null").qkv_bias);
}

#define LLAMA3                                                                                     \
    "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                            \
    "\"original_max_position_embeddings\":512"

static void both_spellings_of_rope_mean_the_same(void **state) {
    static const char *const spellings[] = {
        "\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\"," LLAMA3 "}",
        "\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"llama3\"," LLAMA3 "}",
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"rope_theta\":5e5," LLAMA3 "}",
        "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":5e5," LLAMA3 "}",
        "\"rope_scaling\":null,\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":"
        "500000," LLAMA3 "}",
    };
    struct hr_model_config first = accept("llama", spellings[0]);
    assert_int_equal(first.rope.type, HR_ROPE_LLAMA3);
    assert_true(first.rope.theta == 5e5 && first.rope.factor == 32);
    assert_true(first.rope.low_freq_factor == 1 && first.rope.high_freq_factor == 4);
    assert_int_equal(first.rope.original_ctx, 512);
    for (size_t i = 1; i < sizeof spellings / sizeof spellings[0]; i++) {
        struct hr_model_config c = accept("llama", spellings[i]);
        assert_memory_equal(&c, &first, sizeof c);
    }
    struct hr_model_config c =
        accept("qwen3", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}");
    assert_true(c.rope.type == HR_ROPE_LINEAR && c.rope.factor == 4);
    c = accept("llama", "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7e4}");
    assert_true(c.rope.type == HR_ROPE_DEFAULT && c.rope.theta == 7e4);
}

static void other_architectures_are_refused_with_the_list(void **state) {
    static const char *const types[] = {"deepseek_v3", "gemma3",  "olmoe",
                                        "qwen3_moe",   "mixtral", ""};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        refuse(types[i], "", HR_ERR_UNSUPPORTED, "supported are llama, mistral");
    refuse("deepseek_v3", "", HR_ERR_UNSUPPORTED, "deepseek_v3");
}

static void other_rope_types_are_refused_with_the_list(void **state) {
    refuse("llama", "\"rope_scaling\":{\"rope_type\":\"mrope\",\"factor\":4}", HR_ERR_UNSUPPORTED,
           "rope type mrope is not supported; supported are default, linear, dynamic, llama3");
    refuse("llama", "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}",
           HR_ERR_UNSUPPORTED, "rope_parameters");
    refuse("llama", "\"partial_rotary_factor\":0.5", HR_ERR_UNSUPPORTED, "partial_rotary_factor");
    refuse("llama", "\"rope_scaling\":{\"type\":\"linear\"}", HR_ERR_FORMAT, "factor");
    refuse("llama", "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}", HR_ERR_FORMAT,
           "low_freq_factor");
    refuse("llama", "\"rope_scaling\":[1]", HR_ERR_FORMAT, "rope_scaling");
}

/* The window, and '1' for each of the two layers that slides. */
static void expect_window(const char *type, const char *more, int window, const char *slides) {
    struct hr_model_config c = accept(type, more);
    assert_int_equal(c.window, window);
    for (int i = 0; i < 2; i++)
        if (!!(c.layer[i] & HR_LAYER_SLIDING) != (slides[i] == '1'))
            fail_msg("%s with %s: layer %d", type, more, i);
}

static void windows_cut_the_layers_that_slide(void **state) {
    expect_window("mistral", "\"sliding_window\":512", 512, "11");
    expect_window("mistral", "\"sliding_window\":1023", 1023, "11");
    expect_window("mistral", "\"sliding_window\":null", 0, "11");
    expect_window("mistral", "\"sliding_window\":1024", 0, "11");
    expect_window("mistral", "", 0, "11"); /* the default of 4096 is longer than this context */
    refuse("mistral", "\"sliding_window\":\"x\"", HR_ERR_FORMAT, "sliding_window");
    refuse("mistral", "\"sliding_window\":0", HR_ERR_FORMAT, "sliding_window");
    expect_window("llama", "\"sliding_window\":512", 0, "00");
    expect_window("qwen2", "\"sliding_window\":512,\"use_sliding_window\":false", 0, "00");
    expect_window("qwen2", "\"sliding_window\":512", 0, "00");
    expect_window("qwen2", "\"sliding_window\":512,\"use_sliding_window\":true", 512, "00");
    expect_window("qwen2",
                  "\"sliding_window\":512,\"use_sliding_window\":true,\"max_window_layers\":1",
                  512, "01");
    expect_window("qwen3",
                  "\"sliding_window\":512,\"use_sliding_window\":true,"
                  "\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
                  512, "10");
    refuse("qwen3", "\"layer_types\":[\"full_attention\"]", HR_ERR_FORMAT, "layer_types");
    refuse("llama", "\"layer_types\":[\"chunked_attention\"]", HR_ERR_UNSUPPORTED, "layer_types");
    refuse("llama", "\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
           HR_ERR_UNSUPPORTED, "layer_types");
}

/* Layers are marked in a table of fixed size. */
static void more_layers_than_any_model_has_are_refused(void **state) {
    static const char text[] =
        "{\"model_type\":\"mistral\",\"hidden_size\":64,\"num_hidden_layers\":100000,"
        "\"num_attention_heads\":4,\"intermediate_size\":96,\"vocab_size\":264,"
        "\"max_position_embeddings\":1024}";
    struct hr_json *root = NULL;
    struct hr_model_config c;
    struct hr_err err = {0};
    assert_int_equal(hr_json_parse(text, strlen(text), &root, &err), HR_OK);
    assert_int_equal(hr_model_config_from_json(root, &c, &err), HR_ERR_FORMAT);
    assert_says(&err, "layers: 100000");
    hr_json_free(&root);
}

#define SETS                                                                                       \
    "\"short_factor\":[1,1,1,1,1,1,1,2],\"long_factor\":[1,2,3,4,5,6,7,8]"

static void longrope_takes_the_set_of_the_models_context(void **state) {
    struct hr_model_config c =
        accept("phi3", "\"rope_scaling\":{\"type\":\"su\"," SETS "},"
                       "\"original_max_position_embeddings\":256");
    assert_int_equal(c.rope.type, HR_ROPE_LONGROPE);
    assert_true(c.fused && c.rope.divisor[7] == 8 && c.rope.factor == 4);
    assert_true(fabs(c.rope.attention_factor - sqrt(1 + log(4) / log(256))) < 1e-12);
    c = accept("phi3", "\"rope_scaling\":{\"type\":\"longrope\"," SETS "},"
                       "\"original_max_position_embeddings\":1024");
    assert_true(c.rope.divisor[7] == 2 && c.rope.attention_factor == 1);
    c = accept("phi3", "\"rope_scaling\":{\"type\":\"yarn\",\"attention_factor\":1.25," SETS "},"
                       "\"original_max_position_embeddings\":256");
    assert_true(c.rope.type == HR_ROPE_LONGROPE && c.rope.attention_factor == 1.25);
    c = accept("phi3", "\"rope_scaling\":null,\"partial_rotary_factor\":0.75");
    assert_true(c.rope.type == HR_ROPE_DEFAULT && c.rope_dim == 12 && c.head_dim == 16);
    expect_window("phi3", "", 0, "11");
    expect_window("phi3", "\"sliding_window\":null", 0, "11");
    expect_window("phi3", "\"sliding_window\":200", 200, "11");
    refuse("phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2]}", HR_ERR_FORMAT,
           "short_factor");
    refuse("phi3",
           "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,0],"
           "\"long_factor\":[1,2,3,4,5,6,7,8]}",
           HR_ERR_FORMAT, "short_factor");
    refuse("phi3", "\"partial_rotary_factor\":1.5", HR_ERR_UNSUPPORTED, "partial_rotary_factor");
}

static void gemma3_is_read_in_both_spellings(void **state) {
    struct hr_model_config old =
        accept("gemma3_text", "\"head_dim\":16,\"rope_theta\":5e5,\"rope_local_base_freq\":2e4,"
                              "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8},"
                              "\"sliding_window\":512,\"sliding_window_pattern\":2");
    struct hr_model_config now =
        accept("gemma3_text",
               "\"head_dim\":16,\"sliding_window\":512,\"rope_parameters\":{"
               "\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":5e5},"
               "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":2e4}},"
               "\"layer_types\":[\"sliding_attention\",\"full_attention\"]");
    assert_memory_equal(&old, &now, sizeof old);
    assert_true(old.two_ropes && old.rope.type == HR_ROPE_LINEAR && old.rope.theta == 5e5);
    assert_true(old.sliding_rope.type == HR_ROPE_DEFAULT && old.sliding_rope.theta == 2e4);
    assert_true(old.window == 512 && old.layer[0] && !old.layer[1]);
    assert_true(old.post_norms && old.norm_plus_one && old.gelu && old.root_scale && old.qk_norm);
    assert_true(old.tied_embeddings && old.n_kv_heads == 4 && old.attn_scale == 1.0 / 16);
    assert_true(old.attn_softcap == 0 && old.final_softcap == 0);
    struct hr_model_config c = accept("gemma3_text", "\"attn_logit_softcapping\":50.0");
    assert_true(c.head_dim == 256 && c.rope.theta == 1e6 && c.sliding_rope.theta == 1e4);
    assert_true(c.attn_softcap == 0); /* the reference does not apply it either */
    refuse("gemma3_text", "\"rope_parameters\":{\"rope_type\":\"default\"}", HR_ERR_UNSUPPORTED,
           "rope_parameters");
    refuse("gemma3_text", "\"use_bidirectional_attention\":true", HR_ERR_UNSUPPORTED,
           "use_bidirectional_attention");
    refuse("gemma3_text", "\"hidden_activation\":\"gelu\"", HR_ERR_UNSUPPORTED,
           "hidden_activation\": only gelu_pytorch_tanh");
}

static void gemma2_has_caps(void **state) {
    struct hr_model_config c = accept("gemma2", "\"query_pre_attn_scalar\":144");
    assert_true(c.attn_softcap == 50 && c.final_softcap == 30 && !c.two_ropes && !c.qk_norm);
    assert_true(c.attn_scale == 1.0 / 12 && c.rope.theta == 10000);
    expect_window("gemma2", "\"sliding_window\":512", 512, "10");
    c = accept("gemma2", "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":20");
    assert_true(c.attn_softcap == 0 && c.final_softcap == 20);
    refuse("gemma2", "\"final_logit_softcapping\":-1", HR_ERR_FORMAT, "final_logit_softcapping");
}

static void smollm3_has_layers_without_rotation(void **state) {
    struct hr_model_config c = accept("smollm3", "\"no_rope_layers\":[1,0],\"sliding_window\":null");
    assert_true(c.layer[0] == 0 && c.layer[1] & HR_LAYER_NO_ROPE && c.window == 0);
    assert_true(c.tied_embeddings && c.rope.theta == 2e6 && c.n_kv_heads == 4);
    c = accept("smollm3", "\"no_rope_layer_interval\":2");
    assert_true(!(c.layer[0] & HR_LAYER_NO_ROPE) && c.layer[1] & HR_LAYER_NO_ROPE);
    c = accept("smollm3", "");
    assert_true(!(c.layer[1] & HR_LAYER_NO_ROPE));
    expect_window("smollm3",
                  "\"no_rope_layers\":[1,0],\"use_sliding_window\":true,\"sliding_window\":99", 99,
                  "01");
    refuse("smollm3", "\"no_rope_layers\":[1]", HR_ERR_FORMAT, "no_rope_layers");
    refuse("smollm3", "\"no_rope_layers\":[1,\"x\"]", HR_ERR_FORMAT, "no_rope_layers");
    accept("llama", "\"no_rope_layers\":[1]"); /* its class has no such key */
}

static void yarn_and_dynamic_are_read(void **state) {
    struct hr_model_config c = accept("qwen3", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
                                               "\"original_max_position_embeddings\":256}");
    assert_true(c.rope.type == HR_ROPE_YARN && c.rope.factor == 4 && c.rope.original_ctx == 256);
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && c.rope.truncate);
    assert_true(fabs(c.rope.attention_factor - (0.1 * log(4) + 1)) < 1e-12);
    c = accept("llama", "\"rope_scaling\":{\"type\":\"yarn\",\"truncate\":false,\"mscale\":1.0,"
                        "\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":128}");
    assert_true(c.rope.factor == 8 && c.rope.attention_factor == 1 && !c.rope.truncate);
    c = accept("llama", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,"
                        "\"attention_factor\":1.5,\"beta_fast\":16,\"beta_slow\":2}");
    assert_true(c.rope.attention_factor == 1.5 && c.rope.beta_fast == 16 && c.rope.beta_slow == 2);
    assert_int_equal(c.rope.original_ctx, 1024);
    refuse("llama", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_slow\":40}",
           HR_ERR_FORMAT, "beta_fast");
    c = accept("llama", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}");
    assert_true(c.rope.type == HR_ROPE_DYNAMIC && c.rope.factor == 4);
    assert_true(c.rope.attention_factor == 1);
}

static void olmo2_has_norms_behind_its_blocks_alone(void **state) {
    struct hr_model_config c = accept("olmo2", "");
    assert_true(c.no_pre_norms && c.post_norms && c.qk_norm && c.qk_norm_wide && !c.norm_plus_one);
    assert_true(c.rms_eps == 1e-5f && !c.tied_embeddings && !c.gelu && !c.root_scale);
}

static void other_computations_are_refused(void **state) {
    refuse("llama", "\"hidden_act\":\"gelu\"", HR_ERR_UNSUPPORTED, "hidden_act");
    refuse("llama", "\"quantization_config\":{\"quant_method\":\"gptq\"}", HR_ERR_UNSUPPORTED,
           "quantization_config");
}

static void impossible_numbers_are_refused(void **state) {
    refuse("llama", "\"num_key_value_heads\":3", HR_ERR_FORMAT, "multiple of 3");
    refuse("llama", "\"head_dim\":15", HR_ERR_FORMAT, "odd");
    refuse("llama", "\"head_dim\":0", HR_ERR_FORMAT, "head_dim");
    refuse("llama", "\"head_dim\":-16", HR_ERR_FORMAT, "head_dim");
    refuse("llama", "\"head_dim\":1e3", HR_ERR_FORMAT, "head_dim");
    refuse("llama", "\"num_key_value_heads\":99999999999", HR_ERR_FORMAT, "num_key_value_heads");
    refuse("llama", "\"head_dim\":1073741824", HR_ERR_FORMAT, "head size");
    refuse("llama", "\"rms_norm_eps\":-1e-5", HR_ERR_FORMAT, "rms_norm_eps");
    refuse("llama", "\"rms_norm_eps\":\"1e-5\"", HR_ERR_FORMAT, "rms_norm_eps");
    refuse("llama", "\"rope_theta\":0", HR_ERR_FORMAT, "rope_theta");
    refuse("llama", "\"tie_word_embeddings\":\"yes\"", HR_ERR_FORMAT, "tie_word_embeddings");
    refuse("llama",
           "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
           "\"high_freq_factor\":1,\"original_max_position_embeddings\":512}",
           HR_ERR_FORMAT, "high_freq_factor");
}

static void a_missing_key_is_named(void **state) {
    struct hr_json *root = NULL;
    struct hr_model_config c;
    struct hr_err err = {0};
    static const char *const texts[] = {
        "{}",
        "{\"model_type\":\"llama\"}",
        "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64}",
    };
    static const char *const keys[] = {"model_type", "num_hidden_layers", "num_attention_heads"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(hr_json_parse(texts[i], strlen(texts[i]), &root, &err), HR_OK);
        assert_int_equal(hr_model_config_from_json(root, &c, &err), HR_ERR_FORMAT);
        assert_says(&err, keys[i]);
        hr_json_free(&root);
    }
}

static void open_golden(const char *name, struct hr_model_file **mf) {
    char path[1024];
    struct hr_err err;
    const char *root = getenv("HEADRACE_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/%s/", root ? root : ".", name);
    if (hr_model_file_open(path, mf, &err)) fail_msg("%s", err.msg);
}

static void the_directories_that_transformers_writes_open(void **state) {
    struct hr_model_file *mf = NULL;
    open_golden("tiny-llama3", &mf);
    assert_int_equal(hr_model_file_config(mf)->rope.type, HR_ROPE_LLAMA3);
    assert_true(hr_model_file_config(mf)->mlp_bias);
    assert_non_null(hr_model_file_tensor(mf, "model.layers.1.mlp.down_proj.bias"));
    assert_string_equal(hr_model_file_describe(mf), "tiny-llama3, safetensors BF16");
    assert_false(hr_model_file_is_gguf(mf));
    hr_model_file_close(&mf);
    open_golden("tiny-qwen2", &mf);
    assert_true(hr_model_file_config(mf)->tied_embeddings);
    assert_null(hr_model_file_tensor(mf, "model.layers.1.self_attn.o_proj.bias"));
    hr_model_file_close(&mf);
    open_golden("tiny-qwen3", &mf);
    assert_int_equal(hr_model_file_config(mf)->head_dim, 32);
    assert_int_equal(hr_model_file_config(mf)->rope.type, HR_ROPE_LINEAR);
    hr_model_file_close(&mf);
}

static void text_alone_asks_for_no_weights(void **state) {
    struct hr_model_file *mf = NULL;
    struct hr_err err;
    if (hr_model_file_open_text("/tmp", &mf, &err)) fail_msg("%s", err.msg);
    assert_null(hr_model_file_config(mf));
    assert_null(hr_model_file_tensor(mf, "model.norm.weight"));
    assert_string_equal(hr_model_file_dir(mf), "/tmp");
    hr_model_file_close(&mf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_transformers),
        cmocka_unit_test(what_is_stated_is_read),
        cmocka_unit_test(both_spellings_of_rope_mean_the_same),
        cmocka_unit_test(other_architectures_are_refused_with_the_list),
        cmocka_unit_test(other_rope_types_are_refused_with_the_list),
        cmocka_unit_test(windows_cut_the_layers_that_slide),
        cmocka_unit_test(more_layers_than_any_model_has_are_refused),
        cmocka_unit_test(longrope_takes_the_set_of_the_models_context),
        cmocka_unit_test(gemma3_is_read_in_both_spellings),
        cmocka_unit_test(gemma2_has_caps),
        cmocka_unit_test(smollm3_has_layers_without_rotation),
        cmocka_unit_test(yarn_and_dynamic_are_read),
        cmocka_unit_test(olmo2_has_norms_behind_its_blocks_alone),
        cmocka_unit_test(other_computations_are_refused),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(a_missing_key_is_named),
        cmocka_unit_test(the_directories_that_transformers_writes_open),
        cmocka_unit_test(text_alone_asks_for_no_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

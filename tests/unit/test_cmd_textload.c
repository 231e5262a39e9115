/* SPDX-License-Identifier: Apache-2.0
 *
 * What cmd/textload promises: which files speak about template, special tokens, end tokens and
 * sampling, and which of them wins. The tokenizer is a golden model's: bytes and three control
 * tokens (256 <|endoftext|>, 257 <|im_start|>, 258 <|im_end|>). */
#include "model_files.h"

#include <sys/stat.h>

#include "base/log.h"
#include "cmd/textload.h"

static char dir[64];

static const char *in_dir(const char *name) {
    static char path[192];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_text(const char *name, const char *text) {
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A folder that holds tokenizer.json alone. */
static int make_dir(void **state) {
    char path[1024];
    struct hr_buf text = {0};
    const char *root = getenv("HEADRACE_ROOT");
    snprintf(dir, sizeof dir, "/tmp/headrace-test-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/tests/golden/tiny-llama3/tokenizer.json", root ? root : ".");
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    hr_buf_reserve(&text, 1 << 16);
    text.len = fread(text.data, 1, 1 << 16, f);
    fclose(f);
    write_text("tokenizer.json", hr_buf_cstr(&text));
    hr_buf_finish(&text);
    return 0;
}

static int remove_dir(void **state) {
    static const char *const names[] = {
        "tokenizer.json",          "tokenizer_config.json",
        "special_tokens_map.json", "config.json",
        "generation_config.json",  "chat_template.jinja",
        "override.jinja",          "additional_chat_templates/tool_use.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(in_dir(names[i]));
    rmdir(in_dir("additional_chat_templates"));
    return rmdir(dir);
}

static enum hr_status open_text(const char *override, struct hr_model_text *t, struct hr_err *err) {
    struct hr_model_file *mf = NULL;
    if (hr_model_file_open_text(dir, &mf, err)) fail_msg("%s", err->msg);
    enum hr_status rc = hr_model_text_open(mf, override, t, err);
    hr_model_file_close(&mf); /* the text must not need it */
    return rc;
}

static void load(struct hr_model_text *t) {
    struct hr_err err = {0};
    *t = (struct hr_model_text){0};
    if (open_text(NULL, t, &err)) fail_msg("%s", err.msg);
}

static void assert_refused_saying(const char *what) {
    struct hr_model_text t = {0};
    struct hr_err err = {0};
    assert_int_not_equal(open_text(NULL, &t, &err), HR_OK);
    assert_says(&err, what);
    assert_null(t.tokenizer);
}

static void assert_renders(const struct hr_template *t, const char *want) {
    struct hr_rendered r = {0};
    struct hr_err err = {0};
    assert_non_null(t);
    if (hr_template_render(t, NULL, 0, NULL, &hr_template_limits_default, &r, &err))
        fail_msg("%s", err.msg);
    assert_string_equal(hr_buf_cstr(&r.text), want);
    hr_rendered_finish(&r);
}

static void assert_eos(const struct hr_model_text *t, int n, const int32_t *ids) {
    assert_int_equal(t->n_eos, n);
    for (int i = 0; i < n; i++) assert_int_equal(t->eos_ids[i], ids[i]);
}

static void a_tokenizer_alone_is_enough(void **state) {
    struct hr_model_text t;
    load(&t);
    assert_non_null(t.tokenizer);
    assert_null(t.chat_template);
    assert_null(t.template_origin);
    assert_string_equal(t.template_hash, "");
    assert_int_equal(strlen(t.tokenizer_hash), 64);
    assert_true(t.n_eos == 0 && t.n_special == 0 && t.bos_id == -1 && !t.add_bos);
    assert_true(!t.generation.has_temperature && !t.generation.has_top_k);
    assert_null(hr_model_text_template(&t, true));
    hr_model_text_finish(&t);
    unlink(in_dir("tokenizer.json"));
    assert_refused_saying("tokenizer.json");
}

static void end_tokens_are_the_union_of_all_files(void **state) {
    struct hr_model_text t;
    write_text("generation_config.json", "{\"eos_token_id\":[258,7]}");
    write_text("config.json", "{\"eos_token_id\":9}");
    write_text("tokenizer_config.json", "{\"eos_token\":\"<|endoftext|>\"}");
    load(&t);
    assert_eos(&t, 4, (const int32_t[]){7, 9, 256, 258});
    hr_model_text_finish(&t);
    write_text("generation_config.json", "{\"eos_token_id\":258}");
    write_text("config.json", "{\"eos_token_id\":[258,258]}");
    write_text("tokenizer_config.json", "{\"eos_token\":{\"content\":\"<|im_end|>\"}}");
    load(&t);
    assert_eos(&t, 1, (const int32_t[]){258});
    assert_string_equal(t.eos_token, "<|im_end|>");
    hr_model_text_finish(&t);
    write_text("config.json", "{\"eos_token_id\":null}");
    write_text("generation_config.json", "{}");
    load(&t);
    assert_eos(&t, 1, (const int32_t[]){258});
    hr_model_text_finish(&t);
    write_text("generation_config.json", "{\"eos_token_id\":[7.0]}");
    load(&t);
    assert_eos(&t, 2, (const int32_t[]){7, 258});
    hr_model_text_finish(&t);
}

static void an_end_token_that_is_none_is_shown(void **state) {
    static const char *const bad[] = {"-1", "\"2\"", "true", "[1,null]", "[2.5]", "[[1]]", "99999999999"};
    static const char *const shown[] = {"-1", "\"2\"", "true", "null", "2.5", "[1]", "99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64], said[128];
        snprintf(text, sizeof text, "{\"eos_token_id\":%s}", bad[i]);
        snprintf(said, sizeof said, "generation_config.json: \"eos_token_id\" must be a token id or a list of them; %s is",
                 shown[i]);
        write_text("generation_config.json", text);
        assert_refused_saying(said);
    }
}

static void keep_line(void *arg, enum hr_log_level level, const char *line, size_t len) {
    if (level == HR_LOG_WARN) hr_buf_append(arg, line, len);
}

static void an_end_token_outside_the_vocabulary_is_warned_of(void **state) {
    struct hr_model_text t;
    struct hr_buf said = {0};
    hr_log_set_sink(keep_line, &said);
    write_text("generation_config.json", "{\"eos_token_id\":[258,99999]}");
    load(&t);
    hr_log_set_sink(NULL, NULL);
    assert_eos(&t, 2, (const int32_t[]){258, 99999});
    assert_non_null(strstr(hr_buf_cstr(&said), "end token 99999 is outside the tokenizer's vocabulary of 259"));
    assert_null(strstr(hr_buf_cstr(&said), "end token 258"));
    hr_buf_finish(&said);
    hr_model_text_finish(&t);
}

static void a_template_that_cannot_be_used_is_not_none(void **state) {
    static const struct {
        const char *json, *said;
    } cases[] = {
        {"null", "the model has no chat template"},
        {"5", "is neither a string nor a list of named ones, but 5"},
        {"{\"default\":\"x\"}", "but {\"default\":\"x\"}"},
        {"[]", "is a list without one that is named \"default\""},
        {"[{\"name\":\"tool_use\",\"template\":\"x\"}]", "is a list without one that is named \"default\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hr_model_text t;
        char text[96];
        snprintf(text, sizeof text, "{\"chat_template\":%s}", cases[i].json);
        write_text("tokenizer_config.json", text);
        load(&t);
        assert_null(t.chat_template);
        if (!strstr(t.no_template, cases[i].said)) fail_msg("%s gives: %s", cases[i].json, t.no_template);
        hr_model_text_finish(&t);
    }
    write_text("chat_template.jinja", "file"); /* which wins */
    struct hr_model_text t;
    load(&t);
    assert_null(t.no_template);
    hr_model_text_finish(&t);
}

static void special_tokens_are_variables_of_the_template(void **state) {
    struct hr_model_text t;
    write_text("tokenizer_config.json",
               "{\"bos_token\":\"<|im_start|>\",\"unk_token\":null,\"add_bos_token\":true,"
               "\"pad_token\":{\"content\":\"a\\\"b\"}}");
    write_text("special_tokens_map.json",
               "{\"bos_token\":\"<|endoftext|>\",\"eos_token\":\"<|im_end|>\"}");
    load(&t);
    assert_int_equal(t.n_special, 3);
    static const char *const want[][2] = {{"bos_token", "\"<|im_start|>\""},
                                          {"eos_token", "\"<|im_end|>\""},
                                          {"pad_token", "\"a\\\"b\""}};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(t.special[i].name, want[i][0]);
        assert_int_equal(t.special[i].json_len, strlen(want[i][1]));
        assert_memory_equal(t.special[i].json, want[i][1], t.special[i].json_len);
        assert_true(t.special[i].trusted);
    }
    assert_true(t.bos_id == 257 && t.add_bos);
    assert_string_equal(t.bos_token, "<|im_start|>");
    hr_model_text_finish(&t);
}

static void the_template_file_wins_over_the_configuration(void **state) {
    struct hr_model_text t;
    char hash[65];
    write_text("tokenizer_config.json", "{\"chat_template\":\"from config\"}");
    load(&t);
    assert_renders(t.chat_template, "from config");
    assert_string_equal(t.template_origin, "tokenizer_config.json");
    memcpy(hash, t.template_hash, sizeof hash);
    hr_model_text_finish(&t);
    write_text("chat_template.jinja", "from file");
    load(&t);
    assert_renders(t.chat_template, "from file");
    assert_string_equal(t.template_origin, "chat_template.jinja");
    assert_string_not_equal(t.template_hash, hash);
    hr_model_text_finish(&t);
    write_text("override.jinja", "from the command line");
    struct hr_err err;
    t = (struct hr_model_text){0};
    assert_int_equal(open_text(in_dir("override.jinja"), &t, &err), HR_OK);
    assert_renders(t.chat_template, "from the command line");
    hr_model_text_finish(&t);
    assert_int_equal(open_text("no/such.jinja", &t, &err), HR_ERR_NOTFOUND);
    assert_says(&err, "no/such.jinja");
}

static void rows_with_tools_get_the_tool_template(void **state) {
    struct hr_model_text t;
    write_text("tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"tools\"},"
               "{\"name\":\"rag\",\"template\":\"rag\"},"
               "{\"name\":\"default\",\"template\":\"old\"},"
               "{\"name\":\"default\",\"template\":\"plain\"}]}");
    load(&t);
    assert_renders(hr_model_text_template(&t, false), "plain");
    assert_renders(hr_model_text_template(&t, true), "tools");
    hr_model_text_finish(&t);
    write_text("chat_template.jinja", "file");
    load(&t);
    assert_renders(hr_model_text_template(&t, true), "file");
    hr_model_text_finish(&t);
    assert_int_equal(mkdir(in_dir("additional_chat_templates"), 0700), 0);
    write_text("additional_chat_templates/tool_use.jinja", "tool file");
    load(&t);
    assert_renders(hr_model_text_template(&t, false), "file");
    assert_renders(hr_model_text_template(&t, true), "tool file");
    hr_model_text_finish(&t);
}

static void assert_described(const char *want) {
    struct hr_model_text t;
    struct hr_buf text = {0};
    load(&t);
    hr_model_text_describe_templates(&t, &text);
    assert_string_equal(hr_buf_cstr(&text), want);
    hr_buf_finish(&text);
    hr_model_text_finish(&t);
}

/* The hashes are those of `printf TEXT | sha256sum`. */
static void templates_are_described_with_file_name_and_hash(void **state) {
    write_text("tokenizer_config.json", "{\"chat_template\":\"plain\"}");
    assert_described("tokenizer_config.json (sha256 a116c9ed46d62077)");
    write_text("tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"tools\"},"
               "{\"name\":\"default\",\"template\":\"plain\"}]}");
    assert_described("tokenizer_config.json: default (sha256 a116c9ed46d62077); for rows with tools "
                     "tokenizer_config.json: tool_use (sha256 f9d35d43770d3909)");
    write_text("chat_template.jinja", "file");
    assert_described("chat_template.jinja (sha256 3b9c358f36f0a31b)");
    assert_int_equal(mkdir(in_dir("additional_chat_templates"), 0700), 0);
    write_text("additional_chat_templates/tool_use.jinja", "tools");
    assert_described("chat_template.jinja (sha256 3b9c358f36f0a31b); for rows with tools "
                     "additional_chat_templates/tool_use.jinja (sha256 f9d35d43770d3909)");
}

static void a_broken_template_is_told_with_its_origin(void **state) {
    write_text("chat_template.jinja", "{% if %}");
    assert_refused_saying("chat template (chat_template.jinja)");
}

static void makers_sampling_is_taken_as_stated(void **state) {
    struct hr_model_text t;
    write_text("generation_config.json",
               "{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.95,\"top_k\":0,"
               "\"repetition_penalty\":1.05,\"min_p\":null}");
    load(&t);
    const struct hr_sampling_spec *g = &t.generation;
    assert_true(g->has_temperature && g->temperature == 0.6);
    assert_true(g->has_top_p && g->top_p == 0.95);
    assert_true(g->has_top_k && g->top_k == 0);
    assert_true(g->has_repetition_penalty && g->repetition_penalty == 1.05);
    assert_true(!g->has_min_p && !g->has_max_tokens && !g->has_seed);
    hr_model_text_finish(&t);
    write_text("generation_config.json", "{\"do_sample\":false,\"temperature\":0.6,\"top_p\":0.5}");
    load(&t);
    assert_true(t.generation.has_temperature && t.generation.temperature == 0);
    assert_false(t.generation.has_top_p);
    hr_model_text_finish(&t);
    static const char *const bad[] = {"\"temperature\":-1", "\"top_p\":0", "\"top_p\":\"x\"",
                                      "\"top_k\":1.5", "\"repetition_penalty\":0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "{%s}", bad[i]);
        write_text("generation_config.json", text);
        assert_refused_saying("generation_config.json: key");
    }
}

/* The vocabulary of a GGUF file: three tokens, of which two are control tokens. */
static void gguf_vocab(struct gguf_file *f) {
    static const char *const tokens[] = {"a", "<s>", "</s>"};
    static const uint32_t types[] = {HR_TOKEN_NORMAL, HR_TOKEN_CONTROL, HR_TOKEN_CONTROL};
    kv_str(f, "tokenizer.ggml.model", "gpt2");
    kv_str(f, "tokenizer.ggml.pre", "smollm");
    kv_key(f, "tokenizer.ggml.tokens", HR_GGUF_ARRAY);
    put_u32(&f->kv, HR_GGUF_STRING);
    put_u64(&f->kv, 3);
    for (int i = 0; i < 3; i++) put_str(&f->kv, tokens[i]);
    kv_key(f, "tokenizer.ggml.token_type", HR_GGUF_ARRAY);
    put_u32(&f->kv, HR_GGUF_I32);
    put_u64(&f->kv, 3);
    for (int i = 0; i < 3; i++) put_u32(&f->kv, types[i]);
    kv_u32(f, "tokenizer.ggml.bos_token_id", 1);
    kv_u32(f, "tokenizer.ggml.eos_token_id", 2);
}

static enum hr_status open_gguf_text(struct gguf_file *f, struct hr_model_text *t,
                                     struct hr_err *err) {
    struct hr_model_file *mf = NULL;
    struct hr_buf bytes = {0};
    gguf_write(f, &bytes);
    FILE *file = fopen(in_dir("tokenizer.json"), "wb"); /* a name that remove_dir knows */
    assert_non_null(file);
    assert_int_equal(fwrite(bytes.data, 1, bytes.len, file), bytes.len);
    assert_int_equal(fclose(file), 0);
    hr_buf_finish(&bytes);
    *err = (struct hr_err){0};
    *t = (struct hr_model_text){0};
    if (hr_model_file_open_text(in_dir("tokenizer.json"), &mf, err)) fail_msg("%s", err->msg);
    enum hr_status rc = hr_model_text_open(mf, NULL, t, err);
    hr_model_file_close(&mf);
    return rc;
}

static void a_gguf_file_says_it_all_by_itself(void **state) {
    struct gguf_file f = {0};
    struct hr_model_text t;
    struct hr_err err;
    gguf_vocab(&f);
    kv_u32(&f, "tokenizer.ggml.eot_token_id", 0);
    kv_key(&f, "tokenizer.ggml.add_bos_token", HR_GGUF_BOOL);
    hr_buf_putc(&f.kv, 1);
    kv_str(&f, "tokenizer.chat_template", "gguf");
    kv_str(&f, "tokenizer.chat_template.tool_use", "gguf tools");
    if (open_gguf_text(&f, &t, &err)) fail_msg("%s", err.msg);
    assert_eos(&t, 2, (const int32_t[]){0, 2});
    assert_true(t.bos_id == 1 && t.add_bos);
    assert_string_equal(t.bos_token, "<s>");
    assert_string_equal(t.eos_token, "</s>");
    assert_renders(hr_model_text_template(&t, false), "gguf");
    assert_renders(hr_model_text_template(&t, true), "gguf tools");
    assert_string_equal(t.template_origin, "tokenizer.chat_template");
    assert_int_equal(strlen(t.tokenizer_hash), 64);
    hr_model_text_finish(&t);
    gguf_finish(&f);
}

static void a_lying_gguf_vocabulary_is_refused(void **state) {
    struct gguf_file f = {0};
    struct hr_model_text t;
    struct hr_err err;
    gguf_vocab(&f);
    kv_u32(&f, "tokenizer.ggml.eom_token_id", 3);
    assert_int_equal(open_gguf_text(&f, &t, &err), HR_ERR_FORMAT);
    assert_says(&err, "tokenizer.ggml.eom_token_id");
    gguf_finish(&f);
    kv_str(&f, "tokenizer.ggml.model", "gpt2");
    assert_int_equal(open_gguf_text(&f, &t, &err), HR_ERR_FORMAT);
    assert_says(&err, "tokenizer.ggml.tokens is missing");
    kv_key(&f, "tokenizer.ggml.tokens", HR_GGUF_ARRAY);
    put_u32(&f.kv, HR_GGUF_U32);
    put_u64(&f.kv, 1);
    put_u32(&f.kv, 7);
    assert_int_equal(open_gguf_text(&f, &t, &err), HR_ERR_FORMAT);
    assert_says(&err, "tokenizer.ggml.tokens is not an array of strings");
    gguf_finish(&f);
    gguf_vocab(&f);
    char *types = memmem(f.kv.data, f.kv.len, "token_type", 10);
    types[10 + 4] = HR_GGUF_U8; /* twelve bytes instead of three numbers */
    types[10 + 4 + 4] = 12;
    assert_int_equal(open_gguf_text(&f, &t, &err), HR_ERR_FORMAT);
    assert_says(&err, "token_type has 12 entries for 3 tokens");
    gguf_finish(&f);
}

int main(void) {
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        IN_DIR(a_tokenizer_alone_is_enough),
        IN_DIR(end_tokens_are_the_union_of_all_files),
        IN_DIR(an_end_token_that_is_none_is_shown),
        IN_DIR(an_end_token_outside_the_vocabulary_is_warned_of),
        IN_DIR(a_template_that_cannot_be_used_is_not_none),
        IN_DIR(special_tokens_are_variables_of_the_template),
        IN_DIR(the_template_file_wins_over_the_configuration),
        IN_DIR(rows_with_tools_get_the_tool_template),
        IN_DIR(templates_are_described_with_file_name_and_hash),
        IN_DIR(a_broken_template_is_told_with_its_origin),
        IN_DIR(makers_sampling_is_taken_as_stated),
        IN_DIR(a_gguf_file_says_it_all_by_itself),
        IN_DIR(a_lying_gguf_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

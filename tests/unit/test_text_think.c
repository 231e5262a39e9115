/* SPDX-License-Identifier: Apache-2.0
 *
 * think: the tags of chat templates, and prompts that open them. With the kit (HEADRACE_KIT or
 * ../shared/kit beside the repository): what real templates name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/think.h"

static void expect_tags(const char *source, size_t len, const char *open, const char *close) {
    struct hr_think t;
    hr_think_detect(source, len, &t);
    if (!open) {
        if (t.open || t.close) fail_msg("%s in a source of %zu bytes", t.close ? t.close : "?", len);
    } else {
        assert_non_null(t.open);
        assert_string_equal(t.open, open);
        assert_string_equal(t.close, close);
    }
    hr_think_finish(&t);
    hr_think_finish(&t);
}

static void expect(const char *source, const char *open, const char *close) {
    expect_tags(source, strlen(source), open, close);
}

static void tags_are_found_by_the_one_that_closes(void **state) {
    (void)state;
    expect("{{ c.split('</think>')[-1].lstrip('\\n') }}", "<think>", "</think>");
    expect("a</b></ think></no-thought></seed:think>", "<seed:think>", "</seed:think>");
    expect("</thinking></think>", "<thinking>", "</thinking>");
    expect("[/THINK]", "[THINK]", "[/THINK]");
    expect("<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>");
    expect("'<|channel>thought\\n<channel|>'", "<|channel>thought\n", "<channel|>");
    expect("[/THINK]</think>", "<think>", "</think>");
    expect("</think", NULL, NULL);
    expect("</think_more>", NULL, NULL);
    expect("</", NULL, NULL);
    expect("<think> enable_thinking /think", NULL, NULL);
    expect("<|start|>assistant<|channel|>analysis<|message|>", NULL, NULL);
    expect_tags(NULL, 0, NULL, NULL);
    expect_tags("</think>", 7, NULL, NULL); /* its last byte is not of the source */
}

static bool is_begun(const char *prompt, size_t len, const char *open, struct hr_span *user, size_t n_user) {
    struct hr_rendered r = {.user = user, .n_user = n_user};
    hr_buf_append(&r.text, prompt, len);
    bool begun = hr_think_is_begun(&r, open, strlen(open));
    hr_buf_finish(&r.text);
    return begun;
}

static void a_prompt_begins_the_reasoning_when_it_ends_with_the_tag(void **state) {
    (void)state;
    static const struct {
        const char *prompt;
        bool want;
    } cases[] = {
        {"<|im_start|>assistant\n<think>\n", true}, {"<think>", true}, {"<think> \t\r\n\n", true},
        {"<think>\n\n</think>\n\n", false},         {"<think>.", false}, {"think>", false},
        {"", false},                                {" ", false},        {"<think", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(is_begun(cases[i].prompt, strlen(cases[i].prompt), "<think>", NULL, 0) == cases[i].want);
    const char *channel = "<|channel>thought\n";
    assert_true(is_begun("x<|channel>thought\n", 19, channel, NULL, 0));
    assert_false(is_begun("x<|channel>thought", 18, channel, NULL, 0));
    assert_false(hr_think_is_begun(&(struct hr_rendered){0}, "<think>", 7));
}

static void a_tag_that_a_user_wrote_is_text(void **state) {
    (void)state;
    struct hr_span before[] = {{0, 1}, {1, 2}}, last[] = {{0, 2}, {8, 9}}, behind[] = {{9, 10}};
    assert_true(is_begun("hi<think>\n", 10, "<think>", before, 2));
    assert_false(is_begun("hi<think>\n", 10, "<think>", last, 2));
    assert_true(is_begun("hi<think>\n", 10, "<think>", behind, 1));
    assert_false(is_begun("hi<think>\n", 10, "<think>", &(struct hr_span){0, 3}, 1));
}

static void expect_kit(const char *kit, const char *name, const char *open, const char *close) {
    struct hr_buf path = {0}, text = {0};
    char chunk[4096];
    hr_buf_printf(&path, "%s/templates/%s.jinja", kit, name);
    FILE *f = fopen(hr_buf_cstr(&path), "rb");
    if (!f) fail_msg("%s is not there", hr_buf_cstr(&path));
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) hr_buf_append(&text, chunk, n);
    fclose(f);
    expect_tags(hr_buf_cstr(&text), text.len, open, close);
    hr_buf_finish(&path);
    hr_buf_finish(&text);
}

static void real_templates_name_their_tags(void **state) {
    (void)state;
    static const char *const plain[] = {
        "Qwen-Qwen3-0.6B", "Qwen-QwQ-32B", "Qwen3.5-4B", "HuggingFaceTB-SmolLM3-3B", "Kimi-K2-Thinking", "GLM-4.6",
        "GLM-4.7-Flash", "cfg-deepseek-r1", "cfg-deepseek-r1-0528-qwen3-8b", "deepseek-ai-DeepSeek-V3.1",
        "deepseek-ai-DeepSeek-V3.2", "MiniMax-M2", "NVIDIA-Nemotron-Nano-v2", "LFM2.5-Instruct",
        "ibm-granite-granite-3.3-2B-Instruct",
    };
    static const char *const none[] = {
        "gguf-smollm2", "Qwen-Qwen2.5-7B-Instruct", "meta-llama-Llama-3.1-8B-Instruct", "ort-phi-3-mini",
        "google-gemma-2-2b-it", "ort-gemma-3", "Kimi-K2-Instruct", "openai-gpt-oss-120b", "Qwen3-Coder",
    };
    const char *kit = getenv("HEADRACE_KIT"), *root = getenv("HEADRACE_ROOT");
    struct hr_buf beside = {0};
    hr_buf_printf(&beside, "%s/../shared/kit", root ? root : ".");
    if (!kit) kit = hr_buf_cstr(&beside);
    FILE *f = fopen(kit, "rb");
    if (!f) {
        hr_buf_finish(&beside);
        print_message("the kit is not there (HEADRACE_KIT or ../shared/kit)\n");
        skip();
    }
    fclose(f);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) expect_kit(kit, plain[i], "<think>", "</think>");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) expect_kit(kit, none[i], NULL, NULL);
    expect_kit(kit, "MiniMax-M3", "<mm:think>", "</mm:think>");
    expect_kit(kit, "ByteDance-Seed-OSS", "<seed:think>", "</seed:think>");
    expect_kit(kit, "mistralai-Ministral-3-14B-Reasoning-2512", "[THINK]", "[/THINK]");
    expect_kit(kit, "Cohere2MoE", "<|START_THINKING|>", "<|END_THINKING|>");
    expect_kit(kit, "google-gemma-4-31B-it", "<|channel>thought\n", "<channel|>");
    hr_buf_finish(&beside);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_found_by_the_one_that_closes),
        cmocka_unit_test(a_prompt_begins_the_reasoning_when_it_ends_with_the_tag),
        cmocka_unit_test(a_tag_that_a_user_wrote_is_text),
        cmocka_unit_test(real_templates_name_their_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

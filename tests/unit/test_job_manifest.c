/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest: every key, every refusal with its words, shards, and outputs that are inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job/manifest.h"
#include "job/prompt.h"

static char dir[64];

static const char *in_dir(const char *name) {
    static char paths[4][160];
    static int i;
    char *p = paths[i++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static void write_file(const char *name, const char *text) {
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_dir(void **state) {
    strcpy(dir, "/tmp/hr-manifest-XXXXXX");
    if (mkdtemp(dir) == NULL) return 1;
    mkdir(in_dir("sub"), 0755);
    mkdir(in_dir("sub/part-dir.jsonl"), 0755);
    mkfifo(in_dir("pipe"), 0644);
    write_file("a.jsonl", "{}\n");
    write_file("sub/part-2.jsonl", "{}\n");
    write_file("sub/part-1.jsonl", "{}\n");
    write_file("sub/x[1].jsonl", "{}\n");
    return symlink("a.jsonl", in_dir("link.jsonl"));
}

static int remove_dir(void **state) {
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static struct hr_manifest *load(const char *text, struct hr_err *err) {
    struct hr_manifest *m = NULL;
    write_file("m.json", text);
    enum hr_status st = hr_manifest_load(in_dir("m.json"), &m, err);
    if (st < 0) {
        assert_int_equal(st, HR_ERR_CONFIG);
        assert_int_equal(err->code, HR_ERR_CONFIG);
        assert_null(m);
        assert_memory_equal(err->msg, in_dir("m.json"),
                            strlen(in_dir("m.json"))); /* begins with the path */
    }
    return m;
}

static struct hr_manifest *loaded(const char *text) {
    struct hr_err err;
    struct hr_manifest *m = load(text, &err);
    if (m == NULL) fail_msg("%s", err.msg);
    return m;
}

static void a_small_manifest_has_the_documented_defaults(void **state) {
    struct hr_manifest *m = loaded("{\"dataset\":\"d\",\"shards\":\"a.jsonl\"}");
    assert_string_equal(m->dataset, "d");
    assert_string_equal(m->id, "id");
    assert_null(m->model);
    assert_null(m->prompt);
    assert_null(m->messages);
    assert_null(m->system);
    assert_true(m->chat);
    assert_false(m->output_token_ids);
    assert_int_equal(m->max_tokens_per_dataset, 0);
    assert_int_equal(m->template_vars.len, 0);
    assert_int_equal(m->thinking, HR_THINKING_MODEL);
    assert_false(m->sampling.has_max_tokens || m->sampling.has_temperature || m->sampling.has_stop);
    assert_int_equal(m->n_shards, 1);
    assert_string_equal(m->shards[0], in_dir("a.jsonl"));
    hr_manifest_destroy(&m);
    assert_null(m);
    hr_manifest_destroy(&m);
}

static void every_key_is_taken(void **state) {
    struct hr_manifest *m =
        loaded("{\"$schema\":\"x\",\"dataset\":\"D_1.x-y\",\"model\":\"models/"
               "m.gguf\",\"shards\":[\"a.jsonl\"],"
               "\"prompt\":\"{q}\\n\\n{c}\",\"messages\":null,\"id\":\"uuid\",\"system\":\"be "
               "brief\",\"chat\":true,"
               "\"sampling\":{\"temperature\":0.8,\"top_p\":1,\"top_k\":-1,\"min_p\":0.05,"
               "\"repetition_penalty\":1.1,"
               "\"presence_penalty\":-2,\"frequency_penalty\":2,\"max_tokens\":8.0,\"stop\":["
               "\"\\n\",\"é\"],"
               "\"stop_token_ids\":[2,13],\"ignore_eos\":true,\"seed\":-5,\"n\":4},"
               "\"max_tokens_per_dataset\":1000000,\"output\":{\"token_ids\":true},"
               "\"template_vars\":{\"enable_thinking\":false},"
               "\"thinking\":{\"open\":\"<t>\\n\",\"close\":\"\\n</t>\"}}");
    const struct hr_sampling_spec *s = &m->sampling;
    assert_string_equal(m->model, in_dir("models/m.gguf"));
    assert_string_equal(m->prompt, "{q}\n\n{c}");
    assert_string_equal(m->id, "uuid");
    assert_string_equal(m->system, "be brief");
    assert_true(s->has_temperature && s->temperature == 0.8 && s->has_top_p && s->top_p == 1);
    assert_true(s->has_top_k && s->top_k == -1 && s->has_min_p && s->min_p == 0.05);
    assert_true(s->has_repetition_penalty && s->repetition_penalty == 1.1);
    assert_true(s->has_presence_penalty && s->presence_penalty == -2);
    assert_true(s->has_frequency_penalty && s->frequency_penalty == 2);
    assert_true(s->has_max_tokens && s->max_tokens == 8 && s->has_seed && s->seed == -5);
    assert_true(s->has_ignore_eos && s->ignore_eos && s->has_n && s->n == 4);
    assert_true(s->has_stop && s->n_stop == 2);
    assert_int_equal(s->stop_len[1], 2);
    assert_string_equal(s->stop[1], "é");
    assert_true(s->has_stop_token_ids && s->stop_token_ids.len == 2 &&
                s->stop_token_ids.data[1] == 13);
    assert_int_equal(m->max_tokens_per_dataset, 1000000);
    assert_true(m->output_token_ids);
    assert_string_equal(hr_buf_cstr(&m->template_vars), "{\"enable_thinking\":false}");
    assert_int_equal(m->thinking, HR_THINKING_TAGS);
    assert_string_equal(m->think_open, "<t>\n");
    assert_string_equal(m->think_close, "\n</t>");
    hr_manifest_destroy(&m);
    m = loaded("{\"dataset\":\"d\",\"shards\":\"a.jsonl\",\"model\":\"/abs/"
               "m\",\"sampling\":{\"max_tokens\":null}}");
    assert_string_equal(m->model, "/abs/m");
    assert_true(m->sampling.has_max_tokens && m->sampling.max_tokens == -1);
    hr_manifest_destroy(&m);
    for (int i = 0; i < 2; i++) {
        m = loaded(i == 0 ? "{\"dataset\":\"d\",\"shards\":\"a.jsonl\",\"thinking\":false}"
                          : "{\"dataset\":\"d\",\"shards\":\"a.jsonl\",\"thinking\":null}");
        assert_int_equal(m->thinking, HR_THINKING_OFF);
        assert_null(m->think_close);
        hr_manifest_destroy(&m);
    }
}

static void wrong_manifests_are_refused_with_the_key_and_what_to_do(void **state) {
    static const struct {
        const char *members, *msg;
    } cases[] = {
        {"\"promt\":\"x\"", "unknown key \"promt\"; did you mean \"prompt\"?"},
        {"\"Prompt\":\"x\"", "unknown key \"Prompt\"; did you mean \"prompt\"?"},
        {"\"max_token_per_dataset\":1", "did you mean \"max_tokens_per_dataset\"?"},
        {"\"sampling\":{\"temprature\":1}",
         "unknown key \"sampling.temprature\"; did you mean \"sampling.temperature\"?"},
        {"\"sampling\":{\"max_completion_tokens\":1}",
         "unknown key \"sampling.max_completion_tokens\""},
        {"\"temperature\":0.5",
         "unknown key \"temperature\"; did you mean \"sampling.temperature\"?"},
        {"\"sampling.temperature\":0.5", "unknown key \"sampling.temperature\""},
        {"\"output\":{\"tokens_ids\":true}", "did you mean \"output.token_ids\"?"},
        {"\"chat\":\"no\"", "\"chat\" must be true or false"},
        {"\"prompt\":5", "\"prompt\" must be a field's name, a template or null"},
        {"\"prompt\":\"\"", "\"prompt\" must not be empty"},
        {"\"id\":null", "\"id\" must be a field's name"},
        {"\"sampling\":null", "\"sampling\" must be an object"},
        {"\"sampling\":{\"temperature\":-1}",
         "in \"sampling\": field \"temperature\" must be a number from 0 to 1e6, not -1"},
        {"\"sampling\":{\"temperature\":null}", "\"temperature\" must not be null; leave it out"},
        {"\"sampling\":{\"top_p\":2}", "not 2"},
        {"\"sampling\":{\"max_tokens\":0}",
         "field \"max_tokens\" must be a whole number of at least 1, or null, not 0"},
        {"\"sampling\":{\"max_tokens\":\"8\"}", "not the string \"8\""},
        {"\"sampling\":{\"stop\":\"\"}", "field \"stop\" must be a string that is not empty"},
        {"\"max_tokens_per_dataset\":-1", "must not be negative"},
        {"\"sampling\":{\"temperature\":1e7}", "a number from 0 to 1e6, not 10000000.0"},
        {"\"sampling\":{\"stop\":[\"a\",\"\"]}",
         "field \"stop\"[1] must be a string that is not empty, not the string \"\""},
        {"\"sampling\":{\"stop_token_ids\":[-1]}", "field \"stop_token_ids\"[0] must be a token id, not -1"},
        {"\"max_tokens_per_dataset\":1.5", "must be a whole number"},
        {"\"max_tokens_per_dataset\":-2.0", "must not be negative"},
        {"\"max_tokens_per_dataset\":1e30", "must be at most 9007199254740992, not 1e+30"},
        {"\"expected_tokens\":1e30", "must be at most 9007199254740992, not 1e+30"},
        {"\"canary\":1", "unknown key \"canary\"; docs/manifest.md lists the keys"},
        {"\"reasoning\":1", "unknown key \"reasoning\"; docs"},
        {"\"x\":1", "unknown key \"x\"; docs"},
        {"\"Id\":1", "did you mean \"id\"?"},
        {"\"sampling\":{\"max_new_tokens\":1}", "did you mean \"sampling.max_tokens\"?"},
        {"\"thinking\":{\"x\":1}", "unknown key \"thinking.x\"; docs"},
        {"\"prompt\":\"a\",\"messages\":\"b\"", "both given"},
        {"\"chat\":false,\"system\":\"s\"", "\"system\" needs the chat template"},
        {"\"chat\":false,\"messages\":\"s\"", "\"messages\" needs the chat template"},
        {"\"prompt\":\"{a\"", "\"prompt\": no field name and '}' after the '{' at byte 0"},
        {"\"prompt\":\"x}\"", "\"prompt\": a '}' without its '{' at byte 1"},
        {"\"prompt\":\"{}\"", "no field name"},
        {"\"prompt\":\"{{x}}\"", "the template names no {field}"},
        {"\"system\":\"a\\u0000b\"", "must not hold U+0000"},
        {"\"thinking\":\"yes\"", "\"thinking\" must be an object with \"open\" and \"close\", false or null"},
        {"\"thinking\":true", "\"thinking\": true says no tags"},
        {"\"thinking\":{}", "\"thinking\" needs both \"open\" and \"close\""},
        {"\"thinking\":{\"open\":\"a\"}", "needs both"},
        {"\"thinking\":{\"open\":\"a\",\"close\":\"\"}", "in \"thinking\": \"close\" must not be empty"},
        {"\"thinking\":{\"open\":\"\\na\",\"close\":\"b\"}", "must not begin with white space"},
        {"\"thinking\":{\"open\":\"a\",\"closed\":\"b\"}", "did you mean \"thinking.close\"?"},
        {"\"id\":\"a\",\"id\":\"b\"", "duplicate"},
        {"\"id\":\"a\",", "line 1, column"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct hr_err err = {0};
        snprintf(text, sizeof text, "{\"dataset\":\"d\",\"shards\":\"a.jsonl\",%s}",
                 cases[i].members);
        struct hr_manifest *m = load(text, &err);
        if (m != NULL) fail_msg("%s was taken", cases[i].members);
        if (strstr(err.msg, cases[i].msg) == NULL)
            fail_msg("%s gives: %s", cases[i].members, err.msg);
    }
}

static void dataset_and_shards_must_be_there_and_sound(void **state) {
    static const struct {
        const char *text, *msg;
    } cases[] = {
        {"[]", "a manifest is a JSON object"},
        {"{\"shards\":\"a.jsonl\"}", "\"dataset\" (the job's name) is missing"},
        {"{\"dataset\":\"a/b\",\"shards\":\"a.jsonl\"}", "plain name"},
        {"{\"dataset\":\"..\",\"shards\":\"a.jsonl\"}", "plain name"},
        {"{\"dataset\":\"\",\"shards\":\"a.jsonl\"}", "plain name of 1 to 128"},
        {"{\"dataset\":\"d\"}", "\"shards\" is missing or empty"},
        {"{\"dataset\":\"d\",\"shards\":[5]}", "must hold paths or globs"},
        {"{\"dataset\":\"d\",\"shards\":\"none.jsonl\"}", "none.jsonl: No such file"},
        {"{\"dataset\":\"d\",\"shards\":\"none-*.jsonl\"}", "no shard matches"},
        {"{\"dataset\":\"d\",\"shards\":\"sub/part-dir*\"}", "no shard matches"},
        {"{\"dataset\":\"d\",\"shards\":\"sub\"}", "is a directory"},
        {"{\"dataset\":\"d\",\"shards\":\"pipe\"}", "is not a regular file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_err err = {0};
        assert_null(load(cases[i].text, &err));
        if (strstr(err.msg, cases[i].msg) == NULL) fail_msg("%s gives: %s", cases[i].text, err.msg);
    }
    struct hr_manifest *m = NULL;
    struct hr_err err;
    assert_int_equal(hr_manifest_load(in_dir("no.json"), &m, &err), HR_ERR_CONFIG);
    assert_int_equal(err.code, HR_ERR_CONFIG);
    assert_non_null(strstr(err.msg, "no.json"));
}

static void globs_are_sorted_and_no_file_comes_twice(void **state) {
    struct hr_manifest *m =
        loaded("{\"dataset\":\"d\",\"shards\":[\"sub/part-*\",\"a.jsonl\",\"./a.jsonl\","
               "\"link.jsonl\",\"sub/../a.jsonl\",\"sub/x[1].jsonl\",\"sub/*.jsonl\"]}");
    assert_int_equal(m->n_shards, 4);
    assert_string_equal(m->shards[0], in_dir("sub/part-1.jsonl"));
    assert_string_equal(m->shards[1], in_dir("sub/part-2.jsonl"));
    assert_string_equal(m->shards[2], in_dir("a.jsonl"));
    assert_string_equal(m->shards[3], in_dir("sub/x[1].jsonl"));
    hr_manifest_destroy(&m);
}

static void an_output_that_is_an_input_is_refused(void **state) {
    struct hr_manifest *m = loaded("{\"dataset\":\"d\",\"shards\":\"a.jsonl\"}");
    struct hr_err err;
    unlink(in_dir("hard.jsonl"));
    unlink(in_dir("dangling.jsonl"));
    assert_int_equal(link(in_dir("a.jsonl"), in_dir("hard.jsonl")), 0);
    assert_int_equal(symlink("nowhere", in_dir("dangling.jsonl")), 0);
    static const char *const same[] = {"a.jsonl", "sub/../a.jsonl", "link.jsonl", "hard.jsonl",
                                       "m.json"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        assert_int_equal(hr_manifest_check_output(m, in_dir(same[i]), &err), HR_ERR_CONFIG);
        assert_non_null(strstr(err.msg, "is the same file"));
    }
    assert_int_equal(hr_manifest_check_output(m, in_dir("new.jsonl"), &err), HR_OK);
    assert_int_equal(hr_manifest_check_output(m, in_dir("dangling.jsonl"), &err), HR_OK);
    assert_int_equal(hr_manifest_check_output(m, in_dir("sub/part-1.jsonl"), &err), HR_OK);
    hr_manifest_destroy(&m);
}

static void merging_fills_only_what_is_not_stated(void **state) {
    struct hr_manifest *m =
        loaded("{\"dataset\":\"d\",\"shards\":\"a.jsonl\",\"sampling\":{\"temperature\":1,"
               "\"stop\":[\"a\"],\"stop_token_ids\":[1],\"max_tokens\":5,\"n\":2}}");
    struct hr_sampling_spec s = {.has_temperature = true,
                                 .temperature = 0,
                                 .has_max_tokens = true,
                                 .max_tokens = -1,
                                 .has_stop = true};
    hr_sampling_spec_merge(&s, &m->sampling);
    assert_true(s.temperature == 0 && s.max_tokens == -1 && s.n_stop == 0 && s.n == 2 && s.has_n);
    assert_true(s.has_stop_token_ids && s.stop_token_ids.len == 1 && !s.has_seed);
    struct hr_sampling_spec t = {0};
    hr_sampling_spec_merge(&t, &m->sampling);
    hr_manifest_destroy(&m); /* the copies are deep */
    assert_string_equal(t.stop[0], "a");
    hr_sampling_spec_finish(&s);
    hr_sampling_spec_finish(&t);
    hr_sampling_spec_finish(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_manifest_has_the_documented_defaults),
        cmocka_unit_test(every_key_is_taken),
        cmocka_unit_test(wrong_manifests_are_refused_with_the_key_and_what_to_do),
        cmocka_unit_test(dataset_and_shards_must_be_there_and_sound),
        cmocka_unit_test(globs_are_sorted_and_no_file_comes_twice),
        cmocka_unit_test(an_output_that_is_an_input_is_refused),
        cmocka_unit_test(merging_fills_only_what_is_not_stated),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

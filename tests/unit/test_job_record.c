/* SPDX-License-Identifier: Apache-2.0
 *
 * record: what is a prompt, what is rejected in which words, whose bytes are carried, who is who.
 * The kit's edge lines are read too when the kit is there ($HEADRACE_KIT, else ../shared/kit). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/record.h"
#include "job/shard.h"

static struct hr_manifest manifest(void) {
    return (struct hr_manifest){.path = "m.json", .dataset = "d", .id = "id", .chat = true};
}

static void take(struct hr_record *r, const struct hr_manifest *m, const char *line) {
    struct hr_err err;
    if (hr_record_parse(r, m, line, strlen(line), &err) < 0) fail_msg("%s: %s", line, err.msg);
}

static const char *refused(const struct hr_manifest *m, const char *line, size_t len) {
    static struct hr_err err;
    struct hr_record r = {0};
    err = (struct hr_err){0};
    char *exact = malloc(len ? len : 1); /* the sanitizer sees a byte read past it */
    memcpy(exact, line, len);
    enum hr_status st = hr_record_parse(&r, m, exact, len, &err);
    free(exact);
    hr_record_finish(&r);
    if (st >= 0) fail_msg("%.200s was taken", line);
    assert_int_equal(st, HR_ERR_FORMAT);
    return err.msg;
}

static const char *row_of(const struct hr_record *r, const struct hr_manifest *m, int occurrence) {
    static struct hr_buf out;
    struct hr_answer a = {.sample = 1,
                          .occurrence = occurrence,
                          .text = "say \"hi\"\n",
                          .text_len = 9,
                          .finish_reason = "stop",
                          .prompt_tokens = 2,
                          .completion_tokens = 3,
                          .seed = -1};
    hr_buf_clear(&out);
    hr_record_write_row(r, m, &a, &out);
    return hr_buf_cstr(&out);
}

static void fields_are_carried_in_the_inputs_own_bytes(void **state) {
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    take(&r, &m,
         "{\"x\":1e400, "
         "\"id\":9007199254740993,\"y\":0.10,\"prompt\":\"p\\u00e9\",\"z\":-0,\"w\":"
         "12345678901234567890123,"
         "\"temperature\":0,\"o\":{\"a\":[1, "
         "2],\r\"b\":\"\\ud83d\\ude00\xe2\x80\xa8\"},\"x\":2,\"prompt_id\":null}");
    assert_string_equal(
        row_of(&r, &m, 0),
        "{\"id\":9007199254740993,\"dataset\":\"d\",\"sample\":1,\"prompt\":\"p\\u00e9\","
        "\"response\":\"say "
        "\\\"hi\\\"\\n\",\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":2,"
        "\"completion_tokens\":3},\"seed\":-1,\"metadata\":{\"x\":2,\"y\":0.10,\"z\":-0,"
        "\"w\":12345678901234567890123,\"o\":{\"a\":[1, 2], \"b\":\"\\ud83d\\ude00\xe2\x80\xa8\"},"
        "\"prompt_id\":null}}\n");
    take(&r, &m, "{\"prompt\":\"q\",\"id\":\"a\",\"big\":1e400}"); /* a record is used again */
    assert_string_equal(hr_buf_cstr(&r.metadata), "{\"big\":1e400}");
    assert_false(r.sampling.has_temperature);
    hr_record_finish(&r);
    hr_record_finish(&r);
}

static void a_row_says_occurrence_stop_reason_and_ids_when_there_are_some(void **state) {
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    struct hr_buf out = {0};
    const int32_t prompt[2] = {5, 6}, completion[1] = {7};
    m.output_token_ids = true;
    take(&r, &m, "{\"prompt\":\"p\",\"id\":\"a\",\"tools\":[]}");
    struct hr_answer a = {.occurrence = 2,
                          .text = "",
                          .finish_reason = "length",
                          .stop_reason_json = "\"context\"",
                          .prompt_tokens = 2,
                          .completion_tokens = 1,
                          .repetitive = true,
                          .reasoning = "so",
                          .reasoning_len = 2,
                          .dropped_bytes = 3,
                          .prompt_ids = prompt,
                          .completion_ids = completion};
    hr_record_write_row(&r, &m, &a, &out);
    assert_string_equal(
        hr_buf_cstr(&out),
        "{\"id\":\"a\",\"dataset\":\"d\",\"sample\":0,\"occurrence\":2,\"prompt\":\"p\",\"tools\":["
        "],"
        "\"reasoning\":\"so\",\"response\":\"\",\"dropped_bytes\":3,\"finish_reason\":\"length\","
        "\"stop_reason\":\"context\",\"repetitive\":true,\"usage\":"
        "{\"prompt_tokens\":2,\"completion_tokens\":1},\"seed\":0,\"prompt_token_ids\":[5,6],"
        "\"completion_token_ids\":[7],\"metadata\":{}}\n");
    hr_buf_finish(&out);
    hr_record_finish(&r);
}

static void a_prompt_becomes_one_user_turn_or_raw_text(void **state) {
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    take(&r, &m, "{\"prompt\":\"a\\n\\u0000\"}");
    assert_false(r.is_messages);
    assert_string_equal(hr_buf_cstr(&r.messages_json),
                        "[{\"role\":\"user\",\"content\":\"a\\n\\u0000\"}]");
    assert_int_equal(r.prompt.len, 3);
    assert_memory_equal(r.prompt.data, "a\n\0", 3);
    m.system = "be \"brief\"";
    take(&r, &m, "{\"prompt\":\"\"}");
    assert_string_equal(hr_buf_cstr(&r.messages_json),
                        "[{\"role\":\"system\",\"content\":\"be \\\"brief\\\"\"},"
                        "{\"role\":\"user\",\"content\":\"\"}]");
    m.system = NULL;
    m.chat = false;
    take(&r, &m, "{\"prompt\":\"raw\",\"messages\":[],\"tools\":\"hammer\"}");
    assert_int_equal(r.messages_json.len, 0);
    assert_string_equal(hr_buf_cstr(&r.prompt), "raw");
    assert_string_equal(hr_buf_cstr(&r.metadata), "{\"messages\":[],\"tools\":\"hammer\"}");
    hr_record_finish(&r);
}

static void tools_may_be_a_string_that_holds_the_list(void **state) {
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    uint8_t content[16];
    take(&r, &m, "{\"prompt\":\"x\",\"tools\":[{\"a\":\"b\\nc\"},{}]}");
    memcpy(content, r.content, 16);
    take(&r, &m,
         "{\"prompt\":\"x\",\"tools\":\" [ {\\\"a\\\":\\n\\\"b\\\\nc\\\"},\\r{}]\\n\"}");
    assert_string_equal(hr_buf_cstr(&r.tools_json), "[ {\"a\": \"b\\nc\"}, {}]");
    assert_memory_equal(r.content, content, 16);
    take(&r, &m, "{\"prompt\":\"x\",\"tools\":\"null\"}");
    assert_int_equal(r.tools_json.len, 0);
    take(&r, &m, "{\"prompt\":\"x\",\"tools\":\"[]\"}");
    assert_string_equal(hr_buf_cstr(&r.tools_json), "[]");
    hr_record_finish(&r);
}

/* The deepest list that is taken still makes a row that can be read back. */
static void tools_in_a_string_are_no_deeper_than_a_row_can_be(void **state) {
    struct hr_manifest m = manifest();
    struct hr_buf line = {0};
    for (int depth = HR_JSCAN_DEPTH - 2; depth <= HR_JSCAN_DEPTH; depth++) {
        struct hr_record r = {0};
        struct hr_err err;
        uint8_t ident[16];
        int occurrence, sample;
        hr_buf_clear(&line);
        hr_buf_puts(&line, "{\"prompt\":\"x\",\"tools\":\"[{\\\"a\\\":");
        for (int i = 2; i < depth; i++) hr_buf_putc(&line, '[');
        for (int i = 2; i < depth; i++) hr_buf_putc(&line, ']');
        hr_buf_puts(&line, "}]\"}");
        enum hr_status st = hr_record_parse(&r, &m, line.data, line.len, &err);
        assert_int_equal(st, depth < HR_JSCAN_DEPTH ? HR_OK : HR_ERR_FORMAT);
        if (!st) {
            const char *row = row_of(&r, &m, 0);
            assert_true(hr_record_identify_row(row, strlen(row) - 1, ident, &occurrence, &sample));
        }
        hr_record_finish(&r);
    }
    hr_buf_finish(&line);
}

static void messages_go_as_sent_with_the_manifests_system_turn(void **state) {
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    m.system = "S";
    take(&r, &m, "{\"prompt\":\"x\",\"messages\": [ {\"role\":\"user\",\"content\":\"y\"}]}");
    assert_true(r.is_messages);
    assert_string_equal(
        hr_buf_cstr(&r.messages_json),
        "[{\"role\":\"system\",\"content\":\"S\"}, {\"role\":\"user\",\"content\":\"y\"}]");
    assert_string_equal(hr_buf_cstr(&r.prompt_json), hr_buf_cstr(&r.messages_json));
    assert_string_equal(hr_buf_cstr(&r.metadata), "{\"prompt\":\"x\"}");
    take(&r, &m,
         "{\"messages\":[{\"role\":\"system\",\"content\":\"own\"},{\"role\":\"user\",\"content\":"
         "\"y\"}]}");
    assert_string_equal(
        hr_buf_cstr(&r.messages_json),
        "[{\"role\":\"system\",\"content\":\"own\"},{\"role\":\"user\",\"content\":\"y\"}]");
    m.messages = "chat";
    take(&r, &m,
         "{\"chat\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"t\"},{"
         "\"type\":\"image\"}]},"
         "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]},{\"role\":\"tool\","
         "\"content\":\"\"}],"
         "\"messages\":5,\"tools\":[{\"type\":\"function\"}]}");
    assert_string_equal(hr_buf_cstr(&r.tools_json), "[{\"type\":\"function\"}]");
    assert_string_equal(hr_buf_cstr(&r.metadata), "{\"messages\":5}");
    take(&r, &(struct hr_manifest){.dataset = "d", .id = "id", .chat = true},
         "{\"messages\":null,\"prompt\":\"x\"}");
    assert_false(r.is_messages);
    hr_record_finish(&r);
}

static void empty_parts_of_a_join_take_their_blanks_along(void **state) {
    static const struct {
        const char *template, *row, *want;
    } cases[] = {
        {"{instruction}\n\n{input}", "{\"instruction\":\"do\",\"input\":\"x\"}", "do\n\nx"},
        {"{instruction}\n\n{input}", "{\"instruction\":\"do\",\"input\":\"\"}", "do"},
        {"{instruction}\n\n{input}", "{\"instruction\":\"do\"}", "do"},
        {"{instruction}\n\n{input}", "{\"instruction\":\"do \\n\",\"input\":null}", "do \n"},
        {"{instruction}\n\n{input}", "{\"instruction\":\"\",\"input\":\"x\"}", "x"},
        {"{a}\n\n{b}\n\n{c}", "{\"a\":\"1\",\"b\":\"\",\"c\":\"3\"}", "1\n\n3"},
        {"{a}\n\n{b}\n\n{c}", "{\"a\":\"1\"}", "1"},
        {"{a}\n\n{b}\n\n{c}", "{\"c\":\"3\"}", "3"},
        {"Q: {q}\nC: {c}\nA:", "{\"q\":\"q\",\"c\":\"\"}", "Q: q\nC:\nA:"},
        {"{{{a}}}", "{\"a\":\"x\"}", "{x}"},
        {"{a}{a} {b}", "{\"a\":\" x \",\"b\":\"y\"}", " x  x  y"},
        {"{a}\n", "{\"a\":\"x\"}", "x\n"},
        {"{a b}.", "{\"a b\":\"\\u007b\"}", "{."},
        {"{a}", "{\"a\":\"\"}", ""},
    };
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.prompt = (char *)cases[i].template;
        take(&r, &m, cases[i].row);
        assert_string_equal(hr_buf_cstr(&r.prompt), cases[i].want);
        assert_string_equal(hr_buf_cstr(&r.metadata), "{}");
    }
    hr_record_finish(&r);
    m.prompt = "{a} {b}";
    assert_string_equal(refused(&m, "{\"c\":1}", 7),
                        "none of the fields of the prompt \"{a} {b}\" is there");
    assert_string_equal(refused(&m, "{\"a\":\"x\",\"b\":5}", 15),
                        "field \"b\" must be a string, not 5");
}

static void bad_rows_are_rejected_in_plain_words(void **state) {
    static const struct {
        const char *row, *msg;
    } cases[] = {
        {"{", "malformed JSON: the JSON text ends where a key in quotes should be (byte 1)"},
        {"[]", "the line must be a JSON object, not a list"},
        {"42", "the line must be a JSON object, not 42"},
        {"null", "the line must be a JSON object, not null"},
        {"\"str\"", "the line must be a JSON object, not the string \"str\""},
        {"{\"id\":1}", "field \"prompt\" is missing, and so is \"messages\""},
        {"{\"prompt\":null}", "field \"prompt\" must be a string, not null"},
        {"{\"prompt\":[\"a\"]}", "field \"prompt\" must be a string, not a list"},
        {"{\"prompt\":\"x\\ud83dy\"}", "malformed JSON: lone surrogate escape at byte 12"},
        {"{\"messages\":\"hi\"}",
         "field \"messages\" must be a list of messages, not the string \"hi\""},
        {"{\"messages\":[]}", "field \"messages\" is an empty list"},
        {"{\"messages\":[5]}", "messages[0] must be an object, not 5"},
        {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0]: \"role\" is missing"},
        {"{\"messages\":[{\"role\":1,\"content\":\"x\"}]}",
         "messages[0]: \"role\" must be a string, not 1"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0]: \"content\" is missing"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":5}]}",
         "messages[1]: \"content\" must be a string or a list of parts, not 5"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":null,\"tool_calls\":[]}]}",
         "messages[0]: \"content\" is null"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}",
         "messages[0]: \"content\" is null"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[\"a\"]}]}",
         "messages[0]: \"content\" has a part without a string \"type\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
         "messages[0]: \"content\" has a text part without a string \"text\""},
        {"{\"prompt\":\"x\",\"id\":true}", "field \"id\" must be a string or a number, not true"},
        {"{\"prompt\":\"x\",\"id\":{}}",
         "field \"id\" must be a string or a number, not an object"},
        {"{\"prompt\":\"x\",\"tools\":{}}",
         "field \"tools\" must be a list, or a string that holds one, not an object"},
        {"{\"prompt\":\"x\",\"tools\":\"hammer\"}",
         "field \"tools\" must be a list, or a string that holds one, not the string \"hammer\""},
        {"{\"prompt\":\"x\",\"tools\":\"[],[]\"}",
         "field \"tools\" must be a list, or a string that holds one, not the string \"[],[]\""},
        {"{\"prompt\":\"x\",\"tools\":\"\"}",
         "field \"tools\" must be a list, or a string that holds one, not the string \"\""},
        {"{\"prompt\":\"x\",\"tools\":[{},\"{}\"]}",
         "a tool in field \"tools\" must be an object, not the string \"{}\""},
        {"{\"prompt\":\"x\",\"temperature\":\"hot\"}",
         "field \"temperature\" must be a number from 0 to 1e6, not the string \"hot\""},
        {"{\"prompt\":\"x\",\"max_tokens\":\"0123456789012345678901234567890123456789more\"}",
         "field \"max_tokens\" must be a whole number of at least 1, or null, not the string "
         "\"0123456789012345678901234567890123456789\"..."},
    };
    struct hr_manifest m = manifest();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(refused(&m, cases[i].row, strlen(cases[i].row)), cases[i].msg);
    assert_non_null(strstr(refused(&m, "{\"prompt\":\"a\0b\"}", 16), "raw NUL byte"));
    m.prompt = "q";
    assert_string_equal(refused(&m, "{\"prompt\":\"x\"}", 14), "field \"q\" is missing");
}

/* A row with n times the element in the list `key`, and one in front. */
static const char *refused_list(const struct hr_manifest *m, const char *key, const char *first, int n) {
    struct hr_buf row = {0};
    hr_buf_printf(&row, "{\"prompt\":\"x\",\"%s\":[%s", key, first);
    for (int i = 0; i < n; i++) hr_buf_printf(&row, ",%s", first);
    hr_buf_puts(&row, "]}");
    const char *msg = refused(m, row.data, row.len);
    hr_buf_finish(&row);
    return msg;
}

static void lists_that_are_too_long_say_so(void **state) {
    struct hr_manifest m = manifest();
    assert_string_equal(refused_list(&m, "stop", "\"a\"", 64),
                        "field \"stop\" must be a string that is not empty or a list of at most 64 of them; it has "
                        "more than 64");
    assert_string_equal(refused_list(&m, "stop_token_ids", "7", 1024),
                        "field \"stop_token_ids\" must be a list of at most 1024 token ids; it has more than 1024");
}

static void a_rejected_row_keeps_its_id_as_far_as_it_was_read(void **state) {
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    struct hr_err err;
    struct hr_buf out = {0};
    assert_int_equal(hr_record_parse(&r, &m, "{\"id\":7,\"n\":0,\"prompt\":\"\"}", 26, &err),
                     HR_ERR_FORMAT);
    hr_record_write_reject(&r.id_json, "d", "dir/\xff.jsonl", 12, -1, err.msg, &out);
    assert_string_equal(
        hr_buf_cstr(&out),
        "{\"shard\":\"dir/\xef\xbf\xbd.jsonl\",\"line\":12,\"id\":7,\"reason\":\"field "
        "\\\"n\\\" must be a whole number from 1 to 65536, not 0\",\"dataset\":\"d\"}\n");
    hr_buf_clear(&out);
    assert_int_equal(hr_record_parse(&r, &m, "{\"id\":7", 7, &err), HR_ERR_FORMAT);
    hr_record_write_reject(&r.id_json, "d", "a", 1, 0, "no", &out);
    assert_string_equal(
        hr_buf_cstr(&out),
        "{\"shard\":\"a\",\"line\":1,\"sample\":0,\"reason\":\"no\",\"dataset\":\"d\"}\n");
    hr_buf_finish(&out);
    hr_record_finish(&r);
}

static void sampling_of_a_row_is_taken_or_the_row_is_rejected(void **state) {
    static const struct {
        const char *member;
        bool ok;
    } cases[] = {
        {"\"max_tokens\":1e9", true},
        {"\"max_tokens\":8.0", true},
        {"\"max_tokens\":null", true},
        {"\"max_tokens\":0", false},
        {"\"max_tokens\":-1", false},
        {"\"max_tokens\":\"8\"", false},
        {"\"max_tokens\":1.5", false},
        {"\"max_tokens\":1e400", false},
        {"\"max_tokens\":true", false},
        {"\"max_completion_tokens\":0", false},
        {"\"max_tokens\":8,\"max_completion_tokens\":8.0", true},
        {"\"max_tokens\":8,\"max_completion_tokens\":9", false},
        {"\"max_tokens\":9,\"max_tokens\":8", true},
        {"\"temperature\":-0.0", true},
        {"\"temperature\":-1", false},
        {"\"temperature\":1E-1", true},
        {"\"temperature\":1e400", false},
        {"\"temperature\":null", true},
        {"\"temperature\":NaN", false},
        {"\"top_p\":0", false},
        {"\"top_p\":1", true},
        {"\"top_p\":1.01", false},
        {"\"top_p\":1e-9", true},
        {"\"top_k\":-1", true},
        {"\"top_k\":0", true},
        {"\"top_k\":-2", false},
        {"\"top_k\":5e18", true},
        {"\"min_p\":0", true},
        {"\"min_p\":1.5", false},
        {"\"repetition_penalty\":0", false},
        {"\"presence_penalty\":-2.1", false},
        {"\"frequency_penalty\":2", true},
        {"\"n\":0", false},
        {"\"n\":4", true},
        {"\"seed\":12345678901234567890123", false},
        {"\"seed\":-9223372036854775808", true},
        {"\"seed\":1.5", false},
        {"\"stop\":\"\"", false},
        {"\"stop\":[]", true},
        {"\"stop\":[\"a\",\"\"]", false},
        {"\"stop\":null", true},
        {"\"stop\":[\"\\u0000\"]", true},
        {"\"stop\":5", false},
        {"\"stop\":[5]", false},
        {"\"stop_token_ids\":[2,13]", true},
        {"\"stop_token_ids\":[-1]", false},
        {"\"stop_token_ids\":7", false},
        {"\"stop_token_ids\":[2147483648]", false},
        {"\"ignore_eos\":true", true},
        {"\"ignore_eos\":1", false},
        {"\"logit_bias\":{\"13\":-100}", true},
        {"\"max_tokens\":007", false},
    };
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char row[256];
        struct hr_err err = {0};
        snprintf(row, sizeof row, "{\"id\":\"a\",\"prompt\":\"x\",%s}", cases[i].member);
        enum hr_status st = hr_record_parse(&r, &m, row, strlen(row), &err);
        if ((st >= 0) != cases[i].ok)
            fail_msg("%s: %s", cases[i].member, st < 0 ? err.msg : "taken");
    }
    take(&r, &m, "{\"prompt\":\"x\",\"max_tokens\":null,\"stop\":\"a\\n\",\"temperature\":null}");
    assert_true(r.sampling.has_max_tokens && r.sampling.max_tokens == -1 &&
                !r.sampling.has_temperature);
    assert_true(r.sampling.n_stop == 1 && r.sampling.stop_len[0] == 2);
    assert_string_equal(hr_buf_cstr(&r.metadata), "{}");
    take(&r, &m, "{\"prompt\":\"x\",\"max_completion_tokens\":1e9,\"max_tokens\":null}");
    assert_int_equal(r.sampling.max_tokens, 1000000000);
    hr_record_finish(&r);
}

static bool same_ident(const struct hr_manifest *m, const char *a, const char *b) {
    struct hr_record x = {0}, y = {0};
    take(&x, m, a);
    take(&y, m, b);
    bool same = memcmp(x.ident, y.ident, 16) == 0;
    hr_record_finish(&x);
    hr_record_finish(&y);
    return same;
}

static bool same_content(const struct hr_manifest *m, const char *a, const char *b) {
    struct hr_record x = {0}, y = {0};
    take(&x, m, a);
    take(&y, m, b);
    bool same = memcmp(x.content, y.content, 16) == 0;
    hr_record_finish(&x);
    hr_record_finish(&y);
    return same;
}

static void an_id_is_itself_with_its_type_and_all_its_digits(void **state) {
    struct hr_manifest m = manifest();
    assert_true(
        same_ident(&m, "{\"id\":\"a\",\"prompt\":\"x\"}", "{\"prompt\":\"y\",\"id\":\"\\u0061\"}"));
    assert_false(same_ident(&m, "{\"id\":\"7\",\"prompt\":\"x\"}", "{\"id\":7,\"prompt\":\"x\"}"));
    assert_false(same_ident(&m, "{\"id\":9007199254740992,\"prompt\":\"x\"}",
                            "{\"id\":9007199254740993,\"prompt\":\"x\"}"));
    assert_true(
        same_ident(&m, "{\"prompt\":\"x\"}", "{\"id\":null,\"prompt\":\"\\u0078\",\"carried\":1}"));
    assert_false(same_ident(&m, "{\"prompt\":\"x\"}", "{\"prompt\":\"y\"}"));
    assert_false(same_ident(&m, "{\"prompt\":\"x\"}", "{\"prompt\":\"x\",\"n\":2}"));
}

static void content_is_what_is_asked_and_nothing_else(void **state) {
    struct hr_manifest m = manifest();
    const char *x = "{\"id\":1,\"prompt\":\"x\",\"temperature\":0.1}";
    assert_true(
        same_content(&m, x, "{\"temperature\":0.10,\"id\":2,\"prompt\":\"x\",\"carried\":5}"));
    assert_false(same_content(&m, x, "{\"id\":1,\"prompt\":\"y\",\"temperature\":0.1}"));
    assert_false(same_content(&m, x, "{\"id\":1,\"prompt\":\"x\",\"temperature\":0.2}"));
    assert_false(
        same_content(&m, x, "{\"id\":1,\"prompt\":\"x\",\"temperature\":0.1,\"tools\":[{}]}"));
    assert_true(same_content(&m, "{\"prompt\":\"x\",\"max_tokens\":5}",
                             "{\"prompt\":\"x\",\"max_completion_tokens\":5}"));
    assert_true(same_content(&m, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\"}]}",
                             "{\"messages\":[ {\"content\":\"é\", \"role\":\"user\"} ]}"));
    assert_false(same_content(&m, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
                              "{\"prompt\":\"x\"}"));
    struct hr_manifest with_system = manifest();
    struct hr_record a = {0}, b = {0};
    with_system.system = "S"; /* compared by the store among the settings */
    take(&a, &m, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    take(&b, &with_system, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    assert_memory_equal(a.content, b.content, 16);
    hr_record_finish(&a);
    hr_record_finish(&b);
}

static void a_written_row_is_recognised_as_its_input(void **state) {
    static const char *const rows[] = {
        "{\"id\":\"\\u00e9\\n/../x\",\"prompt\":\"p\",\"response\":5,\"sample\":\"s\"}",
        "{\"id\":9007199254740993,\"prompt\":\"p\"}", "{\"prompt\":\"no id\",\"id\":null}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"y\"}]}", "{\"id\":\"\",\"prompt\":\"\"}"};
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t ident[16];
        int occurrence = -1, sample = -1;
        take(&r, &m, rows[i]);
        const char *row = row_of(&r, &m, (int)i);
        assert_true(hr_record_identify_row(row, strlen(row), ident, &occurrence, &sample));
        assert_memory_equal(ident, r.ident, 16);
        assert_int_equal(occurrence, i);
        assert_int_equal(sample, 1);
        assert_int_equal(strchr(row, '\n') - row, strlen(row) - 1); /* one line */
        for (size_t n = 0; n < strlen(row) - 1; n++)
            if (hr_record_identify_row(row, n, ident, &occurrence, &sample))
                fail_msg("cut at %zu: %s", n, row);
    }
    hr_record_finish(&r);
    uint8_t ident[16];
    int occurrence, sample;
    const char *no = "{\"id\":1,\"sample\":-1,\"response\":\"\",\"finish_reason\":\"stop\"}";
    assert_false(hr_record_identify_row(no, strlen(no), ident, &occurrence, &sample));
    assert_false(hr_record_identify_row("{\"id\":1}", 8, ident, &occurrence, &sample));
}

static void a_line_of_a_million_keys_is_read_in_linear_time(void **state) {
    struct hr_manifest m = manifest();
    struct hr_record r = {0};
    struct hr_buf line = {0};
    hr_buf_puts(&line, "{\"prompt\":\"x\"");
    for (int i = 0; i < 1000000; i++) hr_buf_printf(&line, ",\"%x\":%d", i % 900000, i);
    hr_buf_putc(&line, '}');
    struct hr_err err;
    assert_true(line.len < HR_LINE_MAX);
    assert_int_equal(hr_record_parse(&r, &m, line.data, line.len, &err), HR_OK);
    assert_memory_equal(r.metadata.data, "{\"0\":900000,",
                        12); /* the last value at the first place */
    hr_buf_finish(&line);
    hr_record_finish(&r);
}

/* A label of the kit's notes is a label, not a rule: null content of an assistant without tool
 * calls is rejected here, and so are numbers that no 64-bit seed can hold. */
static void the_kits_edge_lines_each_have_one_outcome(void **state) {
    static const char want[] = /* lines 1 to 45: o taken, x rejected, - blank */
        "o--ooooooxxxxooxxoxxxoxxxxxxxoxxooxoxoxxxoooo";
    const char *kit = getenv("HEADRACE_KIT"), *root = getenv("HEADRACE_ROOT");
    char path[1024], got[64] = "";
    snprintf(path, sizeof path, kit != NULL ? "%s/prompts/%s" : "%s/../shared/kit/prompts/%s",
             kit != NULL    ? kit
             : root != NULL ? root
                            : ".",
             "edge-lines.jsonl.bin");
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s is not there\n", path);
        skip();
    }
    struct hr_manifest m = manifest();
    struct hr_shard_reader *r = NULL;
    struct hr_record record = {0};
    struct hr_line line;
    struct hr_err err;
    char *paths[1] = {path};
    bool more = true;
    memset(got, '-', sizeof want - 1);
    assert_int_equal(hr_shard_open(paths, 1, &r, &err), HR_OK);
    while (hr_shard_next(r, &line, &more, &err) == HR_OK && more) {
        assert_true(line.line_no <= 45 && !line.torn && !line.too_long);
        enum hr_status st = hr_record_parse(&record, &m, line.p, line.len, &err);
        got[line.line_no - 1] = st == HR_OK ? 'o' : 'x';
    }
    assert_string_equal(got, want);
    hr_record_finish(&record);
    hr_shard_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_carried_in_the_inputs_own_bytes),
        cmocka_unit_test(a_row_says_occurrence_stop_reason_and_ids_when_there_are_some),
        cmocka_unit_test(a_prompt_becomes_one_user_turn_or_raw_text),
        cmocka_unit_test(tools_may_be_a_string_that_holds_the_list),
        cmocka_unit_test(tools_in_a_string_are_no_deeper_than_a_row_can_be),
        cmocka_unit_test(messages_go_as_sent_with_the_manifests_system_turn),
        cmocka_unit_test(empty_parts_of_a_join_take_their_blanks_along),
        cmocka_unit_test(bad_rows_are_rejected_in_plain_words),
        cmocka_unit_test(lists_that_are_too_long_say_so),
        cmocka_unit_test(a_rejected_row_keeps_its_id_as_far_as_it_was_read),
        cmocka_unit_test(sampling_of_a_row_is_taken_or_the_row_is_rejected),
        cmocka_unit_test(an_id_is_itself_with_its_type_and_all_its_digits),
        cmocka_unit_test(content_is_what_is_asked_and_nothing_else),
        cmocka_unit_test(a_written_row_is_recognised_as_its_input),
        cmocka_unit_test(a_line_of_a_million_keys_is_read_in_linear_time),
        cmocka_unit_test(the_kits_edge_lines_each_have_one_outcome),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

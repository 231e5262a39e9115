/* SPDX-License-Identifier: Apache-2.0
 *
 * jscan: what is JSON and what is not, byte offsets of faults, and that values keep their bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/jscan.h"

/* The text lies in a block of exactly its size, so that the sanitizer sees any byte read past it.
 */
static enum hr_status validate(const char *text, size_t len, struct hr_err *err) {
    struct hr_jval v;
    char *exact = malloc(len ? len : 1);
    memcpy(exact, text, len);
    enum hr_status st = hr_jscan_validate(exact, len, &v, err);
    free(exact);
    return st;
}

static struct hr_jval parsed(const char *text) {
    struct hr_jval v;
    struct hr_err err;
    if (hr_jscan_validate(text, strlen(text), &v, &err) < 0) fail_msg("%s: %s", text, err.msg);
    return v;
}

static void texts_that_are_json_are_accepted(void **state) {
    static const char *const good[] = {
        "{}",
        "[]",
        " [ ] ",
        "{ }",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-0.0",
        "0.10",
        "1e400",
        "1E-1",
        "12345678901234567890123",
        "\"\"",
        "\"a\\u0000b\"",
        "\"\\ud83d\\ude00 \\uD83D\\uDE00\"",
        "\"\\b\\f\\n\\r\\t\\\"\\\\\\/\\u00e9\\u2028\"",
        "{\"a\":1,\"a\":2}",
        "[1,[2,{\"b\":[]}],\"c\"]",
        "\"\xf0\x9f\x98\x80 \xe2\x80\xa8 \xc2\x85 \xef\xbf\xbf \xf4\x8f\xbf\xbf\"",
        "\t{\r\n\"a\" : [ 1 , 2 ] }\n",
        "\"exactly8\"",
        "\"\x7f\"",
        "\"\\u000b \\u000c \\u001e\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct hr_err err = {0};
        if (validate(good[i], strlen(good[i]), &err) < 0) fail_msg("%s: %s", good[i], err.msg);
    }
}

static void texts_that_are_not_json_are_refused_with_offset_and_reason(void **state) {
    static const struct {
        const char *text, *msg;
    } bad[] = {{"", "the JSON text ends where a value should be (byte 0)"},
               {"{", "the JSON text ends where a key in quotes should be (byte 1)"},
               {"[1", "the JSON text ends where ',' or ']' should be (byte 2)"},
               {"{\"a\":1,}", "unexpected '}' where a key in quotes should be at byte 7"},
               {"[1,]", "unexpected ']' where a value should be at byte 3"},
               {"{'a':1}", "unexpected ''' where a key in quotes should be at byte 1"},
               {"{\"a\" 1}", "unexpected '1' where ':' should be at byte 5"},
               {"{\"a\":1]", "unexpected ']' where ',' or '}' should be at byte 6"},
               {"[1 2]", "unexpected '2' where ',' or ']' should be at byte 3"},
               {"{\"a\":\"x\"} {}", "more text after the JSON value at byte 10"},
               {"NaN", "unexpected 'N' where a value should be at byte 0"},
               {"nul", "unexpected 'n' where a value should be at byte 0"},
               {"\xef\xbb\xbf{}", "unexpected byte 0xef where a value should be at byte 0"},
               {"007", "number with a leading zero at byte 0"},
               {"-", "malformed number at byte 0"},
               {"1.", "malformed number at byte 0"},
               {"[1e+]", "malformed number at byte 1"},
               {".5", "unexpected '.' where a value should be at byte 0"},
               {"+1", "unexpected '+' where a value should be at byte 0"},
               {"\"abc", "unterminated string at byte 0"},
               {"\"abc\\", "unterminated string at byte 4"},
               {"\"a\tb\"", "raw control character in a string at byte 2"},
               {"\"1234567\x1f\"", "raw control character in a string at byte 8"},
               {"\"\\x\"", "unknown escape at byte 1"},
               {"\"\\u12g4\"", "\\u without four hexadecimal digits at byte 1"},
               {"\"\\u12", "\\u without four hexadecimal digits at byte 1"},
               {"\"x\\ud83dy\"", "lone surrogate escape at byte 2"},
               {"\"x\\ude00y\"", "lone surrogate escape at byte 2"},
               {"\"\\ud83d\\ud83d\\ude00\"", "lone surrogate escape at byte 1"},
               {"\"\\ud83d\\n12345\"", "lone surrogate escape at byte 1"},
               {"\"\xff\"", "invalid UTF-8 at byte 1"},
               {"\"abc\xc0\x80\"", "invalid UTF-8 at byte 4"},
               {"\"\xed\xa0\xbd\xed\xb8\x80\"", "invalid UTF-8 at byte 1"},
               {"\"\xe0\x80\xaf\"", "invalid UTF-8 at byte 1"},
               {"\"\xf0\x80\x80\x80\"", "invalid UTF-8 at byte 1"},
               {"\"\xf4\x90\x80\x80\"", "invalid UTF-8 at byte 1"},
               {"\"\xe2\x82", "invalid UTF-8 at byte 1"},
               {"\"\xe2\x82\"", "invalid UTF-8 at byte 1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hr_err err = {0};
        assert_int_equal(validate(bad[i].text, strlen(bad[i].text), &err), HR_ERR_FORMAT);
        assert_string_equal(err.msg, bad[i].msg);
    }
    struct hr_err err;
    assert_int_equal(validate("\"a\0b\"", 5, &err), HR_ERR_FORMAT);
    assert_string_equal(err.msg, "raw NUL byte in a string at byte 2");
    assert_int_equal(validate("{}\0", 3, &err), HR_ERR_FORMAT);
}

static void every_cut_of_a_text_is_refused(void **state) {
    const char *text = "{\"a\":[1.5e3,\"\\ud83d\\ude00\xf0\x9f\x98\x80\",{\"b\":null}]}";
    struct hr_err err;
    assert_int_equal(validate(text, strlen(text), &err), HR_OK);
    for (size_t n = 0; n < strlen(text); n++)
        assert_int_equal(validate(text, n, &err), HR_ERR_FORMAT);
}

static void depth_is_bounded_and_costs_no_stack(void **state) {
    size_t n = 100000;
    char *text = malloc(2 * n);
    struct hr_err err;
    memset(text, '[', n), memset(text + n, ']', n);
    assert_int_equal(validate(text, 2 * n, &err), HR_ERR_FORMAT);
    assert_string_equal(err.msg, "nested deeper than 512 levels at byte 512");
    assert_int_equal(validate(text + n - 512, 1024, &err), HR_OK);
    assert_int_equal(validate(text + n - 513, 1026, &err), HR_ERR_FORMAT);
    struct hr_buf out = {0};
    struct hr_jval v;
    assert_int_equal(hr_jscan_validate(text + n - 512, 1024, &v, &err), HR_OK);
    hr_jscan_canonical(&v, &out);
    assert_int_equal(out.len, 1024);
    hr_buf_finish(&out);
    free(text);
}

static void members_and_elements_come_in_order_with_their_own_bytes(void **state) {
    struct hr_jval o = parsed(
        " {\"a\" : 1e400, \"b\":[0.10,-0,\"x]\\\"\"], \"c\\n\":{},\"a\":12345678901234567890123} ");
    static const char *const keys[] = {"\"a\"", "\"b\"", "\"c\\n\"", "\"a\""};
    static const char *const values[] = {"1e400", "[0.10,-0,\"x]\\\"\"]", "{}",
                                         "12345678901234567890123"};
    struct hr_jiter it = {0};
    struct hr_jval k, v;
    for (int i = 0; i < 4; i++) {
        assert_true(hr_jscan_next(&o, &it, &k, &v));
        assert_int_equal(k.len, strlen(keys[i]));
        assert_memory_equal(k.p, keys[i], k.len);
        assert_int_equal(v.len, strlen(values[i]));
        assert_memory_equal(v.p, values[i], v.len);
    }
    assert_false(hr_jscan_next(&o, &it, &k, &v));
    assert_false(hr_jscan_next(&o, &it, &k, &v));
    assert_true(hr_jscan_get(&o, "a", &v)); /* the last one wins */
    assert_int_equal(v.len, 23);
    assert_true(hr_jscan_get(&o, "c\n", &v));
    assert_int_equal(v.type, HR_JOBJECT);
    assert_false(hr_jscan_get(&o, "c", &v));
    struct hr_jval a = parsed("[ ]"), scalar = parsed("42");
    it = (struct hr_jiter){0};
    assert_false(hr_jscan_next(&a, &it, NULL, &v));
    it = (struct hr_jiter){0};
    assert_false(hr_jscan_next(&scalar, &it, NULL, &v));
}

static void strings_decode_to_the_same_bytes_from_escapes_and_raw(void **state) {
    struct hr_jval a = parsed("\"\\ud83c\\udf78 \\u00e9\\u2028\\/\\b\\u0000z\"");
    struct hr_jval b = parsed("\"\xf0\x9f\x8d\xb8 \xc3\xa9\xe2\x80\xa8/\\u0008\\u0000\\u007a\"");
    static const char want[] = "\xf0\x9f\x8d\xb8 \xc3\xa9\xe2\x80\xa8/\b\0z";
    assert_true(hr_jscan_str_eq(&a, want, sizeof want - 1));
    assert_true(hr_jscan_str_eq(&b, want, sizeof want - 1));
    assert_false(hr_jscan_str_eq(&a, want, sizeof want - 2));
    assert_false(hr_jscan_str_eq(&a, want, sizeof want));
    struct hr_buf out = {0};
    hr_jscan_str(&a, &out);
    assert_int_equal(out.len, sizeof want - 1);
    assert_memory_equal(out.data, want, out.len);
    hr_buf_finish(&out);
}

static void integers_are_exact_or_refused(void **state) {
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } cases[] = {{"0", true, 0},
                 {"-0", true, 0},
                 {"8.0", true, 8},
                 {"8.5", false, 0},
                 {"1e9", true, 1000000000},
                 {"1E+2", true, 100},
                 {"1.5e1", true, 15},
                 {"100e-2", true, 1},
                 {"100e-3", false, 0},
                 {"9007199254740993.0", true, 9007199254740993},
                 {"1e18", true, 1000000000000000000},
                 {"9223372036854775807", true, INT64_MAX},
                 {"9223372036854775808", false, 0},
                 {"-9223372036854775808", true, INT64_MIN},
                 {"-9223372036854775809", false, 0},
                 {"1e400", false, 0},
                 {"0e999999999999", true, 0},
                 {"1e-999999999999", false, 0},
                 {"0.000", true, 0},
                 {"1000000", true, 1000000},
                 {"10203.00", true, 10203},
                 {"0.05e2", true, 5},
                 {"12345678901234567890123", false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_jval v = parsed(cases[i].text);
        int64_t got = 0;
        if (hr_jscan_int(&v, &got) != cases[i].ok || got != cases[i].value)
            fail_msg("%s gives %lld", cases[i].text, (long long)got);
    }
}

static void doubles_beyond_range_are_refused(void **state) {
    struct hr_jval v = parsed("1e400");
    double d;
    assert_false(hr_jscan_double(&v, &d));
    v = parsed("0.10");
    assert_true(hr_jscan_double(&v, &d));
    assert_true(d == 0.1);
    v = parsed("\"0.1\"");
    assert_false(hr_jscan_double(&v, &d));
    v = parsed(
        "0.100000000000000000000000000000000000000000000000000000000000000000000000000000001");
    assert_true(hr_jscan_double(&v, &d));
    assert_true(d == 0.1);
}

static void canonical_form_is_one_for_equal_values(void **state) {
    static const struct {
        const char *text, *want;
    } cases[] = {
        {" { \"b\" : 1 , \"a\" : [ 1.0 , \"\\u00e9\\n\\u0001\" ] , \"b\" : 2 } ",
         "{\"a\":[1.0,\"\xc3\xa9\\n\\u0001\"],\"b\":2}"},
        {"{\"aa\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"aa\":1}"},
        {"{\"a\":1,\"\\u0061\":{\"z\":null,\"y\":true}}", "{\"a\":{\"y\":true,\"z\":null}}"},
        {"0.10", "0.10"},
        {"[]", "[]"},
        {"{}", "{}"},
        {"\"\\/\"", "\"/\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_jval v = parsed(cases[i].text);
        struct hr_buf out = {0};
        hr_jscan_canonical(&v, &out);
        assert_string_equal(hr_buf_cstr(&out), cases[i].want);
        hr_buf_finish(&out);
    }
}

static void utf8_faults_are_found_at_their_byte(void **state) {
    size_t bad = 99;
    assert_true(hr_utf8_valid("plain ascii text, longer than eight \xe2\x82\xac", 39, &bad));
    assert_false(hr_utf8_valid("12345678\xe2\x82", 10, &bad));
    assert_int_equal(bad, 8);
    assert_false(hr_utf8_valid("a\x80", 2, &bad));
    assert_int_equal(bad, 1);
    assert_true(hr_utf8_valid("", 0, &bad));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_are_json_are_accepted),
        cmocka_unit_test(texts_that_are_not_json_are_refused_with_offset_and_reason),
        cmocka_unit_test(every_cut_of_a_text_is_refused),
        cmocka_unit_test(depth_is_bounded_and_costs_no_stack),
        cmocka_unit_test(members_and_elements_come_in_order_with_their_own_bytes),
        cmocka_unit_test(strings_decode_to_the_same_bytes_from_escapes_and_raw),
        cmocka_unit_test(integers_are_exact_or_refused),
        cmocka_unit_test(doubles_beyond_range_are_refused),
        cmocka_unit_test(canonical_form_is_one_for_equal_values),
        cmocka_unit_test(utf8_faults_are_found_at_their_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * json: typed reads, file order, where a fault is, and what configurations in the wild hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

static struct hr_json *parsed(const char *text) {
    struct hr_json *root = NULL;
    struct hr_err err;
    if (hr_json_parse(text, strlen(text), &root, &err) < 0) fail_msg("%s: %s", text, err.msg);
    return root;
}

static void values_are_read_by_their_type_only(void **state) {
    struct hr_json *r =
        parsed("{\"i\":-3,\"r\":0.5,\"s\":\"a\\u0000b\",\"b\":true,\"n\":null,\"a\":[1,[]]}");
    int64_t i = 0;
    double d = 0;
    bool b = false;
    const char *s;
    size_t len;
    assert_true(hr_json_int(hr_json_get(r, "i"), &i));
    assert_int_equal(i, -3);
    assert_true(hr_json_real(hr_json_get(r, "i"), &d));
    assert_true(d == -3);
    assert_false(hr_json_int(hr_json_get(r, "r"), &i));
    assert_true(hr_json_real(hr_json_get(r, "r"), &d));
    assert_true(hr_json_str(hr_json_get(r, "s"), &s, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(s, "a\0b", 3);
    assert_true(hr_json_bool(hr_json_get(r, "b"), &b) && b);
    assert_int_equal(hr_json_type(hr_json_get(r, "n")), HR_JSON_NULL);
    assert_null(hr_json_get(r, "missing"));
    assert_null(hr_json_get(NULL, "x"));
    assert_null(hr_json_get(hr_json_get(r, "i"), "x"));
    assert_int_equal(hr_json_size(hr_json_get(r, "a")), 2);
    assert_int_equal(hr_json_size(hr_json_get(r, "s")), 0);
    assert_int_equal(hr_json_type(hr_json_at(hr_json_get(r, "a"), 1)), HR_JSON_ARRAY);
    assert_null(hr_json_at(hr_json_get(r, "a"), 2));
    assert_false(hr_json_str(NULL, &s, &len));
    hr_json_free(&r);
    assert_null(r);
    hr_json_free(&r);
}

static void members_come_in_the_order_of_the_file(void **state) {
    struct hr_json *r = parsed("{\"z\":1,\"a\":2,\"m\":3}");
    void *it = NULL;
    const char *key;
    size_t len;
    const struct hr_json *v;
    char seen[8] = "";
    while (hr_json_next(r, &it, &key, &len, &v)) strncat(seen, key, len);
    assert_string_equal(seen, "zam");
    hr_json_free(&r);
}

static void faults_name_line_and_column_and_file(void **state) {
    struct hr_json *r = NULL;
    struct hr_err err;
    assert_int_equal(hr_json_parse("{\n \"a\": ]", 9, &r, &err), HR_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "line 2, column"));
    assert_int_equal(hr_json_parse("{\"a\":1,\"a\":2}", 13, &r, &err), HR_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "duplicate"));
    assert_int_equal(hr_json_parse("\"\xff\"", 3, &r, &err), HR_ERR_FORMAT);
    assert_int_equal(hr_json_parse("", 0, &r, &err), HR_ERR_FORMAT);
    assert_null(r);
    assert_int_equal(hr_json_parse_file("/nonexistent/x.json", 100, &r, &err), HR_ERR_NOTFOUND);
    assert_memory_equal(err.msg, "/nonexistent/x.json: ", 21);
    assert_int_equal(hr_json_parse_file("/", 100, &r, &err), HR_ERR_IO);
    char path[] = "/tmp/hr-json-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "\xef\xbb\xbf{\"a\":1}", 10), 10);
    assert_int_equal(hr_json_parse_file(path, 10, &r, &err), HR_OK);
    hr_json_free(&r);
    assert_int_equal(hr_json_parse_file(path, 9, &r, &err), HR_ERR_LIMIT);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(hr_json_parse_file(path, 100, &r, &err), HR_ERR_FORMAT);
    assert_memory_equal(err.msg, path, strlen(path));
    close(fd);
    unlink(path);
}

static void integers_beyond_64_bits_are_reals(void **state) {
    struct hr_json *r = parsed("{\"model_max_length\": 1000000000000000019884624838656, \"s\": "
                               "\"99999999999999999999\\\"\", \"i\": 7}");
    double d;
    const char *s;
    size_t len;
    int64_t i;
    assert_true(hr_json_real(hr_json_get(r, "model_max_length"), &d));
    assert_true(d == 1e30);
    assert_false(hr_json_int(hr_json_get(r, "model_max_length"), &i));
    assert_true(hr_json_str(hr_json_get(r, "s"), &s, &len));
    assert_string_equal(s, "99999999999999999999\"");
    assert_true(hr_json_int(hr_json_get(r, "i"), &i));
    hr_json_free(&r);
}

static void dumped_text_reads_back_the_same(void **state) {
    const char *text = "{\"b\":[1,-2,0.1,1e+300,2.0,true,false,null],\"a\":{\"x\":"
                       "\"\\\"\\n\\u0000é\"},\"e\":{},\"f\":[]}";
    struct hr_json *r = parsed(text);
    struct hr_buf out = {0};
    hr_json_dump(r, &out);
    assert_string_equal(hr_buf_cstr(&out), text);
    hr_buf_finish(&out);
    hr_json_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_by_their_type_only),
        cmocka_unit_test(members_come_in_the_order_of_the_file),
        cmocka_unit_test(faults_name_line_and_column_and_file),
        cmocka_unit_test(integers_beyond_64_bits_are_reals),
        cmocka_unit_test(dumped_text_reads_back_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

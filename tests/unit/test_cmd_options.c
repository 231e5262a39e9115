/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/options: what the command line accepts, and what a person is told who typed something else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cmd/options.h"

static bool json, limit_given;
static int64_t limit, kv;
static double temperature;
static const char *out_dir, *from;
static int dtype;

static const struct hr_opt opts[] = {
    {"json", NULL, "Output", "Print JSON. Default: a table.", HR_OPT_FLAG, &json},
    {"out", "DIR", "Output", "Write below DIR. Default: prepared.", HR_OPT_STR, &out_dir},
    {"limit", "N", "Input", "Take the first N rows. Default: all.", HR_OPT_INT, &limit,
     &limit_given, 1, 1e6},
    {"kv-tokens", "N", "Engine", "Hold N tokens of KV. Default: what fits.", HR_OPT_COUNT, &kv,
     NULL, 1, INT64_MAX},
    {"temperature", "F", "Sampling", "Sample at temperature F. Default: 1.", HR_OPT_REAL,
     &temperature, NULL, 0, 100},
    {"dtype", "bf16|f32", "Engine", "Compute in this type. Default: bf16.", HR_OPT_CHOICE, &dtype},
    {"from", "PATH", "Engine", "Learn from PATH. Default: nothing.", HR_OPT_STR, &from, .once = true},
};
static const struct hr_command_line cl = {"try", "DIR...", "Tries options.", opts, HR_N_OPTS(opts),
                                          1,     2};

static struct hr_err err;
static int n_args;
static char *args[16];

/* Scans up to 8 words behind the command's name. */
static enum hr_status scan(const char *w1, const char *w2, const char *w3, const char *w4) {
    static char words[5][64];
    const char *given[] = {"try", w1, w2, w3, w4};
    int argc = 0;
    for (int i = 0; i < 5 && given[i]; i++) {
        strncpy(words[i], given[i], sizeof words[i] - 1);
        args[argc++] = words[i];
    }
    bool help;
    json = limit_given = false;
    limit = kv = -7, temperature = -7, dtype = -7, out_dir = from = NULL;
    memset(&err, 0, sizeof err);
    return hr_options_scan(&cl, argc, args, &n_args, &help, &err);
}

static void an_option_given_twice_counts_last_or_is_refused(void **state) {
    assert_int_equal(scan("--out=a", "--out=b", "--from=c", "in"), HR_OK);
    assert_string_equal(out_dir, "b");
    assert_string_equal(from, "c");
    assert_int_equal(scan("--from=a", "--from=b", "in", NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "--from is given twice, and only one can be used");
}

static void values_come_behind_a_blank_or_an_equals_sign(void **state) {
    assert_int_equal(scan("--limit", "12", "--out=a=b", "in"), HR_OK);
    assert_int_equal(limit, 12);
    assert_true(limit_given);
    assert_string_equal(out_dir, "a=b");
    assert_int_equal(n_args, 1);
    assert_string_equal(args[0], "in");
    assert_int_equal(scan("in", "--json", "--dtype", "f32"), HR_OK);
    assert_true(json);
    assert_int_equal(dtype, 1);
    assert_false(limit_given);
    assert_int_equal(limit, -7);
}

static void two_dashes_end_the_options(void **state) {
    assert_int_equal(scan("--", "--json", "-", NULL), HR_OK);
    assert_int_equal(n_args, 2);
    assert_string_equal(args[0], "--json");
    assert_string_equal(args[1], "-");
    assert_false(json);
}

static void counts_take_suffixes_and_plain_numbers_do_not(void **state) {
    assert_int_equal(scan("in", "--kv-tokens=128K", NULL, NULL), HR_OK);
    assert_int_equal(kv, 128000);
    assert_int_equal(scan("in", "--kv-tokens=2Mi", NULL, NULL), HR_OK);
    assert_int_equal(kv, 2 << 20);
    assert_int_equal(scan("in", "--limit=8K", NULL, NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("in", "--kv-tokens=8Q", NULL, NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("in", "--kv-tokens=9999999999G", NULL, NULL), HR_ERR_CONFIG);
    assert_int_equal(kv, -7);
}

static void a_wrong_number_is_quoted_with_what_was_expected(void **state) {
    assert_int_equal(scan("in", "--limit", "8x", NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "--limit expects a whole number, got '8x'");
    const char *bad[] = {"", " 8", "+8", "0x8", "8.0", "1e3", "--3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(scan("in", "--limit", bad[i], NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("in", "--limit", "0", NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "--limit expects 1 to 1000000, got '0'");
    assert_int_equal(scan("in", "--temperature", "nan", NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("in", "--temperature", "1e999", NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "--temperature expects a number, got '1e999'");
    assert_int_equal(scan("in", "--temperature", "-1", NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("in", "--temperature", ".5", NULL), HR_OK);
    assert_true(temperature == 0.5);
    assert_int_equal(scan("in", "--dtype", "fp8", NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "--dtype expects one of bf16|f32, got 'fp8'");
}

static void an_unknown_option_names_the_nearest_right_one(void **state) {
    assert_int_equal(scan("in", "--limt", "3", NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "unknown option '--limt'; did you mean --limit?");
    assert_int_equal(scan("in", "--kv=3", NULL, NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "unknown option '--kv'; did you mean --kv-tokens?");
    assert_int_equal(scan("in", "-limit", "3", NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "unknown option '-limit'; did you mean --limit?");
    assert_int_equal(scan("in", "--frobnicate", NULL, NULL), HR_ERR_CONFIG);
    assert_string_equal(err.msg, "unknown option '--frobnicate'; 'headrace help try' lists them");
}

static void a_forgotten_value_does_not_swallow_the_next_option(void **state) {
    assert_int_equal(scan("in", "--out", "--json", NULL), HR_ERR_CONFIG);
    assert_non_null(strstr(err.msg, "--out expects DIR"));
    assert_int_equal(scan("in", "--out", NULL, NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("in", "--out=", NULL, NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("in", "--json=yes", NULL, NULL), HR_ERR_CONFIG);
}

static void arguments_are_counted(void **state) {
    assert_int_equal(scan(NULL, NULL, NULL, NULL), HR_ERR_CONFIG);
    assert_int_equal(scan("a", "b", "c", NULL), HR_ERR_CONFIG);
    assert_non_null(strstr(err.msg, "'c' is one argument too many"));
}

static void help_has_every_option_below_its_group(void **state) {
    struct hr_buf b = {0};
    hr_options_help(&cl, &b);
    const char *text = hr_buf_cstr(&b);
    assert_non_null(strstr(text, "usage: headrace try DIR... [options]\n"));
    assert_non_null(strstr(
        text, "\nSampling\n  --temperature F\n      Sample at temperature F. Default: 1.\n"));
    for (int i = 0; i < HR_N_OPTS(opts); i++) assert_non_null(strstr(text, opts[i].name));
    hr_buf_finish(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_behind_a_blank_or_an_equals_sign),
        cmocka_unit_test(an_option_given_twice_counts_last_or_is_refused),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(counts_take_suffixes_and_plain_numbers_do_not),
        cmocka_unit_test(a_wrong_number_is_quoted_with_what_was_expected),
        cmocka_unit_test(an_unknown_option_names_the_nearest_right_one),
        cmocka_unit_test(a_forgotten_value_does_not_swallow_the_next_option),
        cmocka_unit_test(arguments_are_counted),
        cmocka_unit_test(help_has_every_option_below_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

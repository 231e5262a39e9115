/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/status: what `headrace status` says about jobs that run, ended, were killed or never began.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/jscan.h"
#include "cmd/cmd.h"
#include "job/store.h"

static char root[] = "/tmp/headrace-status-XXXXXX";
static struct hr_err err;

/* A dataset with three rows of which one is done and one rejected, in a run that is open. */
static struct hr_store *begin(const char *name) {
    char dir[128];
    struct hr_store *st = NULL;
    struct hr_store_recovery recovery;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    const struct hr_store_opts opts = {.dir = dir};
    assert_int_equal(hr_store_open(&opts, &st, &recovery, &err), HR_OK);
    assert_int_equal(hr_store_begin_run(st, "0.1.0", "mill", &err), HR_OK);
    struct hr_store_seen seen[3];
    for (int i = 0; i < 3; i++) {
        const uint8_t ident[16] = {(uint8_t)(i + 1)}, content[16] = {9};
        assert_int_equal(hr_store_see(st, ident, content, "\"r\"", 1, &seen[i], &err), HR_OK);
    }
    const char *line = "{\"id\":\"r\"}\n", *reject = "{\"reason\":\"no\"}\n";
    const struct hr_run_counters c = {.rows_done = 1,
                                      .rows_length = 1,
                                      .rows_repetitive = 1,
                                      .prompt_tokens = 20,
                                      .completion_tokens = 500,
                                      .sampled_tokens = 510,
                                      .prefill_tokens = 40,
                                      .decode_steps = 200,
                                      .running_sum = 510,
                                      .active_ns = INT64_C(2000000000)};
    const struct hr_store_done done = {.row = seen[0].row,
                                       .line = line,
                                       .len = strlen(line),
                                       .prompt_tokens = 20,
                                       .completion_tokens = 500,
                                       .length = true,
                                       .repetitive = true};
    assert_int_equal(hr_store_commit(st, &done, 1, &c, &err), HR_OK);
    const uint8_t key[16] = {7};
    bool known;
    assert_int_equal(hr_store_reject(st, key, seen[1].row, 0, reject, strlen(reject), &known, &err),
                     HR_OK);
    assert_int_equal(hr_store_set_fact(st, "rows_total", "3", &err), HR_OK);
    assert_int_equal(hr_store_set_fact(st, "cap", "400", &err), HR_OK);
    assert_int_equal(hr_store_set_fact(st, "capped", "1", &err), HR_OK);
    assert_int_equal(hr_store_flush(st, &err), HR_OK);
    return st;
}

static void end(struct hr_store **st, const char *how) {
    const struct hr_run_counters c = {.rows_done = 1,
                                      .rows_length = 1,
                                      .rows_repetitive = 1,
                                      .rejects = 1,
                                      .prompt_tokens = 20,
                                      .completion_tokens = 500,
                                      .sampled_tokens = 510,
                                      .prefill_tokens = 40,
                                      .decode_steps = 200,
                                      .running_sum = 510,
                                      .active_ns = INT64_C(2000000000),
                                      .canaries_picked = 4,
                                      .canaries_checked = 3,
                                      .canaries_failed = 1};
    if (how) assert_int_equal(hr_store_end_run(*st, &c, how, &err), HR_OK);
    hr_store_close(st);
}

/* What the command writes to stdout, as text; its exit code in *code. */
static const char *status(const char *name, const char *flag, int *code) {
    static char text[1 << 16];
    char dir[128], command[] = "status", out[160], option[16] = "";
    snprintf(dir, sizeof dir, "%s%s%s", root, name[0] ? "/" : "", name);
    snprintf(out, sizeof out, "%s.out", root);
    if (flag) snprintf(option, sizeof option, "%s", flag);
    char *argv[] = {command, dir, option, NULL};
    fflush(stdout);
    int saved = dup(1), fd = open(out, O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 1);
    *code = hr_cmd_status(flag ? 3 : 2, argv);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    unlink(out);
    return text;
}

/* The dataset object at place i of the JSON answer. */
static struct hr_jval dataset(const char *json, int i) {
    struct hr_jval whole, list, one = {0};
    struct hr_jiter it = {0};
    assert_int_equal(hr_jscan_validate(json, strlen(json), &whole, &err), HR_OK);
    assert_true(hr_jscan_get(&whole, "datasets", &list));
    for (int k = 0; k <= i; k++) assert_true(hr_jscan_next(&list, &it, NULL, &one));
    return one;
}

static void expect(const struct hr_jval *object, const char *key, const char *json) {
    struct hr_jval v;
    if (!hr_jscan_get(object, key, &v)) fail_msg("no key %s", key);
    if (v.len != strlen(json) || memcmp(v.p, json, v.len) != 0)
        fail_msg("%s is %.*s, not %s", key, (int)v.len, v.p, json);
}

static void the_json_has_every_key_of_the_design(void **state) {
    int code;
    struct hr_store *st = begin("ended");
    end(&st, "interrupted");
    struct hr_jval d = dataset(status("ended", "--json", &code), 0), runs, run;
    struct hr_jiter it = {0};
    assert_int_equal(code, 0);
    const char *const want[][2] = {{"dataset", "\"ended\""},
                                   {"state", "\"interrupted\""},
                                   {"rows_total", "3"},
                                   {"rows_done", "1"},
                                   {"rows_length", "1"},
                                   {"rows_repetitive", "1"},
                                   {"rejects", "1"},
                                   {"prompt_tokens", "20"},
                                   {"completion_tokens", "500"},
                                   {"sampled_tokens_total", "510"},
                                   {"prefill_tokens_total", "40"},
                                   {"cached_tokens_total", "0"},
                                   {"resumed_tokens_total", "0"},
                                   {"recomputed_tokens_total", "0"},
                                   {"preemptions", "0"},
                                   {"canaries_picked", "4"},
                                   {"canaries_checked", "3"},
                                   {"canaries_failed", "1"},
                                   {"mean_running", "2.550"},
                                   {"tok_s", "250.00"},
                                   {"capped", "true"},
                                   {"cap", "400"}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) expect(&d, want[i][0], want[i][1]);
    assert_true(hr_jscan_get(&d, "runs", &runs));
    assert_true(hr_jscan_next(&runs, &it, NULL, &run));
    expect(&run, "state", "\"interrupted\"");
    expect(&run, "host", "\"mill\"");
    expect(&run, "sampled_tokens_total", "510");
    assert_false(hr_jscan_next(&runs, &it, NULL, &run));
}

static void a_run_without_an_end_is_live_or_was_killed(void **state) {
    int code;
    struct hr_store *st = begin("held");
    struct hr_jval d = dataset(status("held", "--json", &code), 0);
    assert_int_equal(code, 0);
    expect(&d, "state", "\"running\"");
    end(&st, NULL); /* as after a SIGKILL: the lock is gone, the run has no end */
    d = dataset(status("held", "--json", &code), 0);
    expect(&d, "state", "\"killed\"");
    expect(&d, "rows_done", "1");
}

static void an_output_folder_shows_its_datasets_by_name(void **state) {
    int code;
    struct hr_store *st = begin("b");
    end(&st, "done");
    st = begin("a");
    end(&st, "done");
    char other[64];
    snprintf(other, sizeof other, "%s/zzz", root); /* a folder of somebody else */
    mkdir(other, 0700);
    const char *json = status("", "--json", &code);
    assert_int_equal(code, 0);
    struct hr_jval first = dataset(json, 0), second = dataset(json, 1);
    expect(&first, "dataset", "\"a\"");
    expect(&second, "dataset", "\"b\"");
    const char *table = status("a", NULL, &code);
    assert_int_equal(code, 0);
    assert_string_equal(
        table,
        "dataset  state  rows  length           rejects  tokens  cap          tok/s  canaries       running\n"
        "a        done   1/3   1, 1 repetitive  1        500     400 reached  250.0  3/4, 1 FAILED  -\n");
}

static void a_folder_without_a_job_is_a_usage_error(void **state) {
    int code;
    char empty[64];
    snprintf(empty, sizeof empty, "%s/empty", root);
    mkdir(empty, 0700);
    assert_string_equal(status("empty", "--json", &code), "");
    assert_int_equal(code, HR_EXIT_USAGE);
    status("not-there", NULL, &code);
    assert_int_equal(code, HR_EXIT_USAGE);
}

static int make_root(void **state) {
    memcpy(root + sizeof root - 7, "XXXXXX", 6); /* mkdtemp has filled them in the last time */
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_json_has_every_key_of_the_design, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(a_run_without_an_end_is_live_or_was_killed, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(an_output_folder_shows_its_datasets_by_name, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(a_folder_without_a_job_is_a_usage_error, make_root,
                                        remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

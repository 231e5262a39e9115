/* SPDX-License-Identifier: Apache-2.0
 *
 * base/log: a stderr that nobody reads costs a second once, not the run; what was lost is counted. What a
 * terminal would obey is shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

static int ends[2], saved;

/* Everything that is in the pipe, as text. */
static const char *drain(void) {
    static char text[1 << 17];
    size_t n = 0;
    for (ssize_t k; (k = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)k;
    text[n] = 0;
    return text;
}

static int pipe_becomes_stderr(void **state) {
    saved = dup(2);
    if (pipe(ends) != 0) return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    dup2(ends[1], 2);
    alarm(60); /* a test that hangs is killed, not waited for */
    return 0;
}

static int stderr_comes_back(void **state) {
    alarm(0);
    dup2(saved, 2);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static void count_lines(void *arg, enum hr_log_level level, const char *line, size_t len) {
    ++*(int *)arg;
}

static void a_full_pipe_delays_only_the_first_line_and_the_sink_gets_all(void **state) {
    char line[1001] = {0};
    int n_sunk = 0;
    memset(line, 'x', 1000);
    hr_log_set_sink(count_lines, &n_sunk);
    int64_t begin = hr_clock_ns();
    for (int i = 0; i < 500; i++) hr_info("%s", line);
    int64_t took = hr_clock_ns() - begin;
    hr_log_set_sink(NULL, NULL);
    assert_int_equal(n_sunk, 500);
    assert_true(took < INT64_C(3000000000));
    drain();
    hr_info("there again");
    const char *text = drain();
    assert_non_null(strstr(text, " lines were lost: nobody read them)\nthere again\n"));
    hr_info("and on");
    assert_string_equal(drain(), "and on\n");
}

static void a_long_line_arrives_whole(void **state) {
    char line[20001] = {0};
    memset(line, 'y', 20000);
    hr_warn("%s", line);
    const char *text = drain();
    assert_int_equal(strlen(text), strlen("warning: ") + 20000 + 1);
}

static void a_reader_that_went_away_is_no_failure(void **state) {
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    int64_t begin = hr_clock_ns();
    for (int i = 0; i < 100; i++) hr_info("to nobody");
    assert_true(hr_clock_ns() - begin < INT64_C(500000000));
    ends[0] = dup(saved);
}

static void keep_line(void *arg, enum hr_log_level level, const char *line, size_t len) {
    memcpy(arg, line, len + 1);
}

static void what_a_terminal_would_obey_is_shown(void **state) {
    char sunk[200];
    hr_log_set_sink(keep_line, sunk);
    hr_warn("a\nb\x1b[1m\x7f \xc2\x9b \xe2\x80\xae\xe2\x81\xa6 %s", "\xc3\xa9\xe2\x82\xac\xe2\x80\x93 \xe2\x80");
    hr_log_set_sink(NULL, NULL);
    const char *want = "a\\nb\\x1b[1m\\x7f \\x9b \\u202e\\u2066 \xc3\xa9\xe2\x82\xac\xe2\x80\x93 \xe2\x80";
    assert_string_equal(sunk, want);
    const char *text = drain();
    assert_memory_equal(text, "warning: ", 9);
    assert_memory_equal(text + 9, want, strlen(want));
    assert_string_equal(text + 9 + strlen(want), "\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_full_pipe_delays_only_the_first_line_and_the_sink_gets_all, pipe_becomes_stderr,
            stderr_comes_back),
        cmocka_unit_test_setup_teardown(what_a_terminal_would_obey_is_shown, pipe_becomes_stderr,
                                        stderr_comes_back),
        cmocka_unit_test_setup_teardown(a_long_line_arrives_whole, pipe_becomes_stderr,
                                        stderr_comes_back),
        cmocka_unit_test_setup_teardown(a_reader_that_went_away_is_no_failure, pipe_becomes_stderr,
                                        stderr_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

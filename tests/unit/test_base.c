/* SPDX-License-Identifier: Apache-2.0
 *
 * base: published test vectors for hashes and random numbers, and the bounds of buffers and queues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/queue.h"
#include "base/rng.h"

static void sha256_equals_the_vectors_of_fips_180(void **state) {
    uint8_t d[32];
    char hex[65];
    hr_sha256("abc", 3, d);
    hr_hex(d, 32, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    hr_sha256(two, strlen(two), d);
    hr_hex(d, 32, hex);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char a[1000];
    memset(a, 'a', sizeof a);
    struct hr_sha256 s;
    hr_sha256_init(&s);
    for (int i = 0; i < 1000; i++) hr_sha256_update(&s, a, sizeof a);
    hr_sha256_final(&s, d);
    hr_hex(d, 32, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void crc32c_equals_the_vector_of_rfc_3720(void **state) {
    assert_int_equal(hr_crc32c(0, "123456789", 9), 0xE3069283u);
    assert_int_equal(hr_crc32c(hr_crc32c(0, "1234", 4), "56789", 5), 0xE3069283u);
}

static void philox_equals_the_vectors_of_random123(void **state) {
    uint32_t out[4], zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    hr_philox4x32(zero, zero, out);
    assert_int_equal(out[0], 0x6627e8d5u);
    assert_int_equal(out[3], 0x9b00dbd8u);
    hr_philox4x32(ones, ones, out);
    assert_int_equal(out[0], 0x408f276du);
    assert_int_equal(out[3], 0x6d5451fdu);
    for (int i = 0; i < 1000; i++) {
        double u = hr_rng_uniform(42, 7, (uint64_t)i);
        assert_true(u > 0 && u < 1);
        assert_true(u == hr_rng_uniform(42, 7, (uint64_t)i));
    }
}

static void json_strings_escape_what_json_asks_for(void **state) {
    struct hr_buf b = {0};
    hr_buf_json_str(&b, "a\"\\\n\x01\0é", 8);
    assert_string_equal(hr_buf_cstr(&b), "\"a\\\"\\\\\\n\\u0001\\u0000é\"");
    hr_buf_finish(&b);
}

static void a_queue_holds_no_more_than_its_capacity(void **state) {
    struct hr_queue *q = hr_queue_create(sizeof(int), 3);
    int in[5] = {1, 2, 3, 4, 5}, out[5];
    assert_int_equal(hr_queue_push(q, in, 5, false), 3);
    assert_int_equal(hr_queue_push(q, in, 1, false), 0);
    assert_int_equal(hr_queue_pop(q, out, 2, true), 2);
    assert_int_equal(out[1], 2);
    assert_int_equal(hr_queue_push(q, in + 3, 2, true), 2);
    hr_queue_close(q);
    assert_int_equal(hr_queue_push(q, in, 1, true), 0);
    assert_int_equal(hr_queue_pop(q, out, 5, true), 3);
    assert_int_equal(out[2], 5);
    assert_int_equal(hr_queue_pop(q, out, 5, true), 0);
    hr_queue_destroy(&q);
    assert_null(q);
}

static void a_long_message_is_cut_at_a_character(void **state) {
    struct hr_err err;
    char s[3001] = {0};
    for (int i = 0; i < 1500; i++) memcpy(s + 2 * i, "é", 2);
    assert_int_equal(hr_err_set(&err, HR_ERR_IO, "x%s", s), HR_ERR_IO);
    size_t n = strlen(err.msg);
    assert_true(n % 2 == 1 && n > 1000 && n < sizeof err.msg);
    assert_int_equal(hr_err_prefix(&err, "file"), HR_ERR_IO);
    assert_memory_equal(err.msg, "file: x\xc3\xa9", 9);
}

static void a_time_is_one_that_the_calendar_has(void **state) {
    static const char *const bad[] = {"",           "noon",       "2026",        "2026-02-29",  "2026-02-30T00:00:00",
                                      "2026-13-01", "2026-04-31", "2026-1-1T25", "2026-01-01x", "2026-01-01T00:00:60",
                                      "2026-01-01T00:00:00Zx", "2026-01-01T00:00"};
    static const char *const good[] = {"2024-02-29", "2026-11-29T21:52:30", "2026-11-29T21:52:30Z",
                                       "2026-11-29T21:52:30.123Z", "2026-12-31T23:59:59.5"};
    struct tm tm;
    char now[25];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hr_clock_parse(bad[i], &tm)) fail_msg("%s was taken", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!hr_clock_parse(good[i], &tm)) fail_msg("%s was refused", good[i]);
    assert_true(hr_clock_parse("2026-11-29T21:52:30", &tm));
    assert_true(tm.tm_year == 126 && tm.tm_mon == 10 && tm.tm_mday == 29 && tm.tm_hour == 21 && tm.tm_min == 52);
    assert_true(tm.tm_sec == 30 && tm.tm_wday == 0 && tm.tm_yday == 332);
    hr_clock_iso(now);
    assert_true(hr_clock_parse(now, &tm));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_equals_the_vectors_of_fips_180),
        cmocka_unit_test(crc32c_equals_the_vector_of_rfc_3720),
        cmocka_unit_test(philox_equals_the_vectors_of_random123),
        cmocka_unit_test(json_strings_escape_what_json_asks_for),
        cmocka_unit_test(a_queue_holds_no_more_than_its_capacity),
        cmocka_unit_test(a_long_message_is_cut_at_a_character),
        cmocka_unit_test(a_time_is_one_that_the_calendar_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

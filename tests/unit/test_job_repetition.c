/* SPDX-License-Identifier: Apache-2.0
 *
 * repetition: which completions only repeat themselves, at each of the definition's bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job/repetition.h"

/* `front` tokens that differ from each other and the rest, then `tail` tokens of a cycle. */
static bool ask(int front, int tail, int cycle) {
    static int32_t ids[4096];
    for (int i = 0; i < front; i++) ids[i] = 1000 + i;
    for (int i = 0; i < tail; i++) ids[front + i] = i % cycle;
    return hr_is_repetitive(ids, (size_t)(front + tail));
}

static void a_cycle_must_fill_half_or_256_tokens(void **state) {
    assert_true(ask(100, 100, 3));
    assert_true(ask(100, 101, 3));
    assert_false(ask(101, 100, 3)); /* of 201 tokens 101 are asked for */
    assert_true(ask(3000, 256, 3));
    assert_false(ask(3000, 255, 3));
    assert_false(ask(300, 255, 64));
}

static void a_short_completion_needs_64_tokens(void **state) {
    assert_true(ask(0, 64, 1));
    assert_false(ask(0, 63, 1));
    assert_false(ask(1, 63, 1));
    assert_true(ask(40, 64, 5));
    assert_false(ask(0, 0, 1));
}

static void a_cycle_has_at_most_64_tokens_and_goes_round_four_times(void **state) {
    assert_true(ask(0, 256, 64));
    assert_false(ask(0, 255, 64));
    assert_true(ask(200, 256, 64)); /* more than half, and more than 4 x 64 */
    assert_false(ask(0, 1000, 65));
    assert_true(ask(0, 80, 20));
    assert_false(ask(0, 79, 20));
}

static void one_other_token_ends_a_cycle(void **state) {
    int32_t ids[300];
    for (int i = 0; i < 300; i++) ids[i] = i % 7;
    assert_true(hr_is_repetitive(ids, 300));
    for (int i = 150; i < 300; i++) {
        int32_t was = ids[i];
        ids[i] = 99;
        assert_false(hr_is_repetitive(ids, 300));
        ids[i] = was;
    }
    ids[149] = 99;
    assert_true(hr_is_repetitive(ids, 300)); /* the last 150 are enough */
}

static void random_tokens_are_no_cycle(void **state) {
    int32_t ids[512];
    for (uint64_t seed = 0; seed < 200; seed++) {
        for (int i = 0; i < 512; i++) ids[i] = (int32_t)(hr_rng_uniform(seed, 1, (uint64_t)i) * 2);
        assert_false(hr_is_repetitive(ids, 512));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cycle_must_fill_half_or_256_tokens),
        cmocka_unit_test(a_short_completion_needs_64_tokens),
        cmocka_unit_test(a_cycle_has_at_most_64_tokens_and_goes_round_four_times),
        cmocka_unit_test(one_other_token_ends_a_cycle),
        cmocka_unit_test(random_tokens_are_no_cycle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

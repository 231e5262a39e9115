/* SPDX-License-Identifier: Apache-2.0
 *
 * flight: stop rules, whatever the token borders, and the same state after a replay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "engine/flight.h"

/* Tokens: 0 "a", 1 "b", 2 "Answer\n\n", 3 "" (control), 4 "xyz", 5 "\xf0\x9f", 6 "\x8d\xb5". */
static const uint32_t offset[] = {0, 1, 2, 10, 10, 13, 15, 17};
static const struct hr_engine_bytes bytes = {
    .bytes = (const uint8_t *)"abAnswer\n\nxyz\xf0\x9f\x8d\xb5", .offset = offset, .n_tokens = 7};
static const int32_t prompt[] = {4, 0, 4};

static struct hr_request request(int max_tokens) {
    return (struct hr_request){
        .prompt = prompt, .n_prompt = 3, .max_tokens = max_tokens, .top_p = 1, .repetition_penalty = 1};
}

static const struct hr_event *run(struct hr_request *r, struct hr_flight **f, const int32_t *ids, int n) {
    *f = hr_flight_create(r, &bytes);
    for (int i = 0; i < n && !(*f)->finished; i++) hr_flight_push(*f, ids[i], &bytes);
    return &(*f)->end;
}
#define RUN(r, f, ...) run(r, f, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

static void stops(struct hr_request *r, const char *const *s, size_t *len, int n) {
    for (int i = 0; i < n; i++) len[i] = strlen(s[i]);
    r->stop = s;
    r->stop_len = len;
    r->n_stop = n;
}

static void the_leftmost_of_two_matches_in_one_token_wins(void **state) {
    struct hr_request r = request(10);
    struct hr_flight *f;
    size_t len[2];
    stops(&r, (const char *const[]){"\n"}, len, 1);
    const struct hr_event *e = RUN(&r, &f, 2);
    assert_int_equal(e->finish, HR_FINISH_STOP_STRING);
    assert_int_equal(e->n_bytes, 6);
    hr_flight_destroy(&f);
    stops(&r, (const char *const[]){"\n\n", "r"}, len, 2);
    e = RUN(&r, &f, 0, 2);
    assert_int_equal(e->stop_index, 1);
    assert_int_equal(e->n_bytes, 6);
    assert_int_equal(e->n_tokens, 2);
    hr_flight_destroy(&f);
    stops(&r, (const char *const[]){"An", "Ans"}, len, 2); /* ties go by list order */
    e = RUN(&r, &f, 2);
    assert_int_equal(e->stop_index, 0);
    hr_flight_destroy(&f);
}

static void a_stop_string_is_found_across_tokens(void **state) {
    struct hr_request r = request(10);
    struct hr_flight *f;
    size_t len[1];
    stops(&r, (const char *const[]){"babxy"}, len, 1);
    const struct hr_event *e = RUN(&r, &f, 0, 0, 1, 0, 3, 1, 4);
    assert_true(f->finished);
    assert_int_equal(e->finish, HR_FINISH_STOP_STRING);
    assert_int_equal(e->n_bytes, 2); /* "aa" */
    hr_flight_destroy(&f);
}

static void eos_as_the_last_allowed_token_is_a_stop(void **state) {
    struct hr_request r = request(3);
    struct hr_flight *f;
    int32_t eos[] = {9, 3};
    r.eos = eos;
    r.n_eos = 2;
    assert_int_equal(RUN(&r, &f, 0, 1, 3)->finish, HR_FINISH_EOS);
    assert_int_equal(f->end.n_tokens, 3);
    assert_int_equal(f->end.n_bytes, 2);
    hr_flight_destroy(&f);
    assert_int_equal(RUN(&r, &f, 0, 1, 0)->finish, HR_FINISH_LENGTH);
    hr_flight_destroy(&f);
    assert_int_equal(RUN(&r, &f, 9)->finish, HR_FINISH_EOS); /* every EOS of the model */
    hr_flight_destroy(&f);
}

static void ignore_eos_silences_eos_but_not_the_users_stop_ids(void **state) {
    struct hr_request r = request(5);
    struct hr_flight *f;
    int32_t eos[] = {3}, mine[] = {1};
    r.eos = eos;
    r.n_eos = 1;
    r.ignore_eos = true;
    r.stop_ids = mine;
    r.n_stop_ids = 1;
    assert_int_equal(RUN(&r, &f, 3, 3, 0, 3, 3)->finish, HR_FINISH_LENGTH);
    hr_flight_destroy(&f);
    assert_int_equal(RUN(&r, &f, 3, 0, 1)->finish, HR_FINISH_STOP_ID);
    assert_int_equal(f->end.n_bytes, 1);
    hr_flight_destroy(&f);
}

/* Tokens: 0 " a", 1 " ", 2 "x", which is hidden; as the first one, 0 is "a". */
static void expect_front(const struct hr_engine_bytes *b, int64_t n_bytes) {
    struct hr_request r = request(9);
    struct hr_flight *f;
    size_t len[1];
    stops(&r, (const char *const[]){" a"}, len, 1);
    f = hr_flight_create(&r, b);
    hr_flight_push(f, 2, b);
    hr_flight_push(f, 0, b);
    assert_false(f->finished); /* its blank is no text */
    hr_flight_push(f, 1, b);
    hr_flight_push(f, 0, b);
    assert_true(f->finished);
    assert_int_equal(f->end.n_bytes, n_bytes);
    hr_flight_destroy(&f);
    stops(&r, (const char *const[]){"x"}, len, 1);
    f = hr_flight_create(&r, b);
    hr_flight_push(f, 2, b);
    assert_false(f->finished);
    hr_flight_destroy(&f);
}

static void what_is_no_text_matches_no_stop_string(void **state) {
    static const uint32_t at[] = {0, 2, 3, 4}, first_at[] = {0, 1, 2, 3};
    static const bool hidden[] = {false, false, true};
    struct hr_engine_bytes b = {.bytes = (const uint8_t *)" a x", .offset = at, .hidden = hidden, .n_tokens = 3};
    b.n_strip = 1, b.strip = ' ';
    expect_front(&b, 3);
    b.n_strip = 0, b.first_bytes = (const uint8_t *)"a x", b.first_offset = first_at;
    expect_front(&b, 2);
}

static void a_replay_reaches_the_same_state(void **state) {
    struct hr_request r = request(8);
    size_t len[1];
    stops(&r, (const char *const[]){"zab"}, len, 1);
    r.presence_penalty = 1;
    r.frequency_penalty = 0.5f;
    struct hr_flight *whole, *resumed;
    RUN(&r, &whole, 4, 4, 0, 5);
    const int32_t known[] = {4, 4, 0};
    r.resumed = known;
    r.n_resumed = 3;
    RUN(&r, &resumed, 5);
    struct hr_sample_row a, b;
    hr_flight_sample_row(whole, &a);
    hr_flight_sample_row(resumed, &b);
    assert_true(a.uniform == b.uniform);
    assert_int_equal(a.n_seen, 3); /* a, xyz, half a cup */
    assert_int_equal(a.n_seen, b.n_seen);
    assert_memory_equal(a.seen, b.seen, 12);
    assert_memory_equal(a.seen_count, b.seen_count, 12);
    assert_int_equal(a.seen_count[0], 1); /* token 0: once in the prompt, once in the completion */
    assert_int_equal(whole->n_bytes, resumed->n_bytes);
    hr_flight_destroy(&whole);
    hr_flight_destroy(&resumed);
}

static void a_journal_that_ends_in_the_last_token_finishes_at_once(void **state) {
    struct hr_request r = request(2);
    const int32_t known[] = {0, 1};
    r.resumed = known;
    r.n_resumed = 2;
    struct hr_flight *f = hr_flight_create(&r, &bytes);
    assert_true(f->finished);
    assert_int_equal(f->end.finish, HR_FINISH_LENGTH);
    hr_flight_destroy(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_leftmost_of_two_matches_in_one_token_wins),
        cmocka_unit_test(a_stop_string_is_found_across_tokens),
        cmocka_unit_test(eos_as_the_last_allowed_token_is_a_stop),
        cmocka_unit_test(ignore_eos_silences_eos_but_not_the_users_stop_ids),
        cmocka_unit_test(what_is_no_text_matches_no_stop_string),
        cmocka_unit_test(a_replay_reaches_the_same_state),
        cmocka_unit_test(a_journal_that_ends_in_the_last_token_finishes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * flight: stop rules, whatever the token borders, prefaces, and the same state after a replay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
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
    for (int i = 0; i < n && !(*f)->finished; i++) hr_flight_push(*f, ids[i]);
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
    hr_flight_push(f, 2);
    hr_flight_push(f, 0);
    assert_false(f->finished); /* its blank is no text */
    hr_flight_push(f, 1);
    hr_flight_push(f, 0);
    assert_true(f->finished);
    assert_int_equal(f->end.n_bytes, n_bytes);
    hr_flight_destroy(&f);
    stops(&r, (const char *const[]){"x"}, len, 1);
    f = hr_flight_create(&r, b);
    hr_flight_push(f, 2);
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

/* ---- prefaces: tags <t> and </t>, which no token, one or several may hold ---- */

enum { T_OPEN = 0, T_CLOSE, T_HIDDEN_OPEN, T_HIDDEN_CLOSE, T_LT, T_T, T_GT, T_SLASH, T_NL, T_A, T_HIDDEN_A, T_MANY, T_HIDDEN_MORE, N_T };
static const char *const tag_tokens[N_T] = {"<t>", "</t>", "<t>", "</t>", "<", "t", ">", "/", "\n", "a", "a", "t></t>a<t", "<t>a"};
static const bool tag_hidden[N_T] = {[T_HIDDEN_OPEN] = true, [T_HIDDEN_CLOSE] = true, [T_HIDDEN_A] = true, [T_HIDDEN_MORE] = true};
static uint32_t tag_offset[N_T + 1];
static char tag_bytes[64];

static struct hr_engine_bytes tag_table(void) {
    size_t n = 0;
    for (int i = 0; i < N_T; i++) {
        tag_offset[i] = (uint32_t)n;
        memcpy(tag_bytes + n, tag_tokens[i], strlen(tag_tokens[i]));
        n += strlen(tag_tokens[i]);
    }
    tag_offset[N_T] = (uint32_t)n;
    return (struct hr_engine_bytes){
        .bytes = (const uint8_t *)tag_bytes, .offset = tag_offset, .hidden = tag_hidden, .n_tokens = N_T};
}

static struct hr_request thinking(int max_tokens, bool begun) {
    struct hr_request r = request(max_tokens);
    r.preface = (struct hr_preface){"<t>", "</t>", 3, 4, begun};
    return r;
}

static void expect_preface(const struct hr_event *e, int begin, int end, int answer, int n_bytes) {
    assert_true(e->has_preface == (begin >= 0));
    assert_int_equal(e->preface_begin, begin >= 0 ? begin : 0);
    assert_int_equal(e->preface_end, end);
    assert_int_equal(e->answer_begin, answer);
    assert_int_equal(e->n_bytes, n_bytes);
}

static struct hr_event think(bool begun, const char *stop, const int32_t *ids, int n) {
    struct hr_request r = thinking(n, begun);
    size_t len[1];
    const char *list[] = {stop};
    if (stop) stops(&r, list, len, 1);
    struct hr_engine_bytes b = tag_table();
    struct hr_flight *f = hr_flight_create(&r, &b);
    for (int i = 0; i < n && !f->finished; i++) hr_flight_push(f, ids[i]);
    assert_true(f->finished);
    struct hr_event e = f->end;
    hr_flight_destroy(&f);
    return e;
}
#define THINK(begun, stop, ...)                                                                                 \
    think(begun, stop, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

static void stop_strings_wait_for_the_end_of_the_preface(void **state) {
    struct hr_event e = THINK(false, "a", T_NL, T_OPEN, T_A, T_NL, T_CLOSE, T_NL, T_A, T_A);
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    assert_int_equal(e.n_tokens, 7);
    expect_preface(&e, 4, 6, 10, 11);
    e = THINK(true, "a", T_NL, T_A, T_LT, T_SLASH, T_T, T_GT, T_A); /* a tag in four tokens */
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    expect_preface(&e, 0, 2, 6, 6);
    e = THINK(true, "a", T_A, T_MANY); /* the end and a stop string in one token */
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    expect_preface(&e, 0, 3, 7, 7);
    e = THINK(false, "t", T_LT, T_T, T_GT, T_T, T_CLOSE, T_A); /* no stop string in a tag */
    assert_int_equal(e.finish, HR_FINISH_LENGTH);
    expect_preface(&e, 3, 4, 8, 9);
    e = THINK(false, "\na", T_OPEN, T_NL, T_CLOSE, T_A, T_A); /* nor one that begins in the preface */
    assert_int_equal(e.finish, HR_FINISH_LENGTH);
}

static void hidden_tags_add_no_bytes(void **state) {
    struct hr_event e = THINK(false, "a", T_HIDDEN_OPEN, T_A, T_HIDDEN_A, T_HIDDEN_CLOSE, T_NL, T_A);
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    expect_preface(&e, 0, 1, 1, 2);
    e = THINK(true, "a", T_HIDDEN_OPEN, T_A, T_HIDDEN_CLOSE, T_HIDDEN_A, T_A);
    expect_preface(&e, 0, 1, 1, 1);
    assert_int_equal(e.n_tokens, 5);
}

static void a_preface_that_never_ends_is_all_there_is(void **state) {
    struct hr_event e = THINK(false, "a", T_OPEN, T_A, T_A);
    assert_int_equal(e.finish, HR_FINISH_LENGTH);
    expect_preface(&e, 3, 5, 5, 5);
    e = THINK(true, "a", T_NL, T_LT); /* perhaps a tag, but nothing more comes */
    expect_preface(&e, 0, 2, 2, 2);
}

static void without_a_tag_at_the_front_there_is_no_preface(void **state) {
    struct hr_event e = THINK(false, NULL, T_A, T_OPEN, T_A, T_CLOSE);
    expect_preface(&e, -1, 0, 0, 9);
    e = THINK(false, "<", T_LT, T_T, T_T, T_A); /* found as soon as it is no tag */
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    assert_int_equal(e.n_tokens, 3);
    expect_preface(&e, -1, 0, 0, 0);
    e = THINK(false, "\n", T_NL, T_LT); /* and at the end at the latest */
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    expect_preface(&e, -1, 0, 0, 0);
}

static void hidden_tokens_that_are_no_tag_are_passed_over(void **state) {
    struct hr_event e = THINK(false, "a", T_HIDDEN_A, T_OPEN, T_A, T_CLOSE, T_A); /* before it */
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    expect_preface(&e, 3, 4, 8, 8);
    e = THINK(false, "a", T_HIDDEN_A, T_HIDDEN_OPEN, T_A, T_HIDDEN_CLOSE, T_A);
    expect_preface(&e, 0, 1, 1, 1);
    e = THINK(false, "a", T_LT, T_HIDDEN_A, T_T, T_GT, T_A, T_LT, T_SLASH, T_HIDDEN_A, T_T, T_GT, T_A); /* inside */
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    expect_preface(&e, 3, 4, 8, 8);
    e = THINK(true, "a", T_HIDDEN_A, T_HIDDEN_CLOSE, T_OPEN, T_A); /* the prompt's is closed before another opens */
    assert_int_equal(e.finish, HR_FINISH_STOP_STRING);
    expect_preface(&e, 0, 0, 0, 3);
    e = THINK(false, NULL, T_HIDDEN_A, T_A, T_OPEN, T_A);
    expect_preface(&e, -1, 0, 0, 5);
}

/* The same by looking at all bytes at once. */
struct looked {
    char text[512]; /* without hidden tokens */
    char all[512];  /* what counts for tags */
    int at[513];    /* the place in text of each byte of all */
    int n_all, n_text;
};

static void look_add(struct looked *l, const char *s, bool hidden) {
    for (; *s; s++) {
        l->at[l->n_all] = l->n_text;
        l->all[l->n_all++] = *s;
        if (!hidden) l->text[l->n_text++] = *s;
    }
    l->at[l->n_all] = l->n_text;
    l->all[l->n_all] = l->text[l->n_text] = 0;
}

static bool begins_with(const char *s, const char *begin) {
    return strncmp(s, begin, strlen(begin)) == 0;
}

/* Do these bytes hold the closing tag or end in a beginning of it? */
static bool has_close(const char *s) {
    bool has = strstr(s, "</t>");
    for (size_t n = 1; n < 4 && n <= strlen(s); n++) has = has || strncmp(s + strlen(s) - n, "</t>", n) == 0;
    return has;
}

/* Returns whether a stop string is there. */
static bool look(const int32_t *ids, int n, bool at_end, bool begun, const char *const *stop, int n_stop,
                 struct hr_event *e) {
    struct looked l = {0};
    bool open = false, none = false;
    int from = 0;
    for (int i = 0; i < n && !open && !none; i++) { /* the front: is there a tag? */
        struct looked more = l;
        bool hidden = tag_hidden[ids[i]];
        look_add(&more, tag_tokens[ids[i]], hidden);
        const char *front = more.all + strspn(more.all, "\n");
        open = begins_with(front, "<t>");
        if (open) from = (int)(front - more.all) + 3;
        bool fits = open || begins_with("<t>", front);
        none = !fits && (!hidden || (begun && strstr(tag_tokens[ids[i]], "</t>")));
        if (fits || !hidden) l = more;
    }
    none = none || (at_end && !open);
    l = (struct looked){0};
    for (int i = 0, done = 0; i < n; i++) { /* and again, as it is known now */
        struct looked more = l;
        bool hidden = tag_hidden[ids[i]];
        look_add(&more, tag_tokens[ids[i]], hidden);
        const char *front = more.all + strspn(more.all, "\n");
        bool in_front = open && !done, counts = !hidden || has_close(more.all + from);
        if (in_front) counts = !hidden || begins_with(front, "<t>") || begins_with("<t>", front);
        if (in_front && begins_with(front, "<t>")) {
            done = 1;
            if (hidden && !has_close(more.all + from)) more.all[more.n_all = from] = 0;
        }
        if (counts) l = more;
    }
    *e = (struct hr_event){.n_bytes = l.n_text, .stop_index = -1};
    if (!open && !none) return false;
    e->has_preface = open || begun;
    if (e->has_preface) {
        const char *close = strstr(l.all + from, "</t>");
        e->preface_begin = l.at[from];
        e->preface_end = close ? l.at[close - l.all] : l.n_text;
        e->answer_begin = close ? l.at[close - l.all + 4] : l.n_text;
        if (!close) return false;
    }
    const char *first = NULL;
    for (int i = 0; i < n_stop; i++) {
        const char *hit = strstr(l.text + e->answer_begin, stop[i]);
        if (hit && (!first || hit < first)) first = hit, e->stop_index = i;
    }
    if (first) e->n_bytes = first - l.text;
    return first;
}

static void expect_as_looked_at(uint64_t seed, const int32_t *ids, int n) {
    static const char *const stop[] = {"aa", "t\n", "/"};
    struct hr_request r = thinking(n, seed & 1);
    struct hr_event want = {0};
    size_t len[3];
    bool found = false;
    int k = 0;
    stops(&r, stop, len, 3);
    while (k < n && !found) k++, found = look(ids, k, k == n, seed & 1, stop, 3, &want);
    struct hr_engine_bytes b = tag_table();
    r.resumed = ids;
    for (r.n_resumed = 0; r.n_resumed <= k; r.n_resumed += 5) { /* and the same after a replay */
        struct hr_flight *f = hr_flight_create(&r, &b);
        for (int i = r.n_resumed; i < n && !f->finished; i++) hr_flight_push(f, ids[i]);
        assert_true(f->finished);
        assert_int_equal(f->end.n_tokens, k);
        assert_int_equal(f->end.finish, found ? HR_FINISH_STOP_STRING : HR_FINISH_LENGTH);
        assert_int_equal(f->end.stop_index, want.stop_index);
        expect_preface(&f->end, want.has_preface ? (int)want.preface_begin : -1, (int)want.preface_end,
                       (int)want.answer_begin, (int)want.n_bytes);
        hr_flight_destroy(&f);
    }
}

static void random_tokens_end_where_all_their_bytes_say(void **state) {
    for (uint64_t seed = 0; seed < 20000; seed++) {
        int32_t ids[24];
        int n = 1 + (int)(hr_rng_uniform(seed, 1, 100) * 24);
        for (int i = 0; i < n; i++) ids[i] = (int32_t)(hr_rng_uniform(seed, 1, (uint64_t)i) * N_T);
        expect_as_looked_at(seed, ids, n);
    }
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
    assert_int_equal(whole->scan.n_bytes, resumed->scan.n_bytes);
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

static void a_canary_is_cold_and_stops_as_its_row_did(void **state) {
    struct hr_request r = request(10);
    struct hr_flight *f;
    size_t len[1];
    stops(&r, (const char *const[]){"bx"}, len, 1);
    const struct hr_event *e = RUN(&r, &f, 0, 1, 4);
    assert_int_equal(e->finish, HR_FINISH_STOP_STRING);
    assert_false(f->seq.cold);
    struct hr_request again = r;
    again.canary = (const int32_t[]){0, 1, 4};
    again.n_canary = 3;
    struct hr_flight *canary;
    const struct hr_event *same = RUN(&again, &canary, 0, 1, 4);
    assert_true(canary->seq.cold && canary->finished);
    assert_true(same->finish == e->finish && same->stop_index == e->stop_index && same->n_bytes == e->n_bytes);
    hr_flight_destroy(&canary);
    hr_flight_destroy(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_leftmost_of_two_matches_in_one_token_wins),
        cmocka_unit_test(a_stop_string_is_found_across_tokens),
        cmocka_unit_test(eos_as_the_last_allowed_token_is_a_stop),
        cmocka_unit_test(ignore_eos_silences_eos_but_not_the_users_stop_ids),
        cmocka_unit_test(what_is_no_text_matches_no_stop_string),
        cmocka_unit_test(stop_strings_wait_for_the_end_of_the_preface),
        cmocka_unit_test(hidden_tags_add_no_bytes),
        cmocka_unit_test(hidden_tokens_that_are_no_tag_are_passed_over),
        cmocka_unit_test(a_preface_that_never_ends_is_all_there_is),
        cmocka_unit_test(without_a_tag_at_the_front_there_is_no_preface),
        cmocka_unit_test(random_tokens_end_where_all_their_bytes_say),
        cmocka_unit_test(a_replay_reaches_the_same_state),
        cmocka_unit_test(a_journal_that_ends_in_the_last_token_finishes_at_once),
        cmocka_unit_test(a_canary_is_cold_and_stops_as_its_row_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

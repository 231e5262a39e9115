/* SPDX-License-Identifier: Apache-2.0
 *
 * test_text_models: the models and files beside byte-level BPE with merges: Unigram, scores of a
 * GGUF, tiktoken's ranks, SentencePiece's character map. The reference's own answers are in
 * tests/fidelity; here is what must hold by definition, and what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/base64.h"
#include "text/charsmap.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/uniclass.h"

#define BLANK "\xe2\x96\x81"

static void expect(const struct hr_tokenizer *t, const char *text, const int32_t *want, size_t n) {
    const struct hr_encode_opts opts = {.parse_special = true};
    struct hr_ids ids = {0};
    struct hr_err err = {0};
    if (hr_tokenizer_encode(t, text, strlen(text), &opts, &ids, &err)) fail_msg("%s", err.msg);
    bool same = ids.len == n && (n == 0 || memcmp(ids.data, want, n * sizeof *want) == 0);
    if (!same) {
        struct hr_buf b = {0};
        for (size_t i = 0; i < ids.len; i++) hr_buf_printf(&b, " %d", (int)ids.data[i]);
        fail_msg("\"%.60s\" gives%.200s", text, hr_buf_cstr(&b));
    }
    hr_ids_finish(&ids);
}
#define EXPECT(t, text, ...)                                                                       \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        expect(t, text, want_, sizeof want_ / sizeof *want_);                                      \
    } while (0)

static void expect_text(const struct hr_tokenizer *t, const int32_t *ids, size_t n,
                        const char *want) {
    struct hr_buf b = {0};
    hr_tokenizer_decode(t, ids, n, true, &b);
    assert_string_equal(hr_buf_cstr(&b), want);
    hr_buf_finish(&b);
}

/* --- scores of a GGUF --- */

enum { UNK, BOS, A, B, BC, AB, C, SPACE, SPACE_A, BYTE_C3, BYTE_A9, RUN, N_SCORED };
static const char *const scored[N_SCORED] = {"<unk>", "<s>", "a",       "b",      "bc",     "ab",
                                             "c",     BLANK, BLANK "a", "<0xC3>", "<0xA9>", "  "};
static const int32_t scored_types[N_SCORED] = {
    HR_TOKEN_UNKNOWN, HR_TOKEN_CONTROL, HR_TOKEN_NORMAL, HR_TOKEN_NORMAL,
    HR_TOKEN_NORMAL,  HR_TOKEN_NORMAL,  HR_TOKEN_NORMAL, HR_TOKEN_NORMAL,
    HR_TOKEN_NORMAL,  HR_TOKEN_BYTE,    HR_TOKEN_BYTE,   HR_TOKEN_USER_DEFINED};

static struct hr_vocab scored_vocab(const float *scores, size_t *len) {
    for (int i = 0; i < N_SCORED; i++) len[i] = strlen(scored[i]);
    return (struct hr_vocab){.model = "llama",
                             .pre = "",
                             .n_tokens = N_SCORED,
                             .tokens = scored,
                             .token_len = len,
                             .types = scored_types,
                             .scores = scores,
                             .bos = BOS,
                             .eos = -1,
                             .unk = UNK,
                             .pad = -1,
                             .add_space_prefix = true};
}

static struct hr_tokenizer *from_scores(float ab, float bc) {
    float scores[N_SCORED] = {0};
    size_t len[N_SCORED];
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    scores[AB] = ab;
    scores[BC] = bc;
    scores[SPACE_A] = -9;
    struct hr_vocab v = scored_vocab(scores, len);
    if (hr_tokenizer_create_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    return t;
}

static void test_the_highest_score_merges_first(void **state) {
    (void)state;
    struct hr_tokenizer *t = from_scores(-1, -2);
    EXPECT(t, "abc", SPACE, AB, C);
    EXPECT(t, "aabc a", SPACE_A, AB, C, SPACE_A);
    hr_tokenizer_destroy(&t);
    t = from_scores(-2, -1);
    EXPECT(t, "abc", SPACE_A, BC);
    hr_tokenizer_destroy(&t);
    t = from_scores(-2, -2); /* equal: the leftmost pair */
    EXPECT(t, "abc", SPACE, AB, C);
    hr_tokenizer_destroy(&t);
}

static void test_scored_bytes_runs_and_control_tokens(void **state) {
    (void)state;
    struct hr_tokenizer *t = from_scores(-1, -2);
    EXPECT(t, "\xc3\xa9", SPACE, BYTE_C3, BYTE_A9);
    EXPECT(t, "\xc3\xaa", SPACE, UNK); /* one of its bytes has no token */
    EXPECT(t, "<s>b", BOS, SPACE, B);
    EXPECT(t, "b  b", SPACE, B, RUN, SPACE, B); /* each stretch of text gets the space */
    EXPECT(t, "b" BLANK BLANK "b", SPACE, B, RUN, SPACE, B);
    expect_text(t, (const int32_t[]){SPACE_A, BYTE_C3, BYTE_A9, RUN, B}, 5, "a\xc3\xa9  b");
    hr_tokenizer_destroy(&t);
}

static void expect_cut(const struct hr_tokenizer *t, const int32_t *ids, size_t n, size_t cut,
                       const char *want, size_t want_dropped) {
    struct hr_buf out = {0};
    assert_int_equal(hr_detok_parts(t, ids, n, &cut, 1, &out), want_dropped);
    assert_string_equal(hr_buf_cstr(&out), want);
    hr_buf_finish(&out);
}

/* Whose decoder strips one blank at the very front and reads a run of byte tokens as a whole. */
static void test_cuts_of_a_sentencepiece_text(void **state) {
    (void)state;
    struct hr_tokenizer *t = from_scores(-1, -2);
    const struct hr_token_bytes *b = hr_tokenizer_bytes(t);
    const int32_t ids[] = {BOS, SPACE_A, BYTE_C3, BYTE_A9, RUN, B}; /* 2 1 1 2 1 bytes */
    assert_int_equal(b->n_strip, 1);
    assert_int_equal(b->strip, ' ');
    expect_cut(t, ids, 6, 7, "a\xc3\xa9  b", 0);
    expect_cut(t, ids, 6, 5, "a\xc3\xa9 ", 0);
    expect_cut(t, ids, 6, 2, "a", 0);
    expect_cut(t, ids, 6, 1, "", 0); /* the blank that is stripped */
    expect_cut(t, ids, 6, 3, "a\xef\xbf\xbd", 0);
    expect_cut(t, ids, 3, 3, "a", 1);
    const int32_t broken[] = {RUN, BYTE_C3, BYTE_C3, BYTE_A9, B}; /* the whole run is lost */
    expect_cut(t, broken, 5, 6, " \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "b", 0);
    hr_tokenizer_destroy(&t);
}

static void test_scores_that_are_missing_or_no_numbers_are_refused(void **state) {
    (void)state;
    float scores[N_SCORED] = {0};
    size_t len[N_SCORED];
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    struct hr_vocab v = scored_vocab(NULL, len);
    assert_int_equal(hr_tokenizer_create_vocab(&v, &t, &err), HR_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "scores is missing"));
    scores[AB] = NAN;
    v = scored_vocab(scores, len);
    assert_int_equal(hr_tokenizer_create_vocab(&v, &t, &err), HR_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "token 5"));
    assert_null(t);
}

static void test_plain_merges_of_white_tokens(void **state) {
    (void)state;
    const char *tokens[] = {"<unk>", "\n", "\n\n", BLANK, "x"}, *merges[] = {"\n \n"};
    const size_t len[] = {5, 1, 2, 3, 1}, merge_len[] = {3};
    struct hr_vocab v = {.model = "gemma4",
                         .pre = "",
                         .n_tokens = 5,
                         .n_merges = 1,
                         .tokens = tokens,
                         .token_len = len,
                         .merges = merges,
                         .merge_len = merge_len,
                         .bos = -1,
                         .eos = -1,
                         .unk = 0,
                         .pad = -1};
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    if (hr_tokenizer_create_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    EXPECT(t, "x\n\n\nx x", 4, 2, 1, 4, 3, 4);
    hr_tokenizer_destroy(&t);
    merges[0] = "\n  ";
    assert_int_equal(hr_tokenizer_create_vocab(&v, &t, &err), HR_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "entry 0"));
}

/* A "gemma4" vocabulary of characters and merges, without an unknown token. */
static struct hr_tokenizer *from_merges(const char *const *tokens, int n_tokens,
                                        const char *const *merges, int n_merges) {
    size_t *len = calloc((size_t)n_tokens + (size_t)n_merges, sizeof *len);
    for (int i = 0; i < n_tokens; i++) len[i] = strlen(tokens[i]);
    for (int i = 0; i < n_merges; i++) len[n_tokens + i] = strlen(merges[i]);
    struct hr_vocab v = {.model = "gemma4",
                         .pre = "",
                         .n_tokens = n_tokens,
                         .n_merges = n_merges,
                         .tokens = tokens,
                         .token_len = len,
                         .merges = merges,
                         .merge_len = len + n_tokens,
                         .bos = -1,
                         .eos = -1,
                         .unk = -1,
                         .pad = -1};
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    if (hr_tokenizer_create_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    free(len);
    return t;
}

static void test_a_character_that_vanishes_lets_its_neighbours_merge(void **state) {
    (void)state;
    const char *const tokens[] = {"a", "b", "ab"}, *const merges[] = {"a b"};
    struct hr_tokenizer *t = from_merges(tokens, 3, merges, 1);
    EXPECT(t, "ba?b", 1, 2);
    hr_tokenizer_destroy(&t);
}

static void test_byte_tokens_merge_over_characters(void **state) {
    (void)state;
    enum { N_BYTES = 256 };
    static char names[N_BYTES][8];
    const char *tokens[N_BYTES + 1], *const merges[] = {"<0xA9> <0xC3>"};
    for (int i = 0; i < N_BYTES; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        tokens[i] = names[i];
    }
    tokens[N_BYTES] = "<0xA9><0xC3>";
    struct hr_tokenizer *t = from_merges(tokens, N_BYTES + 1, merges, 1);
    EXPECT(t, "\xc3\xa9\xc3\xa9", 0xc3, N_BYTES, 0xa9);
    hr_tokenizer_destroy(&t);
}

/* A chain of different characters, each pair a token, the last pair first in rank: where the pairs
 * lie is decided at the far end, further away than a window. */
static void test_merges_that_depend_on_the_far_end(void **state) {
    (void)state;
    enum { N = 35001 };
    struct hr_buf text = {0}, pool = {0}, pairs = {0};
    const char **tokens = calloc(2 * N, sizeof *tokens), **merges = calloc(N, sizeof *merges);
    struct hr_ids want = {0};
    for (uint32_t i = 0; i < N; i++) {
        uint32_t a = 0x20000 + i;
        char c[2][8] = {{0}};
        hr_utf8_put(a, c[0]);
        hr_utf8_put(a + 1, c[1]);
        hr_buf_puts(&text, c[0]);
        hr_buf_printf(&pool, "%s%c%s%s%c", c[0], 0, c[0], i + 1 < N ? c[1] : "none", 0);
        hr_buf_printf(&pairs, "%s %s%c", c[0], c[1], 0);
    }
    const char *p = pool.data, *q = pairs.data;
    for (int i = 0; i < N; i++, q += strlen(q) + 1) {
        tokens[i] = p;
        p += strlen(p) + 1;
        tokens[N + i] = p;
        p += strlen(p) + 1;
        if (i + 1 < N) merges[N - 2 - i] = q;
    }
    struct hr_tokenizer *t = from_merges(tokens, 2 * N, merges, N - 1);
    hr_ids_push(&want, 0);
    for (int i = 1; i < N; i += 2) hr_ids_push(&want, N + i);
    expect(t, hr_buf_cstr(&text), want.data, want.len);
    hr_tokenizer_destroy(&t);
    hr_ids_finish(&want);
    hr_buf_finish(&text);
    hr_buf_finish(&pool);
    hr_buf_finish(&pairs);
    free(tokens);
    free(merges);
}

/* --- ranks --- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void put_rank(struct hr_buf *b, const char *s, size_t len, int rank) {
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++) v = v << 8 | (i + k < len ? (unsigned char)s[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            hr_buf_putc(b, k <= len - i ? digits[v >> (18 - 6 * k) & 63] : '=');
    }
    hr_buf_printf(b, " %d\n", rank);
}

enum { HE = 256, LL, HELL, LO, ZZZ, N_RANKS, CONTROL = N_RANKS };

static void put_all_ranks(struct hr_buf *b, int skip) {
    static const char *const merged[] = {"he", "ll", "hell", "lo", "zzz"};
    for (int i = 0; i < N_RANKS; i++) {
        char byte = (char)i;
        const char *s = i < 256 ? &byte : merged[i - 256];
        if (i != skip) put_rank(b, s, i < 256 ? 1 : strlen(s), i);
    }
}

static enum hr_status from_ranks(const struct hr_buf *b, int32_t control_id,
                                 struct hr_tokenizer **t, struct hr_err *err) {
    const struct hr_rank_token control = {control_id, "<|end|>", 7, true};
    return hr_tokenizer_create_ranks(b->data, b->len, NULL, &control, 1, t, err);
}

static void test_ranks_merge_by_the_rank_of_what_they_make(void **state) {
    (void)state;
    struct hr_buf b = {0};
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    put_all_ranks(&b, -1);
    if (from_ranks(&b, CONTROL, &t, &err)) fail_msg("%s", err.msg);
    EXPECT(t, "hello", HELL, 'o'); /* "ll" before "lo" */
    EXPECT(t, "lo<|end|>", LO, CONTROL);
    EXPECT(t, "he\xe4\xb8\xadhe", HE, 0xe4, 0xb8, 0xad, HE); /* Han is a piece of its own */
    EXPECT(t, "zzz zzzz", ZZZ, ' ', 'z', 'z', 'z', 'z');     /* only as a whole piece */
    assert_int_equal(hr_tokenizer_n_vocab(t), N_RANKS + 1);
    expect_text(t, (const int32_t[]){HELL, 'o', CONTROL}, 3, "hello");
    hr_tokenizer_destroy(&t);
    hr_buf_finish(&b);
}

static void expect_ranks_refused(const struct hr_buf *b, int32_t control, const char *words) {
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    assert_int_equal(from_ranks(b, control, &t, &err), HR_ERR_FORMAT);
    if (!strstr(err.msg, words)) fail_msg("%s", err.msg);
    assert_null(t);
}

static void test_ranks_that_are_refused(void **state) {
    (void)state;
    const char *const bad_lines[] = {"!!!! 261\n", "AAA= \n",  "AAA=\n", "AAA= 1x\n",
                                     "AAA= -1\n",  "AAA= 3\n", " 260\n", "AAA= 99999999999\n"};
    struct hr_buf b = {0};
    for (size_t i = 0; i < sizeof bad_lines / sizeof *bad_lines; i++) {
        hr_buf_clear(&b);
        put_all_ranks(&b, -1);
        hr_buf_puts(&b, bad_lines[i]);
        expect_ranks_refused(&b, CONTROL + 1, "line 262");
    }
    hr_buf_clear(&b);
    expect_ranks_refused(&b, CONTROL, "0 ranks");
    put_all_ranks(&b, 'q');
    expect_ranks_refused(&b, CONTROL, "line 260"); /* a rank is missing, so the last is too high */
    put_rank(&b, "qq", 2, 'q');
    expect_ranks_refused(&b, CONTROL, "byte 0x71");
    hr_buf_clear(&b);
    put_all_ranks(&b, -1);
    expect_ranks_refused(&b, LO, "control token");
    hr_buf_finish(&b);
}

/* --- Unigram --- */

static struct hr_tokenizer *from_unigram(const char *model) {
    struct hr_buf json = {0};
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    hr_buf_printf(&json,
                  "{\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"Unigram\", %s}}",
                  model);
    if (hr_tokenizer_create_json(json.data, json.len, &t, &err)) fail_msg("%s", err.msg);
    hr_buf_finish(&json);
    return t;
}

static void test_unigram_takes_the_best_sum(void **state) {
    (void)state;
    struct hr_tokenizer *t = from_unigram(
        "\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"a\", -1], [\"b\", -1], [\"ab\", -3], "
        "[\"abb\", -2.5], [\"bb\", -1.5]]");
    EXPECT(t, "ab", 1, 2);
    EXPECT(t, "abb", 4); /* as much as a, bb: the path that was there first stays */
    EXPECT(t, "bbb", 2, 5);
    EXPECT(t, "axyb?z", 1, 0, 2, 0); /* unknown neighbours are one token */
    hr_tokenizer_destroy(&t);
    /* An unknown character costs ten below the lowest score. */
    t = from_unigram(
        "\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"a\", 20], [\"ax\", 11], [\"ay\", 9]]");
    EXPECT(t, "axay", 2, 1, 0);
    hr_tokenizer_destroy(&t);
    t = from_unigram("\"unk_id\": 0, \"byte_fallback\": true, \"vocab\": [[\"?\", 0], [\"a\", -1], "
                     "[\"<0x78>\", 0], [\"<0x79>\", 0]]");
    EXPECT(t, "axy", 1, 2, 3);
    EXPECT(t, "axz", 1, 0); /* z has no byte token, so the whole run is unknown */
    hr_tokenizer_destroy(&t);
}

/* The two literals are one step apart for strtod in one way and for the reference in the other: a,
 * b is better than ab only as the reference reads them. */
static void test_scores_are_read_as_the_reference_reads_them(void **state) {
    (void)state;
    struct hr_tokenizer *t = from_unigram(
        "\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"a\", -0.9385958677423489], [\"b\", 0], [\"ab\", "
        "-0.93859586774234893]]");
    EXPECT(t, "ab", 1, 2);
    hr_tokenizer_destroy(&t);
    t = from_unigram("\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"a\", 123456789012345678901234.5], "
                     "[\"aa\", 2.4E+23], [\"b\", -2e-3], [\"bb\", -0.0030000000000000000000001]]");
    EXPECT(t, "aabb", 1, 1, 4);
    hr_tokenizer_destroy(&t);
}

static void test_unigram_needs_an_unknown_token_for_an_unknown_character(void **state) {
    (void)state;
    enum { N = 70000 }; /* the first letters are written before the last is seen */
    const struct hr_encode_opts opts = {0};
    struct hr_tokenizer *t = from_unigram("\"unk_id\": null, \"vocab\": [[\"a\", -1]]");
    char *text = malloc(N);
    struct hr_ids ids = {0};
    struct hr_err err = {0};
    memset(text, 'a', N);
    text[N - 1] = 'x';
    EXPECT(t, "aa", 0, 0);
    assert_int_equal(hr_tokenizer_encode(t, text, N, &opts, &ids, &err), HR_ERR_FORMAT);
    assert_int_equal(ids.len, 0);
    free(text);
    hr_ids_finish(&ids);
    hr_tokenizer_destroy(&t);
}

/* Even and odd places never meet in a run of one letter, so the search must grow its block; and the
 * ids must be those of the whole run: one token of a letter, the others of two. */
static void test_unigram_over_a_long_run(void **state) {
    (void)state;
    enum { N = 300001 };
    const struct hr_encode_opts opts = {0};
    struct hr_tokenizer *t =
        from_unigram("\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"a\", -1], [\"aa\", -1.5]]");
    char *text = malloc(N);
    struct hr_ids ids = {0};
    struct hr_err err = {0};
    size_t n_single = 0;
    memset(text, 'a', N);
    assert_int_equal(hr_tokenizer_encode(t, text, N, &opts, &ids, &err), HR_OK);
    assert_int_equal(ids.len, N / 2 + 1);
    for (size_t i = 0; i < ids.len; i++) n_single += ids.data[i] == 1;
    assert_int_equal(n_single, 1);
    free(text);
    hr_ids_finish(&ids);
    hr_tokenizer_destroy(&t);
}

static void test_unigram_that_is_refused(void **state) {
    (void)state;
    const char *const models[] = {
        "\"unk_id\": 1, \"vocab\": [[\"a\", 0]]", "\"unk_id\": -1, \"vocab\": [[\"a\", 0]]",
        "\"unk_id\": 0, \"vocab\": [[\"a\"]]",    "\"unk_id\": 0, \"vocab\": []",
        "\"unk_id\": 0, \"vocab\": [[1, 0]]",     "\"unk_id\": 0, \"vocab\": [[\"a\", \"0\"]]",
        "\"unk_id\": 0, \"vocab\": {\"a\": 0}",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct hr_buf json = {0};
        struct hr_tokenizer *t = NULL;
        struct hr_err err = {0};
        hr_buf_printf(&json,
                      "{\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": "
                      "\"Unigram\", %s}}",
                      models[i]);
        assert_int_equal(hr_tokenizer_create_json(json.data, json.len, &t, &err), HR_ERR_FORMAT);
        assert_non_null(strstr(err.msg, "model"));
        hr_buf_finish(&json);
    }
}

/* --- character map, base64, characters --- */

/* A trie for the one key "a" with the value `value`: root, its child at 'a', the value's unit. */
static size_t make_map(uint8_t *out, uint32_t value, uint32_t root_offset, const char *strings) {
    uint32_t units[256] = {0};
    size_t n_strings = strlen(strings) + 1;
    units[0] = root_offset << 10;
    if (root_offset < 128) {
        units[root_offset ^ 'a'] = (uint32_t)(200 ^ root_offset ^ 'a') << 10 | 0x100 | 'a';
        units[200] = 0x80000000u | value;
    }
    const uint32_t n_trie = sizeof units;
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(n_trie >> 8 * i);
    for (size_t k = 0; k < 256; k++)
        for (int i = 0; i < 4; i++) out[4 + 4 * k + (size_t)i] = (uint8_t)(units[k] >> 8 * i);
    memcpy(out + 4 + n_trie, strings, n_strings);
    return 4 + n_trie + n_strings;
}

static void expect_mapped(uint32_t value, uint32_t root_offset, const char *text,
                          const char *want) {
    uint8_t bytes[2048];
    size_t len = make_map(bytes, value, root_offset, "X\xc3\xa9");
    struct hr_charsmap *m = NULL;
    struct hr_err err = {0};
    struct hr_buf out = {0}, mark = {0};
    if (hr_charsmap_create(bytes, len, &m, &err)) fail_msg("%s", err.msg);
    hr_charsmap_run(m, text, strlen(text), NULL, &out, &mark);
    assert_string_equal(hr_buf_cstr(&out), want);
    hr_buf_finish(&out);
    hr_charsmap_destroy(&m);
}

static void test_a_character_map_replaces_short_clusters(void **state) {
    (void)state;
    expect_mapped(0, 16, "abA",
                  "X\xc3\xa9"
                  "bA");
    expect_mapped(1, 16, "a", "\xc3\xa9");
    expect_mapped(0, 16,
                  "a\xcc\x81"
                  "b",
                  "X\xc3\xa9"
                  "b"); /* the accent goes with its letter */
    expect_mapped(0, 16, "a\xcc\x81\xcc\x81\xcc\x81", "X\xc3\xa9\xcc\x81\xcc\x81\xcc\x81");
}

static void test_a_lying_character_map_replaces_nothing(void **state) {
    (void)state;
    uint8_t bytes[2048];
    struct hr_charsmap *m = NULL;
    struct hr_err err = {0};
    expect_mapped(2, 16, "a", "a");       /* inside a character */
    expect_mapped(400, 16, "a", "a");     /* past the strings */
    expect_mapped(0, 0x1fffff, "a", "a"); /* past the trie */
    size_t len = make_map(bytes, 0, 16, "X\xff");
    assert_int_equal(hr_charsmap_create(bytes, len, &m, &err), HR_ERR_FORMAT);
    for (size_t cut = 0; cut < 1000; cut += 333)
        assert_int_equal(hr_charsmap_create(bytes, cut, &m, &err), HR_ERR_FORMAT);
    assert_null(m);
}

static void test_base64_is_strict(void **state) {
    (void)state;
    struct hr_buf b = {0};
    assert_true(hr_base64_decode("aGVsbG8h", 8, &b));
    assert_true(hr_base64_decode("/+8=", 4, &b));
    assert_int_equal(b.len, 8);
    assert_memory_equal(b.data, "hello!\xff\xef", 8);
    const char *const bad[] = {"a", "aGV", "a===", "aGV=bG8h", "aG-s", "aGV\n", "===="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(hr_base64_decode(bad[i], strlen(bad[i]), &b));
    assert_int_equal(b.len, 8);
    hr_buf_finish(&b);
}

static void test_clusters_and_lower_case(void **state) {
    (void)state;
    const struct {
        const char *s;
        size_t end;
    } clusters[] = {
        {"ab", 1},
        {"\r\n\n", 2},
        {"\n\xcc\x81", 1}, /* nothing stays with a control */
        {"e\xcc\x81\xcc\x81x", 5},
        {"\xd8\x80"
         "a",
         3},                                 /* a sign that stands before a number */
        {"\xc2\xa9\xe2\x80\x8d\xc2\xa9", 7}, /* pictographs held by a joiner */
        {"x\xe2\x80\x8d\xc2\xa9", 4},        /* not a pictograph before it */
        {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", 9},
    };
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++)
        assert_int_equal(hr_uni_cluster_end(clusters[i].s, strlen(clusters[i].s), 0),
                         clusters[i].end);
    uint32_t to[2];
    assert_int_equal(hr_uni_lower('Q', to), 1);
    assert_int_equal(to[0], 'q');
    assert_int_equal(hr_uni_lower(0x130, to), 2);
    assert_int_equal(to[1], 0x307);
    assert_int_equal(hr_uni_lower(0x101, to), 1); /* lower already, between two that are not */
    assert_int_equal(to[0], 0x101);
    assert_true(hr_uni_is_rust_word(0x24b6));
    assert_false(hr_uni_is_rust_word(0xb2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_highest_score_merges_first),
        cmocka_unit_test(test_scored_bytes_runs_and_control_tokens),
        cmocka_unit_test(test_cuts_of_a_sentencepiece_text),
        cmocka_unit_test(test_scores_that_are_missing_or_no_numbers_are_refused),
        cmocka_unit_test(test_plain_merges_of_white_tokens),
        cmocka_unit_test(test_a_character_that_vanishes_lets_its_neighbours_merge),
        cmocka_unit_test(test_byte_tokens_merge_over_characters),
        cmocka_unit_test(test_merges_that_depend_on_the_far_end),
        cmocka_unit_test(test_ranks_merge_by_the_rank_of_what_they_make),
        cmocka_unit_test(test_ranks_that_are_refused),
        cmocka_unit_test(test_unigram_takes_the_best_sum),
        cmocka_unit_test(test_scores_are_read_as_the_reference_reads_them),
        cmocka_unit_test(test_unigram_needs_an_unknown_token_for_an_unknown_character),
        cmocka_unit_test(test_unigram_over_a_long_run),
        cmocka_unit_test(test_unigram_that_is_refused),
        cmocka_unit_test(test_a_character_map_replaces_short_clusters),
        cmocka_unit_test(test_a_lying_character_map_replaces_nothing),
        cmocka_unit_test(test_base64_is_strict),
        cmocka_unit_test(test_clusters_and_lower_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * test_text_tokenizer: encoding, decoding, control tokens typed by users, and the two loaders.
 *
 * Small vocabularies are written here: the 256 bytes, some merges, some added tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "text/detok.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#define R_ "\xef\xbf\xbd"

enum { N_MERGES = 10, N_EXTRA = 5, N_TOKENS = 256 + N_MERGES + N_EXTRA };
enum { IM_START = 256 + N_MERGES, IM_END, TOOL, BOS, ZZ };

static const char *const merges[N_MERGES] = {"h e",           "l l", "he ll", "a a",  "aa aa",
                                             "\xc4\xa0 hell", "q r", "p q",   "qr s", "p qr"};
/* What each merge makes; \xc4\xa0 is the alphabet's space. */
static const char *const merged[N_MERGES] = {"he",           "ll", "hell", "aa",  "aaaa",
                                             "\xc4\xa0hell", "qr", "pq",   "qrs", "pqr"};
/* No merge makes the last one: only a model that ignores merges can give it. */
static const char *const extra[N_EXTRA] = {"<|im_start|>", "<|im_end|>", "<tool>", "<|bos|>", "zz"};

static struct hr_tokenizer *make(const char *pre, bool add_bos) {
    static char bytes[256][4];
    const char *tokens[N_TOKENS];
    size_t token_len[N_TOKENS], merge_len[N_MERGES];
    int32_t types[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) {
        types[i] = HR_TOKEN_NORMAL;
        if (i < 256) {
            token_len[i] = (size_t)hr_utf8_put(hr_byte_alphabet[i], bytes[i]);
            tokens[i] = bytes[i];
        } else {
            tokens[i] = i < 256 + N_MERGES ? merged[i - 256] : extra[i - 256 - N_MERGES];
            token_len[i] = strlen(tokens[i]);
            if (i >= IM_START && i < ZZ)
                types[i] = i == TOOL ? HR_TOKEN_USER_DEFINED : HR_TOKEN_CONTROL;
        }
    }
    for (int i = 0; i < N_MERGES; i++) merge_len[i] = strlen(merges[i]);
    struct hr_vocab v = {.model = "gpt2",
                         .pre = pre,
                         .n_tokens = N_TOKENS,
                         .n_merges = N_MERGES,
                         .tokens = tokens,
                         .token_len = token_len,
                         .types = types,
                         .merges = merges,
                         .merge_len = merge_len,
                         .bos = BOS,
                         .eos = -1,
                         .unk = -1,
                         .pad = -1,
                         .add_bos = add_bos};
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    if (hr_tokenizer_create_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    return t;
}

static void expect_ids_opts(const struct hr_tokenizer *t, const char *text,
                            const struct hr_encode_opts *opts, const int32_t *want, size_t n) {
    struct hr_ids ids = {0};
    struct hr_err err = {0};
    assert_int_equal(hr_tokenizer_encode(t, text, strlen(text), opts, &ids, &err), HR_OK);
    if (ids.len != n || (n && memcmp(ids.data, want, n * sizeof *want) != 0)) {
        struct hr_buf b = {0};
        for (size_t i = 0; i < ids.len; i++) hr_buf_printf(&b, " %d", (int)ids.data[i]);
        fail_msg("'%s' became%s", text, hr_buf_cstr(&b));
    }
    hr_ids_finish(&ids);
}
#define EXPECT_IDS(t, text, opts, ...)                                                             \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        expect_ids_opts(t, text, opts, want_, sizeof want_ / sizeof *want_);                       \
    } while (0)

static const struct hr_encode_opts with_special = {.parse_special = true};
static const struct hr_encode_opts without = {0};

static void test_merges_go_by_rank_then_from_the_left(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    EXPECT_IDS(t, "hell", &without, 258);
    EXPECT_IDS(t, "hello", &without, 258, 'o');
    EXPECT_IDS(t, "lll", &without, 257, 'l');
    EXPECT_IDS(t, "aaaaa", &without, 260, 'a');
    EXPECT_IDS(t, "x hell", &without, 'x', 261);
    expect_ids_opts(t, "", &without, NULL, 0);
    hr_tokenizer_destroy(&t);
    assert_null(t);
}

/* Merging written as the definition says, over bytes. */
static size_t merge_naively(const struct hr_tokenizer *t, const char *s, size_t n, int32_t *out) {
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)s[i];
    for (int r = 0; r < N_MERGES;) {
        const char *space = strchr(merges[r], ' ');
        int32_t left = hr_tokenizer_find(t, merges[r], (size_t)(space - merges[r]));
        int32_t right = hr_tokenizer_find(t, space + 1, strlen(space + 1));
        size_t i = 0;
        while (i + 1 < n && !(out[i] == left && out[i + 1] == right)) i++;
        if (i + 1 >= n) {
            r++;
            continue;
        }
        out[i] = 256 + r;
        n--;
        memmove(out + i + 1, out + i + 2, (n - i - 1) * sizeof *out);
        r = 0;
    }
    return n;
}

static void test_long_pieces_merge_like_short_ones(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    char text[400];
    int32_t want[400];
    for (uint64_t seed = 0; seed < 300; seed++) {
        size_t n = 1 + (size_t)(seed * 7 % 390);
        for (size_t i = 0; i < n; i++)
            text[i] = "helaapqrspqrs"[(size_t)(hr_rng_uniform(seed, 2, i) * 13)];
        text[n] = 0;
        size_t n_want = merge_naively(t, text, n, want);
        expect_ids_opts(t, text, &without, want, n_want);
    }
    hr_tokenizer_destroy(&t);
}

static void test_a_token_that_no_merge_makes(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    EXPECT_IDS(t, "zz", &without, 'z', 'z');
    hr_tokenizer_destroy(&t);
    t = make("llama-bpe", false); /* looks a whole piece up first */
    EXPECT_IDS(t, "zz", &without, ZZ);
    hr_tokenizer_destroy(&t);
}

static void test_a_million_equal_letters(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    size_t n = 1000003;
    char *s = hr_xmalloc(n);
    struct hr_ids ids = {0};
    struct hr_err err;
    memset(s, 'a', n);
    assert_int_equal(hr_tokenizer_encode(t, s, n, &without, &ids, &err), HR_OK);
    assert_int_equal(ids.len, n / 4 + 2); /* a million and three = 4 * 250,000 + 2 + 1 */
    assert_int_equal(ids.data[0], 260);
    assert_int_equal(ids.data[ids.len - 2], 259);
    assert_int_equal(ids.data[ids.len - 1], 'a');
    hr_ids_finish(&ids);
    free(s);
    hr_tokenizer_destroy(&t);
}

/* With a bound of as many ids as there are the text is what it was; with one less it is refused. */
static void expect_bound(const struct hr_tokenizer *t, const char *s, size_t len, bool add_special) {
    struct hr_encode_opts o = {.add_special = add_special, .parse_special = true};
    struct hr_ids whole = {0}, ids = {0};
    struct hr_err err = {0};
    hr_ids_push(&ids, 7); /* what was there stays, and does not count */
    assert_int_equal(hr_tokenizer_encode(t, s, len, &o, &whole, &err), HR_OK);
    o.n_max = whole.len;
    if (hr_tokenizer_encode(t, s, len, &o, &ids, &err)) fail_msg("%.40s: %s", s, err.msg);
    assert_true(ids.len == whole.len + 1 && ids.data[0] == 7);
    assert_memory_equal(ids.data + 1, whole.data, whole.len * sizeof *whole.data);
    ids.len = 1;
    o.n_max = whole.len - 1;
    if (o.n_max > 0) assert_int_equal(hr_tokenizer_encode(t, s, len, &o, &ids, &err), HR_ERR_LIMIT);
    assert_int_equal(ids.len, 1);
    hr_ids_finish(&whole);
    hr_ids_finish(&ids);
}

/* Far over the bound only a few of the ids are made: the memory for them says so. */
static void expect_early_end(const struct hr_tokenizer *t, const char *s, size_t len) {
    struct hr_encode_opts o = {.n_max = 100};
    struct hr_ids ids = {0};
    struct hr_err err = {0};
    assert_int_equal(hr_tokenizer_encode(t, s, len, &o, &ids, &err), HR_ERR_LIMIT);
    assert_string_equal(err.msg, "the text has more than 100 tokens");
    assert_true(ids.len == 0 && ids.cap < 4096);
    hr_ids_finish(&ids);
}

static void test_too_many_tokens_are_an_error_soon(void **state) {
    (void)state;
    static const char *const texts[] = {"a", "hello hell", "aaaaaaaaa<|im_end|>zzpqrs", "\xc3\xa9\n \t 12"};
    enum { N = 300000 };
    struct hr_buf words = {0}, letters = {0};
    struct hr_tokenizer *t = make("gpt-2", true);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        expect_bound(t, texts[i], strlen(texts[i]), false);
        expect_bound(t, texts[i], strlen(texts[i]), true);
    }
    for (int i = 0; i < N; i++) hr_buf_puts(&words, " hell"), hr_buf_putc(&letters, 'a');
    expect_bound(t, words.data, words.len, true);
    expect_bound(t, letters.data, letters.len, true);
    expect_early_end(t, words.data, words.len);
    expect_early_end(t, letters.data, letters.len);
    hr_tokenizer_destroy(&t);
    hr_buf_finish(&words);
    hr_buf_finish(&letters);
}

static void test_control_tokens_are_read_only_when_asked(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", true);
    const struct hr_encode_opts bos = {.add_special = true, .parse_special = true};
    EXPECT_IDS(t, "<|im_end|>he", &with_special, IM_END, 256);
    EXPECT_IDS(t, "<|im_end|>", &without, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    EXPECT_IDS(t, "<tool>", &without, TOOL); /* not special: always found */
    EXPECT_IDS(t, "he", &bos, BOS, 256);
    EXPECT_IDS(t, "", &bos, BOS);
    hr_tokenizer_destroy(&t);
}

static void test_control_tokens_typed_by_a_user_are_text(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    const char *text = "<|im_end|><|im_end|><tool><|im_end|>";
    const struct hr_span middle[] = {{10, 26}}, edge[] = {{9, 10}}, between[] = {{10, 10}};
    struct hr_encode_opts o = {.parse_special = true, .plain = middle, .n_plain = 1};
    EXPECT_IDS(t, text, &o, IM_END, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', TOOL, IM_END);
    o.plain = edge; /* one byte of the first token is the user's: it is text */
    EXPECT_IDS(t, "<|im_end|><|im_end|>", &o, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>',
               IM_END);
    o.plain = between; /* an empty span touches nothing */
    EXPECT_IDS(t, "<|im_end|><|im_end|>", &o, IM_END, IM_END);
    hr_tokenizer_destroy(&t);
}

static void test_text_around_user_spans_merges_as_usual(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    const struct hr_span span[] = {{1, 2}};
    const struct hr_encode_opts o = {.parse_special = true, .plain = span, .n_plain = 1};
    EXPECT_IDS(t, "hell", &o, 258);
    hr_tokenizer_destroy(&t);
}

static void test_qwen_is_normalized_and_splits_digits(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("qwen2", false);
    EXPECT_IDS(t, "e\xcc\x81", &without, 0xc3, 0xa9);
    EXPECT_IDS(t, "\xc3\xa9", &without, 0xc3, 0xa9);
    hr_tokenizer_destroy(&t);
    t = make("llama-bpe", false);
    EXPECT_IDS(t, "e\xcc\x81", &without, 'e', 0xcc, 0x81);
    hr_tokenizer_destroy(&t);
}

static void test_ids_and_bytes_of_tokens(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    const struct hr_token_bytes *b = hr_tokenizer_bytes(t);
    assert_int_equal(hr_tokenizer_n_vocab(t), N_TOKENS);
    assert_int_equal(b->n_tokens, N_TOKENS);
    assert_int_equal(b->offset[262] - b->offset[261], 5);
    assert_memory_equal(b->bytes + b->offset[261], " hell", 5);
    assert_true(b->hidden[IM_END]); /* special: no text, though it has bytes */
    assert_int_equal(b->offset[IM_END + 1] - b->offset[IM_END], 10);
    assert_false(b->hidden[TOOL]);
    assert_int_equal(b->n_strip, 0);
    assert_null(b->first_offset);
    assert_int_equal(b->offset[TOOL + 1] - b->offset[TOOL], 6);
    assert_true(hr_tokenizer_is_special(t, IM_END));
    assert_false(hr_tokenizer_is_special(t, TOOL));
    assert_false(hr_tokenizer_is_special(t, -1));
    assert_false(hr_tokenizer_is_special(t, N_TOKENS));
    assert_int_equal(hr_tokenizer_find(t, "<|im_end|>", 10), IM_END);
    assert_int_equal(hr_tokenizer_find(t, "\xc4\xa0hell", 6), 261);
    assert_int_equal(hr_tokenizer_find(t, "nope", 4), -1);
    hr_tokenizer_destroy(&t);
}

static void expect_text(const struct hr_tokenizer *t, const int32_t *ids, size_t n, bool skip,
                        const char *want) {
    struct hr_buf out = {0};
    hr_tokenizer_decode(t, ids, n, skip, &out);
    assert_string_equal(hr_buf_cstr(&out), want);
    hr_buf_finish(&out);
}

static void test_decode(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    const int32_t ids[] = {IM_START, 258,  -5,   0xf0,   0x9f, 0xff,
                           N_TOKENS, 0x8d, TOOL, IM_END, 0xe4, 0xba};
    expect_text(t, ids, 12, false, "<|im_start|>hell" R_ R_ R_ "<tool><|im_end|>" R_);
    expect_text(t, ids, 12, true, "hell" R_ R_ R_ "<tool>" R_);
    hr_tokenizer_destroy(&t);
}

static void test_detok_never_gives_half_a_character(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    const char *text =
        "\xc4\x8f\xc3\xa1"
        "bel \xf0\x9f\x8d\xb5 \xe9\xaf\xa8 \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9";
    struct hr_ids ids = {0};
    struct hr_buf out = {0};
    struct hr_err err;
    struct hr_detok d;
    assert_int_equal(hr_tokenizer_encode(t, text, strlen(text), &without, &ids, &err), HR_OK);
    hr_detok_init(&d, t);
    for (size_t i = 0; i < ids.len; i++) {
        hr_detok_push(&d, ids.data[i], &out);
        for (size_t k = 0; k < out.len;) { /* only whole characters */
            bool valid, more;
            k += (size_t)hr_utf8_scan((const uint8_t *)out.data + k, out.len - k, &valid, &more);
            assert_true(valid);
        }
        if (i == 0) assert_int_equal(out.len, 0); /* the first byte of a character: held back */
    }
    assert_int_equal(hr_detok_end(&d, &out), 0);
    assert_string_equal(hr_buf_cstr(&out), text);
    hr_detok_finish(&d);
    hr_buf_finish(&out);
    hr_ids_finish(&ids);
    hr_tokenizer_destroy(&t);
}

/* For random ids: the text one by one is decode's, but for an incomplete character at the end. */
static void test_detok_equals_decode(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    static const int32_t some[] = {'a',  'b',  0xe4, 0xba, 0xba, 0xf0, 0x9f, 0x8d, 0xb5,   0xc3,
                                   0xa9, 0xff, 0xed, 0xa0, 0xf4, 0x90, 258,  261,  IM_END, TOOL};
    int dropped_once = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        int32_t ids[12];
        size_t n = seed % 13;
        for (size_t i = 0; i < n; i++) {
            ids[i] = some[(size_t)(hr_rng_uniform(seed, 3, i) * (sizeof some / sizeof *some))];
        }
        struct hr_buf one = {0}, all = {0};
        struct hr_detok d;
        hr_detok_init(&d, t);
        for (size_t i = 0; i < n; i++) hr_detok_push(&d, ids[i], &one);
        size_t dropped = hr_detok_end(&d, &one);
        hr_tokenizer_decode(t, ids, n, true, &all);
        if (dropped) {
            hr_buf_puts(&one, R_);
            dropped_once++;
        }
        assert_int_equal(one.len, all.len);
        if (all.len) assert_memory_equal(one.data, all.data, all.len);
        hr_detok_finish(&d);
        hr_buf_finish(&one);
        hr_buf_finish(&all);
    }
    assert_true(dropped_once > 100);
    hr_tokenizer_destroy(&t);
}

static void expect_parts(const struct hr_tokenizer *t, const int32_t *ids, size_t n, size_t cut0, size_t cut1,
                         const char *want0, const char *want1, size_t want_dropped) {
    struct hr_buf out[2] = {0};
    assert_int_equal(hr_detok_parts(t, ids, n, (const size_t[]){cut0, cut1}, 2, out), want_dropped);
    assert_string_equal(hr_buf_cstr(&out[0]), want0);
    assert_string_equal(hr_buf_cstr(&out[1]), want1);
    hr_buf_finish(&out[0]);
    hr_buf_finish(&out[1]);
}

static void test_parts_of_a_text(void **state) {
    (void)state;
    struct hr_tokenizer *t = make("gpt-2", false);
    const int32_t ids[] = {IM_START, 258, 0xf0, 0x9f, TOOL, IM_END, 0xe4, 0xba}; /* 4 2 6 2 bytes */
    expect_parts(t, ids, 8, 0, 14, "", "hell" R_ "<tool>", 2);
    expect_parts(t, ids, 8, 2, 4, "he", "ll", 0);
    expect_parts(t, ids, 8, 4, 6, "hell", R_, 0); /* half a character, and something follows */
    expect_parts(t, ids, 8, 6, 9, "hell" R_, "<to", 0);
    expect_parts(t, ids, 4, 4, 6, "hell", "", 2); /* half a character at the end */
    expect_parts(t, ids, 8, 4, 4, "hell", "", 0);
    hr_tokenizer_destroy(&t);
}

static void expect_vocab_refused(struct hr_vocab v, enum hr_status want, const char *words) {
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    assert_int_equal(hr_tokenizer_create_vocab(&v, &t, &err), want);
    assert_null(t);
    if (!strstr(err.msg, words)) fail_msg("%s", err.msg);
}

static void test_vocabularies_that_are_refused(void **state) {
    (void)state;
    const char *tokens[] = {"a", "b"}, *bad[] = {"\xff", "b"}, *pair[] = {"a b"};
    const size_t len[] = {1, 1}, pair_len[] = {3};
    struct hr_vocab v = {.model = "gpt2",
                         .pre = "gpt-2",
                         .n_tokens = 2,
                         .tokens = tokens,
                         .token_len = len,
                         .bos = -1,
                         .eos = -1,
                         .unk = -1,
                         .pad = -1};
    struct hr_vocab w = v;
    w.model = "wordpiece";
    expect_vocab_refused(w, HR_ERR_UNSUPPORTED, "wordpiece");
    w = v;
    w.pre = "frob";
    expect_vocab_refused(w, HR_ERR_UNSUPPORTED, "frob");
    w.pre = "";
    expect_vocab_refused(w, HR_ERR_UNSUPPORTED, "tokenizer.ggml.pre");
    w = v;
    w.tokens = bad;
    expect_vocab_refused(w, HR_ERR_FORMAT, "token 0");
    w = v;
    w.n_merges = 1;
    w.merges = pair;
    w.merge_len = pair_len;
    expect_vocab_refused(w, HR_ERR_FORMAT, "entry 0");
    w = v;
    w.add_bos = true;
    expect_vocab_refused(w, HR_ERR_FORMAT, "bos");
}

/* A tokenizer.json over characters; %s: what a test puts beside the model. */
#define MODEL                                                                                      \
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"byte_fallback\": true, \"fuse_unk\": " \
    "true, "                                                                                       \
    "\"vocab\": {\"?\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"_\": 4, \"<0xC3>\": 5, \"<0xA9>\": "   \
    "6, "                                                                                          \
    "\"_a\": 7}, \"merges\": [[\"a\", \"b\"], \"_ a\"]}"
#define DECODER                                                                                    \
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "   \
    "{\"String\": \"_\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": "          \
    "\"Fuse\"}, "                                                                                  \
    "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}"

static struct hr_tokenizer *from_json(const char *rest) {
    struct hr_buf json = {0};
    struct hr_tokenizer *t = NULL;
    struct hr_err err = {0};
    hr_buf_printf(&json, "{%s%s, %s}", rest, DECODER, MODEL);
    if (hr_tokenizer_create_json(json.data, json.len, &t, &err)) fail_msg("%s", err.msg);
    hr_buf_finish(&json);
    return t;
}

static void test_json_characters_with_byte_fallback(void **state) {
    (void)state;
    struct hr_tokenizer *t = from_json(
        "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
        "\"prepend\": \"_\"}, "
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"_\"}]}, ");
    EXPECT_IDS(t, "a b", &without, 7, 4, 2);
    EXPECT_IDS(t, "ab", &without, 4, 3);
    EXPECT_IDS(t, "\xc3\xa9", &without, 4, 5, 6);
    EXPECT_IDS(t, "xyb", &without, 4, 0, 2); /* two unknown characters are one unknown token */
    expect_bound(t, "xyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxyb", 41, false);
    expect_text(t, (const int32_t[]){7, 4, 2}, 3, false, "a b");
    expect_text(t, (const int32_t[]){5, 6, 5, 1}, 4, false,
                R_ R_ R_ "a"); /* a run is read as a whole */
    expect_text(t, (const int32_t[]){5, 6, 1}, 3, false,
                "\xc3\xa9"
                "a");
    hr_tokenizer_destroy(&t);
}

static void test_json_added_tokens(void **state) {
    (void)state;
    struct hr_tokenizer *t =
        from_json("\"added_tokens\": ["
                  "{\"id\": 8, \"content\": \"<L>\", \"lstrip\": true, \"special\": true}, "
                  "{\"id\": 9, \"content\": \"<R>\", \"rstrip\": true, \"special\": true}, "
                  "{\"id\": 10, \"content\": \"aa\", \"single_word\": true}, "
                  "{\"id\": 11, \"content\": \"<R>b\"}], "
                  "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                  "[{\"SpecialToken\": {\"id\": "
                  "\"<L>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
                  "\"special_tokens\": "
                  "{\"<L>\": {\"id\": \"<L>\", \"ids\": [8], \"tokens\": [\"<L>\"]}}}, ");
    const struct hr_encode_opts all = {.add_special = true, .parse_special = true};
    EXPECT_IDS(t, "a  <L>b", &with_special, 1, 8, 2);
    EXPECT_IDS(t, "<R> \n b", &with_special, 9, 2);
    EXPECT_IDS(t, "<R>b", &with_special, 11); /* the longest wins */
    EXPECT_IDS(t, "aa", &with_special, 10);
    EXPECT_IDS(t, "aab", &with_special, 1, 3);
    EXPECT_IDS(t, "a", &all, 8, 1);
    hr_tokenizer_destroy(&t);
}

/* A special token that matches normalized text: who wrote it is known through the normalizer. */
static void test_user_spans_follow_a_normalizer(void **state) {
    (void)state;
    struct hr_tokenizer *t = from_json("\"normalizer\": {\"type\": \"Replace\", \"pattern\": "
                                       "{\"String\": \"aaaa\"}, \"content\": \"b\"}, "
                                       "\"added_tokens\": [{\"id\": 8, \"content\": \"_b\", "
                                       "\"normalized\": true, \"special\": true}], ");
    const struct hr_span first[] = {{0, 5}}, last[] = {{6, 7}}, replaced[] = {{2, 3}};
    struct hr_encode_opts o = {.parse_special = true, .plain = first, .n_plain = 1};
    EXPECT_IDS(t, "aaaaa_b", &o, 2, 1, 8); /* aaaa became b; the token after it is the template's */
    o.plain = last;
    EXPECT_IDS(t, "aaaaa_b", &o, 2, 1, 4, 2);
    /* What a replacement made of a user's bytes is the user's. */
    EXPECT_IDS(t, "_aaaa", &with_special, 8);
    o.plain = replaced;
    EXPECT_IDS(t, "_aaaa", &o, 4, 2);
    hr_tokenizer_destroy(&t);
}

static void test_json_that_is_refused_by_name(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\"normalizer\": {\"type\": \"Frob\"}, " DECODER ", " MODEL, "Frob"},
        {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
         "\"Grub\"}]}, " DECODER ", " MODEL,
         "Grub"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?<n>a)\"}, "
         "\"behavior\": "
         "\"Isolated\"}, " DECODER ", " MODEL,
         "regular expression"},
        {"\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": "
         "\"Odd\"}, " DECODER ", " MODEL,
         "Odd"},
        {"\"post_processor\": {\"type\": \"Blip\"}, " DECODER ", " MODEL, "Blip"},
        {"\"decoder\": {\"type\": \"Blop\"}, " MODEL, "Blop"},
        {MODEL, "decoder"},
        {DECODER ", \"model\": {\"type\": \"WordPiece\", \"vocab\": {}}", "WordPiece"},
        {DECODER
         ", \"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"dropout\": 0.1}",
         "dropout"},
        {DECODER ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}",
         "merge 0"},
        {DECODER ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}",
         "\"a\""},
        {DECODER
         ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}",
         "id 0"},
        {"\"added_tokens\": [{\"id\": 99999999999, \"content\": \"x\"}], " DECODER ", " MODEL,
         "added_tokens"},
        {DECODER ", \"model\": 3", "model"},
        {"\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"a\", 1], \"sep\": [\"z\", "
         "70000]}, " DECODER ", " MODEL,
         "token 70000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_buf json = {0};
        struct hr_tokenizer *t = NULL;
        struct hr_err err = {0};
        hr_buf_printf(&json, "{%s}", cases[i][0]);
        enum hr_status st = hr_tokenizer_create_json(json.data, json.len, &t, &err);
        if (st == HR_OK || t) fail_msg("case %zu was accepted", i);
        if (!strstr(err.msg, cases[i][1])) fail_msg("case %zu: %s", i, err.msg);
        hr_buf_finish(&json);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(test_long_pieces_merge_like_short_ones),
        cmocka_unit_test(test_a_token_that_no_merge_makes),
        cmocka_unit_test(test_a_million_equal_letters),
        cmocka_unit_test(test_too_many_tokens_are_an_error_soon),
        cmocka_unit_test(test_control_tokens_are_read_only_when_asked),
        cmocka_unit_test(test_control_tokens_typed_by_a_user_are_text),
        cmocka_unit_test(test_text_around_user_spans_merges_as_usual),
        cmocka_unit_test(test_qwen_is_normalized_and_splits_digits),
        cmocka_unit_test(test_ids_and_bytes_of_tokens),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_detok_never_gives_half_a_character),
        cmocka_unit_test(test_detok_equals_decode),
        cmocka_unit_test(test_parts_of_a_text),
        cmocka_unit_test(test_vocabularies_that_are_refused),
        cmocka_unit_test(test_json_characters_with_byte_fallback),
        cmocka_unit_test(test_json_added_tokens),
        cmocka_unit_test(test_user_spans_follow_a_normalizer),
        cmocka_unit_test(test_json_that_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

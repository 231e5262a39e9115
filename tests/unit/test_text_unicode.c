/* SPDX-License-Identifier: Apache-2.0
 *
 * test_text_unicode: code points, normal forms, regular expressions, splitters and pre-tokenizers.
 *
 * The expected values of the tables come from the Unicode Standard's own examples and from asking
 * tokenizers 0.23.3; the splitters are held against their regular expressions on random text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "text/pretok.h"
#include "text/unicode.h"

static void expect_form(enum hr_uni_form form, const char *in, const char *want) {
    struct hr_buf out = {0};
    hr_uni_normalize(form, in, strlen(in), NULL, &out, NULL);
    assert_string_equal(hr_buf_cstr(&out), want);
    hr_buf_finish(&out);
}

static void test_nfc_composes(void **state) {
    (void)state;
    expect_form(HR_NFC, "e\xcc\x81", "\xc3\xa9");
    expect_form(HR_NFC, "\xc3\xa9", "\xc3\xa9");
    /* Vietnamese e with circumflex and acute, in three spellings. */
    expect_form(HR_NFC, "e\xcc\x82\xcc\x81", "\xe1\xba\xbf");
    expect_form(HR_NFC, "\xc3\xaa\xcc\x81", "\xe1\xba\xbf");
    expect_form(HR_NFC, "\xe1\xba\xbf", "\xe1\xba\xbf");
    /* Hangul: L V, L V T, LV T. */
    expect_form(HR_NFC, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c");
    expect_form(HR_NFC, "\xed\x95\x98\xe1\x86\xab", "\xed\x95\x9c");
    /* U+212B, the Angstrom sign, is excluded: it becomes U+00C5. */
    expect_form(HR_NFC, "\xe2\x84\xab", "\xc3\x85");
    /* U+0958 decomposes and does not compose again. */
    expect_form(HR_NFC, "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc");
}

static void test_nfc_orders_and_blocks(void **state) {
    (void)state;
    /* dot above (230) before dot below (220): reordered; d with dot below composes. */
    expect_form(HR_NFC, "d\xcc\x87\xcc\xa3", "\xe1\xb8\x8d\xcc\x87");
    /* A second mark of the same class is blocked. */
    expect_form(HR_NFC, "a\xcd\xa3\xcc\x81", "a\xcd\xa3\xcc\x81");
    expect_form(HR_NFC, "a\xcc\xa3\xcc\x81", "\xe1\xba\xa1\xcc\x81");
    expect_form(HR_NFD, "\xe1\xba\xbf", "e\xcc\x82\xcc\x81");
    expect_form(HR_NFKC, "\xef\xac\x81\xc2\xb2", "fi2");
    /* A mark that is newer than the reference's tables (U+0898, Unicode 14) is not reordered. */
    expect_form(HR_NFC, "a\xe0\xa2\x98\xcc\xa3", "a\xe0\xa2\x98\xcc\xa3");
}

static void test_many_marks_are_ordered_in_time(void **state) {
    (void)state;
    struct hr_buf in = {0}, out = {0};
    hr_buf_putc(&in, 'x');
    for (int i = 0; i < 2000000; i++) hr_buf_puts(&in, i % 2 ? "\xcc\xa3" : "\xcc\x81");
    hr_uni_normalize(HR_NFC, in.data, in.len, NULL, &out, NULL);
    assert_memory_equal(out.data, "x\xcc\xa3\xcc\xa3", 5);
    hr_buf_finish(&in);
    hr_buf_finish(&out);
}

static void test_marks_follow_the_text(void **state) {
    (void)state;
    struct hr_buf out = {0}, mark = {0};
    const uint8_t in_mark[] = {0, 0, 1, 1, 0};
    hr_uni_normalize(HR_NFC, "xe\xcc\x81y", 5, in_mark, &out, &mark);
    assert_int_equal(out.len, 4);
    assert_memory_equal(mark.data, "\0\1\1\0", 4);
    hr_buf_finish(&out);
    hr_buf_finish(&mark);
}

static void test_properties(void **state) {
    (void)state;
    assert_int_equal(hr_uni_cat('A'), HR_LU);
    assert_int_equal(hr_uni_cat(0x1e900), HR_LU);
    assert_int_equal(hr_uni_cat(0x1c89), HR_LU);  /* new in Unicode 16.0 */
    assert_int_equal(hr_uni_cat(0x16ea0), HR_CN); /* new in 17.0, which the reference's \p lacks */
    assert_false(hr_uni_is_space(0x180e));
    assert_true(hr_uni_is_space(0x85));
    assert_true(hr_uni_is_space(0x3000));
    assert_true(hr_uni_is_han(0x4e00));
    assert_false(hr_uni_is_han(0x3042));
    assert_true(hr_uni_is_punct('$'));
    assert_false(hr_uni_is_punct(0x61d)); /* punctuation since Unicode 14.0 only */
    for (int b = 0; b < 256; b++) assert_int_equal(hr_byte_of_char(hr_byte_alphabet[b]), b);
    assert_int_equal(hr_byte_of_char(' '), -1);
    assert_int_equal(hr_byte_of_char(324), -1);
}

static void expect_scan(const char *in, size_t len, const char *want) {
    struct hr_buf out = {0};
    for (size_t i = 0; i < len;) {
        bool valid, more;
        int n = hr_utf8_scan((const uint8_t *)in + i, len - i, &valid, &more);
        hr_buf_append(&out, valid ? in + i : "\xef\xbf\xbd", valid ? (size_t)n : 3);
        i += (size_t)n;
    }
    assert_string_equal(hr_buf_cstr(&out), want);
    hr_buf_finish(&out);
}

static void test_broken_utf8_is_replaced_by_maximal_parts(void **state) {
    (void)state;
#define R "\xef\xbf\xbd"
    expect_scan("a\xff\x62", 3, "a" R "b");
    expect_scan("\xe4\xba", 2, R); /* a prefix of a character: one */
    expect_scan("\xe4\xba\x41", 3, R "A");
    expect_scan("\xc0\xaf", 2, R R);       /* never valid: one each */
    expect_scan("\xed\xa0\x80", 3, R R R); /* a surrogate */
    expect_scan("\xf0\x9f\x8d", 3, R);
    expect_scan("\xf4\x90\x80\x80", 4, R R R R);
    expect_scan("\xf0\x9f\x8d\xb5", 4, "\xf0\x9f\x8d\xb5");
}

static void expect_match(const char *pattern, const char *text, int begin, int end) {
    struct hr_regex *re = NULL;
    struct hr_err err = {0};
    struct hr_regex_scratch scratch = {0};
    struct hr_regex_text t = {text, strlen(text), NULL};
    size_t b = 0, e = 0;
    if (hr_regex_compile(pattern, strlen(pattern), &re, &err)) fail_msg("%s: %s", pattern, err.msg);
    bool found = hr_regex_find(re, &t, 0, &scratch, &b, &e);
    if (found != (begin >= 0)) fail_msg("%s on '%s': found %d", pattern, text, found);
    if (found && ((int)b != begin || (int)e != end)) {
        fail_msg("%s on '%s': %zu..%zu, want %d..%d", pattern, text, b, e, begin, end);
    }
    hr_regex_destroy(&re);
    hr_buf_finish(&scratch.stack);
}

static void test_regex_matches(void **state) {
    (void)state;
    expect_match("a", "xxa", 2, 3);
    expect_match("a|ab", "ab", 0, 1); /* the first alternative wins, not the longest */
    expect_match("(?:a|ab)c", "abc", 0, 3);
    expect_match("a{2,3}", "aaaa", 0, 3);
    expect_match("a{,2}b", "aab", 0, 3);
    expect_match("a{2}", "aba", -1, 0);
    expect_match("a{x", "a{x", 0, 3); /* not a count: literal */
    expect_match("a+?b", "aab", 0, 3);
    expect_match("a{1,2}?a", "aaa", 0, 2);
    expect_match("a++a", "aaa", -1, 0);
    expect_match("(?>a+)b", "aab", 0, 3);
    expect_match("(?:ab)+", "xabab", 1, 5);
    expect_match("(?:ab){2}", "ababab", 0, 4);
    expect_match("(?:ab)*+a", "abab", -1, 0);
    expect_match("(?:ab|c){0,2}d", "abcd", 0, 4);
    expect_match("(ab?)+?c", "abac", 0, 4);
    expect_match("\\s+(?!\\S)", "a   b", 1, 3);
    expect_match("x(?=y)", "xzxy", 2, 3);
    expect_match("(?<=a)b", "bab", 2, 3);
    expect_match("(?<!a)b", "abb", 2, 3);
    expect_match("^b", "a\nb", 2, 3); /* Ruby: line anchors */
    expect_match("a$", "a\nb", 0, 1);
    expect_match("\\Ab", "a\nb", -1, 0);
    expect_match("b\\z", "b\nb", 2, 3);
    expect_match("b\\Z", "ab\n", 1, 2);
    expect_match("\\bb", "ab b", 3, 4);
    expect_match("a.", "a\nab", 2, 4);
    expect_match("(?i:'s|'t)", "'S", 0, 2);
    expect_match("(?i:s)", "\xc5\xbf", 0, 2);     /* long s */
    expect_match("(?i:k)", "\xe2\x84\xaa", 0, 3); /* Kelvin sign */
    expect_match("(?i:a)b", "AB", -1, 0);         /* the flag ends with its group */
    expect_match("[^a-c\\s]+", "a bxyzc", 3, 6);
    expect_match("[]a]", "]", 0, 1);
    expect_match("[a-]+", "b-a", 1, 3);
    expect_match("[a-z&&[^m]]+", "mabm", 1, 3);
    expect_match("[\\p{L}&&[^\\p{Han}]]+", "\xe4\xb8\x80xy\xe4\xb8\x80", 3, 5);
    expect_match("\\P{L}", "a1", 1, 2);
    expect_match("\\p{^L}", "a1", 1, 2);
    expect_match("\\p{Lu}\\p{Ll}", "aBc", 1, 3);
    expect_match("\\x41\\u00e9\\x{1F375}", "A\xc3\xa9\xf0\x9f\x8d\xb5", 0, 7);
    expect_match("\\d\\D\\w\\W", "1.a.", 0, 4);
    expect_match("\\.\\*\\]", ".*]", 0, 3);
}

static void test_regex_refuses_by_name(void **state) {
    (void)state;
    static const char *const bad[] = {
        "(a",          "a)",       "[a",      "*a",         "(?P<n>a)",      "\\1",
        "[[:alpha:]]", "(?<=ab)c", "(?:a*)*", "\\p{Nope}",  "\\p{L",         "\\pL",
        "[z-a]",       "a\\",      "\\k",     "(?i:[a-z])", "(?i:\xc3\xa9)", "a{2}+",
        "a{2000}",     "(?m)a",    "\\G"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hr_regex *re = NULL;
        struct hr_err err = {0};
        enum hr_status st = hr_regex_compile(bad[i], strlen(bad[i]), &re, &err);
        if (st != HR_ERR_UNSUPPORTED || re) fail_msg("%s was accepted", bad[i]);
        assert_non_null(strstr(err.msg, "byte"));
    }
}

static void test_regex_needs_little_stack_for_a_long_text(void **state) {
    (void)state;
    const char *pattern = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    size_t n = 4u << 20, b, e;
    struct hr_regex *re = NULL;
    struct hr_err err;
    struct hr_regex_scratch scratch = {0};
    char *s = hr_xmalloc(n);
    memset(s, ' ', n);
    assert_int_equal(hr_regex_compile(pattern, strlen(pattern), &re, &err), HR_OK);
    struct hr_regex_text t = {s, n, NULL};
    assert_true(hr_regex_find(re, &t, 0, &scratch, &b, &e));
    assert_int_equal(e, n);
    assert_true(scratch.stack.cap < 4096);
    hr_regex_destroy(&re);
    hr_buf_finish(&scratch.stack);
    free(s);
}

/* Text of characters that the patterns tell apart, among them all kinds of blanks. */
static size_t random_text(uint64_t seed, char *out, size_t n_chars) {
    static const char *const alphabet[] = {"a",
                                           "b",
                                           "Z",
                                           "Q",
                                           "s",
                                           "t",
                                           "r",
                                           "e",
                                           "v",
                                           "m",
                                           "l",
                                           "d",
                                           "S",
                                           "L",
                                           "'",
                                           "'",
                                           "'",
                                           " ",
                                           " ",
                                           " ",
                                           "\n",
                                           "\r",
                                           "\t",
                                           "1",
                                           "2",
                                           "9",
                                           "!",
                                           ".",
                                           "/",
                                           "-",
                                           "\xc2\x85",
                                           "\xc2\xa0",
                                           "\xe3\x80\x80",
                                           "\xc3\xa9",
                                           "\xc3\x89",
                                           "\xc7\x85",
                                           "\xca\xb0",
                                           "\xe4\xb8\xad",
                                           "\xcc\x81",
                                           "\xe0\xa4\xbe",
                                           "\xc5\xbf",
                                           "\xd9\xa3",
                                           "\xe2\x85\xa3",
                                           "\xc2\xbd",
                                           "\xf0\x9f\x8d\xb5",
                                           "\xe2\x80\x8d",
                                           "\xe1\xa0\x8e",
                                           "\xe2\x84\xaa",
                                           "\x01",
                                           "\xe2\x80\x99"};
    size_t len = 0;
    for (size_t i = 0; i < n_chars; i++) {
        double u = hr_rng_uniform(seed, 1, i);
        const char *c = alphabet[(size_t)(u * (sizeof alphabet / sizeof *alphabet))];
        memcpy(out + len, c, strlen(c));
        len += strlen(c);
    }
    return len;
}

static void test_splitters_equal_their_patterns(void **state) {
    (void)state;
    const char *const patterns[] = {hr_pattern_gpt2,   hr_pattern_llama3, hr_pattern_qwen2,
                                    hr_pattern_qwen35, hr_pattern_o200k,  hr_pattern_tekken,
                                    hr_pattern_kimi};
    char text[256];
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
        struct hr_regex *re = NULL;
        struct hr_err err;
        struct hr_regex_scratch scratch = {0};
        hr_split_fn fn = hr_splitter_find(patterns[k], strlen(patterns[k]));
        assert_non_null(fn);
        assert_int_equal(hr_regex_compile(patterns[k], strlen(patterns[k]), &re, &err), HR_OK);
        for (uint64_t seed = 0; seed < 4000; seed++) {
            size_t len = random_text(seed, text, 1 + seed % 40), b, e;
            struct hr_regex_text t = {text, len, NULL};
            for (size_t pos = 0; pos < len; pos = e) {
                assert_true(hr_regex_find(re, &t, pos, &scratch, &b, &e));
                assert_int_equal(b, pos);
                size_t got = fn(text, len, pos);
                if (got != e)
                    fail_msg("pattern %zu seed %d at %zu: %zu, want %zu", k, (int)seed, pos, got,
                             e);
            }
        }
        hr_regex_destroy(&re);
        hr_buf_finish(&scratch.stack);
    }
}

/* Runs one pre-tokenizer and joins its pieces with bars. */
static void expect_pieces(struct hr_pretok *p, const char *text, const char *want) {
    struct hr_pieces pieces = {0};
    struct hr_buf got = {0};
    hr_pretok_run(p, text, strlen(text), true, &pieces);
    for (size_t i = 0; i < pieces.n; i++) {
        if (i) hr_buf_putc(&got, '|');
        hr_buf_append(&got, pieces.s + pieces.spans[i].begin,
                      pieces.spans[i].end - pieces.spans[i].begin);
    }
    assert_string_equal(hr_buf_cstr(&got), want);
    hr_buf_finish(&got);
    hr_pieces_finish(&pieces);
    hr_pretok_finish(p);
}

static struct hr_pretok one_regex(const char *pattern, enum hr_split_behavior behavior,
                                  bool invert) {
    struct hr_pretok p = {0};
    struct hr_err err;
    assert_int_equal(hr_pretok_add_regex(&p, pattern, strlen(pattern), behavior, invert, &err),
                     HR_OK);
    return p;
}

static struct hr_pretok one_step(struct hr_pretok_step step) {
    struct hr_pretok p = {0};
    struct hr_err err;
    assert_int_equal(hr_pretok_add(&p, step, &err), HR_OK);
    return p;
}

static void test_split_behaviors(void **state) {
    (void)state;
    /* The reference's own example: "the-final--countdown" by "-". */
    static const struct {
        enum hr_split_behavior behavior;
        const char *want;
    } cases[] = {
        {HR_SPLIT_REMOVED, "the|final|countdown"},
        {HR_SPLIT_ISOLATED, "the|-|final|-|-|countdown"},
        {HR_SPLIT_MERGED_PREVIOUS, "the-|final-|-|countdown"},
        {HR_SPLIT_MERGED_NEXT, "the|-final|-|-countdown"},
        {HR_SPLIT_CONTIGUOUS, "the|-|final|--|countdown"},
    };
    for (size_t i = 0; i < 5; i++) {
        struct hr_pretok p = one_regex("-", cases[i].behavior, false);
        expect_pieces(&p, "the-final--countdown", cases[i].want);
        p = one_step((struct hr_pretok_step){.type = HR_PRETOK_SPLIT,
                                             .behavior = cases[i].behavior,
                                             .literal = hr_xstrdup("-"),
                                             .literal_len = 1});
        expect_pieces(&p, "the-final--countdown", cases[i].want);
    }
    struct hr_pretok p = one_regex("[a-z]+", HR_SPLIT_REMOVED, true);
    expect_pieces(&p, "ab, cd", "ab|cd");
    p = one_regex("[a-z]+", HR_SPLIT_ISOLATED, true);
    expect_pieces(&p, "ab, cd", "ab|, |cd");
    p = one_regex("(?=[A-Z])", HR_SPLIT_ISOLATED, false); /* empty matches cut */
    expect_pieces(&p, "oneTwoThree", "one|Two|Three");
}

static void test_other_steps(void **state) {
    (void)state;
    struct hr_pretok p =
        one_step((struct hr_pretok_step){.type = HR_PRETOK_DIGITS, .individual = true});
    expect_pieces(&p, "a12 3", "a|1|2| |3");
    p = one_step((struct hr_pretok_step){.type = HR_PRETOK_DIGITS});
    expect_pieces(&p, "a12 3", "a|12| |3");
    p = one_step(
        (struct hr_pretok_step){.type = HR_PRETOK_PUNCTUATION, .behavior = HR_SPLIT_CONTIGUOUS});
    expect_pieces(&p, "a.,b", "a|.,|b");
    p = one_step((struct hr_pretok_step){.type = HR_PRETOK_BYTE_LEVEL, .use_regex = true});
    expect_pieces(&p, "it's  12", "it|'s| | 12");
    p = one_step((struct hr_pretok_step){.type = HR_PRETOK_BYTE_LEVEL, .add_prefix_space = true});
    expect_pieces(&p, "ab", " ab");
    p = one_step((struct hr_pretok_step){.type = HR_PRETOK_WHITESPACE_SPLIT});
    expect_pieces(&p, " a b ", "a|b");
    p = one_step((struct hr_pretok_step){.type = HR_PRETOK_METASPACE,
                                         .split = true,
                                         .prepend = HR_PREPEND_ALWAYS,
                                         .literal = hr_xstrdup("_"),
                                         .literal_len = 1});
    expect_pieces(&p, "a b", "_a|_b");
}

static void test_steps_after_byte_level_see_its_alphabet(void **state) {
    (void)state;
    /* The bytes of U+00B2, superscript two, are C2 B2; in the alphabet B2 stands as itself, a
     * number. */
    struct hr_pretok p = one_step((struct hr_pretok_step){.type = HR_PRETOK_BYTE_LEVEL});
    struct hr_err err;
    assert_int_equal(hr_pretok_add(&p, (struct hr_pretok_step){.type = HR_PRETOK_DIGITS}, &err),
                     HR_OK);
    expect_pieces(&p, "\xc2\xb2", "\xc2|\xb2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nfc_composes),
        cmocka_unit_test(test_nfc_orders_and_blocks),
        cmocka_unit_test(test_many_marks_are_ordered_in_time),
        cmocka_unit_test(test_marks_follow_the_text),
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_broken_utf8_is_replaced_by_maximal_parts),
        cmocka_unit_test(test_regex_matches),
        cmocka_unit_test(test_regex_refuses_by_name),
        cmocka_unit_test(test_regex_needs_little_stack_for_a_long_text),
        cmocka_unit_test(test_splitters_equal_their_patterns),
        cmocka_unit_test(test_split_behaviors),
        cmocka_unit_test(test_other_steps),
        cmocka_unit_test(test_steps_after_byte_level_see_its_alphabet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * splitter: the families of GPT-2, of cl100k (Llama 3, Qwen) and of o200k (gpt-oss, Tekken, Kimi).
 *
 * Each function follows its pattern's alternatives from the left; where the pattern would
 * backtrack, a comment says what it ends at. Sources: the "pre_tokenizer" of the models'
 * tokenizer.json; openai/tiktoken, tiktoken_ext/openai_public.py; moonshotai/Kimi-K2-Instruct,
 * tokenization_kimi.py. */
#include "text/splitter.h"

#include <string.h>

#include "text/unicode.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K_UPPER  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LOWER  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define KIMI_UPPER   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LEAD         "[^\\r\\n\\p{L}\\p{N}]?"

const char hr_pattern_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                               "|\\s+(?!\\S)|\\s+";
const char hr_pattern_llama3[] = CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}{1,3}"
                                              "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS;
const char hr_pattern_qwen2[] = CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}"
                                             "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS;
const char hr_pattern_qwen35[] = CONTRACTIONS "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}"
                                              "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS;
const char hr_pattern_o200k[] =
    LEAD O200K_UPPER "*" O200K_LOWER "+" CONTRACTIONS "?|" LEAD O200K_UPPER "+" O200K_LOWER
                     "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS;
const char hr_pattern_tekken[] =
    LEAD O200K_UPPER "*" O200K_LOWER "+|" LEAD O200K_UPPER "+" O200K_LOWER
                     "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS;
const char hr_pattern_kimi[] =
    "[\\p{Han}]+|" LEAD KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTIONS "?|" LEAD KIMI_UPPER
    "+" KIMI_LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS;

enum { LETTER = 1, MARK = 2, NUMBER = 4, SPACE = 8, UPPER = 16, LOWER = 32, NEWLINE = 64 };

static const uint8_t class_of_cat[32] = {
    [HR_LU] = LETTER | UPPER,
    [HR_LL] = LETTER | LOWER,
    [HR_LT] = LETTER | UPPER,
    [HR_LM] = LETTER | UPPER | LOWER,
    [HR_LO] = LETTER | UPPER | LOWER,
    [HR_MN] = MARK | UPPER | LOWER,
    [HR_MC] = MARK | UPPER | LOWER,
    [HR_ME] = MARK | UPPER | LOWER,
    [HR_ND] = NUMBER,
    [HR_NL] = NUMBER,
    [HR_NO] = NUMBER,
    [HR_ZS] = SPACE,
    [HR_ZL] = SPACE,
    [HR_ZP] = SPACE,
};

/* The class of the character at pos, and the place after it. */
static inline unsigned class_at(const char *s, size_t pos, size_t *next) {
    unsigned char b = (unsigned char)s[pos];
    if (b < 0x80) {
        *next = pos + 1;
        if ((b | 0x20u) - 'a' < 26u) return LETTER | (b & 0x20 ? LOWER : UPPER);
        if (b == ' ') return SPACE;
        if (b >= '0' && b <= '9') return NUMBER;
        if (b == '\n' || b == '\r') return SPACE | NEWLINE;
        return b >= 9 && b <= 13 ? SPACE : 0;
    }
    int n;
    uint32_t cp = hr_utf8_get(s + pos, &n);
    *next = pos + (size_t)n;
    return cp == 0x85 ? SPACE : class_of_cat[hr_uni_cat(cp)];
}

/* From pos over characters that have one of the flags `want`, at most n_max of them. */
static inline size_t run_of(const char *s, size_t len, size_t pos, unsigned want, size_t n_max) {
    size_t next;
    while (pos < len && n_max-- && class_at(s, pos, &next) & want) pos = next;
    return pos;
}

/* From pos over characters that have none of the flags. */
static inline size_t run_without(const char *s, size_t len, size_t pos, unsigned flags) {
    size_t next;
    while (pos < len && !(class_at(s, pos, &next) & flags)) pos = next;
    return pos;
}

/* The end of a contraction ('s 't 're 've 'm 'll 'd) at pos, or pos. Under fold U+017F is an s. */
static size_t contraction(const char *s, size_t len, size_t pos, bool fold) {
    size_t left = len - pos;
    if (left < 2 || s[pos] != '\'') return pos;
    unsigned char lower = fold ? 0x20 : 0;
    char a = (char)(s[pos + 1] | lower), b = (char)(left > 2 ? s[pos + 2] | lower : 0);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return pos + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return pos + 3;
    if (fold && left > 2 && memcmp(s + pos + 1, "\xc5\xbf", 2) == 0) return pos + 3;
    return pos;
}

/* \s*[\r\n]+ (when newlines is true), \s+(?!\S), \s+ at a white character. The first ends after the
 * last line end of the run; the second leaves one character of the run to what follows it. */
static size_t blanks(const char *s, size_t len, size_t pos, bool newlines) {
    size_t end = pos, last = pos, after_newline = 0, next;
    while (end < len) {
        unsigned c = class_at(s, end, &next);
        if (!(c & SPACE)) break;
        if (c & NEWLINE) after_newline = next;
        last = end;
        end = next;
    }
    if (newlines && after_newline) return after_newline;
    return end == len || last == pos ? end : last;
}

static size_t split_gpt2(const char *s, size_t len, size_t pos) {
    size_t end = contraction(s, len, pos, false), next, after;
    if (end > pos) return end;
    unsigned c = class_at(s, pos, &next);
    size_t begin = pos;
    if (s[pos] == ' ' && next < len) {
        c = class_at(s, next, &after);
        begin = next;
    }
    if (c & LETTER) return run_of(s, len, begin, LETTER, SIZE_MAX);
    if (c & NUMBER) return run_of(s, len, begin, NUMBER, SIZE_MAX);
    if (!(c & SPACE)) return run_without(s, len, begin, LETTER | NUMBER | SPACE);
    return blanks(s, len, pos, false);
}

/* What cl100k and o200k share after their words: numbers, symbols with line ends, blanks. */
static size_t split_rest(const char *s, size_t len, size_t pos, size_t n_digits, unsigned words,
                         bool slash) {
    size_t next, after, begin = pos;
    unsigned c = class_at(s, pos, &next);
    if (c & NUMBER) return run_of(s, len, pos, NUMBER, n_digits);
    if (s[pos] == ' ' && next < len) {
        c = class_at(s, next, &after);
        begin = next;
    }
    if (c & (words | NUMBER | SPACE)) return blanks(s, len, pos, true);
    size_t end = run_without(s, len, begin, words | NUMBER | SPACE);
    while (end < len && (s[end] == '\n' || s[end] == '\r' || (slash && s[end] == '/'))) end++;
    return end;
}

static inline size_t split_cl100k(const char *s, size_t len, size_t pos, size_t n_digits,
                                  unsigned words) {
    size_t end = contraction(s, len, pos, true), next, after;
    if (end > pos) return end;
    unsigned c = class_at(s, pos, &next);
    if (c & words) return run_of(s, len, next, words, SIZE_MAX);
    if (!(c & (NUMBER | NEWLINE)) && next < len && class_at(s, next, &after) & words) {
        return run_of(s, len, after, words, SIZE_MAX);
    }
    return split_rest(s, len, pos, n_digits, words, false);
}

static size_t split_llama3(const char *s, size_t len, size_t pos) {
    return split_cl100k(s, len, pos, 3, LETTER);
}
static size_t split_qwen2(const char *s, size_t len, size_t pos) {
    return split_cl100k(s, len, pos, 1, LETTER);
}
static size_t split_qwen35(const char *s, size_t len, size_t pos) {
    return split_cl100k(s, len, pos, 1, LETTER | MARK);
}

/* The class as Kimi's words see it: Han is no part of them. */
static inline unsigned word_class_at(const char *s, size_t pos, size_t *next, bool no_han) {
    unsigned c = class_at(s, pos, next);
    int n;
    bool han = no_han && *next - pos > 2 && hr_uni_is_han(hr_utf8_get(s + pos, &n));
    return han ? c & ~(unsigned)(UPPER | LOWER) : c;
}

static inline size_t run_of_words(const char *s, size_t len, size_t pos, unsigned want,
                                  bool no_han) {
    size_t next;
    while (pos < len && word_class_at(s, pos, &next, no_han) & want) pos = next;
    return pos;
}

static size_t run_of_han(const char *s, size_t len, size_t pos) {
    int n;
    while (pos < len && (unsigned char)s[pos] >= 0xe0 && hr_uni_is_han(hr_utf8_get(s + pos, &n)))
        pos += (size_t)n;
    return pos;
}

/* UPPER* LOWER+ at pos, or pos when it does not match. When no lower-case letter follows the run,
 * the run gives back until its last character that counts as both, and the match ends after that
 * one. */
static inline size_t upper_lower(const char *s, size_t len, size_t pos, bool no_han) {
    size_t p = pos, both_end = pos, next;
    while (p < len) {
        unsigned c = word_class_at(s, p, &next, no_han);
        if (!(c & UPPER)) break;
        if (c & LOWER) both_end = next;
        p = next;
    }
    size_t end = run_of_words(s, len, p, LOWER, no_han);
    return end > p ? end : both_end;
}

static inline size_t split_o200k_words(const char *s, size_t len, size_t pos, bool no_han) {
    size_t next, end;
    unsigned c = word_class_at(s, pos, &next, no_han);
    bool lead = !(c & (LETTER | NUMBER | NEWLINE)) && next < len;
    if (lead && (end = upper_lower(s, len, next, no_han)) > next) return end;
    if (c & (UPPER | LOWER) && (end = upper_lower(s, len, pos, no_han)) > pos) return end;
    if (lead && (end = run_of_words(s, len, next, UPPER, no_han)) > next) return end;
    return run_of_words(s, len, pos, UPPER, no_han);
}

static size_t split_o200k(const char *s, size_t len, size_t pos) {
    size_t end = split_o200k_words(s, len, pos, false);
    if (end > pos) return contraction(s, len, end, true);
    return split_rest(s, len, pos, 3, LETTER, true);
}
static size_t split_tekken(const char *s, size_t len, size_t pos) {
    size_t end = split_o200k_words(s, len, pos, false);
    return end > pos ? end : split_rest(s, len, pos, 1, LETTER, true);
}
static size_t split_kimi(const char *s, size_t len, size_t pos) {
    size_t end = run_of_han(s, len, pos);
    if (end > pos) return end;
    end = split_o200k_words(s, len, pos, true);
    if (end > pos) return contraction(s, len, end, true);
    return split_rest(s, len, pos, 3, LETTER, false);
}

hr_split_fn hr_splitter_find(const char *pattern, size_t len) {
    static const struct {
        const char *pattern;
        hr_split_fn fn;
    } known[] = {
        {hr_pattern_gpt2, split_gpt2},   {hr_pattern_llama3, split_llama3},
        {hr_pattern_qwen2, split_qwen2}, {hr_pattern_qwen35, split_qwen35},
        {hr_pattern_o200k, split_o200k}, {hr_pattern_tekken, split_tekken},
        {hr_pattern_kimi, split_kimi},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].pattern) == len && memcmp(known[i].pattern, pattern, len) == 0) {
            return known[i].fn;
        }
    }
    return NULL;
}

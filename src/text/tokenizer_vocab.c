/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_vocab: a tokenizer from the vocabulary of a GGUF file.
 *
 * A GGUF holds tokens and merges but names its pre-tokenizer by one word (tokenizer.ggml.pre). The
 * table below turns a word into the same steps as the model's own tokenizer.json has; also NFC,
 * which a GGUF has no word for, comes back where the model was trained with it. A word that is not
 * in the table is refused, and so is a file without one: a wrong split raises the token count by a
 * fifth and nobody sees it.
 *
 * "llama" and "gemma4" are SentencePiece's BPE over characters: spaces are written as U+2581, a
 * character without a token as byte tokens. "llama" has no merges but scores: any two tokens that
 * make a third may be merged, the highest score first. "gemma4" has merges. Source:
 * ggml-org/llama.cpp src/llama-vocab.cpp (names, token types), the tokenizer.json of each model
 * (steps). */
#include "text/tokenizer_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jscan.h"

#define BLANK "\xe2\x96\x81" /* U+2581, how SentencePiece writes a space */

/* DeepSeek LLM lists its letters and symbols one by one. */
static const char deepseek_letters[] =
    "\\s?[A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf\\u01c4-"
    "\\u0293\\u0295-\\u02af\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-"
    "\\u038a\\u038c\\u038e-\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-\\u052f\\u0531-\\u0556"
    "\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-\\u13fd\\u1c90-\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b"
    "\\u1d6b-\\u1d77\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d\\u1f20-\\u1f45\\u1f48-\\u1f4d"
    "\\u1f50-\\u1f57\\u1f59\\u1f5b\\u1f5d\\u1f5f-\\u1f7d\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe"
    "\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc\\u1fd0-\\u1fd3\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4"
    "\\u1ff6-\\u1ffc\\u2102\\u2107\\u210a-\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128"
    "\\u212a-\\u212d\\u212f-\\u2134\\u2139\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184"
    "\\u2c00-\\u2c7b\\u2c7e-\\u2ce4\\u2ceb-\\u2cee\\u2cf2\\u2cf3\\ua640-\\ua66d\\ua680-\\ua69b"
    "\\ua722-\\ua76f\\ua771-\\ua787\\ua78b-\\ua78e\\uab70-\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17"
    "\\uff21-\\uff3a\\uff41-\\uff5a\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-"
    "\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-"
    "\\x{1e943}]+";
static const char deepseek_symbols[] =
    "\\s?[!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+";
static const char deepseek_cjk[] = "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+";
static const char deepseek_v3_cjk[] = "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+";
static const char deepseek_v3_words[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p"
    "{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum step_kind { END, REGEX, DIGITS, DIGIT_RUNS, PUNCTUATION_RUNS, BYTE_LEVEL, BYTE_LEVEL_GPT2 };

struct step {
    enum step_kind kind;
    const char *pattern;
};

enum { NFC = 1, IGNORE_MERGES = 2 };

static const struct pre {
    const char *names; /* separated by spaces */
    int flags;
    struct step steps[8];
} pres[] = {
    {"gpt-2 phi-2", 0, {{BYTE_LEVEL_GPT2, NULL}}},
    {"mpt olmo", NFC, {{BYTE_LEVEL_GPT2, NULL}}},
    {"smollm starcoder refact", 0, {{DIGITS, NULL}, {BYTE_LEVEL_GPT2, NULL}}},
    {"command-r", NFC, {{DIGITS, NULL}, {BYTE_LEVEL_GPT2, NULL}}},
    /* What llama.cpp does for "default" are Falcon's steps. */
    {"falcon default",
     0,
     {{PUNCTUATION_RUNS, NULL},
      {BYTE_LEVEL_GPT2, NULL},
      {DIGIT_RUNS, NULL},
      {REGEX, "[0-9][0-9][0-9]"}}},
    {"llama-bpe llama3 llama-v3 glm4 chatglm-bpe",
     IGNORE_MERGES,
     {{REGEX, hr_pattern_llama3}, {BYTE_LEVEL, NULL}}},
    {"qwen2 deepseek-r1-qwen", NFC, {{REGEX, hr_pattern_qwen2}, {BYTE_LEVEL, NULL}}},
    {"qwen35", NFC, {{REGEX, hr_pattern_qwen35}, {BYTE_LEVEL, NULL}}},
    {"gpt-4o", IGNORE_MERGES, {{REGEX, hr_pattern_o200k}, {BYTE_LEVEL, NULL}}},
    {"tekken", IGNORE_MERGES, {{REGEX, hr_pattern_tekken}, {BYTE_LEVEL, NULL}}},
    {"deepseek-coder",
     0,
     {{REGEX, "[\\r\\n]"},
      {REGEX, "\\s?\\p{L}+"},
      {REGEX, "\\s?\\p{P}+"},
      {REGEX, deepseek_cjk},
      {DIGITS, NULL},
      {BYTE_LEVEL, NULL}}},
    {"deepseek-llm",
     0,
     {{REGEX, "[\\r\\n]"},
      {REGEX, deepseek_letters},
      {REGEX, deepseek_symbols},
      {REGEX, "\\s+$"},
      {REGEX, deepseek_cjk},
      {DIGITS, NULL},
      {BYTE_LEVEL, NULL}}},
    {"deepseek-v3",
     0,
     {{REGEX, "\\p{N}{1,3}"},
      {REGEX, deepseek_v3_cjk},
      {REGEX, deepseek_v3_words},
      {BYTE_LEVEL, NULL}}},
};
enum { N_PRES = sizeof pres / sizeof *pres };

static bool has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; n && (p = strstr(p, word)); p += n) {
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    }
    return false;
}

static const struct pre *find_pre(const char *name, struct hr_err *err) {
    char known[512] = "";
    for (int i = 0; i < N_PRES; i++) {
        if (has_word(pres[i].names, name)) return &pres[i];
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? " " : "", pres[i].names);
    }
    hr_err_set(
        err, HR_ERR_UNSUPPORTED,
        "tokenizer.ggml.pre \"%s\" is not supported: it names how the model splits text; known "
        "are %s",
        name, known);
    return NULL;
}

static enum hr_status add_step(struct hr_tokenizer *t, const struct step *s, struct hr_err *err) {
    struct hr_pretok_step step = {0};
    switch (s->kind) {
    case END:
        return HR_OK;
    case REGEX:
        return hr_pretok_add_regex(&t->pretok, s->pattern, strlen(s->pattern), HR_SPLIT_ISOLATED,
                                   false, err);
    case DIGITS:
    case DIGIT_RUNS:
        step.type = HR_PRETOK_DIGITS;
        step.individual = s->kind == DIGITS;
        break;
    case PUNCTUATION_RUNS:
        step.type = HR_PRETOK_PUNCTUATION;
        step.behavior = HR_SPLIT_CONTIGUOUS;
        break;
    case BYTE_LEVEL:
    case BYTE_LEVEL_GPT2:
        step.type = HR_PRETOK_BYTE_LEVEL;
        step.use_regex = s->kind == BYTE_LEVEL_GPT2;
        break;
    }
    return hr_pretok_add(&t->pretok, step, err);
}

static enum hr_status add_merges(struct hr_tokenizer *t, const struct hr_vocab *v,
                                 struct hr_err *err) {
    struct hr_buf left = {0}, right = {0};
    enum hr_status st = HR_OK;
    for (int i = 0; i < v->n_merges && !st; i++) {
        const char *s = v->merges[i];
        size_t len = v->merge_len[i];
        /* A merged token may itself begin with a space only in files that do not use the alphabet.
         */
        const char *space = len > 1 ? memchr(s + 1, ' ', len - 1) : NULL;
        size_t n = space ? (size_t)(space - s) : 0;
        if (!space) {
            st = hr_err_set(err, HR_ERR_FORMAT, "tokenizer.ggml.merges: entry %d is not two tokens",
                            i);
        } else if (hr_tokenizer_to_bytes(s, n, &left) &&
                   hr_tokenizer_to_bytes(space + 1, len - n - 1, &right) &&
                   !hr_bpe_add_merge(&t->bpe, (uint32_t)i, left.data, left.len, right.data,
                                     right.len)) {
            st = hr_err_set(err, HR_ERR_FORMAT,
                            "tokenizer.ggml.merges: entry %d is not two tokens that make a third",
                            i);
        }
    }
    hr_buf_finish(&left);
    hr_buf_finish(&right);
    return st;
}

static bool is_scored(const struct hr_vocab *v) {
    return strcmp(v->model, "llama") == 0;
}

static bool is_chars(const struct hr_vocab *v) {
    return is_scored(v) || strcmp(v->model, "gemma4") == 0;
}

/* Merges by scores: the ranks are the places in descending order, equal for equal scores, so that
 * of these the leftmost pair goes first. Only tokens that a text can give take part. */
struct scored {
    float score;
    int id;
};

static int by_score(const void *a, const void *b) {
    float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void add_scored_merges(struct hr_tokenizer *t, const struct hr_vocab *v) {
    size_t n = (size_t)v->n_tokens;
    struct scored *order = hr_xcalloc(n, sizeof *order);
    uint32_t *rank = hr_xcalloc(n, sizeof *rank);
    for (size_t i = 0; i < n; i++) order[i] = (struct scored){v->scores[i], (int)i};
    qsort(order, n, sizeof *order, by_score);
    for (size_t i = 0, place = 0; i < n; i++) {
        int type = v->types ? v->types[order[i].id] : HR_TOKEN_NORMAL;
        bool spoken = type == HR_TOKEN_NORMAL || type == HR_TOKEN_UNUSED;
        if (i > 0 && order[i].score != order[i - 1].score) place = i;
        rank[order[i].id] = spoken || type == HR_TOKEN_USER_DEFINED ? (uint32_t)place : UINT32_MAX;
    }
    hr_bpe_add_all_merges(&t->bpe, rank);
    free(order);
    free(rank);
}

/* Merges whose parts are written as they are; a part may itself be white, so the space that parts
 * them is the one between two tokens. */
static enum hr_status add_plain_merges(struct hr_tokenizer *t, const struct hr_vocab *v,
                                       struct hr_err *err) {
    for (int i = 0; i < v->n_merges; i++) {
        const char *s = v->merges[i], *space = s, *end = s + v->merge_len[i];
        bool good = false;
        while (!good && (space = memchr(space + 1, ' ', (size_t)(end - space - 1)))) {
            good = hr_bpe_add_merge(&t->bpe, (uint32_t)i, s, (size_t)(space - s), space + 1,
                                    (size_t)(end - space - 1));
        }
        if (!good)
            return hr_err_set(err, HR_ERR_FORMAT,
                              "tokenizer.ggml.merges: entry %d is not two tokens that make a third",
                              i);
    }
    return HR_OK;
}

/* A token of spaces is also found where U+2581 itself stands in a text, as in the model's own
 * files, which write it so. Added before its other form, whose text it then keeps. */
static void add_blank_form(struct hr_tokenizer *t, const char *s, struct hr_added_token a) {
    struct hr_buf text = {0};
    for (size_t i = 0; i < a.len; i++) {
        if (s[i] == ' ')
            hr_buf_puts(&text, BLANK);
        else
            hr_buf_putc(&text, s[i]);
    }
    a.content = text.data;
    a.len = text.len;
    hr_tokenizer_add_added(t, a);
}

static void add_control_tokens(struct hr_tokenizer *t, const struct hr_vocab *v) {
    for (int i = 0; v->types && i < v->n_tokens; i++) {
        bool special = v->types[i] == HR_TOKEN_CONTROL || v->types[i] == HR_TOKEN_UNKNOWN;
        if (!special && v->types[i] != HR_TOKEN_USER_DEFINED) continue;
        struct hr_added_token a = {.len = v->token_len[i], .id = i, .special = special};
        if (is_chars(v) && !special && memchr(v->tokens[i], ' ', a.len))
            add_blank_form(t, v->tokens[i], a);
        a.content = hr_xstrndup(v->tokens[i], a.len);
        hr_tokenizer_add_added(t, a);
    }
}

static enum hr_status check_scores(const struct hr_vocab *v, struct hr_err *err) {
    if (!v->scores)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "tokenizer.ggml.scores is missing: the model \"%s\" "
                          "merges by scores",
                          v->model);
    for (int i = 0; i < v->n_tokens; i++) {
        if (isnan(v->scores[i]))
            return hr_err_set(err, HR_ERR_FORMAT,
                              "tokenizer.ggml.scores: that of token %d is not a number", i);
    }
    return HR_OK;
}

static enum hr_status check(const struct hr_vocab *v, struct hr_err *err) {
    size_t bad;
    if (!is_chars(v) && strcmp(v->model, "gpt2") != 0) {
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "tokenizer.ggml.model \"%s\" is not supported; known are gpt2, llama and "
                          "gemma4",
                          v->model);
    }
    if (v->n_tokens <= 0 || v->n_tokens > HR_VOCAB_MAX) {
        return hr_err_set(err, HR_ERR_FORMAT, "tokenizer.ggml.tokens: %d tokens", v->n_tokens);
    }
    for (int i = 0; i < v->n_tokens; i++) {
        if (!hr_utf8_valid(v->tokens[i], v->token_len[i], &bad)) {
            return hr_err_set(err, HR_ERR_FORMAT, "tokenizer.ggml.tokens: token %d is not UTF-8",
                              i);
        }
    }
    if (is_scored(v) && check_scores(v, err)) return HR_ERR_FORMAT;
    for (int i = 0; i < v->n_merges; i++) {
        if (v->merge_len[i] == 0)
            return hr_err_set(err, HR_ERR_FORMAT, "tokenizer.ggml.merges: entry %d is empty", i);
        if (!hr_utf8_valid(v->merges[i], v->merge_len[i], &bad)) {
            return hr_err_set(err, HR_ERR_FORMAT, "tokenizer.ggml.merges: entry %d is not UTF-8",
                              i);
        }
    }
    bool bos_bad = v->add_bos && (v->bos < 0 || v->bos >= v->n_tokens);
    bool eos_bad = v->add_eos && (v->eos < 0 || v->eos >= v->n_tokens);
    if (bos_bad || eos_bad) {
        return hr_err_set(err, HR_ERR_FORMAT,
                          "tokenizer.ggml.add_%s_token is set, but the file names no "
                          "such token",
                          bos_bad ? "bos" : "eos");
    }
    return HR_OK;
}

static struct hr_norm_step replace_step(const char *from, const char *to) {
    struct hr_norm_step step = {.type = HR_NORM_REPLACE};
    step.from = hr_xstrdup(from);
    step.to = hr_xstrdup(to);
    step.from_len = strlen(from);
    step.to_len = strlen(to);
    return step;
}

/* What a tokenizer.json of these models says around its merges. */
static enum hr_status build_chars(struct hr_tokenizer *t, const struct hr_vocab *v,
                                  const struct hr_token_text *texts, struct hr_err *err) {
    struct hr_decoder *d = &t->decoder;
    if (v->add_space_prefix) {
        struct hr_norm_step step = {.type = HR_NORM_PREPEND};
        step.to = hr_xstrdup(BLANK);
        step.to_len = strlen(BLANK);
        hr_normalizer_add(&t->normalizer, step);
        d->strip = ' ';
        d->n_strip = 1;
    }
    hr_normalizer_add(&t->normalizer, replace_step(" ", BLANK));
    d->kind = HR_DECODER_CHARS;
    d->byte_fallback = true;
    d->n_replaces = 1;
    d->replace[0].from = hr_xstrdup(BLANK);
    d->replace[0].from_len = strlen(BLANK);
    d->replace[0].to = hr_xstrdup(" ");
    d->replace[0].to_len = 1;
    enum hr_status st = hr_tokenizer_set_vocab(t, texts, v->n_tokens, (size_t)v->n_merges, err);
    if (st) return st;
    t->bpe.byte_fallback = t->bpe.fuse_unk = true;
    t->bpe.unk = v->unk;
    if (is_scored(v))
        add_scored_merges(t, v);
    else
        st = add_plain_merges(t, v, err);
    hr_bpe_merges_done(&t->bpe);
    return st;
}

static enum hr_status build_bytes(struct hr_tokenizer *t, const struct hr_vocab *v,
                                  const struct hr_token_text *texts, struct hr_err *err) {
    const struct pre *pre = find_pre(v->pre, err);
    enum hr_status st;
    if (!pre) return HR_ERR_UNSUPPORTED;
    if (pre->flags & NFC) hr_normalizer_add(&t->normalizer, (struct hr_norm_step){.form = HR_NFC});
    for (int i = 0; pre->steps[i].kind != END; i++) {
        if ((st = add_step(t, &pre->steps[i], err))) return st;
    }
    if ((st = hr_tokenizer_set_vocab(t, texts, v->n_tokens, (size_t)v->n_merges, err))) return st;
    t->bpe.ignore_merges = pre->flags & IGNORE_MERGES;
    return add_merges(t, v, err);
}

enum hr_status hr_tokenizer_create_vocab(const struct hr_vocab *v, struct hr_tokenizer **out,
                                         struct hr_err *err) {
    enum hr_status st = check(v, err);
    if (st) return st;
    struct hr_tokenizer *t = hr_xcalloc(1, sizeof *t);
    struct hr_token_text *texts = hr_xcalloc((size_t)v->n_tokens, sizeof *texts);
    for (int i = 0; i < v->n_tokens; i++) {
        texts[i] = (struct hr_token_text){v->tokens[i], v->token_len[i], 0};
    }
    if ((st = is_chars(v) ? build_chars(t, v, texts, err) : build_bytes(t, v, texts, err)))
        goto fail;
    add_control_tokens(t, v);
    if (v->add_bos) hr_ids_push(&t->prefix, v->bos);
    if (v->add_eos) hr_ids_push(&t->suffix, v->eos);
    if ((st = hr_tokenizer_seal(t, texts, err))) goto fail;
    *out = t;
    t = NULL;
fail:
    hr_tokenizer_destroy(&t);
    free(texts);
    return st;
}

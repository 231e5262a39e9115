/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_ranks: a tokenizer from tiktoken's file of ranks (Kimi's tiktoken.model).
 *
 * A line is valid if and only if it is a token in base64, one space, and the token's rank; the
 * ranks are 0, 1, 2, ... in any order, each once, and all 256 bytes are tokens. There are no
 * merges: any two neighbours whose bytes together are a token may be merged, the lowest rank first;
 * a piece that is a token is that token. tiktoken's users cut texts of more than 400,000
 * characters, and runs of more than 25,000 without a blank, because its matcher has a depth; this
 * one has none and does not cut. Source: openai/tiktoken, src/lib.rs and tiktoken/load.py. */
#include "text/tokenizer_int.h"

#include <stdlib.h>
#include <string.h>

#include "text/base64.h"
#include "text/splitter.h"

/* One line at p, without its end; NULL when there is none left. */
static const char *next_line(const char **p, const char *end, size_t *len) {
    const char *line = *p;
    if (line >= end) return NULL;
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    *p = newline ? newline + 1 : end;
    *len = (size_t)((newline ? newline : end) - line);
    if (*len > 0 && line[*len - 1] == '\r') --*len;
    return line;
}

size_t hr_tokenizer_count_ranks(const char *ranks, size_t len) {
    const char *p = ranks;
    size_t n = 0, n_line;
    while (next_line(&p, ranks + len, &n_line)) n += n_line > 0;
    return n;
}

/* The token's bytes and its rank. */
static bool parse_line(const char *s, size_t len, struct hr_buf *bytes, size_t *rank) {
    const char *space = memchr(s, ' ', len);
    hr_buf_clear(bytes);
    if (!space || space == s || !hr_base64_decode(s, (size_t)(space - s), bytes)) return false;
    size_t n_digits = 0;
    *rank = 0;
    for (const char *p = space + 1; p < s + len; p++, n_digits++) {
        if (*p < '0' || *p > '9' || n_digits == 9) return false;
        *rank = *rank * 10 + (size_t)(*p - '0');
    }
    return n_digits > 0 && bytes->len > 0;
}

/* The texts of all tokens in the byte alphabet, one after the other in `text`; texts[i].s holds an
 * offset until all are read. */
static enum hr_status read_ranks(const char *ranks, size_t len, size_t n, struct hr_buf *text,
                                 struct hr_token_text *texts, struct hr_err *err) {
    struct hr_buf bytes = {0};
    size_t *offset = hr_xcalloc(n + 1, sizeof *offset), n_line, rank, i_line = 0;
    const char *p = ranks, *line;
    enum hr_status st = HR_OK;
    while (!st && (line = next_line(&p, ranks + len, &n_line))) {
        i_line++;
        if (n_line == 0) continue;
        if (!parse_line(line, n_line, &bytes, &rank) || rank >= n || texts[rank].len > 0) {
            st = hr_err_set(err, HR_ERR_FORMAT,
                            "line %zu is not a token in base64 and a rank of its own below %zu",
                            i_line, n);
            break;
        }
        offset[rank] = text->len;
        for (size_t i = 0; i < bytes.len; i++) {
            char c[4];
            int n_char = hr_utf8_put(hr_byte_alphabet[(unsigned char)bytes.data[i]], c);
            hr_buf_append(text, c, (size_t)n_char);
        }
        texts[rank].len = text->len - offset[rank];
    }
    for (size_t i = 0; i < n && !st; i++) texts[i].s = text->data + offset[i];
    free(offset);
    hr_buf_finish(&bytes);
    return st;
}

static enum hr_status add_control(struct hr_tokenizer *t, const struct hr_rank_token *control,
                                  size_t n, struct hr_err *err) {
    for (size_t i = 0; i < n; i++) {
        if (control[i].id < t->n_model || control[i].id >= HR_VOCAB_MAX)
            return hr_err_set(err, HR_ERR_FORMAT, "the control token %d is not after the ranks",
                              (int)control[i].id);
        struct hr_added_token a = {.len = control[i].len, .id = control[i].id};
        a.content = hr_xstrndup(control[i].s, a.len);
        a.special = control[i].special;
        hr_tokenizer_add_added(t, a);
    }
    return HR_OK;
}

static enum hr_status add_merges(struct hr_tokenizer *t, struct hr_err *err) {
    struct hr_bpe *b = &t->bpe;
    for (int i = 0; i < 256; i++) {
        if (b->byte_id[i] < 0)
            return hr_err_set(err, HR_ERR_FORMAT, "the byte 0x%02X has no rank", (unsigned)i);
    }
    uint32_t *rank = hr_xcalloc((size_t)t->n_model, sizeof *rank);
    for (int i = 0; i < t->n_model; i++) rank[i] = (uint32_t)i;
    hr_bpe_add_all_merges(b, rank);
    hr_bpe_merges_done(b);
    b->ignore_merges = true;
    free(rank);
    return HR_OK;
}

enum hr_status hr_tokenizer_create_ranks(const char *ranks, size_t len, const char *pattern,
                                         const struct hr_rank_token *control, size_t n_control,
                                         struct hr_tokenizer **out, struct hr_err *err) {
    size_t n = hr_tokenizer_count_ranks(ranks, len);
    struct hr_buf text = {0};
    enum hr_status st;
    if (n == 0 || n > HR_VOCAB_MAX) return hr_err_set(err, HR_ERR_FORMAT, "a file of %zu ranks", n);
    if (!pattern) pattern = hr_pattern_kimi;
    struct hr_tokenizer *t = hr_xcalloc(1, sizeof *t);
    struct hr_token_text *texts = hr_xcalloc(n, sizeof *texts);
    struct hr_pretok_step bytes = {.type = HR_PRETOK_BYTE_LEVEL};
    if ((st = hr_pretok_add_regex(&t->pretok, pattern, strlen(pattern), HR_SPLIT_ISOLATED, false,
                                  err)))
        goto fail;
    if ((st = hr_pretok_add(&t->pretok, bytes, err))) goto fail;
    if ((st = read_ranks(ranks, len, n, &text, texts, err))) goto fail;
    if ((st = hr_tokenizer_set_vocab(t, texts, (int)n, n, err))) goto fail;
    if ((st = add_merges(t, err))) goto fail;
    if ((st = add_control(t, control, n_control, err))) goto fail;
    if ((st = hr_tokenizer_seal(t, texts, err))) goto fail;
    *out = t;
    t = NULL;
fail:
    hr_tokenizer_destroy(&t);
    hr_buf_finish(&text);
    free(texts);
    return st;
}

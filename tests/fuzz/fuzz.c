/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz: the files and the tokenizer exercise that targets share; see fuzz.h. Files go to $TMPDIR,
 * which scripts/fuzz sets to a folder in memory and clears when a crash left something behind. */
#include "fuzz.h"

#include <ftw.h>
#include <string.h>
#include <unistd.h>

#include "base/jscan.h"
#include "base/log.h"
#include "text/detok.h"
#include "text/tokenizer_int.h"
#include "text/unicode.h"

char *fuzz_copy(const void *data, size_t len) {
    char *p = malloc(len);
    FUZZ_CHECK(p != NULL || len == 0);
    if (len) memcpy(p, data, len);
    return p;
}

void fuzz_cut(const uint8_t *data, size_t size, char **first, size_t *first_len, char **second,
              size_t *second_len) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    *first_len = nul ? (size_t)(nul - data) : size;
    *second_len = nul ? size - *first_len - 1 : 0;
    *first = fuzz_copy(data, *first_len);
    *second = nul ? fuzz_copy(nul + 1, *second_len) : NULL;
}

static char dir[FUZZ_PATH_MAX - 64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    return remove(path);
}

static void remove_dir(void) {
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_dir(void) {
    const char *tmp = getenv("TMPDIR");
    if (dir[0]) return dir;
    hr_log_set_level(HR_LOG_ERROR); /* damage is what the inputs are made of */
    int n = snprintf(dir, sizeof dir, "%s/headrace-fuzz-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    FUZZ_CHECK(n > 0 && (size_t)n < sizeof dir && mkdtemp(dir) != NULL);
    atexit(remove_dir);
    return dir;
}

void fuzz_path(char path[FUZZ_PATH_MAX], const char *name) {
    int n = snprintf(path, FUZZ_PATH_MAX, "%s/%s", fuzz_dir(), name);
    FUZZ_CHECK(n > 0 && n < FUZZ_PATH_MAX);
}

void fuzz_write(const char *name, const void *data, size_t len) {
    char path[FUZZ_PATH_MAX];
    fuzz_path(path, name);
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f != NULL && (len == 0 || fwrite(data, 1, len, f) == len));
    FUZZ_CHECK(fclose(f) == 0);
}

void fuzz_read(const char *name, struct hr_buf *out) {
    char path[FUZZ_PATH_MAX];
    fuzz_path(path, name);
    FILE *f = fopen(path, "rb");
    if (!f) return;
    size_t n;
    do {
        hr_buf_reserve(out, 65536);
        n = fread(out->data + out->len, 1, 65536, f);
        out->len += n;
    } while (n > 0);
    fclose(f);
}

void fuzz_remove(const char *name) {
    char path[FUZZ_PATH_MAX];
    fuzz_path(path, name);
    unlink(path);
}

void fuzz_make_utf8(struct hr_buf *out, const uint8_t *s, size_t n) {
    size_t good = 0;
    for (size_t i = 0; i < n;) {
        bool valid, more;
        int len = hr_utf8_scan(s + i, n - i, &valid, &more);
        if (!valid) {
            hr_buf_append(out, s + good, i - good);
            hr_buf_append(out, "\xef\xbf\xbd", 3);
            good = i + (size_t)len;
        }
        i += (size_t)len;
    }
    hr_buf_append(out, s + good, n - good);
}

/* Joins the bytes of tokens as struct hr_token_bytes says that they make a text. */
static void join_bytes(const struct hr_tokenizer *tok, const struct hr_ids *ids, struct hr_buf *out) {
    const struct hr_token_bytes *b = hr_tokenizer_bytes(tok);
    bool first = true;
    for (size_t i = 0; i < ids->len; i++) {
        int32_t id = ids->data[i];
        FUZZ_CHECK(id >= 0 && id < hr_tokenizer_n_vocab(tok) && id < b->n_tokens);
        if (b->hidden[id]) continue;
        const uint32_t *offset = first && b->first_offset ? b->first_offset : b->offset;
        const uint8_t *bytes = first && b->first_offset ? b->first_bytes : b->bytes;
        hr_buf_append(out, bytes + offset[id], offset[id + 1] - offset[id]);
        first = false;
    }
}

/* The table of bytes, joined, is what decode writes; a broken run of byte tokens is replaced in
 * SentencePiece's own way. Cutting a text in two and joining it gives the same text. */
static void check_bytes(const struct hr_tokenizer *tok, const struct hr_ids *ids) {
    const struct hr_token_bytes *b = hr_tokenizer_bytes(tok);
    struct hr_buf bytes = {0}, want = {0}, decoded = {0}, parts[2] = {0};
    size_t bad, n_strip = 0;
    hr_buf_reserve(&bytes, 1);
    join_bytes(tok, ids, &bytes);
    while (n_strip < bytes.len && n_strip < (size_t)b->n_strip && (uint8_t)bytes.data[n_strip] == b->strip)
        n_strip++;
    fuzz_make_utf8(&want, (const uint8_t *)bytes.data + n_strip, bytes.len - n_strip);
    bool valid = hr_utf8_valid(bytes.data + n_strip, bytes.len - n_strip, &bad);
    hr_tokenizer_decode(tok, ids->data, ids->len, true, &decoded);
    FUZZ_CHECK(hr_utf8_valid(decoded.data, decoded.len, &bad));
    if (tok->decoder.kind == HR_DECODER_BYTE_LEVEL || valid)
        FUZZ_CHECK(want.len == decoded.len && (want.len == 0 || memcmp(want.data, decoded.data, want.len) == 0));
    size_t cut[2] = {bytes.len / 2, bytes.len};
    while (cut[0] < bytes.len && ((uint8_t)bytes.data[cut[0]] & 0xc0) == 0x80) cut[0]++;
    size_t dropped = hr_detok_parts(tok, ids->data, ids->len, cut, 2, parts);
    hr_buf_append(&parts[0], parts[1].data, parts[1].len);
    FUZZ_CHECK(hr_utf8_valid(parts[0].data, parts[0].len, &bad));
    if (valid)
        FUZZ_CHECK(!dropped && parts[0].len == decoded.len &&
                   (decoded.len == 0 || memcmp(parts[0].data, decoded.data, decoded.len) == 0));
    hr_buf_clear(&decoded);
    hr_tokenizer_decode(tok, ids->data, ids->len, false, &decoded);
    FUZZ_CHECK(hr_utf8_valid(decoded.data, decoded.len, &bad));
    hr_buf_finish(&bytes);
    hr_buf_finish(&want);
    hr_buf_finish(&decoded);
    hr_buf_finish(&parts[0]);
    hr_buf_finish(&parts[1]);
}

void fuzz_use_tokenizer(const struct hr_tokenizer *tok, const char *text, size_t len) {
    struct hr_buf valid = {0};
    fuzz_make_utf8(&valid, (const uint8_t *)text, len);
    char *exact = fuzz_copy(valid.data, valid.len);
    struct hr_span half = {valid.len / 4, valid.len / 2};
    for (int mode = 0; mode < 8; mode++) {
        struct hr_encode_opts opts = {.add_special = mode & 1,
                                      .parse_special = mode & 2,
                                      .plain = &half,
                                      .n_plain = mode & 4 && half.end > half.begin};
        struct hr_ids ids = {0};
        struct hr_err err = {0};
        if (hr_tokenizer_encode(tok, exact, valid.len, &opts, &ids, &err) == HR_OK)
            check_bytes(tok, &ids);
        else
            FUZZ_CHECK(err.msg[0] != 0);
        hr_ids_finish(&ids);
    }
    /* Ids as a model may sample them: any of the vocabulary, in any order, and some outside it. */
    int32_t any[64];
    for (size_t i = 0; i < 64; i++)
        any[i] = (int32_t)((i * 7 + (valid.len ? (uint8_t)exact[i % valid.len] : 0)) %
                           ((size_t)hr_tokenizer_n_vocab(tok) + 1));
    struct hr_buf out = {0};
    hr_tokenizer_decode(tok, any, 64, false, &out);
    size_t bad;
    FUZZ_CHECK(hr_utf8_valid(out.data, out.len, &bad));
    hr_tokenizer_find(tok, exact, valid.len);
    hr_buf_finish(&out);
    hr_buf_finish(&valid);
    free(exact);
}

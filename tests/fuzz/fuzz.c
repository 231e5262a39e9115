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

/* The table of bytes, joined, is what decode writes. SentencePiece's decoders cannot keep that:
 * they strip the whole text's first blank and replace a broken run of byte tokens byte by byte. */
static void check_bytes(const struct hr_tokenizer *tok, const struct hr_ids *ids) {
    const struct hr_token_bytes *tb = hr_tokenizer_bytes(tok);
    struct hr_buf bytes = {0}, lossy = {0}, decoded = {0};
    for (size_t i = 0; i < ids->len; i++) {
        int32_t id = ids->data[i];
        FUZZ_CHECK(id >= 0 && id < hr_tokenizer_n_vocab(tok) && id < tb->n_tokens);
        hr_buf_append(&bytes, tb->bytes + tb->offset[id], tb->offset[id + 1] - tb->offset[id]);
    }
    hr_utf8_append_lossy(&lossy, (const uint8_t *)bytes.data, bytes.len);
    hr_tokenizer_decode(tok, ids->data, ids->len, true, &decoded);
    size_t bad;
    FUZZ_CHECK(hr_utf8_valid(decoded.data, decoded.len, &bad));
    if (tok->decoder.kind == HR_DECODER_BYTE_LEVEL)
        FUZZ_CHECK(lossy.len == decoded.len &&
                   (lossy.len == 0 || memcmp(lossy.data, decoded.data, lossy.len) == 0));
    hr_buf_clear(&decoded);
    hr_tokenizer_decode(tok, ids->data, ids->len, false, &decoded);
    FUZZ_CHECK(hr_utf8_valid(decoded.data, decoded.len, &bad));
    hr_buf_finish(&bytes);
    hr_buf_finish(&lossy);
    hr_buf_finish(&decoded);
}

void fuzz_use_tokenizer(const struct hr_tokenizer *tok, const char *text, size_t len) {
    struct hr_buf valid = {0};
    hr_utf8_append_lossy(&valid, (const uint8_t *)text, len);
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

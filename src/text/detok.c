/* SPDX-License-Identifier: Apache-2.0
 *
 * detok: the one way from ids to text; hr_tokenizer_decode is a loop over it.
 *
 * ByteLevel holds back at most three bytes: the maximal prefix that could still become a character.
 * A SentencePiece tokenizer holds a run of byte tokens until something else comes, because the
 * reference reads a run as a whole: one wrong byte turns each of its bytes into U+FFFD. */
#include "text/detok.h"

#include <string.h>

#include "text/tokenizer_int.h"
#include "text/unicode.h"

#define REPLACEMENT "\xef\xbf\xbd"

void hr_detok_init(struct hr_detok *d, const struct hr_tokenizer *tok) {
    *d = (struct hr_detok){.tok = tok, .n_strip = tok->decoder.n_strip};
}

void hr_detok_finish(struct hr_detok *d) {
    hr_buf_finish(&d->held);
    *d = (struct hr_detok){0};
}

/* Text that is certain; the front of the whole text may have to be stripped. */
static void emit(struct hr_detok *d, const char *s, size_t len, struct hr_buf *out) {
    while (len > 0 && d->n_strip > 0) {
        if (*s != d->tok->decoder.strip) {
            d->n_strip = 0;
            break;
        }
        d->n_strip--;
        s++;
        len--;
    }
    hr_buf_append(out, s, len);
}

/* Moves whole and hopeless characters from `held` to the text; the rest could still become one. */
static void emit_held(struct hr_detok *d, struct hr_buf *out) {
    const uint8_t *s = (const uint8_t *)d->held.data;
    size_t i = 0, good = 0, n = d->held.len;
    while (i < n) {
        bool valid, more;
        int len = hr_utf8_scan(s + i, n - i, &valid, &more);
        if (more) break;
        if (!valid) {
            emit(d, d->held.data + good, i - good, out);
            emit(d, REPLACEMENT, 3, out);
            good = i + (size_t)len;
        }
        i += (size_t)len;
    }
    if (i > good) emit(d, d->held.data + good, i - good, out);
    if (i > 0) memmove(d->held.data, d->held.data + i, n - i);
    d->held.len = n - i;
}

/* The end of a run of byte tokens. */
static void emit_run(struct hr_detok *d, struct hr_buf *out) {
    bool valid = true, more;
    for (size_t i = 0; i < d->held.len && valid;) {
        i +=
            (size_t)hr_utf8_scan((const uint8_t *)d->held.data + i, d->held.len - i, &valid, &more);
    }
    if (valid)
        emit(d, d->held.data, d->held.len, out);
    else
        for (size_t i = 0; i < d->held.len; i++) emit(d, REPLACEMENT, 3, out);
    hr_buf_clear(&d->held);
    d->held_bytes = false;
}

/* The bytes that `id` adds where the text stands now; none for a token that is no text. */
static size_t token_bytes(struct hr_detok *d, int32_t id, const char **s) {
    const struct hr_token_bytes *b = &d->tok->token_bytes;
    if (id < 0 || id >= b->n_tokens || !(d->tok->flags[id] & HR_ID_EXISTS)) return 0;
    if (!d->keep_special && b->hidden[id]) return 0;
    bool first = !d->started && b->first_offset;
    const uint8_t *bytes = first ? b->first_bytes : b->bytes;
    const uint32_t *offset = first ? b->first_offset : b->offset;
    d->started = true;
    *s = (const char *)bytes + offset[id];
    return offset[id + 1] - offset[id];
}

/* Bytes of a token, all of them or what a cut leaves. */
static void feed(struct hr_detok *d, int32_t id, const char *s, size_t len, struct hr_buf *out) {
    if (d->tok->decoder.kind == HR_DECODER_BYTE_LEVEL) {
        hr_buf_append(&d->held, s, len);
        emit_held(d, out);
    } else if (d->tok->flags[id] & HR_ID_BYTE) {
        hr_buf_append(&d->held, s, len);
        d->held_bytes = true;
    } else {
        if (d->held_bytes) emit_run(d, out);
        emit(d, s, len, out);
    }
}

void hr_detok_push(struct hr_detok *d, int32_t id, struct hr_buf *out) {
    const char *s = NULL;
    size_t len = token_bytes(d, id, &s);
    /* A token without bytes ends a run of byte tokens all the same. */
    if (s) feed(d, id, s, len, out);
}

/* The bytes of `held` that could still have become a character. */
static size_t incomplete(const struct hr_buf *held) {
    for (size_t i = 0; i < held->len;) {
        bool valid, more;
        int len = hr_utf8_scan((const uint8_t *)held->data + i, held->len - i, &valid, &more);
        if (more) return held->len - i;
        i += (size_t)len;
    }
    return 0;
}

void hr_detok_cut(struct hr_detok *d, struct hr_buf *out) {
    if (d->held_bytes)
        emit_run(d, out);
    else if (d->held.len > 0)
        emit(d, REPLACEMENT, 3, out);
    hr_buf_clear(&d->held);
}

size_t hr_detok_end(struct hr_detok *d, struct hr_buf *out) {
    size_t dropped = incomplete(&d->held);
    d->held.len -= dropped;
    if (d->held_bytes) emit_run(d, out);
    hr_buf_clear(&d->held);
    d->started = false;
    d->n_strip = d->tok->decoder.n_strip;
    return dropped;
}

void hr_tokenizer_decode(const struct hr_tokenizer *tok, const int32_t *ids, size_t n,
                         bool skip_special, struct hr_buf *out) {
    struct hr_detok d;
    hr_detok_init(&d, tok);
    d.keep_special = !skip_special;
    for (size_t i = 0; i < n; i++) hr_detok_push(&d, ids[i], out);
    hr_detok_cut(&d, out);
    hr_detok_finish(&d);
}

size_t hr_detok_parts(const struct hr_tokenizer *tok, const int32_t *ids, size_t n,
                      const size_t *cut, int n_cuts, struct hr_buf *out) {
    struct hr_detok d;
    size_t pos = 0, dropped = 0;
    int k = 0;
    hr_detok_init(&d, tok);
    for (size_t i = 0; i < n && k < n_cuts; i++) {
        const char *s = NULL;
        size_t len = token_bytes(&d, ids[i], &s);
        if (s && len == 0) feed(&d, ids[i], s, 0, &out[k]);
        while (len > 0) {
            /* A cut is known to be one only when something follows it. */
            while (k < n_cuts && pos == cut[k]) hr_detok_cut(&d, &out[k++]);
            if (k == n_cuts) break;
            size_t take = len < cut[k] - pos ? len : cut[k] - pos;
            feed(&d, ids[i], s, take, &out[k]);
            s += take, len -= take, pos += take;
        }
    }
    if (k < n_cuts) dropped = hr_detok_end(&d, &out[k]);
    hr_detok_finish(&d);
    return dropped;
}

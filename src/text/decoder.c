/* SPDX-License-Identifier: Apache-2.0
 *
 * decoder: one token's share of the text. Joining the shares, and U+FFFD for what is not UTF-8, is
 * in detok.c: there is one way from ids to text, whether they come one by one or all at once. */
#include "text/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "text/pretok.h"
#include "text/unicode.h"

void hr_decoder_finish(struct hr_decoder *d) {
    for (int i = 0; i < d->n_replaces; i++) {
        free(d->replace[i].from);
        free(d->replace[i].to);
    }
    free(d->metaspace);
    *d = (struct hr_decoder){0};
}

/* A token is read through the byte alphabet only when all of it is written in it: an added token
 * such as a run of spaces stands for itself. */
static void byte_level_token(const char *s, size_t len, struct hr_buf *out) {
    size_t before = out->len;
    for (size_t i = 0; i < len;) {
        int n, byte = hr_byte_of_char(hr_utf8_get(s + i, &n));
        if (byte < 0) {
            out->len = before;
            hr_buf_append(out, s, len);
            return;
        }
        hr_buf_putc(out, (char)byte);
        i += (size_t)n;
    }
}

static void replace_all(struct hr_buf *text, const char *from, size_t from_len, const char *to,
                        size_t to_len) {
    struct hr_buf made = {0};
    size_t done = 0;
    while (from_len > 0 && done < text->len) {
        const char *hit = memmem(text->data + done, text->len - done, from, from_len);
        if (!hit) break;
        hr_buf_append(&made, text->data + done, (size_t)(hit - text->data) - done);
        hr_buf_append(&made, to, to_len);
        done = (size_t)(hit - text->data) + from_len;
    }
    hr_buf_append(&made, text->data + done, text->len - done);
    hr_buf_finish(text);
    *text = made;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
    return -1;
}

void hr_decoder_token(const struct hr_decoder *d, const char *s, size_t len, bool first,
                      struct hr_buf *out, bool *is_byte) {
    *is_byte = false;
    if (d->kind == HR_DECODER_BYTE_LEVEL) {
        byte_level_token(s, len, out);
        return;
    }
    struct hr_buf text = {0};
    hr_buf_append(&text, s, len);
    for (int i = 0; i < d->n_replaces; i++) {
        replace_all(&text, d->replace[i].from, d->replace[i].from_len, d->replace[i].to,
                    d->replace[i].to_len);
    }
    if (d->byte_fallback && text.len == 6 && memcmp(text.data, "<0x", 3) == 0 &&
        text.data[5] == '>') {
        int hi = hex_digit(text.data[3]), lo = hex_digit(text.data[4]);
        if (hi >= 0 && lo >= 0) {
            *is_byte = true;
            text.data[0] = (char)(hi << 4 | lo);
            text.len = 1;
        }
    }
    if (d->metaspace && !*is_byte) {
        bool drop = first && d->metaspace_drop_first;
        replace_all(&text, d->metaspace, d->metaspace_len, " ", drop ? 0 : 1);
    }
    hr_buf_append(out, text.data, text.len);
    hr_buf_finish(&text);
}

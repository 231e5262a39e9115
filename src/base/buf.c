/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: growable arrays; see buf.h for what they promise. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void die_nomem(size_t n) {
    fprintf(stderr, "headrace: out of memory (%zu bytes asked); what was committed is safe\n", n);
    abort();
}

void *hr_xmalloc(size_t n) {
    void *p = malloc(n ? n : 1);
    if (!p) die_nomem(n);
    return p;
}

void *hr_xcalloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p) die_nomem(n * size);
    return p;
}

void *hr_xrealloc(void *p, size_t n) {
    p = realloc(p, n ? n : 1);
    if (!p) die_nomem(n);
    return p;
}

char *hr_xstrndup(const char *s, size_t n) {
    char *p = hr_xmalloc(n + 1);
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *hr_xstrdup(const char *s) {
    return hr_xstrndup(s, strlen(s));
}

void hr_buf_finish(struct hr_buf *b) {
    free(b->data);
    *b = (struct hr_buf){0};
}

void hr_buf_clear(struct hr_buf *b) {
    b->len = 0;
}

void hr_buf_reserve(struct hr_buf *b, size_t n_more) {
    if (b->cap - b->len >= n_more) return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap - b->len < n_more) cap *= 2;
    b->data = hr_xrealloc(b->data, cap);
    b->cap = cap;
}

void hr_buf_append(struct hr_buf *b, const void *data, size_t len) {
    if (len == 0) return;
    hr_buf_reserve(b, len);
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void hr_buf_puts(struct hr_buf *b, const char *s) {
    hr_buf_append(b, s, strlen(s));
}

void hr_buf_put_cut(struct hr_buf *b, const char *s, size_t len, size_t max) {
    size_t n = len < max ? len : max;
    while (n < len && n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) n--;
    hr_buf_append(b, s, n);
    if (n < len) hr_buf_puts(b, "...");
}

void hr_buf_putc(struct hr_buf *b, char c) {
    hr_buf_append(b, &c, 1);
}

void hr_buf_vprintf(struct hr_buf *b, const char *fmt, va_list ap) {
    va_list ap2;
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap2);
    va_end(ap2);
    if (n < 0) return;
    hr_buf_reserve(b, (size_t)n + 1);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    b->len += (size_t)n;
}

void hr_buf_printf(struct hr_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hr_buf_vprintf(b, fmt, ap);
    va_end(ap);
}

const char *hr_buf_cstr(struct hr_buf *b) {
    hr_buf_reserve(b, 1);
    b->data[b->len] = 0;
    return b->data;
}

void hr_buf_json_str(struct hr_buf *b, const char *s, size_t len) {
    static const char short_form[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't',
    };
    hr_buf_putc(b, '"');
    size_t begin = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        hr_buf_append(b, s + begin, i - begin);
        begin = i + 1;
        if (c == '"' || c == '\\') {
            hr_buf_putc(b, '\\');
            hr_buf_putc(b, (char)c);
        } else if (short_form[c]) {
            hr_buf_putc(b, '\\');
            hr_buf_putc(b, short_form[c]);
        } else {
            hr_buf_printf(b, "\\u%04x", c);
        }
    }
    hr_buf_append(b, s + begin, len - begin);
    hr_buf_putc(b, '"');
}

void hr_ids_finish(struct hr_ids *v) {
    free(v->data);
    *v = (struct hr_ids){0};
}

void hr_ids_append(struct hr_ids *v, const int32_t *ids, size_t n) {
    if (n == 0) return;
    if (v->cap - v->len < n) {
        size_t cap = v->cap ? v->cap : 32;
        while (cap - v->len < n) cap *= 2;
        v->data = hr_xrealloc(v->data, cap * sizeof *v->data);
        v->cap = cap;
    }
    memcpy(v->data + v->len, ids, n * sizeof *ids);
    v->len += n;
}

void hr_ids_push(struct hr_ids *v, int32_t id) {
    hr_ids_append(v, &id, 1);
}

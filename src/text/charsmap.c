/* SPDX-License-Identifier: Apache-2.0
 *
 * charsmap: the trie of darts-clone and the walk over a text.
 *
 * A unit of the trie: bit 31 a value's, bits 10-30 the offset of its children (bit 9: shifted left
 * by 8), bit 8 "a key ends here", bits 0-7 the byte that leads here. A file may point anywhere, so
 * each step is checked against the end; a table without a way from the root replaces nothing. */
#include "text/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/jscan.h"
#include "text/uniclass.h"

enum { CLUSTER_MAX = 6 }; /* the reference's: longer clusters are never replaced as a whole */

struct hr_charsmap {
    uint32_t *units; /* owned */
    size_t n_units;
    char *strings; /* owned, ends in NUL */
    size_t n_strings;
    bool ascii_plain[128]; /* not a key, and with an ASCII character after it a cluster by itself */
};

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200u) >> 6);
}

/* The replacement of the shortest key that s begins with; NULL when there is none. */
static const char *find(const struct hr_charsmap *m, const char *s, size_t len) {
    size_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < len && s[i]; i++) {
        at ^= (unsigned char)s[i];
        if (at >= m->n_units) return NULL;
        uint32_t unit = m->units[at];
        if ((unit & (0x80000000u | 0xffu)) != (unsigned char)s[i]) return NULL;
        at ^= offset_of(unit);
        if (!(unit & 0x100u)) continue;
        size_t value = at < m->n_units ? m->units[at] & 0x7fffffffu : SIZE_MAX;
        bool good = value < m->n_strings && ((unsigned char)m->strings[value] & 0xc0) != 0x80;
        return good ? m->strings + value : NULL;
    }
    return NULL;
}

enum hr_status hr_charsmap_create(const uint8_t *bytes, size_t len, struct hr_charsmap **out,
                                  struct hr_err *err) {
    size_t bad, n_trie = len >= 4 ? get_u32(bytes) : 0;
    if (n_trie < 4 || n_trie % 4 != 0 || n_trie > len - 4) {
        return hr_err_set(err, HR_ERR_FORMAT, "the character map's trie of %zu bytes is cut",
                          n_trie);
    }
    const char *strings = (const char *)bytes + 4 + n_trie;
    struct hr_charsmap *m = hr_xcalloc(1, sizeof *m);
    m->n_units = n_trie / 4;
    m->units = hr_xmalloc(n_trie);
    for (size_t i = 0; i < m->n_units; i++) m->units[i] = get_u32(bytes + 4 + 4 * i);
    m->n_strings = len - 4 - n_trie;
    m->strings = hr_xstrndup(strings, m->n_strings);
    if (!hr_utf8_valid(strings, m->n_strings, &bad)) {
        hr_charsmap_destroy(&m);
        return hr_err_set(err, HR_ERR_FORMAT, "the character map's strings are not UTF-8");
    }
    for (int i = 0; i < 128; i++) {
        char c = (char)i;
        m->ascii_plain[i] = c != '\r' && !find(m, &c, 1);
    }
    *out = m;
    return HR_OK;
}

void hr_charsmap_destroy(struct hr_charsmap **m) {
    if (!*m) return;
    free((*m)->units);
    free((*m)->strings);
    free(*m);
    *m = NULL;
}

static void put(const char *s, size_t len, const uint8_t *mark, size_t n_old, struct hr_buf *out,
                struct hr_buf *out_mark) {
    hr_buf_append(out, s, len);
    if (!mark) return;
    char flag = memchr(mark, 1, n_old) != NULL;
    for (size_t i = 0; i < len; i++) hr_buf_putc(out_mark, flag);
}

void hr_charsmap_run(const struct hr_charsmap *m, const char *s, size_t len, const uint8_t *mark,
                     struct hr_buf *out, struct hr_buf *out_mark) {
    size_t end;
    for (size_t i = 0; i < len; i = end) {
        const char *to;
        unsigned char c = (unsigned char)s[i];
        end = i + 1;
        if (c < 0x80 && m->ascii_plain[c] && (end == len || (unsigned char)s[end] < 0x80)) {
            put(s + i, 1, mark ? mark + i : NULL, 1, out, out_mark);
            continue;
        }
        end = hr_uni_cluster_end(s, len, i);
        if (end - i < CLUSTER_MAX && (to = find(m, s + i, end - i))) {
            put(to, strlen(to), mark ? mark + i : NULL, end - i, out, out_mark);
            continue;
        }
        for (size_t k = i; k < end;) {
            int n;
            hr_utf8_get(s + k, &n);
            size_t n_char = (size_t)n;
            to = find(m, s + k, n_char);
            put(to ? to : s + k, to ? strlen(to) : n_char, mark ? mark + k : NULL, n_char, out,
                out_mark);
            k += n_char;
        }
    }
}

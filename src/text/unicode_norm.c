/* SPDX-License-Identifier: Apache-2.0
 *
 * unicode_norm: the normal forms NFC, NFD, NFKC, NFKD.
 *
 * Decompose fully, put combining marks in the order of their classes (stable), and for the C forms
 * compose each mark with the last starter unless something blocks it; Hangul by arithmetic. Source:
 * Unicode Standard Annex 15 and the Core Specification, sections 3.11 and 3.12. Works on one run of
 * code points in memory: a text is a prompt, bounded by the row limit. */
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7 };
enum {
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    N_COUNT = V_COUNT * T_COUNT,
    S_COUNT = L_COUNT * N_COUNT
};

struct cell {
    uint32_t cp;
    uint8_t ccc, mark;
};
struct cells {
    struct cell *data;
    size_t len, cap;
};

static uint8_t combining_class(uint32_t cp) {
    int lo = 0, hi = hr_uni_n_ccc;
    if (cp < 0x300 || !(hr_uni_props(cp) & HR_UNI_NFC)) return 0;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (cp > hr_uni_ccc[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < hr_uni_n_ccc && cp >= hr_uni_ccc[lo].first ? hr_uni_ccc[lo].ccc : 0;
}

static const struct hr_uni_map *find_map(const struct hr_uni_map *table, int n, uint32_t cp) {
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (table[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && table[lo].cp == cp ? &table[lo] : NULL;
}

static uint32_t compose_pair(uint32_t a, uint32_t b) {
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT) {
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    }
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1) {
        return a + (b - T_BASE);
    }
    int lo = 0, hi = hr_uni_n_comp;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        const struct hr_uni_comp *c = &hr_uni_comp[mid];
        if (c->a < a || (c->a == a && c->b < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == hr_uni_n_comp || hr_uni_comp[lo].a != a || hr_uni_comp[lo].b != b) return 0;
    return hr_uni_comp[lo].composed;
}

static void push(struct cells *v, uint32_t cp, uint8_t mark) {
    if (v->len == v->cap) {
        v->cap = v->cap ? v->cap * 2 : 256;
        v->data = hr_xrealloc(v->data, v->cap * sizeof *v->data);
    }
    v->data[v->len++] = (struct cell){cp, combining_class(cp), mark};
}

/* Sorts a run of combining marks by class, stably. Runs are short in real text; a counting sort
 * keeps a hostile one (a row of nothing but marks) linear. */
static void order_run(struct cell *run, size_t n) {
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            struct cell c = run[i];
            size_t k = i;
            for (; k > 0 && run[k - 1].ccc > c.ccc; k--) run[k] = run[k - 1];
            run[k] = c;
        }
        return;
    }
    size_t place[257] = {0};
    struct cell *sorted = hr_xmalloc(n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) place[run[i].ccc + 1]++;
    for (int k = 0; k < 256; k++) place[k + 1] += place[k];
    for (size_t i = 0; i < n; i++) sorted[place[run[i].ccc]++] = run[i];
    memcpy(run, sorted, n * sizeof *run);
    free(sorted);
}

static void order_marks(struct cells *v) {
    for (size_t i = 0, end; i < v->len; i = end + 1) {
        for (end = i; end < v->len && v->data[end].ccc; end++) {
        }
        order_run(v->data + i, end - i);
    }
}

static void decompose(struct cells *v, uint32_t cp, bool compat, uint8_t mark) {
    if (cp < 0xa0) {
        push(v, cp, mark);
        return;
    }
    if (cp - S_BASE < S_COUNT) {
        uint32_t s = cp - S_BASE;
        push(v, L_BASE + s / N_COUNT, mark);
        push(v, V_BASE + s % N_COUNT / T_COUNT, mark);
        if (s % T_COUNT) push(v, T_BASE + s % T_COUNT, mark);
        return;
    }
    const uint32_t *pool = hr_uni_kompat_pool;
    const struct hr_uni_map *m = compat ? find_map(hr_uni_kompat, hr_uni_n_kompat, cp) : NULL;
    if (!m) {
        m = find_map(hr_uni_decomp, hr_uni_n_decomp, cp);
        pool = hr_uni_decomp_pool;
    }
    if (!m) {
        push(v, cp, mark);
        return;
    }
    for (int i = 0; i < m->n; i++) push(v, pool[m->start + i], mark);
}

static void compose(struct cells *v) {
    size_t starter = SIZE_MAX, n = 0;
    for (size_t i = 0; i < v->len; i++) {
        struct cell c = v->data[i];
        /* What was kept between the starter and here: blocked when it has the same or a higher
         * class. */
        bool adjacent = starter != SIZE_MAX && n == starter + 1;
        bool free_way = starter != SIZE_MAX &&
                        (adjacent || (c.ccc && v->data[n - 1].ccc && v->data[n - 1].ccc < c.ccc));
        uint32_t made = free_way ? compose_pair(v->data[starter].cp, c.cp) : 0;
        if (made) {
            v->data[starter].cp = made;
            v->data[starter].mark |= c.mark;
            continue;
        }
        if (c.ccc == 0) starter = n;
        v->data[n++] = c;
    }
    v->len = n;
}

bool hr_uni_is_nfc(const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        if ((unsigned char)s[i] < 0xcc) { /* below U+0300 nothing composes, reorders or changes */
            i += (unsigned char)s[i] < 0x80 ? 1 : 2;
            continue;
        }
        int n;
        if (hr_uni_props(hr_utf8_get(s + i, &n)) & HR_UNI_NFC) return false;
        i += (size_t)n;
    }
    return true;
}

void hr_uni_normalize(enum hr_uni_form form, const char *s, size_t len, const uint8_t *mark,
                      struct hr_buf *out, struct hr_buf *out_mark) {
    if (form == HR_NFC && hr_uni_is_nfc(s, len)) {
        hr_buf_append(out, s, len);
        if (mark) hr_buf_append(out_mark, mark, len);
        return;
    }
    struct cells v = {0};
    for (size_t i = 0; i < len;) {
        int n;
        uint32_t cp = hr_utf8_get(s + i, &n);
        decompose(&v, cp, form == HR_NFKC || form == HR_NFKD, mark ? mark[i] : 0);
        i += (size_t)n;
    }
    order_marks(&v);
    if (form == HR_NFC || form == HR_NFKC) compose(&v);
    for (size_t i = 0; i < v.len; i++) {
        char b[4], m[4] = {(char)v.data[i].mark, (char)v.data[i].mark, (char)v.data[i].mark,
                           (char)v.data[i].mark};
        int n = hr_utf8_put(v.data[i].cp, b);
        hr_buf_append(out, b, (size_t)n);
        if (mark) hr_buf_append(out_mark, m, (size_t)n);
    }
    free(v.data);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_uni: characters as Python's str sees them: properties, and case mapping with the mappings
 * that grow (sharp s, ligatures). Tables: jinja_unidata.h.
 *
 * Text is valid UTF-8 (checked where it enters), so decoding does not check again; it only never
 * reads past the end. */
#include "text/jinja_int.h"

struct case_run { /* first..last by stride map to themselves + delta */
    uint32_t first, last, stride;
    int32_t delta;
};
struct case_full {
    uint32_t c, to[3]; /* zero ends a shorter one */
};

#include "text/jinja_unidata.h"

uint32_t jj_decode(const char *p, const char *end, size_t *n) {
    const unsigned char *s = (const unsigned char *)p;
    size_t want = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (want > (size_t)(end - p)) want = 1;
    *n = want;
    if (want == 1) return s[0];
    if (want == 2) return (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
    if (want == 3)
        return (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
    return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
           (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
}

size_t jj_encode(uint32_t c, char out[4]) {
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

static bool in_ranges(const uint32_t (*t)[2], size_t n, uint32_t c) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c < t[mid][0]) {
            hi = mid;
        } else if (c > t[mid][1]) {
            lo = mid + 1;
        } else {
            return true;
        }
    }
    return false;
}
#define IN(table, c) in_ranges(table, sizeof table / sizeof *table, c)

bool jj_is_space(uint32_t c) {
    return IN(space_ranges, c);
}
bool jj_is_printable(uint32_t c) {
    return IN(printable_ranges, c);
}
bool jj_is_alpha(uint32_t c) {
    return IN(alpha_ranges, c);
}
bool jj_is_decimal(uint32_t c) {
    return IN(decimal_ranges, c);
}
bool jj_is_digit(uint32_t c) {
    return IN(digit_ranges, c);
}
bool jj_is_numeric(uint32_t c) {
    return IN(numeric_ranges, c);
}
bool jj_is_upper(uint32_t c) {
    return IN(upper_ranges, c);
}
bool jj_is_lower(uint32_t c) {
    return IN(lower_ranges, c);
}
bool jj_is_cased(uint32_t c) {
    return jj_is_upper(c) || jj_is_lower(c) || IN(title_ranges, c);
}

struct case_table {
    const struct case_run *runs;
    size_t n_runs;
    const struct case_full *full;
    size_t n_full;
};
#define TABLE(x)                                                                                   \
    { x##_runs, sizeof x##_runs / sizeof *x##_runs, x##_full, sizeof x##_full / sizeof *x##_full }
static const struct case_table tables[] = {
    [JJ_TO_UPPER] = TABLE(upper),
    [JJ_TO_LOWER] = TABLE(lower),
    [JJ_TO_TITLE] = TABLE(title),
    [JJ_TO_FOLD] = TABLE(fold),
};

int jj_map_case(uint32_t c, enum jj_case how, uint32_t out[3]) {
    const struct case_table *t = &tables[how];
    for (size_t i = 0; c >= 0x80 && i < t->n_full; i++) {
        if (t->full[i].c != c) continue;
        int n = 0;
        while (n < 3 && t->full[i].to[n]) {
            out[n] = t->full[i].to[n];
            n++;
        }
        return n;
    }
    out[0] = c;
    size_t lo = 0, hi = t->n_runs;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct case_run *run = &t->runs[mid];
        if (c < run->first) {
            hi = mid;
        } else if (c > run->last) {
            lo = mid + 1;
        } else {
            if ((c - run->first) % run->stride == 0) out[0] = (uint32_t)((int64_t)c + run->delta);
            break;
        }
    }
    return 1;
}

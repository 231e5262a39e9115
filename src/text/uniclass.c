/* SPDX-License-Identifier: Apache-2.0
 *
 * uniclass: the searches, and the rules of cluster breaks. Their state is the class of the last
 * character and whether a pictograph stands before it with nothing but marks between. */
#include "text/uniclass.h"

struct lower_run { /* first, first + step, ... last map to themselves + delta */
    uint32_t first, last, step;
    int32_t delta;
};

#include "text/uniclass_tables.h"

static bool in_ranges(const struct hr_uni_range *t, size_t n, uint32_t cp) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > t[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= t[lo].first;
}
#define IN(table, cp) in_ranges(table, sizeof(table) / sizeof *(table), cp)

bool hr_uni_is_rust_word(uint32_t cp) {
    if (cp < 0x80) return (cp >= '0' && cp <= '9') || cp == '_' || ((cp | 32) - 'a') < 26u;
    return IN(word_ranges, cp);
}

bool hr_uni_is_accent(uint32_t cp) {
    return cp >= 0x300 && IN(accent_ranges, cp);
}

int hr_uni_lower(uint32_t cp, uint32_t out[2]) {
    size_t lo = 0, hi = sizeof lower_runs / sizeof *lower_runs;
    out[0] = cp;
    if (cp == 0x130) { /* the only one that grows */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > lower_runs[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == sizeof lower_runs / sizeof *lower_runs) return 1;
    const struct lower_run *r = &lower_runs[lo];
    if (cp >= r->first && (cp - r->first) % r->step == 0) {
        out[0] = (uint32_t)((int64_t)cp + r->delta);
    }
    return 1;
}

enum cluster { OTHER, CONTROL, CR, LF, ATTACHED, ZWJ, PREPEND, PICTOGRAPH, L, V, T, LV, LVT };

static enum cluster cluster_of(uint32_t cp) {
    if (cp == '\r') return CR;
    if (cp == '\n') return LF;
    if (cp == 0x200d) return ZWJ;
    if ((cp >= 0x1100 && cp < 0x1160) || (cp >= 0xa960 && cp < 0xa97d)) return L;
    if ((cp >= 0x1160 && cp < 0x11a8) || (cp >= 0xd7b0 && cp < 0xd7c7)) return V;
    if ((cp >= 0x11a8 && cp < 0x1200) || (cp >= 0xd7cb && cp < 0xd7fc)) return T;
    if (cp >= 0xac00 && cp < 0xd7a4) return (cp - 0xac00) % 28 == 0 ? LV : LVT;
    if (IN(attached_ranges, cp)) return ATTACHED;
    if (cp == 0 || IN(control_ranges, cp)) return CONTROL;
    if (IN(prepend_ranges, cp)) return PREPEND;
    return IN(pictograph_ranges, cp) ? PICTOGRAPH : OTHER;
}

/* Does b stay with a? after_pictograph: a is a joiner, and a pictograph stands before it. */
static bool stays(enum cluster a, enum cluster b, bool after_pictograph) {
    if (a == CR && b == LF) return true;
    if (a == CR || a == LF || a == CONTROL || b == CR || b == LF || b == CONTROL) return false;
    if (b == ATTACHED || b == ZWJ || a == PREPEND) return true;
    if (a == L) return b == L || b == V || b == LV || b == LVT;
    if (a == V || a == LV) return b == V || b == T;
    if (a == T || a == LVT) return b == T;
    return a == ZWJ && after_pictograph && b == PICTOGRAPH;
}

size_t hr_uni_cluster_end(const char *s, size_t len, size_t pos) {
    size_t i = pos;
    bool pictograph = false;
    enum cluster last = OTHER;
    while (i < len) {
        int n;
        enum cluster c = cluster_of(hr_utf8_get(s + i, &n));
        if (i > pos && !stays(last, c, pictograph)) break;
        pictograph = c == PICTOGRAPH || (pictograph && (c == ATTACHED || c == ZWJ));
        i += (size_t)n;
        last = c;
    }
    return i;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * unicode: properties of code points and UTF-8. The tables are generated; the few questions that
 * are asked too seldom for a flag of their own are answered by searching. The definition of a
 * broken character is the one of the Unicode Standard, section 3.9, table 3-7, which Rust's
 * from_utf8_lossy (and so the reference tokenizer's decoder) follows too. */
#include "text/unicode.h"

bool hr_uni_is_punct(uint32_t cp) {
    if (cp < 0x80)
        return cp > ' ' && cp < 0x7f && !hr_cat_is_letter(hr_uni_cat(cp)) &&
               !hr_cat_is_number(hr_uni_cat(cp));
    return hr_uni_props(cp) & HR_UNI_PUNCT;
}

bool hr_uni_is_word(uint32_t cp) {
    enum hr_ucat c = hr_uni_cat(cp);
    return hr_cat_is_letter(c) || hr_cat_is_mark(c) || hr_cat_is_number(c) || c == HR_PC;
}

bool hr_uni_is_han(uint32_t cp) {
    int lo = 0, hi = hr_uni_n_han;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (cp > hr_uni_han[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < hr_uni_n_han && cp >= hr_uni_han[lo].first;
}

int hr_utf8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

/* What a lead byte asks for: the number of bytes and the bounds of the second one. */
static int lead(uint8_t b, uint8_t *lo, uint8_t *hi) {
    *lo = 0x80;
    *hi = 0xbf;
    if (b < 0x80) return 1;
    if (b < 0xc2) return 0;
    if (b < 0xe0) return 2;
    if (b < 0xf0) {
        if (b == 0xe0) *lo = 0xa0;
        if (b == 0xed) *hi = 0x9f;
        return 3;
    }
    if (b > 0xf4) return 0;
    if (b == 0xf0) *lo = 0x90;
    if (b == 0xf4) *hi = 0x8f;
    return 4;
}

int hr_utf8_scan(const uint8_t *s, size_t n, bool *valid, bool *more) {
    uint8_t lo, hi;
    int need = lead(s[0], &lo, &hi);
    *valid = need == 1;
    *more = false;
    if (need <= 1) return 1;
    for (int i = 1; i < need; i++) {
        if ((size_t)i == n) {
            *more = true;
            return i;
        }
        if (s[i] < lo || s[i] > hi) return i;
        lo = 0x80;
        hi = 0xbf;
    }
    *valid = true;
    return need;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * unicode: code points, their properties and the normal forms, as the reference tokenizers see
 * them.
 *
 * Text here is valid UTF-8 (its reader has checked it), so decoding does not check again. Which
 * version of Unicode each question is answered with is told in scripts/gen-unicode.py: it follows
 * Hugging Face tokenizers, because a script newer than its tables splits differently there. */
#ifndef HR_TEXT_UNICODE_H
#define HR_TEXT_UNICODE_H

#include <stdbool.h>

#include "base/buf.h"
#include "text/unicode_tables.h"

enum hr_ucat { /* the order of the generated table */
               HR_CN,
               HR_LU,
               HR_LL,
               HR_LT,
               HR_LM,
               HR_LO,
               HR_MN,
               HR_MC,
               HR_ME,
               HR_ND,
               HR_NL,
               HR_NO,
               HR_PC,
               HR_PD,
               HR_PS,
               HR_PE,
               HR_PI,
               HR_PF,
               HR_PO,
               HR_SM,
               HR_SC,
               HR_SK,
               HR_SO,
               HR_ZS,
               HR_ZL,
               HR_ZP,
               HR_CC,
               HR_CF,
               HR_CO,
               HR_CS,
};
#define HR_UNI_NFC     0x20u /* may take part in a canonical composition or reordering */
#define HR_UNI_PUNCT   0x40u /* what the Punctuation pre-tokenizer takes, ASCII symbols apart */
#define HR_UNI_NUMERIC 0x80u /* what the Digits pre-tokenizer takes */

static inline uint8_t hr_uni_props(uint32_t cp) {
    return hr_uni_block[hr_uni_index[cp >> 7] * 128u + (cp & 127u)];
}

static inline enum hr_ucat hr_uni_cat(uint32_t cp) {
    return (enum hr_ucat)(hr_uni_props(cp) & 0x1fu);
}

/* White_Space: the separators and six controls. */
static inline bool hr_uni_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13);
    enum hr_ucat c = hr_uni_cat(cp);
    return cp == 0x85 || (c >= HR_ZS && c <= HR_ZP);
}

static inline bool hr_cat_is_letter(enum hr_ucat c) {
    return c >= HR_LU && c <= HR_LO;
}
static inline bool hr_cat_is_mark(enum hr_ucat c) {
    return c >= HR_MN && c <= HR_ME;
}
static inline bool hr_cat_is_number(enum hr_ucat c) {
    return c >= HR_ND && c <= HR_NO;
}

bool hr_uni_is_punct(uint32_t cp); /* as the Punctuation pre-tokenizer */
bool hr_uni_is_word(uint32_t cp);  /* \w: letters, marks, numbers, connectors */
bool hr_uni_is_han(uint32_t cp);

/* Decodes the character at s (valid UTF-8) and sets its length. */
static inline uint32_t hr_utf8_get(const char *s, int *len) {
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) {
        *len = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *len = 2;
        return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if (p[0] < 0xf0) {
        *len = 3;
        return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *len = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
           (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* Writes cp as UTF-8 and returns the number of bytes. */
int hr_utf8_put(uint32_t cp, char out[4]);

/* The length of the character that begins at s, or of the maximal invalid prefix that a decoder
 * replaces by one U+FFFD (Unicode 3.9, "maximal subpart"). *valid tells which. *more: the bytes end
 * inside a character that could still become valid. n > 0. */
int hr_utf8_scan(const uint8_t *s, size_t n, bool *valid, bool *more);

enum hr_uni_form { HR_NFC, HR_NFD, HR_NFKC, HR_NFKD };

/* Is the text surely in NFC already? (false: perhaps not) */
bool hr_uni_is_nfc(const char *s, size_t len);

/* Appends the normal form of text to out. mark, NULL or [len]: a flag a byte, carried to out_mark:
 * a character of the result is marked when any character that it was made of was. */
void hr_uni_normalize(enum hr_uni_form form, const char *s, size_t len, const uint8_t *mark,
                      struct hr_buf *out, struct hr_buf *out_mark);

#endif

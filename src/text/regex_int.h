/* SPDX-License-Identifier: Apache-2.0
 *
 * regex_int: the compiled form, shared by the compiler (regex.c) and the matcher (regex_match.c).
 */
#ifndef HR_TEXT_REGEX_INT_H
#define HR_TEXT_REGEX_INT_H

#include "text/regex.h"

/* One bit a code point: 136 KiB, but a text touches few of its lines, and set algebra is trivial.
 */
#define HR_RX_WORDS (0x110000 / 64)

struct hr_rx_set {
    uint64_t bits[HR_RX_WORDS];
};

enum hr_rx_op {
    HR_RX_CHAR,   /* one of cp[0..2] */
    HR_RX_SET,    /* one of set */
    HR_RX_LOOP,   /* set (or CHAR, set < 0) min..max times, by `mode` */
    HR_RX_SPLIT,  /* try x, then y */
    HR_RX_JUMP,   /* x */
    HR_RX_LOOK,   /* the code after it, up to its MATCH, at this place; go on at x; y: negated */
    HR_RX_BEHIND, /* the character before is one of set or cp; y: negated */
    HR_RX_ATOMIC, /* the code after it, once and for all; go on at x */
    HR_RX_LINE_BEGIN,
    HR_RX_LINE_END,
    HR_RX_TEXT_BEGIN,
    HR_RX_TEXT_END,
    HR_RX_TEXT_END_NL, /* the end, or before a last newline */
    HR_RX_WORD_EDGE,   /* y: negated */
    HR_RX_MATCH,
};

enum hr_rx_mode { HR_RX_GREEDY, HR_RX_LAZY, HR_RX_POSSESSIVE };

struct hr_rx_inst {
    uint8_t op, mode;
    int16_t set;
    uint32_t cp[3]; /* unused ones repeat cp[0] */
    int x, y;
    uint32_t min, max; /* LOOP; UINT32_MAX: no upper bound */
};

struct hr_regex {
    struct hr_rx_inst *code; /* owned, n_code */
    int n_code, cap_code;
    struct hr_rx_set **sets; /* owned, n_sets */
    int n_sets, cap_sets;
    struct hr_rx_set *first; /* owned: where a match can begin; NULL: anywhere */
};

static inline bool hr_rx_has(const struct hr_rx_set *s, uint32_t cp) {
    return s->bits[cp >> 6] >> (cp & 63) & 1;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * unicode_tables: the shape of the generated tables; only unicode.c and unicode_norm.c read them.
 *
 * A code point's property byte is hr_uni_block[hr_uni_index[cp >> 7] * 128 + (cp & 127)]: the
 * general category in the low five bits (enum hr_ucat) and three flags above. Sorted arrays hold
 * the rest. */
#ifndef HR_TEXT_UNICODE_TABLES_H
#define HR_TEXT_UNICODE_TABLES_H

#include <stdint.h>

struct hr_uni_ccc {
    uint32_t first, last;
    uint8_t ccc;
};
struct hr_uni_map { /* cp becomes n code points of the pool, from `start` */
    uint32_t cp;
    uint16_t start, n;
};
struct hr_uni_comp {
    uint32_t a, b, composed;
};
struct hr_uni_range {
    uint32_t first, last;
};

extern const uint16_t hr_uni_index[];
extern const uint8_t hr_uni_block[];
extern const int hr_uni_n_ccc, hr_uni_n_decomp, hr_uni_n_kompat, hr_uni_n_comp, hr_uni_n_han;
extern const struct hr_uni_ccc hr_uni_ccc[];
extern const struct hr_uni_map hr_uni_decomp[], hr_uni_kompat[];
extern const uint32_t hr_uni_decomp_pool[], hr_uni_kompat_pool[];
extern const struct hr_uni_comp hr_uni_comp[];
extern const struct hr_uni_range hr_uni_han[];

#endif

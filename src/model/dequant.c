/* SPDX-License-Identifier: Apache-2.0
 *
 * dequant: block formats to f32.
 *
 * Written to be read beside the definitions, and in the same order of f32 operations, so that the
 * results equal the reference's bit for bit. A block is one scale d (and sometimes a minimum m) in
 * f16 and small unsigned integers q:
 *
 *     Q8_0  d, 32 x int8                        x = d * q
 *     Q4_0  d, 32 x 4 bit                       x = d * (q - 8)
 *     Q4_1  d, m, 32 x 4 bit                    x = d * q + m
 *     Q5_0  d, 32 high bits, 32 x 4 bit         x = d * (q - 16)
 *     Q5_1  d, m, 32 high bits, 32 x 4 bit      x = d * q + m
 *     Q4_K  d, dmin, 8 x (6 bit scale, 6 bit min), 256 x 4 bit          x = d*sc * q - dmin*mn
 *     Q5_K  the same with 256 high bits                                 x = d*sc * q - dmin*mn
 *     Q6_K  256 x 4 low bits, 256 x 2 high bits, 16 x int8 scale, d     x = d*sc * (q - 32)
 *
 * Two 4-bit numbers of a byte are half a (sub-)block apart, the low nibble first.
 * Source: ggml-quants.c and gguf-py/gguf/quants.py of ggml-org/llama.cpp. */
#include "model/dequant.h"

#include <string.h>

#include "base/assert.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "weight files are little endian");

const struct hr_quant_info hr_quant_info[HR_QUANT_N] = {
    [HR_QUANT_F32] = {"F32", 1, 4, 0},        [HR_QUANT_F16] = {"F16", 1, 2, 1},
    [HR_QUANT_BF16] = {"BF16", 1, 2, 30},     [HR_QUANT_Q8_0] = {"Q8_0", 32, 34, 8},
    [HR_QUANT_Q4_0] = {"Q4_0", 32, 18, 2},    [HR_QUANT_Q4_1] = {"Q4_1", 32, 20, 3},
    [HR_QUANT_Q5_0] = {"Q5_0", 32, 22, 6},    [HR_QUANT_Q5_1] = {"Q5_1", 32, 24, 7},
    [HR_QUANT_Q4_K] = {"Q4_K", 256, 144, 12}, [HR_QUANT_Q5_K] = {"Q5_K", 256, 176, 13},
    [HR_QUANT_Q6_K] = {"Q6_K", 256, 210, 14},
};

static float bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* IEEE 754 binary16. Its subnormals are normal in f32: m * 2^-24 is exact. */
static float f16(const uint8_t *p) {
    uint32_t h = p[0] | (uint32_t)p[1] << 8;
    uint32_t sign = (h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff;
    if (exp == 31) return bits_f32(sign | 0x7f800000 | man << 13);
    if (exp > 0) return bits_f32(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f;
    return sign ? -f : f;
}

static uint32_t u32(const uint8_t *p) {
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static void f32_rows(const uint8_t *src, int64_t n, float *dst) {
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void f16_rows(const uint8_t *src, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++) dst[i] = f16(src + 2 * i);
}

static void bf16_rows(const uint8_t *src, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++)
        dst[i] = bits_f32((uint32_t)src[2 * i] << 16 | (uint32_t)src[2 * i + 1] << 24);
}

static void q8_0_block(const uint8_t *b, float *y) {
    float d = f16(b);
    for (int i = 0; i < 32; i++) y[i] = (float)(int8_t)b[2 + i] * d;
}

static void q4_0_block(const uint8_t *b, float *y) {
    float d = f16(b);
    const uint8_t *q = b + 2;
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((q[i] & 15) - 8);
        y[i + 16] = d * (float)((q[i] >> 4) - 8);
    }
}

static void q4_1_block(const uint8_t *b, float *y) {
    float d = f16(b), m = f16(b + 2);
    const uint8_t *q = b + 4;
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(q[i] & 15) + m;
        y[i + 16] = d * (float)(q[i] >> 4) + m;
    }
}

static void q5_0_block(const uint8_t *b, float *y) {
    float d = f16(b);
    uint32_t high = u32(b + 2);
    const uint8_t *q = b + 6;
    for (int i = 0; i < 16; i++) {
        int lo = (q[i] & 15) | (int)(high >> i & 1) << 4;
        int hi = (q[i] >> 4) | (int)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)(lo - 16);
        y[i + 16] = d * (float)(hi - 16);
    }
}

static void q5_1_block(const uint8_t *b, float *y) {
    float d = f16(b), m = f16(b + 2);
    uint32_t high = u32(b + 4);
    const uint8_t *q = b + 8;
    for (int i = 0; i < 16; i++) {
        int lo = (q[i] & 15) | (int)(high >> i & 1) << 4;
        int hi = (q[i] >> 4) | (int)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)lo + m;
        y[i + 16] = d * (float)hi + m;
    }
}

/* Sub-block j's 6-bit scale and minimum out of the 12 packed bytes of Q4_K and Q5_K: the first four
 * lie in the low 6 bits of bytes 0-3 and 4-7; of the others the low nibbles are in bytes 8-11 and
 * the two high bits on top of the first four. */
static void k_scale_min(const uint8_t *s, int j, float *scale, float *min) {
    if (j < 4) {
        *scale = (float)(s[j] & 63);
        *min = (float)(s[j + 4] & 63);
    } else {
        *scale = (float)((s[j + 4] & 15) | s[j - 4] >> 6 << 4);
        *min = (float)(s[j + 4] >> 4 | s[j] >> 6 << 4);
    }
}

static void q4_k_block(const uint8_t *b, float *y) {
    float d = f16(b), dmin = f16(b + 2);
    const uint8_t *q = b + 16;
    for (int j = 0; j < 8; j++) {
        float scale, min;
        k_scale_min(b + 4, j, &scale, &min);
        float ds = d * scale, dm = dmin * min;
        for (int i = 0; i < 32; i++) {
            int v = j % 2 ? q[j / 2 * 32 + i] >> 4 : q[j / 2 * 32 + i] & 15;
            y[j * 32 + i] = ds * (float)v - dm;
        }
    }
}

static void q5_k_block(const uint8_t *b, float *y) {
    float d = f16(b), dmin = f16(b + 2);
    const uint8_t *high = b + 16, *q = b + 48;
    for (int j = 0; j < 8; j++) {
        float scale, min;
        k_scale_min(b + 4, j, &scale, &min);
        float ds = d * scale, dm = dmin * min;
        for (int i = 0; i < 32; i++) {
            int v = j % 2 ? q[j / 2 * 32 + i] >> 4 : q[j / 2 * 32 + i] & 15;
            v |= (high[i] >> j & 1) << 4;
            y[j * 32 + i] = ds * (float)v - dm;
        }
    }
}

static void q6_k_block(const uint8_t *b, float *y) {
    const uint8_t *low = b, *high = b + 128;
    const int8_t *scale = (const int8_t *)(b + 192);
    float d = f16(b + 208);
    for (int i = 0; i < 256; i++) {
        /* Two halves of 128: in each, 64 bytes of low nibbles serve four groups of 32, and 32 bytes
         * of high bits all four of them. */
        int half = i / 128, group = i % 128 / 32, lane = i % 32;
        uint8_t lo = low[half * 64 + group % 2 * 32 + lane];
        int v = group < 2 ? lo & 15 : lo >> 4;
        v |= (high[half * 32 + lane] >> (2 * group) & 3) << 4;
        y[i] = d * (float)scale[i / 16] * (float)(v - 32);
    }
}

void hr_dequant(enum hr_quant type, const uint8_t *src, int64_t n_elems, float *dst) {
    static void (*const block_fn[HR_QUANT_N])(const uint8_t *, float *) = {
        [HR_QUANT_Q8_0] = q8_0_block, [HR_QUANT_Q4_0] = q4_0_block, [HR_QUANT_Q4_1] = q4_1_block,
        [HR_QUANT_Q5_0] = q5_0_block, [HR_QUANT_Q5_1] = q5_1_block, [HR_QUANT_Q4_K] = q4_k_block,
        [HR_QUANT_Q5_K] = q5_k_block, [HR_QUANT_Q6_K] = q6_k_block,
    };
    HR_ASSERT(type < HR_QUANT_N && n_elems >= 0);
    const struct hr_quant_info *info = &hr_quant_info[type];
    HR_ASSERT(n_elems % info->block_elems == 0);
    if (type == HR_QUANT_F32) {
        f32_rows(src, n_elems, dst);
    } else if (type == HR_QUANT_F16) {
        f16_rows(src, n_elems, dst);
    } else if (type == HR_QUANT_BF16) {
        bf16_rows(src, n_elems, dst);
    } else {
        for (int64_t i = 0; i < n_elems / info->block_elems; i++)
            block_fn[type](src + i * info->block_bytes, dst + i * info->block_elems);
    }
}

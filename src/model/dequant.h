/* SPDX-License-Identifier: Apache-2.0
 *
 * dequant: the number formats of weight files, turned into f32 exactly as their definitions say.
 *
 * A row is a whole number of blocks; a block is block_elems numbers in block_bytes bytes, little
 * endian, without alignment. Nothing here knows about files or tensors. */
#ifndef HR_MODEL_DEQUANT_H
#define HR_MODEL_DEQUANT_H

#include <stddef.h>
#include <stdint.h>

enum hr_quant {
    HR_QUANT_F32,
    HR_QUANT_F16,
    HR_QUANT_BF16,
    HR_QUANT_Q8_0,
    HR_QUANT_Q4_0,
    HR_QUANT_Q4_1,
    HR_QUANT_Q5_0,
    HR_QUANT_Q5_1,
    HR_QUANT_Q4_K,
    HR_QUANT_Q5_K,
    HR_QUANT_Q6_K,
    HR_QUANT_N
};

struct hr_quant_info {
    const char *name; /* "Q4_K"; static */
    int block_elems, block_bytes;
    uint32_t ggml_type; /* the type's number in a GGUF file */
};
extern const struct hr_quant_info hr_quant_info[HR_QUANT_N];

#define HR_QUANT_NAMES "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K"

/* n_elems numbers (a multiple of block_elems, asserted) from src to dst, f32. Thread-safe. */
void hr_dequant(enum hr_quant type, const uint8_t *src, int64_t n_elems, float *dst);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * ref: the kernels in plain C, on any machine. They are the truth that the other tiers and backends
 * are tested against, so they are written to be read; the compiler may still put a panel's outputs
 * side by side in vector registers, which changes no bit. */
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/lanes.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a packed pair is read as one word");

/* The two neighbours of K in a packed lane; the even one comes first in memory. */
static float even_of(uint32_t pair) {
    return bits_f32(pair << 16);
}

static float odd_of(uint32_t pair) {
    return bits_f32(pair & 0xffff0000u);
}

/* y = acc (+ bias) (+ y) for one panel. */
static void finish_panel(float *y, const float *acc, const float *bias, bool accumulate) {
    for (int j = 0; j < HR_CPU_PANEL; j++) {
        float v = bias ? acc[j] + bias[j] : acc[j];
        y[j] = accumulate ? y[j] + v : v;
    }
}

static void gemm_bf16(float *y, size_t ldy, const hr_bf16 *x, size_t ldx, const hr_bf16 *w,
                      const float *bias, int n_rows, int n_panels, int k, bool accumulate) {
    int n_pairs = (k + 1) / 2;
    for (int p = 0; p < n_panels; p++, w += (size_t)n_pairs * 2 * HR_CPU_PANEL) {
        for (int r = 0; r < n_rows; r++) {
            float acc[HR_CPU_PANEL] = {0};
            const hr_bf16 *row = x + (size_t)r * ldx;
            for (int i = 0; i < n_pairs; i++) {
                float x0 = hr_cpu_from_bf16(row[2 * i]), x1 = hr_cpu_from_bf16(row[2 * i + 1]);
                uint32_t pairs[HR_CPU_PANEL];
                memcpy(pairs, w + (size_t)i * 2 * HR_CPU_PANEL, sizeof pairs);
                for (int j = 0; j < HR_CPU_PANEL; j++) {
                    acc[j] += x0 * even_of(pairs[j]);
                    acc[j] += x1 * odd_of(pairs[j]);
                }
            }
            finish_panel(y + (size_t)r * ldy + p * HR_CPU_PANEL, acc,
                         bias ? bias + p * HR_CPU_PANEL : NULL, accumulate);
        }
    }
}

static void gemm_f32(float *y, size_t ldy, const float *x, size_t ldx, const float *w,
                     const float *bias, int n_rows, int n_panels, int k, bool accumulate) {
    for (int p = 0; p < n_panels; p++, w += (size_t)k * HR_CPU_PANEL) {
        for (int r = 0; r < n_rows; r++) {
            float acc[HR_CPU_PANEL] = {0};
            const float *row = x + (size_t)r * ldx;
            for (int i = 0; i < k; i++)
                for (int j = 0; j < HR_CPU_PANEL; j++)
                    acc[j] += row[i] * w[(size_t)i * HR_CPU_PANEL + j];
            finish_panel(y + (size_t)r * ldy + p * HR_CPU_PANEL, acc,
                         bias ? bias + p * HR_CPU_PANEL : NULL, accumulate);
        }
    }
}

static void scores_bf16(float *s, const hr_bf16 *q, size_t ldq, int n_q,
                        const hr_bf16 *const *k_pages, int n_pages, int head_dim) {
    for (int i = 0; i < n_q; i++) {
        for (int p = 0; p < n_pages; p++) {
            float acc[HR_PAGE_TOKENS] = {0};
            for (int d = 0; d < head_dim; d += 2) {
                float q0 = hr_cpu_from_bf16(q[i * ldq + d]),
                      q1 = hr_cpu_from_bf16(q[i * ldq + d + 1]);
                uint32_t pairs[HR_PAGE_TOKENS];
                memcpy(pairs, k_pages[p] + d * HR_PAGE_TOKENS, sizeof pairs);
                for (int t = 0; t < HR_PAGE_TOKENS; t++) {
                    acc[t] += q0 * even_of(pairs[t]);
                    acc[t] += q1 * odd_of(pairs[t]);
                }
            }
            memcpy(s + i * HR_ATTN_SEGMENT + p * HR_PAGE_TOKENS, acc, sizeof acc);
        }
    }
}

static void scores_f32(float *s, const float *q, size_t ldq, int n_q, const float *const *k_pages,
                       int n_pages, int head_dim) {
    for (int i = 0; i < n_q; i++) {
        for (int p = 0; p < n_pages; p++) {
            float acc[HR_PAGE_TOKENS] = {0};
            for (int d = 0; d < head_dim; d++)
                for (int t = 0; t < HR_PAGE_TOKENS; t++)
                    acc[t] += q[i * ldq + d] * k_pages[p][d * HR_PAGE_TOKENS + t];
            memcpy(s + i * HR_ATTN_SEGMENT + p * HR_PAGE_TOKENS, acc, sizeof acc);
        }
    }
}

static void values_bf16(float *o, const float *p, int n_q, const hr_bf16 *const *v_pages, int t0,
                        int t1, int ldv) {
    for (int i = 0; i < n_q; i++) {
        for (int t = t0; t < t1; t++) {
            const hr_bf16 *v = v_pages[t / HR_PAGE_TOKENS] + t % HR_PAGE_TOKENS * ldv;
            float weight = p[i * HR_ATTN_SEGMENT + t];
            for (int d = 0; d < ldv; d++) o[i * ldv + d] += weight * hr_cpu_from_bf16(v[d]);
        }
    }
}

static void values_f32(float *o, const float *p, int n_q, const float *const *v_pages, int t0,
                       int t1, int ldv) {
    for (int i = 0; i < n_q; i++) {
        for (int t = t0; t < t1; t++) {
            const float *v = v_pages[t / HR_PAGE_TOKENS] + t % HR_PAGE_TOKENS * ldv;
            float weight = p[i * HR_ATTN_SEGMENT + t];
            for (int d = 0; d < ldv; d++) o[i * ldv + d] += weight * v[d];
        }
    }
}

void hr_cpu_init_ref(struct hr_cpu_kernels *k) {
    k->tier = "ref";
    k->gemm_bf16 = gemm_bf16;
    k->gemm_f32 = gemm_f32;
    k->scores_bf16 = scores_bf16;
    k->scores_f32 = scores_f32;
    k->values_bf16 = values_bf16;
    k->values_f32 = values_f32;
    lanes_fill(k);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes: the kernels that are plain loops over a row, written once and compiled by every tier for
 * its own instruction set.
 *
 * Sums run in 16 lanes (element i in lane i % 16) that are added as a tree, and nothing is
 * contracted, so these kernels give the same bits in every tier. Included by one file a tier. */
#ifndef HR_BACKEND_CPU_LANES_H
#define HR_BACKEND_CPU_LANES_H

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"

#define LANES 16

static inline float bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline hr_bf16 bf16_of(float f) {
    uint32_t u = f32_bits(f);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    uint32_t quiet = u >> 16 | 0x40; /* rounding could carry a NaN's few bits into infinity */
    return (hr_bf16)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* exp(x) as 2^n times a polynomial in the rest, |rest| <= ln2 / 2 (Cody & Waite 1980; polynomial of
 * Cephes' expf). Within 2 units of the last place for -87.3 <= x <= 88.3; below that 0, above it
 * what 88.3 gives, NaN for NaN. A branch-free loop body: the same bits in any lane and in a tail.
 */
static inline float exp_f32(float x) {
    const float lo = -87.3f, hi = 88.3f, log2e = 1.44269504f;
    const float magic =
        12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in low bits */
    const float ln2_hi = 0.693359375f, ln2_lo = -2.12194440e-4f;
    float c = x < lo ? lo : x;
    c = c > hi ? hi : c;
    float t = c * log2e + magic, n = t - magic;
    float r = c - n * ln2_hi;
    r = r - n * ln2_lo;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float y = p * (r * r) + r + 1.0f;
    y = y * bits_f32((f32_bits(t) - f32_bits(magic) + 127u) << 23);
    return x < lo ? 0.0f : y;
}

/* tanh(x): a polynomial in x^2 near 0 (of Cephes' tanhf), 1 - 2 / (exp(2 |x|) + 1) beyond. Within 4
 * roundings. What is not finite gives NaN. */
static inline float tanh_f32(float x) {
    float z = x * x, size = fabsf(x);
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near = p * z * x + x, far = copysignf(1.0f - 2.0f / (exp_f32(2.0f * size) + 1.0f), x);
    return (size < 0.625f ? near : far) + x * 0.0f;
}

/* Floats as integers in the same order (the negative ones' bits turned over): their maximum needs
 * no lanes to be written out, because it is the same in any order. A NaN of either sign is an end.
 */
static inline int32_t order_of(float f) {
    int32_t i = (int32_t)f32_bits(f);
    return i ^ (i >> 31 & 0x7fffffff);
}

static inline float max_of(const float *x, int n) {
    int32_t top = order_of(-INFINITY);
    for (int i = 0; i < n; i++) top = order_of(x[i]) > top ? order_of(x[i]) : top;
    return bits_f32((uint32_t)(top ^ (top >> 31 & 0x7fffffff)));
}

static inline float tree_sum(float *lane) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lane[j] += lane[j + half];
    return lane[0];
}

static void lanes_softmax(float *s, int n, float scale, float *m, float *sum) {
    int n16 = (n + LANES - 1) / LANES * LANES;
    float acc[LANES] = {0};
    for (int i = 0; i < n; i++) s[i] *= scale;
    for (int i = n; i < n16; i++) s[i] = -INFINITY;
    float top = max_of(s, n16);
    for (int i = 0; i < n16; i += LANES)
        for (int j = 0; j < LANES; j++) {
            s[i + j] = exp_f32(s[i + j] - top);
            acc[j] += s[i + j];
        }
    for (int i = n; i < n16; i++) s[i] = 0; /* a NaN row's masked lanes too: NaN must not spread */
    *m = top;
    *sum = tree_sum(acc);
}

static void lanes_softcap(float *s, int n, float scale, float cap) {
    for (int i = 0; i < n; i++) s[i] = tanh_f32(s[i] * scale / cap) * cap;
}

static void lanes_attn_merge(float *o, float *m, float *sum, const float *o_seg, float m_seg,
                             float sum_seg, int n) {
    float top = m_seg > *m ? m_seg : *m;
    float a = exp_f32(*m - top), b = exp_f32(m_seg - top);
    *m = top;
    *sum = *sum * a + sum_seg * b;
    for (int i = 0; i < n; i++) o[i] = o[i] * a + o_seg[i] * b;
}

static void lanes_rmsnorm(float *y, const float *x, const float *w, int n, float eps) {
    float acc[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) acc[j] += x[i + j] * x[i + j];
    for (int j = 0; i + j < n; j++) acc[j] += x[i + j] * x[i + j];
    float inv = 1.0f / sqrtf(tree_sum(acc) / (float)n + eps);
    for (i = 0; i < n; i++) y[i] = x[i] * inv * w[i];
}

static void lanes_rope(float *x, const float *cs, int rope_dim) {
    int half = rope_dim / 2;
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], c = cs[i], s = cs[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

static void lanes_silu_mul(float *restrict y, const float *restrict g, const float *restrict u,
                           int n) {
    for (int i = 0; i < n; i++) y[i] = g[i] / (1.0f + exp_f32(-g[i])) * u[i];
}

static void lanes_gelu_mul(float *restrict y, const float *restrict g, const float *restrict u,
                           int n) {
    const float by = -1.5957691216f; /* -2 sqrt(2/pi) */
    for (int i = 0; i < n; i++) {
        float t = g[i] + 0.044715f * (g[i] * g[i] * g[i]);
        y[i] = g[i] / (1.0f + exp_f32(by * t)) * u[i];
    }
}

static void lanes_scale(float *y, const float *x, float by, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] * by;
}

static void lanes_to_bf16(hr_bf16 *restrict y, const float *restrict x, int n) {
    for (int i = 0; i < n; i++) y[i] = bf16_of(x[i]);
}

static float lanes_max_of(const float *x, int n, bool *bad) {
    uint32_t any = 0; /* a NaN or +inf */
    for (int i = 0; i < n; i++) {
        uint32_t u = f32_bits(x[i]);
        any |= (uint32_t)((u & 0x7fffffffu) > 0x7f800000u) | (uint32_t)(u == 0x7f800000u);
    }
    *bad = any != 0;
    return max_of(x, n);
}

static double lanes_sum_exp(const float *x, int n, float m) {
    double acc[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        float e[LANES];
        for (int j = 0; j < LANES; j++) e[j] = exp_f32(x[i + j] - m);
        for (int j = 0; j < LANES; j++) acc[j] += (double)e[j];
    }
    for (; i < n; i++) acc[0] += (double)exp_f32(x[i] - m);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) acc[j] += acc[j + half];
    return acc[0];
}

static void lanes_temper(float *restrict x, float *restrict e, uint16_t *restrict bucket, int n,
                         float m, float t) {
    const float last = -(float)(HR_CPU_BUCKETS - 1) / HR_CPU_BUCKETS_A_NAT;
    for (int i = 0; i < n; i++) {
        x[i] = (x[i] - m) / t;
        e[i] = exp_f32(x[i]);
    }
    for (int i = 0; i < n; i++) {
        float z = x[i] > last ? x[i] : last;
        bucket[i] = (uint16_t)(int32_t)(-z * HR_CPU_BUCKETS_A_NAT);
    }
}

/* Puts these kernels into a tier's table. */
static void lanes_fill(struct hr_cpu_kernels *k) {
    k->softmax = lanes_softmax;
    k->softcap = lanes_softcap;
    k->attn_merge = lanes_attn_merge;
    k->rmsnorm = lanes_rmsnorm;
    k->rope = lanes_rope;
    k->silu_mul = lanes_silu_mul;
    k->gelu_mul = lanes_gelu_mul;
    k->scale = lanes_scale;
    k->to_bf16 = lanes_to_bf16;
    k->max_of = lanes_max_of;
    k->sum_exp = lanes_sum_exp;
    k->temper = lanes_temper;
}

#endif

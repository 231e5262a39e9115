/* SPDX-License-Identifier: Apache-2.0
 *
 * avx2: the tier of AVX2 with FMA (Haswell, Zen and later).
 *
 * A packed 32-bit lane holds two neighbours of K in bf16; the even one becomes an f32 by a shift,
 * the odd one by a mask, and two fused multiply-adds take them in that order, at any number of
 * rows. One row takes a whole panel (four chains of eight outputs), more rows take half a panel in
 * tiles of up to four, which fills the sixteen registers. */
#include "backend/cpu/cpu_int.h"

#include <immintrin.h>

#include "backend/cpu/lanes.h"

#define INLINE   static inline __attribute__((always_inline))
#define UNROLL   _Pragma("GCC unroll 8")
#define ROWS_MAX 4

struct tile {
    float *y;
    size_t ldy, ldx;
    const float *bias;
    int k;
    bool accumulate;
};

INLINE __m256 even_of(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

INLINE __m256 odd_of(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
}

INLINE __m256i pair_at(const hr_bf16 *p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}

INLINE __m256i load_pairs(const hr_bf16 *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE void tile_store(const struct tile *t, __m256 (*acc)[4], int mr, int nv) {
    UNROLL for (int r = 0; r < mr; r++) UNROLL for (int j = 0; j < nv; j++) {
        float *y = t->y + (size_t)r * t->ldy + 8 * j;
        __m256 v = acc[r][j];
        if (t->bias) v = _mm256_add_ps(v, _mm256_loadu_ps(t->bias + 8 * j));
        if (t->accumulate) v = _mm256_add_ps(_mm256_loadu_ps(y), v);
        _mm256_storeu_ps(y, v);
    }
}

/* `mr` rows by `nv` vectors of eight outputs; w at the first of them. */
INLINE void tile_bf16(const struct tile *t, const hr_bf16 *x, const hr_bf16 *w, int mr, int nv) {
    __m256 acc[ROWS_MAX][4];
    UNROLL for (int r = 0; r < mr; r++) UNROLL for (int j = 0; j < nv; j++) acc[r][j] =
        _mm256_setzero_ps();
    for (int i = 0; i < t->k; i += 2, w += 2 * HR_CPU_PANEL) {
        __m256 even[4], odd[4];
        UNROLL for (int j = 0; j < nv; j++) {
            __m256i pairs = load_pairs(w + 16 * j);
            even[j] = even_of(pairs);
            odd[j] = odd_of(pairs);
        }
        UNROLL for (int r = 0; r < mr; r++) {
            __m256i pair = pair_at(x + r * t->ldx + i);
            __m256 x0 = even_of(pair), x1 = odd_of(pair);
            UNROLL for (int j = 0; j < nv; j++) {
                acc[r][j] = _mm256_fmadd_ps(x0, even[j], acc[r][j]);
                acc[r][j] = _mm256_fmadd_ps(x1, odd[j], acc[r][j]);
            }
        }
    }
    tile_store(t, acc, mr, nv);
}

INLINE void tile_f32(const struct tile *t, const float *x, const float *w, int mr, int nv) {
    __m256 acc[ROWS_MAX][4];
    UNROLL for (int r = 0; r < mr; r++) UNROLL for (int j = 0; j < nv; j++) acc[r][j] =
        _mm256_setzero_ps();
    for (int i = 0; i < t->k; i++, w += HR_CPU_PANEL) {
        __m256 wj[4];
        UNROLL for (int j = 0; j < nv; j++) wj[j] = _mm256_loadu_ps(w + 8 * j);
        UNROLL for (int r = 0; r < mr; r++) {
            __m256 xr = _mm256_set1_ps(x[r * t->ldx + i]);
            UNROLL for (int j = 0; j < nv; j++) acc[r][j] = _mm256_fmadd_ps(xr, wj[j], acc[r][j]);
        }
    }
    tile_store(t, acc, mr, nv);
}

/* `lane` is what one output takes of a row of the panel: 2 elements in bf16, 1 in f32. */
#define GEMM(name, elem, tile_fn, k_step, lane)                                                    \
    static void name(float *y, size_t ldy, const elem *x, size_t ldx, const elem *w,               \
                     const float *bias, int n_rows, int n_panels, int k, bool accumulate) {        \
        size_t panel = (size_t)(k_step) * HR_CPU_PANEL;                                            \
        int n_tiles = (n_rows + ROWS_MAX - 1) / ROWS_MAX;                                          \
        for (int p = 0; p < n_panels; p++, w += panel) {                                           \
            for (int col = 0; col < HR_CPU_PANEL; col += n_rows == 1 ? 32 : 16) {                  \
                int at = p * HR_CPU_PANEL + col;                                                   \
                for (int i = 0, r = 0; i < n_tiles; i++) {                                         \
                    int r1 = (int)((long)n_rows * (i + 1) / n_tiles);                              \
                    struct tile t = {y + (size_t)r * ldy + at, ldy, ldx, bias ? bias + at : NULL,  \
                                     k, accumulate};                                               \
                    const elem *xr = x + (size_t)r * ldx, *wc = w + col * (lane);                  \
                    if (n_rows == 1) tile_fn(&t, xr, wc, 1, 4);                                    \
                    else if (r1 - r == 1) tile_fn(&t, xr, wc, 1, 2);                               \
                    else if (r1 - r == 2) tile_fn(&t, xr, wc, 2, 2);                               \
                    else if (r1 - r == 3) tile_fn(&t, xr, wc, 3, 2);                               \
                    else tile_fn(&t, xr, wc, 4, 2);                                                \
                    r = r1;                                                                        \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
GEMM(gemm_bf16, hr_bf16, tile_bf16, (k + 1) / 2 * 2, 2)
GEMM(gemm_f32, float, tile_f32, k, 1)

/* Scores of `nq` queries with one page: two vectors are its 16 tokens. */
INLINE void scores_tile_bf16(float *s, const hr_bf16 *q, size_t ldq, const hr_bf16 *page,
                             int head_dim, int nq) {
    __m256 acc[4][2];
    UNROLL for (int i = 0; i < nq; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int d = 0; d < head_dim; d += 2) {
        __m256i pairs0 = load_pairs(page + d * HR_PAGE_TOKENS);
        __m256i pairs1 = load_pairs(page + d * HR_PAGE_TOKENS + 16);
        __m256 even0 = even_of(pairs0), even1 = even_of(pairs1);
        __m256 odd0 = odd_of(pairs0), odd1 = odd_of(pairs1);
        UNROLL for (int i = 0; i < nq; i++) {
            __m256i pair = pair_at(q + i * ldq + d);
            __m256 q0 = even_of(pair), q1 = odd_of(pair);
            acc[i][0] = _mm256_fmadd_ps(q0, even0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(q0, even1, acc[i][1]);
            acc[i][0] = _mm256_fmadd_ps(q1, odd0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(q1, odd1, acc[i][1]);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int h = 0; h < 2; h++)
        _mm256_storeu_ps(s + i * HR_ATTN_SEGMENT + 8 * h, acc[i][h]);
}

INLINE void scores_tile_f32(float *s, const float *q, size_t ldq, const float *page, int head_dim,
                            int nq) {
    __m256 acc[4][2];
    UNROLL for (int i = 0; i < nq; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int d = 0; d < head_dim; d++) {
        UNROLL for (int h = 0; h < 2; h++) {
            __m256 k = _mm256_loadu_ps(page + d * HR_PAGE_TOKENS + 8 * h);
            UNROLL for (int i = 0; i < nq; i++) acc[i][h] =
                _mm256_fmadd_ps(_mm256_set1_ps(q[i * ldq + d]), k, acc[i][h]);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int h = 0; h < 2; h++)
        _mm256_storeu_ps(s + i * HR_ATTN_SEGMENT + 8 * h, acc[i][h]);
}

#define SCORES(name, elem, tile_fn)                                                                \
    static void name(float *s, const elem *q, size_t ldq, int n_q, const elem *const *k_pages,     \
                     int n_pages, int head_dim) {                                                  \
        for (int p = 0; p < n_pages; p++) {                                                        \
            for (int i = 0, nq; i < n_q; i += nq) {                                                \
                nq = n_q - i >= 4 ? 4 : n_q - i;                                                   \
                float *si = s + i * HR_ATTN_SEGMENT + p * HR_PAGE_TOKENS;                          \
                const elem *qi = q + i * ldq;                                                      \
                if (nq == 4) tile_fn(si, qi, ldq, k_pages[p], head_dim, 4);                        \
                else if (nq == 3) tile_fn(si, qi, ldq, k_pages[p], head_dim, 3);                   \
                else if (nq == 2) tile_fn(si, qi, ldq, k_pages[p], head_dim, 2);                   \
                else tile_fn(si, qi, ldq, k_pages[p], head_dim, 1);                                \
            }                                                                                      \
        }                                                                                          \
    }
SCORES(scores_bf16, hr_bf16, scores_tile_bf16)
SCORES(scores_f32, float, scores_tile_f32)

INLINE __m256 load8_bf16(const hr_bf16 *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

INLINE __m256 load8_f32(const float *p) {
    return _mm256_loadu_ps(p);
}

/* `nq` rows of o, 16 dims from d0; o is kept in registers over the tokens. */
#define VALUES(name, elem, load8)                                                                  \
    INLINE void name##_tile(float *o, const float *p, const elem *const *pages, int t0, int t1,    \
                            int ldv, int d0, int nq) {                                             \
        __m256 acc[4][2];                                                                          \
        UNROLL for (int i = 0; i < nq; i++) UNROLL for (int h = 0; h < 2; h++) acc[i][h] =         \
            _mm256_loadu_ps(o + i * ldv + d0 + 8 * h);                                             \
        for (int t = t0; t < t1; t++) {                                                            \
            const elem *v = pages[t / HR_PAGE_TOKENS] + t % HR_PAGE_TOKENS * ldv + d0;             \
            __m256 v0 = load8(v), v1 = load8(v + 8);                                               \
            UNROLL for (int i = 0; i < nq; i++) {                                                  \
                __m256 pi = _mm256_set1_ps(p[i * HR_ATTN_SEGMENT + t]);                            \
                acc[i][0] = _mm256_fmadd_ps(pi, v0, acc[i][0]);                                    \
                acc[i][1] = _mm256_fmadd_ps(pi, v1, acc[i][1]);                                    \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < nq; i++) UNROLL for (int h = 0; h < 2; h++)                     \
            _mm256_storeu_ps(o + i * ldv + d0 + 8 * h, acc[i][h]);                                 \
    }                                                                                              \
    static void name(float *o, const float *p, int n_q, const elem *const *v_pages, int t0,        \
                     int t1, int ldv) {                                                            \
        for (int i = 0, nq; i < n_q; i += nq) {                                                    \
            nq = n_q - i >= 4 ? 4 : n_q - i;                                                       \
            float *oi = o + i * ldv;                                                               \
            const float *pi = p + i * HR_ATTN_SEGMENT;                                             \
            for (int d = 0; d < ldv; d += 16) {                                                    \
                if (nq == 4) name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 4);                      \
                else if (nq == 3) name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 3);                 \
                else if (nq == 2) name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 2);                 \
                else name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 1);                              \
            }                                                                                      \
        }                                                                                          \
    }
VALUES(values_bf16, hr_bf16, load8_bf16)
VALUES(values_f32, float, load8_f32)

void hr_cpu_init_avx2(struct hr_cpu_kernels *k, unsigned flags) {
    if (!(flags & HR_CPU_AVX2)) return;
    k->tier = "avx2";
    k->gemm_bf16 = gemm_bf16;
    k->gemm_f32 = gemm_f32;
    k->scores_bf16 = scores_bf16;
    k->scores_f32 = scores_f32;
    k->values_bf16 = values_bf16;
    k->values_f32 = values_f32;
    lanes_fill(k);
}

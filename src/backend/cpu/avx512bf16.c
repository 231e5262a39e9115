/* SPDX-License-Identifier: Apache-2.0
 *
 * avx512bf16: the tier of AVX-512 with BF16 (Zen 4, Cooper Lake, Sapphire Rapids and later).
 *
 * vdpbf16ps multiplies pairs and adds them to the accumulator in an order, with roundings and with
 * a flush of denormals that the instruction fixes, so a chain's bits do not depend on the tile it
 * runs in. Its latency is about six cycles at one a cycle, so a tile holds at least six chains: one
 * row takes four panels at once, two rows two, more rows one. Twelve rows fill 24 of the 32
 * registers. The row loop is inside the panel loop: a panel is read from memory once and then from
 * the cache.
 *
 * Source of the instruction: Intel SDM vol. 2C, VDPBF16PS. */
#include "backend/cpu/cpu_int.h"

#include <immintrin.h>

#include "backend/cpu/lanes.h"

#define INLINE   static inline __attribute__((always_inline))
#define UNROLL   _Pragma("GCC unroll 16")
#define ROWS_MAX 12

INLINE __m512bh as_bh(__m512i v) {
    return (__m512bh)v;
}

/* Two neighbours of K, the same in all lanes. */
INLINE __m512bh pair_at(const hr_bf16 *p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return as_bh(_mm512_set1_epi32(pair));
}

/* A tile of `mr` rows by `np` panels; both are constants where it is inlined. */
struct tile {
    float *y;
    size_t ldy, ldx;
    const float *bias;
    int k;
    bool accumulate;
};

INLINE void tile_store(const struct tile *t, __m512 (*acc)[2], int mr, int np) {
    UNROLL for (int r = 0; r < mr; r++) UNROLL for (int p = 0; p < np; p++) UNROLL
        for (int h = 0; h < 2; h++) {
            int col = p * HR_CPU_PANEL + h * 16;
            float *y = t->y + (size_t)r * t->ldy + col;
            __m512 v = acc[r * np + p][h];
            if (t->bias) v = _mm512_add_ps(v, _mm512_loadu_ps(t->bias + col));
            if (t->accumulate) v = _mm512_add_ps(_mm512_loadu_ps(y), v);
            _mm512_storeu_ps(y, v);
        }
}

INLINE void tile_bf16(const struct tile *t, const hr_bf16 *x, const hr_bf16 *w, int mr, int np) {
    __m512 acc[ROWS_MAX][2];
    UNROLL for (int i = 0; i < mr * np; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    int n_pairs = (t->k + 1) / 2;
    size_t panel = (size_t)n_pairs * 2 * HR_CPU_PANEL;
    for (int i = 0; i < n_pairs; i++) {
        UNROLL for (int p = 0; p < np; p++) {
            const hr_bf16 *pair = w + p * panel + (size_t)i * 2 * HR_CPU_PANEL;
            __m512bh w0 = as_bh(_mm512_loadu_si512(pair));
            __m512bh w1 = as_bh(_mm512_loadu_si512(pair + 32));
            UNROLL for (int r = 0; r < mr; r++) {
                __m512bh xr = pair_at(x + r * t->ldx + 2 * i);
                acc[r * np + p][0] = _mm512_dpbf16_ps(acc[r * np + p][0], w0, xr);
                acc[r * np + p][1] = _mm512_dpbf16_ps(acc[r * np + p][1], w1, xr);
            }
        }
    }
    tile_store(t, acc, mr, np);
}

INLINE void tile_f32(const struct tile *t, const float *x, const float *w, int mr, int np) {
    __m512 acc[ROWS_MAX][2];
    UNROLL for (int i = 0; i < mr * np; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    size_t panel = (size_t)t->k * HR_CPU_PANEL;
    for (int i = 0; i < t->k; i++) {
        UNROLL for (int p = 0; p < np; p++) {
            const float *at = w + p * panel + (size_t)i * HR_CPU_PANEL;
            __m512 w0 = _mm512_loadu_ps(at), w1 = _mm512_loadu_ps(at + 16);
            UNROLL for (int r = 0; r < mr; r++) {
                __m512 xr = _mm512_set1_ps(x[r * t->ldx + i]);
                acc[r * np + p][0] = _mm512_fmadd_ps(xr, w0, acc[r * np + p][0]);
                acc[r * np + p][1] = _mm512_fmadd_ps(xr, w1, acc[r * np + p][1]);
            }
        }
    }
    tile_store(t, acc, mr, np);
}

/* The ladder from a number of rows to a tile with that constant; and the loops over panels and
 * rows, the same for both types. Rows go in tiles of nearly equal height: 13 rows as 7 + 6. */
#define GEMM(name, elem, tile_fn, k_step)                                                          \
    static void name##_rows(const struct tile *t, const elem *x, const elem *w, int mr) {          \
        switch (mr) {                                                                              \
        case 1: tile_fn(t, x, w, 1, 1); break;                                                     \
        case 2: tile_fn(t, x, w, 2, 1); break;                                                     \
        case 3: tile_fn(t, x, w, 3, 1); break;                                                     \
        case 4: tile_fn(t, x, w, 4, 1); break;                                                     \
        case 5: tile_fn(t, x, w, 5, 1); break;                                                     \
        case 6: tile_fn(t, x, w, 6, 1); break;                                                     \
        case 7: tile_fn(t, x, w, 7, 1); break;                                                     \
        case 8: tile_fn(t, x, w, 8, 1); break;                                                     \
        case 9: tile_fn(t, x, w, 9, 1); break;                                                     \
        case 10: tile_fn(t, x, w, 10, 1); break;                                                   \
        case 11: tile_fn(t, x, w, 11, 1); break;                                                   \
        default: tile_fn(t, x, w, 12, 1); break;                                                   \
        }                                                                                          \
    }                                                                                              \
    static void name(float *y, size_t ldy, const elem *x, size_t ldx, const elem *w,               \
                     const float *bias, int n_rows, int n_panels, int k, bool accumulate) {        \
        size_t panel = (size_t)(k_step) * HR_CPU_PANEL;                                            \
        int n_tiles = (n_rows + ROWS_MAX - 1) / ROWS_MAX;                                          \
        for (int p = 0; p < n_panels;) {                                                           \
            int np = n_rows == 1 ? 4 : n_rows == 2 ? 2 : 1;                                        \
            if (np > n_panels - p) np = 1;                                                         \
            const float *b = bias ? bias + p * HR_CPU_PANEL : NULL;                                \
            struct tile t = {y + p * HR_CPU_PANEL, ldy, ldx, b, k, accumulate};                    \
            const elem *wp = w + p * panel;                                                        \
            if (np == 4) tile_fn(&t, x, wp, 1, 4);                                                 \
            else if (np == 2) tile_fn(&t, x, wp, 2, 2);                                            \
            else                                                                                   \
                for (int i = 0, r = 0; i < n_tiles; i++) {                                         \
                    int r1 = (int)((long)n_rows * (i + 1) / n_tiles);                              \
                    t.y = y + (size_t)r * ldy + p * HR_CPU_PANEL;                                  \
                    name##_rows(&t, x + (size_t)r * ldx, wp, r1 - r);                              \
                    r = r1;                                                                        \
                }                                                                                  \
            p += np;                                                                               \
        }                                                                                          \
    }
GEMM(gemm_bf16, hr_bf16, tile_bf16, (k + 1) / 2 * 2)
GEMM(gemm_f32, float, tile_f32, k)

/* Scores of `nq` queries with `np` pages: a vector is the 16 tokens of a page. */
INLINE void scores_tile_bf16(float *s, const hr_bf16 *q, size_t ldq, const hr_bf16 *const *pages,
                             int head_dim, int nq, int np) {
    __m512 acc[4][4];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int p = 0; p < np; p++) acc[i][p] =
        _mm512_setzero_ps();
    for (int d = 0; d < head_dim; d += 2) {
        __m512bh k[4];
        UNROLL for (int p = 0; p < np; p++) k[p] =
            as_bh(_mm512_loadu_si512(pages[p] + d * HR_PAGE_TOKENS));
        UNROLL for (int i = 0; i < nq; i++) {
            __m512bh qi = pair_at(q + i * ldq + d);
            UNROLL for (int p = 0; p < np; p++) acc[i][p] = _mm512_dpbf16_ps(acc[i][p], k[p], qi);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int p = 0; p < np; p++)
        _mm512_storeu_ps(s + i * HR_ATTN_SEGMENT + p * HR_PAGE_TOKENS, acc[i][p]);
}

INLINE void scores_tile_f32(float *s, const float *q, size_t ldq, const float *const *pages,
                            int head_dim, int nq, int np) {
    __m512 acc[4][4];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int p = 0; p < np; p++) acc[i][p] =
        _mm512_setzero_ps();
    for (int d = 0; d < head_dim; d++) {
        __m512 k[4];
        UNROLL for (int p = 0; p < np; p++) k[p] = _mm512_loadu_ps(pages[p] + d * HR_PAGE_TOKENS);
        UNROLL for (int i = 0; i < nq; i++) {
            __m512 qi = _mm512_set1_ps(q[i * ldq + d]);
            UNROLL for (int p = 0; p < np; p++) acc[i][p] = _mm512_fmadd_ps(qi, k[p], acc[i][p]);
        }
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int p = 0; p < np; p++)
        _mm512_storeu_ps(s + i * HR_ATTN_SEGMENT + p * HR_PAGE_TOKENS, acc[i][p]);
}

#define SCORES(name, elem, tile_fn)                                                                \
    static void name(float *s, const elem *q, size_t ldq, int n_q, const elem *const *k_pages,     \
                     int n_pages, int head_dim) {                                                  \
        for (int p = 0, np; p < n_pages; p += np) {                                                \
            np = n_pages - p >= 4 ? 4 : 1;                                                         \
            for (int i = 0, nq; i < n_q; i += nq) {                                                \
                nq = n_q - i >= 4 ? 4 : n_q - i;                                                   \
                float *si = s + i * HR_ATTN_SEGMENT + p * HR_PAGE_TOKENS;                          \
                const elem *qi = q + i * ldq;                                                      \
                switch (nq * 8 + np) {                                                             \
                case 4 * 8 + 4: tile_fn(si, qi, ldq, k_pages + p, head_dim, 4, 4); break;          \
                case 3 * 8 + 4: tile_fn(si, qi, ldq, k_pages + p, head_dim, 3, 4); break;          \
                case 2 * 8 + 4: tile_fn(si, qi, ldq, k_pages + p, head_dim, 2, 4); break;          \
                case 1 * 8 + 4: tile_fn(si, qi, ldq, k_pages + p, head_dim, 1, 4); break;          \
                case 4 * 8 + 1: tile_fn(si, qi, ldq, k_pages + p, head_dim, 4, 1); break;          \
                case 3 * 8 + 1: tile_fn(si, qi, ldq, k_pages + p, head_dim, 3, 1); break;          \
                case 2 * 8 + 1: tile_fn(si, qi, ldq, k_pages + p, head_dim, 2, 1); break;          \
                default: tile_fn(si, qi, ldq, k_pages + p, head_dim, 1, 1); break;                 \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
SCORES(scores_bf16, hr_bf16, scores_tile_bf16)
SCORES(scores_f32, float, scores_tile_f32)

INLINE __m512 load16_bf16(const hr_bf16 *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

INLINE __m512 load16_f32(const float *p) {
    return _mm512_loadu_ps(p);
}

/* `nq` rows of o, `nv` vectors of 16 dims from d0; o is kept in registers over the tokens. */
#define VALUES(name, elem, load16)                                                                 \
    INLINE void name##_tile(float *o, const float *p, const elem *const *pages, int t0, int t1,    \
                            int ldv, int d0, int nq, int nv) {                                     \
        __m512 acc[4][4];                                                                          \
        UNROLL for (int i = 0; i < nq; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] =        \
            _mm512_loadu_ps(o + i * ldv + d0 + 16 * j);                                            \
        for (int t = t0; t < t1; t++) {                                                            \
            const elem *v = pages[t / HR_PAGE_TOKENS] + t % HR_PAGE_TOKENS * ldv + d0;             \
            __m512 vj[4];                                                                          \
            UNROLL for (int j = 0; j < nv; j++) vj[j] = load16(v + 16 * j);                        \
            UNROLL for (int i = 0; i < nq; i++) {                                                  \
                __m512 pi = _mm512_set1_ps(p[i * HR_ATTN_SEGMENT + t]);                            \
                UNROLL for (int j = 0; j < nv; j++) acc[i][j] =                                    \
                    _mm512_fmadd_ps(pi, vj[j], acc[i][j]);                                         \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < nq; i++) UNROLL for (int j = 0; j < nv; j++)                    \
            _mm512_storeu_ps(o + i * ldv + d0 + 16 * j, acc[i][j]);                                \
    }                                                                                              \
    static void name(float *o, const float *p, int n_q, const elem *const *v_pages, int t0,        \
                     int t1, int ldv) {                                                            \
        for (int i = 0, nq; i < n_q; i += nq) {                                                    \
            nq = n_q - i >= 4 ? 4 : n_q - i;                                                       \
            float *oi = o + i * ldv;                                                               \
            const float *pi = p + i * HR_ATTN_SEGMENT;                                             \
            for (int d = 0, nv; d < ldv; d += 16 * nv) {                                           \
                nv = ldv - d >= 64 ? 4 : 1;                                                        \
                switch (nq * 8 + nv) {                                                             \
                case 4 * 8 + 4: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 4, 4); break;         \
                case 3 * 8 + 4: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 3, 4); break;         \
                case 2 * 8 + 4: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 2, 4); break;         \
                case 1 * 8 + 4: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 1, 4); break;         \
                case 4 * 8 + 1: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 4, 1); break;         \
                case 3 * 8 + 1: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 3, 1); break;         \
                case 2 * 8 + 1: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 2, 1); break;         \
                default: name##_tile(oi, pi, v_pages, t0, t1, ldv, d, 1, 1); break;                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
VALUES(values_bf16, hr_bf16, load16_bf16)
VALUES(values_f32, float, load16_f32)

void hr_cpu_init_avx512bf16(struct hr_cpu_kernels *k, unsigned flags) {
    if (!(flags & HR_CPU_AVX512BF16)) return;
    k->tier = "avx512bf16";
    k->gemm_bf16 = gemm_bf16;
    k->gemm_f32 = gemm_f32;
    k->scores_bf16 = scores_bf16;
    k->scores_f32 = scores_f32;
    k->values_bf16 = values_bf16;
    k->values_f32 = values_f32;
    lanes_fill(k);
}

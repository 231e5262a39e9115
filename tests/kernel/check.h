/* SPDX-License-Identifier: Apache-2.0
 *
 * check: what the kernel checks share: the tiers, a backend of one, random data, and comparisons
 * that a NaN fails. `check_<op> TIER` checks one tier (77: this machine does not have it); with
 * --bench it prints speeds instead. A tolerance is derived beside its use; the summary prints how
 * much of it the worst element used. */
#ifndef HR_TESTS_KERNEL_CHECK_H
#define HR_TESTS_KERNEL_CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/buf.h"
#include "base/clock.h"

#define EPS_F32  0x1p-24 /* half a unit of the last of 24 bits, relative */
#define EPS_BF16 0x1p-8  /* and of 8 bits */

static const struct check_tier {
    const char *name;
    unsigned mask;
} check_tiers[] = {
    {"ref", 0}, {"avx2", HR_CPU_AVX2}, {"avx512bf16", HR_CPU_AVX2 | HR_CPU_AVX512BF16}};

static const char *const check_act_names[] = {"f32", "bf16"};

static int check_n_cases, check_n_failed;
static double check_worst_share; /* of a tolerance, over all comparisons */

static inline float round_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    u = ((u + 0x7fffu + (u >> 16 & 1)) >> 16) << 16;
    memcpy(&f, &u, 4);
    return f;
}

static inline float round_act(float f, enum hr_dtype act) {
    return act == HR_BF16 ? round_bf16(f) : f;
}

/* A token and its logit, most probable first, equal ones by id. */
struct entry {
    double z;
    int id;
};
static inline int by_rank(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->z != y->z) return x->z < y->z ? 1 : -1;
    return x->id - y->id;
}

static uint64_t check_rng = 88172645463325252u;
static inline uint32_t rand_u32(void) { /* xorshift64, Marsaglia 2003 */
    check_rng ^= check_rng << 13;
    check_rng ^= check_rng >> 7;
    check_rng ^= check_rng << 17;
    return (uint32_t)(check_rng >> 16);
}
static inline float rand_f(void) { /* in [-1, 1) */
    return (float)((int32_t)rand_u32()) * 0x1p-31f;
}
static inline int rand_int(int lo, int hi) {
    return lo + (int)(rand_u32() % (uint32_t)(hi - lo + 1));
}
static inline float *rand_array(size_t n, float scale) {
    float *v = hr_xmalloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = rand_f() * scale;
    return v;
}

/* Counts a case; prints the failing ones with the worst element. NaN fails: written as !(<=). */
static inline void check_close(const char *name, const float *got, const double *want,
                               const double *tol, size_t n) {
    size_t worst = 0;
    double share = 0;
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        double err = fabs((double)got[i] - want[i]);
        double s = err == 0 ? 0 : err / tol[i];
        if (!(s <= share)) share = s, worst = i;
        if (!(err <= tol[i])) ok = false;
        if (!ok) {
            worst = i;
            break;
        }
    }
    check_n_cases++;
    if (!ok) {
        check_n_failed++;
        printf("FAIL %s: element %zu of %zu is %.9g, want %.9g +- %.3g\n", name, worst, n,
               (double)got[worst], want[worst], tol[worst]);
    } else if (share > check_worst_share) {
        check_worst_share = share;
    }
}

static inline void check_bits(const char *name, const float *a, const float *b, size_t n) {
    check_n_cases++;
    if (memcmp(a, b, n * sizeof *a) == 0) return;
    size_t i = 0;
    while (memcmp(&a[i], &b[i], sizeof *a) == 0) i++;
    check_n_failed++;
    printf("FAIL %s: element %zu of %zu is %.9g here and %.9g there\n", name, i, n, (double)a[i],
           (double)b[i]);
}

static inline void check_true(const char *name, bool ok) {
    check_n_cases++;
    if (ok) return;
    check_n_failed++;
    printf("FAIL %s\n", name);
}

/* A backend with its own pool. Any failure ends the check: there is nothing to go on with. */
struct check_be {
    struct hr_backend *be;
    const struct hr_backend_ops *ops;
    struct hr_pool *pool;
};

static inline void check_ok(enum hr_status st, const struct hr_err *err) {
    if (st == HR_OK) return;
    printf("FAIL set-up: %s\n", err->msg);
    exit(1);
}

static inline struct check_be check_open(unsigned mask, enum hr_dtype act, int n_threads,
                                         int max_tokens) {
    struct check_be c = {0};
    struct hr_err err;
    check_ok(hr_pool_create(n_threads, &c.pool, &err), &err);
    struct hr_cpu_opts opts = {
        .act = act, .cpu_mask = mask, .pool = c.pool, .max_tokens = max_tokens};
    check_ok(hr_cpu_backend_open(&opts, &c.be, &err), &err);
    c.ops = c.be->ops;
    return c;
}

static inline void check_close_be(struct check_be *c) {
    c->ops->destroy(c->be);
    hr_pool_destroy(&c->pool);
}

static inline struct hr_tensor *check_tensor(struct check_be *c, enum hr_dtype dtype, int n_rows,
                                             int n_cols, const float *data) {
    struct hr_tensor *t = NULL;
    struct hr_err err;
    check_ok(c->ops->tensor_create(c->be, dtype, n_rows, n_cols, "test", &t, &err), &err);
    if (data) c->ops->tensor_write(c->be, t, 0, n_rows, data);
    return t;
}

static inline struct hr_weight *check_weight(struct check_be *c, int n_out, int n_in,
                                             const float *data) {
    struct hr_weight *w = NULL;
    struct hr_err err;
    check_ok(c->ops->weight_create(c->be, n_out, n_in, "test", &w, &err), &err);
    c->ops->weight_write(c->be, w, 0, n_out, data);
    return w;
}

/* Runs `cases` (or `bench`) for the tier named on the command line. */
static inline int check_main(int argc, char **argv, void (*cases)(const struct check_tier *),
                             void (*bench)(const struct check_tier *)) {
    bool want_bench = argc > 2 && strcmp(argv[2], "--bench") == 0;
    for (size_t i = 0; argc > 1 && i < sizeof check_tiers / sizeof *check_tiers; i++) {
        const struct check_tier *tier = &check_tiers[i];
        if (strcmp(argv[1], tier->name) != 0) continue;
        if ((hr_cpu_detect(HR_CPU_ALL) & tier->mask) != tier->mask) {
            printf("this machine has no %s\n", tier->name);
            return 77;
        }
        if (want_bench) {
            bench(tier);
            return 0;
        }
        cases(tier);
        printf("%d cases, %d failed; worst element used %.1f %% of its tolerance\n", check_n_cases,
               check_n_failed, 100 * check_worst_share);
        return check_n_failed ? 1 : 0;
    }
    fprintf(stderr, "usage: %s ref|avx2|avx512bf16 [--bench]\n", argv[0]);
    return 2;
}

#endif

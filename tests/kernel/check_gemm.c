/* SPDX-License-Identifier: Apache-2.0
 *
 * check_gemm: matmul against sums in f64, and the same bits for a row whatever it is computed with.
 *
 * Tolerance: a chain of k products and additions, each rounded once, is off by at most (k + 2) eps
 * times the sum of |x w| (Higham 2002, 3.1; + 2 for the bias and the accumulation); vdpbf16ps
 * rounds no more often. It flushes denormal products, so 2^-126 a term is added. */
#include "check.h"

struct gemm {
    int m, n, k;
    enum hr_dtype act;
    bool bias, accumulate;
    float *x, *w, *b, *y0; /* rounded to act; y0: what y holds before */
};

static struct gemm gemm_create(int m, int n, int k, enum hr_dtype act, int variant) {
    struct gemm g = {
        .m = m, .n = n, .k = k, .act = act, .bias = variant & 1, .accumulate = variant & 2};
    g.x = rand_array((size_t)m * (size_t)k, 1);
    g.w = rand_array((size_t)n * (size_t)k, 0.5f);
    g.b = rand_array((size_t)n, 3);
    g.y0 = rand_array((size_t)m * (size_t)n, 3);
    for (size_t i = 0; i < (size_t)m * (size_t)k; i++) g.x[i] = round_act(g.x[i], act);
    for (size_t i = 0; i < (size_t)n * (size_t)k; i++) g.w[i] = round_act(g.w[i], act);
    return g;
}

static void gemm_destroy(struct gemm *g) {
    free(g->x), free(g->w), free(g->b), free(g->y0);
}

/* Rows r0 .. r0+m-1 of the product. */
static void run(struct check_be *c, const struct gemm *g, struct hr_weight *w, int r0, int m,
                float *y) {
    struct hr_tensor *tx = check_tensor(c, g->act, m, g->k, g->x + (size_t)r0 * (size_t)g->k);
    struct hr_tensor *ty = check_tensor(c, HR_F32, m, g->n, g->y0 + (size_t)r0 * (size_t)g->n);
    struct hr_tensor *tb = g->bias ? check_tensor(c, HR_F32, 1, g->n, g->b) : NULL;
    c->ops->matmul(c->be, ty, tx, w, tb, m, g->accumulate);
    c->ops->tensor_read(c->be, ty, 0, m, y);
    c->ops->tensor_destroy(c->be, &tx);
    c->ops->tensor_destroy(c->be, &ty);
    c->ops->tensor_destroy(c->be, &tb);
}

static void compare(const char *name, const struct gemm *g, const float *y) {
    size_t n = (size_t)g->m * (size_t)g->n;
    double *want = hr_xmalloc(n * sizeof *want), *tol = hr_xmalloc(n * sizeof *tol);
    for (int r = 0; r < g->m; r++) {
        for (int j = 0; j < g->n; j++) {
            double sum = 0, size = 0;
            for (int i = 0; i < g->k; i++) {
                double p = (double)g->x[r * g->k + i] * (double)g->w[j * g->k + i];
                sum += p;
                size += fabs(p);
            }
            size_t at = (size_t)r * (size_t)g->n + (size_t)j;
            if (g->bias) sum += (double)g->b[j], size += fabs((double)g->b[j]);
            if (g->accumulate) sum += (double)g->y0[at], size += fabs((double)g->y0[at]);
            want[at] = sum;
            tol[at] = (g->k + 2) * EPS_F32 * size + g->k * 0x1p-126;
        }
    }
    check_close(name, y, want, tol, n);
    free(want), free(tol);
}

static void one_shape(const struct check_tier *tier, int m, int n, int k, enum hr_dtype act,
                      int variant) {
    struct gemm g = gemm_create(m, n, k, act, variant);
    size_t size = (size_t)m * (size_t)n;
    float *y = hr_xmalloc(size * sizeof *y), *z = hr_xmalloc(size * sizeof *z);
    char name[128], what[192];
    snprintf(name, sizeof name, "gemm_%s_m%d_n%d_k%d%s%s_%s", check_act_names[act], m, n, k,
             g.bias ? "_bias" : "", g.accumulate ? "_acc" : "", tier->name);
    for (int threads = 1; threads <= 3; threads++) {
        struct check_be c = check_open(tier->mask, act, threads, m);
        struct hr_weight *w = check_weight(&c, n, k, g.w);
        float *to = threads == 1 ? y : z;
        run(&c, &g, w, 0, m, to);
        if (threads == 1) compare(name, &g, y);
        snprintf(what, sizeof what, "%s: 1 and %d threads", name, threads);
        check_bits(what, to, y, size);
        /* the same rows in pieces of every size */
        for (int each = 1; each < m && threads == 1; each += each < 14 ? 1 : 9) {
            for (int r = 0; r < m; r += each)
                run(&c, &g, w, r, m - r < each ? m - r : each, z + (size_t)r * (size_t)n);
            snprintf(what, sizeof what, "%s: in pieces of %d rows", name, each);
            check_bits(what, z, y, size);
        }
        c.ops->weight_destroy(c.be, &w);
        check_close_be(&c);
    }
    free(y), free(z);
    gemm_destroy(&g);
}

/* Infinite and NaN inputs stay in their row, zero weights give exact zeros, big values do not wrap.
 */
static void edge_values(const struct check_tier *tier, enum hr_dtype act) {
    enum { M = 5, N = 40, K = 37 };
    struct gemm g = gemm_create(M, N, K, act, 0);
    for (int i = 0; i < K; i++) g.x[1 * K + i] = NAN;
    g.x[2 * K + 3] = INFINITY;
    for (int i = 0; i < K; i++) g.x[3 * K + i] = 0;
    for (int i = 0; i < K; i++) g.x[4 * K + i] = round_act(1e30f, act);
    struct check_be c = check_open(tier->mask, act, 1, M);
    struct hr_weight *w = check_weight(&c, N, K, g.w);
    float y[M * N], alone[N];
    run(&c, &g, w, 0, M, y);
    char name[128];
    snprintf(name, sizeof name, "gemm_%s_edges_%s", check_act_names[act], tier->name);
    for (int j = 0; j < N; j++) {
        check_true(name, isnan(y[N + j]) && !isfinite(y[2 * N + j]) && y[3 * N + j] == 0 &&
                             isfinite(y[4 * N + j]) && isfinite(y[j]));
    }
    run(&c, &g, w, 0, 1, alone);
    check_bits(name, y, alone, N);
    c.ops->weight_destroy(c.be, &w);
    check_close_be(&c);
    gemm_destroy(&g);
}

/* Rows written one by one, in any order, by their number. */
static void weights_in_pieces(const struct check_tier *tier, enum hr_dtype act) {
    enum { M = 2, N = 70, K = 9 };
    struct gemm g = gemm_create(M, N, K, act, 0);
    struct check_be c = check_open(tier->mask, act, 1, M);
    struct hr_weight *w = check_weight(&c, N, K, g.w), *v = NULL;
    struct hr_err err;
    check_ok(c.ops->weight_create(c.be, N, K, "pieces", &v, &err), &err);
    for (int r = N; r > 0;) {
        int n = r < 7 ? r : 7;
        r -= n;
        c.ops->weight_write(c.be, v, r, n, g.w + r * K);
    }
    float a[M * N], b[M * N];
    run(&c, &g, w, 0, M, a);
    run(&c, &g, v, 0, M, b);
    check_bits("gemm: weights written in pieces", a, b, M * N);
    c.ops->weight_destroy(c.be, &w);
    c.ops->weight_destroy(c.be, &v);
    check_close_be(&c);
    gemm_destroy(&g);
}

static void cases(const struct check_tier *tier) {
    static const int ms[] = {1, 2, 3, 5, 12, 13, 26, 50}, ns[] = {1, 31, 33, 64, 130, 260};
    static const int ks[] = {1, 2, 3, 17, 64, 129};
    int variant = 0;
    for (int act = HR_F32; act <= HR_BF16; act++) {
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
            for (size_t j = 0; j < sizeof ns / sizeof *ns; j++)
                one_shape(tier, ms[i], ns[j], ks[(i + j) % 6], (enum hr_dtype)act, variant++);
        one_shape(tier, 20, 576, 576, (enum hr_dtype)act, variant++);
        one_shape(tier, 2, 96, 5001, (enum hr_dtype)act, variant++);
        one_shape(tier, 300, 40, 33, (enum hr_dtype)act, variant++);
        edge_values(tier, (enum hr_dtype)act);
        weights_in_pieces(tier, (enum hr_dtype)act);
    }
}

static void bench(const struct check_tier *tier) {
    static const int shapes[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
    static const int ms[] = {1, 8, 32, 128};
    int n_threads = hr_pool_usable_cores();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int n = shapes[i][0], k = shapes[i][1];
        struct check_be c = check_open(tier->mask, HR_BF16, n_threads, 128);
        /* copies of the weight, more than the caches hold, taken in turn as layers are */
        int n_copies = (int)(100e6 / (2.0 * n * k)) + 1;
        float *data = rand_array((size_t)n * (size_t)k, 1),
              *x = rand_array((size_t)128 * (size_t)k, 1);
        struct hr_weight **w = hr_xcalloc((size_t)n_copies, sizeof *w);
        for (int j = 0; j < n_copies; j++) w[j] = check_weight(&c, n, k, data);
        struct hr_tensor *tx = check_tensor(&c, HR_BF16, 128, k, x),
                         *ty = check_tensor(&c, HR_F32, 128, n, NULL);
        for (size_t m = 0; m < sizeof ms / sizeof *ms; m++) {
            int n_runs = -n_copies; /* the first round is not timed */
            int64_t t0 = hr_clock_ns();
            for (; n_runs < n_copies || hr_clock_ns() - t0 < 200000000; n_runs++) {
                if (n_runs == 0) t0 = hr_clock_ns();
                c.ops->matmul(c.be, ty, tx, w[(n_runs + n_copies) % n_copies], NULL, ms[m], false);
            }
            double s = (double)(hr_clock_ns() - t0) * 1e-9 / n_runs;
            printf("gemm_bf16_m%d_n%d_k%d_%s %d threads: %8.1f us %7.1f GFLOP/s %6.1f GB/s of "
                   "weights\n",
                   ms[m], n, k, tier->name, n_threads, s * 1e6, 2e-9 * ms[m] * n * k / s,
                   2e-9 * n * k / s);
        }
        for (int j = 0; j < n_copies; j++) c.ops->weight_destroy(c.be, &w[j]);
        c.ops->tensor_destroy(c.be, &tx);
        c.ops->tensor_destroy(c.be, &ty);
        free(data), free(x), free(w);
        if (i == 0) printf("read bandwidth %.1f GB/s\n", hr_cpu_read_bandwidth(c.pool) * 1e-9);
        check_close_be(&c);
    }
}

int main(int argc, char **argv) {
    return check_main(argc, argv, cases, bench);
}

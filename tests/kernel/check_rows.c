/* SPDX-License-Identifier: Apache-2.0
 *
 * check_rows: the operations on single rows against f64: embedding, norms, rotary positions with
 * and without head norms, gated activations, soft caps, and the exponential that softmax and
 * sampling share.
 *
 * Tolerances: u = 2^-24 is one rounding. A mean of n squares is off by at most (n / 16 + 6) u, half
 * of it after the root; exp by 4 u over its whole range (its argument's reduction 2, the polynomial
 * and the scaling 2); results in act are rounded once more. */
#include "check.h"

#include "backend/cpu/lanes.h"

static double act_tol(double v, double tol, enum hr_dtype act) {
    return act == HR_BF16 ? tol + (fabs(v) + tol) * EPS_BF16 : tol;
}

/* Values as `act` keeps them through a tensor. */
struct op {
    struct check_be c;
    enum hr_dtype act;
    const char *tier;
    struct hr_batch batch;
    struct hr_batch_seq seq;
    int32_t tokens[64], positions[64], slots[64], page0, out_rows[64];
};

static void op_open(struct op *o, const struct check_tier *tier, enum hr_dtype act, int threads,
                    int n) {
    memset(o, 0, sizeof *o);
    o->c = check_open(tier->mask, act, threads, 64);
    o->act = act;
    o->tier = tier->name;
    for (int i = 0; i < n; i++) o->positions[i] = rand_int(0, 99), o->slots[i] = i % HR_PAGE_TOKENS;
    o->seq = (struct hr_batch_seq){0, n, 0, &o->page0};
    o->batch = (struct hr_batch){.n_tokens = n,
                                 .tokens = o->tokens,
                                 .positions = o->positions,
                                 .slots = o->slots,
                                 .n_seqs = 1,
                                 .seqs = &o->seq,
                                 .out_rows = o->out_rows};
    o->c.ops->step_begin(o->c.be, &o->batch);
}

static void op_close(struct op *o) {
    o->c.ops->step_end(o->c.be);
    check_close_be(&o->c);
}

static void embed_case(const struct check_tier *tier, enum hr_dtype act, int vocab, int dim,
                       int n) {
    struct op o;
    op_open(&o, tier, act, 1 + n % 3, n);
    float *w = rand_array((size_t)vocab * (size_t)dim, 1),
          *y = hr_xmalloc((size_t)n * (size_t)dim * 4);
    struct hr_weight *tw = check_weight(&o.c, vocab, dim, w);
    struct hr_tensor *ty = check_tensor(&o.c, HR_F32, n, dim, NULL);
    for (int i = 0; i < n; i++) o.tokens[i] = i == 0 ? vocab - 1 : rand_int(0, vocab - 1);
    o.c.ops->embed(o.c.be, ty, tw, 1.5f);
    o.c.ops->tensor_read(o.c.be, ty, 0, n, y);
    char name[96];
    snprintf(name, sizeof name, "embed_%s_v%d_d%d_m%d_%s", check_act_names[act], vocab, dim, n,
             o.tier);
    for (int i = 0; i < n; i++)
        for (int d = 0; d < dim; d++)
            check_true(name, y[i * dim + d] == round_act(w[o.tokens[i] * dim + d], act) * 1.5f);
    free(w), free(y);
    o.c.ops->weight_destroy(o.c.be, &tw);
    o.c.ops->tensor_destroy(o.c.be, &ty);
    op_close(&o);
}

static void want_norm(const float *x, const float *w, int n, double eps, double *y, double *tol) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    double inv = 1 / sqrt(sum / n + eps);
    for (int i = 0; i < n; i++) {
        y[i] = (double)x[i] * inv * (double)w[i];
        tol[i] = fabs(y[i]) * ((n / 16 + 6) / 2.0 + 4) * EPS_F32;
    }
}

static void norm_case(const struct check_tier *tier, enum hr_dtype act, int dim, int n,
                      bool only_out, float size) {
    struct op o;
    op_open(&o, tier, act, 1 + dim % 3, n);
    for (int i = 0; i < n; i++)
        if (i % 3 != 1) o.out_rows[o.batch.n_out++] = i;
    float *x = rand_array((size_t)n * (size_t)dim, size), *w = rand_array((size_t)dim, 2);
    struct hr_tensor *tx = check_tensor(&o.c, HR_F32, n, dim, x),
                     *tw = check_tensor(&o.c, HR_F32, 1, dim, w);
    struct hr_tensor *ty = check_tensor(&o.c, act, n, dim, NULL);
    o.c.ops->rmsnorm(o.c.be, ty, tx, tw, 1e-5f, only_out);
    float *y = hr_xmalloc((size_t)n * (size_t)dim * 4);
    o.c.ops->tensor_read(o.c.be, ty, 0, n, y);
    double *want = hr_xmalloc((size_t)dim * 8), *tol = hr_xmalloc((size_t)dim * 8);
    char name[96];
    snprintf(name, sizeof name, "rmsnorm_%s_d%d_m%d%s_%s", check_act_names[act], dim, n,
             only_out ? "_out" : "", o.tier);
    for (int i = 0; i < (only_out ? o.batch.n_out : n); i++) {
        want_norm(x + (only_out ? o.out_rows[i] : i) * dim, w, dim, (double)1e-5f, want, tol);
        for (int d = 0; d < dim; d++) tol[d] = act_tol(want[d], tol[d], act);
        check_close(name, y + i * dim, want, tol, (size_t)dim);
    }
    free(x), free(w), free(y), free(want), free(tol);
    struct hr_tensor **all[] = {&tx, &tw, &ty};
    for (int i = 0; i < 3; i++) o.c.ops->tensor_destroy(o.c.be, all[i]);
    op_close(&o);
}

/* silu_mul, or gelu_mul. */
static void gate_case(const struct check_tier *tier, enum hr_dtype act, int n_ff, int n,
                      bool gelu) {
    struct op o;
    op_open(&o, tier, act, 1 + n_ff % 3, n);
    float *x = rand_array((size_t)n * 2 * (size_t)n_ff, 12);
    static const float edges[] = {0, -0.0f, 80, -80, 300, -300, 1e-30f, -1e-30f, 88.4f, -88.4f};
    for (int i = 0; i < n_ff && i < 10; i++) x[i] = edges[i];
    struct hr_tensor *tx = check_tensor(&o.c, HR_F32, n, 2 * n_ff, x),
                     *ty = check_tensor(&o.c, act, n, n_ff, NULL);
    (gelu ? o.c.ops->gelu_mul : o.c.ops->silu_mul)(o.c.be, ty, tx);
    size_t size = (size_t)n * (size_t)n_ff;
    float *y = hr_xmalloc(size * 4);
    o.c.ops->tensor_read(o.c.be, ty, 0, n, y);
    double *want = hr_xmalloc(size * 8), *tol = hr_xmalloc(size * 8);
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < n_ff; d++) {
            double g = (double)x[i * 2 * n_ff + d], u = (double)x[(i * 2 + 1) * n_ff + d];
            size_t at = (size_t)i * (size_t)n_ff + (size_t)d;
            /* what exp sees, and its size: 4 roundings of it move the result by as much */
            double z = gelu ? 2 * sqrt(2 / M_PI) * (g + 0.044715 * g * g * g) : g;
            double near = gelu ? fabs(z) < 90 ? 5 * fabs(z) : 0 : 0;
            want[at] = g / (1 + exp(-z)) * u;
            /* below exp's range the quotient ends at |g| e^-88.3: as good as the 0 that is wanted
             */
            tol[at] = act_tol(
                want[at], fabs(want[at]) * (8 + near) * EPS_F32 + fabs(g * u) * 5e-39 + 1e-38, act);
        }
    }
    char name[96];
    snprintf(name, sizeof name, "%s_mul_%s_n%d_m%d_%s", gelu ? "gelu" : "silu",
             check_act_names[act], n_ff, n, o.tier);
    check_close(name, y, want, tol, size);
    free(x), free(y), free(want), free(tol);
    o.c.ops->tensor_destroy(o.c.be, &tx);
    o.c.ops->tensor_destroy(o.c.be, &ty);
    op_close(&o);
}

/* q of rope_write; k and v are seen through attend with one position, which gives v back. */
static void rope_case(const struct check_tier *tier, enum hr_dtype act, int heads, int kv, int dim,
                      int rope_dim, bool norms) {
    enum { N = 10 };
    struct op o;
    op_open(&o, tier, act, 1 + dim % 2, N);
    int cols = (heads + 2 * kv) * dim;
    float *x = rand_array((size_t)N * (size_t)cols, 3),
          *cs = rand_array((size_t)100 * (size_t)rope_dim, 1);
    float *qw = rand_array((size_t)dim, 2), *kw = rand_array((size_t)dim, 2);
    struct hr_attn_shape shape = {heads, kv, dim, rope_dim, 0.125f, 1e-6f, 0};
    struct hr_kv_store *store = NULL;
    struct hr_err err;
    check_ok(o.c.ops->kv_create(o.c.be, act, 1, 2, 0, &shape, &store, &err), &err);
    struct hr_tensor *tx = check_tensor(&o.c, HR_F32, N, cols, x),
                     *tc = check_tensor(&o.c, HR_F32, 100, rope_dim, cs);
    struct hr_tensor *tq = check_tensor(&o.c, act, N, heads * dim, NULL);
    struct hr_tensor *tqw = check_tensor(&o.c, HR_F32, 1, dim, qw),
                     *tkw = check_tensor(&o.c, HR_F32, 1, dim, kw);
    o.c.ops->rope_write(o.c.be, tq, store, 0, tx, norms ? tqw : NULL, norms ? tkw : NULL, tc);
    float *y = hr_xmalloc((size_t)N * (size_t)(heads * dim) * 4);
    o.c.ops->tensor_read(o.c.be, tq, 0, N, y);
    double *want = hr_xmalloc((size_t)dim * 8), *tol = hr_xmalloc((size_t)dim * 8);
    char name[96];
    snprintf(name, sizeof name, "rope_%s_h%d_d%d_r%d%s_%s", check_act_names[act], heads, dim,
             rope_dim, norms ? "_norm" : "", o.tier);
    for (int i = 0; i < N; i++) {
        for (int h = 0; h < heads; h++) {
            const float *in = x + i * cols + h * dim, *rot = cs + o.positions[i] * rope_dim;
            for (int d = 0; d < dim; d++) want[d] = (double)in[d], tol[d] = 0;
            if (norms) want_norm(in, qw, dim, 1e-6, want, tol);
            for (int d = 0; d < rope_dim / 2; d++) {
                int e = d + rope_dim / 2;
                double a = want[d], b = want[e], c = (double)rot[d], s = (double)rot[e];
                double moved = fabs(tol[d]) + fabs(tol[e]) + 3 * EPS_F32 * (fabs(a) + fabs(b));
                want[d] = a * c - b * s;
                want[e] = b * c + a * s;
                tol[d] = tol[e] = moved;
            }
            for (int d = 0; d < dim; d++) tol[d] = act_tol(want[d], tol[d], act);
            check_close(name, y + (i * heads + h) * dim, want, tol, (size_t)dim);
        }
    }
    free(x), free(cs), free(qw), free(kw), free(y), free(want), free(tol);
    struct hr_tensor **all[] = {&tx, &tc, &tq, &tqw, &tkw};
    for (int i = 0; i < 5; i++) o.c.ops->tensor_destroy(o.c.be, all[i]);
    o.c.ops->kv_destroy(o.c.be, &store);
    op_close(&o);
}

/* A norm over all heads of q or k at once, and no rotation: by hand, and then plain, must give the
 * same attention. */
static void wide_norm_case(const struct check_tier *tier, enum hr_dtype act) {
    enum { N = 10, HEADS = 4, KV = 2, DIM = 32, COLS = (HEADS + 2 * KV) * DIM };
    float *x = rand_array(N * COLS, 2), *w = rand_array((HEADS + KV) * DIM, 2);
    float y[2][N * HEADS * DIM];
    for (int by_hand = 0; by_hand < 2; by_hand++) {
        struct op o;
        op_open(&o, tier, act, 1, N);
        struct hr_attn_shape shape = {HEADS, KV, DIM, DIM, 0.3f, 1e-6f, 0};
        struct hr_kv_store *store = NULL;
        struct hr_err err;
        check_ok(o.c.ops->kv_create(o.c.be, act, 1, 2, 0, &shape, &store, &err), &err);
        for (int i = 0; i < N && by_hand; i++) {
            float *q = x + i * COLS, *k = q + HEADS * DIM;
            lanes_rmsnorm(q, q, w, HEADS * DIM, 1e-6f);
            lanes_rmsnorm(k, k, w + HEADS * DIM, KV * DIM, 1e-6f);
        }
        struct hr_tensor *tx = check_tensor(&o.c, HR_F32, N, COLS, x);
        struct hr_tensor *tq = check_tensor(&o.c, act, N, HEADS * DIM, NULL);
        struct hr_tensor *ty = check_tensor(&o.c, act, N, HEADS * DIM, NULL);
        struct hr_tensor *tqw = check_tensor(&o.c, HR_F32, 1, HEADS * DIM, w),
                         *tkw = check_tensor(&o.c, HR_F32, 1, KV * DIM, w + HEADS * DIM);
        o.c.ops->rope_write(o.c.be, tq, store, 0, tx, by_hand ? NULL : tqw, by_hand ? NULL : tkw,
                            NULL);
        o.c.ops->attend(o.c.be, ty, tq, store, 0, 0);
        o.c.ops->tensor_read(o.c.be, ty, 0, N, y[by_hand]);
        struct hr_tensor **all[] = {&tx, &tq, &ty, &tqw, &tkw};
        for (int i = 0; i < 5; i++) o.c.ops->tensor_destroy(o.c.be, all[i]);
        o.c.ops->kv_destroy(o.c.be, &store);
        op_close(&o);
    }
    check_bits("rope: norms over all heads, no rotation", y[0], y[1], N * HEADS * DIM);
    free(x), free(w);
}

/* x + norm(y), and x rounded to act. */
static void add_norm_case(const struct check_tier *tier, enum hr_dtype act, int dim, int n) {
    struct op o;
    op_open(&o, tier, act, 1 + dim % 3, n);
    size_t size = (size_t)n * (size_t)dim;
    float *x = rand_array(size, 3), *y = rand_array(size, 5), *w = rand_array((size_t)dim, 2);
    struct hr_tensor *tx = check_tensor(&o.c, HR_F32, n, dim, x),
                     *ty = check_tensor(&o.c, HR_F32, n, dim, y),
                     *tw = check_tensor(&o.c, HR_F32, 1, dim, w),
                     *th = check_tensor(&o.c, act, n, dim, NULL);
    o.c.ops->to_act(o.c.be, th, tx);
    o.c.ops->add_rmsnorm(o.c.be, tx, ty, tw, 1e-5f);
    float *got = hr_xmalloc(size * 4), *rounded = hr_xmalloc(size * 4);
    o.c.ops->tensor_read(o.c.be, tx, 0, n, got);
    o.c.ops->tensor_read(o.c.be, th, 0, n, rounded);
    double *want = hr_xmalloc((size_t)dim * 8), *tol = hr_xmalloc((size_t)dim * 8);
    char name[96];
    snprintf(name, sizeof name, "add_rmsnorm_%s_d%d_m%d_%s", check_act_names[act], dim, n, o.tier);
    for (int i = 0; i < n; i++) {
        want_norm(y + i * dim, w, dim, (double)1e-5f, want, tol);
        for (int d = 0; d < dim; d++) {
            want[d] += (double)x[i * dim + d];
            tol[d] += fabs(want[d]) * EPS_F32;
            check_true(name, rounded[i * dim + d] == round_act(x[i * dim + d], act));
        }
        check_close(name, got + i * dim, want, tol, (size_t)dim);
    }
    free(x), free(y), free(w), free(got), free(rounded), free(want), free(tol);
    struct hr_tensor **all[] = {&tx, &ty, &tw, &th};
    for (int i = 0; i < 4; i++) o.c.ops->tensor_destroy(o.c.be, all[i]);
    op_close(&o);
}

/* Of the first rows only; 6 roundings of the argument and of tanh, 1 of the product. */
static void softcap_case(const struct check_tier *tier, enum hr_dtype act, int n, float cap) {
    enum { ROWS = 5, CAPPED = 4 };
    struct op o;
    op_open(&o, tier, act, 2, ROWS);
    size_t size = (size_t)ROWS * (size_t)n;
    float *x = rand_array(size, 4 * cap);
    static const float edges[] = {0, -0.0f, 1e-30f, -1e-8f, 0.62f, -0.63f, 1e30f, -1e38f};
    for (int i = 0; i < n && i < 8; i++) x[i] = edges[i] * (i < 6 ? cap : 1);
    float *got = hr_xmalloc(size * 4);
    double *want = hr_xmalloc(size * 8), *tol = hr_xmalloc(size * 8);
    struct hr_tensor *tx = check_tensor(&o.c, HR_F32, ROWS, n, x);
    o.c.ops->softcap(o.c.be, tx, CAPPED, cap);
    o.c.ops->tensor_read(o.c.be, tx, 0, ROWS, got);
    for (size_t i = 0; i < size; i++) {
        want[i] =
            i < CAPPED * (size_t)n ? tanh((double)x[i] / (double)cap) * (double)cap : (double)x[i];
        tol[i] = i < CAPPED * (size_t)n ? fabs(want[i]) * 7 * EPS_F32 + 1e-44 : 0;
    }
    char name[96];
    snprintf(name, sizeof name, "softcap_n%d_cap%g_%s", n, (double)cap, o.tier);
    check_close(name, got, want, tol, size);
    x[0] = NAN, x[n - 1] = INFINITY, x[n] = -INFINITY;
    o.c.ops->tensor_write(o.c.be, tx, 0, ROWS, x);
    o.c.ops->softcap(o.c.be, tx, CAPPED, cap);
    o.c.ops->tensor_read(o.c.be, tx, 0, ROWS, got);
    check_true(name, isnan(got[0]) && isnan(got[n - 1]) && isnan(got[n]) && !isnan(got[n + 1]));
    free(x), free(got), free(want), free(tol);
    o.c.ops->tensor_destroy(o.c.be, &tx);
    op_close(&o);
}

/* k is not seen from outside, so: norms and rotation by rope_write, and by hand before it, must
 * give the same attention. Rows are in one block, so that positions see several k. */
static void rope_k_case(const struct check_tier *tier, enum hr_dtype act) {
    enum { N = 10, HEADS = 4, KV = 2, DIM = 32, ROPE = 24, COLS = (HEADS + 2 * KV) * DIM };
    float *x = rand_array(N * COLS, 2), *cs = rand_array(100 * ROPE, 1),
          *w = rand_array(2 * DIM, 2);
    float y[2][N * HEADS * DIM];
    for (int by_hand = 0; by_hand < 2; by_hand++) {
        struct op o;
        op_open(&o, tier, act, 1, N);
        struct hr_attn_shape shape = {HEADS, KV, DIM, ROPE, 0.3f, 1e-6f, 0};
        struct hr_kv_store *store = NULL;
        struct hr_err err;
        check_ok(o.c.ops->kv_create(o.c.be, act, 1, 2, 0, &shape, &store, &err), &err);
        for (int i = 0; i < N; i++) o.positions[i] = 7 * i;
        for (int i = 0; i < N * (HEADS + KV) && by_hand; i++) {
            int row = i / (HEADS + KV), h = i % (HEADS + KV);
            float *head = x + row * COLS + h * DIM;
            lanes_rmsnorm(head, head, h < HEADS ? w : w + DIM, DIM, 1e-6f);
            lanes_rope(head, cs + o.positions[row] * ROPE, ROPE);
        }
        for (int i = 0; i < 100 * ROPE && by_hand; i++) cs[i] = i % ROPE < ROPE / 2;
        struct hr_tensor *tx = check_tensor(&o.c, HR_F32, N, COLS, x),
                         *tc = check_tensor(&o.c, HR_F32, 100, ROPE, cs);
        struct hr_tensor *tq = check_tensor(&o.c, act, N, HEADS * DIM, NULL);
        struct hr_tensor *ty = check_tensor(&o.c, act, N, HEADS * DIM, NULL);
        struct hr_tensor *tqw = check_tensor(&o.c, HR_F32, 1, DIM, w),
                         *tkw = check_tensor(&o.c, HR_F32, 1, DIM, w + DIM);
        o.c.ops->rope_write(o.c.be, tq, store, 0, tx, by_hand ? NULL : tqw, by_hand ? NULL : tkw,
                            tc);
        o.c.ops->attend(o.c.be, ty, tq, store, 0, 0);
        o.c.ops->tensor_read(o.c.be, ty, 0, N, y[by_hand]);
        struct hr_tensor **all[] = {&tx, &tc, &tq, &ty, &tqw, &tkw};
        for (int i = 0; i < 6; i++) o.c.ops->tensor_destroy(o.c.be, all[i]);
        o.c.ops->kv_destroy(o.c.be, &store);
        op_close(&o);
    }
    check_bits("rope: k norms and rotation by hand", y[0], y[1], N * HEADS * DIM);
    free(x), free(cs), free(w);
}

static void exp_cases(void) {
    double worst = 0;
    for (int i = 0; i < 2000000; i++) {
        float x = -87.3f + 175.6f * (float)i / 2000000.0f;
        double want = exp((double)x), err = fabs((double)exp_f32(x) - want) / want;
        if (err > worst) worst = err;
    }
    check_true("exp: within 4 roundings of libm", worst <= 4 * EPS_F32);
    if (worst / (4 * EPS_F32) > check_worst_share) check_worst_share = worst / (4 * EPS_F32);
    check_true("exp: 1 at 0", exp_f32(0) == 1 && exp_f32(-0.0f) == 1);
    check_true("exp: an exact 0 far below", exp_f32(-INFINITY) == 0 && exp_f32(-88) == 0);
    check_true("exp: finite far above",
               exp_f32(INFINITY) == exp_f32(88.3f) && exp_f32(1000) < INFINITY);
    check_true("exp: NaN stays NaN", isnan(exp_f32(NAN)) && isnan(exp_f32(-NAN)));
}

/* Every bf16 value survives, ties go to even, NaN stays NaN and infinity infinite. */
static void bf16_cases(const struct check_tier *tier) {
    struct check_be c = check_open(tier->mask, HR_BF16, 1, 4);
    static const float in[] = {1.00390625f, 1.01171875f, 3.4e38f, -1e-45f, 0x1.7fp-130f};
    static const float out[] = {1, 1.015625f, INFINITY, -0.0f, 0x1.8p-130f};
    float got[5], nan = NAN;
    struct hr_tensor *t = check_tensor(&c, HR_BF16, 1, 5, in);
    c.ops->tensor_read(c.be, t, 0, 1, got);
    check_bits("bf16: rounding", got, out, 5);
    c.ops->tensor_destroy(c.be, &t);
    uint32_t bits = 0x7f800001u; /* the smallest NaN: its payload is in the bits that go */
    memcpy(&nan, &bits, 4);
    t = check_tensor(&c, HR_BF16, 1, 1, &nan);
    c.ops->tensor_read(c.be, t, 0, 1, got);
    check_true("bf16: NaN stays NaN", isnan(got[0]));
    c.ops->tensor_destroy(c.be, &t);
    float *all = hr_xmalloc(65536 * sizeof *all), *back = hr_xmalloc(65536 * sizeof *back);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t u = (i & 0x7f80) == 0x7f80 ? 0 : i << 16;
        memcpy(&all[i], &u, 4);
    }
    t = check_tensor(&c, HR_BF16, 1, 65536, all);
    c.ops->tensor_read(c.be, t, 0, 1, back);
    check_bits("bf16: every value comes back", back, all, 65536);
    free(all), free(back);
    c.ops->tensor_destroy(c.be, &t);
    check_close_be(&c);
}

static void cases(const struct check_tier *tier) {
    struct hr_cpu_kernels k = {0};
    lanes_fill(&k);
    check_true("lanes: in the table", k.silu_mul == lanes_silu_mul);
    exp_cases();
    bf16_cases(tier);
    for (int a = HR_F32; a <= HR_BF16; a++) {
        enum hr_dtype act = (enum hr_dtype)a;
        embed_case(tier, act, 70, 33, 9);
        embed_case(tier, act, 1, 1, 1);
        embed_case(tier, act, 200, 576, 40);
        static const int dims[] = {1, 15, 16, 17, 33, 64, 576, 1000};
        for (int i = 0; i < 8; i++) {
            norm_case(tier, act, dims[i], 1, false, 1);
            norm_case(tier, act, dims[i], 20, i % 2, i == 3 ? 1e-6f : i == 4 ? 1e15f : 1);
            gate_case(tier, act, dims[i], 1 + i * 3, false);
            gate_case(tier, act, dims[i], 1 + i * 3, true);
            add_norm_case(tier, act, dims[i], 1 + i * 3);
        }
        rope_case(tier, act, 9, 3, 64, 64, false);
        rope_case(tier, act, 4, 2, 33, 32, true);
        rope_case(tier, act, 3, 1, 128, 64, true);
        rope_case(tier, act, 2, 2, 16, 2, false);
        rope_k_case(tier, act);
        wide_norm_case(tier, act);
        softcap_case(tier, act, 33, 30);
        softcap_case(tier, act, 1000, 0.5f);
    }
}

static void bench(const struct check_tier *tier) {
    enum { M = 32, DIM = 576, FF = 1536, RUNS = 2000 };
    struct op o;
    op_open(&o, tier, HR_BF16, 1, M);
    struct hr_tensor *x = check_tensor(&o.c, HR_F32, M, DIM, NULL),
                     *w = check_tensor(&o.c, HR_F32, 1, DIM, NULL);
    struct hr_tensor *h = check_tensor(&o.c, HR_BF16, M, DIM, NULL);
    struct hr_tensor *g = check_tensor(&o.c, HR_F32, M, 2 * FF, NULL),
                     *a = check_tensor(&o.c, HR_BF16, M, FF, NULL);
    int64_t t0 = hr_clock_ns();
    for (int i = 0; i < RUNS; i++) o.c.ops->rmsnorm(o.c.be, h, x, w, 1e-5f, false);
    int64_t t1 = hr_clock_ns();
    for (int i = 0; i < RUNS; i++) o.c.ops->silu_mul(o.c.be, a, g);
    int64_t t2 = hr_clock_ns();
    printf("rmsnorm_d%d_%s %.2f us a row\nsilu_mul_n%d_%s %.2f us a row\n", DIM, tier->name,
           (double)(t1 - t0) * 1e-3 / RUNS / M, FF, tier->name,
           (double)(t2 - t1) * 1e-3 / RUNS / M);
    struct hr_tensor **all[] = {&x, &w, &h, &g, &a};
    for (int i = 0; i < 5; i++) o.c.ops->tensor_destroy(o.c.be, all[i]);
    op_close(&o);
}

int main(int argc, char **argv) {
    return check_main(argc, argv, cases, bench);
}

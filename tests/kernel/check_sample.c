/* SPDX-License-Identifier: Apache-2.0
 *
 * check_sample: the sampler against a plain one that sorts the whole vocabulary and adds in f64,
 * and its edges: ties, NaN, infinities, filters that are off, penalties.
 *
 * The plain one draws the same token unless `uniform` falls within the two sums' rounding of a
 * border between two tokens; cases that near are left out (counted, at most one in twenty). */
#include "check.h"

/* The plain sampler; -1: no token, -2: too near a border to say. */
static int plain(const float *logits, int n, const struct hr_sample_row *r, double *logprob) {
    struct entry *e = hr_xmalloc((size_t)n * sizeof *e);
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        e[i] = (struct entry){(double)logits[i], i};
        if (e[i].z > max) max = e[i].z;
    }
    for (int i = 0; i < n; i++) sum += exp(e[i].z - max);
    double lse = max + log(sum);
    for (int i = 0; i < r->n_seen; i++) {
        float *raw = &(float){logits[r->seen[i]]}, v = *raw;
        v = v > 0 ? v / r->repetition_penalty : v * r->repetition_penalty;
        v -= (float)r->seen_count[i] * r->frequency_penalty;
        if (r->seen_count[i] > 0) v -= r->presence_penalty;
        e[r->seen[i]].z = (double)v;
    }
    for (int i = 0; i < r->n_banned; i++) e[r->banned[i]].z = -INFINITY;
    qsort(e, (size_t)n, sizeof *e, by_rank);
    int kept = 1, pick = 0;
    bool near = false;
    if (r->temperature >= HR_TEMPERATURE_MIN) {
        double *p = hr_xmalloc((size_t)n * sizeof *p), mass = 0, cum = 0;
        for (int i = 0; i < n; i++) p[i] = exp((e[i].z - e[0].z) / (double)r->temperature);
        kept = r->top_k > 0 && r->top_k < n ? r->top_k : n;
        for (int i = 0; i < kept; i++) mass += p[i];
        if (r->top_p < 1) {
            int k = 0;
            for (; k < kept; k++) {
                cum += p[k];
                near |= fabs(cum - (double)r->top_p * mass) < 1e-5 * mass && kept - k > 1;
                if (cum >= (double)r->top_p * mass) break;
            }
            if (k < kept) kept = k + 1;
        }
        while (r->min_p > 0 && kept > 1 && p[kept - 1] < (double)r->min_p) kept--;
        for (int i = 0; r->min_p > 0 && i < n; i++)
            near |= fabs(p[i] - (double)r->min_p) < 1e-5 * p[i];
        mass = cum = 0;
        for (int i = 0; i < kept; i++) mass += p[i];
        for (pick = 0; pick < kept - 1; pick++) {
            cum += p[pick];
            near |= fabs(cum - r->uniform * mass) < 1e-5 * mass;
            if (cum >= r->uniform * mass) break;
        }
        free(p);
    }
    int token = e[pick].id;
    *logprob = (double)logits[token] - lse;
    free(e);
    return near ? -2 : token;
}

static void make_logits(float *x, int n, int kind) {
    for (int i = 0; i < n; i++) {
        float u = rand_f();
        x[i] = kind == 0   ? u * 4
               : kind == 1 ? u * 12 - 3
               : kind == 2 ? (float)rand_int(-3, 3)
                           : u * 40;
        if (kind == 1 && i % 97 == 0) x[i] = 8 + u;
        if (kind == 3 && i % 5 == 1) x[i] = -INFINITY;
    }
}

static struct hr_sampled one(struct check_be *c, struct hr_tensor *t, const float *x,
                             const struct hr_sample_row *row) {
    struct hr_sampled out = {.token = -7};
    c->ops->tensor_write(c->be, t, 0, 1, x);
    c->ops->sample(c->be, t, 1, row, &out);
    return out;
}

static const struct hr_sample_row row_off = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1, .uniform = 0.5};

static void against_plain(const struct check_tier *tier, int n) {
    struct check_be c = check_open(tier->mask, HR_F32, 2, 8);
    struct hr_tensor *t = check_tensor(&c, HR_F32, 8, n, NULL);
    float *x = hr_xmalloc((size_t)n * sizeof *x);
    int32_t seen[40], count[40], banned[2] = {n / 2, n - 1};
    int n_near = 0, n_cases = 400;
    static const float temps[] = {0, 0.3f, 1, 1.7f}, top_ps[] = {1, 0.95f, 0.5f, 1e-6f};
    static const float min_ps[] = {0, 0.05f, 0, 0.5f};
    static const int top_ks[] = {0, -1, 1, 5, 50, 1 << 30};
    for (int i = 0; i < n_cases; i++) {
        make_logits(x, n, i % 4);
        struct hr_sample_row r = {.temperature = temps[rand_int(0, 3)],
                                  .top_p = top_ps[rand_int(0, 3)],
                                  .min_p = min_ps[rand_int(0, 3)],
                                  .top_k = top_ks[rand_int(0, 5)],
                                  .repetition_penalty = 1,
                                  .uniform = rand_f() / 2 + 0.5};
        if (r.uniform <= 0 || r.uniform >= 1) r.uniform = 0.25;
        if (i % 3 == 0) {
            r.n_seen = n < 40 ? n : 40;
            for (int k = 0; k < r.n_seen; k++) seen[k] = k * (n / r.n_seen), count[k] = k % 3;
            r.seen = seen, r.seen_count = count;
            r.repetition_penalty = 1.2f, r.presence_penalty = 0.3f, r.frequency_penalty = 0.1f;
        }
        if (i % 5 == 0 && n > 4) r.n_banned = 2, r.banned = banned;
        double logprob;
        int want = plain(x, n, &r, &logprob);
        struct hr_sampled got = one(&c, t, x, &r);
        n_near += want == -2;
        if (want == -2) continue;
        char name[160];
        snprintf(name, sizeof name, "sample_n%d_%d_t%g_k%d_p%g_m%g_%s", n, i, (double)r.temperature,
                 r.top_k, (double)r.top_p, (double)r.min_p, tier->name);
        check_true(name, got.token == want);
        /* 4 roundings an exponential, a sum in f64, and one of the result */
        double tol = 8 * EPS_F32 * (1 + fabs(logprob));
        check_true(name, fabs((double)got.logprob - logprob) <= tol);
    }
    check_true("sample: hardly any case is too near a border", n_near * 20 <= n_cases);
    free(x);
    c.ops->tensor_destroy(c.be, &t);
    check_close_be(&c);
}

static void edges(const struct check_tier *tier) {
    enum { N = 1000 };
    struct check_be c = check_open(tier->mask, HR_BF16, 3, 8);
    struct hr_tensor *t = check_tensor(&c, HR_F32, 8, N, NULL);
    float x[8 * N];
    struct hr_sample_row r[8];
    struct hr_sampled out[8];
    for (int i = 0; i < 8; i++) {
        make_logits(x + i * N, N, 0);
        r[i] = row_off;
        if (i % 2) r[i].temperature = 0;
    }
    x[0 * N + 999] = NAN;
    x[1 * N + 0] = NAN;
    x[2 * N + 500] = INFINITY;
    for (int i = 0; i < N; i++) x[3 * N + i] = x[4 * N + i] = -INFINITY;
    for (int i = 0; i < N; i++) x[5 * N + i] = i == 7 || i == 700 ? 2.0f : 1.0f;
    for (int i = 0; i < N; i++) x[6 * N + i] = i == 31 ? -5.0f : -INFINITY;
    x[7 * N + 0] = -0.0f, x[7 * N + 1] = 0.0f;
    for (int i = 2; i < N; i++) x[7 * N + i] = -1;
    c.ops->tensor_write(c.be, t, 0, 8, x);
    c.ops->sample(c.be, t, 8, r, out);
    for (int i = 0; i < 5; i++) check_true("sample: bad logits have no token", out[i].token == -1);
    check_true("sample: greedy ties go to the lowest id", out[5].token == 7);
    check_true("sample: the only possible token", out[6].token == 31 && out[6].logprob == 0);
    check_true("sample: -0 equals 0", out[7].token == 0);

    /* top_k 0 and -1 are off, not "keep none" and not greedy: flat logits give many tokens */
    for (int k = -1; k <= 0; k++) {
        char hit[N] = {0};
        int n_hit = 0;
        for (int i = 0; i < N; i++) x[i] = 0.25f;
        for (int s = 0; s < 100; s++) {
            struct hr_sample_row row = row_off;
            row.top_k = k;
            row.uniform = (s + 0.5) / 100;
            struct hr_sampled got = one(&c, t, x, &row);
            if (!hit[got.token]++) n_hit++;
            check_true("sample: flat logits, in order of id",
                       got.token == s * 10 + 4 || got.token == s * 10 + 5);
        }
        check_true("sample: top_k off is off", n_hit == 100);
    }
    /* the last and the first token of the list */
    for (int i = 0; i < N; i++) x[i] = (float)(N - i) * 0.001f;
    struct hr_sample_row row = row_off;
    row.uniform = 0x1p-54;
    check_true("sample: the smallest uniform", one(&c, t, x, &row).token == 0);
    row.uniform = 1 - 0x1p-53;
    check_true("sample: the largest uniform", one(&c, t, x, &row).token == N - 1);
    row.top_k = 3;
    check_true("sample: never past top-k", one(&c, t, x, &row).token == 2);
    int32_t banned[2] = {0, 1};
    row.n_banned = 2, row.banned = banned;
    check_true("sample: banned tokens do not count", one(&c, t, x, &row).token == 4);
    c.ops->tensor_destroy(c.be, &t);
    check_close_be(&c);
}

/* Frequencies of 40,000 draws against the distribution: chi-square with 19 degrees of freedom stays
 * below 43.8 in 999 of 1000 runs, and the draws are the same in every run. */
static void frequencies(const struct check_tier *tier) {
    enum { N = 20, DRAWS = 40000 };
    struct check_be c = check_open(tier->mask, HR_BF16, 1, 1);
    struct hr_tensor *t = check_tensor(&c, HR_F32, 1, N, NULL);
    float x[N];
    double p[N], sum = 0, chi = 0;
    int hits[N] = {0};
    for (int i = 0; i < N; i++) x[i] = rand_f() * 2;
    for (int i = 0; i < N; i++) sum += p[i] = exp((double)x[i] / 0.8);
    for (int i = 0; i < DRAWS; i++) {
        struct hr_sample_row row = row_off;
        row.temperature = 0.8f;
        row.uniform = ((double)rand_u32() + 0.5) * 0x1p-32;
        hits[one(&c, t, x, &row).token]++;
    }
    for (int i = 0; i < N; i++) {
        double want = DRAWS * p[i] / sum;
        chi += (hits[i] - want) * (hits[i] - want) / want;
    }
    check_true("sample: frequencies follow the distribution", chi < 43.8);
    c.ops->tensor_destroy(c.be, &t);
    check_close_be(&c);
}

static void cases(const struct check_tier *tier) {
    against_plain(tier, 1);
    against_plain(tier, 37);
    against_plain(tier, 3001);
    edges(tier);
    frequencies(tier);
}

static void bench(const struct check_tier *tier) {
    enum { N = 49152, M = 32 };
    int n_threads = hr_pool_usable_cores();
    struct check_be c = check_open(tier->mask, HR_BF16, n_threads, M);
    struct hr_tensor *t = check_tensor(&c, HR_F32, M, N, NULL);
    float *x = hr_xmalloc((size_t)M * N * sizeof *x);
    struct hr_sample_row rows[M];
    struct hr_sampled out[M];
    static const char *const names[] = {"greedy", "temperature 1", "top-k 50, top-p 0.9"};
    for (int i = 0; i < M * N; i++) x[i] = rand_f() * 6 + (i % 1000 == 3 ? 6 : 0);
    for (int kind = 0; kind < 3; kind++) {
        int64_t spent = 0;
        for (int run = 0; run < 10; run++) {
            for (int i = 0; i < M; i++) {
                rows[i] = row_off;
                rows[i].temperature = kind ? 1 : 0;
                if (kind == 2) rows[i].top_k = 50, rows[i].top_p = 0.9f;
            }
            c.ops->tensor_write(c.be, t, 0, M, x);
            int64_t t0 = hr_clock_ns();
            c.ops->sample(c.be, t, M, rows, out);
            spent += hr_clock_ns() - t0;
        }
        printf("sample %d rows of %d, %s, %s %d threads: %.1f us a row\n", M, N, names[kind],
               tier->name, n_threads, (double)spent * 1e-3 / 10 / M);
    }
    free(x);
    c.ops->tensor_destroy(c.be, &t);
    check_close_be(&c);
}

int main(int argc, char **argv) {
    return check_main(argc, argv, cases, bench);
}

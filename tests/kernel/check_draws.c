/* SPDX-License-Identifier: Apache-2.0
 *
 * check_draws: the tokens that are drawn against the distribution that docs/sampling.md defines.
 *
 * That distribution is computed here in f64, by its definition and not by the sampler's way: all
 * tokens are sorted, kept and divided by what was kept. The draws use the numbers that a run uses,
 * hr_rng_uniform of (seed, stream, position). Chi-square compares the counts; a statistic that an
 * honest sampler reaches once in a million times, at either end, fails. The seeds are fixed, so a
 * case that passes once passes always. Pairs of draws that must know nothing of each other
 * (positions, seeds, streams) are compared with the product of their distributions. */
#include "base/rng.h"
#include "check.h"

#define N_DRAWS   100352
#define N_PAIRS   32768
#define BATCH     64   /* rows that one call samples */
#define P_BOUND   1e-6 /* how rare a statistic must be to fail */
#define BIN_MIN   8.0  /* expected draws of a bin: below that chi-square is no chi-square */
#define SEEN_MAX  8

enum shape {
    NORMAL,  /* bell-shaped logits, all different */
    LEVELS,  /* a hundred or less on five levels, so that every border lies between equals */
    FLAT,    /* all equal */
    ONE_BIG, /* a few tokens hold all but a thousandth */
};

struct setting {
    int n; /* vocabulary */
    enum shape shape;
    float temperature;
    int top_k;
    float top_p, min_p;
    float repetition, presence, frequency;
    int n_draws; /* 0: N_DRAWS */
};

struct exact {
    double *p; /* owned; [n], of the draw */
    int n, n_kept;
};

/* ---- chi-square ------------------------------------------------------------------------------ */

/* The regularized upper incomplete gamma function, series below a + 1, Lentz's continued fraction
 * above. Source: Press et al., Numerical Recipes, 6.2. */
static double gamma_q(double a, double x) {
    if (x <= 0) return 1;
    double front = exp(a * log(x) - x - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (int i = 1; i < 10000 && term > sum * 1e-15; i++) sum += term *= x / (a + i);
        return 1 - sum * front;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 10000; i++) {
        double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return front * h;
}

/* Compares counts with expected counts; bins that expect too little are put together. */
static void check_counts(const char *name, const int *count, const double *want, int n) {
    double chi = 0, rest_want = 0, rest_count = 0;
    int n_bins = 0;
    bool impossible = false;
    for (int i = 0; i < n; i++) {
        impossible |= want[i] == 0 && count[i] > 0;
        if (want[i] < BIN_MIN) {
            rest_want += want[i];
            rest_count += count[i];
            continue;
        }
        chi += (count[i] - want[i]) * (count[i] - want[i]) / want[i];
        n_bins++;
    }
    if (rest_want >= BIN_MIN) {
        chi += (rest_count - rest_want) * (rest_count - rest_want) / rest_want;
        n_bins++;
    }
    double p = n_bins > 1 ? gamma_q((n_bins - 1) / 2.0, chi / 2) : 0.5;
    char text[320];
    snprintf(text, sizeof text, "%s: chi-square %.4g of %d bins, p %.3g%s", name, chi, n_bins, p,
             impossible ? ", and a token that was not kept" : "");
    check_true(text, !impossible && p > P_BOUND && (n_bins < 2 || p < 1 - P_BOUND));
}

static void gamma_is_right(void) {
    /* chi-square tables: 1, 10 and 100 degrees of freedom at 0.001, 0.05 and 0.95 */
    check_true("draws: the chi-square of 1", fabs(gamma_q(0.5, 10.828 / 2) - 0.001) < 1e-6);
    check_true("draws: the chi-square of 10", fabs(gamma_q(5, 18.307 / 2) - 0.05) < 1e-6);
    check_true("draws: the chi-square of 100", fabs(gamma_q(50, 77.929 / 2) - 0.95) < 1e-5);
}

/* ---- the distribution by its definition ------------------------------------------------------ */

/* Whether a border lies so near to a token that rounding decides which side it is on. */
static bool near(double a, double b) {
    return fabs(a - b) < 1e-6 * b;
}

static struct exact exact_of(const float *logits, const struct hr_sample_row *r, int n) {
    struct entry *e = hr_xmalloc((size_t)n * sizeof *e);
    double *w = hr_xmalloc((size_t)n * sizeof *w), kept_mass = 0, mass = 0;
    struct exact out = {.p = hr_xcalloc((size_t)n, sizeof(double)), .n = n};
    bool clear = true;
    for (int i = 0; i < n; i++) e[i] = (struct entry){(double)logits[i], i};
    for (int i = 0; i < r->n_seen; i++) {
        double *z = &e[r->seen[i]].z, by = (double)r->repetition_penalty;
        *z = *z > 0 ? *z / by : *z * by;
        *z -= r->seen_count[i] * (double)r->frequency_penalty;
        *z -= r->seen_count[i] > 0 ? (double)r->presence_penalty : 0;
    }
    qsort(e, (size_t)n, sizeof *e, by_rank);
    int kept = r->top_k > 0 && r->top_k < n ? r->top_k : n;
    for (int i = 0; i < n; i++) w[i] = exp((e[i].z - e[0].z) / (double)r->temperature);
    for (int i = 0; i < kept; i++) kept_mass += w[i];
    if (r->top_p < 1) {
        int k = 0;
        for (; k < kept - 1; k++) {
            mass += w[k];
            clear &= !near(mass, (double)r->top_p * kept_mass);
            if (mass >= (double)r->top_p * kept_mass) break;
        }
        kept = k + 1;
    }
    for (int i = 0; i < kept && r->min_p > 0; i++) clear &= !near(w[i], (double)r->min_p);
    while (kept > 1 && w[kept - 1] < (double)r->min_p) kept--;
    check_true("draws: no border of a setting falls on a token", clear);
    kept_mass = 0;
    for (int i = 0; i < kept; i++) kept_mass += w[i];
    for (int i = 0; i < kept; i++) out.p[e[i].id] = w[i] / kept_mass;
    out.n_kept = kept;
    free(w);
    free(e);
    return out;
}

/* ---- draws ----------------------------------------------------------------------------------- */

struct source {
    struct check_be c;
    struct hr_tensor *t;
    float *logits; /* owned; [BATCH][n], all rows the same */
    int n;
};

static struct source source_open(const struct check_tier *tier, int n) {
    struct source s = {.c = check_open(tier->mask, HR_BF16, 1, BATCH), .n = n};
    s.t = check_tensor(&s.c, HR_F32, BATCH, n, NULL);
    s.logits = hr_xmalloc((size_t)BATCH * (size_t)n * sizeof(float));
    return s;
}

static void source_close(struct source *s) {
    s->c.ops->tensor_destroy(s->c.be, &s->t);
    check_close_be(&s->c);
    free(s->logits);
}

static void source_repeat(struct source *s) {
    for (int i = 1; i < BATCH; i++) memcpy(s->logits + (size_t)i * (size_t)s->n, s->logits, (size_t)s->n * sizeof(float));
}

/* n tokens, the i-th drawn with uniform[i]. */
static void source_draw(struct source *s, const struct hr_sample_row *row, const double *uniform,
                        int n, int32_t *tokens) {
    struct hr_sample_row rows[BATCH];
    struct hr_sampled out[BATCH];
    for (int i = 0; i < n; i += BATCH) {
        int m = n - i < BATCH ? n - i : BATCH;
        for (int k = 0; k < m; k++) {
            rows[k] = *row;
            rows[k].uniform = uniform[i + k];
        }
        s->c.ops->tensor_write(s->c.be, s->t, 0, m, s->logits);
        s->c.ops->sample(s->c.be, s->t, m, rows, out);
        for (int k = 0; k < m; k++) tokens[i + k] = out[k].token;
    }
}

static void fill_logits(float *x, int n, enum shape shape) {
    for (int i = 0; i < n; i++) {
        float bell = (rand_f() + rand_f() + rand_f()) * 2;
        switch (shape) {
        case NORMAL: x[i] = bell; break;
        case LEVELS: x[i] = i % (n / 100 + 1) ? -4 : (float)rand_int(-2, 2) * 0.5f; break;
        case FLAT: x[i] = 1.5f; break;
        case ONE_BIG: x[i] = i % (n / 4) == 1 ? 9 + bell * 0.1f : bell * 0.5f; break;
        }
    }
}

/* Tokens of the prompt alone (count 0) and of the completion, the most probable ones among them. */
static int fill_seen(const float *x, int n, int32_t *seen, int32_t *count) {
    int best = 0, n_seen = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > x[best]) best = i;
    for (int i = 0; i < n && n_seen < SEEN_MAX; i++)
        if (i == best || i % 3 == 0) seen[n_seen] = i, count[n_seen] = n_seen % 4, n_seen++;
    return n_seen;
}

static void follows(const struct check_tier *tier, const struct setting *o, uint64_t seed) {
    struct source s = source_open(tier, o->n);
    int32_t seen[SEEN_MAX], seen_count[SEEN_MAX], n_draws = o->n_draws ? o->n_draws : N_DRAWS;
    struct hr_sample_row row = {.temperature = o->temperature,
                                .top_k = o->top_k,
                                .top_p = o->top_p,
                                .min_p = o->min_p,
                                .repetition_penalty = o->repetition,
                                .presence_penalty = o->presence,
                                .frequency_penalty = o->frequency,
                                .seen = seen,
                                .seen_count = seen_count};
    fill_logits(s.logits, o->n, o->shape);
    source_repeat(&s);
    if (o->repetition != 1 || o->presence != 0 || o->frequency != 0)
        row.n_seen = fill_seen(s.logits, o->n, seen, seen_count);
    struct exact want = exact_of(s.logits, &row, o->n);
    double *uniform = hr_xmalloc((size_t)n_draws * sizeof *uniform);
    int32_t *tokens = hr_xmalloc((size_t)n_draws * sizeof *tokens);
    int *count = hr_xcalloc((size_t)o->n, sizeof *count);
    /* rows of 1024 tokens: streams one after the other, positions one after the other */
    for (int i = 0; i < n_draws; i++)
        uniform[i] = hr_rng_uniform(seed, (uint64_t)i / 1024, (uint64_t)i % 1024);
    source_draw(&s, &row, uniform, n_draws, tokens);
    for (int i = 0; i < n_draws; i++) count[tokens[i] < 0 ? 0 : tokens[i]]++;
    for (int i = 0; i < o->n; i++) want.p[i] *= n_draws;
    char name[200];
    snprintf(name, sizeof name, "draws_n%d_s%d_t%g_k%d_p%g_m%g_r%g_pp%g_fp%g_%s (%d kept)", o->n,
             (int)o->shape, (double)o->temperature, o->top_k, (double)o->top_p, (double)o->min_p,
             (double)o->repetition, (double)o->presence, (double)o->frequency, tier->name,
             want.n_kept);
    check_counts(name, count, want.p, o->n);
    free(count);
    free(tokens);
    free(uniform);
    free(want.p);
    source_close(&s);
}

static const struct setting settings[] = {
    {2, NORMAL, 1, 0, 1, 0, 1, 0, 0, 0},
    {2, FLAT, 0.7f, 0, 1, 0, 1, 0, 0, 0},
    {3, NORMAL, 1.5f, 2, 1, 0, 1, 0, 0, 0},
    {50, NORMAL, 0.7f, 0, 1, 0, 1, 0, 0, 0},
    {50, NORMAL, 1, -1, 1, 0, 1, 0, 0, 0},
    {50, NORMAL, 1.5f, 0, 1, 0, 1, 0, 0, 0},
    {50, NORMAL, 1e-3f, 0, 1, 0, 1, 0, 0, 0},
    {200, NORMAL, 1, 7, 1, 0, 1, 0, 0, 0},
    {200, NORMAL, 0.7f, 0, 0.9f, 0, 1, 0, 0, 0},
    {200, NORMAL, 1.5f, 0, 1, 0.1f, 1, 0, 0, 0},
    {200, NORMAL, 1.5f, 40, 0.8f, 0.05f, 1, 0, 0, 0},
    {90, LEVELS, 1, 30, 1, 0, 1, 0, 0, 0},
    {90, LEVELS, 0.7f, 0, 0.61f, 0, 1, 0, 0, 0},
    {90, LEVELS, 1, 70, 0.77f, 0.2f, 1, 0, 0, 0},
    {50, NORMAL, 1, 0, 1, 0, 1.3f, 0, 0, 0},
    {50, NORMAL, 1, 0, 1, 0, 0.8f, 0, 0, 0},
    {50, NORMAL, 0.7f, 0, 1, 0, 1, 0.6f, 0, 0},
    {50, NORMAL, 1, 0, 1, 0, 1, 0, 0.4f, 0},
    {50, NORMAL, 1, 0, 1, 0, 1, -0.5f, -0.2f, 0},
    {50, NORMAL, 0.7f, 20, 0.95f, 0.02f, 1.2f, 0.3f, 0.1f, 0},
    {60, LEVELS, 1, 25, 0.9f, 0, 2, 0.25f, 0.25f, 0},
    {200, FLAT, 1, 66, 1, 0, 1, 0, 0, 0},
    {1000, ONE_BIG, 1, 0, 0.9f, 0, 1, 0, 0, 0},
    {1000, NORMAL, 1, 0, 1, 0, 1, 0, 0, 0},
    /* a real vocabulary costs half a millisecond a draw, so few are drawn of few tokens */
    {151936, LEVELS, 1, 30, 1, 0, 1, 0, 0, 2048},
    {151936, ONE_BIG, 0.7f, 0, 0.6f, 0.01f, 1, 0, 0, 2048},
};

/* ---- draws that must know nothing of each other ---------------------------------------------- */

enum pairing {
    POSITIONS,      /* a token and the next one */
    FAR_POSITIONS,  /* and the one 1024 further */
    SEEDS,          /* seeds s and s + 1 */
    STREAMS,        /* streams s and s + 1 */
    SWAPPED,        /* seed a, stream b; seed b, stream a */
    SHIFTED,        /* stream s at i + 1, stream s + 1 at i */
    HIGH_SEED_BITS, /* seeds that differ in their upper half alone */
    N_PAIRINGS
};
static const char *const pairing_names[] = {"positions", "far positions",   "seeds",         "streams",
                                            "swapped",   "shifted streams", "high seed bits"};

static void pair_of(enum pairing how, uint64_t i, double *a, double *b) {
    uint64_t row = i / 64, pos = i % 64;
    switch (how) {
    case POSITIONS:
        *a = hr_rng_uniform(5, row, 2 * pos), *b = hr_rng_uniform(5, row, 2 * pos + 1);
        return;
    case FAR_POSITIONS:
        *a = hr_rng_uniform(6, row, pos), *b = hr_rng_uniform(6, row, pos + 1024);
        return;
    case SEEDS:
        *a = hr_rng_uniform(2 * row, 9, pos), *b = hr_rng_uniform(2 * row + 1, 9, pos);
        return;
    case STREAMS:
        *a = hr_rng_uniform(7, 2 * row, pos), *b = hr_rng_uniform(7, 2 * row + 1, pos);
        return;
    case SWAPPED:
        *a = hr_rng_uniform(row, row + 5000, pos), *b = hr_rng_uniform(row + 5000, row, pos);
        return;
    case SHIFTED:
        *a = hr_rng_uniform(8, 2 * row, pos + 1), *b = hr_rng_uniform(8, 2 * row + 1, pos);
        return;
    case HIGH_SEED_BITS:
        *a = hr_rng_uniform(row, 3, pos), *b = hr_rng_uniform(row | UINT64_C(1) << 32, 3, pos);
        return;
    case N_PAIRINGS: break;
    }
}

/* Counts of pairs against the product of the two distributions. */
static void independent(const struct check_tier *tier) {
    enum { N = 6 };
    struct source s = source_open(tier, N);
    struct hr_sample_row row = {.temperature = 0.9f, .top_p = 1, .repetition_penalty = 1};
    double *uniform = hr_xmalloc((size_t)2 * N_PAIRS * sizeof *uniform);
    int32_t *tokens = hr_xmalloc((size_t)2 * N_PAIRS * sizeof *tokens);
    for (int i = 0; i < N; i++) s.logits[i] = (float)i * 0.3f;
    source_repeat(&s);
    struct exact one = exact_of(s.logits, &row, N);
    for (int how = 0; how < N_PAIRINGS; how++) {
        int count[N * N] = {0};
        double want[N * N];
        char name[100];
        for (int i = 0; i < N_PAIRS; i++)
            pair_of((enum pairing)how, (uint64_t)i, &uniform[2 * i], &uniform[2 * i + 1]);
        source_draw(&s, &row, uniform, 2 * N_PAIRS, tokens);
        for (int i = 0; i < N_PAIRS; i++) count[tokens[2 * i] * N + tokens[2 * i + 1]]++;
        for (int i = 0; i < N * N; i++) want[i] = N_PAIRS * one.p[i / N] * one.p[i % N];
        snprintf(name, sizeof name, "draws: pairs of %s, %s", pairing_names[how], tier->name);
        check_counts(name, count, want, N * N);
    }
    free(one.p);
    free(tokens);
    free(uniform);
    source_close(&s);
}

/* ---- the order of the settings --------------------------------------------------------------- */

/* Four tokens of probability 0.4, 0.3, 0.2 and 0.1: which can be drawn tells in which order the
 * filters were applied. Each case has an order that would keep another set. */
struct kept_case {
    const char *name;
    float temperature;
    int top_k;
    float top_p, min_p;
    const char *kept; /* ids */
};
static const struct kept_case kept_cases[] = {
    {"top-p is of what top-k left", 1, 3, 0.75f, 0, "01"}, /* of everything: 012 */
    {"temperature before top-p", 0.5f, 0, 0.8f, 0, "01"},  /* after it: 012 */
    {"temperature before min-p", 2, 0, 1, 0.6f, "012"},    /* after it: 01 */
    {"min-p after top-p", 1, 0, 0.75f, 0.3f, "012"},       /* before it, as vLLM: 01 */
    {"min-p is of the best, whatever is left", 1, 2, 1, 0.7f, "01"}, /* of 1: none */
    {"top-p keeps the token that crosses", 1, 0, 0.45f, 0, "01"},
    {"top-p keeps one at least", 1, 0, 1e-6f, 0, "0"},
    {"min-p 1 keeps the best", 1, 0, 1, 1, "0"},
    {"top-k above the vocabulary is off", 1, 9, 1, 0, "0123"},
    {"top-k 0 is off", 1, 0, 1, 0, "0123"},
    {"top-k -1 is off", 1, -1, 1, 0, "0123"},
    {"a temperature below 1e-5 is greedy", 9.9e-6f, 0, 1, 0, "0"},
    {"the smallest temperature is greedy", 1e-45f, 0, 1, 0, "0"},
    {"temperature 0 is greedy", 0, 0, 1, 0, "0"},
    {"a temperature just above it is nearly so", 1.1e-5f, 0, 1, 0, "0"},
};

static void kept_set(struct source *s, const struct hr_sample_row *row, char *kept) {
    enum { STEPS = 1000 };
    double uniform[STEPS];
    int32_t tokens[STEPS];
    bool hit[4] = {false};
    for (int i = 0; i < STEPS; i++) uniform[i] = (i + 0.5) / STEPS;
    source_draw(s, row, uniform, STEPS, tokens);
    for (int i = 0; i < STEPS; i++) hit[tokens[i]] = true;
    for (int i = 0; i < 4; i++)
        if (hit[i]) *kept++ = (char)('0' + i);
    *kept = '\0';
}

static void filters_in_order(const struct check_tier *tier) {
    struct source s = source_open(tier, 4);
    char kept[8];
    for (int i = 0; i < 4; i++) s.logits[i] = logf((float)(4 - i) / 10);
    source_repeat(&s);
    for (size_t i = 0; i < sizeof kept_cases / sizeof *kept_cases; i++) {
        const struct kept_case *k = &kept_cases[i];
        struct hr_sample_row row = {.temperature = k->temperature,
                                    .top_k = k->top_k,
                                    .top_p = k->top_p,
                                    .min_p = k->min_p,
                                    .repetition_penalty = 1};
        kept_set(&s, &row, kept);
        check_true(k->name, strcmp(kept, k->kept) == 0);
    }
    /* Equals at the border: the lower ids stay, whichever filter it is. */
    for (int i = 0; i < 4; i++) s.logits[i] = i == 0 ? -1 : 2;
    source_repeat(&s);
    struct hr_sample_row row = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};
    kept_set(&s, &row, kept);
    check_true("greedy among equals: the lowest id", strcmp(kept, "1") == 0);
    row.temperature = 1, row.top_k = 2;
    kept_set(&s, &row, kept);
    check_true("top-k among equals: the lowest ids", strcmp(kept, "12") == 0);
    row.top_k = 0, row.top_p = 0.5f;
    kept_set(&s, &row, kept);
    check_true("top-p among equals: the lowest ids", strcmp(kept, "12") == 0);
    source_close(&s);
}

/* Greedy choice between token 0, which was seen `count` times, and token 1, which was not. */
static int penalised(struct source *s, float seen_logit, float other, int count, float repetition,
                     float presence, float frequency) {
    int32_t seen = 0, token;
    struct hr_sample_row row = {.top_p = 1,
                                .repetition_penalty = repetition,
                                .presence_penalty = presence,
                                .frequency_penalty = frequency,
                                .n_seen = 1,
                                .seen = &seen,
                                .seen_count = &count};
    s->logits[0] = seen_logit, s->logits[1] = other;
    source_draw(s, &row, &(double){0.5}, 1, &token);
    return token;
}

/* Each pair of lines stands closely below and above the value that the definition gives. */
static void penalties_count_what_they_say(const struct check_tier *tier) {
    struct source s = source_open(tier, 2);
#define BETWEEN(name, logit, count, rep, pres, freq, value)                                        \
    check_true(name, penalised(&s, logit, (value) - 0.01f, count, rep, pres, freq) == 0 &&         \
                         penalised(&s, logit, (value) + 0.01f, count, rep, pres, freq) == 1)
    BETWEEN("repetition divides what is above 0", 3, 0, 1.5f, 0, 0, 2);
    BETWEEN("repetition multiplies what is below 0", -2, 0, 1.5f, 0, 0, -3);
    BETWEEN("repetition counts once", 3, 5, 1.5f, 0, 0, 2);
    BETWEEN("a penalty below 1 is a reward", 3, 1, 0.5f, 0, 0, 6);
    BETWEEN("presence counts once", 3, 5, 1, 0.5f, 0, 2.5f);
    BETWEEN("presence leaves the prompt alone", 3, 0, 1, 0.5f, 0, 3);
    BETWEEN("frequency counts each time", 3, 5, 1, 0, 0.5f, 0.5f);
    BETWEEN("frequency leaves the prompt alone", 3, 0, 1, 0, 0.5f, 3);
    BETWEEN("repetition, then frequency and presence", 3, 2, 2, 0.25f, 0.5f, 0.25f);
    BETWEEN("a logit that frequency turns was divided before", 1, 3, 2, 0, 0.5f, -1);
#undef BETWEEN
    source_close(&s);
}

static void cases(const struct check_tier *tier) {
    gamma_is_right();
    filters_in_order(tier);
    penalties_count_what_they_say(tier);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        follows(tier, &settings[i], 1000 + i);
    independent(tier);
}

static void bench(const struct check_tier *tier) {
    printf("draws: nothing to measure that check_sample does not (%s)\n", tier->name);
}

int main(int argc, char **argv) {
    return check_main(argc, argv, cases, bench);
}

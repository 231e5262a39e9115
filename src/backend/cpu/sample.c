/* SPDX-License-Identifier: Apache-2.0
 *
 * sample: one token a row of logits.
 *
 * Order: penalties (repetition, frequency, presence), banned tokens, temperature, top-k, top-p,
 * min-p. The distribution is seen as one list, most probable token first, equal ones by id. Each
 * filter keeps the beginning of that list, so a filter is a mass: top-k the mass of the first k,
 * top-p the mass up to and with the token that reaches p of what top-k left, min-p the mass of the
 * tokens above the bound. The least of them, times `uniform`, is the point of the list that is
 * drawn.
 *
 * The list is never sorted. Tokens fall into buckets by their distance from the best; a bucket's
 * mass is added in order of id, buckets in order, and only the bucket in which a point lies is
 * sorted. All of that depends on the row alone, so the same logits and settings give the same
 * token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/assert.h"

struct sampler {
    const float *z, *e;     /* [n] logits below the best, over temperature; exp of it. Borrowed */
    const uint16_t *bucket; /* [n] borrowed */
    int n;
    struct hr_cpu_cand *cands; /* [n] the bucket that was sorted last */
    int sorted, n_cands;       /* which one, -1: none */
    uint32_t count[HR_CPU_BUCKETS];
    double mass[HR_CPU_BUCKETS];
};

static void fill_buckets(struct sampler *s) {
    memset(s->count, 0, sizeof s->count);
    memset(s->mass, 0, sizeof s->mass);
    s->sorted = -1;
    for (int i = 0; i < s->n; i++) {
        s->count[s->bucket[i]]++;
        s->mass[s->bucket[i]] += (double)s->e[i];
    }
}

/* Does a come after b in the list? */
static bool after(const struct hr_cpu_cand *a, const struct hr_cpu_cand *b) {
    return a->z != b->z ? a->z < b->z : a->id > b->id;
}

static void sift_down(struct hr_cpu_cand *c, int i, int n) {
    struct hr_cpu_cand v = c[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && after(&c[child + 1], &c[child])) child++;
        if (!after(&c[child], &v)) break;
        c[i] = c[child];
    }
    c[i] = v;
}

/* Heapsort: in place, where qsort may allocate. */
static void sort_cands(struct hr_cpu_cand *c, int n) {
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(c, i, n);
    for (int last = n - 1; last > 0; last--) {
        struct hr_cpu_cand v = c[0];
        c[0] = c[last];
        c[last] = v;
        sift_down(c, 0, last);
    }
}

/* Stretches of ids without a member, which are most, are passed over at once. */
static void sort_bucket(struct sampler *s, int bucket) {
    enum { STRETCH = 64 };
    if (s->sorted == bucket) return;
    s->sorted = bucket;
    s->n_cands = 0;
    for (int i = 0, end; i < s->n; i = end) {
        uint16_t any = 0;
        end = i + STRETCH < s->n ? i + STRETCH : s->n;
        for (int j = i; j < end; j++) any |= (uint16_t)(s->bucket[j] == bucket);
        for (int j = i; any && j < end; j++)
            if (s->bucket[j] == bucket)
                s->cands[s->n_cands++] = (struct hr_cpu_cand){s->z[j], s->e[j], j};
    }
    sort_cands(s->cands, s->n_cands);
}

/* A bucket's mass, added in another order, is off in the last bits; a point inside of it must not
 * lie past its end. */
static double capped(double mass, double cap) {
    return mass < cap ? mass : cap;
}

/* Mass of the first k tokens. */
static double mass_of_first(struct sampler *s, int k) {
    double mass = 0;
    for (int b = 0; b < HR_CPU_BUCKETS; b++) {
        if (s->count[b] < (uint32_t)k) {
            mass += s->mass[b];
            k -= (int)s->count[b];
            continue;
        }
        sort_bucket(s, b);
        double part = 0;
        for (int i = 0; i < k; i++) part += (double)s->cands[i].e;
        return mass + capped(part, s->mass[b]);
    }
    return mass;
}

/* Mass of the tokens with z >= z_min. */
static double mass_above(struct sampler *s, float z_min) {
    double mass = 0, part = 0;
    int last = (int)(-z_min * HR_CPU_BUCKETS_A_NAT);
    if (!(last < HR_CPU_BUCKETS)) last = HR_CPU_BUCKETS - 1;
    for (int b = 0; b < last; b++) mass += s->mass[b];
    sort_bucket(s, last);
    for (int i = 0; i < s->n_cands && s->cands[i].z >= z_min; i++) part += (double)s->cands[i].e;
    return mass + capped(part, s->mass[last]);
}

/* The first token at which the mass from the start reaches `target`; *reached is that mass. */
static int32_t token_at(struct sampler *s, double target, double *reached) {
    double mass = 0;
    int b = 0, last = 0;
    for (int i = 0; i < HR_CPU_BUCKETS; i++)
        if (s->mass[i] > 0) last = i;
    for (; b < last && mass + s->mass[b] < target; b++) mass += s->mass[b];
    sort_bucket(s, b);
    double part = 0;
    int32_t id = s->cands[0].id;
    for (int i = 0; i < s->n_cands && s->cands[i].e > 0; i++) {
        part += (double)s->cands[i].e;
        id = s->cands[i].id;
        if (mass + part >= target) break;
    }
    *reached = mass + capped(part, s->mass[b]);
    return id;
}

static int32_t draw(struct sampler *s, const struct hr_sample_row *row) {
    fill_buckets(s);
    double kept = 0, reached;
    for (int b = 0; b < HR_CPU_BUCKETS; b++) kept += s->mass[b];
    if (row->top_k > 0 && row->top_k < s->n) kept = mass_of_first(s, row->top_k);
    double after_k = kept;
    if (row->top_p < 1) {
        (void)token_at(s, (double)row->top_p * after_k, &reached);
        kept = capped(reached, kept);
    }
    if (row->min_p > 0) kept = capped(mass_above(s, row->min_p < 1 ? logf(row->min_p) : 0), kept);
    return token_at(s, row->uniform * kept, &reached);
}

/* Index of the first value equal to `max`. */
static int32_t first_equal(const float *x, int n, float max) {
    for (int i = 0; i < n; i++)
        if (x[i] == max) return i;
    return -1;
}

/* Changes x by the penalties; `raw` gets what the seen tokens had. */
static void penalise(float *x, float *raw, int n, const struct hr_sample_row *row) {
    for (int i = 0; i < row->n_seen; i++) {
        int32_t id = row->seen[i];
        HR_ASSERT(id >= 0 && id < n && (i == 0 || row->seen[i - 1] < id));
        raw[i] = x[id];
        float v = x[id] > 0 ? x[id] / row->repetition_penalty : x[id] * row->repetition_penalty;
        v -= (float)row->seen_count[i] * row->frequency_penalty;
        if (row->seen_count[i] > 0) v -= row->presence_penalty;
        x[id] = v;
    }
}

static float raw_logit(const struct hr_sample_row *row, const float *saved, int32_t token,
                       float now) {
    int lo = 0, hi = row->n_seen - 1;
    while (lo <= hi) {
        int mid = (lo + hi) / 2;
        if (row->seen[mid] == token) return saved[mid];
        if (row->seen[mid] < token)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return now;
}

static struct hr_sampled sample_row(const struct hr_cpu *be, float *x, int n,
                                    const struct hr_sample_row *row,
                                    struct hr_cpu_scratch *scratch) {
    const struct hr_sampled none = {.token = -1, .logprob = 0};
    bool bad;
    float max = be->k.max_of(x, n, &bad);
    if (bad || max == -INFINITY) return none;
    double lse = (double)max + log(be->k.sum_exp(x, n, max));
    if (row->n_seen > 0 || row->n_banned > 0) {
        penalise(x, scratch->raw, n, row);
        for (int i = 0; i < row->n_banned; i++) {
            HR_ASSERT(row->banned[i] >= 0 && row->banned[i] < n);
            x[row->banned[i]] = -INFINITY;
        }
        max = be->k.max_of(x, n, &bad);
        if (bad || max == -INFINITY) return none;
    }
    int32_t token;
    float logit;
    if (!(row->temperature >= HR_TEMPERATURE_MIN)) {
        token = first_equal(x, n, max);
        logit = raw_logit(row, scratch->raw, token, x[token]);
    } else {
        /* the logits are kept aside: x becomes what the distribution is made of */
        memcpy(scratch->row, x, (size_t)n * sizeof *x);
        be->k.temper(x, scratch->e, scratch->bucket, n, max, row->temperature);
        struct sampler s = {
            .z = x, .e = scratch->e, .bucket = scratch->bucket, .n = n, .cands = scratch->cands};
        token = draw(&s, row);
        logit = raw_logit(row, scratch->raw, token, scratch->row[token]);
    }
    return (struct hr_sampled){.token = token, .logprob = (float)((double)logit - lse)};
}

struct sample_job {
    struct hr_tensor *logits;
    const struct hr_sample_row *rows;
    struct hr_sampled *out;
};

static void sample_rows(struct hr_cpu *be, void *arg, int i_thread, int i0, int i1) {
    const struct sample_job *j = arg;
    for (int i = i0; i < i1; i++)
        j->out[i] = sample_row(be, hr_cpu_row_f32(j->logits, i), j->logits->n_cols, &j->rows[i],
                               &be->scratch[i_thread]);
}

void hr_cpu_sample(struct hr_backend *base, struct hr_tensor *logits, int n_rows,
                   const struct hr_sample_row *rows, struct hr_sampled *out) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(logits->dtype == HR_F32 && n_rows >= 0 && n_rows <= logits->n_rows);
    struct sample_job j = {logits, rows, out};
    hr_cpu_region_enter(&logits->mem);
    hr_cpu_run(be, n_rows, 1, 1.0 * logits->n_cols, sample_rows, &j);
    hr_cpu_region_leave(&logits->mem);
}

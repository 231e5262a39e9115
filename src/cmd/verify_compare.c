/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_compare: ours against a reference, position by position of the reference's own answers.
 *
 * Every position is computed behind the reference's tokens, so one early difference does not spoil the rest.
 * Up to the first position whose most probable token differs, our greedy answer is the reference's: there
 * they part. KL is KL(reference || ours) in nats. Where the reference gives its best tokens alone, all others
 * count as one outcome, which can only make KL smaller (data processing inequality), and by little when they
 * have little probability. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/verify_int.h"

/* How sure a broken bound must be that chance did not break it. */
#define CHANCE 0.99

void verify_result_init(struct verify_result *r, const char *name, const char *title, const struct verify_bounds *b) {
    *r = (struct verify_result){.name = name, .title = title, .bounds = *b};
}

static void case_finish(struct verify_case *c) {
    for (size_t i = 0; c->top && i < c->n_answer; i++) {
        free(c->top[i].ids);
        free(c->top[i].logprobs);
    }
    free(c->top);
    free(c->logits);
    hr_ids_finish(&c->ids);
}

void verify_result_finish(struct verify_result *r) {
    for (int i = 0; i < r->n_cases && !r->borrows; i++) case_finish(&r->cases[i]);
    if (!r->borrows) free(r->cases);
    free(r->partings);
    *r = (struct verify_result){0};
}

struct verify_case *verify_add_case(struct verify_result *r, const char *name) {
    if (r->n_cases == r->cap_cases) {
        r->cap_cases = r->cap_cases ? 2 * r->cap_cases : 8;
        r->cases = hr_xrealloc(r->cases, (size_t)r->cap_cases * sizeof *r->cases);
        r->partings = hr_xrealloc(r->partings, (size_t)r->cap_cases * sizeof *r->partings);
    }
    r->partings[r->n_cases] = (struct verify_parting){0};
    struct verify_case *c = &r->cases[r->n_cases++];
    *c = (struct verify_case){.name = name};
    return c;
}

void verify_result_share(struct verify_result *r, const char *name, const char *title,
                         const struct verify_result *of) {
    verify_result_init(r, name, title, &of->bounds);
    r->cases = of->cases;
    r->n_cases = of->n_cases;
    r->borrows = true;
    r->partings = hr_xcalloc((size_t)of->n_cases, sizeof *r->partings);
}

int32_t verify_best(const float *x, int n_vocab) {
    int best = 0;
    for (int i = 1; i < n_vocab; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double log_sum_exp(const float *x, int n) {
    double max = x[verify_best(x, n)], sum = 0;
    for (int i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

/* Of the best over the second best. */
static double lead_of(const float *x, int n) {
    int best = verify_best(x, n);
    double second = -INFINITY;
    for (int i = 0; i < n; i++)
        if (i != best && x[i] > second) second = x[i];
    return x[best] - second;
}

static double kl_whole(const float *reference, const float *ours, int n) {
    double lr = log_sum_exp(reference, n), lo = log_sum_exp(ours, n), kl = 0;
    for (int i = 0; i < n; i++) {
        double logp = reference[i] - lr;
        kl += exp(logp) * (logp - (ours[i] - lo));
    }
    return kl;
}

static double kl_top(const struct verify_top *t, const float *ours, int n) {
    double lo = log_sum_exp(ours, n), kl = 0, q_rest = 1;
    for (int i = 0; i < t->n; i++) {
        double logq = ours[t->ids[i]] - lo;
        kl += exp(t->logprobs[i]) * (t->logprobs[i] - logq);
        q_rest -= exp(logq);
    }
    /* Below this the difference above has no digits left, and the term would add less than it. */
    if (t->rest > 1e-12) kl += t->rest * log(t->rest / fmax(q_rest, 1e-12));
    return kl;
}

void verify_take(struct verify_result *r, int i_case, int i, const float *logits, int n_vocab) {
    struct verify_case *c = &r->cases[i_case];
    HR_ASSERT(i >= 0 && (size_t)i < c->n_answer && (c->logits || c->top));
    int32_t ours = verify_best(logits, n_vocab), reference = c->ids.data[c->n_prompt + (size_t)i];
    const float *whole = c->logits ? c->logits + (size_t)i * (size_t)n_vocab : NULL;
    const struct verify_top *top = c->top ? &c->top[i] : NULL;
    double kl = whole ? kl_whole(whole, logits, n_vocab) : kl_top(top, logits, n_vocab);
    r->n_positions++;
    r->n_agree += ours == reference;
    r->kl_sum += kl;
    r->kl_max = fmax(r->kl_max, kl);
    if (top) {
        r->tops = r->tops || top->rest > 0;
        r->rest_sum += top->rest;
    }
    struct verify_parting *p = &r->partings[i_case];
    if (ours == reference || p->parts) return;
    double lead = whole ? lead_of(whole, n_vocab) : top->logprobs[0] - top->logprobs[1];
    *p = (struct verify_parting){.parts = true, .position = i, .ours = ours, .reference = reference, .lead = lead};
}

int verify_may_differ(double top1, int n_positions) {
    double rate = 1 - top1, n = n_positions, sum = 0;
    if (rate <= 0) return 0;
    if (rate >= 1) return n_positions;
    for (int k = 0; k < n_positions; k++) {
        double ways = lgamma(n + 1) - lgamma(k + 1.0) - lgamma(n - k + 1);
        sum += exp(ways + k * log(rate) + (n - k) * log1p(-rate));
        if (sum >= CHANCE) return k;
    }
    return n_positions;
}

bool verify_top1_ok(const struct verify_result *r) {
    return r->n_positions - r->n_agree <= verify_may_differ(r->bounds.top1, r->n_positions);
}

bool verify_kl_ok(const struct verify_result *r) {
    return r->n_positions == 0 || r->kl_sum / r->n_positions <= r->bounds.kl;
}

void verify_count_partings(const struct verify_result *r, int *n_part, int *n_sure) {
    *n_part = *n_sure = 0;
    for (int i = 0; i < r->n_cases; i++) {
        *n_part += r->partings[i].parts;
        *n_sure += r->partings[i].parts && r->partings[i].lead >= r->bounds.lead;
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: expected lengths from a histogram of finished ones; see budget.h for the rule. */
#include "schedule/budget.h"

#include <math.h>
#include <string.h>

static int bin_of(int n) {
    int b = n < 32 ? n : (int)(32 + 24 * log2((double)n / 32));
    return b < 0 ? 0 : b >= HR_BUDGET_BINS ? HR_BUDGET_BINS - 1 : b;
}

void hr_budget_init(struct hr_budget *b, int64_t cap) {
    memset(b, 0, sizeof *b);
    b->cap = cap;
}

void hr_budget_row(struct hr_budget *b, int n_completion) {
    b->finished += n_completion;
    b->n_rows++;
    b->sum_sq += (double)n_completion * n_completion;
    b->bin_rows[bin_of(n_completion)]++;
    b->bin_tokens[bin_of(n_completion)] += n_completion;
}

void hr_budget_seed(struct hr_budget *b, int64_t n_rows, int64_t n_tokens) {
    if (n_rows <= 0) return;
    double mean = (double)n_tokens / (double)n_rows;
    b->finished += n_tokens;
    b->n_rows += n_rows;
    b->sum_sq += 2 * mean * mean * (double)n_rows; /* as wide as an exponential one: nothing is known */
    b->bin_rows[bin_of((int)mean)] += n_rows;
    b->bin_tokens[bin_of((int)mean)] += (double)n_tokens;
}

void hr_budget_flight_clear(struct hr_budget *b) {
    b->n_flight = 0;
    b->flight_mean = b->flight_var = 0;
}

/* Mean length of the finished rows that are longer than n_now; n_max when there is none. */
static double mean_beyond(const struct hr_budget *b, int n_now, int n_max) {
    double rows = 0, tokens = 0;
    for (int i = bin_of(n_now); i < HR_BUDGET_BINS; i++) {
        double bin_mean = b->bin_rows[i] ? b->bin_tokens[i] / (double)b->bin_rows[i] : 0;
        if (bin_mean <= n_now) continue;
        rows += (double)b->bin_rows[i];
        tokens += b->bin_tokens[i];
    }
    double mean = rows > 0 ? tokens / rows : n_max;
    return mean > n_max ? n_max : mean;
}

double hr_budget_mean(const struct hr_budget *b, int n_max) {
    return mean_beyond(b, 0, n_max);
}

static double row_var(const struct hr_budget *b) {
    if (b->n_rows == 0) return 0;
    double mean = (double)b->finished / (double)b->n_rows;
    double var = b->sum_sq / (double)b->n_rows - mean * mean;
    return var > 0 ? var : 0;
}

void hr_budget_flight_add(struct hr_budget *b, int n_now, int n_max) {
    double mean = mean_beyond(b, n_now, n_max);
    b->n_flight++;
    b->flight_mean += mean;
    double left = n_max - mean; /* a row about to meet its own limit cannot spread */
    double var = row_var(b);
    b->flight_var += var < left * left ? var : left * left;
}

int hr_budget_may_start(const struct hr_budget *b, int n_max) {
    if (b->cap <= 0) return 1;
    if (b->n_rows == 0 && b->n_flight == 0) return b->finished < b->cap; /* somebody must be first */
    double half = hr_budget_mean(b, n_max) / 2;
    return (double)b->finished + b->flight_mean + half + sqrt(b->flight_var) <= (double)b->cap;
}

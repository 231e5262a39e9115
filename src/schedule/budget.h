/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: when a dataset with a token cap may start one more row.
 *
 * The cap counts completion tokens of finished rows, over all runs. What has started is finished, never
 * cut, so starting must stop in time: a row may start while
 *     finished + expected in flight + half a mean row + spread of what is in flight <= cap.
 * The spread (one standard deviation of the sum) makes admission taper near the cap: it stops early,
 * sees how the rows in flight end, and goes on. With nothing in flight the spread is 0, so a dataset with
 * rows left never ends more than half a mean row below its cap.
 * Before any row has finished, a row is expected to be as long as it may be. */
#ifndef HR_SCHEDULE_BUDGET_H
#define HR_SCHEDULE_BUDGET_H

#include <stdint.h>

#define HR_BUDGET_BINS 512 /* completion lengths by bins that grow by about 3 % */

struct hr_budget {
    int64_t cap;      /* 0: none */
    int64_t finished; /* completion tokens of finished rows */
    int64_t n_rows;
    double sum_sq;
    int64_t bin_rows[HR_BUDGET_BINS];
    double bin_tokens[HR_BUDGET_BINS];
    /* In flight, rebuilt by the caller before each question. */
    int64_t n_flight;
    double flight_mean, flight_var;
};

void hr_budget_init(struct hr_budget *b, int64_t cap);
/* A finished row of this run; rows of earlier runs come through hr_budget_seed. */
void hr_budget_row(struct hr_budget *b, int n_completion);
/* Rows of earlier runs: their number and tokens (their mean is all that is known of them). */
void hr_budget_seed(struct hr_budget *b, int64_t n_rows, int64_t n_tokens);

/* Forgets what is in flight; then one call a row in flight: tokens it has now and may have at most. */
void hr_budget_flight_clear(struct hr_budget *b);
void hr_budget_flight_add(struct hr_budget *b, int n_now, int n_max);

/* Tokens that the next row is expected to add. */
double hr_budget_mean(const struct hr_budget *b, int n_max);
/* May one more row, of at most n_max tokens, start? */
int hr_budget_may_start(const struct hr_budget *b, int n_max);

#endif

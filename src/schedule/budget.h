/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: when a dataset with a token cap may start one more row.
 *
 * The cap counts completion tokens of finished rows, over all runs. What has started is finished, never
 * cut, so starting must stop in time: a row may start while
 *     finished + expected in flight + half a mean row + spread <= cap.
 * The spread (three standard deviations of what is not known) makes admission taper near the cap: it stops
 * early, sees how the rows in flight end, and goes on. With nothing in flight the spread is 0, so a dataset
 * with rows left never ends more than half a mean row below its cap.
 *
 * Lengths are learned from finished rows and from those in flight: the short ones finish first, and a mean
 * of the finished alone would be too low. Source: Kaplan & Meier 1958, "Nonparametric estimation from
 * incomplete observations". Before any row has finished, a row is expected to be as long as it may be. */
#ifndef HR_SCHEDULE_BUDGET_H
#define HR_SCHEDULE_BUDGET_H

#include <stdint.h>

/* Completion lengths: exact up to HR_BUDGET_EXACT tokens, then 64 bins an octave (1 % wide) to 2^23. */
#define HR_BUDGET_EXACT 1024
#define HR_BUDGET_BINS  (HR_BUDGET_EXACT + 13 * 64)

struct hr_budget {
    int64_t cap;      /* 0: none */
    int64_t finished; /* completion tokens of finished rows */
    int64_t n_rows;
    int64_t bin_rows[HR_BUDGET_BINS];
    /* In flight, rebuilt by the caller before each question. */
    int64_t n_flight, flight_now, flight_known;
    int64_t flight_rows[HR_BUDGET_BINS], flight_tokens[HR_BUDGET_BINS], flight_max[HR_BUDGET_BINS];
};

void hr_budget_init(struct hr_budget *b, int64_t cap);
/* n_rows finished rows of n_completion tokens each, of this run or of earlier ones. */
void hr_budget_rows(struct hr_budget *b, int n_completion, int64_t n_rows);

/* Forgets what is in flight; then one call a row in flight: the tokens that it has now and may have at
 * most. A row that has all it may have counts as it is. */
void hr_budget_flight_clear(struct hr_budget *b);
void hr_budget_flight_add(struct hr_budget *b, int n_now, int n_max);

/* May one more row, of at most n_max tokens, start? */
int hr_budget_may_start(const struct hr_budget *b, int n_max);

#endif

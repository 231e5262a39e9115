/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths: see lengths.h. */
#include "schedule/lengths.h"

#include <math.h>

/* Rows that make the counts worth more than the prior. */
#define ENOUGH 8

static int bin_of(int n) {
    int b = n < 8 ? n : (int)(8 + 8 * log2(n / 8.0));
    return b < 0 ? 0 : b >= HR_LENGTH_BINS ? HR_LENGTH_BINS - 1 : b;
}

static double bin_begin(int b) {
    return b < 8 ? b : 8 * exp2((b - 8) / 8.0);
}

void hr_lengths_learn(struct hr_lengths *l, int n_completion) {
    l->n++;
    for (int b = bin_of(n_completion); b >= 0; b--) l->beyond[b]++;
}

/* Finished rows longer than n; those of n's own bin lie evenly in it. */
static double longer(const struct hr_lengths *l, int n) {
    int b = bin_of(n);
    double begin = bin_begin(b), width = bin_begin(b + 1) - begin, part = (n + 1 - begin) / width;
    if (part > 1) part = 1;
    return (double)l->beyond[b] - part * (double)(l->beyond[b] - l->beyond[b + 1]);
}

double hr_lengths_survives(const struct hr_lengths *l, int n_now, int n_more, int prior) {
    if (l->n < ENOUGH) return exp(-(double)n_more / prior);
    double now = longer(l, n_now);
    /* Longer than all that have finished: it will bring half as much again as it has. */
    if (now < 1) return exp(-(double)n_more / (n_now / 2 + 1));
    return longer(l, n_now + n_more) / now;
}

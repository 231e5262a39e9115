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

void hr_lengths_learn(struct hr_lengths *l, int n_completion) {
    int b = bin_of(n_completion);
    l->n++;
    l->sum += n_completion;
    l->rows[b]++;
    l->tokens[b] += n_completion;
}

int hr_lengths_rest(const struct hr_lengths *l, int n_now, int prior) {
    int64_t rows = 0, tokens = 0;
    if (l->n < ENOUGH) return prior > n_now ? prior - n_now : n_now / 2 + 1;
    for (int b = bin_of(n_now); b < HR_LENGTH_BINS; b++) {
        if (!l->rows[b] || l->tokens[b] <= l->rows[b] * n_now) continue;
        rows += l->rows[b];
        tokens += l->tokens[b];
    }
    /* Longer than all that have finished: as much again as half of what it has. */
    int rest = rows ? (int)(tokens / rows) - n_now : n_now / 2;
    return rest < 1 ? 1 : rest;
}

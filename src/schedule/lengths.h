/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths: how long completions of one dataset are, learned as they finish. Pure counting.
 *
 * Bins of about 9 % each; before the first rows have finished, a prior speaks. The answer that admission
 * wants is the mean of what a completion still brings when it has n tokens already. */
#ifndef HR_SCHEDULE_LENGTHS_H
#define HR_SCHEDULE_LENGTHS_H

#include <stdint.h>

#define HR_LENGTH_BINS 192

struct hr_lengths {
    int64_t n, sum;
    int64_t rows[HR_LENGTH_BINS], tokens[HR_LENGTH_BINS];
};

/* A completion that has finished with n_completion tokens. Zeroed is valid and knows nothing. */
void hr_lengths_learn(struct hr_lengths *l, int n_completion);
/* Mean tokens that a completion of n_now tokens still brings, at least 1; `prior`: the mean length to
 * assume while fewer than eight have finished. */
int hr_lengths_rest(const struct hr_lengths *l, int n_now, int prior);

#endif

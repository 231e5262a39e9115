/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths: how long completions of one dataset are, learned as they finish. Pure counting.
 *
 * What admission wants to know of a completion that has n tokens is the chance that it gets to n + k: a
 * survival function, of which every quantile can be read. Bins of about 9 %. Until the first rows have
 * finished, and for a completion that is longer than all that have, lengths are taken to be memoryless. */
#ifndef HR_SCHEDULE_LENGTHS_H
#define HR_SCHEDULE_LENGTHS_H

#include <stdint.h>

#define HR_LENGTH_BINS 192

/* Zeroed is valid and knows nothing. */
struct hr_lengths {
    int64_t n;
    int64_t beyond[HR_LENGTH_BINS + 1]; /* rows in this bin or a later one */
};

/* A completion that has finished with n_completion tokens. */
void hr_lengths_learn(struct hr_lengths *l, int n_completion);
/* Chance, 0 to 1, that a completion of n_now tokens brings more than n_more others. `prior`, above 0: the
 * mean length to assume while fewer than eight have finished. */
double hr_lengths_survives(const struct hr_lengths *l, int n_now, int n_more, int prior);

#endif

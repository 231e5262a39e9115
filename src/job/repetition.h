/* SPDX-License-Identifier: Apache-2.0
 *
 * repetition: does a completion only repeat itself when it is cut off?
 *
 * A model that has fallen into a loop writes it down until max_tokens, and such a row is no training
 * data. The answer follows from the tokens alone. */
#ifndef HR_JOB_REPETITION_H
#define HR_JOB_REPETITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True when the last L of n tokens are a cycle of at most 64 tokens that has gone round at least four
 * times, where L is at least 64, and at least 256 or half of the completion. To be asked of completions
 * that ended in length: one that has ended by itself has left its loop. */
bool hr_is_repetitive(const int32_t *ids, size_t n);

#endif

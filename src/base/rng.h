/* SPDX-License-Identifier: Apache-2.0
 *
 * rng: counter-based random numbers, Philox4x32-10.
 *
 * A number depends on (key, counter) and on nothing else, so a sampled token depends on its row and
 * position and not on what ran beside it. There is no state to save.
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". */
#ifndef HR_BASE_RNG_H
#define HR_BASE_RNG_H

#include <stdint.h>

void hr_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in the open interval (0, 1) with 53 bits, from (seed, stream, counter). */
double hr_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter);

#endif

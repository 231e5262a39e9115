/* SPDX-License-Identifier: Apache-2.0
 *
 * rope: rotary frequencies of a model. Private to the room. */
#ifndef HR_MODEL_ROPE_H
#define HR_MODEL_ROPE_H

#include "model/model_file.h"

/* Angle a position of pair i (dimensions i and i + rope_dim / 2), after the scaling that the
 * configuration asks for. */
double hr_rope_freq(const struct hr_rope *r, int rope_dim, int i);

/* What a factor adds to the sharpness of attention, by yarn's rule; `by` is usually 1. */
double hr_rope_yarn_scale(double factor, double by);

#endif

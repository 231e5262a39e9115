/* SPDX-License-Identifier: Apache-2.0
 *
 * rope: the frequencies behind the rotary tables, as pure functions of the configuration.
 *
 * The plain rule is theta^(-2i/d) (Su et al. 2021, arXiv:2104.09864). Its scalings:
 *   linear   every frequency divided by factor (position interpolation, arXiv:2306.15595)
 *   dynamic  the base grows with a sequence that is longer than the model's context; as none is, it is
 *            the plain rule
 *   yarn     pairs that turn often in the original context untouched, those that turn less than once
 *            divided by factor, a ramp over the pairs between; cosines and sines are scaled
 *            (arXiv:2309.00071)
 *   llama3   three bands: low frequencies divided by factor, high ones untouched, a ramp between
 *   longrope every pair divided by a number of its own (arXiv:2402.13753); of the model's two sets the
 *            long one when its context is longer than the original one, else the short one. The
 *            reference takes the short set for a sequence that still fits the original context and
 *            changes all of its keys when it outgrows it; here a key in the cache stays as it is,
 *            so one set serves the model, as in engines that batch (vLLM, llama.cpp)
 * Source: huggingface/transformers, modeling_rope_utils.py. */
#include "model/rope.h"

#include <math.h>

static double llama3_freq(const struct hr_rope *r, double freq) {
    double wavelen = 2 * M_PI / freq, ctx = r->original_ctx;
    if (wavelen < ctx / r->high_freq_factor) return freq;
    if (wavelen > ctx / r->low_freq_factor) return freq / r->factor;
    double smooth =
        (ctx / wavelen - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

/* The pair, as a fraction, that makes `turns` turns in the original context. */
static double yarn_pair(const struct hr_rope *r, int rope_dim, double turns) {
    return rope_dim * log(r->original_ctx / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

static double yarn_freq(const struct hr_rope *r, int rope_dim, int i, double freq) {
    double low = yarn_pair(r, rope_dim, r->beta_fast), high = yarn_pair(r, rope_dim, r->beta_slow);
    if (r->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, rope_dim - 1);
    if (low == high) high += 0.001; /* as the reference has it: no division by 0 */
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return freq / r->factor * ramp + freq * (1 - ramp);
}

double hr_rope_freq(const struct hr_rope *r, int rope_dim, int i) {
    double freq = pow(r->theta, -2.0 * i / rope_dim);
    switch (r->type) {
    case HR_ROPE_DEFAULT:
    case HR_ROPE_DYNAMIC: return freq;
    case HR_ROPE_LINEAR: return freq / r->factor;
    case HR_ROPE_LLAMA3: return llama3_freq(r, freq);
    case HR_ROPE_YARN: return yarn_freq(r, rope_dim, i, freq);
    case HR_ROPE_LONGROPE: return freq / (double)r->divisor[i];
    }
    return freq;
}

double hr_rope_yarn_scale(double factor, double by) {
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

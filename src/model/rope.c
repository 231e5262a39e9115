/* SPDX-License-Identifier: Apache-2.0
 *
 * rope: the frequencies behind the rotary tables, as pure functions of the configuration.
 *
 * The plain rule is theta^(-2i/d) (Su et al. 2021, arXiv:2104.09864). Its scalings:
 *   linear   every frequency divided by factor (position interpolation, arXiv:2306.15595)
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

double hr_rope_freq(const struct hr_rope *r, int rope_dim, int i) {
    double freq = pow(r->theta, -2.0 * i / rope_dim);
    switch (r->type) {
    case HR_ROPE_DEFAULT: return freq;
    case HR_ROPE_LINEAR: return freq / r->factor;
    case HR_ROPE_LLAMA3: return llama3_freq(r, freq);
    case HR_ROPE_LONGROPE: return freq / (double)r->divisor[i];
    }
    return freq;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu: opens the CPU backend. Instruction-set tiers are found at run time and can be masked. */
#ifndef HR_BACKEND_CPU_CPU_H
#define HR_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/pool.h"

enum hr_cpu_flags {
    HR_CPU_AVX2 = 1 << 0,       /* AVX2, FMA, F16C, with OS state */
    HR_CPU_AVX512BF16 = 1 << 1, /* AVX-512 F, BW, DQ, VL and BF16, with OS state */
};
#define HR_CPU_ALL 0xffffffffu

/* What this machine has, AND `mask`. */
unsigned hr_cpu_detect(unsigned mask);

struct hr_cpu_opts {
    enum hr_dtype act;
    unsigned cpu_mask;    /* HR_CPU_ALL, or fewer flags for tests and --cpu-mask */
    struct hr_pool *pool; /* borrowed until destroy */
    int max_tokens;       /* rows of a step at most */
    bool guard;           /* tests: device memory is PROT_NONE outside operations */
};

HR_MUST_USE enum hr_status hr_cpu_backend_open(const struct hr_cpu_opts *opts,
                                               struct hr_backend **out, struct hr_err *err);

/* Bytes a second that all threads of the pool together read from memory: sums a buffer larger than
 * the last cache, for about 0.3 s. 0 when there is no memory for it. */
double hr_cpu_read_bandwidth(struct hr_pool *pool);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * flags: which instruction sets this machine can run, asked with CPUID and XGETBV.
 *
 * A tier counts only when the processor has all of its parts and the operating system saves its
 * registers: OSXSAVE is looked at first, because XGETBV without it is an illegal instruction.
 * Source: Intel SDM vol. 1, 13.2-13.3 and 14.3; vol. 2A, CPUID. */
#include "backend/cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define XCR0_AVX    0x06u /* SSE and AVX state */
#define XCR0_AVX512 0xe6u /* and opmask, upper halves, upper registers */

static unsigned xcr0(void) {
    unsigned lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

static bool all(unsigned reg, unsigned bits) {
    return (reg & bits) == bits;
}

static unsigned detect(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !all(c, bit_OSXSAVE)) return 0;
    unsigned leaf1_c = c, os = xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    unsigned leaf7_b = b, n_sub = a, leaf71_a = 0;
    if (n_sub >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) leaf71_a = a;
    unsigned flags = 0;
    if (all(os, XCR0_AVX) && all(leaf1_c, bit_AVX | bit_FMA | bit_F16C) && all(leaf7_b, bit_AVX2))
        flags |= HR_CPU_AVX2;
    if (flags && all(os, XCR0_AVX512) && all(leaf71_a, bit_AVX512BF16) &&
        all(leaf7_b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL))
        flags |= HR_CPU_AVX512BF16;
    return flags;
}
#else
static unsigned detect(void) {
    return 0;
}
#endif

unsigned hr_cpu_detect(unsigned mask) {
    return detect() & mask;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * version: what this binary is: version, commit, compiler, kind of build, instruction-set tiers and
 * libraries. All but the detected tiers are facts of the build, given by meson. */
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "cmd/cmd.h"
#include "vcs.h" /* made by meson: HR_VCS, "unknown" outside a git checkout */

const char *hr_version(void) {
    return strcmp(HR_VCS, "unknown") ? HR_VERSION " (" HR_VCS ")" : HR_VERSION;
}

static void print_tiers(const char *title, unsigned flags) {
    static const struct {
        unsigned flag;
        const char *name;
    } tiers[] = {{HR_CPU_AVX2, "avx2"}, {HR_CPU_AVX512BF16, "avx512bf16"}};
    printf("%-11s ref", title);
    for (size_t i = 0; i < sizeof tiers / sizeof tiers[0]; i++)
        if (flags & tiers[i].flag) printf(" %s", tiers[i].name);
    printf("\n");
}

void hr_version_print(void) {
    printf("headrace %s\n", hr_version());
#ifdef __clang__
    printf("%-11s %s\n", "compiler", __VERSION__);
#else
    printf("%-11s gcc %s\n", "compiler", __VERSION__);
#endif
    printf("%-11s %s\n", "build", HR_BUILD);
    print_tiers("tiers", HR_CPU_ALL);
    print_tiers("this cpu", hr_cpu_detect(HR_CPU_ALL));
    printf("%-11s %s\n", "libraries", HR_LIBRARIES);
}

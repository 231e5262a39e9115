/* SPDX-License-Identifier: Apache-2.0
 *
 * machine: free memory and instruction sets; see machine.h. */
#include "cmd/machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"

uint64_t hr_cmd_free_memory(void) {
    unsigned long long kb = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1) break;
    if (f) fclose(f);
    return kb ? (uint64_t)kb * 1024 : UINT64_MAX / 2;
}

enum hr_status hr_cmd_parse_cpu_mask(const char *s, unsigned *mask, struct hr_err *err) {
    char *end;
    unsigned long v = s ? strtoul(s, &end, 0) : HR_CPU_ALL;
    if (s && (end == s || *end || v > HR_CPU_ALL))
        return hr_err_set(err, HR_ERR_CONFIG, "--cpu-mask expects a number such as 0 or 0x3, got '%s'", s);
    *mask = (unsigned)v;
    return HR_OK;
}

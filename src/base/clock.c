/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

int64_t hr_clock_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void hr_clock_iso(char out[25]) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    struct tm tm;
    gmtime_r(&ts.tv_sec, &tm);
    char head[24];
    strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 25, "%.19s.%03dZ", head, (int)(ts.tv_nsec / 1000000));
}

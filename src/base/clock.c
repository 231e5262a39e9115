/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

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

/* strptime takes 31 days for any month, and 60 seconds for any minute; a date that is none comes out of timegm as
 * another one. */
bool hr_clock_parse(const char *s, struct tm *out) {
    struct tm tm = {0};
    const char *end = strptime(s, "%Y-%m-%d", &tm);
    if (end && *end == 'T') end = strptime(end, "T%H:%M:%S", &tm);
    if (end && *end == '.') end += 1 + strspn(end + 1, "0123456789");
    if (end && *end == 'Z') end++;
    if (!end || *end) return false;
    struct tm same = tm;
    timegm(&same);
    if (same.tm_mday != tm.tm_mday || same.tm_sec != tm.tm_sec) return false;
    *out = tm;
    return true;
}

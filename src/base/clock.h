/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: monotonic nanoseconds for durations, wall time as ISO 8601 UTC for logs. No other file asks
 * the operating system what time it is. */
#ifndef HR_BASE_CLOCK_H
#define HR_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

int64_t hr_clock_ns(void);
/* "2026-11-29T21:52:30.123Z" into out[25]. */
void hr_clock_iso(char out[25]);
/* "2026-11-29T21:52:30" or "2026-11-29", a fraction and Z allowed behind it, into its parts, the day of the week
 * and of the year among them. False for anything else, 30 February among it. */
bool hr_clock_parse(const char *s, struct tm *out);

#endif

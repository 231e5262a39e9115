/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: monotonic nanoseconds for durations, wall time as ISO 8601 UTC for logs. No other file asks
 * the operating system what time it is. */
#ifndef HR_BASE_CLOCK_H
#define HR_BASE_CLOCK_H

#include <stdint.h>

int64_t hr_clock_ns(void);
/* "2026-11-29T21:52:30.123Z" into out[25]. */
void hr_clock_iso(char out[25]);

#endif

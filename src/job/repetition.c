/* SPDX-License-Identifier: Apache-2.0
 *
 * repetition: looks for the shortest cycle at the end; see repetition.h. At most 64 x 256 comparisons,
 * however long the completion is. */
#include "job/repetition.h"

enum { CYCLE_MAX = 64, ROUNDS_MIN = 4, TAIL_MIN = 64, TAIL_ENOUGH = 256 };

/* Is each of the last n tokens the one that stood `cycle` before it, as far as that is one of them? */
static bool repeats(const int32_t *end, size_t n, size_t cycle) {
    for (size_t i = 1; i + cycle <= n; i++)
        if (end[-(ptrdiff_t)i] != end[-(ptrdiff_t)(i + cycle)]) return false;
    return true;
}

bool hr_is_repetitive(const int32_t *ids, size_t n) {
    size_t tail = (n + 1) / 2;
    if (tail > TAIL_ENOUGH) tail = TAIL_ENOUGH;
    if (tail < TAIL_MIN) tail = TAIL_MIN;
    for (size_t cycle = 1; cycle <= CYCLE_MAX; cycle++) {
        size_t need = cycle * ROUNDS_MIN > tail ? cycle * ROUNDS_MIN : tail;
        if (need <= n && repeats(ids + n, need, cycle)) return true;
    }
    return false;
}

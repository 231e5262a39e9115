/* SPDX-License-Identifier: Apache-2.0
 *
 * bandwidth: how fast this machine reads memory, the bound of decoding. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"

#define BYTES_MIN  ((size_t)256 << 20)
#define BYTES_MAX  ((size_t)1 << 30)
#define MEASURE_NS 300000000

struct reading {
    const uint64_t *data;
    size_t n; /* words */
    uint64_t sums[256];
};

/* Each thread its own stretch, as four streams: what a core needs to keep its buffers full. */
static void sum_part(void *arg, int i, int n_threads) {
    struct reading *r = arg;
    size_t part = r->n / (size_t)n_threads / 32 * 32, quarter = part / 4;
    const uint64_t *p = r->data + (size_t)i * part;
    uint64_t acc[8] = {0};
    for (size_t k = 0; k < quarter; k += 8)
        for (int j = 0; j < 8; j++)
            acc[j] +=
                p[k + j] ^ p[quarter + k + j] ^ p[2 * quarter + k + j] ^ p[3 * quarter + k + j];
    for (int j = 1; j < 8; j++) acc[0] += acc[j];
    r->sums[i % 256] = acc[0]; /* so that the reading is not left out as useless */
}

double hr_cpu_read_bandwidth(struct hr_pool *pool) {
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = l3 > 0 ? (size_t)l3 * 4 : BYTES_MIN;
    if (bytes < BYTES_MIN) bytes = BYTES_MIN;
    if (bytes > BYTES_MAX) bytes = BYTES_MAX;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return 0;
    madvise(map, bytes, MADV_HUGEPAGE);
    memset(map, 1, bytes);
    struct reading r = {.data = map, .n = bytes / sizeof(uint64_t)};
    int n_threads = hr_pool_n_threads(pool);
    size_t pass = r.n / (size_t)n_threads / 32 * 32 * (size_t)n_threads * sizeof(uint64_t);
    hr_pool_run(pool, sum_part, &r);
    /* The best pass: a neighbour on the machine can only make one slower. */
    double best = 0;
    for (int64_t start = hr_clock_ns(), t0 = start, t1; t0 - start < MEASURE_NS; t0 = t1) {
        hr_pool_run(pool, sum_part, &r);
        t1 = hr_clock_ns();
        double rate = (double)pass / (double)(t1 - t0) * 1e9;
        if (rate > best) best = rate;
    }
    munmap(map, bytes);
    return best;
}

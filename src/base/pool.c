/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: see pool.h.
 *
 * One run is one step of an epoch counter: the caller publishes fn and arg, adds one to `epoch` and
 * works too; a helper that sees a new epoch works and takes one from `running`. Both words are
 * futexes. Whoever waits looks at its word for SPIN_NS, with pauses, and then sleeps in the kernel;
 * `sleepers` and `caller_sleeps` let the other side leave out the wake-up call when nobody sleeps.
 * Each sleeper announces itself and then looks again (the kernel compares the word), each waker
 * changes the word and then looks for sleepers; all four are sequentially consistent, so that no
 * wake-up is lost.
 *
 * A pool with more threads than cores never spins: the one it waits for may need this very core. */
#include "base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"

/* Longer than the serial stretch between two kernels of a step, shorter than what anybody who
 * shares the core would notice. */
#define SPIN_NS 20000

struct hr_pool {
    int n_threads;
    bool spins;
    hr_pool_fn fn; /* of this epoch */
    void *arg;
    bool stop;
    int n_started;
    struct helper {
        pthread_t thread;
        struct hr_pool *pool;
        int i_thread;
    } * helpers; /* [n_threads - 1], owned */
    /* Apart from each other, so that helpers which finish do not disturb those which look for work.
     */
    _Alignas(64) atomic_uint epoch;
    atomic_int sleepers;
    _Alignas(64) atomic_uint running;
    atomic_int caller_sleeps;
};

static void futex_wait(atomic_uint *word, unsigned seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Looks at `word` until it is (equal) or is no longer (!equal) `value`; false when the time is up.
 */
static bool spin_until(atomic_uint *word, unsigned value, bool equal) {
    int64_t start = 0;
    for (;;) {
        /* The clock costs as much as a pause or two: ask it now and then. */
        for (int i = 0; i < 16; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal) return true;
            relax();
        }
        int64_t now = hr_clock_ns();
        if (!start) start = now;
        if (now - start > SPIN_NS) return false;
    }
}

static void wait_for_epoch(struct hr_pool *pool, unsigned seen) {
    if (pool->spins && spin_until(&pool->epoch, seen, false)) return;
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->epoch) == seen) futex_wait(&pool->epoch, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void wait_for_helpers(struct hr_pool *pool) {
    if (pool->spins && spin_until(&pool->running, 0, true)) return;
    atomic_store(&pool->caller_sleeps, 1);
    unsigned left;
    while ((left = atomic_load(&pool->running)) != 0) futex_wait(&pool->running, left);
    atomic_store(&pool->caller_sleeps, 0);
}

static void *helper_main(void *arg) {
    struct helper *h = arg;
    struct hr_pool *pool = h->pool;
    for (unsigned seen = 0;;) {
        wait_for_epoch(pool, seen);
        seen++; /* the caller never starts an epoch before all have left the last one */
        if (pool->stop) return NULL;
        pool->fn(pool->arg, h->i_thread, pool->n_threads);
        if (atomic_fetch_sub(&pool->running, 1) == 1 && atomic_load(&pool->caller_sleeps))
            futex_wake(&pool->running, 1);
    }
}

static void start_epoch(struct hr_pool *pool) {
    atomic_store(&pool->running, (unsigned)pool->n_started);
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleepers) > 0) futex_wake(&pool->epoch, INT_MAX);
}

enum hr_status hr_pool_create(int n_threads, struct hr_pool **out, struct hr_err *err) {
    HR_ASSERT(n_threads >= 1);
    struct hr_pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (!pool) return hr_err_set(err, HR_ERR_NOMEM, "no memory for a thread pool");
    memset(pool, 0, sizeof *pool);
    pool->n_threads = n_threads;
    pool->spins = n_threads <= hr_pool_usable_cores();
    pool->helpers = hr_xcalloc((size_t)n_threads, sizeof *pool->helpers);
    for (int i = 0; i < n_threads - 1; i++) {
        struct helper *h = &pool->helpers[i];
        h->pool = pool;
        h->i_thread = i + 1;
        int rc = pthread_create(&h->thread, NULL, helper_main, h);
        if (rc != 0) {
            hr_err_set(err, HR_ERR_FAILED, "cannot start thread %d of %d: %s; try --threads %d",
                       i + 2, n_threads, strerror(rc), i + 1);
            goto fail;
        }
        pool->n_started++;
    }
    *out = pool;
    return HR_OK;
fail:
    hr_pool_destroy(&pool);
    return HR_ERR_FAILED;
}

void hr_pool_destroy(struct hr_pool **pool) {
    struct hr_pool *p = *pool;
    if (!p) return;
    p->stop = true;
    start_epoch(p);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->helpers[i].thread, NULL);
    free(p->helpers);
    free(p);
    *pool = NULL;
}

void hr_pool_run(struct hr_pool *pool, hr_pool_fn fn, void *arg) {
    if (pool->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    start_epoch(pool);
    fn(arg, 0, pool->n_threads);
    wait_for_helpers(pool);
}

int hr_pool_n_threads(const struct hr_pool *pool) {
    return pool->n_threads;
}

/* First line of a small file; false when there is none. */
static bool read_line(const char *path, char *line, size_t cap) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    return ok;
}

/* Whole cores that quota / period allows; 0 when it sets no limit. Half a core is none: a barrier
 * waits for the thread that was throttled. */
static int cores_of(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    long long cores = quota / period;
    return cores < 1 ? 1 : cores > INT_MAX ? INT_MAX : (int)cores;
}

/* The limit of one group: cpu.max (v2, "max 100000" or "150000 100000") or cpu.cfs_* (v1). */
static int group_limit(const char *dir, bool v2) {
    char path[PATH_MAX + 32], line[128];
    long long quota = 0, period = 0;
    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        if (!read_line(path, line, sizeof line)) return 0;
        if (sscanf(line, "%lld %lld", &quota, &period) != 2) return 0;
        return cores_of(quota, period);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &quota) != 1) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lld", &period) != 1) return 0;
    return cores_of(quota, period);
}

/* The tightest limit of the group and of those above it. In a container the path of
 * /proc/self/cgroup may be the host's, which is not there; the walk up then ends at the mount,
 * which is our group. */
static int tightest_limit(const char *mount, const char *group, bool v2) {
    char dir[PATH_MAX];
    int least = 0;
    int len = snprintf(dir, sizeof dir, "%s%s", mount, group);
    if (len < 0 || (size_t)len >= sizeof dir) return 0;
    size_t stem = strlen(mount);
    for (;;) {
        int n = group_limit(dir, v2);
        if (n > 0 && (least == 0 || n < least)) least = n;
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= stem || !slash || (size_t)(slash - dir) < stem) return least;
        *slash = 0;
    }
}

/* Does the comma-separated list of v1 controllers name `cpu`? */
static bool names_cpu(const char *list) {
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == 3 && memcmp(p, "cpu", 3) == 0) return true;
    return false;
}

int hr_pool_quota_cores(const char *cgroup_file, const char *mount) {
    FILE *f = fopen(cgroup_file, "re");
    if (!f) return 0;
    char line[PATH_MAX];
    int least = 0;
    while (fgets(line, sizeof line, f)) { /* "ID:CONTROLLERS:PATH"; v2 has no controllers */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        list++;
        bool v2 = !*list;
        if (!v2 && !names_cpu(list)) continue;
        char root[PATH_MAX + 8];
        snprintf(root, sizeof root, v2 ? "%s" : "%s/cpu", mount);
        int n = tightest_limit(root, group, v2);
        if (n > 0 && (least == 0 || n < least)) least = n;
    }
    fclose(f);
    return least;
}

int hr_pool_usable_cores(void) {
    /* The kernel refuses a set smaller than its own, so grow it: 1024 cores are not the end. */
    int n = 0;
    for (int cores = 1024; cores <= 1 << 20 && n == 0; cores *= 4) {
        cpu_set_t *set = CPU_ALLOC(cores);
        if (!set) break;
        size_t size = CPU_ALLOC_SIZE(cores);
        if (sched_getaffinity(0, size, set) == 0) n = CPU_COUNT_S(size, set);
        CPU_FREE(set);
    }
    if (n < 1) n = 1;
    int quota = hr_pool_quota_cores("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota > 0 && quota < n ? quota : n;
}

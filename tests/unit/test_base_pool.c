/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: each thread index runs once an epoch, also when the helpers have gone to sleep between two
 * runs and when there are more threads than cores; control-group limits of both versions are read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pool.h"

struct tally {
    atomic_int calls[64];
    int plain[64]; /* written by its thread alone, read by the caller after the run */
    pthread_t caller;
    atomic_int wrong;
};

static void count(void *arg, int i, int n) {
    struct tally *t = arg;
    atomic_fetch_add(&t->calls[i], 1);
    t->plain[i]++;
    if ((i == 0) != (pthread_equal(pthread_self(), t->caller) != 0) || i >= n)
        atomic_fetch_add(&t->wrong, 1);
}

static void run_many(int n_threads, int n_runs, int sleep_us) {
    struct hr_err err;
    struct hr_pool *pool = NULL;
    assert_int_equal(hr_pool_create(n_threads, &pool, &err), HR_OK);
    assert_int_equal(hr_pool_n_threads(pool), n_threads);
    struct tally t = {.caller = pthread_self()};
    for (int r = 1; r <= n_runs; r++) {
        hr_pool_run(pool, count, &t);
        for (int i = 0; i < n_threads; i++) assert_int_equal(t.plain[i], r);
        if (sleep_us) usleep((useconds_t)sleep_us);
    }
    for (int i = 0; i < 64; i++) assert_int_equal(t.calls[i], i < n_threads ? n_runs : 0);
    assert_int_equal(t.wrong, 0);
    hr_pool_destroy(&pool);
    assert_null(pool);
    hr_pool_destroy(&pool);
}

static void every_thread_runs_once_a_run(void **state) {
    run_many(1, 1000, 0);
    run_many(2, 20000, 0);
    run_many(3, 1000, 0);
}

static void more_threads_than_cores_work_too(void **state) {
    run_many(37, 100, 0);
}

static void sleeping_helpers_are_woken(void **state) {
    run_many(2, 50, 500);
    run_many(5, 20, 500);
}

static void an_unused_pool_can_be_destroyed(void **state) {
    struct hr_err err;
    for (int i = 0; i < 50; i++) {
        struct hr_pool *pool = NULL;
        assert_int_equal(hr_pool_create(4, &pool, &err), HR_OK);
        hr_pool_destroy(&pool);
    }
}

static void idle_helpers_use_no_time(void **state) {
    struct hr_err err;
    struct hr_pool *pool = NULL;
    assert_int_equal(hr_pool_create(8, &pool, &err), HR_OK);
    struct tally t = {.caller = pthread_self()};
    hr_pool_run(pool, count, &t);
    usleep(2000); /* past the spinning */
    clock_t before = clock();
    usleep(200000);
    assert_true(clock() - before < CLOCKS_PER_SEC / 50);
    hr_pool_destroy(&pool);
}

static void put(const char *root, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_tightest_group_limits_the_cores(void **state) {
    char root[] = "/tmp/hr-pool-XXXXXX", file[600], cmd[700];
    assert_non_null(mkdtemp(root));
    snprintf(file, sizeof file, "%s/self", root);
    assert_int_equal(hr_pool_quota_cores(file, root), 0); /* no such file */

    put(root, "self", "0::/a/b\n");
    assert_int_equal(hr_pool_quota_cores(file, root), 0);
    put(root, "a/b/cpu.max", "max 100000\n");
    assert_int_equal(hr_pool_quota_cores(file, root), 0);
    put(root, "a/cpu.max", "350000 100000\n");
    assert_int_equal(hr_pool_quota_cores(file, root), 3);
    put(root, "a/b/cpu.max", "50000 100000\n");
    assert_int_equal(hr_pool_quota_cores(file, root), 1);
    /* a path of the host's, unknown here: the mount itself is our group */
    put(root, "self", "0::/host/only\n");
    put(root, "cpu.max", "200000 100000\n");
    assert_int_equal(hr_pool_quota_cores(file, root), 2);

    put(root, "self", "7:cpuset:/x\n4:cpu,cpuacct:/g\n1:name=systemd:/y\n");
    put(root, "cpu/g/cpu.cfs_quota_us", "-1\n");
    put(root, "cpu/g/cpu.cfs_period_us", "100000\n");
    assert_int_equal(hr_pool_quota_cores(file, root), 0);
    put(root, "cpu/g/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(hr_pool_quota_cores(file, root), 4);
    snprintf(cmd, sizeof cmd, "rm -rf %s", root);
    assert_int_equal(system(cmd), 0);
    assert_true(hr_pool_usable_cores() >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_runs_once_a_run),
        cmocka_unit_test(more_threads_than_cores_work_too),
        cmocka_unit_test(sleeping_helpers_are_woken),
        cmocka_unit_test(an_unused_pool_can_be_destroyed),
        cmocka_unit_test(idle_helpers_use_no_time),
        cmocka_unit_test(the_tightest_group_limits_the_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

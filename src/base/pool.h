/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: a team of threads that runs one function at a time, for kernels.
 *
 * hr_pool_run calls fn(arg, i, n) once for each i in 0..n-1, i = 0 on the calling thread, and
 * returns when all have returned. The helpers spin briefly between two runs and then sleep on a
 * futex: a spinning barrier is deadly when cores are shared. One caller at a time. */
#ifndef HR_BASE_POOL_H
#define HR_BASE_POOL_H

#include "base/status.h"

struct hr_pool;
typedef void (*hr_pool_fn)(void *arg, int i_thread, int n_threads);

/* n_threads >= 1 counts the caller; n_threads = 1 makes no thread. */
HR_MUST_USE enum hr_status hr_pool_create(int n_threads, struct hr_pool **out, struct hr_err *err);
void hr_pool_destroy(struct hr_pool **pool);
void hr_pool_run(struct hr_pool *pool, hr_pool_fn fn, void *arg);
int hr_pool_n_threads(const struct hr_pool *pool);

/* Usable cores: affinity mask and cgroup quota, at least 1. */
int hr_pool_usable_cores(void);
/* Whole cores that the control groups of `cgroup_file` (as /proc/self/cgroup) under `mount` allow,
 * v1 and v2, at least 1; 0 when they set no limit. */
int hr_pool_quota_cores(const char *cgroup_file, const char *mount);

#endif

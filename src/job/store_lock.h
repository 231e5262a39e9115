/* SPDX-License-Identifier: Apache-2.0
 *
 * store_lock: one process at a time, private to src/job.
 *
 * The lock is the kernel's, on an open file (an OFD lock: it goes with the process, however it
 * ends), so a stale file never blocks anybody. The file's text is for people: "pid 4711 on host
 * mill". Source: fcntl(2), "Open file description locks". */
#ifndef HR_JOB_STORE_LOCK_H
#define HR_JOB_STORE_LOCK_H

#include <stdbool.h>

#include "base/status.h"

/* Takes the lock on the file `path`, made when it is not there, without waiting. *fd: owned, give
 * it to hr_lock_release. Errors: HR_ERR_LOCKED with who holds it. */
HR_MUST_USE enum hr_status hr_lock_take(const char *path, int *fd, struct hr_err *err);
void hr_lock_release(int *fd); /* -1 is allowed; sets -1 */

/* Does somebody hold it? Looks without taking; false when there is no such file. */
bool hr_lock_held(const char *path);

#endif

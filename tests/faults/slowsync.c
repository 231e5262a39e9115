/* SPDX-License-Identifier: Apache-2.0
 *
 * slowsync: a library for LD_PRELOAD that makes fsync and fdatasync take $FAULT_SYNC_MS longer, as on a
 * busy network disk. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void) {
    const char *ms = getenv("FAULT_SYNC_MS");
    long n = ms ? atol(ms) : 0;
    nanosleep(&(struct timespec){n / 1000, n % 1000 * 1000000}, NULL);
}

int fsync(int fd) {
    wait_for_disk();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    wait_for_disk();
    return (int)syscall(SYS_fdatasync, fd);
}

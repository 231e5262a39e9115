/* SPDX-License-Identifier: Apache-2.0
 *
 * nospace: a library for LD_PRELOAD that makes a disk look full for as long as the file named by
 * $FAULT_FLAG exists. Only files under $FAULT_DIR are on that disk; a write that begins before their
 * present end still works, as it does on a real one. */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS /* both names of pwrite are defined below */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int full(int fd) {
    const char *flag = getenv("FAULT_FLAG"), *dir = getenv("FAULT_DIR");
    char link[64], path[4096];
    if (!flag || !dir || syscall(SYS_access, flag, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    if (strncmp(path, dir, strlen(dir)) != 0) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *p, size_t len) {
    return full(fd) ? -1 : syscall(SYS_write, fd, p, len);
}

ssize_t pwrite(int fd, const void *p, size_t len, off_t offset) {
    return full(fd) && lseek(fd, 0, SEEK_END) <= offset ? (errno = ENOSPC, -1)
                                                        : syscall(SYS_pwrite64, fd, p, len, offset);
}

ssize_t pwrite64(int fd, const void *p, size_t len, off64_t offset) {
    return pwrite(fd, p, len, offset);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * faults_io: see faults_io.h. Real calls are made through syscall(2), so that nothing here can come
 * round to itself. Syncs are counted but not made: a killed process needs none, and a test's disk
 * none at all. */
#undef _FILE_OFFSET_BITS /* both names of pwrite and ftruncate are defined below */
#include "faults_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct faults *faults;

void faults_init(const char *dir, const char *synced) {
    faults = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (faults == MAP_FAILED) abort();
    snprintf(faults->dir, sizeof faults->dir, "%s", dir);
    snprintf(faults->synced, sizeof faults->synced, "%s", synced);
}

static void copy_file(const char *from, const char *to) {
    char bytes[8192];
    int a = open(from, O_RDONLY | O_CLOEXEC),
        b = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (a < 0 || b < 0) abort();
    for (ssize_t n; (n = read(a, bytes, sizeof bytes)) > 0;)
        if (syscall(SYS_write, b, bytes, n) != n) abort();
    close(a);
    close(b);
}

/* The file's name when it lies in the folder that is watched. */
static bool watched_path(const char *path, char *name, size_t cap) {
    size_t n = strlen(faults->dir);
    if (strncmp(path, faults->dir, n) != 0 || path[n] != '/') return false;
    snprintf(name, cap, "%s", path + n + 1);
    return true;
}

static bool watched(int fd, char *name, size_t cap) {
    char link[64], path[256];
    if (!faults || faults->kind == FAULT_NONE) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return false;
    path[n] = 0;
    return watched_path(path, name, cap);
}

/* Counts a call. 0: make it; 1: half of it, then die; 2: half of it, then errno is set. */
static int count_call(void) {
    int k = ++faults->n - faults->at;
    if (faults->kind == FAULT_NOSPACE) return k >= 0 && k < FAULT_NOSPACE_CALLS ? 2 : 0;
    if (k != 0) return 0;
    if (faults->kind == FAULT_EIO) return 2;
    if (faults->kind == FAULT_TORN) return 1;
    _exit(FAULT_EXIT);
}

static ssize_t put(int fd, const void *p, size_t len, long offset) {
    return offset < 0 ? syscall(SYS_write, fd, p, len) : syscall(SYS_pwrite64, fd, p, len, offset);
}

static ssize_t faulty_write(int fd, const void *p, size_t len, long offset) {
    char name[64];
    int what = watched(fd, name, sizeof name) ? count_call() : 0;
    if (what == 0) return put(fd, p, len, offset);
    bool first = faults->n == faults->at; /* later calls on a full disk get nothing at all */
    ssize_t n = faults->kind == FAULT_EIO || !first ? 0 : put(fd, p, len / 2, offset);
    if (what == 1) _exit(FAULT_EXIT);
    if (n > 0) return n;
    errno = faults->kind == FAULT_EIO ? EIO : ENOSPC;
    return -1;
}

static int faulty_sync(int fd) {
    char name[64], from[256], to[256];
    if (!watched(fd, name, sizeof name)) return 0;
    int what = count_call();
    if (what == 1) _exit(FAULT_EXIT);
    if (what == 2) {
        errno = faults->kind == FAULT_EIO ? EIO : ENOSPC;
        return -1;
    }
    if (faults->kind != FAULT_POWER) return 0;
    snprintf(from, sizeof from, "%s/%s", faults->dir, name);
    snprintf(to, sizeof to, "%s/%s", faults->synced, name);
    copy_file(from, to);
    return 0;
}

static int faulty_truncate(int fd, long len) {
    char name[64];
    int what = watched(fd, name, sizeof name) && faults->kind != FAULT_NOSPACE ? count_call() : 0;
    if (what == 1) _exit(FAULT_EXIT);
    if (what == 2) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_ftruncate, fd, len);
}

static bool faulty_name(const char *path) {
    char name[64];
    if (!faults || faults->kind == FAULT_NONE || !watched_path(path, name, sizeof name))
        return true;
    int what = faults->kind != FAULT_NOSPACE ? count_call() : 0;
    if (what == 1) _exit(FAULT_EXIT);
    if (what == 2) errno = EIO;
    return what == 0;
}

ssize_t write(int fd, const void *p, size_t len) {
    return faulty_write(fd, p, len, -1);
}

ssize_t pwrite(int fd, const void *p, size_t len, off_t offset) {
    return faulty_write(fd, p, len, offset);
}

ssize_t pwrite64(int fd, const void *p, size_t len, off64_t offset) {
    return faulty_write(fd, p, len, offset);
}

int fdatasync(int fd) {
    return faulty_sync(fd);
}

int fsync(int fd) {
    return faulty_sync(fd);
}

int ftruncate(int fd, off_t len) {
    return faulty_truncate(fd, len);
}

int ftruncate64(int fd, off64_t len) {
    return faulty_truncate(fd, len);
}

int rename(const char *from, const char *to) {
    return faulty_name(from) ? (int)syscall(SYS_rename, from, to) : -1;
}

int unlink(const char *path) {
    return faulty_name(path) ? (int)syscall(SYS_unlink, path) : -1;
}

void faults_power_cut(unsigned keep) {
    static const char *const names[] = {"raw_responses.jsonl", "rejects.jsonl", "state.db-wal",
                                        "state.db"};
    char live[256], synced[256];
    for (unsigned i = 0; i < 4; i++) {
        snprintf(live, sizeof live, "%s/%s", faults->dir, names[i]);
        snprintf(synced, sizeof synced, "%s/%s", faults->synced, names[i]);
        if (keep >> i & 1) continue;
        syscall(SYS_unlink, live);
        if (access(synced, F_OK) == 0) copy_file(synced, live);
    }
    snprintf(live, sizeof live, "%s/state.db-shm", faults->dir);
    syscall(SYS_unlink, live); /* memory, really */
}

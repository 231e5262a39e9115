/* SPDX-License-Identifier: Apache-2.0
 *
 * store_lock: see store_lock.h. */
#include "job/store_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HOLDER_MAX 128 /* bytes of the lock file's text */

static struct flock whole_file(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

/* The text of the lock file. A holder writes it just after it got the lock: an empty text, or the
 * pid of a process that is gone, is worth a second look. */
static void read_holder(int fd, char *text, size_t cap) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    for (int i_try = 0; i_try < 10; i_try++) {
        ssize_t n = pread(fd, text, cap - 1, 0);
        text[n > 0 ? n : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        long pid = 0;
        char on[64] = "";
        bool parsed = sscanf(text, "pid %ld on host %63s", &pid, on) == 2;
        bool gone = strcmp(on, host) == 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
        if (parsed && !gone) return;
        nanosleep(&(struct timespec){0, 20 * 1000000}, NULL);
    }
    if (!text[0]) snprintf(text, cap, "an unknown process");
}

static void write_holder(int fd) {
    char host[64] = "", text[HOLDER_MAX];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "pid %ld on host %s\n", (long)getpid(), host);
    /* Only people read it: on a full disk the lock holds without its text. */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) return;
}

enum hr_status hr_lock_take(const char *path, int *fdp, struct hr_err *err) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return hr_err_set(err, errno == ENOSPC || errno == EDQUOT ? HR_ERR_NOSPACE : HR_ERR_IO,
                          "%s: cannot open the lock file: %s", path, strerror(errno));
    struct flock lock = whole_file(F_WRLCK);
    enum hr_status code = HR_OK;
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        int e = errno;
        char holder[HOLDER_MAX];
        if (e == EAGAIN || e == EACCES) {
            read_holder(fd, holder, sizeof holder);
            code = hr_err_set(err, HR_ERR_LOCKED, "another run is using it: %s holds %s", holder,
                              path);
        } else {
            code = hr_err_set(err, HR_ERR_IO, "%s: this file system does not support locks: %s",
                              path, strerror(e));
        }
        close(fd);
        return code;
    }
    write_holder(fd);
    *fdp = fd;
    return HR_OK;
}

void hr_lock_release(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

bool hr_lock_held(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    struct flock lock = whole_file(F_RDLCK);
    bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return held;
}

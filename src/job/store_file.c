/* SPDX-License-Identifier: Apache-2.0
 *
 * store_file: see store_file.h. */
#include "job/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

static enum hr_status fail(const char *path, const char *what, int e, struct hr_err *err) {
    if (e == ENOSPC || e == EDQUOT)
        return hr_err_set(err, HR_ERR_NOSPACE, "%s: cannot %s: %s", path, what, strerror(e));
    return hr_err_set(err, HR_ERR_IO, "%s: cannot %s: %s", path, what, strerror(e));
}

enum hr_status hr_file_open(struct hr_file *f, const char *path, struct hr_err *err) {
    struct stat s;
    *f = (struct hr_file){.fd = -1, .path = hr_xstrdup(path)};
    /* O_NONBLOCK: a pipe under this name is refused below instead of waited for. */
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    if (f->fd < 0 || fstat(f->fd, &s) != 0) return fail(path, "open it", errno, err);
    if (!S_ISREG(s.st_mode))
        return hr_err_set(err, HR_ERR_CONFIG, "%s is not a regular file", path);
    f->size = s.st_size;
    return HR_OK;
}

void hr_file_close(struct hr_file *f) {
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    *f = (struct hr_file){.fd = -1};
}

/* Back to the part that counts. When even that fails, the next append writes over the rest, and the
 * next start cuts it. */
static void undo(struct hr_file *f) {
    while (ftruncate(f->fd, f->size) != 0 && errno == EINTR) {
    }
}

enum hr_status hr_file_append(struct hr_file *f, const void *data, size_t len, struct hr_err *err) {
    const char *p = data;
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(f->fd, p + done, len - done, f->size + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int e = n < 0 ? errno : ENOSPC;
            undo(f);
            return fail(f->path, "append to it", e, err);
        }
        done += (size_t)n;
    }
    f->size += (int64_t)len;
    f->unsynced = true;
    return HR_OK;
}

enum hr_status hr_file_sync(struct hr_file *f, struct hr_err *err) {
    if (!f->unsynced) return HR_OK;
    while (fdatasync(f->fd) != 0)
        if (errno != EINTR) return fail(f->path, "sync it", errno, err);
    f->unsynced = false;
    return HR_OK;
}

enum hr_status hr_file_cut(struct hr_file *f, int64_t size, struct hr_err *err) {
    while (ftruncate(f->fd, size) != 0)
        if (errno != EINTR) return fail(f->path, "cut it", errno, err);
    f->size = size;
    f->unsynced = true;
    return HR_OK;
}

enum hr_status hr_file_read(const struct hr_file *f, int64_t offset, size_t len, struct hr_buf *out,
                            bool *whole, struct hr_err *err) {
    hr_buf_reserve(out, len);
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(f->fd, out->data + out->len + done, len - done, offset + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(f->path, "read it", errno, err);
        if (n == 0) break;
        done += (size_t)n;
    }
    out->len += done;
    *whole = done == len;
    return HR_OK;
}

void hr_dir_sync(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    /* Some file systems refuse this; they have their own idea of when an entry is there. */
    if (fsync(fd) != 0) errno = 0;
    close(fd);
}

enum hr_status hr_dir_make(const char *dir, struct hr_err *err) {
    HR_ASSERT(dir[0]);
    char *path = hr_xstrdup(dir);
    enum hr_status code = HR_OK;
    for (char *p = path + 1; !code; p++) {
        if (*p && *p != '/') continue;
        char c = *p;
        *p = 0;
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            code = fail(path, "make this folder", errno, err);
        *p = c;
        if (!c) break;
    }
    struct stat s;
    if (!code && stat(dir, &s) != 0) code = fail(dir, "look at it", errno, err);
    if (!code && !S_ISDIR(s.st_mode))
        code = hr_err_set(err, HR_ERR_CONFIG, "%s is not a folder", dir);
    free(path);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * runlog: see runlog.h. Each line is one write(2) to a file opened with O_APPEND, so a kill tears
 * at most the last one. After a short write the next line begins on a line of its own. */
#include "job/runlog.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

struct file {
    int fd;
    bool torn; /* the last line of the file has no end */
};

struct hr_runlog {
    pthread_mutex_t lock; /* hr_runlog_add against the sink, which any thread calls */
    struct file *files;   /* owned */
    int n_files;
    struct hr_buf line; /* kept, so that logging does not allocate each time */
};

static void put_line(struct file *f, const struct hr_buf *line) {
    if (f->torn && write(f->fd, "\n", 1) != 1) return;
    f->torn = false;
    ssize_t n;
    do n = write(f->fd, line->data, line->len);
    while (n < 0 && errno == EINTR);
    if (n > 0 && (size_t)n < line->len) f->torn = true;
}

static void on_line(void *arg, enum hr_log_level level, const char *text, size_t len) {
    static const char *const names[] = {"debug", "info", "warning", "error"};
    struct hr_runlog *log = arg;
    char now[25];
    hr_clock_iso(now);
    pthread_mutex_lock(&log->lock);
    hr_buf_clear(&log->line);
    hr_buf_printf(&log->line, "%s %s ", now, names[level]);
    hr_buf_append(&log->line, text, len);
    hr_buf_putc(&log->line, '\n');
    for (int i = 0; i < log->n_files; i++) put_line(&log->files[i], &log->line);
    pthread_mutex_unlock(&log->lock);
}

struct hr_runlog *hr_runlog_create(void) {
    struct hr_runlog *log = hr_xcalloc(1, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    hr_log_set_sink(on_line, log);
    return log;
}

/* Did a kill or a full disk leave a last line without an end? */
static bool ends_torn(int fd) {
    char last = '\n';
    off_t size = lseek(fd, 0, SEEK_END);
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

void hr_runlog_add(struct hr_runlog *log, const char *dir, const char *first_json) {
    struct hr_buf path = {0}, line = {0};
    hr_buf_printf(&path, "%s/run.log", dir);
    int fd = open(hr_buf_cstr(&path), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        hr_warn("%s: %s; the run goes on without it", path.data, strerror(errno));
    } else {
        struct file f = {.fd = fd, .torn = ends_torn(fd)};
        hr_buf_printf(&line, "%s\n", first_json);
        put_line(&f, &line);
        pthread_mutex_lock(&log->lock);
        log->files = hr_xrealloc(log->files, (size_t)(log->n_files + 1) * sizeof f);
        log->files[log->n_files++] = f;
        pthread_mutex_unlock(&log->lock);
    }
    hr_buf_finish(&path);
    hr_buf_finish(&line);
}

void hr_runlog_destroy(struct hr_runlog **log) {
    struct hr_runlog *l = *log;
    if (!l) return;
    hr_log_set_sink(NULL, NULL);
    for (int i = 0; i < l->n_files; i++) close(l->files[i].fd);
    free(l->files);
    hr_buf_finish(&l->line);
    pthread_mutex_destroy(&l->lock);
    free(l);
    *log = NULL;
}

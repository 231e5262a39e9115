/* SPDX-License-Identifier: Apache-2.0
 *
 * log: whole lines to stderr; see log.h. State at file scope is the level, the sink, the live line
 * and whether stderr stands still, under one lock: a program has one stderr.
 *
 * A reader that stopped reading (a pager, Ctrl-S) must not stop a run of hours: a line waits
 * STALL_MS once, and from then on what stderr cannot take at once is left out (the sink gets it all
 * the same). The first line that it takes again says how many were lost. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum hr_log_level level_min = HR_LOG_INFO;
static hr_log_sink_fn sink;
static void *sink_arg;
static char live[512];

#define STALL_MS 250
static bool stalled;
static long n_lost; /* lines, since it stalled */

void hr_log_set_level(enum hr_log_level min) {
    level_min = min;
}

void hr_log_set_sink(hr_log_sink_fn fn, void *arg) {
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_arg = arg;
    pthread_mutex_unlock(&lock);
}

static bool can_write(void) {
    struct pollfd fd = {.fd = 2, .events = POLLOUT};
    int n;
    do n = poll(&fd, 1, stalled ? 0 : STALL_MS);
    while (n < 0 && errno == EINTR);
    stalled = n == 0;
    return !stalled;
}

/* False when something was left out. A pipe that polls writable takes PIPE_BUF bytes without
 * waiting. */
static bool write_all(const char *p, size_t n) {
    while (n > 0) {
        if (!can_write()) return false;
        ssize_t k = write(2, p, n < PIPE_BUF ? n : PIPE_BUF);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return true; /* nobody to tell, now or later */
        p += k, n -= (size_t)k;
    }
    return true;
}

void hr_log_set_live(const char *text) {
    struct hr_buf out = {0};
    pthread_mutex_lock(&lock);
    if (strcmp(text, live) != 0) {
        hr_buf_puts(&out, "\r\033[K");
        snprintf(live, sizeof live, "%s", text);
        hr_buf_puts(&out, live);
        write_all(out.data, out.len);
    }
    pthread_mutex_unlock(&lock);
    hr_buf_finish(&out);
}

void hr_log_quiet(enum hr_log_level level, const char *line) {
    pthread_mutex_lock(&lock);
    if (sink) sink(sink_arg, level, line, strlen(line));
    pthread_mutex_unlock(&lock);
}

void hr_log(enum hr_log_level level, const char *fmt, ...) {
    if (level < level_min) return;
    struct hr_buf line = {0}, out = {0};
    va_list ap;
    va_start(ap, fmt);
    hr_buf_vprintf(&line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (live[0]) hr_buf_puts(&out, "\r\033[K");
    hr_buf_puts(&out, level == HR_LOG_WARN ? "warning: " : level == HR_LOG_ERROR ? "error: " : "");
    hr_buf_append(&out, line.data, line.len);
    hr_buf_putc(&out, '\n');
    hr_buf_puts(&out, live);
    if (n_lost > 0 && can_write()) {
        char note[80];
        int n = snprintf(note, sizeof note, "(%ld lines were lost: nobody read them)\n", n_lost);
        if (write_all(note, (size_t)n)) n_lost = 0;
    }
    if (!write_all(out.data, out.len)) n_lost++;
    if (sink) sink(sink_arg, level, hr_buf_cstr(&line), line.len);
    pthread_mutex_unlock(&lock);
    hr_buf_finish(&line);
    hr_buf_finish(&out);
}

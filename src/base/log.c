/* SPDX-License-Identifier: Apache-2.0
 *
 * log: whole lines to stderr; see log.h. State at file scope is the level, the sink and the live line,
 * under one lock: a program has one stderr. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum hr_log_level level_min = HR_LOG_INFO;
static hr_log_sink_fn sink;
static void *sink_arg;
static char live[512];

void hr_log_set_level(enum hr_log_level min) {
    level_min = min;
}

void hr_log_set_sink(hr_log_sink_fn fn, void *arg) {
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_arg = arg;
    pthread_mutex_unlock(&lock);
}

static void write_all(const char *p, size_t n) {
    while (n > 0) {
        ssize_t k = write(2, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return; /* nobody to tell */
        p += k, n -= (size_t)k;
    }
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
    write_all(out.data, out.len);
    if (sink) sink(sink_arg, level, hr_buf_cstr(&line), line.len);
    pthread_mutex_unlock(&lock);
    hr_buf_finish(&line);
    hr_buf_finish(&out);
}

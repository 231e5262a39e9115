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

/* Bytes of the character at s that a terminal would obey instead of showing it: a control character (C0, DEL
 * or C1), or one that turns the direction of writing. 0: it is harmless. */
static size_t commands_terminal(const unsigned char *s, unsigned *code) {
    *code = s[0];
    if (s[0] < 0x20 || s[0] == 0x7f) return 1;
    *code = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0) return 2;
    if (s[0] != 0xe2 || (s[1] != 0x80 && s[1] != 0x81)) return 0;
    *code = (s[0] & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    return (*code >= 0x202a && *code <= 0x202e) || (*code >= 0x2066 && *code <= 0x2069) ? 3 : 0;
}

/* Paths and ids are the user's text: in a message they are one line and move no cursor. */
void hr_log_visible(const char *text, struct hr_buf *out) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        unsigned code;
        size_t n = commands_terminal(s, &code);
        if (n == 0) hr_buf_putc(out, (char)*s);
        else if (code == '\n') hr_buf_puts(out, "\\n");
        else hr_buf_printf(out, n == 3 ? "\\u%04x" : "\\x%02x", code);
        s += n ? n : 1;
    }
}

void hr_log(enum hr_log_level level, const char *fmt, ...) {
    if (level < level_min) return;
    struct hr_buf raw = {0}, line = {0}, out = {0};
    va_list ap;
    va_start(ap, fmt);
    hr_buf_vprintf(&raw, fmt, ap);
    va_end(ap);
    hr_log_visible(hr_buf_cstr(&raw), &line);
    hr_buf_finish(&raw);
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

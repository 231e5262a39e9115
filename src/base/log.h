/* SPDX-License-Identifier: Apache-2.0
 *
 * log: talk to people on stderr, one whole line a write(2), unbuffered.
 *
 * A sink may be added that receives each line too (run.log); a hook is called before and after a line
 * so that a live terminal line can be lifted out of the way. Thread-safe: a line is never torn. A
 * stderr that nobody reads loses lines instead of stopping the program; the sink gets them all. */
#ifndef HR_BASE_LOG_H
#define HR_BASE_LOG_H

#include "base/buf.h"

enum hr_log_level { HR_LOG_DEBUG, HR_LOG_INFO, HR_LOG_WARN, HR_LOG_ERROR };

void hr_log_set_level(enum hr_log_level min);

/* `line` has no newline; borrowed for the call. Called under the log's lock, by any thread. One sink;
 * NULL takes it away. The sink must not log. */
typedef void (*hr_log_sink_fn)(void *arg, enum hr_log_level level, const char *line, size_t len);
void hr_log_set_sink(hr_log_sink_fn fn, void *arg);

/* Text that is kept at the bottom of the terminal (no newline; "" takes it away): it is erased before
 * a log line and drawn again after it. Only for a terminal; the caller checks isatty. */
void hr_log_set_live(const char *text);

/* Appends the text as a log line shows it: control characters and those that turn the direction of writing as
 * \n, \x1b, \u202e. */
void hr_log_visible(const char *text, struct hr_buf *out);

/* The line as hr_log_visible makes it. */
void hr_log(enum hr_log_level level, const char *fmt, ...) HR_PRINTF(2, 3);
/* Gives a line to the sink alone: for what a terminal shows in another form. */
void hr_log_quiet(enum hr_log_level level, const char *line);

#define hr_info(...)  hr_log(HR_LOG_INFO, __VA_ARGS__)
#define hr_warn(...)  hr_log(HR_LOG_WARN, __VA_ARGS__)
#define hr_error(...) hr_log(HR_LOG_ERROR, __VA_ARGS__)
#define hr_debug(...) hr_log(HR_LOG_DEBUG, __VA_ARGS__)

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * status: what a call that can fail returns, and the message that goes with it.
 *
 * Owns the list of status codes and their texts (one X-macro) and `struct hr_err`. A message names
 * the row, file:line, tensor or device at fault and what the user can do about it. It refuses to
 * print or to exit: only main.c does that. */
#ifndef HR_BASE_STATUS_H
#define HR_BASE_STATUS_H

#include <stddef.h>

#define HR_STATUS_LIST(X)                                                                          \
    X(HR_OK, 0, "ok")                                                                              \
    X(HR_ERR_FAILED, -1, "failed")                                                                 \
    X(HR_ERR_NOMEM, -2, "out of memory")                                                           \
    X(HR_ERR_IO, -3, "input/output error")                                                         \
    X(HR_ERR_FORMAT, -4, "malformed data")                                                         \
    X(HR_ERR_CONFIG, -5, "wrong usage or configuration")                                           \
    X(HR_ERR_LOCKED, -6, "in use by another process")                                              \
    X(HR_ERR_LIMIT, -7, "over a limit")                                                            \
    X(HR_ERR_UNSUPPORTED, -8, "not supported")                                                     \
    X(HR_ERR_NUMERIC, -9, "not a finite number")                                                   \
    X(HR_ERR_NOSPACE, -10, "no space left on the device")                                          \
    X(HR_ERR_INTERRUPTED, -11, "interrupted")                                                      \
    X(HR_ERR_NOTFOUND, -12, "not found")

enum hr_status {
#define HR_X(name, value, text) name = value,
    HR_STATUS_LIST(HR_X)
#undef HR_X
};

#define HR_MUST_USE       __attribute__((warn_unused_result))
#define HR_PRINTF(fmt, n) __attribute__((format(printf, fmt, n)))

/* Static text of a code; "unknown status" for a value outside the list. */
const char *hr_status_text(enum hr_status code);

struct hr_err {
    enum hr_status code;
    char msg[1024]; /* one line, UTF-8, cut at a character border when too long */
};

/* Fills `err` (NULL is allowed) and returns `code`, so that a caller can `return hr_err_set(...)`. */
enum hr_status hr_err_set(struct hr_err *err, enum hr_status code, const char *fmt, ...)
    HR_PRINTF(3, 4);

/* Puts "prefix: " before the message that `err` already holds; returns its code. */
enum hr_status hr_err_prefix(struct hr_err *err, const char *fmt, ...) HR_PRINTF(2, 3);

#endif

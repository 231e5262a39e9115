/* SPDX-License-Identifier: Apache-2.0
 *
 * status: texts of the codes, formatting of messages, and the last word of a failed assertion. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

const char *hr_status_text(enum hr_status code) {
    switch (code) {
#define HR_X(name, value, text)                                                                    \
    case name: return text;
        HR_STATUS_LIST(HR_X)
#undef HR_X
    }
    return "unknown status";
}

/* A message that was cut must not end inside a character. */
static void cut_at_char(char *s, size_t cap) {
    size_t n = strlen(s);
    if (n + 1 < cap) return;
    while (n > 0 && ((unsigned char)s[n - 1] & 0xc0) == 0x80) n--;
    if (n > 0 && (unsigned char)s[n - 1] >= 0xc0) n--;
    s[n] = 0;
}

enum hr_status hr_err_set(struct hr_err *err, enum hr_status code, const char *fmt, ...) {
    if (!err) return code;
    char msg[sizeof err->msg]; /* the arguments may point into err->msg */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    cut_at_char(msg, sizeof msg);
    err->code = code;
    memcpy(err->msg, msg, sizeof msg);
    return code;
}

enum hr_status hr_err_prefix(struct hr_err *err, const char *fmt, ...) {
    if (!err) return HR_ERR_FAILED;
    char head[sizeof err->msg], msg[2 * sizeof err->msg + 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    snprintf(msg, sizeof msg, "%s: %s", head, err->msg);
    msg[sizeof err->msg - 1] = 0;
    cut_at_char(msg, sizeof err->msg);
    memcpy(err->msg, msg, sizeof err->msg);
    return err->code;
}

_Noreturn void hr_assert_fail(const char *expr, const char *file, int line) {
    fprintf(stderr, "headrace: internal error: %s:%d: %s does not hold; please report it\n", file, line,
            expr);
    abort();
}

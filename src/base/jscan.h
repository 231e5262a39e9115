/* SPDX-License-Identifier: Apache-2.0
 *
 * jscan: strict JSON (RFC 8259) read in place, by spans.
 *
 * A dataset's row is never turned into objects: numbers and carried fields stay the input's own bytes
 * (big integers, 0.10, 1e400). hr_jscan_validate checks a whole text once: syntax, UTF-8, no lone
 * surrogate escape, no raw control character, depth at most HR_JSCAN_DEPTH, no trailing bytes; after
 * it the walkers below can be simple. Never recursive on the C stack beyond the stated depth. */
#ifndef HR_BASE_JSCAN_H
#define HR_BASE_JSCAN_H

#include <stdbool.h>

#include "base/buf.h"

#define HR_JSCAN_DEPTH 512

enum hr_jtype { HR_JNULL, HR_JTRUE, HR_JFALSE, HR_JNUMBER, HR_JSTRING, HR_JARRAY, HR_JOBJECT };

/* One value: its bytes in the text, quotes or brackets included. Borrowed from the text. */
struct hr_jval {
    enum hr_jtype type;
    const char *p;
    size_t len;
};

/* Checks `text` and sets the outermost value (surrounding blanks left out). Errors: HR_ERR_FORMAT with
 * the byte offset and what is wrong ("lone surrogate escape at byte 17"). Duplicate keys are allowed
 * here (the last one wins in hr_jscan_get). */
HR_MUST_USE enum hr_status hr_jscan_validate(const char *text, size_t len, struct hr_jval *out,
                                             struct hr_err *err);

/* Iterates a validated array or object: zero the iterator, then call until it returns false. `key` is
 * the key's string value span (with quotes), for objects only. */
struct hr_jiter {
    const char *p; /* NULL at the start */
};
bool hr_jscan_next(const struct hr_jval *container, struct hr_jiter *it, struct hr_jval *key,
                   struct hr_jval *value);

/* The last member of a validated object whose decoded key equals `key`; false if there is none. */
bool hr_jscan_get(const struct hr_jval *object, const char *key, struct hr_jval *value);

/* Does a string value decode to exactly these bytes? */
bool hr_jscan_str_eq(const struct hr_jval *string, const char *s, size_t len);

/* Appends the decoded bytes of a string value (UTF-8; may hold NUL from \u0000). */
void hr_jscan_str(const struct hr_jval *string, struct hr_buf *out);

/* Number as int64 when it is written as an integer that fits, or as a whole float such as 8.0. */
bool hr_jscan_int(const struct hr_jval *number, int64_t *out);
/* Number as double; false when it is not finite as a double (1e400). */
bool hr_jscan_double(const struct hr_jval *number, double *out);

/* Appends the value in one canonical form, for hashing: no blanks, strings with minimal escapes,
 * object members sorted by key bytes (last duplicate only), numbers as written. */
void hr_jscan_canonical(const struct hr_jval *value, struct hr_buf *out);

/* True when the bytes are valid UTF-8 (no surrogates, no overlong forms, at most U+10FFFF);
 * otherwise *bad is the offset of the first bad byte. */
bool hr_utf8_valid(const char *s, size_t len, size_t *bad);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * base64: reads the standard alphabet (RFC 4648, section 4), as tokenizer files use it.
 *
 * Strict: padding must be there and nothing else may be; a tokenizer with a damaged table would
 * split text in silence. */
#ifndef HR_TEXT_BASE64_H
#define HR_TEXT_BASE64_H

#include <stdbool.h>

#include "base/buf.h"

/* Appends the bytes; false, with `out` as it was, when s is not base64. */
bool hr_base64_decode(const char *s, size_t len, struct hr_buf *out);

#endif

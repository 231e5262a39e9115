/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: growable arrays of bytes and of token ids.
 *
 * A zeroed struct is an empty, valid buffer. Growth doubles. Out of memory aborts the process with a
 * plain message (buffers hold rows and prompts, bounded by the row limit; nothing useful can run
 * without them), so appends return nothing. */
#ifndef HR_BASE_BUF_H
#define HR_BASE_BUF_H

#include <stdarg.h>
#include <stdint.h>

#include "base/status.h"

struct hr_buf {
    char *data; /* owned; not NUL-terminated unless hr_buf_cstr was called; NULL while cap is 0 */
    size_t len, cap;
};

void hr_buf_finish(struct hr_buf *b); /* frees; leaves an empty valid buffer */
void hr_buf_clear(struct hr_buf *b);  /* len = 0, keeps the memory */
void hr_buf_reserve(struct hr_buf *b, size_t n_more);
void hr_buf_append(struct hr_buf *b, const void *data, size_t len);
void hr_buf_puts(struct hr_buf *b, const char *s);
/* At most `max` bytes of s, never half a character, and "..." when that was not all. */
void hr_buf_put_cut(struct hr_buf *b, const char *s, size_t len, size_t max);
void hr_buf_putc(struct hr_buf *b, char c);
void hr_buf_printf(struct hr_buf *b, const char *fmt, ...) HR_PRINTF(2, 3);
void hr_buf_vprintf(struct hr_buf *b, const char *fmt, va_list ap);
/* NUL-terminates in place (len unchanged) and returns data; borrowed until the next change. */
const char *hr_buf_cstr(struct hr_buf *b);
/* Appends `s` as a JSON string, quotes included: escapes `"`, `\` and U+0000..U+001F; other bytes as
 * they are. `s` must be valid UTF-8 (asserted nowhere: the reader has checked it). */
void hr_buf_json_str(struct hr_buf *b, const char *s, size_t len);

struct hr_ids {
    int32_t *data; /* owned */
    size_t len, cap;
};

void hr_ids_finish(struct hr_ids *v);
void hr_ids_push(struct hr_ids *v, int32_t id);
void hr_ids_append(struct hr_ids *v, const int32_t *ids, size_t n);

/* malloc/calloc/realloc/strdup that abort with a message instead of returning NULL. */
void *hr_xmalloc(size_t n);
void *hr_xcalloc(size_t n, size_t size);
void *hr_xrealloc(void *p, size_t n);
char *hr_xstrdup(const char *s);
char *hr_xstrndup(const char *s, size_t n);

#endif

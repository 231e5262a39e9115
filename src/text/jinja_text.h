/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_text: strings of the template interpreter: building, cutting, searching, case, and the
 * properties of characters. Private to the room. Every call carries the marks of a user's bytes
 * along. */
#ifndef HR_TEXT_JINJA_TEXT_H
#define HR_TEXT_JINJA_TEXT_H

#include "text/jinja_value.h"

/* --- strings (jinja_str.c): builder, substrings, code points */

struct jj_sb { /* zeroed but for run: empty */
    struct jj_run *run;
    char *p;
    size_t len, cap;
    struct hr_span *spans;
    uint32_t n_spans, cap_spans;
};
void jj_sb_put(struct jj_sb *sb, const char *p, size_t n); /* the template's own bytes */
void jj_sb_puts(struct jj_sb *sb, const char *s);
void jj_sb_fill(struct jj_sb *sb, const char *p, size_t n, int64_t times);
void jj_sb_str(struct jj_sb *sb, const struct jj_str *s);
void jj_sb_sub(struct jj_sb *sb, const struct jj_str *s, size_t from, size_t to);
/* bytes that stand for s[from, to): marked when any of those is */
void jj_sb_as(struct jj_sb *sb, const struct jj_str *s, size_t from, size_t to, const char *p,
              size_t n);
struct jj_val jj_sb_val(struct jj_sb *sb);
const char *jj_sb_cstr(struct jj_sb *sb); /* with a NUL behind it; "" when the run has failed */
struct jj_val jj_concat(struct jj_run *r, const struct jj_str *a, const struct jj_str *b);

struct jj_val jj_str_ref(struct jj_run *r, const char *p, size_t len); /* borrows p */
struct jj_val jj_str_copy(struct jj_run *r, const char *p, size_t len);
struct jj_val jj_cstr(struct jj_run *r, const char *s);                 /* borrows */
struct jj_val jj_str_user(struct jj_run *r, const char *p, size_t len); /* borrows; all marked */
struct jj_val jj_substr(struct jj_run *r, const struct jj_str *s, size_t from, size_t to);
/* s without the mark of Markup, which its characters do not have. */
struct jj_val jj_str_plain(struct jj_run *r, const struct jj_str *s);
bool jj_str_eq(struct jj_run *r, const struct jj_str *a, const struct jj_str *b);
bool jj_str_is(const struct jj_str *a, const char *s);
size_t jj_str_n_chars(struct jj_run *r, const struct jj_str *s);
/* byte offset of a character */
size_t jj_str_offset(struct jj_run *r, const struct jj_str *s, size_t i_char);
/* First occurrence at or after `from`, last one that ends at or before `to`; SIZE_MAX if none. */
size_t jj_str_find(struct jj_run *r, const struct jj_str *s, const struct jj_str *sub, size_t from);
size_t jj_str_rfind(struct jj_run *r, const struct jj_str *s, const struct jj_str *sub, size_t to);
struct jj_val jj_strip(struct jj_run *r, const struct jj_str *s, const struct jj_str *chars,
                       bool left, bool right);
struct jj_val jj_replace(struct jj_run *r, const struct jj_str *s, const struct jj_str *from,
                         const struct jj_str *to, int64_t count);
struct jj_val jj_escape(struct jj_run *r, const struct jj_str *s);

/* More of them in jinja_strops.c. */
enum jj_pad { JJ_PAD_LEFT, JJ_PAD_RIGHT, JJ_PAD_BOTH };
struct jj_val jj_str_capitalize(struct jj_run *r, const struct jj_str *s);
struct jj_val jj_str_pad(struct jj_run *r, const struct jj_str *s, int64_t width, const char *fill,
                         size_t n_fill, enum jj_pad how);
/* The line that begins at `from` ends at *end, the next begins at *next. */
void jj_line_end(struct jj_run *r, const struct jj_str *s, size_t from, size_t *end, size_t *next);
/* sep NULL: runs of white space. max < 0: all. */
struct jj_val jj_split(struct jj_run *r, const struct jj_str *s, const struct jj_str *sep,
                       int64_t max);
struct jj_val jj_rsplit(struct jj_run *r, const struct jj_str *s, const struct jj_str *sep,
                        int64_t max);

/* UTF-8 and character properties (jinja_uni.c). The text is valid UTF-8. */
uint32_t jj_decode(const char *p, const char *end, size_t *n);
size_t jj_encode(uint32_t c, char out[4]);
bool jj_is_space(uint32_t c);
bool jj_is_printable(uint32_t c);
bool jj_is_alpha(uint32_t c);
bool jj_is_decimal(uint32_t c);
bool jj_is_digit(uint32_t c);
bool jj_is_numeric(uint32_t c);
bool jj_is_upper(uint32_t c);
bool jj_is_lower(uint32_t c);
bool jj_is_cased(uint32_t c);
enum jj_case { JJ_TO_UPPER, JJ_TO_LOWER, JJ_TO_TITLE, JJ_TO_FOLD };
int jj_map_case(uint32_t c, enum jj_case how, uint32_t out[3]); /* number of code points */
struct jj_val jj_str_case(struct jj_run *r, const struct jj_str *s, enum jj_case how);
/* The character `c` = s[at, at + n) in the other case. */
void jj_sb_case(struct jj_sb *sb, const struct jj_str *s, size_t at, size_t n, uint32_t c,
                enum jj_case how);

#endif

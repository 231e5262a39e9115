/* SPDX-License-Identifier: Apache-2.0
 *
 * template: chat templates, through an interpreter of the Jinja subset that templates use.
 *
 * Behaves as Jinja2 does with the settings of transformers (ImmutableSandboxedEnvironment, trim_blocks,
 * lstrip_blocks, loopcontrols, the generation tag, its tojson, raise_exception, strftime_now). What is
 * not supported is an error when the template is compiled, with line and column. A template is foreign
 * code: it runs under limits and reaches nothing but its variables.
 *
 * The interpreter follows which bytes of the output a user wrote (strings of the context that are
 * marked as foreign) through every string operation, so that the tokenizer can treat control tokens
 * typed by a user as plain text. */
#ifndef HR_TEXT_TEMPLATE_H
#define HR_TEXT_TEMPLATE_H

#include <stdbool.h>
#include <time.h>

#include "base/buf.h"
#include "text/tokenizer.h" /* struct hr_span */

struct hr_template;

/* Copies what it needs. Immutable afterwards: threads may render at the same time. */
HR_MUST_USE enum hr_status hr_template_compile(const char *source, size_t len,
                                               struct hr_template **out, struct hr_err *err);
void hr_template_destroy(struct hr_template **t);

struct hr_template_limits {
    size_t steps_max;  /* evaluated nodes, and work on values in proportion (jinja_int.h) */
    size_t memory_max; /* bytes held by values during one render */
    size_t output_max; /* bytes */
    int depth_max;     /* nested calls and expressions */
};
extern const struct hr_template_limits hr_template_limits_default;

/* One variable of the context: `json` is validated JSON text (base/jscan), turned into the value.
 * trusted: its strings belong to the template's side (bos_token, eos_token). Otherwise every string in
 * it is marked as written by a user, except the values of keys named "role" or "type" that are plain
 * words ([A-Za-z_]+), which templates build control tokens from. */
struct hr_template_var {
    const char *name;
    const char *json;
    size_t json_len;
    bool trusted;
};

struct hr_rendered {
    struct hr_buf text;
    struct hr_span *user; /* owned; the bytes of text that a user wrote, sorted, merged */
    size_t n_user, cap_user;
};
void hr_rendered_finish(struct hr_rendered *r); /* zeroed is valid */

/* now: what strftime_now takes as local time (struct tm as given, no time zone applied); NULL: an
 * error when the template asks for it. Errors: HR_ERR_FORMAT with the template's own message for
 * raise_exception (err->msg is exactly that message), or "line L: ..." for runtime errors;
 * HR_ERR_LIMIT. On failure `out` is left empty; what it held before is not freed. */
HR_MUST_USE enum hr_status hr_template_render(const struct hr_template *t,
                                              const struct hr_template_var *vars, size_t n_vars,
                                              const struct tm *now,
                                              const struct hr_template_limits *limits,
                                              struct hr_rendered *out, struct hr_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt: the manifest's `prompt`: a field's name, or a join template when it holds braces.
 *
 * A template is literal text and {field} parts; {{ and }} are literal braces. Joining: each part is
 * replaced by the row's string. A part is empty when its field is missing, null or ""; an empty
 * part takes along the white space of the literal text directly before it, or, while nothing has
 * been written yet, that of the literal text directly after it. White space inside fields is never
 * touched. So "{instruction}\n\n{input}" with an empty input is the instruction alone. */
#ifndef HR_JOB_PROMPT_H
#define HR_JOB_PROMPT_H

#include <stdbool.h>

#include "base/buf.h"

/* Is it a join template, and not a plain field name? */
bool hr_prompt_is_template(const char *prompt);

/* Walks a template: each call gives the literal text up to the next part (appended to `literal`,
 * its doubled braces made single) and that part's field name, or field_len 0 behind the last part.
 * Begins with *p at the start of the template; false once everything was given. The template is a
 * checked one. */
bool hr_prompt_next(const char **p, struct hr_buf *literal, const char **field, size_t *field_len);

/* HR_ERR_CONFIG for a lone brace, an empty or unclosed part, or no part at all. */
HR_MUST_USE enum hr_status hr_prompt_check(const char *prompt, struct hr_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_eval: what the expression evaluator offers to the statements (jinja_exec.c). Private. */
#ifndef HR_TEXT_JINJA_EVAL_H
#define HR_TEXT_JINJA_EVAL_H

#include "text/jinja_int.h"

struct jj_val jj_eval(struct jj_run *r, struct jj_scope *s, const struct jj_node *n);
struct jj_val jj_lookup(struct jj_run *r, const struct jj_scope *s, uint32_t name);
struct jj_val jj_apply_filters(struct jj_run *r, struct jj_scope *s, const struct jj_node *n,
                               struct jj_val in);
/* A call node with one more named argument. */
struct jj_val jj_eval_call_with(struct jj_run *r, struct jj_scope *s, const struct jj_node *n,
                                const struct jj_str *name, struct jj_val extra);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * template: compiling and rendering chat templates; see template.h for what they promise. The
 * interpreter itself is in the jinja_*.c files. */
#include "text/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/jscan.h"
#include "text/jinja_int.h"

/* The steps end a hostile template after some three seconds; the templates of models render a
 * megabyte of conversation and three hundred tools within them. A depth costs under a kilobyte of
 * stack, so that the deepest render fits threads with 2 MiB. */
const struct hr_template_limits hr_template_limits_default = {
    .steps_max = 20000000,
    .memory_max = (size_t)512 << 20,
    .output_max = (size_t)64 << 20,
    .depth_max = 1200,
};

enum hr_status hr_template_compile(const char *source, size_t len, struct hr_template **out,
                                   struct hr_err *err) {
    size_t bad;
    if (!hr_utf8_valid(source, len, &bad))
        return hr_err_set(err, HR_ERR_FORMAT, "the template is not valid UTF-8 at byte %zu", bad);
    struct hr_template *t = hr_xcalloc(1, sizeof *t);
    enum hr_status st = jj_parse(t, source, len, err);
    if (st != HR_OK) {
        hr_template_destroy(&t);
        return st;
    }
    *out = t;
    return HR_OK;
}

void hr_template_destroy(struct hr_template **t) {
    if (!*t) return;
    jj_arena_finish(&(*t)->arena);
    free((*t)->names);
    free(*t);
    *t = NULL;
}

void hr_rendered_finish(struct hr_rendered *r) {
    hr_buf_finish(&r->text);
    free(r->user);
    *r = (struct hr_rendered){0};
}

/* Variables that the template never names cost nothing. */
static bool find_name(const struct hr_template *t, const char *name, uint32_t *id) {
    for (size_t i = 0; i < t->n_names; i++) {
        if (!jj_str_is(t->names[i], name)) continue;
        *id = (uint32_t)i;
        return true;
    }
    return false;
}

static struct jj_scope *globals(struct jj_run *r) {
    struct jj_scope *s = jj_alloc(r, sizeof *s);
    size_t n;
    uint32_t id;
    const struct jj_func *list = jj_global_list(&n);
    for (size_t i = 0; i < n; i++)
        if (find_name(r->t, list[i].name, &id))
            jj_scope_set(r, s, id, (struct jj_val){.type = JJ_FUNC, .func = &list[i]});
    return s;
}

enum hr_status hr_template_render(const struct hr_template *t, const struct hr_template_var *vars,
                                  size_t n_vars, const struct tm *now,
                                  const struct hr_template_limits *limits, struct hr_rendered *out,
                                  struct hr_err *err) {
    struct hr_err local; /* the run formats into it, so there must be one */
    struct jj_run r = {.t = t,
                       .lim = limits ? *limits : hr_template_limits_default,
                       .now = now,
                       .err = err ? err : &local};
    struct jj_scope *context = jj_alloc(&r, sizeof *context);
    context->parent = globals(&r);
    r.top = jj_alloc(&r, sizeof *r.top);
    r.top->parent = context;
    for (size_t i = 0; i < n_vars && r.st == HR_OK; i++) {
        uint32_t id;
        if (!find_name(t, vars[i].name, &id)) continue;
        jj_scope_set(&r, context, id,
                     jj_from_json(&r, vars[i].json, vars[i].json_len, vars[i].trusted));
        if (r.st != HR_OK) hr_err_prefix(r.err, "the variable %s", vars[i].name);
    }
    jj_exec(&r, t);
    jj_arena_finish(&r.cells);
    jj_arena_finish(&r.bytes);
    if (r.st != HR_OK) hr_rendered_finish(&r.out);
    *out = r.out;
    return r.st;
}

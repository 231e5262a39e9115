/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_exec: statements of a template: output, scopes, loops, macros.
 *
 * Scopes are those of Jinja2: `for` (each round anew), `macro`, `call`, `with`, `filter`, block
 * `set` and `generation` open one, `if` does not; `set` writes into the innermost. A macro keeps
 * the scope in which it was defined and sees what is set there later.
 *
 * There is one output buffer with its spans. What is captured (a macro's text, a set block) is
 * written at its end and taken off again, so nesting costs no buffers and a failure leaves nothing
 * to free. */
#include <stdlib.h>
#include <string.h>

#include "text/jinja_eval.h"

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec_list(struct jj_run *r, struct jj_scope *s, const struct jj_nodes *l);

/* --- output */

static void mark_output(struct hr_rendered *o, size_t begin, size_t end, size_t floor) {
    if (o->n_user && o->user[o->n_user - 1].end == begin && begin > floor) {
        o->user[o->n_user - 1].end = end;
        return;
    }
    if (o->n_user == o->cap_user) {
        o->cap_user = o->cap_user ? 2 * o->cap_user : 16;
        o->user = hr_xrealloc(o->user, o->cap_user * sizeof *o->user);
    }
    o->user[o->n_user++] = (struct hr_span){begin, end};
}

static void emit(struct jj_run *r, struct jj_val v) {
    const struct jj_str *s = jj_soft_str(r, v);
    if (r->st != HR_OK) return;
    if (s->len > r->lim.output_max - r->out.text.len) {
        (void)jj_fail_limit(r, "the template writes more than %zu bytes", r->lim.output_max);
        return;
    }
    size_t base = r->out.text.len;
    if (!jj_work(r, s->len, JJ_BYTE) || !jj_work(r, s->n_spans, JJ_ITEM)) return;
    hr_buf_append(&r->out.text, s->p, s->len);
    for (uint32_t i = 0; i < s->n_spans; i++)
        mark_output(&r->out, base + s->spans[i].begin, base + s->spans[i].end, r->capture_at);
}

struct capture {
    size_t text_len, n_user, outer_at;
};

static struct capture capture_begin(struct jj_run *r) {
    struct capture c = {r->out.text.len, r->out.n_user, r->capture_at};
    r->capture_at = c.text_len;
    return c;
}

static struct jj_val capture_end(struct jj_run *r, struct capture c) {
    struct jj_val v = jj_undef();
    size_t len = r->out.text.len - c.text_len, n_user = r->out.n_user - c.n_user;
    if (r->st == HR_OK && jj_room(r, (double)len)) {
        struct jj_str *s = jj_alloc(r, sizeof *s);
        char *p = jj_arena_bytes(&r->bytes, len);
        if (len) memcpy(p, r->out.text.data + c.text_len, len);
        struct hr_span *spans = n_user == 1 ? &s->one : jj_alloc(r, n_user * sizeof *spans);
        for (size_t i = 0; i < n_user; i++) {
            spans[i].begin = r->out.user[c.n_user + i].begin - c.text_len;
            spans[i].end = r->out.user[c.n_user + i].end - c.text_len;
        }
        s->p = p;
        s->len = len;
        s->spans = spans;
        s->n_spans = (uint32_t)n_user;
        v = (struct jj_val){.type = JJ_STR, .s = s};
    }
    r->out.text.len = c.text_len;
    r->out.n_user = c.n_user;
    r->capture_at = c.outer_at;
    return v;
}

static struct jj_scope *inner(struct jj_run *r, struct jj_scope *parent) {
    struct jj_scope *s = jj_alloc(r, sizeof *s);
    s->parent = parent;
    return s;
}

/* --- assignment */

static void assign(struct jj_run *r, struct jj_scope *s, const struct jj_node *target,
                   struct jj_val v) {
    if (r->st != HR_OK) return;
    if (target->kind == JJN_NAME) {
        jj_scope_set(r, s, target->name, v);
    } else if (target->kind == JJN_NSREF) {
        struct jj_val ns = jj_lookup(r, s, target->name);
        if (ns.type != JJ_NS) {
            (void)jj_fail(r, "cannot assign attribute on non-namespace object");
        } else {
            jj_ns_put(r, ns.dict, target->val.s, v);
        }
    } else {
        size_t n, want = target->list.n;
        const struct jj_val *items = jj_items(r, v, &n);
        if (r->st == HR_OK && n < want)
            (void)jj_fail(r, "not enough values to unpack (expected %zu, got %zu)", want, n);
        if (r->st == HR_OK && n > want)
            (void)jj_fail(r, "too many values to unpack (expected %zu)", want);
        for (size_t i = 0; i < want && r->st == HR_OK; i++)
            assign(r, s, target->list.v[i], items[i]);
    }
}

void jj_ns_put(struct jj_run *r, struct jj_dict *ns, const struct jj_str *name, struct jj_val v) {
    if (name->len && name->p[0] == '_') {
        (void)jj_fail(
            r,
            "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
            "'%.*s'. Please rename the attribute.",
            (int)(name->len < 100 ? name->len : 100), name->p);
        return;
    }
    jj_dict_put(r, ns, (struct jj_val){.type = JJ_STR, .s = name}, v);
}

static enum flow exec_set_block(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_scope *body = inner(r, s);
    struct capture c = capture_begin(r);
    enum flow flow = exec_list(r, body, &n->list);
    struct jj_val v = capture_end(r, c);
    if (flow != FLOW_NEXT || r->st != HR_OK) return flow;
    if (n->b) v = jj_apply_filters(r, body, n->b, v);
    assign(r, s, n->a, v);
    return FLOW_NEXT;
}

static enum flow exec_filter_block(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_scope *body = inner(r, s);
    struct capture c = capture_begin(r);
    enum flow flow = exec_list(r, body, &n->list);
    struct jj_val v = capture_end(r, c);
    if (flow != FLOW_NEXT || r->st != HR_OK) return flow;
    emit(r, jj_apply_filters(r, body, n->b, v));
    return FLOW_NEXT;
}

static enum flow exec_with(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_scope *body = inner(r, s);
    for (size_t i = 0; i < n->list2.n && r->st == HR_OK; i++)
        assign(r, body, n->list2.v[i]->a, jj_eval(r, s, n->list2.v[i]->b));
    return exec_list(r, body, &n->list);
}

/* --- loops */

/* The elements that the loop's own condition lets through. */
static const struct jj_val *filtered(struct jj_run *r, struct jj_scope *s, const struct jj_node *n,
                                     const struct jj_val *items, size_t *count) {
    struct jj_vec kept = {0};
    for (size_t i = 0; i < *count && jj_step(r); i++) {
        struct jj_scope *test = inner(r, s);
        assign(r, test, n->a, items[i]);
        if (jj_truth(jj_eval(r, test, n->c)) && r->st == HR_OK) jj_vec_push(r, &kept, items[i]);
    }
    *count = kept.s ? kept.s->n : 0;
    return kept.s ? kept.s->v : NULL;
}

static enum flow run_loop(struct jj_run *r, struct jj_scope *s, const struct jj_node *n,
                          struct jj_val over, int depth) {
    size_t count;
    const struct jj_val *items = jj_items(r, over, &count);
    if (n->c) items = filtered(r, s, n, items, &count);
    if (r->st != HR_OK) return FLOW_NEXT;
    struct jj_loop *loop = jj_alloc(r, sizeof *loop);
    loop->items = items;
    loop->n = count;
    loop->depth = depth;
    loop->node = n;
    loop->scope = s;
    /* Jinja2 takes the `else` when no round came to its end, be it for a break or a continue. */
    bool completed = false;
    for (; loop->i < count && jj_step(r); loop->i++) {
        struct jj_scope *body = inner(r, s);
        jj_scope_set(r, body, r->t->id_loop, (struct jj_val){.type = JJ_LOOP, .loop = loop});
        r->line = n->line;
        assign(r, body, n->a, items[loop->i]);
        enum flow flow = exec_list(r, body, &n->list);
        completed |= flow == FLOW_NEXT;
        if (flow == FLOW_BREAK) break;
    }
    return completed ? FLOW_NEXT : exec_list(r, inner(r, s), &n->list2);
}

struct jj_val jj_loop_call(struct jj_run *r, struct jj_loop *loop, const struct jj_args *args) {
    if (!loop->node->flag)
        return jj_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->n_pos != 1 || args->n_kw) return jj_fail(r, "loop() takes one argument");
    if (!jj_enter(r)) return jj_undef();
    struct capture c = capture_begin(r);
    (void)run_loop(r, loop->scope, loop->node, args->pos[0], loop->depth + 1);
    struct jj_val v = capture_end(r, c);
    jj_leave(r);
    return v;
}

/* --- macros */

/* Takes the named argument out of `used`; ABSENT when it was not given. */
static struct jj_val take_kw(struct jj_run *r, const struct jj_args *args, bool *used,
                             const struct jj_str *name) {
    for (size_t i = 0; i < args->n_kw && jj_work(r, 1, JJ_ITEM); i++) {
        if (used[i] || !jj_str_eq(r, args->kw_name[i], name)) continue;
        used[i] = true;
        return args->kw[i];
    }
    return (struct jj_val){.type = JJ_ABSENT};
}

static struct jj_val missing_param(struct jj_run *r, const struct jj_str *name) {
    struct jj_sb sb = {.run = r};
    jj_sb_puts(&sb, "parameter '");
    jj_sb_str(&sb, name);
    jj_sb_puts(&sb, "' was not provided");
    return jj_undef_text(r, jj_sb_cstr(&sb));
}

/* kwargs and varargs: what the parameters left over; refused when the body does not ask for it. */
static void bind_rest(struct jj_run *r, struct jj_scope *s, const struct jj_node *m,
                      const struct jj_args *args, const bool *used) {
    struct jj_dict *rest = jj_dict(r);
    for (size_t i = 0; i < args->n_kw; i++)
        if (!used[i])
            jj_dict_put(r, rest, (struct jj_val){.type = JJ_STR, .s = args->kw_name[i]},
                        args->kw[i]);
    if (m->uses_kwargs) {
        jj_scope_set(r, s, r->t->id_kwargs, (struct jj_val){.type = JJ_DICT, .dict = rest});
    } else if (rest->n) {
        (void)jj_fail(r, "macro '%s' takes no keyword argument '%.*s'", m->val.s->p,
                      (int)(rest->k[0].s->len < 100 ? rest->k[0].s->len : 100), rest->k[0].s->p);
    }
    size_t n_params = m->list2.n, more = args->n_pos > n_params ? args->n_pos - n_params : 0;
    if (m->uses_varargs) {
        struct jj_seq *seq = jj_seq(r, more);
        if (more) memcpy(seq->v, args->pos + n_params, more * sizeof *seq->v);
        jj_scope_set(r, s, r->t->id_varargs, jj_tuple(seq));
    } else if (more) {
        (void)jj_fail(r, "macro '%s' takes not more than %zu argument(s)", m->val.s->p, n_params);
    }
}

static void bind_macro(struct jj_run *r, struct jj_scope *s, const struct jj_node *m,
                       const struct jj_args *args) {
    bool *used = jj_alloc(r, args->n_kw + 1), own_caller = false;
    for (size_t i = 0; i < m->list2.n; i++) {
        const struct jj_node *param = m->list2.v[i];
        const struct jj_str *name = r->t->names[param->name];
        own_caller |= param->name == r->t->id_caller;
        struct jj_val given = i < args->n_pos ? args->pos[i] : take_kw(r, args, used, name);
        if (given.type != JJ_ABSENT) jj_scope_set(r, s, param->name, given);
        if (given.type == JJ_ABSENT && !param->a)
            jj_scope_set(r, s, param->name, missing_param(r, name));
        if (given.type == JJ_ABSENT && param->a)
            jj_scope_set(r, s, param->name, jj_eval(r, s, param->a));
    }
    if (m->uses_caller && !own_caller) {
        struct jj_val caller = take_kw(r, args, used, r->t->names[r->t->id_caller]);
        if (caller.type == JJ_ABSENT || caller.type == JJ_NONE)
            caller = jj_undef_text(r, "No caller defined");
        jj_scope_set(r, s, r->t->id_caller, caller);
    }
    if (r->st == HR_OK) bind_rest(r, s, m, args, used);
}

struct jj_val jj_macro_call(struct jj_run *r, const struct jj_macro *m,
                            const struct jj_args *args) {
    struct jj_val v = jj_undef();
    if (!jj_enter(r)) return v;
    int line = r->line;
    struct jj_scope *s = inner(r, m->scope);
    bind_macro(r, s, m->node, args);
    struct capture c = capture_begin(r);
    (void)exec_list(r, s, &m->node->list);
    v = capture_end(r, c);
    if (r->st == HR_OK) r->line = line;
    jj_leave(r);
    return v;
}

static struct jj_val macro_val(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_macro *m = jj_alloc(r, sizeof *m);
    m->node = n;
    m->scope = s;
    return (struct jj_val){.type = JJ_MACRO, .macro = m};
}

/* --- statements */

static enum flow exec_if(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    for (size_t i = 0; i < n->list.n && r->st == HR_OK; i++) {
        if (!jj_truth(jj_eval(r, s, n->list.v[i]->a))) continue;
        return r->st == HR_OK ? exec_list(r, s, &n->list.v[i]->list) : FLOW_NEXT;
    }
    return exec_list(r, s, &n->list2);
}

static enum flow exec_node(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    switch (n->kind) {
    case JJN_DATA:
        emit(r, n->val);
        break;
    case JJN_OUTPUT:
        emit(r, jj_eval(r, s, n->a));
        break;
    case JJN_IF:
        return exec_if(r, s, n);
    case JJN_FOR:
        return run_loop(r, s, n, jj_eval(r, s, n->b), 0);
    case JJN_SET:
        assign(r, s, n->a, jj_eval(r, s, n->b));
        break;
    case JJN_SETBLOCK:
        return exec_set_block(r, s, n);
    case JJN_MACRO:
        jj_scope_set(r, s, n->name, macro_val(r, s, n));
        break;
    case JJN_CALLBLOCK:
        emit(r, jj_eval_call_with(r, s, n->a, r->t->names[r->t->id_caller], macro_val(r, s, n)));
        break;
    case JJN_FILTERBLOCK:
        return exec_filter_block(r, s, n);
    case JJN_WITH:
        return exec_with(r, s, n);
    case JJN_SCOPE:
        return exec_list(r, inner(r, s), &n->list);
    case JJN_BREAK:
        return FLOW_BREAK;
    case JJN_CONTINUE:
        return FLOW_CONTINUE;
    default:
        (void)jj_fail(r, "not a statement");
    }
    return FLOW_NEXT;
}

static enum flow exec_list(struct jj_run *r, struct jj_scope *s, const struct jj_nodes *l) {
    if (!jj_enter(r)) return FLOW_NEXT;
    enum flow flow = FLOW_NEXT;
    for (size_t i = 0; i < l->n && flow == FLOW_NEXT && jj_step(r); i++) {
        r->line = l->v[i]->line;
        flow = exec_node(r, s, l->v[i]);
    }
    jj_leave(r);
    return flow;
}

void jj_exec(struct jj_run *r, const struct hr_template *t) {
    (void)exec_list(r, r->top, &t->body);
}

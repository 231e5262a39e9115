/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_eval: expressions of a template evaluated to values, and calls.
 *
 * Every node counts one step, every nested one a level of depth. Names are looked up outwards
 * through the scopes; what no scope has is undefined, and undefined values fail only when they are
 * used. */
#include <string.h>

#include "text/jinja_eval.h"

void jj_scope_set(struct jj_run *r, struct jj_scope *s, uint32_t name, struct jj_val v) {
    (void)jj_work(r, s->n, 2 * JJ_BYTE);
    for (size_t i = 0; i < s->n; i++) {
        if (s->name[i] != name) continue;
        s->val[i] = v;
        return;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        uint32_t *names = jj_alloc(r, cap * sizeof *names);
        struct jj_val *vals = jj_alloc(r, cap * sizeof *vals);
        if (s->n) memcpy(names, s->name, s->n * sizeof *names);
        if (s->n) memcpy(vals, s->val, s->n * sizeof *vals);
        s->name = names;
        s->val = vals;
        s->cap = cap;
    }
    s->name[s->n] = name;
    s->val[s->n++] = v;
}

struct jj_val jj_lookup(struct jj_run *r, const struct jj_scope *s, uint32_t name) {
    for (; s && jj_work(r, s->n + 2, 2 * JJ_BYTE); s = s->parent)
        for (size_t i = 0; i < s->n; i++)
            if (s->name[i] == name) return s->val[i];
    return jj_undef_of(r, (struct jj_val){.type = JJ_ABSENT},
                       (struct jj_val){.type = JJ_STR, .s = r->t->names[name]});
}

/* --- arguments */

static bool eval_args(struct jj_run *r, struct jj_scope *s, const struct jj_call_args *in,
                      struct jj_args *out) {
    *out = (struct jj_args){0};
    if (!in) return true;
    struct jj_vec pos = {0}, kw = {0};
    for (size_t i = 0; i < in->pos.n; i++) jj_vec_push(r, &pos, jj_eval(r, s, in->pos.v[i]));
    if (in->star) {
        size_t n;
        const struct jj_val *items = jj_items(r, jj_eval(r, s, in->star), &n);
        for (size_t i = 0; i < n; i++) jj_vec_push(r, &pos, items[i]);
    }
    for (size_t i = 0; i < in->kw.n; i++) jj_vec_push(r, &kw, jj_eval(r, s, in->kw.v[i]));
    const struct jj_str **names = (const struct jj_str **)in->kw_name;
    if (in->star_star) {
        struct jj_val map = jj_eval(r, s, in->star_star);
        if (r->st == HR_OK && map.type != JJ_DICT)
            (void)jj_fail(r, "argument after ** must be a mapping, not %s", jj_type_name(map));
        if (r->st != HR_OK) return false;
        names = jj_alloc(r, (in->kw.n + map.dict->n) * sizeof *names + 1);
        if (in->kw.n) memcpy(names, in->kw_name, in->kw.n * sizeof *names);
        for (size_t i = 0; i < map.dict->n; i++) {
            names[in->kw.n + i] = jj_arg_str(r, map.dict->k[i], "keywords");
            jj_vec_push(r, &kw, map.dict->v[i]);
        }
    }
    out->pos = pos.s ? pos.s->v : NULL;
    out->n_pos = pos.s ? pos.s->n : 0;
    out->kw = kw.s ? kw.s->v : NULL;
    out->kw_name = names;
    out->n_kw = kw.s ? kw.s->n : 0;
    return r->st == HR_OK;
}

static int param_index(const char *params, const struct jj_str *name) {
    int i = 0;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, ",");
        if (n == name->len && memcmp(p, name->p, n) == 0) return i;
        p += n + (p[n] == ',');
    }
    return -1;
}

bool jj_bind(struct jj_run *r, const struct jj_func *f, const struct jj_args *args,
             struct jj_val out[JJ_PARAMS_MAX]) {
    for (int i = 0; i < JJ_PARAMS_MAX; i++) out[i] = (struct jj_val){.type = JJ_ABSENT};
    if (!f->params) return true;
    size_t n_params = *f->params ? 1 : 0;
    for (const char *p = f->params; *p; p++) n_params += *p == ',';
    if (args->n_pos > n_params) {
        (void)jj_fail(r, "%s() takes at most %zu arguments (%zu given)", f->name, n_params,
                      args->n_pos);
        return false;
    }
    for (size_t i = 0; i < args->n_pos; i++) out[i] = args->pos[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        int at = param_index(f->params, args->kw_name[i]);
        if (at < 0 || out[at].type != JJ_ABSENT) {
            (void)jj_fail(r,
                          at < 0 ? "%s() got an unexpected keyword argument '%.*s'"
                                 : "%s() got multiple values for argument '%.*s'",
                          f->name, (int)(args->kw_name[i]->len < 100 ? args->kw_name[i]->len : 100),
                          args->kw_name[i]->p);
            return false;
        }
        out[at] = args->kw[i];
    }
    for (int i = 0; i < f->n_required; i++) {
        if (out[i].type != JJ_ABSENT) continue;
        (void)jj_fail(r, "%s() is missing an argument", f->name);
        return false;
    }
    return true;
}

struct jj_val jj_call_func(struct jj_run *r, const struct jj_func *f, struct jj_val self,
                           const struct jj_args *args) {
    struct jj_val a[JJ_PARAMS_MAX], v = jj_undef();
    if (!jj_enter(r)) return v;
    if (jj_bind(r, f, args, a)) v = f->fn(r, self, a, args);
    jj_leave(r);
    return v;
}

struct jj_val jj_call(struct jj_run *r, struct jj_val fn, const struct jj_args *args) {
    if (r->st != HR_OK) return jj_undef();
    switch (fn.type) {
    case JJ_UNDEF:
        return jj_fail_undef(r, fn);
    case JJ_FUNC:
        return jj_call_func(r, fn.func, jj_none(), args);
    case JJ_METHOD:
        return jj_call_func(r, fn.method->func, fn.method->self, args);
    case JJ_MACRO:
        return jj_macro_call(r, fn.macro, args);
    case JJ_LOOP:
        return jj_loop_call(r, fn.loop, args);
    case JJ_JOINER:
        return fn.cycler->i++ ? fn.cycler->sep : jj_cstr(r, "");
    default:
        return jj_fail(r, "'%s' object is not callable", jj_type_name(fn));
    }
}

/* --- expressions */

static struct jj_val eval_list(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_seq *seq = jj_seq(r, n->list.n);
    for (size_t i = 0; i < n->list.n; i++) seq->v[i] = jj_eval(r, s, n->list.v[i]);
    return n->kind == JJN_LIST ? jj_list(seq) : jj_tuple(seq);
}

static struct jj_val eval_dict(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_dict *d = jj_dict(r);
    for (size_t i = 0; i < n->list.n && r->st == HR_OK; i++) {
        struct jj_val key = jj_eval(r, s, n->list.v[i]);
        struct jj_val value = jj_eval(r, s, n->list2.v[i]);
        if (r->st == HR_OK) jj_dict_put(r, d, key, value);
    }
    return (struct jj_val){.type = JJ_DICT, .dict = d};
}

static struct jj_val eval_part(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    return n ? jj_eval(r, s, n) : (struct jj_val){.type = JJ_ABSENT};
}

static struct jj_val eval_item(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_val obj = jj_eval(r, s, n->a);
    if (n->b->kind != JJN_SLICE) return jj_getitem(r, obj, jj_eval(r, s, n->b));
    struct jj_val a = eval_part(r, s, n->b->a), b = eval_part(r, s, n->b->b),
                  c = eval_part(r, s, n->b->c);
    return jj_slice(r, obj, a, b, c);
}

static bool compare_one(struct jj_run *r, enum jj_op op, struct jj_val a, struct jj_val b) {
    switch (op) {
    case JJ_EQ:
        return jj_equal(r, a, b);
    case JJ_NE:
        return !jj_equal(r, a, b);
    case JJ_IN:
        return jj_contains(r, b, a);
    case JJ_NOTIN:
        return !jj_contains(r, b, a);
    case JJ_LT:
        return jj_compare(r, a, b, "<") == -1;
    case JJ_LE:
        return jj_compare(r, a, b, "<=") <= 0;
    case JJ_GT:
        return jj_compare(r, a, b, ">") == 1;
    default: {
        int c = jj_compare(r, a, b, ">=");
        return c == 0 || c == 1;
    }
    }
}

static struct jj_val eval_compare(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_val left = jj_eval(r, s, n->a);
    for (size_t i = 0; i < n->list.n && r->st == HR_OK; i++) {
        struct jj_val right = jj_eval(r, s, n->list.v[i]);
        if (r->st != HR_OK || !compare_one(r, n->ops[i], left, right)) return jj_bool(false);
        left = right;
    }
    return jj_bool(true);
}

static struct jj_val eval_concat(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_val v = jj_to_str(r, jj_eval(r, s, n->list.v[0]));
    for (size_t i = 1; i < n->list.n && r->st == HR_OK; i++)
        v = jj_concat(r, v.s, jj_soft_str(r, jj_eval(r, s, n->list.v[i])));
    return v;
}

static struct jj_val apply_filter(struct jj_run *r, struct jj_scope *s, const struct jj_node *n,
                                  struct jj_val in) {
    struct jj_args args;
    if (!n->func) return jj_fail(r, "No filter named '%s' found.", n->val.s->p);
    if (!eval_args(r, s, n->args, &args)) return jj_undef();
    return jj_call_func(r, n->func, in, &args);
}

/* A chain of filters whose innermost input is `in` (a block's text) or an expression. */
struct jj_val jj_apply_filters(struct jj_run *r, struct jj_scope *s, const struct jj_node *n,
                               struct jj_val in) {
    if (n->a) in = jj_apply_filters(r, s, n->a, in);
    r->line = n->line;
    return apply_filter(r, s, n, in);
}

static struct jj_val eval_test(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_args args;
    struct jj_val in = jj_eval(r, s, n->a);
    if (!n->func) return jj_fail(r, "No test named '%s' found.", n->val.s->p);
    if (!eval_args(r, s, n->args, &args)) return jj_undef();
    return jj_call_func(r, n->func, in, &args);
}

static struct jj_val eval_call(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_args args;
    struct jj_val fn = jj_eval(r, s, n->a);
    if (!eval_args(r, s, n->args, &args)) return jj_undef();
    r->line = n->line;
    return jj_call(r, fn, &args);
}

struct jj_val jj_eval_call_with(struct jj_run *r, struct jj_scope *s, const struct jj_node *n,
                                const struct jj_str *name, struct jj_val extra) {
    struct jj_args args;
    struct jj_val fn = jj_eval(r, s, n->a);
    if (!eval_args(r, s, n->args, &args)) return jj_undef();
    const struct jj_str **names = jj_alloc(r, (args.n_kw + 1) * sizeof *names);
    struct jj_val *kw = jj_alloc(r, (args.n_kw + 1) * sizeof *kw);
    if (args.n_kw) memcpy(names, args.kw_name, args.n_kw * sizeof *names);
    if (args.n_kw) memcpy(kw, args.kw, args.n_kw * sizeof *kw);
    names[args.n_kw] = name;
    kw[args.n_kw] = extra;
    args.kw_name = names;
    args.kw = kw;
    args.n_kw++;
    return jj_call(r, fn, &args);
}

static struct jj_val positive(struct jj_run *r, struct jj_val v) {
    if (v.type == JJ_BOOL) return jj_int(v.b);
    if (jj_is_number(v)) return v;
    if (v.type == JJ_UNDEF) return jj_fail_undef(r, v);
    return jj_fail(r, "bad operand type for unary +: '%s'", jj_type_name(v));
}

static struct jj_val eval_node(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    struct jj_val v;
    switch (n->kind) {
    case JJN_CONST:
        return n->val;
    case JJN_NAME:
        return jj_lookup(r, s, n->name);
    case JJN_LIST:
    case JJN_TUPLE:
        return eval_list(r, s, n);
    case JJN_DICT:
        return eval_dict(r, s, n);
    case JJN_ATTR:
        return jj_getattr(r, jj_eval(r, s, n->a), n->val.s);
    case JJN_ITEM:
        return eval_item(r, s, n);
    case JJN_CALL:
        return eval_call(r, s, n);
    case JJN_FILTER:
        return apply_filter(r, s, n, jj_eval(r, s, n->a));
    case JJN_TEST:
        return eval_test(r, s, n);
    case JJN_COND:
        if (jj_truth(jj_eval(r, s, n->a))) return jj_eval(r, s, n->b);
        if (n->c) return jj_eval(r, s, n->c);
        return jj_undef_text(
            r, "the inline if-expression evaluated to false and no else section was defined.");
    case JJN_AND:
        v = jj_eval(r, s, n->a);
        return jj_truth(v) ? jj_eval(r, s, n->b) : v;
    case JJN_OR:
        v = jj_eval(r, s, n->a);
        return jj_truth(v) ? v : jj_eval(r, s, n->b);
    case JJN_NOT:
        return jj_bool(!jj_truth(jj_eval(r, s, n->a)));
    case JJN_NEG:
        v = jj_eval(r, s, n->a);
        return r->st == HR_OK ? jj_negate(r, v) : v;
    case JJN_POS:
        return positive(r, jj_eval(r, s, n->a));
    case JJN_BINARY:
        v = jj_eval(r, s, n->a);
        return jj_binary(r, n->op, v, jj_eval(r, s, n->b));
    case JJN_CONCAT:
        return eval_concat(r, s, n);
    case JJN_COMPARE:
        return eval_compare(r, s, n);
    case JJN_SLICE:
        return jj_fail(r, "a slice stands alone only inside [ ]");
    default:
        return jj_fail(r, "not an expression");
    }
}

struct jj_val jj_eval(struct jj_run *r, struct jj_scope *s, const struct jj_node *n) {
    if (!jj_enter(r)) return jj_undef();
    r->line = n->line;
    struct jj_val v = eval_node(r, s, n);
    jj_leave(r);
    return v;
}

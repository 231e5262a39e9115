/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_attr: x.name, x[key], x[a:b:c] under the rules of Jinja2's sandbox.
 *
 * `x.name` looks for an attribute first and an item second, `x["name"]` the other way round, so a
 * dict's own methods hide its keys behind a dot and not in brackets. What would change a list or a
 * dict, and every name with an underscore in front, is an undefined value that fails when it is
 * used. */
#include <string.h>

#include "text/jinja_int.h"

static bool changes_object(struct jj_val obj, const struct jj_str *name) {
    static const char *const list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                       "sort",   "extend", "remove", NULL};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = obj.type == JJ_LIST ? list : obj.type == JJ_DICT ? dict : NULL;
    for (; names && *names; names++)
        if (jj_str_is(name, *names)) return true;
    return false;
}

static struct jj_val unsafe(struct jj_run *r, struct jj_val obj, const struct jj_str *name) {
    struct jj_sb sb = {.run = r};
    jj_sb_puts(&sb, "access to attribute ");
    jj_write_repr(&sb, (struct jj_val){.type = JJ_STR, .s = name});
    jj_sb_puts(&sb, " of '");
    jj_sb_puts(&sb, jj_type_name(obj));
    jj_sb_puts(&sb, "' object is unsafe.");
    return jj_undef_text(r, jj_sb_cstr(&sb));
}

static struct jj_val loop_attr(struct jj_run *r, const struct jj_loop *l,
                               const struct jj_str *name) {
    int64_t i = (int64_t)l->i, n = (int64_t)l->n;
    const struct {
        const char *name;
        struct jj_val v;
    } table[] = {
        {"index", jj_int(i + 1)},
        {"index0", jj_int(i)},
        {"first", jj_bool(i == 0)},
        {"last", jj_bool(i + 1 == n)},
        {"length", jj_int(n)},
        {"revindex", jj_int(n - i)},
        {"revindex0", jj_int(n - i - 1)},
        {"depth", jj_int(l->depth + 1)},
        {"depth0", jj_int(l->depth)},
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (jj_str_is(name, table[k].name)) return table[k].v;
    if (jj_str_is(name, "previtem"))
        return i > 0 ? l->items[i - 1] : jj_undef_text(r, "there is no previous item");
    if (jj_str_is(name, "nextitem"))
        return i + 1 < n ? l->items[i + 1] : jj_undef_text(r, "there is no next item");
    return (struct jj_val){.type = JJ_ABSENT};
}

static struct jj_val macro_attr(struct jj_run *r, const struct jj_node *m,
                                const struct jj_str *name) {
    if (jj_str_is(name, "name")) return m->val;
    if (jj_str_is(name, "catch_kwargs")) return jj_bool(m->uses_kwargs);
    if (jj_str_is(name, "catch_varargs")) return jj_bool(m->uses_varargs);
    if (jj_str_is(name, "caller")) return jj_bool(m->uses_caller);
    if (!jj_str_is(name, "arguments")) return (struct jj_val){.type = JJ_ABSENT};
    struct jj_seq *s = jj_seq(r, m->list2.n);
    for (size_t i = 0; i < s->n; i++)
        s->v[i] = (struct jj_val){.type = JJ_STR, .s = r->t->names[m->list2.v[i]->name]};
    return jj_tuple(s);
}

static struct jj_val cycler_attr(const struct jj_cycler *c, const struct jj_str *name) {
    size_t at = c->i % c->items->n;
    if (jj_str_is(name, "current")) return c->items->v[at];
    if (jj_str_is(name, "pos")) return jj_int((int64_t)at);
    if (jj_str_is(name, "items")) return jj_tuple(c->items);
    return (struct jj_val){.type = JJ_ABSENT};
}

/* A real attribute of the object; ABSENT when there is none. */
static struct jj_val attribute(struct jj_run *r, struct jj_val obj, const struct jj_str *name) {
    struct jj_val v = {.type = JJ_ABSENT};
    if (name->len > 4 && memcmp(name->p, "__", 2) == 0 && obj.type != JJ_NS)
        return unsafe(r, obj, name);
    if (changes_object(obj, name)) return unsafe(r, obj, name);
    if (obj.type == JJ_NS) {
        struct jj_val key = {.type = JJ_STR, .s = name};
        return jj_dict_get(r, obj.dict, key, &v) ? v : (struct jj_val){.type = JJ_ABSENT};
    }
    if (obj.type == JJ_LOOP) v = loop_attr(r, obj.loop, name);
    if (obj.type == JJ_MACRO) v = macro_attr(r, obj.macro->node, name);
    if (obj.type == JJ_TUPLE && obj.seq->group && jj_str_is(name, "grouper")) v = obj.seq->v[0];
    if (obj.type == JJ_TUPLE && obj.seq->group && jj_str_is(name, "list")) v = obj.seq->v[1];
    if (obj.type == JJ_RANGE && jj_str_is(name, "start")) v = jj_int(obj.range->start);
    if (obj.type == JJ_RANGE && jj_str_is(name, "stop")) v = jj_int(obj.range->stop);
    if (obj.type == JJ_RANGE && jj_str_is(name, "step")) v = jj_int(obj.range->step);
    if (obj.type == JJ_CYCLER) v = cycler_attr(obj.cycler, name);
    if (v.type != JJ_ABSENT) return v;
    const struct jj_func *f = jj_method_find(obj, name);
    if (!f) return v;
    struct jj_method *m = jj_alloc(r, sizeof *m);
    m->self = obj;
    m->func = f;
    return (struct jj_val){.type = JJ_METHOD, .method = m};
}

/* obj[key] without looking at attributes; ABSENT when there is none. */
static struct jj_val item(struct jj_run *r, struct jj_val obj, struct jj_val key) {
    struct jj_val none = {.type = JJ_ABSENT}, v;
    if (obj.type == JJ_DICT) {
        if (key.type == JJ_LIST || key.type == JJ_DICT) return none; /* unhashable */
        return jj_dict_get(r, obj.dict, key, &v) ? v : none;
    }
    if (key.type != JJ_INT && key.type != JJ_BOOL) return none;
    int64_t i = key.type == JJ_BOOL ? key.b : key.i, n;
    switch (obj.type) {
    case JJ_STR:
    case JJ_BYTES:
    case JJ_LIST:
    case JJ_TUPLE:
    case JJ_RANGE:
        n = jj_len(r, obj);
        break;
    default:
        return none;
    }
    if (i < 0) i += n;
    if (i < 0 || i >= n) return none;
    if (obj.type == JJ_RANGE) return jj_int(obj.range->start + i * obj.range->step);
    if (obj.type == JJ_BYTES) return jj_int((unsigned char)obj.s->p[i]);
    if (obj.type != JJ_STR) return obj.seq->v[i];
    size_t at = jj_str_offset(r, obj.s, (size_t)i), width;
    (void)jj_decode(obj.s->p + at, obj.s->p + obj.s->len, &width);
    return jj_substr(r, obj.s, at, at + width);
}

struct jj_val jj_getattr(struct jj_run *r, struct jj_val obj, const struct jj_str *name) {
    if (r->st != HR_OK) return jj_undef();
    if (obj.type == JJ_UNDEF) return jj_fail_undef(r, obj);
    struct jj_val key = {.type = JJ_STR, .s = name};
    struct jj_val v = attribute(r, obj, name);
    if (v.type == JJ_ABSENT) v = item(r, obj, key);
    return v.type == JJ_ABSENT ? jj_undef_of(r, obj, key) : v;
}

struct jj_val jj_getitem(struct jj_run *r, struct jj_val obj, struct jj_val key) {
    if (r->st != HR_OK) return jj_undef();
    if (obj.type == JJ_UNDEF) return jj_fail_undef(r, obj);
    struct jj_val v = item(r, obj, key);
    if (v.type == JJ_ABSENT && key.type == JJ_STR) v = attribute(r, obj, key.s);
    return v.type == JJ_ABSENT ? jj_undef_of(r, obj, key) : v;
}

/* Python's PySlice_AdjustIndices. `n` elements; returns how many are taken. */
static int64_t slice_bounds(int64_t n, int64_t *start, int64_t *stop, int64_t step, bool has_start,
                            bool has_stop) {
    if (!has_start) *start = step < 0 ? n - 1 : 0;
    if (!has_stop) *stop = step < 0 ? -1 : n;
    if (has_start && *start < 0) *start = *start + n < 0 ? (step < 0 ? -1 : 0) : *start + n;
    if (has_stop && *stop < 0) *stop = *stop + n < 0 ? (step < 0 ? -1 : 0) : *stop + n;
    if (*start >= n) *start = step < 0 ? n - 1 : n;
    if (*stop >= n) *stop = step < 0 ? n - 1 : n;
    if (step < 0) return *stop < *start ? (*start - *stop - 1) / -step + 1 : 0;
    return *start < *stop ? (*stop - *start - 1) / step + 1 : 0;
}

static struct jj_val slice_str(struct jj_run *r, const struct jj_str *s, int64_t start,
                               int64_t step, int64_t n) {
    size_t total = jj_str_n_chars(r, s);
    if (step == 1) {
        size_t from = total == s->len ? (size_t)start : jj_str_offset(r, s, (size_t)start);
        size_t end = (size_t)(start + n), to = total == s->len ? end : jj_str_offset(r, s, end);
        return jj_substr(r, s, from, n ? to : from);
    }
    size_t n_items;
    const struct jj_val *chars = jj_items(r, (struct jj_val){.type = JJ_STR, .s = s}, &n_items);
    struct jj_sb sb = {.run = r};
    for (int64_t i = 0; i < n && r->st == HR_OK; i++) jj_sb_str(&sb, chars[start + i * step].s);
    return jj_sb_val(&sb);
}

struct jj_val jj_slice(struct jj_run *r, struct jj_val obj, struct jj_val a, struct jj_val b,
                       struct jj_val c) {
    if (r->st != HR_OK) return jj_undef();
    if (obj.type == JJ_UNDEF) return jj_fail_undef(r, obj);
    bool sliceable =
        obj.type == JJ_STR || obj.type == JJ_LIST || obj.type == JJ_TUPLE || obj.type == JJ_RANGE;
    const struct jj_val parts[] = {a, b, c};
    int64_t at[3] = {0, 0, 1};
    bool has[3];
    for (int i = 0; i < 3; i++) {
        has[i] = parts[i].type != JJ_ABSENT && parts[i].type != JJ_NONE;
        bool whole = parts[i].type == JJ_INT || parts[i].type == JJ_BOOL || parts[i].type == JJ_BIG;
        if (has[i] && !whole && sliceable)
            return jj_fail(r, "slice indices must be integers or None or have an __index__ method");
        if (has[i]) at[i] = jj_arg_int(r, parts[i], 0);
    }
    if (!sliceable) return jj_fail(r, "'%s' object is not subscriptable", jj_type_name(obj));
    if (at[2] == 0) return jj_fail(r, "slice step cannot be zero");
    /* A huge step takes one element; bounded so that index arithmetic cannot overflow. */
    int64_t total = jj_len(r, obj);
    if (at[2] > total + 1) at[2] = total + 1;
    if (at[2] < -total - 1) at[2] = -total - 1;
    int64_t n = slice_bounds(total, &at[0], &at[1], at[2], has[0], has[1]);
    if (obj.type == JJ_STR) return slice_str(r, obj.s, at[0], at[2], n);
    if (obj.type == JJ_RANGE) {
        struct jj_range *range = jj_alloc(r, sizeof *range);
        range->start = obj.range->start + at[0] * obj.range->step;
        range->stop = obj.range->start + at[1] * obj.range->step;
        range->step = obj.range->step * at[2];
        range->n = n;
        return (struct jj_val){.type = JJ_RANGE, .range = range};
    }
    struct jj_seq *s = jj_seq(r, (size_t)n);
    for (int64_t i = 0; i < n; i++) s->v[i] = obj.seq->v[at[0] + i * at[2]];
    return obj.type == JJ_LIST ? jj_list(s) : jj_tuple(s);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_val: containers of the template interpreter; truth, equality, order, length and iteration
 * as Python has them.
 *
 * A dict keeps its order of insertion and gets a hash index once it is more than a few entries
 * long. Numbers that are equal are one key (1, 1.0 and True). Whatever walks nested values counts
 * its depth against the run's limit, because a context may nest as deep as JSON allows. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "text/jinja_int.h"

#define INDEX_FROM 9 /* below, comparing lengths and bytes is faster than hashing */

/* --- lists */

struct jj_seq *jj_seq(struct jj_run *r, size_t n) {
    (void)jj_work(r, n + 2, JJ_ITEM);
    struct jj_seq *s = jj_alloc(r, sizeof *s + n * sizeof *s->v);
    s->n = n;
    return s;
}

struct jj_val jj_list(const struct jj_seq *s) {
    return (struct jj_val){.type = JJ_LIST, .seq = s};
}

struct jj_val jj_tuple(const struct jj_seq *s) {
    return (struct jj_val){.type = JJ_TUPLE, .seq = s};
}

void jj_vec_push(struct jj_run *r, struct jj_vec *v, struct jj_val x) {
    size_t n = v->s ? v->s->n : 0;
    if (n == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 8;
        struct jj_seq *s = jj_seq(r, cap);
        if (n) memcpy(s->v, v->s->v, n * sizeof *s->v);
        v->s = s;
        v->cap = cap;
    }
    v->s->v[n] = x;
    v->s->n = n + 1;
}

struct jj_val jj_vec_list(struct jj_run *r, struct jj_vec *v) {
    return jj_list(v->s ? v->s : jj_seq(r, 0));
}

/* --- dicts */

struct jj_dict *jj_dict(struct jj_run *r) {
    return jj_alloc(r, sizeof(struct jj_dict));
}

static uint64_t hash(struct jj_run *r, struct jj_val v) {
    switch (v.type) {
    case JJ_STR:
        return jj_work(r, v.s->len + JJ_ITEM, JJ_BYTE) ? hr_hash64(v.s->p, v.s->len, 1) : 0;
    case JJ_NONE:
        return 2;
    case JJ_BOOL:
    case JJ_INT:
    case JJ_BIG:
    case JJ_FLOAT: {
        double f = jj_num_double(r, v) + 0.0; /* -0.0 is 0.0 */
        return hr_hash64(&f, sizeof f, 3);
    }
    case JJ_TUPLE: {
        uint64_t h = 4;
        if (!jj_enter(r)) return h;
        for (size_t i = 0; i < v.seq->n; i++) h = h * 31 + hash(r, v.seq->v[i]);
        jj_leave(r);
        return h;
    }
    case JJ_LIST:
    case JJ_DICT:
    case JJ_NS:
        (void)jj_fail(r, "unhashable type: '%s'", jj_type_name(v));
        return 0;
    default:
        return 5;
    }
}

static bool same_key(struct jj_run *r, struct jj_val a, struct jj_val b) {
    if (!jj_work(r, 1, JJ_ITEM)) return false;
    if (a.type == JJ_STR && b.type == JJ_STR) return jj_str_eq(r, a.s, b.s);
    if (a.type == JJ_STR || b.type == JJ_STR) return false;
    return jj_equal(r, a, b);
}

/* The entry of `key`, or d->n. */
static size_t dict_find(struct jj_run *r, const struct jj_dict *d, struct jj_val key) {
    if (!d->index) {
        if (key.type != JJ_STR) (void)hash(r, key); /* refuses what cannot be a key */
        for (size_t i = 0; i < d->n && r->st == HR_OK; i++)
            if (same_key(r, d->k[i], key)) return i;
        return d->n;
    }
    for (size_t at = hash(r, key) & (d->n_index - 1); d->index[at] && r->st == HR_OK;
         at = (at + 1) & (d->n_index - 1))
        if (same_key(r, d->k[d->index[at] - 1], key)) return d->index[at] - 1;
    return d->n;
}

bool jj_dict_get(struct jj_run *r, const struct jj_dict *d, struct jj_val key, struct jj_val *out) {
    size_t i = dict_find(r, d, key);
    if (r->st != HR_OK || i == d->n) return false;
    *out = d->v[i];
    return true;
}

static void index_entry(struct jj_run *r, struct jj_dict *d, size_t i) {
    size_t at = hash(r, d->k[i]) & (d->n_index - 1);
    while (d->index[at] && jj_work(r, 1, JJ_BYTE)) at = (at + 1) & (d->n_index - 1);
    d->index[at] = (uint32_t)i + 1;
}

static void dict_grow(struct jj_run *r, struct jj_dict *d) {
    size_t cap = d->cap ? 2 * d->cap : 4;
    struct jj_val *k = jj_alloc(r, cap * sizeof *k), *v = jj_alloc(r, cap * sizeof *v);
    if (d->n) memcpy(k, d->k, d->n * sizeof *k);
    if (d->n) memcpy(v, d->v, d->n * sizeof *v);
    d->k = k;
    d->v = v;
    d->cap = cap;
    if (cap < INDEX_FROM) return;
    d->n_index = 2 * cap;
    d->index = jj_alloc(r, d->n_index * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++) index_entry(r, d, i);
}

void jj_dict_put(struct jj_run *r, struct jj_dict *d, struct jj_val key, struct jj_val val) {
    size_t i = dict_find(r, d, key);
    if (r->st != HR_OK) return;
    if (i < d->n) { /* the first key stays, as in Python */
        d->v[i] = val;
        return;
    }
    if (d->n == d->cap) dict_grow(r, d);
    d->k[d->n] = key;
    d->v[d->n] = val;
    d->n++;
    if (d->index) index_entry(r, d, d->n - 1);
}

/* --- names of types, undefined */

const char *jj_type_name(struct jj_val v) {
    static const char *const names[] = {
        [JJ_ABSENT] = "Undefined",
        [JJ_UNDEF] = "Undefined",
        [JJ_NONE] = "NoneType",
        [JJ_BOOL] = "bool",
        [JJ_INT] = "int",
        [JJ_BIG] = "int",
        [JJ_FLOAT] = "float",
        [JJ_STR] = "str",
        [JJ_BYTES] = "bytes",
        [JJ_LIST] = "list",
        [JJ_TUPLE] = "tuple",
        [JJ_DICT] = "dict",
        [JJ_VIEW] = "dict_items",
        [JJ_RANGE] = "range",
        [JJ_GEN] = "generator",
        [JJ_NS] = "Namespace",
        [JJ_MACRO] = "Macro",
        [JJ_FUNC] = "function",
        [JJ_METHOD] = "builtin_function_or_method",
        [JJ_LOOP] = "LoopContext",
        [JJ_JOINER] = "Joiner",
        [JJ_CYCLER] = "Cycler",
    };
    if (v.type == JJ_STR && v.s->safe) return "Markup";
    if (v.type == JJ_GEN) return v.gen->type;
    if (v.type == JJ_VIEW && v.view->kind != JJ_ITEMS)
        return v.view->kind == JJ_KEYS ? "dict_keys" : "dict_values";
    return names[v.type];
}

struct jj_val jj_undef_text(struct jj_run *r, const char *text) {
    struct jj_undef *u = jj_alloc(r, sizeof *u);
    u->text = text;
    return (struct jj_val){.type = JJ_UNDEF, .undef = u};
}

struct jj_val jj_undef_of(struct jj_run *r, struct jj_val owner, struct jj_val name) {
    struct jj_undef *u = jj_alloc(r, sizeof *u);
    u->owner = owner.type == JJ_ABSENT ? NULL
               : owner.type == JJ_NONE ? "None"
                                       : jj_type_name(owner);
    u->name = name;
    return (struct jj_val){.type = JJ_UNDEF, .undef = u};
}

struct jj_val jj_fail_undef(struct jj_run *r, struct jj_val v) {
    const struct jj_undef *u = v.type == JJ_UNDEF ? v.undef : NULL;
    if (!u) return jj_fail(r, "the value is undefined");
    if (u->text) return jj_fail(r, "%s", u->text);
    struct jj_sb sb = {.run = r};
    bool is_str = u->name.type == JJ_STR;
    jj_write_repr(&sb, u->name);
    int n = sb.len < 300 ? (int)sb.len : 300;
    if (!u->owner) return jj_fail(r, "%.*s is undefined", n, sb.p ? sb.p : "");
    const char *object = strcmp(u->owner, "None") == 0 ? "" : " object";
    return is_str
               ? jj_fail(r, "'%s%s' has no attribute %.*s", u->owner, object, n, sb.p ? sb.p : "")
               : jj_fail(r, "%s%s has no element %.*s", u->owner, object, n, sb.p ? sb.p : "");
}

/* --- truth, equality, order */

bool jj_truth(struct jj_val v) {
    switch (v.type) {
    case JJ_ABSENT:
    case JJ_UNDEF:
    case JJ_NONE:
        return false;
    case JJ_BOOL:
        return v.b;
    case JJ_INT:
        return v.i != 0;
    case JJ_FLOAT:
        return v.f != 0;
    case JJ_STR:
    case JJ_BYTES:
        return v.s->len != 0;
    case JJ_LIST:
    case JJ_TUPLE:
        return v.seq->n != 0;
    case JJ_DICT:
        return v.dict->n != 0;
    case JJ_VIEW:
        return v.view->dict->n != 0;
    case JJ_RANGE:
        return v.range->n != 0;
    default:
        return true;
    }
}

static bool dict_equal(struct jj_run *r, const struct jj_dict *a, const struct jj_dict *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n && r->st == HR_OK; i++) {
        struct jj_val other;
        if (!jj_dict_get(r, b, a->k[i], &other) || !jj_equal(r, a->v[i], other)) return false;
    }
    return true;
}

bool jj_equal(struct jj_run *r, struct jj_val a, struct jj_val b) {
    if (!jj_work(r, 1, JJ_ITEM)) return false;
    if (jj_is_number(a) && jj_is_number(b)) return jj_num_compare(r, a, b) == 0;
    if (a.type != b.type) return false;
    switch (a.type) {
    case JJ_UNDEF:
    case JJ_NONE:
        return true;
    case JJ_STR:
    case JJ_BYTES:
        return jj_str_eq(r, a.s, b.s);
    case JJ_LIST:
    case JJ_TUPLE: {
        bool same = a.seq->n == b.seq->n;
        if (!same || !jj_enter(r)) return false;
        for (size_t i = 0; same && i < a.seq->n; i++) same = jj_equal(r, a.seq->v[i], b.seq->v[i]);
        jj_leave(r);
        return same;
    }
    case JJ_DICT: {
        if (!jj_enter(r)) return false;
        bool same = dict_equal(r, a.dict, b.dict);
        jj_leave(r);
        return same;
    }
    case JJ_RANGE:
        return a.range->n == b.range->n && (a.range->n == 0 || a.range->start == b.range->start) &&
               (a.range->n < 2 || a.range->step == b.range->step);
    case JJ_METHOD:
        return false;
    default:
        return a.gen == b.gen; /* the same object */
    }
}

static int compare_seq(struct jj_run *r, const struct jj_seq *a, const struct jj_seq *b,
                       const char *op) {
    if (!jj_enter(r)) return 0;
    int c = 0;
    size_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && jj_equal(r, a->v[i], b->v[i])) i++;
    if (i < n) {
        c = jj_compare(r, a->v[i], b->v[i], op);
    } else {
        c = a->n < b->n ? -1 : a->n > b->n;
    }
    jj_leave(r);
    return c;
}

int jj_compare(struct jj_run *r, struct jj_val a, struct jj_val b, const char *op) {
    if (!jj_step(r)) return 0;
    if (jj_is_number(a) && jj_is_number(b)) return jj_num_compare(r, a, b);
    if (a.type == JJ_STR && b.type == JJ_STR) { /* UTF-8 sorts as its code points do */
        size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        int c = jj_work(r, n, JJ_BYTE) && n ? memcmp(a.s->p, b.s->p, n) : 0;
        if (c == 0) return a.s->len < b.s->len ? -1 : a.s->len > b.s->len;
        return c < 0 ? -1 : 1;
    }
    if (a.type == b.type && (a.type == JJ_LIST || a.type == JJ_TUPLE))
        return compare_seq(r, a.seq, b.seq, op);
    if (a.type == JJ_UNDEF || b.type == JJ_UNDEF) {
        (void)jj_fail_undef(r, a.type == JJ_UNDEF ? a : b);
        return 0;
    }
    (void)jj_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, jj_type_name(a),
                  jj_type_name(b));
    return 0;
}

bool jj_contains(struct jj_run *r, struct jj_val c, struct jj_val item) {
    struct jj_val v;
    if (c.type == JJ_STR) {
        if (item.type == JJ_STR) return jj_str_find(r, c.s, item.s, 0) != SIZE_MAX;
        (void)jj_fail(r, "'in <string>' requires string as left operand, not %s",
                      jj_type_name(item));
        return false;
    }
    if (c.type == JJ_DICT) return jj_dict_get(r, c.dict, item, &v);
    size_t n;
    const struct jj_val *items = jj_items(r, c, &n);
    for (size_t i = 0; i < n && jj_step(r); i++)
        if (jj_equal(r, items[i], item)) return true;
    return false;
}

/* --- length and iteration */

bool jj_has_len(struct jj_val v) {
    return v.type == JJ_UNDEF || (v.type >= JJ_STR && v.type <= JJ_RANGE) || v.type == JJ_LOOP;
}

bool jj_is_iterable(struct jj_val v) {
    return jj_has_len(v) || v.type == JJ_GEN;
}

int64_t jj_len(struct jj_run *r, struct jj_val v) {
    switch (v.type) {
    case JJ_UNDEF:
        return 0;
    case JJ_STR:
        return (int64_t)jj_str_n_chars(r, v.s);
    case JJ_BYTES:
        return (int64_t)v.s->len;
    case JJ_LIST:
    case JJ_TUPLE:
        return (int64_t)v.seq->n;
    case JJ_DICT:
        return (int64_t)v.dict->n;
    case JJ_VIEW:
        return (int64_t)v.view->dict->n;
    case JJ_RANGE:
        return v.range->n;
    case JJ_LOOP:
        return (int64_t)v.loop->n;
    default:
        (void)jj_fail(r, "object of type '%s' has no len()", jj_type_name(v));
        return 0;
    }
}

static const struct jj_val *str_items(struct jj_run *r, const struct jj_str *s, size_t *n) {
    *n = jj_str_n_chars(r, s);
    if (!jj_work(r, *n, 4 * JJ_ITEM) ||
        !jj_room(r, (double)*n * (sizeof(struct jj_val) + sizeof(struct jj_str)))) {
        *n = 0;
        return NULL;
    }
    struct jj_seq *seq = jj_seq(r, *n);
    for (size_t i = 0, k = 0, width; i < s->len; i += width) {
        (void)jj_decode(s->p + i, s->p + s->len, &width);
        seq->v[k++] = jj_str_plain(r, jj_substr(r, s, i, i + width).s);
    }
    return seq->v;
}

static const struct jj_val *view_items(struct jj_run *r, const struct jj_view *v, size_t *n) {
    *n = v->dict->n;
    if (v->kind != JJ_ITEMS) return v->kind == JJ_KEYS ? v->dict->k : v->dict->v;
    struct jj_seq *seq = jj_seq(r, *n);
    for (size_t i = 0; i < *n; i++) {
        struct jj_seq *pair = jj_seq(r, 2);
        pair->v[0] = v->dict->k[i];
        pair->v[1] = v->dict->v[i];
        seq->v[i] = jj_tuple(pair);
    }
    return seq->v;
}

static const struct jj_val *range_items(struct jj_run *r, const struct jj_range *range, size_t *n) {
    struct jj_seq *seq = jj_seq(r, (size_t)range->n);
    for (size_t i = 0; i < seq->n; i++) seq->v[i] = jj_int(range->start + (int64_t)i * range->step);
    *n = seq->n;
    return seq->v;
}

static const struct jj_val *gen_items(struct jj_run *r, struct jj_gen *g, size_t *n) {
    if (g->running) {
        (void)jj_fail(r, "generator already executing");
        return NULL;
    }
    if (!g->items) {
        g->running = true;
        struct jj_val v = jj_undef();
        if (jj_enter(r)) {
            v = g->func->fn(r, g->self, g->a, &g->args);
            jj_leave(r);
        }
        g->running = false;
        if (r->st != HR_OK) return NULL;
        g->items = v.seq;
    }
    const struct jj_val *rest = g->items->v + g->i;
    *n = g->items->n - g->i;
    g->i = g->items->n;
    return rest;
}

const struct jj_val *jj_items(struct jj_run *r, struct jj_val v, size_t *n) {
    *n = 0;
    if (r->st != HR_OK) return NULL;
    switch (v.type) {
    case JJ_UNDEF:
        return NULL;
    case JJ_STR:
        return str_items(r, v.s, n);
    case JJ_LIST:
    case JJ_TUPLE:
        *n = v.seq->n;
        return v.seq->v;
    case JJ_DICT:
        *n = v.dict->n;
        return v.dict->k;
    case JJ_VIEW:
        return view_items(r, v.view, n);
    case JJ_RANGE:
        return range_items(r, v.range, n);
    case JJ_GEN:
        return gen_items(r, v.gen, n);
    default:
        (void)jj_fail(r, "'%s' object is not iterable", jj_type_name(v));
        return NULL;
    }
}

struct jj_val jj_gen(struct jj_run *r, const char *type, const struct jj_func *func,
                     struct jj_val self, const struct jj_val *a, const struct jj_args *args) {
    struct jj_gen *g = jj_alloc(r, sizeof *g);
    g->type = type;
    g->func = func;
    g->self = self;
    memcpy(g->a, a, sizeof g->a);
    g->args = *args; /* the arrays are the caller's; a copy outlives it */
    struct jj_val *pos = jj_alloc(r, args->n_pos * sizeof *pos),
                  *kw = jj_alloc(r, args->n_kw * sizeof *kw);
    const struct jj_str **names = jj_alloc(r, args->n_kw * sizeof *names);
    if (args->n_pos) memcpy(pos, args->pos, args->n_pos * sizeof *pos);
    if (args->n_kw) memcpy(kw, args->kw, args->n_kw * sizeof *kw);
    if (args->n_kw) memcpy(names, args->kw_name, args->n_kw * sizeof *names);
    g->args.pos = pos;
    g->args.kw = kw;
    g->args.kw_name = names;
    return (struct jj_val){.type = JJ_GEN, .gen = g};
}

/* --- sorting */

static bool goes_first(struct jj_run *r, struct jj_val right, struct jj_val left, bool reverse) {
    int c = jj_compare(r, reverse ? left : right, reverse ? right : left, "<");
    return c == -1;
}

void jj_sort(struct jj_run *r, const struct jj_val *keys, size_t *order, size_t n, bool reverse) {
    size_t *from = order, *to = jj_alloc(r, n * sizeof *to + 1), *spare = to;
    for (size_t width = 1; width < n && jj_work(r, n, JJ_ITEM); width *= 2) {
        for (size_t lo = 0; lo < n && r->st == HR_OK; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n,
                   hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t i = lo, j = mid, k = lo;
            while (i < mid && j < hi)
                to[k++] =
                    goes_first(r, keys[from[j]], keys[from[i]], reverse) ? from[j++] : from[i++];
            while (i < mid) to[k++] = from[i++];
            while (j < hi) to[k++] = from[j++];
        }
        size_t *t = from;
        from = to;
        to = t;
    }
    if (from == spare) memcpy(order, from, n * sizeof *order);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_seqfilters: the filters on lists and dicts.
 *
 * Those that are generators in Jinja2 (map, select, items, unique, ...) are generators here: they
 * run when they are first read, can be read once, and are true even when nothing comes out of them.
 */
#include <stdlib.h>
#include <string.h>

#include "text/jinja_int.h"

#define FILTER(name)                                                                               \
    static struct jj_val name(struct jj_run *r, struct jj_val in, const struct jj_val *a,          \
                              const struct jj_args *args)

/* --- attribute paths: "a.b.0", a number, or none */

static struct jj_val path_part(struct jj_run *r, struct jj_val v, const struct jj_str *part) {
    bool number = part->len > 0 && part->len < 18;
    int64_t i = 0;
    for (size_t k = 0; k < part->len && number; k++) {
        number = part->p[k] >= '0' && part->p[k] <= '9';
        i = i * 10 + (part->p[k] - '0');
    }
    return jj_getitem(r, v, number ? jj_int(i) : (struct jj_val){.type = JJ_STR, .s = part});
}

static struct jj_val get_path(struct jj_run *r, struct jj_val v, struct jj_val path,
                              struct jj_val fallback) {
    if (path.type == JJ_ABSENT || path.type == JJ_NONE) return v;
    if (path.type != JJ_STR) {
        v = jj_getitem(r, v, path);
        return v.type == JJ_UNDEF && fallback.type != JJ_ABSENT ? fallback : v;
    }
    const struct jj_str *s = path.s;
    for (size_t from = 0; from <= s->len && r->st == HR_OK;) {
        const char *dot = memchr(s->p + from, '.', s->len - from);
        size_t to = dot ? (size_t)(dot - s->p) : s->len;
        v = path_part(r, v, jj_substr(r, s, from, to).s);
        if (v.type == JJ_UNDEF && fallback.type != JJ_ABSENT) v = fallback;
        from = to + 1;
    }
    return v;
}

static struct jj_val fold(struct jj_run *r, struct jj_val v, bool case_sensitive) {
    return v.type == JJ_STR && !case_sensitive ? jj_str_case(r, v.s, JJ_TO_LOWER) : v;
}

static const struct jj_val absent = {.type = JJ_ABSENT};

/* --- reading */

FILTER(f_length) {
    return jj_int(jj_len(r, in));
}

FILTER(f_list) {
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_seq *s = jj_seq(r, n);
    if (n) memcpy(s->v, items, n * sizeof *items);
    return jj_list(s);
}

FILTER(f_first) {
    if (in.type == JJ_STR && in.s->len) {
        struct jj_val c = jj_getitem(r, in, jj_int(0));
        return c.type == JJ_STR ? jj_str_plain(r, c.s) : c; /* undefined when the run has failed */
    }
    size_t n, taken = in.type == JJ_GEN ? in.gen->i : 0;
    const struct jj_val *items = jj_items(r, in, &n);
    if (in.type == JJ_GEN && n) in.gen->i = taken + 1; /* the rest stays in the generator */
    return n ? items[0] : jj_undef_text(r, "No first item, sequence was empty.");
}

FILTER(f_last) {
    if (in.type == JJ_STR && in.s->len) return jj_getitem(r, in, jj_int(-1));
    if (in.type == JJ_GEN) return jj_fail(r, "'generator' object is not reversible");
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    return n ? items[n - 1] : jj_undef_text(r, "No last item, sequence was empty.");
}

FILTER(f_join) {
    size_t n;
    const struct jj_str *sep = a[0].type == JJ_ABSENT ? jj_cstr(r, "").s : jj_soft_str(r, a[0]);
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_sb sb = {.run = r};
    for (size_t i = 0; i < n && jj_step(r); i++) {
        if (i) jj_sb_str(&sb, sep);
        jj_write_str(&sb, get_path(r, items[i], a[1], absent));
    }
    return jj_sb_val(&sb);
}

FILTER(f_sum) {
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_val sum = a[1].type == JJ_ABSENT ? jj_int(0) : a[1];
    if (sum.type == JJ_STR) return jj_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < n && jj_step(r); i++)
        sum = jj_binary(r, JJ_ADD, sum, get_path(r, items[i], a[0], absent));
    return sum;
}

static struct jj_val extreme(struct jj_run *r, struct jj_val in, const struct jj_val *a, int want) {
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    if (n == 0) return jj_undef_text(r, "No aggregated item, sequence was empty.");
    struct jj_val best = items[0],
                  best_key = fold(r, get_path(r, best, a[1], absent), jj_truth(a[0]));
    for (size_t i = 1; i < n && r->st == HR_OK; i++) {
        struct jj_val key = fold(r, get_path(r, items[i], a[1], absent), jj_truth(a[0]));
        if (jj_compare(r, key, best_key, want > 0 ? ">" : "<") != want) continue;
        best = items[i];
        best_key = key;
    }
    return best;
}

FILTER(f_min) {
    return extreme(r, in, a, -1);
}

FILTER(f_max) {
    return extreme(r, in, a, 1);
}

/* --- sorting */

static struct jj_val in_order(struct jj_run *r, const struct jj_val *items,
                              const struct jj_val *keys, size_t n, bool reverse) {
    size_t *order = jj_alloc(r, n * sizeof *order + 1);
    for (size_t i = 0; i < n; i++) order[i] = i;
    jj_sort(r, keys, order, n, reverse);
    struct jj_seq *s = jj_seq(r, n);
    for (size_t i = 0; i < n; i++) s->v[i] = items[order[i]];
    return jj_list(s);
}

/* The sort key is a list, one element for each attribute of "a,b". */
static struct jj_val sort_key(struct jj_run *r, struct jj_val item, struct jj_val attribute,
                              bool case_sensitive) {
    struct jj_vec key = {0};
    if (attribute.type != JJ_STR) {
        jj_vec_push(r, &key, fold(r, get_path(r, item, attribute, absent), case_sensitive));
        return jj_vec_list(r, &key);
    }
    const struct jj_str *s = attribute.s;
    for (size_t from = 0; from <= s->len && r->st == HR_OK;) {
        const char *comma = memchr(s->p + from, ',', s->len - from);
        size_t to = comma ? (size_t)(comma - s->p) : s->len;
        jj_vec_push(r, &key,
                    fold(r, get_path(r, item, jj_substr(r, s, from, to), absent), case_sensitive));
        from = to + 1;
    }
    return jj_vec_list(r, &key);
}

FILTER(f_sort) { /* reverse, case_sensitive, attribute */
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_seq *keys = jj_seq(r, n);
    for (size_t i = 0; i < n && r->st == HR_OK; i++)
        keys->v[i] = sort_key(r, items[i], a[2], jj_truth(a[1]));
    return in_order(r, items, keys->v, n, jj_truth(a[0]));
}

FILTER(f_dictsort) { /* case_sensitive, by, reverse */
    if (in.type == JJ_UNDEF) return jj_fail_undef(r, in);
    if (in.type != JJ_DICT)
        return jj_fail(r, "'%s object' has no attribute 'items'", jj_type_name(in));
    bool by_value = a[1].type == JJ_STR && jj_str_is(a[1].s, "value");
    if (a[1].type != JJ_ABSENT && !by_value && !(a[1].type == JJ_STR && jj_str_is(a[1].s, "key")))
        return jj_fail(r, "You can only sort by either \"key\" or \"value\"");
    struct jj_view view = {.dict = in.dict, .kind = JJ_ITEMS};
    size_t n;
    const struct jj_val *items = jj_items(r, (struct jj_val){.type = JJ_VIEW, .view = &view}, &n);
    struct jj_seq *keys = jj_seq(r, n);
    for (size_t i = 0; i < n && r->st == HR_OK; i++)
        keys->v[i] = fold(r, by_value ? in.dict->v[i] : in.dict->k[i], jj_truth(a[0]));
    return in_order(r, items, keys->v, n, jj_truth(a[2]));
}

FILTER(f_groupby) { /* attribute, default, case_sensitive */
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_seq *keys = jj_seq(r, n), *raw = jj_seq(r, n);
    size_t *order = jj_alloc(r, n * sizeof *order + 1);
    for (size_t i = 0; i < n && r->st == HR_OK; i++) {
        order[i] = i;
        raw->v[i] = get_path(r, items[i], a[0], a[1]);
        keys->v[i] = fold(r, raw->v[i], jj_truth(a[2]));
    }
    jj_sort(r, keys->v, order, n, false);
    struct jj_vec groups = {0};
    for (size_t i = 0, end; i < n && r->st == HR_OK; i = end) {
        for (end = i + 1; end < n && jj_equal(r, keys->v[order[i]], keys->v[order[end]]);) end++;
        struct jj_seq *list = jj_seq(r, end - i), *pair = jj_seq(r, 2);
        for (size_t k = i; k < end; k++) list->v[k - i] = items[order[k]];
        pair->v[0] = raw->v[order[i]];
        pair->v[1] = jj_list(list);
        pair->group = true;
        jj_vec_push(r, &groups, jj_tuple(pair));
    }
    return jj_vec_list(r, &groups);
}

FILTER(g_reverse) {
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_seq *s = jj_seq(r, n);
    for (size_t i = 0; i < n; i++) s->v[i] = items[n - 1 - i];
    return jj_list(s);
}

/* --- generators: g_x does the work when it is read, f_x makes the generator */

FILTER(g_items) {
    if (in.type == JJ_UNDEF) return jj_list(jj_seq(r, 0));
    if (in.type != JJ_DICT) return jj_fail(r, "Can only get item pairs from a mapping.");
    struct jj_view view = {.dict = in.dict, .kind = JJ_ITEMS};
    return f_list(r, (struct jj_val){.type = JJ_VIEW, .view = &view}, a, args);
}

FILTER(g_unique) { /* case_sensitive, attribute */
    size_t n;
    struct jj_val unused;
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_dict *seen = jj_dict(r);
    struct jj_vec out = {0};
    for (size_t i = 0; i < n && r->st == HR_OK; i++) {
        struct jj_val key = fold(r, get_path(r, items[i], a[1], absent), jj_truth(a[0]));
        if (jj_dict_get(r, seen, key, &unused)) continue;
        jj_dict_put(r, seen, key, jj_none());
        jj_vec_push(r, &out, items[i]);
    }
    return jj_vec_list(r, &out);
}

FILTER(g_batch) { /* linecount, fill_with */
    size_t n, size = (size_t)jj_arg_int(r, a[0], 0);
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_vec out = {0};
    if (size == 0 || size > (size_t)INT64_MAX) size = n ? n : 1;
    for (size_t i = 0; i < n && r->st == HR_OK; i += size) {
        size_t have = n - i < size ? n - i : size;
        bool fill = a[1].type != JJ_ABSENT && a[1].type != JJ_NONE;
        if (fill && !jj_room(r, (double)size * sizeof *items)) break;
        struct jj_seq *row = jj_seq(r, fill ? size : have);
        for (size_t k = 0; k < row->n; k++) row->v[k] = k < have ? items[i + k] : a[1];
        jj_vec_push(r, &out, jj_list(row));
    }
    return jj_vec_list(r, &out);
}

FILTER(g_slice) { /* slices, fill_with */
    size_t n;
    const struct jj_val *items = jj_items(r, in, &n);
    int64_t slices = jj_arg_int(r, a[0], 0);
    if (slices <= 0) return jj_fail(r, "integer division or modulo by zero");
    if (!jj_room(r, (double)slices * sizeof(struct jj_seq))) return jj_undef();
    size_t per = n / (size_t)slices, more = n % (size_t)slices, offset = 0;
    struct jj_vec out = {0};
    for (size_t i = 0; i < (size_t)slices && jj_step(r); i++) {
        size_t start = offset + i * per;
        if (i < more) offset++;
        size_t end = offset + (i + 1) * per;
        bool fill = a[1].type != JJ_ABSENT && a[1].type != JJ_NONE && i >= more;
        struct jj_seq *part = jj_seq(r, end - start + (fill ? 1 : 0));
        for (size_t k = 0; k < part->n; k++) part->v[k] = start + k < end ? items[start + k] : a[1];
        jj_vec_push(r, &out, jj_list(part));
    }
    return jj_vec_list(r, &out);
}

/* The arguments behind the first n positional ones. */
static struct jj_args behind(const struct jj_args *args, size_t n) {
    struct jj_args rest = *args;
    rest.pos += n;
    rest.n_pos -= n;
    return rest;
}

FILTER(g_map) {
    size_t n;
    if (!jj_truth(in)) return jj_list(jj_seq(r, 0)); /* none too, as in the original */
    struct jj_val attribute = absent, fallback = absent;
    for (size_t i = 0; i < args->n_kw && args->n_pos == 0; i++) {
        if (jj_str_is(args->kw_name[i], "attribute")) attribute = args->kw[i];
        if (jj_str_is(args->kw_name[i], "default")) fallback = args->kw[i];
    }
    const struct jj_func *f = NULL;
    struct jj_args rest = {0};
    if (args->n_pos) {
        const struct jj_str *name = jj_arg_str(r, args->pos[0], "map");
        f = jj_filter_find(name->p, name->len);
        if (r->st == HR_OK && !f)
            return jj_fail(r, "No filter named '%.*s'.", (int)(name->len < 100 ? name->len : 100),
                           name->p);
        rest = behind(args, 1);
    } else if (attribute.type == JJ_ABSENT) {
        return jj_fail(r, "map requires a filter argument");
    }
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_seq *s = jj_seq(r, n);
    for (size_t i = 0; i < n && jj_step(r); i++)
        s->v[i] =
            f ? jj_call_func(r, f, items[i], &rest) : get_path(r, items[i], attribute, fallback);
    return jj_list(s);
}

/* select, reject, selectattr, rejectattr: what passes a test, or is true without one. */
static struct jj_val selected(struct jj_run *r, struct jj_val in, const struct jj_args *args,
                              bool by_attr, bool keep) {
    size_t n, skip = by_attr ? 1 : 0;
    if (!jj_truth(in)) return jj_list(jj_seq(r, 0));
    if (args->n_pos < skip) return jj_fail(r, "Missing parameter for attribute name");
    const struct jj_func *test = NULL;
    struct jj_args rest = {0};
    if (args->n_pos > skip) {
        const struct jj_str *name = jj_arg_str(r, args->pos[skip], "select");
        test = jj_test_find(name->p, name->len);
        if (r->st == HR_OK && !test)
            return jj_fail(r, "No test named '%.*s'.", (int)(name->len < 100 ? name->len : 100),
                           name->p);
        rest = behind(args, skip + 1);
    }
    const struct jj_val *items = jj_items(r, in, &n);
    struct jj_vec out = {0};
    for (size_t i = 0; i < n && jj_step(r); i++) {
        struct jj_val v = by_attr ? get_path(r, items[i], args->pos[0], absent) : items[i];
        bool pass = jj_truth(test ? jj_call_func(r, test, v, &rest) : v);
        if (pass == keep && r->st == HR_OK) jj_vec_push(r, &out, items[i]);
    }
    return jj_vec_list(r, &out);
}

FILTER(g_select) {
    return selected(r, in, args, false, true);
}
FILTER(g_reject) {
    return selected(r, in, args, false, false);
}
FILTER(g_selectattr) {
    return selected(r, in, args, true, true);
}
FILTER(g_rejectattr) {
    return selected(r, in, args, true, false);
}

#define GENERATOR(name, params, required)                                                          \
    static const struct jj_func gen_##name = {#name, g_##name, params, required};                  \
    FILTER(f_##name) {                                                                             \
        return jj_gen(r, "generator", &gen_##name, in, a, args);                                   \
    }
GENERATOR(unique, "case_sensitive,attribute", 0)
GENERATOR(batch, "linecount,fill_with", 1)
GENERATOR(slice, "slices,fill_with", 1)
GENERATOR(map, NULL, 0)
GENERATOR(select, NULL, 0)
GENERATOR(reject, NULL, 0)
GENERATOR(selectattr, NULL, 0)
GENERATOR(rejectattr, NULL, 0)
GENERATOR(items, "", 0)
static const struct jj_func gen_reverse = {"reverse", g_reverse, "", 0};

FILTER(f_reverse) {
    if (in.type == JJ_STR) return jj_slice(r, in, absent, absent, jj_int(-1));
    if (!jj_is_iterable(in)) return jj_fail(r, "argument must be iterable");
    return jj_gen(r, in.type == JJ_LIST ? "list_reverseiterator" : "reversed", &gen_reverse, in, a,
                  args);
}

static const struct jj_func filters[] = {
    {"batch", f_batch, "linecount,fill_with", 1},
    {"count", f_length, "", 0},
    {"dictsort", f_dictsort, "case_sensitive,by,reverse", 0},
    {"first", f_first, "", 0},
    {"groupby", f_groupby, "attribute,default,case_sensitive", 1},
    {"items", f_items, "", 0},
    {"join", f_join, "d,attribute", 0},
    {"last", f_last, "", 0},
    {"length", f_length, "", 0},
    {"list", f_list, "", 0},
    {"map", f_map, NULL, 0},
    {"max", f_max, "case_sensitive,attribute", 0},
    {"min", f_min, "case_sensitive,attribute", 0},
    {"reject", f_reject, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
    {"reverse", f_reverse, "", 0},
    {"select", f_select, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {"slice", f_slice, "slices,fill_with", 1},
    {"sort", f_sort, "reverse,case_sensitive,attribute", 0},
    {"sum", f_sum, "attribute,start", 0},
    {"unique", f_unique, "case_sensitive,attribute", 0},
};

const struct jj_func *jj_list_filter_find(const char *name, size_t len) {
    return jj_table_find(filters, sizeof filters / sizeof *filters, name, len);
}

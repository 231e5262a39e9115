/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_methods: the methods of str, list, tuple, dict and cycler that a template may call. Methods
 * that change their object are not here: the sandbox refuses them (jinja_attr.c). Positions count
 * characters, not bytes. */
#include <string.h>

#include "text/jinja_int.h"

#define METHOD(name)                                                                               \
    static struct jj_val name(struct jj_run *r, struct jj_val self, const struct jj_val *a,        \
                              const struct jj_args *args)

static const struct jj_str *opt_str(struct jj_run *r, struct jj_val v, const char *what) {
    return v.type == JJ_ABSENT || v.type == JJ_NONE ? NULL : jj_arg_str(r, v, what);
}

/* The characters [start, end) of a method's optional arguments, as bytes; false when start lies
 * behind the end. */
static bool window(struct jj_run *r, const struct jj_str *s, struct jj_val start, struct jj_val end,
                   size_t *from, size_t *to) {
    int64_t n = (int64_t)jj_str_n_chars(r, s);
    int64_t b = start.type == JJ_NONE ? 0 : jj_arg_int(r, start, 0);
    int64_t e = end.type == JJ_NONE ? n : jj_arg_int(r, end, n);
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    if (e < 0) e = e + n < 0 ? 0 : e + n;
    if (e > n) e = n;
    if (b > e || r->st != HR_OK) return false;
    *from = jj_str_offset(r, s, (size_t)b);
    *to = jj_str_offset(r, s, (size_t)e);
    return true;
}

/* --- cutting and joining */

METHOD(m_strip) {
    return jj_strip(r, self.s, opt_str(r, a[0], "strip"), true, true);
}
METHOD(m_lstrip) {
    return jj_strip(r, self.s, opt_str(r, a[0], "lstrip"), true, false);
}
METHOD(m_rstrip) {
    return jj_strip(r, self.s, opt_str(r, a[0], "rstrip"), false, true);
}
METHOD(m_split) {
    return jj_split(r, self.s, opt_str(r, a[0], "split"), jj_arg_int(r, a[1], -1));
}
METHOD(m_rsplit) {
    return jj_rsplit(r, self.s, opt_str(r, a[0], "rsplit"), jj_arg_int(r, a[1], -1));
}

METHOD(m_splitlines) {
    struct jj_vec out = {0};
    for (size_t i = 0, end, next; i < self.s->len && r->st == HR_OK; i = next) {
        jj_line_end(r, self.s, i, &end, &next);
        jj_vec_push(r, &out, jj_substr(r, self.s, i, jj_truth(a[0]) ? next : end));
    }
    return jj_vec_list(r, &out);
}

static struct jj_val partition(struct jj_run *r, const struct jj_str *s, const struct jj_str *sep,
                               bool last) {
    if (r->st != HR_OK) return jj_undef();
    if (sep->len == 0) return jj_fail(r, "empty separator");
    size_t at = last ? jj_str_rfind(r, s, sep, s->len) : jj_str_find(r, s, sep, 0);
    struct jj_seq *t = jj_seq(r, 3);
    bool hit = at != SIZE_MAX;
    if (!hit) at = last ? 0 : s->len;
    t->v[0] = jj_substr(r, s, 0, at);
    t->v[1] = jj_substr(r, s, at, hit ? at + sep->len : at);
    t->v[2] = jj_substr(r, s, hit ? at + sep->len : at, s->len);
    return jj_tuple(t);
}
METHOD(m_partition) {
    return partition(r, self.s, jj_arg_str(r, a[0], "partition"), false);
}
METHOD(m_rpartition) {
    return partition(r, self.s, jj_arg_str(r, a[0], "rpartition"), true);
}

METHOD(m_join) {
    size_t n;
    const struct jj_val *items = jj_items(r, a[0], &n);
    struct jj_sb sb = {.run = r};
    for (size_t i = 0; i < n && jj_step(r); i++) {
        if (items[i].type != JJ_STR)
            return jj_fail(r, "sequence item %zu: expected str instance, %s found", i,
                           jj_type_name(items[i]));
        if (i) jj_sb_str(&sb, self.s);
        jj_sb_str(&sb, items[i].s);
    }
    return jj_sb_val(&sb);
}

METHOD(m_replace) {
    const struct jj_str *from = jj_arg_str(r, a[0], "replace"),
                        *to = jj_arg_str(r, a[1], "replace");
    return r->st == HR_OK ? jj_replace(r, self.s, from, to, jj_arg_int(r, a[2], -1)) : jj_undef();
}

static bool same_bytes(struct jj_run *r, const char *at, const struct jj_str *x) {
    return jj_work(r, x->len + JJ_ITEM, JJ_BYTE) && memcmp(at, x->p, x->len) == 0;
}

METHOD(m_removeprefix) {
    const struct jj_str *p = jj_arg_str(r, a[0], "removeprefix"), *s = self.s;
    bool has = p->len <= s->len && same_bytes(r, s->p, p);
    return has ? jj_substr(r, s, p->len, s->len) : self;
}
METHOD(m_removesuffix) {
    const struct jj_str *p = jj_arg_str(r, a[0], "removesuffix"), *s = self.s;
    bool has = p->len && p->len <= s->len && same_bytes(r, s->p + s->len - p->len, p);
    return has ? jj_substr(r, s, 0, s->len - p->len) : self;
}

/* --- looking */

static bool affix(struct jj_run *r, const struct jj_str *s, size_t from, size_t to,
                  const struct jj_str *x, bool at_end) {
    if (x->len > to - from) return false;
    return same_bytes(r, at_end ? s->p + to - x->len : s->p + from, x);
}

static struct jj_val with_affix(struct jj_run *r, const struct jj_str *s, const struct jj_val *a,
                                bool at_end) {
    size_t from, to;
    if (!window(r, s, a[1], a[2], &from, &to)) return jj_bool(false);
    if (a[0].type != JJ_TUPLE) {
        const struct jj_str *x = jj_arg_str(r, a[0], at_end ? "endswith" : "startswith");
        return jj_bool(affix(r, s, from, to, x, at_end));
    }
    for (size_t i = 0; i < a[0].seq->n && jj_work(r, 1, JJ_ITEM); i++)
        if (affix(r, s, from, to, jj_arg_str(r, a[0].seq->v[i], "startswith"), at_end))
            return jj_bool(true);
    return jj_bool(false);
}
METHOD(m_startswith) {
    return with_affix(r, self.s, a, false);
}
METHOD(m_endswith) {
    return with_affix(r, self.s, a, true);
}

static int64_t position(struct jj_run *r, const struct jj_str *s, const struct jj_val *a,
                        bool last) {
    const struct jj_str *sub = jj_arg_str(r, a[0], "find");
    size_t from, to;
    if (!window(r, s, a[1], a[2], &from, &to)) return -1;
    size_t at = last ? jj_str_rfind(r, s, sub, to) : jj_str_find(r, s, sub, from);
    if (at == SIZE_MAX || at < from || at + sub->len > to) return -1;
    const struct jj_str head = {.p = s->p, .len = at};
    return (int64_t)jj_str_n_chars(r, &head);
}
METHOD(m_find) {
    return jj_int(position(r, self.s, a, false));
}
METHOD(m_rfind) {
    return jj_int(position(r, self.s, a, true));
}
static struct jj_val index_of(struct jj_run *r, int64_t at) {
    return at < 0 && r->st == HR_OK ? jj_fail(r, "substring not found") : jj_int(at);
}
METHOD(m_index) {
    return index_of(r, position(r, self.s, a, false));
}
METHOD(m_rindex) {
    return index_of(r, position(r, self.s, a, true));
}

METHOD(m_count) {
    const struct jj_str *sub = jj_arg_str(r, a[0], "count");
    size_t from, to;
    if (!window(r, self.s, a[1], a[2], &from, &to)) return jj_int(0);
    struct jj_str part = {.p = self.s->p + from, .len = to - from};
    if (sub->len == 0) return jj_int((int64_t)jj_str_n_chars(r, &part) + 1);
    int64_t n = 0;
    for (size_t at = jj_str_find(r, &part, sub, 0); at != SIZE_MAX;
         at = jj_str_find(r, &part, sub, at + sub->len))
        n++;
    return jj_int(n);
}

/* All characters have the property, and there is one. */
static struct jj_val all(struct jj_run *r, const struct jj_str *s, bool (*is)(uint32_t)) {
    for (size_t i = 0, n; i < s->len && jj_work(r, 1, JJ_CLASS); i += n)
        if (!is(jj_decode(s->p + i, s->p + s->len, &n))) return jj_bool(false);
    return jj_bool(s->len > 0);
}
static bool is_alnum(uint32_t c) {
    return jj_is_alpha(c) || jj_is_decimal(c) || jj_is_digit(c) || jj_is_numeric(c);
}
METHOD(m_isalpha) {
    return all(r, self.s, jj_is_alpha);
}
METHOD(m_isalnum) {
    return all(r, self.s, is_alnum);
}
METHOD(m_isdigit) {
    return all(r, self.s, jj_is_digit);
}
METHOD(m_isdecimal) {
    return all(r, self.s, jj_is_decimal);
}
METHOD(m_isnumeric) {
    return all(r, self.s, jj_is_numeric);
}
METHOD(m_isspace) {
    return all(r, self.s, jj_is_space);
}
METHOD(m_isprintable) {
    return jj_bool(self.s->len == 0 || all(r, self.s, jj_is_printable).b);
}
METHOD(m_isascii) {
    return jj_bool(jj_str_n_chars(r, self.s) == self.s->len);
}

static struct jj_val one_case(struct jj_run *r, const struct jj_str *s, bool (*is)(uint32_t)) {
    bool any = false;
    for (size_t i = 0, n; i < s->len && jj_work(r, 1, JJ_CLASS); i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        if (is(c)) {
            any = true;
        } else if (jj_is_cased(c)) {
            return jj_bool(false);
        }
    }
    return jj_bool(any);
}
METHOD(m_isupper) {
    return one_case(r, self.s, jj_is_upper);
}
METHOD(m_islower) {
    return one_case(r, self.s, jj_is_lower);
}

/* --- case and padding */

METHOD(m_upper) {
    return jj_str_case(r, self.s, JJ_TO_UPPER);
}
METHOD(m_lower) {
    return jj_str_case(r, self.s, JJ_TO_LOWER);
}
METHOD(m_casefold) {
    return jj_str_case(r, self.s, JJ_TO_FOLD);
}
METHOD(m_capitalize) {
    return jj_str_capitalize(r, self.s);
}

METHOD(m_title) {
    struct jj_sb sb = {.run = r};
    bool cased = false;
    for (size_t i = 0, n; i < self.s->len && r->st == HR_OK; i += n) {
        uint32_t c = jj_decode(self.s->p + i, self.s->p + self.s->len, &n);
        jj_sb_case(&sb, self.s, i, n, c, cased ? JJ_TO_LOWER : JJ_TO_TITLE);
        cased = jj_is_cased(c);
    }
    return jj_sb_val(&sb);
}
METHOD(m_swapcase) {
    struct jj_sb sb = {.run = r};
    for (size_t i = 0, n; i < self.s->len && jj_work(r, 1, JJ_CHAR); i += n) {
        uint32_t c = jj_decode(self.s->p + i, self.s->p + self.s->len, &n);
        if (jj_is_upper(c) || jj_is_lower(c)) {
            jj_sb_case(&sb, self.s, i, n, c, jj_is_upper(c) ? JJ_TO_LOWER : JJ_TO_UPPER);
        } else { /* title case too stays as it is */
            jj_sb_sub(&sb, self.s, i, i + n);
        }
    }
    return jj_sb_val(&sb);
}

static struct jj_val pad(struct jj_run *r, struct jj_val self, const struct jj_val *a,
                         enum jj_pad how) {
    const struct jj_str *fill = opt_str(r, a[1], "padding");
    if (fill && jj_str_n_chars(r, fill) != 1)
        return jj_fail(r, "The fill character must be exactly one character long");
    return jj_str_pad(r, self.s, jj_arg_int(r, a[0], 0), fill ? fill->p : " ", fill ? fill->len : 1,
                      how);
}
METHOD(m_ljust) {
    return pad(r, self, a, JJ_PAD_RIGHT);
}
METHOD(m_rjust) {
    return pad(r, self, a, JJ_PAD_LEFT);
}
METHOD(m_center) {
    return pad(r, self, a, JJ_PAD_BOTH);
}
METHOD(m_zfill) {
    int64_t width = jj_arg_int(r, a[0], 0);
    const struct jj_str *s = self.s;
    if (!s->len || (*s->p != '-' && *s->p != '+'))
        return jj_str_pad(r, s, width, "0", 1, JJ_PAD_LEFT);
    struct jj_val digits =
        jj_str_pad(r, jj_substr(r, s, 1, s->len).s, width - 1, "0", 1, JJ_PAD_LEFT);
    return jj_concat(r, jj_substr(r, s, 0, 1).s, digits.s);
}

METHOD(m_format) {
    return jj_format(r, self.s, args);
}

METHOD(m_encode) {
    const struct jj_str *name = opt_str(r, a[0], "encode");
    if (name && !jj_str_is(name, "utf-8") && !jj_str_is(name, "utf8") && !jj_str_is(name, "UTF-8"))
        return jj_fail(r, "only the encoding utf-8 is supported");
    return (struct jj_val){.type = JJ_BYTES, .s = self.s};
}

static const struct jj_func str_methods[] = {
    {"strip", m_strip, "chars", 0},
    {"lstrip", m_lstrip, "chars", 0},
    {"rstrip", m_rstrip, "chars", 0},
    {"split", m_split, "sep,maxsplit", 0},
    {"rsplit", m_rsplit, "sep,maxsplit", 0},
    {"splitlines", m_splitlines, "keepends", 0},
    {"partition", m_partition, "sep", 1},
    {"rpartition", m_rpartition, "sep", 1},
    {"join", m_join, "iterable", 1},
    {"replace", m_replace, "old,new,count", 2},
    {"removeprefix", m_removeprefix, "prefix", 1},
    {"removesuffix", m_removesuffix, "suffix", 1},
    {"startswith", m_startswith, "prefix,start,end", 1},
    {"endswith", m_endswith, "suffix,start,end", 1},
    {"find", m_find, "sub,start,end", 1},
    {"rfind", m_rfind, "sub,start,end", 1},
    {"index", m_index, "sub,start,end", 1},
    {"rindex", m_rindex, "sub,start,end", 1},
    {"count", m_count, "sub,start,end", 1},
    {"isalpha", m_isalpha, "", 0},
    {"isalnum", m_isalnum, "", 0},
    {"isdigit", m_isdigit, "", 0},
    {"isdecimal", m_isdecimal, "", 0},
    {"isnumeric", m_isnumeric, "", 0},
    {"isspace", m_isspace, "", 0},
    {"isprintable", m_isprintable, "", 0},
    {"isascii", m_isascii, "", 0},
    {"isupper", m_isupper, "", 0},
    {"islower", m_islower, "", 0},
    {"upper", m_upper, "", 0},
    {"lower", m_lower, "", 0},
    {"casefold", m_casefold, "", 0},
    {"capitalize", m_capitalize, "", 0},
    {"title", m_title, "", 0},
    {"swapcase", m_swapcase, "", 0},
    {"ljust", m_ljust, "width,fillchar", 1},
    {"rjust", m_rjust, "width,fillchar", 1},
    {"center", m_center, "width,fillchar", 1},
    {"zfill", m_zfill, "width", 1},
    {"format", m_format, NULL, 0},
    {"encode", m_encode, "encoding", 0},
};

/* --- list, tuple, dict, cycler */

METHOD(m_seq_count) {
    int64_t n = 0;
    size_t len;
    const struct jj_val *items = jj_items(r, self, &len);
    for (size_t i = 0; i < len && jj_step(r); i++) n += jj_equal(r, items[i], a[0]);
    return jj_int(n);
}
METHOD(m_seq_index) {
    size_t len;
    const struct jj_val *items = jj_items(r, self, &len);
    for (size_t i = 0; i < len && jj_step(r); i++)
        if (jj_equal(r, items[i], a[0])) return jj_int((int64_t)i);
    return jj_fail(r, "the value is not in the %s", jj_type_name(self));
}
METHOD(m_copy) { /* nothing can change, so it is its own copy */
    return self;
}

METHOD(m_get) {
    struct jj_val v;
    if (jj_dict_get(r, self.dict, a[0], &v)) return v;
    return a[1].type == JJ_ABSENT ? jj_none() : a[1];
}
static struct jj_val view(struct jj_run *r, struct jj_val self, enum jj_view_kind kind) {
    struct jj_view *v = jj_alloc(r, sizeof *v);
    v->dict = self.dict;
    v->kind = kind;
    return (struct jj_val){.type = JJ_VIEW, .view = v};
}
METHOD(m_keys) {
    return view(r, self, JJ_KEYS);
}
METHOD(m_values) {
    return view(r, self, JJ_VALUES);
}
METHOD(m_items) {
    return view(r, self, JJ_ITEMS);
}

METHOD(m_next) {
    struct jj_cycler *c = self.cycler;
    return c->items->v[c->i++ % c->items->n];
}
METHOD(m_reset) {
    self.cycler->i = 0;
    return jj_none();
}

METHOD(m_cycle) {
    if (args->n_pos == 0) return jj_fail(r, "no items for cycling given");
    return args->pos[self.loop->i % args->n_pos];
}
METHOD(m_changed) {
    struct jj_seq *s = jj_seq(r, args->n_pos);
    if (args->n_pos) memcpy(s->v, args->pos, args->n_pos * sizeof *s->v);
    struct jj_val now = jj_tuple(s);
    if (self.loop->changed.type == JJ_TUPLE && jj_equal(r, self.loop->changed, now))
        return jj_bool(false);
    self.loop->changed = now;
    return jj_bool(true);
}

static const struct jj_func seq_methods[] = {{"count", m_seq_count, "value", 1},
                                             {"index", m_seq_index, "value", 1}};
static const struct jj_func list_methods[] = {{"copy", m_copy, "", 0}};
static const struct jj_func dict_methods[] = {
    {"get", m_get, "key,default", 1}, {"items", m_items, "", 0}, {"keys", m_keys, "", 0},
    {"values", m_values, "", 0},      {"copy", m_copy, "", 0},
};
static const struct jj_func cycler_methods[] = {{"next", m_next, "", 0}, {"reset", m_reset, "", 0}};
static const struct jj_func loop_methods[] = {{"cycle", m_cycle, NULL, 0},
                                              {"changed", m_changed, NULL, 0}};

#define FIND(table, name) jj_table_find(table, sizeof table / sizeof *table, (name)->p, (name)->len)

const struct jj_func *jj_method_find(struct jj_val self, const struct jj_str *name) {
    const struct jj_func *f = NULL;
    switch (self.type) {
    case JJ_STR:
        return FIND(str_methods, name);
    case JJ_LIST:
        f = FIND(list_methods, name);
        return f ? f : FIND(seq_methods, name);
    case JJ_TUPLE:
    case JJ_RANGE:
        return FIND(seq_methods, name);
    case JJ_DICT:
        return FIND(dict_methods, name);
    case JJ_CYCLER:
        return FIND(cycler_methods, name);
    case JJ_LOOP:
        return FIND(loop_methods, name);
    default:
        return NULL;
    }
}

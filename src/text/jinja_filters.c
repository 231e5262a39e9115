/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_filters: the filters on text and numbers; those on sequences are in jinja_seqfilters.c.
 *
 * Each does what Jinja2's filters.py does, on the same argument names. Filters that need the
 * outside world or HTML (random, pprint, xmlattr, urlize, striptags, wordwrap) are known by name
 * and refused when the template is compiled. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_int.h"

#define FILTER(name)                                                                               \
    static struct jj_val name(struct jj_run *r, struct jj_val in, const struct jj_val *a,          \
                              const struct jj_args *args)

static struct jj_val markup(struct jj_run *r, const struct jj_str *s) {
    struct jj_str *out = jj_alloc(r, sizeof *out);
    *out = *s;
    if (s->spans == &s->one) out->spans = &out->one;
    out->safe = true;
    return (struct jj_val){.type = JJ_STR, .s = out};
}

/* --- text */

FILTER(f_trim) {
    const struct jj_str *chars = NULL;
    if (a[0].type != JJ_ABSENT && a[0].type != JJ_NONE) chars = jj_arg_str(r, a[0], "trim");
    return jj_strip(r, jj_soft_str(r, in), chars, true, true);
}

FILTER(f_upper) {
    return jj_str_case(r, jj_soft_str(r, in), JJ_TO_UPPER);
}

FILTER(f_lower) {
    return jj_str_case(r, jj_soft_str(r, in), JJ_TO_LOWER);
}

FILTER(f_capitalize) {
    return jj_str_capitalize(r, jj_soft_str(r, in));
}

/* Words are what stands between blanks, - and opening brackets; unlike str.title(). */
FILTER(f_title) {
    const struct jj_str *s = jj_soft_str(r, in);
    struct jj_sb sb = {.run = r};
    bool start = true;
    for (size_t i = 0, n; i < s->len && r->st == HR_OK; i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        jj_sb_case(&sb, s, i, n, c, start ? JJ_TO_UPPER : JJ_TO_LOWER);
        start = jj_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
    }
    return jj_sb_val(&sb);
}

FILTER(f_string) {
    return jj_to_str(r, in);
}

FILTER(f_safe) {
    return markup(r, jj_soft_str(r, in));
}

FILTER(f_escape) {
    return jj_escape(r, jj_soft_str(r, in));
}

FILTER(f_forceescape) {
    struct jj_str plain = *jj_soft_str(r, in);
    plain.safe = false;
    return jj_escape(r, &plain);
}

FILTER(f_replace) {
    int64_t count = a[2].type == JJ_NONE ? -1 : jj_arg_int(r, a[2], -1);
    return jj_replace(r, jj_soft_str(r, in), jj_soft_str(r, a[0]), jj_soft_str(r, a[1]), count);
}

FILTER(f_center) {
    return jj_str_pad(r, jj_soft_str(r, in), jj_arg_int(r, a[0], 80), " ", 1, JJ_PAD_BOTH);
}

FILTER(f_wordcount) {
    const struct jj_str *s = jj_soft_str(r, in);
    int64_t words = 0;
    bool inside = false;
    for (size_t i = 0, n; i < s->len && jj_work(r, 3, JJ_CLASS); i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        bool word = jj_is_alpha(c) || jj_is_numeric(c) || jj_is_decimal(c) || c == '_';
        words += word && !inside;
        inside = word;
    }
    return jj_int(words);
}

FILTER(f_truncate) {
    const struct jj_str *s = jj_soft_str(r, in);
    int64_t len = jj_len(r, in);
    const struct jj_str *end =
        a[2].type == JJ_ABSENT ? jj_cstr(r, "...").s : jj_arg_str(r, a[2], "truncate");
    int64_t length = jj_arg_int(r, a[0], 255);
    int64_t leeway = a[3].type == JJ_NONE ? 5 : jj_arg_int(r, a[3], 5),
            n_end = (int64_t)jj_str_n_chars(r, end);
    if (r->st != HR_OK) return jj_undef();
    if (length < n_end)
        return jj_fail(r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0) return jj_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
    if ((double)len <= (double)length + (double)leeway) return in;
    if (in.type != JJ_STR) return jj_fail(r, "cannot truncate a %s", jj_type_name(in));
    size_t cut = jj_str_offset(r, s, (size_t)(length - n_end));
    if (!jj_truth(a[1])) {
        const struct jj_str space = {.p = " ", .len = 1};
        size_t blank = jj_str_rfind(r, s, &space, cut);
        if (blank != SIZE_MAX) cut = blank;
    }
    return jj_concat(r, jj_substr(r, s, 0, cut).s, end);
}

FILTER(f_indent) {
    const struct jj_str *s, *by;
    if (in.type == JJ_UNDEF) return jj_fail_undef(r, in);
    if (in.type != JJ_STR) return jj_fail(r, "cannot indent a %s", jj_type_name(in));
    s = in.s;
    if (a[0].type == JJ_STR) {
        by = a[0].s;
    } else {
        struct jj_sb spaces = {.run = r};
        jj_sb_fill(&spaces, " ", 1, jj_arg_int(r, a[0], 4));
        by = jj_sb_val(&spaces).s;
    }
    bool first = jj_truth(a[1]), blank = jj_truth(a[2]);
    struct jj_sb sb = {.run = r};
    if (first) jj_sb_str(&sb, by);
    size_t line = 0, end, next;
    for (bool begun = false; (!begun || line < s->len) && r->st == HR_OK;
         begun = true, line = next) {
        jj_line_end(r, s, line, &end, &next);
        if (begun) jj_sb_put(&sb, "\n", 1);
        if (begun && (blank || end > line)) jj_sb_str(&sb, by);
        jj_sb_sub(&sb, s, line, end);
        /* The original appends a newline first, so a last line end makes one more empty line. */
        if (next == s->len && end < next) {
            jj_sb_put(&sb, "\n", 1);
            if (blank) jj_sb_str(&sb, by);
        }
    }
    return jj_sb_val(&sb);
}

static void url_quote(struct jj_sb *sb, const struct jj_str *s, bool plus) {
    for (size_t i = 0; i < s->len && jj_work(sb->run, 1, 2 * JJ_STEP); i++) {
        unsigned char c = (unsigned char)s->p[i];
        bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c && strchr(plus ? "_.-~" : "_.-~/", c));
        char text[4];
        snprintf(text, sizeof text, "%%%02X", c);
        if (keep) {
            jj_sb_sub(sb, s, i, i + 1);
        } else if (c == ' ' && plus) {
            jj_sb_as(sb, s, i, i + 1, "+", 1);
        } else {
            jj_sb_as(sb, s, i, i + 1, text, 3);
        }
    }
}

FILTER(f_urlencode) {
    struct jj_sb sb = {.run = r};
    if (in.type == JJ_STR || !jj_is_iterable(in)) {
        url_quote(&sb, jj_soft_str(r, in), false);
        return jj_sb_val(&sb);
    }
    struct jj_view view = {.dict = in.type == JJ_DICT ? in.dict : NULL, .kind = JJ_ITEMS};
    size_t n, n_pair;
    const struct jj_val *items =
        jj_items(r, in.type == JJ_DICT ? (struct jj_val){.type = JJ_VIEW, .view = &view} : in, &n);
    for (size_t i = 0; i < n && r->st == HR_OK; i++) {
        const struct jj_val *pair = jj_items(r, items[i], &n_pair);
        if (r->st == HR_OK && n_pair != 2) return jj_fail(r, "urlencode needs pairs");
        if (r->st != HR_OK) break;
        if (i) jj_sb_put(&sb, "&", 1);
        url_quote(&sb, jj_soft_str(r, pair[0]), true);
        jj_sb_put(&sb, "=", 1);
        url_quote(&sb, jj_soft_str(r, pair[1]), true);
    }
    return jj_sb_val(&sb);
}

FILTER(f_format) {
    const struct jj_str *fmt = jj_soft_str(r, in);
    if (args->n_pos && args->n_kw)
        return jj_fail(r, "can't handle positional and keyword arguments at the same time");
    if (args->n_kw) {
        struct jj_dict *d = jj_dict(r);
        for (size_t i = 0; i < args->n_kw; i++)
            jj_dict_put(r, d, (struct jj_val){.type = JJ_STR, .s = args->kw_name[i]}, args->kw[i]);
        return jj_percent(r, fmt, (struct jj_val){.type = JJ_DICT, .dict = d});
    }
    struct jj_seq *s = jj_seq(r, args->n_pos);
    if (args->n_pos) memcpy(s->v, args->pos, args->n_pos * sizeof *s->v);
    return jj_percent(r, fmt, jj_tuple(s));
}

FILTER(f_tojson) {
    return jj_tojson(r, in, a);
}

/* --- numbers */

FILTER(f_int) {
    bool ok;
    struct jj_val v = jj_to_int(r, in, (int)jj_arg_int(r, a[1], 10), &ok);
    if (ok) return v;
    v = jj_to_float(r, in, &ok);
    if (ok && isfinite(v.f)) return jj_int_of_double(r, v.f);
    return a[0].type == JJ_ABSENT ? jj_int(0) : a[0];
}

FILTER(f_float) {
    bool ok;
    struct jj_val v = jj_to_float(r, in, &ok);
    return ok ? v : a[0].type == JJ_ABSENT ? jj_float(0) : a[0];
}

FILTER(f_abs) {
    if (in.type == JJ_UNDEF) return jj_fail_undef(r, in);
    if (!jj_is_number(in)) return jj_fail(r, "bad operand type for abs(): '%s'", jj_type_name(in));
    if (in.type == JJ_FLOAT) return jj_float(fabs(in.f));
    if (in.type == JJ_BOOL) return jj_int(in.b);
    return jj_num_compare(r, in, jj_int(0)) < 0 ? jj_negate(r, in) : in;
}

FILTER(f_round) {
    if (in.type == JJ_UNDEF) return jj_fail_undef(r, in);
    if (!jj_is_number(in))
        return jj_fail(r, "type %s doesn't define __round__ method", jj_type_name(in));
    int64_t digits = jj_arg_int(r, a[0], 0);
    const char *how = "common";
    if (a[1].type == JJ_STR && jj_str_is(a[1].s, "ceil")) how = "ceil";
    if (a[1].type == JJ_STR && jj_str_is(a[1].s, "floor")) how = "floor";
    if (a[1].type != JJ_ABSENT && *how == 'c' && how[1] == 'o' &&
        !(a[1].type == JJ_STR && jj_str_is(a[1].s, how)))
        return jj_fail(r, "method must be common, ceil or floor");
    double f = jj_num_double(r, in);
    if (in.type == JJ_FLOAT && (digits > 300 || digits < -300)) return in;
    if (how[1] != 'o' || *how == 'f') {
        double scale = pow(10, (double)digits), v = f * scale;
        if (!isfinite(v)) return jj_fail(r, "cannot convert float %g to integer", v);
        return jj_float(((*how == 'c' ? ceil(v) : floor(v)) + 0.0) / scale); /* never -0.0 */
    }
    if (in.type != JJ_FLOAT) return jj_round_int(r, in, digits);
    if (!isfinite(f)) return in;
    jj_work_float(r, f);
    char text[700]; /* the exact decimal value, rounded half to even as Python's round() */
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return jj_float_literal(text);
    }
    double scale = pow(10, (double)-digits);
    return jj_float(rint(f / scale) * scale);
}

FILTER(f_filesizeformat) {
    bool ok, binary = jj_truth(a[0]);
    struct jj_val v = jj_to_float(r, in, &ok);
    if (!ok) return jj_fail(r, "could not convert to float");
    static const char *const prefixes[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    double base = binary ? 1024 : 1000, unit = base;
    char text[400];
    jj_work_float(r, v.f);
    if (v.f == 1) return jj_cstr(r, "1 Byte");
    if (v.f < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(v.f) + 0.0); /* never -0 */
        return jj_str_copy(r, text, strlen(text));
    }
    int i = 0;
    for (; i < 7 && !(v.f < unit * base); i++) unit *= base; /* nan goes to the end */
    snprintf(text, sizeof text, "%.1f %s", v.f / unit, prefixes[binary][i]);
    return jj_str_copy(r, text, strlen(text));
}

/* --- any value */

FILTER(f_default) {
    bool use = in.type == JJ_UNDEF || (jj_truth(a[1]) && !jj_truth(in));
    return !use ? in : a[0].type == JJ_ABSENT ? jj_cstr(r, "") : a[0];
}

FILTER(f_attr) {
    const struct jj_str *name = jj_soft_str(r, a[0]);
    if (in.type == JJ_UNDEF) return jj_fail_undef(r, in);
    if (in.type == JJ_DICT && !jj_method_find(in, name)) /* attributes only, no items */
        return jj_undef_of(r, in, a[0]);
    return jj_getattr(r, in, name);
}

static const struct jj_func filters[] = {
    {"abs", f_abs, "", 0},
    {"attr", f_attr, "name", 1},
    {"capitalize", f_capitalize, "", 0},
    {"center", f_center, "width", 0},
    {"d", f_default, "default_value,boolean", 0},
    {"default", f_default, "default_value,boolean", 0},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"filesizeformat", f_filesizeformat, "binary", 0},
    {"float", f_float, "default", 0},
    {"forceescape", f_forceescape, "", 0},
    {"format", f_format, NULL, 0},
    {"indent", f_indent, "width,first,blank", 0},
    {"int", f_int, "default,base", 0},
    {"lower", f_lower, "", 0},
    {"replace", f_replace, "old,new,count", 2},
    {"round", f_round, "precision,method", 0},
    {"safe", f_safe, "", 0},
    {"string", f_string, "", 0},
    {"title", f_title, "", 0},
    {"tojson", f_tojson, "ensure_ascii,indent,separators,sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"truncate", f_truncate, "length,killwords,end,leeway", 0},
    {"upper", f_upper, "", 0},
    {"urlencode", f_urlencode, "", 0},
    {"wordcount", f_wordcount, "", 0},
};

const struct jj_func *jj_table_find(const struct jj_func *table, size_t n, const char *name,
                                    size_t len) {
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0) return &table[i];
    return NULL;
}

const struct jj_func *jj_filter_find(const char *name, size_t len) {
    const struct jj_func *f = jj_table_find(filters, sizeof filters / sizeof *filters, name, len);
    return f ? f : jj_list_filter_find(name, len);
}

bool jj_filter_known(const char *name, size_t len) {
    static const char *const refused[] = {"pprint", "random",   "striptags",
                                          "urlize", "wordwrap", "xmlattr"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strlen(refused[i]) == len && memcmp(refused[i], name, len) == 0) return true;
    return jj_filter_find(name, len) != NULL;
}

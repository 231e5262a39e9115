/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_json: JSON in and out of the template interpreter: a variable of the context to a value,
 * and the tojson filter (json.dumps with the arguments that transformers passes on).
 *
 * In: integers of any length keep their digits; what overflows a double is infinite, as in Python.
 * Strings are marked as a user's, keys too, unless the variable is trusted; the words that
 * templates build control tokens from ("role": "user", "type": "image") are not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jscan.h"
#include "text/jinja_int.h"

/* --- in */

static bool plain_word(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') || p[i] == '_'))
            return false;
    return n > 0;
}

static struct jj_val read_string(struct jj_run *r, const struct jj_json_in *in,
                                 const struct hr_jval *j, bool is_word) {
    struct hr_buf *b = in->scratch;
    hr_buf_clear(b);
    hr_jscan_str(j, b);
    char *p = jj_arena_bytes(&r->bytes, b->len);
    if (b->len) memcpy(p, b->data, b->len);
    if (in->trusted || (is_word && plain_word(p, b->len))) return jj_str_ref(r, p, b->len);
    return jj_str_user(r, p, b->len);
}

static struct jj_val read_number(struct jj_run *r, const struct hr_jval *j) {
    bool whole = true;
    for (size_t i = 0; i < j->len; i++) whole = whole && !strchr(".eE", j->p[i]);
    if (whole) {
        struct jj_val v = jj_int_literal(&r->cells, j->p, j->len, 10);
        return v.type == JJ_ABSENT ? jj_fail_limit(r, "an integer has more than 4300 digits") : v;
    }
    char *text = jj_arena_bytes(&r->bytes, j->len + 1);
    memcpy(text, j->p, j->len);
    text[j->len] = 0;
    return jj_float_literal(text);
}

static struct jj_val read_value(struct jj_run *r, const struct jj_json_in *in,
                                const struct hr_jval *j, bool is_word);

static struct jj_val read_object(struct jj_run *r, const struct jj_json_in *in,
                                 const struct hr_jval *j) {
    struct jj_dict *d = jj_dict(r);
    struct hr_jiter it = {0};
    struct hr_jval key, value;
    while (r->st == HR_OK && hr_jscan_next(j, &it, &key, &value)) {
        bool word = value.type == HR_JSTRING &&
                    (hr_jscan_str_eq(&key, "role", 4) || hr_jscan_str_eq(&key, "type", 4));
        struct jj_val k = read_string(r, in, &key, false);
        jj_dict_put(r, d, k, read_value(r, in, &value, word));
    }
    return (struct jj_val){.type = JJ_DICT, .dict = d};
}

static struct jj_val read_value(struct jj_run *r, const struct jj_json_in *in,
                                const struct hr_jval *j, bool is_word) {
    struct jj_val v = jj_none();
    switch (j->type) {
    case HR_JNULL:
        break;
    case HR_JTRUE:
        v = jj_bool(true);
        break;
    case HR_JFALSE:
        v = jj_bool(false);
        break;
    case HR_JNUMBER:
        v = read_number(r, j);
        break;
    case HR_JSTRING:
        v = read_string(r, in, j, is_word);
        break;
    case HR_JARRAY: {
        struct jj_vec vec = {0};
        struct hr_jiter it = {0};
        struct hr_jval key, value;
        while (r->st == HR_OK && hr_jscan_next(j, &it, &key, &value))
            jj_vec_push(r, &vec, read_value(r, in, &value, false));
        v = jj_vec_list(r, &vec);
        break;
    }
    case HR_JOBJECT:
        v = read_object(r, in, j);
        break;
    }
    return v;
}

struct jj_val jj_from_json(struct jj_run *r, const char *json, size_t len, bool trusted) {
    struct hr_jval root;
    struct hr_err err;
    if (hr_jscan_validate(json, len, &root, &err) != HR_OK) return jj_fail(r, "%s", err.msg);
    struct hr_buf scratch = {0};
    const struct jj_json_in in = {.trusted = trusted, .scratch = &scratch};
    struct jj_val v = read_value(r, &in, &root, false);
    hr_buf_finish(&scratch);
    return v;
}

/* --- out */

struct json_out {
    struct jj_sb *sb;
    bool ascii, sort;
    const struct jj_str *indent, *item_sep, *key_sep; /* indent NULL: on one line */
    int level;
};

static void out_string(struct json_out *o, const struct jj_str *s) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    struct jj_run *r = o->sb->run;
    jj_sb_put(o->sb, "\"", 1);
    size_t done = 0, n;
    for (size_t i = 0; i < s->len && jj_work(r, 1, JJ_CHAR); i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        bool escape = c < 0x20 || c == '"' || c == '\\' || (o->ascii && c > 0x7e);
        if (!escape) continue;
        (void)jj_step(r);
        char text[16];
        const char *hit = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        if (hit) {
            snprintf(text, sizeof text, "\\%c", to[hit - from]);
        } else if (c > 0xffff) {
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                     0xdc00 + (c & 0x3ff));
        } else {
            snprintf(text, sizeof text, "\\u%04x", c);
        }
        jj_sb_sub(o->sb, s, done, i);
        jj_sb_as(o->sb, s, i, i + n, text, strlen(text));
        done = i + n;
    }
    jj_sb_sub(o->sb, s, done, s->len);
    jj_sb_put(o->sb, "\"", 1);
}

static void out_number(struct json_out *o, struct jj_val v) {
    char text[JJ_NUM_TEXT];
    if (v.type != JJ_FLOAT) {
        jj_write_int(o->sb, v);
        return;
    }
    jj_float_repr(o->sb->run, v.f, text);
    const char *as = strcmp(text, "nan") == 0    ? "NaN"
                     : strcmp(text, "inf") == 0  ? "Infinity"
                     : strcmp(text, "-inf") == 0 ? "-Infinity"
                                                 : text;
    jj_sb_puts(o->sb, as);
}

static void newline(struct json_out *o) {
    if (!o->indent) return;
    jj_sb_put(o->sb, "\n", 1);
    for (int i = 0; i < o->level; i++) jj_sb_str(o->sb, o->indent);
}

static void out_value(struct json_out *o, struct jj_val v);

static void out_key(struct json_out *o, struct jj_val k) {
    struct jj_run *r = o->sb->run;
    if (k.type == JJ_STR) {
        out_string(o, k.s);
    } else if (k.type == JJ_NONE || jj_is_number(k)) {
        jj_sb_put(o->sb, "\"", 1);
        out_value(o, k);
        jj_sb_put(o->sb, "\"", 1);
    } else {
        (void)jj_fail(r, "keys must be str, int, float, bool or None, not %s", jj_type_name(k));
    }
}

static void out_dict(struct json_out *o, const struct jj_dict *d) {
    struct jj_run *r = o->sb->run;
    size_t *order = jj_alloc(r, d->n * sizeof *order + 1);
    for (size_t i = 0; i < d->n; i++) order[i] = i;
    if (o->sort) jj_sort(r, d->k, order, d->n, false);
    jj_sb_put(o->sb, "{", 1);
    o->level++;
    for (size_t i = 0; i < d->n && r->st == HR_OK; i++) {
        if (i) jj_sb_str(o->sb, o->item_sep);
        newline(o);
        out_key(o, d->k[order[i]]);
        jj_sb_str(o->sb, o->key_sep);
        out_value(o, d->v[order[i]]);
    }
    o->level--;
    if (d->n) newline(o);
    jj_sb_put(o->sb, "}", 1);
}

static void out_list(struct json_out *o, const struct jj_seq *s) {
    jj_sb_put(o->sb, "[", 1);
    o->level++;
    for (size_t i = 0; i < s->n && o->sb->run->st == HR_OK; i++) {
        if (i) jj_sb_str(o->sb, o->item_sep);
        newline(o);
        out_value(o, s->v[i]);
    }
    o->level--;
    if (s->n) newline(o);
    jj_sb_put(o->sb, "]", 1);
}

static void out_value(struct json_out *o, struct jj_val v) {
    struct jj_run *r = o->sb->run;
    if (!jj_enter(r)) return;
    switch (v.type) {
    case JJ_NONE:
        jj_sb_puts(o->sb, "null");
        break;
    case JJ_BOOL:
        jj_sb_puts(o->sb, v.b ? "true" : "false");
        break;
    case JJ_INT:
    case JJ_BIG:
    case JJ_FLOAT:
        out_number(o, v);
        break;
    case JJ_STR:
        out_string(o, v.s);
        break;
    case JJ_LIST:
    case JJ_TUPLE:
        out_list(o, v.seq);
        break;
    case JJ_DICT:
        out_dict(o, v.dict);
        break;
    default:
        (void)jj_fail(r, "Object of type %s is not JSON serializable", jj_type_name(v));
    }
    jj_leave(r);
}

/* a: ensure_ascii, indent, separators, sort_keys */
struct jj_val jj_tojson(struct jj_run *r, struct jj_val v, const struct jj_val *a) {
    struct jj_sb sb = {.run = r};
    struct json_out o = {.sb = &sb, .ascii = jj_truth(a[0]), .sort = jj_truth(a[3])};
    if (a[1].type == JJ_STR) {
        o.indent = a[1].s;
    } else if (a[1].type != JJ_ABSENT && a[1].type != JJ_NONE) {
        int64_t width = jj_arg_int(r, a[1], 0);
        struct jj_sb spaces = {.run = r};
        jj_sb_fill(&spaces, " ", 1, width);
        o.indent = jj_sb_val(&spaces).s;
    }
    o.item_sep = jj_cstr(r, o.indent ? "," : ", ").s;
    o.key_sep = jj_cstr(r, ": ").s;
    if (a[2].type != JJ_ABSENT && a[2].type != JJ_NONE) {
        size_t n;
        const struct jj_val *seps = jj_items(r, a[2], &n);
        if (r->st == HR_OK && (n != 2 || seps[0].type != JJ_STR || seps[1].type != JJ_STR))
            return jj_fail(r, "separators must be a pair of strings");
        if (r->st != HR_OK) return jj_undef();
        o.item_sep = seps[0].s;
        o.key_sep = seps[1].s;
    }
    out_value(&o, v);
    return jj_sb_val(&sb);
}

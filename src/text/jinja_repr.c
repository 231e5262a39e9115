/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_repr: str() and repr() of values, as Python writes them: what {{ }} prints and what a list
 * shows of its elements. */
#include <stdio.h>
#include <string.h>

#include "text/jinja_int.h"

static void repr_str(struct jj_sb *sb, const struct jj_str *s, bool is_bytes) {
    struct jj_run *r = sb->run;
    if (!jj_work(r, 2 * s->len, JJ_BYTE)) return;
    bool single = memchr(s->p, '\'', s->len) != NULL, dbl = memchr(s->p, '"', s->len) != NULL;
    char quote = single && !dbl ? '"' : '\'';
    jj_sb_put(sb, &quote, 1);
    size_t done = 0, n;
    for (size_t i = 0; i < s->len && jj_work(r, 1, s->p[i] < 0 ? JJ_CLASS : JJ_CHAR); i += n) {
        uint32_t c =
            is_bytes ? (n = 1, (unsigned char)s->p[i]) : jj_decode(s->p + i, s->p + s->len, &n);
        char text[16];
        if (c == (unsigned char)quote || c == '\\') {
            snprintf(text, sizeof text, "\\%c", (int)c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        } else if (c < 0x80 ? c >= 0x20 && c != 0x7f : !is_bytes && jj_is_printable(c)) {
            continue;
        } else {
            snprintf(text, sizeof text,
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     c);
        }
        jj_sb_sub(sb, s, done, i);
        jj_sb_as(sb, s, i, i + n, text, strlen(text));
        done = i + n;
    }
    jj_sb_sub(sb, s, done, s->len);
    jj_sb_put(sb, &quote, 1);
}

static void repr_items(struct jj_sb *sb, const struct jj_val *v, size_t n) {
    for (size_t i = 0; i < n && sb->run->st == HR_OK; i++) {
        if (i) jj_sb_puts(sb, ", ");
        jj_write_repr(sb, v[i]);
    }
}

static void repr_dict(struct jj_sb *sb, const struct jj_dict *d) {
    jj_sb_put(sb, "{", 1);
    for (size_t i = 0; i < d->n && sb->run->st == HR_OK; i++) {
        if (i) jj_sb_puts(sb, ", ");
        jj_write_repr(sb, d->k[i]);
        jj_sb_puts(sb, ": ");
        jj_write_repr(sb, d->v[i]);
    }
    jj_sb_put(sb, "}", 1);
}

static void repr_range(struct jj_sb *sb, const struct jj_range *range) {
    char text[100];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)range->start,
                     (long long)range->stop);
    snprintf(text + n, sizeof text - (size_t)n, range->step == 1 ? ")" : ", %lld)",
             (long long)range->step);
    jj_sb_puts(sb, text);
}

static void repr_object(struct jj_sb *sb, struct jj_val v) {
    if (v.type == JJ_NS) {
        jj_sb_puts(sb, "<Namespace ");
        repr_dict(sb, v.dict);
        jj_sb_puts(sb, ">");
    } else if (v.type == JJ_MACRO) {
        jj_sb_puts(sb, "<Macro ");
        jj_write_repr(sb, v.macro->node->val);
        jj_sb_puts(sb, ">");
    } else if (v.type == JJ_LOOP) {
        char text[80];
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", v.loop->i + 1, v.loop->n);
        jj_sb_puts(sb, text);
    } else { /* the original prints an address here, which nobody can rely on */
        jj_sb_puts(sb, "<");
        jj_sb_puts(sb, jj_type_name(v));
        jj_sb_puts(sb, " object>");
    }
}

static void repr_view(struct jj_sb *sb, struct jj_val v) {
    size_t n;
    const struct jj_val *items = jj_items(sb->run, v, &n);
    jj_sb_puts(sb, jj_type_name(v));
    jj_sb_puts(sb, "([");
    repr_items(sb, items, n);
    jj_sb_puts(sb, "])");
}

static void write_value(struct jj_sb *sb, struct jj_val v) {
    char text[JJ_NUM_TEXT];
    switch (v.type) {
    case JJ_ABSENT:
    case JJ_UNDEF:
        jj_sb_puts(sb, "Undefined");
        break;
    case JJ_NONE:
        jj_sb_puts(sb, "None");
        break;
    case JJ_BOOL:
        jj_sb_puts(sb, v.b ? "True" : "False");
        break;
    case JJ_INT:
    case JJ_BIG:
        jj_write_int(sb, v);
        break;
    case JJ_FLOAT:
        jj_float_repr(sb->run, v.f, text);
        jj_sb_puts(sb, text);
        break;
    case JJ_STR:
        if (v.s->safe) jj_sb_puts(sb, "Markup(");
        repr_str(sb, v.s, false);
        if (v.s->safe) jj_sb_puts(sb, ")");
        break;
    case JJ_BYTES:
        jj_sb_puts(sb, "b");
        repr_str(sb, v.s, true);
        break;
    case JJ_LIST:
        jj_sb_puts(sb, "[");
        repr_items(sb, v.seq->v, v.seq->n);
        jj_sb_puts(sb, "]");
        break;
    case JJ_TUPLE:
        jj_sb_puts(sb, "(");
        repr_items(sb, v.seq->v, v.seq->n);
        jj_sb_puts(sb, v.seq->n == 1 ? ",)" : ")");
        break;
    case JJ_DICT:
        repr_dict(sb, v.dict);
        break;
    case JJ_VIEW:
        repr_view(sb, v);
        break;
    case JJ_RANGE:
        repr_range(sb, v.range);
        break;
    default:
        repr_object(sb, v);
    }
}

void jj_write_repr(struct jj_sb *sb, struct jj_val v) {
    if (!jj_enter(sb->run)) return;
    write_value(sb, v);
    jj_leave(sb->run);
}

void jj_write_str(struct jj_sb *sb, struct jj_val v) {
    if (v.type == JJ_STR) {
        jj_sb_str(sb, v.s);
    } else if (v.type != JJ_UNDEF && v.type != JJ_ABSENT) {
        jj_write_repr(sb, v);
    }
}

struct jj_val jj_to_str(struct jj_run *r, struct jj_val v) {
    if (v.type == JJ_STR) return v;
    struct jj_sb sb = {.run = r};
    jj_write_str(&sb, v);
    return jj_sb_val(&sb);
}

const struct jj_str *jj_soft_str(struct jj_run *r, struct jj_val v) {
    return jj_to_str(r, v).s;
}

const struct jj_str *jj_arg_str(struct jj_run *r, struct jj_val v, const char *what) {
    if (v.type == JJ_STR) return v.s;
    (void)jj_fail(r, "%s: expected str, got %s", what, jj_type_name(v));
    return jj_cstr(r, "").s;
}

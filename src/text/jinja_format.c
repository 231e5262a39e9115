/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_format: the two formatting languages of Python strings: "%5.2f" % x and "{:>5}".format(x).
 *
 * Both come down to one field: a sign or prefix, digits or text, and padding. Text that goes into a
 * field keeps its marks. Conversions that need a locale (n) or complex numbers are refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_int.h"

struct spec {
    const char *fill;
    size_t n_fill;
    char align; /* < > ^ =, 0: the type's own */
    char sign;  /* + - space, 0: not given */
    bool alt;
    bool zero;                /* zeros between sign and digits, unless an alignment was given */
    bool given;               /* "{:...}" had something behind the colon */
    char group;               /* , _ or 0 */
    int64_t width, precision; /* -1: not given */
    char type;                /* 0: not given */
};

static const struct spec plain = {.fill = " ", .n_fill = 1, .width = -1, .precision = -1};

/* Digits beyond any use would only fill memory. */
#define WIDTH_MAX     1000000
#define PRECISION_MAX 1000

/* --- one field */

/* s, after a sign or prefix of `head` bytes, padded to the width. */
static void put_field(struct jj_sb *sb, const struct spec *f, const struct jj_str *s, size_t head,
                      char align) {
    int64_t more = f->width - (int64_t)jj_str_n_chars(sb->run, s);
    if (f->align) align = f->align;
    int64_t left = align == '>' ? more : align == '^' ? more / 2 : 0;
    if (align == '=') {
        jj_sb_sub(sb, s, 0, head);
        jj_sb_fill(sb, f->fill, f->n_fill, more);
        jj_sb_sub(sb, s, head, s->len);
        return;
    }
    jj_sb_fill(sb, f->fill, f->n_fill, left);
    jj_sb_str(sb, s);
    jj_sb_fill(sb, f->fill, f->n_fill, more - left);
}

static void put_text(struct jj_sb *sb, const struct spec *f, const struct jj_str *s) {
    struct jj_val v = {.type = JJ_STR, .s = s};
    if (f->precision >= 0 && (size_t)f->precision < s->len)
        v = jj_substr(sb->run, s, 0, jj_str_offset(sb->run, s, (size_t)f->precision));
    put_field(sb, f, v.s, 0, '<');
}

/* The digits of a whole part in groups, with zeros in front of them up to min_width characters; as
 * in Python a separator is never the first of these. */
static void group_digits(struct jj_sb *out, const char *digits, size_t n, char sep, size_t per,
                         int64_t min_width) {
    size_t zeros = 0, seps = (n - 1) / per;
    while ((int64_t)(n + zeros + seps) < min_width) seps = (n + ++zeros - 1) / per;
    for (size_t i = 0; i < n + zeros && out->run->st == HR_OK; i++) {
        if (i && (n + zeros - i) % per == 0) jj_sb_put(out, &sep, 1);
        jj_sb_put(out, i < zeros ? "0" : digits + i - zeros, 1);
    }
}

/* A number: `digits` without sign; prefix "0x" and the like. */
static void put_number(struct jj_sb *sb, const struct spec *f, bool neg, const char *prefix,
                       const char *digits) {
    struct jj_sb text = {.run = sb->run};
    struct spec padded = *f;
    if (f->zero && !f->align) {
        padded.align = '=';
        padded.fill = "0";
        padded.n_fill = 1;
    }
    char sign = neg ? '-' : f->sign == '+' || f->sign == ' ' ? f->sign : 0;
    if (sign) jj_sb_put(&text, &sign, 1);
    if (f->alt) jj_sb_puts(&text, prefix);
    size_t head = text.len, len = strlen(digits),
           whole = strspn(digits, *prefix ? "0123456789abcdefABCDEF" : "0123456789");
    if (f->group && whole) {
        bool zeros = padded.align == '=' && padded.n_fill == 1 && *padded.fill == '0';
        group_digits(&text, digits, whole, f->group, *prefix ? 4 : 3,
                     zeros ? f->width - (int64_t)(head + len - whole) : 0);
        digits += whole;
    }
    jj_sb_puts(&text, digits);
    put_field(sb, &padded, jj_sb_val(&text).s, head, '>');
}

static const char *decimal_text(struct jj_run *r, struct jj_val v) {
    struct jj_sb sb = {.run = r};
    jj_write_int(&sb, v);
    return jj_sb_cstr(&sb);
}

/* At least as many digits as the precision says: "%.3d". */
static void put_digits(struct jj_sb *sb, const struct spec *f, bool neg, const char *prefix,
                       const char *digits) {
    struct jj_sb text = {.run = sb->run};
    jj_sb_fill(&text, "0", 1, f->precision - (int64_t)strlen(digits));
    jj_sb_puts(&text, digits);
    put_number(sb, f, neg, prefix, jj_sb_cstr(&text));
}

static void put_int(struct jj_sb *sb, const struct spec *f, struct jj_val v) {
    struct jj_run *r = sb->run;
    char text[72];
    if (f->type == 'x' || f->type == 'X' || f->type == 'o' || f->type == 'b') {
        if (v.type == JJ_BIG) {
            (void)jj_fail(r, "integers beyond 64 bits print in decimal only");
            return;
        }
        int64_t i = v.type == JJ_BOOL ? v.b : v.i;
        uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base = f->type == 'o'   ? 8
                                                                   : f->type == 'b' ? 2
                                                                                    : 16;
        char *p = text + sizeof text - 1;
        *p = 0;
        do *--p = (f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        while (u /= base);
        put_digits(sb, f, i < 0,
                   f->type == 'x'   ? "0x"
                   : f->type == 'X' ? "0X"
                   : f->type == 'o' ? "0o"
                                    : "0b",
                   p);
        return;
    }
    const char *digits = decimal_text(r, v);
    bool neg = *digits == '-';
    put_digits(sb, f, neg, "", digits + neg);
}

/* repr(x) with as many digits as the precision says; with # the point stays. */
static void repr_digits(struct jj_run *r, const struct spec *f, double x, char text[1500]) {
    if (f->precision < 0) {
        jj_float_repr(r, x, text);
    } else {
        int precision = f->precision > 1 ? (int)f->precision : 1;
        snprintf(text, 1500, "%.*e", precision - 1, x);
        /* An exponent from one less than %g's on, so that there is room for ".0". */
        bool edge = atoi(strchr(text, 'e') + 1) == precision - 1;
        if (!edge) snprintf(text, 1500, f->alt ? "%#.*g" : "%.*g", precision, x);
        char *e = strchr(text, 'e');
        if (edge && !f->alt && precision > 1) { /* zeros at the end go, and the point with them */
            char *end = e;
            while (end[-1] == '0') end--;
            if (end[-1] == '.') end--;
            memmove(end, e, strlen(e) + 1);
        }
        if (!strpbrk(text, ".e")) strcat(text, ".0");
    }
    char *e = strchr(text, 'e');
    if (!f->alt || !e || strchr(text, '.')) return;
    memmove(e + 1, e, strlen(e) + 1);
    *e = '.';
}

static void put_float(struct jj_sb *sb, const struct spec *f, double x) {
    char text[1500], fmt[16];
    bool neg = signbit(x) && !isnan(x), upper = f->type >= 'A' && f->type <= 'Z';
    struct spec no_prefix = *f;
    no_prefix.alt = false;
    jj_work_float(sb->run, x);
    x = fabs(x);
    if (!isfinite(x)) {
        snprintf(text, sizeof text, "%s%s",
                 isnan(x) ? (upper ? "NAN" : "nan")
                 : upper  ? "INF"
                          : "inf",
                 f->type == '%' ? "%" : "");
    } else if (!f->type) {
        struct spec bounded = *f;
        if (f->precision > PRECISION_MAX) bounded.precision = PRECISION_MAX;
        repr_digits(sb->run, &bounded, x, text);
    } else {
        int precision = f->precision < 0
                            ? 6
                            : (int)(f->precision < PRECISION_MAX ? f->precision : PRECISION_MAX);
        bool percent = f->type == '%';
        snprintf(fmt, sizeof fmt, "%%%s.*%c", f->alt ? "#" : "", percent ? 'f' : f->type);
        snprintf(text, sizeof text, fmt, precision, percent ? x * 100 : x);
        if (percent) strcat(text, "%");
    }
    put_number(sb, &no_prefix, neg, "", text);
}

static void put_char(struct jj_sb *sb, const struct spec *f, struct jj_val v) { /* a number's */
    char text[4];
    int64_t c = jj_arg_int(sb->run, v, 0);
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        (void)jj_fail(sb->run, "%%c arg not in range(0x110000)");
        return;
    }
    size_t n = jj_encode((uint32_t)c, text);
    put_field(sb, f, jj_str_copy(sb->run, text, n).s, 0, '>');
}

static bool check_width(struct jj_run *r, const struct spec *f) {
    if (f->width <= WIDTH_MAX && f->precision <= WIDTH_MAX) return true;
    (void)jj_fail_limit(r, "a format is wider than %d characters", WIDTH_MAX);
    return false;
}

/* --- "%..." % args */

struct percent {
    struct jj_run *r;
    struct jj_val args;
    size_t used;
};

static struct jj_val next_arg(struct percent *p) {
    bool tuple = p->args.type == JJ_TUPLE;
    size_t n = tuple ? p->args.seq->n : 1;
    if (p->used >= n) return jj_fail(p->r, "not enough arguments for format string");
    return tuple ? p->args.seq->v[p->used++] : (p->used++, p->args);
}

static const struct jj_str *repr_of(struct jj_run *r, struct jj_val v) {
    struct jj_sb sb = {.run = r};
    jj_write_repr(&sb, v);
    return jj_sb_val(&sb).s;
}

/* ascii(v): its repr with what is not ASCII escaped. */
static const struct jj_str *ascii_of(struct jj_run *r, struct jj_val v) {
    const struct jj_str *s = repr_of(r, v);
    struct jj_sb sb = {.run = r};
    for (size_t i = 0, n; i < s->len && jj_work(r, 1, JJ_CHAR); i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        char text[16];
        snprintf(text, sizeof text,
                 c < 0x100     ? "\\x%02x"
                 : c < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
                 c);
        if (c < 0x80) {
            jj_sb_sub(&sb, s, i, i + n);
        } else {
            jj_sb_as(&sb, s, i, i + n, text, strlen(text));
        }
    }
    return jj_sb_val(&sb).s;
}

static void percent_value(struct jj_sb *sb, struct spec *f, struct jj_val v) {
    struct jj_run *r = sb->run;
    switch (f->type) {
    case 's':
        put_text(sb, f, jj_soft_str(r, v));
        return;
    case 'r':
        put_text(sb, f, repr_of(r, v));
        return;
    case 'a':
        put_text(sb, f, ascii_of(r, v));
        return;
    case 'c':
        if (v.type == JJ_STR && jj_str_n_chars(r, v.s) == 1) {
            put_field(sb, f, v.s, 0, '<');
        } else {
            put_char(sb, f, v);
        }
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (v.type == JJ_FLOAT && isfinite(v.f) && strchr("diu", f->type))
            v = jj_int_of_double(r, v.f);
        if (!jj_is_number(v) || v.type == JJ_FLOAT) {
            (void)jj_fail(r, "%%%c format: a number is required, not %s", f->type, jj_type_name(v));
            return;
        }
        put_int(sb, f, v);
        return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jj_is_number(v)) {
            (void)jj_fail(r, "must be real number, not %s", jj_type_name(v));
            return;
        }
        put_float(sb, f, jj_num_double(r, v));
        return;
    default:
        (void)jj_fail(r, "unsupported format character '%c'", f->type);
    }
}

static int64_t percent_number(struct percent *p, const struct jj_str *fmt, size_t *i) {
    if (*i < fmt->len && fmt->p[*i] == '*') {
        (*i)++;
        return jj_arg_int(p->r, next_arg(p), 0);
    }
    int64_t n = 0;
    while (*i < fmt->len && fmt->p[*i] >= '0' && fmt->p[*i] <= '9') {
        n = n * 10 + (fmt->p[(*i)++] - '0');
        if (n > WIDTH_MAX) n = WIDTH_MAX + 1;
    }
    return n;
}

/* One conversion; *i is behind the percent sign. */
static void percent_one(struct percent *p, struct jj_sb *sb, const struct jj_str *fmt, size_t *i) {
    if (!jj_work(p->r, 2, JJ_STEP)) return;
    if (*i < fmt->len && fmt->p[*i] == '%') { /* with nothing between the two */
        jj_sb_put(sb, "%", 1);
        (*i)++;
        return;
    }
    struct spec f = plain;
    struct jj_val keyed = {.type = JJ_ABSENT};
    if (*i < fmt->len && fmt->p[*i] == '(') {
        const char *end = memchr(fmt->p + *i, ')', fmt->len - *i);
        if (!end || p->args.type != JJ_DICT) {
            (void)jj_fail(p->r, end ? "format requires a mapping" : "incomplete format key");
            return;
        }
        struct jj_val key = jj_substr(p->r, fmt, *i + 1, (size_t)(end - fmt->p));
        if (!jj_dict_get(p->r, p->args.dict, key, &keyed)) {
            (void)jj_fail(p->r, "the format's key is not in the mapping");
            return;
        }
        *i = (size_t)(end - fmt->p) + 1;
    }
    f.align = '>';
    for (; *i < fmt->len && fmt->p[*i] && strchr("-+ #0", fmt->p[*i]); (*i)++) {
        char c = fmt->p[*i];
        if (c == '-') f.align = '<';
        if (c == '+' || (c == ' ' && f.sign != '+')) f.sign = c;
        f.alt |= c == '#';
        f.zero |= c == '0';
    }
    f.width = percent_number(p, fmt, i);
    if (f.width < 0) {
        f.align = '<';
        f.width = -f.width;
    }
    if (*i < fmt->len && fmt->p[*i] == '.') {
        (*i)++;
        f.precision = percent_number(p, fmt, i);
    }
    while (*i < fmt->len && fmt->p[*i] && strchr("hlL", fmt->p[*i])) (*i)++;
    if (*i >= fmt->len) {
        (void)jj_fail(p->r, "incomplete format");
        return;
    }
    f.type = fmt->p[(*i)++];
    if (f.zero && f.align == '>' && !strchr("srca", f.type))
        f.align = 0; /* zeros go behind the sign */
    struct jj_val v = keyed.type == JJ_ABSENT ? next_arg(p) : keyed;
    if (check_width(p->r, &f) && p->r->st == HR_OK) percent_value(sb, &f, v);
}

struct jj_val jj_percent(struct jj_run *r, const struct jj_str *fmt, struct jj_val args) {
    struct percent p = {.r = r, .args = args};
    struct jj_sb sb = {.run = r};
    size_t done = 0;
    while (r->st == HR_OK) {
        const char *hit = memchr(fmt->p + done, '%', fmt->len - done);
        size_t at = hit ? (size_t)(hit - fmt->p) : fmt->len;
        jj_sb_sub(&sb, fmt, done, at);
        if (!hit) break;
        done = at + 1;
        percent_one(&p, &sb, fmt, &done);
    }
    bool takes_less = args.type == JJ_TUPLE
                          ? p.used < args.seq->n
                          : p.used == 0 && args.type != JJ_DICT && args.type != JJ_UNDEF &&
                                args.type != JJ_LIST && args.type != JJ_RANGE;
    if (r->st == HR_OK && takes_less)
        return jj_fail(r, "not all arguments converted during string formatting");
    return jj_sb_val(&sb);
}

/* --- "{...}".format(args) */

struct format {
    struct jj_run *r;
    const struct jj_args *args;
    int64_t next; /* automatic numbering; -1 once a number was written */
};

static struct jj_val numbered(struct format *f, int64_t i) {
    if (i < (int64_t)f->args->n_pos) return f->args->pos[i];
    return jj_fail(f->r, "Replacement index %lld out of range for positional args tuple",
                   (long long)i);
}

static bool all_digits(const struct jj_str *s, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < s->len; i++) {
        if (s->p[i] < '0' || s->p[i] > '9' || i > 9) return false;
        *out = *out * 10 + (s->p[i] - '0');
    }
    return s->len > 0;
}

static struct jj_val first_part(struct format *f, const struct jj_str *name) {
    int64_t i;
    if (name->len == 0 || all_digits(name, &i)) {
        if ((name->len == 0 && f->next < 0) || (name->len && f->next > 0))
            return jj_fail(f->r,
                           "cannot mix manual field specification and automatic field numbering");
        if (name->len == 0) return numbered(f, f->next++);
        f->next = -1;
        return numbered(f, i);
    }
    for (size_t k = 0; k < f->args->n_kw && jj_work(f->r, 1, JJ_ITEM); k++)
        if (jj_str_eq(f->r, f->args->kw_name[k], name)) return f->args->kw[k];
    return jj_fail(f->r, "format: there is no argument '%.*s'",
                   (int)(name->len < 100 ? name->len : 100), name->p);
}

/* "0.a[b]" */
static struct jj_val lookup(struct format *f, const struct jj_str *path) {
    size_t i = 0;
    while (i < path->len && path->p[i] != '.' && path->p[i] != '[') i++;
    struct jj_val v = first_part(f, jj_substr(f->r, path, 0, i).s);
    while (i < path->len && f->r->st == HR_OK) {
        bool index = path->p[i] == '[';
        size_t from = ++i;
        while (i < path->len &&
               (index ? path->p[i] != ']' : path->p[i] != '.' && path->p[i] != '['))
            i++;
        struct jj_val key = jj_substr(f->r, path, from, i);
        int64_t number;
        if (index) i++;
        if (!index) {
            v = jj_getattr(f->r, v, key.s);
        } else {
            v = jj_getitem(f->r, v, all_digits(key.s, &number) ? jj_int(number) : key);
        }
    }
    return v;
}

static bool parse_spec(struct jj_run *r, const struct jj_str *s, struct spec *f) {
    *f = plain;
    size_t i = 0, n;
    bool fill_given = false;
    if (s->len == 0) return true;
    f->given = true;
    (void)jj_decode(s->p, s->p + s->len, &n);
    if (n < s->len && s->p[n] && strchr("<>^=", s->p[n])) {
        f->fill = s->p;
        f->n_fill = n;
        f->align = s->p[n];
        fill_given = true;
        i = n + 1;
    } else if (strchr("<>^=", s->p[0]) && s->p[0]) {
        f->align = s->p[0];
        i = 1;
    }
    if (i < s->len && s->p[i] && strchr("+- ", s->p[i])) f->sign = s->p[i++];
    if (i < s->len && s->p[i] == '#') {
        f->alt = true;
        i++;
    }
    if (!fill_given && i < s->len && s->p[i] == '0') {
        f->fill = "0";
        f->zero = !f->align;
        i++;
    }
    struct percent none = {.r = r};
    size_t start = i;
    if (i < s->len && s->p[i] != '*') f->width = percent_number(&none, s, &i);
    if (i == start) f->width = -1;
    if (i < s->len && (s->p[i] == ',' || s->p[i] == '_')) f->group = s->p[i++];
    if (i < s->len && s->p[i] == '.') {
        start = ++i;
        if (i < s->len && s->p[i] != '*') f->precision = percent_number(&none, s, &i);
        if (i == start) return jj_fail(r, "Format specifier missing precision"), false;
    }
    if (i < s->len) f->type = s->p[i++];
    if (i < s->len) return jj_fail(r, "Invalid format specifier"), false;
    return check_width(r, f);
}

/* What a kind of value does not take is refused, as in Python. */
static bool check_spec(struct jj_run *r, const struct spec *f, struct jj_val v) {
    bool number = jj_is_number(v), whole = number && v.type != JJ_FLOAT,
         as_float = number && f->type && strchr("eEfFgG%", f->type);
    const char *ungrouped = f->group == '_' ? "c" : "cxXob";
    const char *types = whole ? "dxXobceEfFgG%" : number ? "eEfFgG%" : "s";
    if (v.type != JJ_STR && !number) {
        (void)jj_fail(r, "unsupported format string passed to %s.__format__", jj_type_name(v));
    } else if (f->type && !strchr(types, f->type)) {
        (void)jj_fail(r, "Unknown format code '%c' for object of type '%s'", f->type,
                      jj_type_name(v));
    } else if (!number && (f->sign || f->alt || f->align == '=')) {
        (void)jj_fail(r, "sign, # or = not allowed in string format specifier");
    } else if (f->group && (!number || (f->type && strchr(ungrouped, f->type)))) {
        (void)jj_fail(r, "Cannot specify '%c' with '%c'.", f->group, f->type ? f->type : 's');
    } else if (whole && !as_float && f->precision >= 0) {
        (void)jj_fail(r, "Precision not allowed in integer format specifier");
    } else if (f->type == 'c' && (f->sign || f->alt)) {
        (void)jj_fail(r, "sign or # not allowed with integer format specifier 'c'");
    } else if (as_float && v.type == JJ_BIG && isinf(jj_num_double(r, v))) {
        (void)jj_fail(r, "int too large to convert to float");
    }
    return r->st == HR_OK;
}

static void put_formatted(struct jj_sb *sb, const struct spec *f, struct jj_val v) {
    struct jj_run *r = sb->run;
    if (!f->given) {
        jj_sb_str(sb, jj_soft_str(r, v));
    } else if (!check_spec(r, f, v)) {
        return;
    } else if (v.type == JJ_STR) {
        put_text(sb, f, v.s);
    } else if (f->type == 'c') {
        put_char(sb, f, v);
    } else if (v.type == JJ_FLOAT || (f->type && strchr("eEfFgG%", f->type))) {
        put_float(sb, f, jj_num_double(r, v));
    } else {
        put_int(sb, f, v);
    }
}

static struct jj_val format_with(struct format *f, const struct jj_str *s);

/* "{field!r:spec}" between braces; a spec may hold fields of its own, one level deep. */
static void format_field(struct format *f, struct jj_sb *sb, const struct jj_str *s) {
    struct jj_run *r = f->r;
    if (!jj_work(r, 4 * JJ_STEP + s->len, JJ_BYTE)) return;
    size_t name = 0;
    while (name < s->len && s->p[name] != '!' && s->p[name] != ':') {
        if (s->p[name] == '[')
            while (name < s->len && s->p[name] != ']') name++;
        if (name < s->len) name++;
    }
    struct jj_val v = lookup(f, jj_substr(r, s, 0, name).s);
    if (name + 1 < s->len && s->p[name] == '!') {
        char how = s->p[name + 1];
        if (how != 'r' && how != 's' && how != 'a')
            (void)jj_fail(r, "Unknown conversion specifier '%c'", how);
        v = how == 's' ? jj_to_str(r, v)
                       : (struct jj_val){.type = JJ_STR,
                                         .s = how == 'a' ? ascii_of(r, v) : repr_of(r, v)};
        name += 2;
    }
    if (r->st != HR_OK) return;
    struct jj_str spec_text = {.p = "", .len = 0};
    const struct jj_str *spec = &spec_text;
    if (name < s->len && s->p[name] == ':') spec = jj_substr(r, s, name + 1, s->len).s;
    if (memchr(spec->p, '{', spec->len)) {
        if (!jj_enter(r)) return;
        spec = jj_to_str(r, format_with(f, spec)).s;
        jj_leave(r);
    }
    struct spec parsed;
    if (r->st == HR_OK && parse_spec(r, spec, &parsed)) put_formatted(sb, &parsed, v);
}

static struct jj_val format_with(struct format *f, const struct jj_str *s) {
    struct jj_sb sb = {.run = f->r};
    size_t i = 0;
    while (i < s->len && f->r->st == HR_OK) {
        size_t n = 0;
        while (i + n < s->len && s->p[i + n] != '{' && s->p[i + n] != '}') n++;
        jj_sb_sub(&sb, s, i, i + n);
        i += n;
        if (i == s->len) break;
        if (i + 1 < s->len && s->p[i + 1] == s->p[i]) {
            jj_sb_sub(&sb, s, i, i + 1);
            i += 2;
            continue;
        }
        if (s->p[i] == '}') return jj_fail(f->r, "Single '}' encountered in format string");
        size_t from = ++i;
        int open = 1;
        for (; i < s->len && open; i++) open += s->p[i] == '{' ? 1 : s->p[i] == '}' ? -1 : 0;
        if (open) return jj_fail(f->r, "expected '}' before end of string");
        format_field(f, &sb, jj_substr(f->r, s, from, i - 1).s);
    }
    return jj_sb_val(&sb);
}

struct jj_val jj_format(struct jj_run *r, const struct jj_str *fmt, const struct jj_args *args) {
    struct format f = {.r = r, .args = args};
    return format_with(&f, fmt);
}

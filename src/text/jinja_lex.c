/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_lex: template source to tokens, with the white-space rules of trim_blocks and
 * lstrip_blocks.
 *
 * The rules are those of Jinja2's lexer.py, in the order of its regular expressions:
 *   - line ends become \n; one \n at the very end is dropped;
 *   - `{%`, `{#` (not `{{`) take the blanks before them on their line, when nothing else stands
 * there and no `+` follows; a `-` takes all white space before the tag;
 *   - `%}` and `#}` take one \n after them unless a `+` stands before them; `-` takes all white
 * space;
 *   - inside brackets an end tag is not an end tag. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_int.h"

struct lexer {
    struct jj_arena *arena;
    struct jj_tokens *out;
    const char *s;
    size_t n, pos;
    int line;
    size_t line_at; /* where `line` was counted up to */
    bool line_starting;
    char brackets[256]; /* open ones, what closes them */
    int n_brackets;
    struct hr_err *err;
};

void jj_tokens_finish(struct jj_tokens *t) {
    free(t->v);
    free(t->source);
    *t = (struct jj_tokens){0};
}

enum hr_status jj_syntax_error(const struct jj_tokens *t, size_t at, struct hr_err *err,
                               const char *fmt, ...) {
    char msg[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    int line = 1, column = 1;
    for (size_t i = 0; i < at && i < t->len; i++) {
        if (t->source[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)t->source[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return hr_err_set(err, HR_ERR_FORMAT, "line %d, column %d: %s", line, column, msg);
}

static void push(struct lexer *l, enum jj_tok_type type, size_t at, const char *p, size_t len,
                 int op) {
    struct jj_tokens *t = l->out;
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 256;
        t->v = hr_xrealloc(t->v, t->cap * sizeof *t->v);
    }
    for (; l->line_at < at; l->line_at++)
        if (l->s[l->line_at] == '\n') l->line++;
    t->v[t->n++] =
        (struct jj_tok){.type = type, .line = l->line, .op = op, .at = at, .p = p, .len = len};
}

static size_t skip_space(const struct lexer *l, size_t i) {
    while (i < l->n) {
        size_t n;
        if (!jj_is_space(jj_decode(l->s + i, l->s + l->n, &n))) break;
        i += n;
    }
    return i;
}

static size_t rstrip(const struct lexer *l, size_t from, size_t to) {
    while (to > from) {
        size_t k = to - 1, n;
        while (k > from && ((unsigned char)l->s[k] & 0xc0) == 0x80) k--;
        if (!jj_is_space(jj_decode(l->s + k, l->s + to, &n))) break;
        to = k;
    }
    return to;
}

static bool at(const struct lexer *l, size_t i, const char *what) {
    size_t n = strlen(what);
    return l->n - i >= n && i <= l->n && memcmp(l->s + i, what, n) == 0;
}

/* The text from `from` to the tag at `to`, cut as the tag's sign says. */
static void data(struct lexer *l, size_t from, size_t to, char sign, bool is_variable) {
    size_t end = to;
    if (sign == '-') {
        end = rstrip(l, from, to);
    } else if (sign != '+' && !is_variable) {
        size_t bol = to;
        while (bol > from && l->s[bol - 1] != '\n') bol--;
        if ((bol > from || l->line_starting) && skip_space(l, bol) >= to) end = bol;
    }
    if (end > from) push(l, JJT_DATA, from, l->s + from, end - from, 0);
}

/* The end tag `%}` / `#}` at l->pos (its sign included): where the text goes on. 0: no end tag. */
static size_t block_end(const struct lexer *l, size_t i, const char *end_tag) {
    if (at(l, i, "+") && at(l, i + 1, end_tag)) return i + 3;
    if (at(l, i, "-") && at(l, i + 1, end_tag)) return skip_space(l, i + 3);
    if (!at(l, i, end_tag)) return 0;
    return i + 2 + (at(l, i + 2, "\n") ? 1 : 0);
}

static void moved_to(struct lexer *l, size_t pos) {
    l->line_starting = pos > 0 && l->s[pos - 1] == '\n';
    l->pos = pos;
}

static enum hr_status comment(struct lexer *l, size_t tag) {
    for (size_t i = l->pos; i < l->n; i++) {
        size_t end = block_end(l, i, "#}");
        if (!end) continue;
        moved_to(l, end);
        return HR_OK;
    }
    return jj_syntax_error(l->out, tag, l->err, "Missing end of comment tag");
}

/* `{% raw %}` whose tag opens at `tag`: returns the offset behind it, 0 when it is another tag. */
static size_t raw_begin(const struct lexer *l, size_t tag) {
    size_t i = tag + 2;
    if (at(l, i, "-") || at(l, i, "+")) i++;
    i = skip_space(l, i);
    if (!at(l, i, "raw")) return 0;
    i = skip_space(l, i + 3);
    if (at(l, i, "-%}")) return skip_space(l, i + 3);
    return at(l, i, "%}") ? i + 2 : 0;
}

static enum hr_status raw_body(struct lexer *l, size_t tag) {
    for (size_t i = l->pos; i + 1 < l->n; i++) {
        if (!at(l, i, "{%")) continue;
        size_t j = i + 2;
        char sign = at(l, j, "-") || at(l, j, "+") ? l->s[j++] : 0;
        j = skip_space(l, j);
        if (!at(l, j, "endraw")) continue;
        size_t end = block_end(l, skip_space(l, j + 6), "%}");
        if (!end) continue;
        data(l, l->pos, i, sign, false);
        moved_to(l, end);
        return HR_OK;
    }
    return jj_syntax_error(l->out, tag, l->err, "Missing end of raw directive");
}

static bool is_name_start(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}

static bool is_dec(char c) {
    return c >= '0' && c <= '9';
}

/* digits with single underscores between them; the offset behind, or `i` when there is none */
static size_t digits(const struct lexer *l, size_t i) {
    size_t start = i;
    while (i < l->n && (is_dec(l->s[i]) || (l->s[i] == '_' && i > start && i + 1 < l->n &&
                                            is_dec(l->s[i + 1]) && is_dec(l->s[i - 1]))))
        i++;
    return i;
}

static int digit_value(char c) {
    return is_dec(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
}

static void push_number(struct lexer *l, enum jj_tok_type type, size_t from, size_t to) {
    char *p = jj_arena_bytes(l->arena, to - from + 1);
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        if (l->s[i] != '_') p[n++] = l->s[i];
    p[n] = 0;
    push(l, type, from, p, n, 0);
    l->pos = to;
}

static bool number(struct lexer *l) {
    size_t i = l->pos, end = digits(l, i);
    if (end == i) return false;
    bool after_dot = i > 0 && l->s[i - 1] == '.';
    size_t e = end;
    bool is_float = false;
    if (!after_dot && at(l, e, ".") && digits(l, e + 1) > e + 1) {
        e = digits(l, e + 1);
        is_float = true;
    }
    if (!after_dot && e < l->n && (l->s[e] | 32) == 'e') {
        size_t x = e + 1;
        if (x < l->n && (l->s[x] == '+' || l->s[x] == '-')) x++;
        if (digits(l, x) > x) {
            e = digits(l, x);
            is_float = true;
        }
    }
    if (is_float) {
        push_number(l, JJT_FLOAT, i, e);
        return true;
    }
    int base = at(l, i, "0x") || at(l, i, "0X")   ? 16
               : at(l, i, "0o") || at(l, i, "0O") ? 8
               : at(l, i, "0b") || at(l, i, "0B") ? 2
                                                  : 10;
    if (base != 10) {
        size_t x = i + 2;
        while (x < l->n && (digit_value(l->s[x]) < base ||
                            (l->s[x] == '_' && x + 1 < l->n && digit_value(l->s[x + 1]) < base)))
            x++;
        if (x > i + 2) {
            push_number(l, JJT_INT, i, x);
            return true;
        }
    }
    /* "007" is 0, 0 and 7 to Jinja2, which then fails; a zero stands alone here too. */
    if (l->s[i] == '0') {
        size_t z = i + 1;
        while (z < end && (l->s[z] == '0' || l->s[z] == '_')) z++;
        end = z;
    }
    push_number(l, JJT_INT, i, end);
    return true;
}

static size_t hex_escape(const struct lexer *l, size_t i, size_t end, int n, uint32_t *c) {
    *c = 0;
    for (int k = 0; k < n; k++) {
        if (i + (size_t)k >= end || digit_value(l->s[i + (size_t)k]) > 15) return 0;
        *c = *c * 16 + (uint32_t)digit_value(l->s[i + (size_t)k]);
    }
    return (size_t)n;
}

/* One escape; `i` is behind the backslash. Writes its bytes to p; false when it is malformed. */
static bool unescape(const struct lexer *l, size_t *i, size_t end, char *p, size_t *n) {
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    char e = l->s[*i];
    const char *simple = strchr(from, e);
    uint32_t c = 0;
    if (e && simple) {
        p[(*n)++] = to[simple - from];
        *i += 1;
        return true;
    }
    if (e == '\n') { /* a line that goes on */
        *i += 1;
        return true;
    }
    if (e >= '0' && e <= '7') {
        int k = 0;
        for (; k < 3 && *i < end && l->s[*i] >= '0' && l->s[*i] <= '7'; k++, (*i)++)
            c = c * 8 + (uint32_t)(l->s[*i] - '0');
    } else if (e == 'x' || e == 'u' || e == 'U') {
        size_t used = hex_escape(l, *i + 1, end, e == 'x' ? 2 : e == 'u' ? 4 : 8, &c);
        if (!used || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return false;
        *i += 1 + used;
    } else if (e == 'N') {
        return false;
    } else { /* not an escape: both characters stay */
        p[(*n)++] = '\\';
        return true;
    }
    *n += jj_encode(c, p + *n);
    return true;
}

static enum hr_status string(struct lexer *l) {
    size_t start = l->pos + 1, end = start;
    char quote = l->s[l->pos];
    while (end < l->n && l->s[end] != quote) end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->n)
        return jj_syntax_error(l->out, l->pos, l->err,
                               "unexpected char '%c': the string has no end", quote);
    char *p = jj_arena_bytes(l->arena, end - start + 4);
    size_t n = 0;
    for (size_t i = start; i < end;) {
        if (l->s[i] != '\\') {
            p[n++] = l->s[i++];
            continue;
        }
        size_t escape = i++;
        if (!unescape(l, &i, end, p, &n))
            return jj_syntax_error(l->out, escape, l->err, "malformed or unsupported \\ escape");
    }
    push(l, JJT_STRING, l->pos, p, n, 0);
    l->pos = end + 1;
    return HR_OK;
}

static enum hr_status operator(struct lexer *l) {
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="}; char c = l->s[l->pos];
    int op = 0; for (size_t k = 0; k < sizeof two / sizeof *two; k++) if (at(l, l->pos, two[k]))
                    op = JJ_OP2(two[k][0], two[k][1]);
    if (!op && c && strchr("+-/*%~[](){}><=.:|,;", c)) op = c;
    if (!op) return jj_syntax_error(l->out, l->pos, l->err, "unexpected char '%c'", c);
    if (op == '{' || op == '(' ||
        op == '['){if (l->n_brackets == (int)sizeof l->brackets) return jj_syntax_error(
                       l->out, l->pos, l->err, "more than %zu open brackets", sizeof l->brackets);
                   l->brackets[l->n_brackets++] = op == '{'   ? '}'
                                                  : op == '(' ? ')'
                                                              : ']';}
else if (op == '}' || op == ')' || op == ']') {
    if (!l->n_brackets) return jj_syntax_error(l->out, l->pos, l->err, "unexpected '%c'", c);
    char expected = l->brackets[--l->n_brackets];
    if (expected != c)
        return jj_syntax_error(l->out, l->pos, l->err, "unexpected '%c', expected '%c'", c,
                               expected);
}
push(l, JJT_OP, l->pos, l->s + l->pos, op > 255 ? 2 : 1, op);
l->pos += op > 255 ? 2 : 1;
return HR_OK;
}

/* From behind `{%` or `{{` to behind its end. Without an end the parser complains at the end. */
static enum hr_status inside(struct lexer *l, bool is_variable) {
    while (l->pos < l->n) {
        size_t i = l->pos, end = 0;
        if (l->n_brackets == 0) {
            if (!is_variable) {
                end = block_end(l, i, "%}");
            } else if (at(l, i, "-}}")) {
                end = skip_space(l, i + 3);
            } else if (at(l, i, "}}")) {
                end = i + 2;
            }
        }
        if (end) {
            push(l, is_variable ? JJT_VAR_END : JJT_BLOCK_END, i, l->s + i, 2, 0);
            moved_to(l, end);
            return HR_OK;
        }
        size_t blank = skip_space(l, i);
        if (blank > i) {
            l->pos = blank;
            continue;
        }
        unsigned char c = (unsigned char)l->s[i];
        if (is_name_start(c)) {
            size_t k = i;
            while (k < l->n && (is_name_start((unsigned char)l->s[k]) || is_dec(l->s[k]))) k++;
            push(l, JJT_NAME, i, l->s + i, k - i, 0);
            l->pos = k;
        } else if (c == '\'' || c == '"') {
            enum hr_status st = string(l);
            if (st != HR_OK) return st;
        } else if (!number(l)) {
            enum hr_status st = operator(l);
            if (st != HR_OK) return st;
        }
    }
    return HR_OK;
}

static enum hr_status root(struct lexer *l) {
    enum hr_status st = HR_OK;
    while (l->pos < l->n && st == HR_OK) {
        size_t tag = l->pos;
        while (tag < l->n && !(at(l, tag, "{%") || at(l, tag, "{{") || at(l, tag, "{#"))) tag++;
        if (tag == l->n) {
            push(l, JJT_DATA, l->pos, l->s + l->pos, l->n - l->pos, 0);
            l->pos = l->n;
            break;
        }
        char kind = l->s[tag + 1];
        char sign = at(l, tag + 2, "-") || at(l, tag + 2, "+") ? l->s[tag + 2] : 0;
        data(l, l->pos, tag, sign, kind == '{');
        size_t raw = kind == '%' ? raw_begin(l, tag) : 0;
        moved_to(l, raw ? raw : tag + 2 + (sign ? 1 : 0));
        if (raw) {
            st = raw_body(l, tag);
        } else if (kind == '#') {
            st = comment(l, tag);
        } else {
            push(l, kind == '{' ? JJT_VAR_BEGIN : JJT_BLOCK_BEGIN, tag, l->s + tag, 2, 0);
            st = inside(l, kind == '{');
        }
    }
    return st;
}

enum hr_status jj_lex(struct jj_arena *a, const char *source, size_t len, struct jj_tokens *out,
                      struct hr_err *err) {
    *out = (struct jj_tokens){0};
    out->source = hr_xmalloc(len);
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') continue;
        out->source[out->len++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (out->len && out->source[out->len - 1] == '\n') out->len--;
    struct lexer l = {.arena = a,
                      .out = out,
                      .s = out->source,
                      .n = out->len,
                      .line = 1,
                      .line_starting = true,
                      .err = err};
    enum hr_status st = root(&l);
    if (st != HR_OK) {
        jj_tokens_finish(out);
        return st;
    }
    push(&l, JJT_EOF, out->len, "", 0, 0);
    return HR_OK;
}

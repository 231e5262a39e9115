/* SPDX-License-Identifier: Apache-2.0
 *
 * options: see options.h. A message names the option as it was typed, what it expects and what it
 * got; an unknown option names the nearest right one, which is refused and never assumed. */
#include "cmd/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"

#define WORD_MAX 48 /* longer words are no slip of the fingers; bounds the distance's table */

static int min3(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b; both below WORD_MAX. */
static int edit_distance(const char *a, const char *b) {
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    int n_a = (int)strlen(a), n_b = (int)strlen(b);
    for (int j = 0; j <= n_b; j++) last[j] = j;
    for (int i = 1; i <= n_a; i++) {
        now[0] = i;
        for (int j = 1; j <= n_b; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < now[j]) now[j] = before[j - 2] + 1;
        }
        int *t = before;
        before = last, last = now, now = t;
    }
    return last[n_b];
}

const char *hr_options_nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    size_t len = strlen(word);
    if (len == 0 || len >= WORD_MAX) return NULL;
    int best_distance = len < 4 ? 2 : 3 + (int)len / 6; /* a guess further off would only confuse */
    for (int i = 0; i < n; i++) {
        if (strlen(names[i]) >= WORD_MAX) continue;
        int d = edit_distance(word, names[i]);
        /* "--max" or "--kv": the start of a name is nearer than any slip. */
        if (len >= 2 && strncmp(names[i], word, len) == 0) d = d ? 1 : 0;
        if (d < best_distance) best = names[i], best_distance = d;
    }
    return best;
}

static const struct hr_opt *find(const struct hr_command_line *cl, const char *name, size_t len) {
    for (int i = 0; i < cl->n_opts; i++)
        if (strlen(cl->opts[i].name) == len && memcmp(cl->opts[i].name, name, len) == 0)
            return &cl->opts[i];
    return NULL;
}

static enum hr_status unknown(const struct hr_command_line *cl, const char *arg, size_t name_len,
                              struct hr_err *err) {
    const char *names[64];
    int n = 0;
    for (int i = 0; i < cl->n_opts && n < 63; i++) names[n++] = cl->opts[i].name;
    names[n++] = "help";
    char word[WORD_MAX + 1];
    snprintf(word, sizeof word, "%.*s", (int)name_len, arg);
    const char *bare = word + strspn(word, "-");
    const char *near = hr_options_nearest(bare, names, n);
    if (near)
        return hr_err_set(err, HR_ERR_CONFIG, "unknown option '%.*s'; did you mean --%s?",
                          (int)name_len, arg, near);
    return hr_err_set(err, HR_ERR_CONFIG, "unknown option '%.*s'; 'headrace help %s' lists them",
                      (int)name_len, arg, cl->name);
}

/* "12", "12K", "12Ki": the factor of a suffix, or 0 when it is none. */
static int64_t suffix_factor(const char *s) {
    static const struct {
        const char *text;
        int64_t factor;
    } suffixes[] = {
        {"", 1},           {"K", 1000},     {"k", 1000},     {"M", 1000000},
        {"G", 1000000000}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30},
    };
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (strcmp(s, suffixes[i].text) == 0) return suffixes[i].factor;
    return 0;
}

static enum hr_status read_int(const struct hr_opt *o, const char *s, struct hr_err *err) {
    char *end = NULL;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    bool overflow = errno == ERANGE;
    bool digits = end != s && (s[0] == '-' || (s[0] >= '0' && s[0] <= '9')); /* no blanks, no '+' */
    int64_t factor = o->type == HR_OPT_COUNT ? suffix_factor(end) : *end == 0;
    int64_t value = 0;
    if (!digits || factor == 0)
        return hr_err_set(err, HR_ERR_CONFIG, "--%s expects a whole number%s, got '%s'", o->name,
                          o->type == HR_OPT_COUNT ? " (K, M, G or Ki, Mi, Gi may follow)" : "", s);
    if (!overflow) overflow = __builtin_mul_overflow((int64_t)v, factor, &value);
    bool outside = o->max > o->min && ((double)value < o->min || (double)value > o->max);
    if (overflow || outside) {
        if (o->max > o->min && o->max < 9e15)
            return hr_err_set(err, HR_ERR_CONFIG, "--%s expects %.0f to %.0f, got '%s'", o->name,
                              o->min, o->max, s);
        if (o->max > o->min && !overflow)
            return hr_err_set(err, HR_ERR_CONFIG, "--%s expects at least %.0f, got '%s'", o->name,
                              o->min, s);
        return hr_err_set(err, HR_ERR_CONFIG, "--%s is too large: '%s'", o->name, s);
    }
    *(int64_t *)o->out = value;
    return HR_OK;
}

static enum hr_status read_real(const struct hr_opt *o, const char *s, struct hr_err *err) {
    char *end = NULL;
    double v = strtod(s, &end);
    bool number = strchr("-.0123456789", s[0]) && s[0] && *end == 0 && isfinite(v);
    if (!number || strpbrk(s, "xXpP"))
        return hr_err_set(err, HR_ERR_CONFIG, "--%s expects a number, got '%s'", o->name, s);
    if (o->max > o->min && (v < o->min || v > o->max))
        return hr_err_set(err, HR_ERR_CONFIG, "--%s expects %g to %g, got '%s'", o->name, o->min,
                          o->max, s);
    *(double *)o->out = v;
    return HR_OK;
}

static enum hr_status read_choice(const struct hr_opt *o, const char *s, struct hr_err *err) {
    size_t len = strlen(s);
    int i = 0;
    for (const char *p = o->value; *p; i++) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, s, n) == 0) {
            *(int *)o->out = i;
            return HR_OK;
        }
        p += n + (p[n] == '|');
    }
    return hr_err_set(err, HR_ERR_CONFIG, "--%s expects one of %s, got '%s'", o->name, o->value, s);
}

static enum hr_status read_value(const struct hr_opt *o, const char *s, struct hr_err *err) {
    switch (o->type) {
    case HR_OPT_INT:
    case HR_OPT_COUNT:
        return read_int(o, s, err);
    case HR_OPT_REAL:
        return read_real(o, s, err);
    case HR_OPT_CHOICE:
        return read_choice(o, s, err);
    case HR_OPT_STR:
        if (!*s)
            return hr_err_set(err, HR_ERR_CONFIG, "--%s expects %s, got an empty text", o->name,
                              o->value);
        if (o->once && *(const char **)o->out)
            return hr_err_set(err, HR_ERR_CONFIG, "--%s is given twice, and only one can be used", o->name);
        *(const char **)o->out = s;
        return HR_OK;
    case HR_OPT_FLAG:
        *(bool *)o->out = true;
        return HR_OK;
    }
    return HR_OK;
}

/* One option at argv[*i]; moves *i over its value. */
static enum hr_status scan_option(const struct hr_command_line *cl, int argc, char **argv, int *i,
                                  bool *help, struct hr_err *err) {
    const char *arg = argv[*i];
    size_t name_len = strcspn(arg, "=");
    const char *value = arg[name_len] ? arg + name_len + 1 : NULL;
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
        *help = true;
        return HR_OK;
    }
    const struct hr_opt *o = strncmp(arg, "--", 2) == 0 ? find(cl, arg + 2, name_len - 2) : NULL;
    if (!o) return unknown(cl, arg, name_len, err);
    if (o->type == HR_OPT_FLAG && value)
        return hr_err_set(err, HR_ERR_CONFIG, "--%s takes no value, got '%s'", o->name, value);
    if (o->type != HR_OPT_FLAG && !value) {
        if (*i + 1 >= argc)
            return hr_err_set(err, HR_ERR_CONFIG, "--%s expects %s behind it", o->name, o->value);
        value = argv[*i + 1];
        /* `--out --limit 5` is a forgotten value, not a folder called "--limit". */
        if (strncmp(value, "--", 2) == 0)
            return hr_err_set(err, HR_ERR_CONFIG,
                              "--%s expects %s behind it, got '%s' (write --%s=%s if you mean it)",
                              o->name, o->value, value, o->name, value);
        ++*i;
    }
    if (o->given) *o->given = true;
    return read_value(o, value, err);
}

enum hr_status hr_options_scan(const struct hr_command_line *cl, int argc, char **argv, int *n_args,
                               bool *help, struct hr_err *err) {
    int n = 0;
    bool options_ended = false;
    *help = false;
    for (int i = 1; i < argc; i++) {
        char *arg = argv[i];
        if (options_ended || arg[0] != '-' || arg[1] == 0) {
            argv[n++] = arg; /* n <= i - 1: never ahead of the reader */
        } else if (strcmp(arg, "--") == 0) {
            options_ended = true;
        } else {
            enum hr_status st = scan_option(cl, argc, argv, &i, help, err);
            if (*help) return HR_OK;
            if (st) return st;
        }
    }
    if (n < cl->args_min)
        return hr_err_set(err, HR_ERR_CONFIG, "usage: headrace %s %s; 'headrace help %s' says more",
                          cl->name, cl->usage, cl->name);
    if (n > cl->args_max)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "'%s' is one argument too many; usage: headrace %s %s",
                          argv[cl->args_max], cl->name, cl->usage);
    *n_args = n;
    return HR_OK;
}

/* Appends words of `text`, broken to lines of 80 columns that begin with `indent` blanks. */
static void wrap(const char *text, int indent, struct hr_buf *out) {
    int column = 0;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        if (column > 0 && column + 1 + n > 80) {
            hr_buf_putc(out, '\n');
            column = 0;
        }
        hr_buf_printf(out, "%*s", column ? 1 : indent, "");
        column += column ? 1 : indent;
        hr_buf_append(out, p, (size_t)n);
        column += n;
        p += n + strspn(p + n, " ");
    }
    hr_buf_putc(out, '\n');
}

void hr_options_help(const struct hr_command_line *cl, struct hr_buf *out) {
    hr_buf_printf(out, "usage: headrace %s %s%s[options]\n\n", cl->name, cl->usage,
                  *cl->usage ? " " : "");
    wrap(cl->about, 0, out);
    const char *group = "";
    for (int i = 0; i < cl->n_opts; i++) {
        const struct hr_opt *o = &cl->opts[i];
        if (strcmp(group, o->group) != 0) {
            group = o->group;
            hr_buf_printf(out, "\n%s\n", group);
        }
        hr_buf_printf(out, "  --%s%s%s\n", o->name, o->value ? " " : "", o->value ? o->value : "");
        wrap(o->help, 6, out);
    }
}

bool hr_options_parse(const struct hr_command_line *cl, int argc, char **argv, int *n_args,
                      int *exit_code) {
    struct hr_err err = {0};
    bool help = false;
    enum hr_status st = hr_options_scan(cl, argc, argv, n_args, &help, &err);
    if (st) {
        hr_error("%s", err.msg);
        *exit_code = HR_EXIT_USAGE;
        return false;
    }
    if (!help) return true;
    struct hr_buf text = {0};
    hr_options_help(cl, &text);
    fwrite(text.data, 1, text.len, stdout);
    hr_buf_finish(&text);
    *exit_code = HR_EXIT_DONE;
    return false;
}

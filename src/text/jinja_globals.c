/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_globals: the functions that every template sees: Jinja2's own and the two of transformers
 * (raise_exception, strftime_now). lipsum is not among them. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/jinja_int.h"

#define GLOBAL(name)                                                                               \
    static struct jj_val name(struct jj_run *r, struct jj_val self, const struct jj_val *a,        \
                              const struct jj_args *args)

/* The sandbox of the original has the same bound. */
#define RANGE_MAX 100000

GLOBAL(f_range) {
    if (args->n_kw) return jj_fail(r, "range() takes no keyword arguments");
    for (int i = 0; i < 3; i++)
        if (a[i].type == JJ_UNDEF) return jj_fail_undef(r, a[i]);
    int64_t start = a[1].type == JJ_ABSENT ? 0 : jj_arg_int(r, a[0], 0);
    int64_t stop = jj_arg_int(r, a[1].type == JJ_ABSENT ? a[0] : a[1], 0),
            step = jj_arg_int(r, a[2], 1);
    if (r->st != HR_OK) return jj_undef();
    if (step == 0) return jj_fail(r, "range() arg 3 must not be zero");
    double n = step > 0 ? ((double)stop - (double)start + (double)step - 1) / (double)step
                        : ((double)start - (double)stop - (double)step - 1) / -(double)step;
    if (n >= RANGE_MAX + 1)
        return jj_fail_limit(
            r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", RANGE_MAX);
    struct jj_range *range = jj_alloc(r, sizeof *range);
    range->start = start;
    range->stop = stop;
    range->step = step;
    range->n = n > 0 ? (int64_t)n : 0;
    return (struct jj_val){.type = JJ_RANGE, .range = range};
}

/* dict(...) and namespace(...): a mapping or pairs, then named arguments. */
static struct jj_dict *make_dict(struct jj_run *r, const struct jj_args *args, bool is_ns) {
    struct jj_dict *d = jj_dict(r);
    if (args->n_pos > 1) (void)jj_fail(r, "dict expected at most 1 argument, got %zu", args->n_pos);
    size_t n = 0, n_pair;
    struct jj_val from = args->n_pos ? args->pos[0] : jj_undef();
    if (args->n_pos && from.type == JJ_UNDEF) (void)jj_fail_undef(r, from);
    const struct jj_val *items = from.type == JJ_DICT ? from.dict->k : jj_items(r, from, &n);
    if (from.type == JJ_DICT) n = from.dict->n;
    for (size_t i = 0; i < n && jj_step(r); i++) {
        struct jj_val key, value;
        if (from.type == JJ_DICT) {
            key = items[i];
            value = from.dict->v[i];
        } else {
            const struct jj_val *pair = jj_items(r, items[i], &n_pair);
            if (r->st == HR_OK && n_pair != 2)
                (void)jj_fail(
                    r, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                    n_pair);
            if (r->st != HR_OK) break;
            key = pair[0];
            value = pair[1];
        }
        if (is_ns && key.type == JJ_STR) {
            jj_ns_put(r, d, key.s, value);
        } else {
            jj_dict_put(r, d, key, value);
        }
    }
    for (size_t i = 0; i < args->n_kw && r->st == HR_OK; i++) {
        if (is_ns) {
            jj_ns_put(r, d, args->kw_name[i], args->kw[i]);
        } else {
            jj_dict_put(r, d, (struct jj_val){.type = JJ_STR, .s = args->kw_name[i]}, args->kw[i]);
        }
    }
    return d;
}

GLOBAL(f_dict) {
    return (struct jj_val){.type = JJ_DICT, .dict = make_dict(r, args, false)};
}
GLOBAL(f_namespace) {
    return (struct jj_val){.type = JJ_NS, .dict = make_dict(r, args, true)};
}

GLOBAL(f_cycler) {
    if (args->n_pos == 0 || args->n_kw) return jj_fail(r, "at least one item has to be provided");
    struct jj_cycler *c = jj_alloc(r, sizeof *c);
    struct jj_seq *s = jj_seq(r, args->n_pos);
    memcpy(s->v, args->pos, args->n_pos * sizeof *s->v);
    c->items = s;
    return (struct jj_val){.type = JJ_CYCLER, .cycler = c};
}
GLOBAL(f_joiner) {
    struct jj_cycler *c = jj_alloc(r, sizeof *c);
    c->sep = a[0].type == JJ_ABSENT ? jj_cstr(r, ", ") : a[0];
    return (struct jj_val){.type = JJ_JOINER, .cycler = c};
}

/* The template's own words, without the line: people look for exactly this text. */
GLOBAL(f_raise_exception) {
    const struct jj_str *s = jj_soft_str(r, a[0]);
    if (r->st != HR_OK) return jj_undef();
    r->st = hr_err_set(r->err, HR_ERR_FORMAT, "%.*s", s->len < 4096 ? (int)s->len : 4096, s->p);
    return jj_undef();
}

GLOBAL(f_strftime_now) {
    const struct jj_str *fmt = jj_arg_str(r, a[0], "strftime_now");
    if (r->st != HR_OK) return jj_undef();
    if (!r->now) return jj_fail(r, "strftime_now: the time is not known here");
    struct tm tm = *r->now, day = *r->now;
    (void)timegm(&day); /* fills in the day of the week and of the year */
    tm.tm_wday = day.tm_wday;
    tm.tm_yday = day.tm_yday;
    struct jj_sb sb = {.run = r};
    for (size_t i = 0; i < fmt->len && r->st == HR_OK; i++) {
        if (fmt->p[i] != '%' || i + 1 == fmt->len) {
            jj_sb_sub(&sb, fmt, i, i + 1);
            continue;
        }
        (void)jj_work(r, 4, JJ_STEP);
        char text[128], one[4] = {'%', 0, 0, 0};
        size_t n = 1;
        i++;
        if (fmt->p[i] == '-' && i + 1 < fmt->len) one[n++] = fmt->p[i++];
        one[n] = fmt->p[i];
        if (one[n] == 'f') { /* whole seconds are all that is known */
            jj_sb_puts(&sb, "000000");
        } else if (one[n] != 'z' && one[n] != 'Z' && strftime(text, sizeof text, one, &tm)) {
            jj_sb_puts(&sb, text);
        }
    }
    return jj_sb_val(&sb);
}

static const struct jj_func globals[] = {
    {"range", f_range, "start,stop,step", 1},
    {"dict", f_dict, NULL, 0},
    {"namespace", f_namespace, NULL, 0},
    {"cycler", f_cycler, NULL, 0},
    {"joiner", f_joiner, "sep", 0},
    {"raise_exception", f_raise_exception, "message", 1},
    {"strftime_now", f_strftime_now, "format", 1},
};

const struct jj_func *jj_global_list(size_t *n) {
    *n = sizeof globals / sizeof *globals;
    return globals;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_tests: the tests behind `is`, as in Jinja2's tests.py. */
#include <math.h>
#include <string.h>

#include "text/jinja_int.h"

#define TEST(name)                                                                                 \
    static struct jj_val name(struct jj_run *r, struct jj_val in, const struct jj_val *a,          \
                              const struct jj_args *args)

TEST(t_defined) {
    return jj_bool(in.type != JJ_UNDEF);
}
TEST(t_undefined) {
    return jj_bool(in.type == JJ_UNDEF);
}
TEST(t_none) {
    return jj_bool(in.type == JJ_NONE);
}
TEST(t_boolean) {
    return jj_bool(in.type == JJ_BOOL);
}
TEST(t_true) {
    return jj_bool(in.type == JJ_BOOL && in.b);
}
TEST(t_false) {
    return jj_bool(in.type == JJ_BOOL && !in.b);
}
TEST(t_integer) {
    return jj_bool(in.type == JJ_INT || in.type == JJ_BIG);
}
TEST(t_float) {
    return jj_bool(in.type == JJ_FLOAT);
}
TEST(t_number) {
    return jj_bool(jj_is_number(in));
}
TEST(t_string) {
    return jj_bool(in.type == JJ_STR);
}
TEST(t_mapping) {
    return jj_bool(in.type == JJ_DICT);
}
TEST(t_sequence) { /* has a length and can be indexed */
    return jj_bool(in.type == JJ_UNDEF || in.type == JJ_STR || in.type == JJ_BYTES ||
                   in.type == JJ_LIST || in.type == JJ_TUPLE || in.type == JJ_DICT ||
                   in.type == JJ_RANGE);
}
TEST(t_iterable) {
    return jj_bool(jj_is_iterable(in));
}
TEST(t_callable) {
    return jj_bool(in.type == JJ_FUNC || in.type == JJ_METHOD || in.type == JJ_MACRO ||
                   in.type == JJ_LOOP || in.type == JJ_JOINER || in.type == JJ_UNDEF);
}
TEST(t_escaped) {
    return jj_bool(in.type == JJ_STR && in.s->safe);
}

TEST(t_odd) {
    return jj_bool(jj_equal(r, jj_binary(r, JJ_MOD, in, jj_int(2)), jj_int(1)));
}
TEST(t_even) {
    return jj_bool(jj_equal(r, jj_binary(r, JJ_MOD, in, jj_int(2)), jj_int(0)));
}
TEST(t_divisibleby) {
    return jj_bool(jj_equal(r, jj_binary(r, JJ_MOD, in, a[0]), jj_int(0)));
}

static bool has_case(struct jj_run *r, struct jj_val in, bool (*is)(uint32_t),
                     bool (*not )(uint32_t)) {
    const struct jj_str *s = jj_soft_str(r, in);
    bool any = false;
    for (size_t i = 0, n; i < s->len && jj_work(r, 2, JJ_CLASS); i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        if (not(c)) return false;
        any |= is(c);
    }
    return any;
}
TEST(t_lower) {
    return jj_bool(has_case(r, in, jj_is_lower, jj_is_upper));
}
TEST(t_upper) {
    return jj_bool(has_case(r, in, jj_is_upper, jj_is_lower));
}

TEST(t_eq) {
    return jj_bool(jj_equal(r, in, a[0]));
}
TEST(t_ne) {
    return jj_bool(!jj_equal(r, in, a[0]));
}
TEST(t_lt) {
    return jj_bool(jj_compare(r, in, a[0], "<") == -1);
}
TEST(t_le) {
    return jj_bool(jj_compare(r, in, a[0], "<=") <= 0);
}
TEST(t_gt) {
    return jj_bool(jj_compare(r, in, a[0], ">") == 1);
}
TEST(t_ge) {
    int c = jj_compare(r, in, a[0], ">=");
    return jj_bool(c == 0 || c == 1);
}
TEST(t_in) {
    return jj_bool(jj_contains(r, a[0], in));
}
TEST(t_sameas) {
    if (in.type != a[0].type) return jj_bool(false);
    if (in.type == JJ_STR || in.type == JJ_FLOAT) return jj_bool(jj_equal(r, in, a[0]));
    if (in.type == JJ_LIST || in.type == JJ_TUPLE) return jj_bool(in.seq == a[0].seq);
    if (in.type == JJ_DICT) return jj_bool(in.dict == a[0].dict);
    return jj_bool(jj_equal(r, in, a[0]));
}

/* The names are keys of a dict there, so that a list is no question at all. */
static bool is_key(struct jj_run *r, struct jj_val v) {
    if (v.type == JJ_LIST || v.type == JJ_DICT)
        (void)jj_fail(r, "unhashable type: '%s'", jj_type_name(v));
    return v.type == JJ_STR;
}
TEST(t_filter) {
    return jj_bool(is_key(r, in) && jj_filter_known(in.s->p, in.s->len));
}
TEST(t_test) {
    return jj_bool(is_key(r, in) && jj_test_find(in.s->p, in.s->len) != NULL);
}

static const struct jj_func tests[] = {
    {"!=", t_ne, "other", 1},
    {"<", t_lt, "other", 1},
    {"<=", t_le, "other", 1},
    {"==", t_eq, "other", 1},
    {">", t_gt, "other", 1},
    {">=", t_ge, "other", 1},
    {"boolean", t_boolean, "", 0},
    {"callable", t_callable, "", 0},
    {"defined", t_defined, "", 0},
    {"divisibleby", t_divisibleby, "num", 1},
    {"eq", t_eq, "other", 1},
    {"equalto", t_eq, "other", 1},
    {"escaped", t_escaped, "", 0},
    {"even", t_even, "", 0},
    {"false", t_false, "", 0},
    {"filter", t_filter, "", 0},
    {"float", t_float, "", 0},
    {"ge", t_ge, "other", 1},
    {"greaterthan", t_gt, "other", 1},
    {"gt", t_gt, "other", 1},
    {"in", t_in, "seq", 1},
    {"integer", t_integer, "", 0},
    {"iterable", t_iterable, "", 0},
    {"le", t_le, "other", 1},
    {"lessthan", t_lt, "other", 1},
    {"lower", t_lower, "", 0},
    {"lt", t_lt, "other", 1},
    {"mapping", t_mapping, "", 0},
    {"ne", t_ne, "other", 1},
    {"none", t_none, "", 0},
    {"number", t_number, "", 0},
    {"odd", t_odd, "", 0},
    {"sameas", t_sameas, "other", 1},
    {"sequence", t_sequence, "", 0},
    {"string", t_string, "", 0},
    {"test", t_test, "", 0},
    {"true", t_true, "", 0},
    {"undefined", t_undefined, "", 0},
    {"upper", t_upper, "", 0},
};

const struct jj_func *jj_test_find(const char *name, size_t len) {
    return jj_table_find(tests, sizeof tests / sizeof *tests, name, len);
}

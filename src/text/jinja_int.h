/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_int: what the files of the template interpreter share: one render, and the calls between
 * them. Private to the room; jinja_value.h, jinja_syntax.h and jinja_text.h are its parts.
 *
 * Names begin with `jj_`, shorter than the house's hr_<room>_<verb>, because the interpreter says
 * them on every line; nothing here leaves the room.
 *
 * Memory: a template owns one arena (syntax tree, constants, names), a render owns two (values, and
 * the bytes of strings), freed at once. Values are immutable (the sandbox of the original forbids
 * every change of a list or dict), so they are shared freely; only namespaces, generators, cyclers
 * and loops change, and they never leave one render.
 *
 * Failure is sticky: the first jj_fail sets run->st, every evaluation and every builder then does
 * nothing, and the stack unwinds by itself. So a function returns a value and not a status, and
 * only loops ask run->st. The same holds for memory: an allocation always succeeds and, past the
 * limit, fails the run; what can amplify (repeat, pad, join) goes through a builder, which stops
 * growing, or asks jj_room first.
 *
 * Time: a node costs a step, and what a node does to a value costs in proportion: whatever walks
 * bytes, characters, elements, names or digits pays for them with jj_work, before it walks where
 * the length is known, so that no operation runs long on what it was not charged for. What each
 * call of jj_alloc or of a builder takes is bounded by the memory limit as well. */
#ifndef HR_TEXT_JINJA_INT_H
#define HR_TEXT_JINJA_INT_H

#include "text/jinja_syntax.h"
#include "text/jinja_text.h"
#include "text/jinja_value.h"

/* --- one render */

struct jj_tail { /* free bytes behind a string */
    char *end;
    size_t room;
};
#define JJ_TAILS 4

struct jj_run {
    const struct hr_template *t;
    struct hr_template_limits lim;
    const struct tm *now;
    struct jj_arena cells, bytes;
    struct hr_rendered out; /* everything written; captures take their part off its end */
    struct jj_tail tails[JJ_TAILS];
    size_t next_tail;
    uint64_t work; /* units spent; JJ_STEP of them are a step */
    int depth;
    int line; /* of the node that is evaluated, for messages */
    struct jj_scope *top;
    size_t capture_at; /* where the innermost capture began: a span must not reach across it */
    enum hr_status st;
    struct hr_err *err;
};

/* Fails the run with "line L: ..."; returns undefined. */
struct jj_val jj_fail(struct jj_run *r, const char *fmt, ...) HR_PRINTF(2, 3);
struct jj_val jj_fail_limit(struct jj_run *r, const char *fmt, ...) HR_PRINTF(2, 3);
struct jj_val jj_fail_undef(struct jj_run *r, struct jj_val undef);
void *jj_alloc(struct jj_run *r, size_t n);
/* False, and the run has failed, when n more bytes would pass the memory limit. */
bool jj_room(struct jj_run *r, double n);
/* Prices, in units. One is about a nanosecond, so that a step is about what evaluating a node takes
 * and the limit of steps is a bound on time, whatever a template spends them on. */
enum {
    JJ_STEP = 64,
    JJ_BYTE = 1,   /* copied, compared or counted */
    JJ_SOUGHT = 4, /* a byte passed by a search: what memmem needs at its worst */
    JJ_CHAR = 8,   /* a character decoded and looked at */
    JJ_CLASS = 48, /* a character looked up in the tables of properties or cases */
    JJ_ITEM = 8,   /* an element, a name or a table's entry passed by */
    JJ_DIGITS = 8, /* nine digits of a big number, loaded or compared */
};
/* Spends n times the price; false when the run has failed, as it does past its limit of steps. */
bool jj_work(struct jj_run *r, size_t n, unsigned price);
bool jj_step(struct jj_run *r); /* one step */
/* For the C library's work on a number of this size: printing, reading or dividing it. */
void jj_work_float(struct jj_run *r, double f);
bool jj_enter(struct jj_run *r); /* one level deeper; false (and nothing to leave) at the limit */
void jj_leave(struct jj_run *r);

static inline struct jj_val jj_none(void) {
    return (struct jj_val){.type = JJ_NONE};
}
static inline struct jj_val jj_bool(bool b) {
    return (struct jj_val){.type = JJ_BOOL, .b = b};
}
static inline struct jj_val jj_int(int64_t i) {
    return (struct jj_val){.type = JJ_INT, .i = i};
}
static inline struct jj_val jj_float(double f) {
    return (struct jj_val){.type = JJ_FLOAT, .f = f};
}
static inline struct jj_val jj_undef(void) {
    return (struct jj_val){.type = JJ_UNDEF};
}

/* --- values (jinja_val.c) */

struct jj_seq *jj_seq(struct jj_run *r, size_t n); /* to be filled, then jj_list or jj_tuple */
struct jj_val jj_list(const struct jj_seq *s);
struct jj_val jj_tuple(const struct jj_seq *s);
struct jj_vec { /* a growing list; zeroed: empty */
    struct jj_seq *s;
    size_t cap;
};
void jj_vec_push(struct jj_run *r, struct jj_vec *v, struct jj_val x);
struct jj_val jj_vec_list(struct jj_run *r, struct jj_vec *v);

struct jj_dict *jj_dict(struct jj_run *r);
bool jj_dict_get(struct jj_run *r, const struct jj_dict *d, struct jj_val key, struct jj_val *out);
void jj_dict_put(struct jj_run *r, struct jj_dict *d, struct jj_val key, struct jj_val val);

const char *jj_type_name(struct jj_val v); /* Python's name of the type */
struct jj_val jj_undef_text(struct jj_run *r, const char *text);
struct jj_val jj_undef_of(struct jj_run *r, struct jj_val owner, struct jj_val name);
bool jj_truth(struct jj_val v);
bool jj_equal(struct jj_run *r, struct jj_val a, struct jj_val b);
/* -1, 0, 1; 2 when an order with NaN is never true. Fails where Python refuses. */
int jj_compare(struct jj_run *r, struct jj_val a, struct jj_val b, const char *op);
bool jj_contains(struct jj_run *r, struct jj_val container, struct jj_val item);
int64_t jj_len(struct jj_run *r, struct jj_val v); /* fails without a length */
bool jj_has_len(struct jj_val v);
bool jj_is_iterable(struct jj_val v);
/* All elements, in order; takes what is left of a generator. Fails when it is not iterable. */
const struct jj_val *jj_items(struct jj_run *r, struct jj_val v, size_t *n);
struct jj_val jj_gen(struct jj_run *r, const char *type, const struct jj_func *func,
                     struct jj_val self, const struct jj_val *a, const struct jj_args *args);
/* Sorts `order` (indices into keys), stably; `reverse` keeps equal ones in their order too. */
void jj_sort(struct jj_run *r, const struct jj_val *keys, size_t *order, size_t n, bool reverse);
struct jj_json_in { /* jinja_json.c */
    bool trusted;
    struct hr_buf *scratch;
};
struct jj_val jj_from_json(struct jj_run *r, const char *json, size_t len, bool trusted);

/* --- access and calls (jinja_attr.c, jinja_eval.c) */

struct jj_val jj_getattr(struct jj_run *r, struct jj_val obj, const struct jj_str *name);
struct jj_val jj_getitem(struct jj_run *r, struct jj_val obj, struct jj_val key);
struct jj_val jj_slice(struct jj_run *r, struct jj_val obj, struct jj_val start, struct jj_val stop,
                       struct jj_val step);
struct jj_val jj_call(struct jj_run *r, struct jj_val fn, const struct jj_args *args);
struct jj_val jj_call_func(struct jj_run *r, const struct jj_func *f, struct jj_val self,
                           const struct jj_args *args);
bool jj_bind(struct jj_run *r, const struct jj_func *f, const struct jj_args *args,
             struct jj_val out[JJ_PARAMS_MAX]);
void jj_exec(struct jj_run *r, const struct hr_template *t);
struct jj_val jj_loop_call(struct jj_run *r, struct jj_loop *loop, const struct jj_args *args);
struct jj_val jj_macro_call(struct jj_run *r, const struct jj_macro *m, const struct jj_args *args);
void jj_ns_put(struct jj_run *r, struct jj_dict *ns, const struct jj_str *name, struct jj_val v);
void jj_scope_set(struct jj_run *r, struct jj_scope *s, uint32_t name, struct jj_val v);

/* --- numbers (jinja_num.c) */

struct jj_val jj_binary(struct jj_run *r, enum jj_op op, struct jj_val a, struct jj_val b);
struct jj_val jj_negate(struct jj_run *r, struct jj_val a);
/* An optional sign and digits of the base, without a prefix. */
struct jj_val jj_int_literal(struct jj_arena *a, const char *p, size_t len,
                             int base); /* ABSENT: too long */
struct jj_val jj_float_literal(const char *p);
/* numbers only; 2 with NaN */
int jj_num_compare(struct jj_run *r, struct jj_val a, struct jj_val b);
bool jj_is_number(struct jj_val v); /* bool counts, as in Python */
double jj_num_double(struct jj_run *r, struct jj_val v);
/* Integer argument (bool too); fails with the type's name otherwise. */
int64_t jj_arg_int(struct jj_run *r, struct jj_val v, int64_t absent);
#define JJ_NUM_TEXT 40
void jj_float_repr(struct jj_run *r, double f, char out[JJ_NUM_TEXT]);
void jj_write_int(struct jj_sb *sb, struct jj_val v); /* INT, BIG, BOOL as a number */
struct jj_val jj_to_int(struct jj_run *r, struct jj_val v, int base, bool *ok); /* int(v) */
struct jj_val jj_to_float(struct jj_run *r, struct jj_val v, bool *ok);         /* float(v) */
struct jj_val jj_int_of_double(struct jj_run *r, double f); /* truncates; finite */
/* round(v, digits): whole numbers stay whole, halves go to the even side. */
struct jj_val jj_round_int(struct jj_run *r, struct jj_val v, int64_t digits);

/* --- text of values (jinja_repr.c, jinja_format.c) */

void jj_write_str(struct jj_sb *sb, struct jj_val v);
void jj_write_repr(struct jj_sb *sb, struct jj_val v);
struct jj_val jj_to_str(struct jj_run *r, struct jj_val v);
const struct jj_str *jj_soft_str(struct jj_run *r, struct jj_val v); /* str(v), a string itself */
struct jj_val jj_tojson(struct jj_run *r, struct jj_val v, const struct jj_val *a);
struct jj_val jj_percent(struct jj_run *r, const struct jj_str *fmt, struct jj_val args);
struct jj_val jj_format(struct jj_run *r, const struct jj_str *fmt, const struct jj_args *args);

/* --- tables */

const struct jj_func *jj_filter_find(const char *name, size_t len);      /* jinja_filters.c */
const struct jj_func *jj_list_filter_find(const char *name, size_t len); /* jinja_seqfilters.c */
bool jj_filter_known(const char *name, size_t len); /* of Jinja, also where we do not have it */
const struct jj_func *jj_test_find(const char *name, size_t len); /* jinja_tests.c */
const struct jj_func *jj_method_find(struct jj_val self,
                                     const struct jj_str *name); /* jinja_methods.c */
const struct jj_func *jj_global_list(size_t *n);                 /* jinja_globals.c */
const struct jj_func *jj_table_find(const struct jj_func *table, size_t n, const char *name,
                                    size_t len);

/* Shared argument checks. */
const struct jj_str *jj_arg_str(struct jj_run *r, struct jj_val v, const char *what);

#endif

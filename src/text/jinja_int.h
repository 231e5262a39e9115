/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_int: what the files of the template interpreter share. Private to the room.
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
 * growing, or asks jj_room first. */
#ifndef HR_TEXT_JINJA_INT_H
#define HR_TEXT_JINJA_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/template.h"

/* --- arena (jinja_mem.c) */

struct jj_block;
struct jj_arena {
    struct jj_block *head; /* owned chain; the newest first */
    size_t held;           /* bytes of all blocks */
};
void *jj_arena_alloc(struct jj_arena *a, size_t n); /* 16-byte aligned, zeroed */
char *jj_arena_bytes(struct jj_arena *a, size_t n); /* unaligned, not zeroed */
/* Adds n bytes behind `end` when `end` is the newest byte handed out and there is room. */
bool jj_arena_extend(struct jj_arena *a, const char *end, size_t n);
void jj_arena_finish(struct jj_arena *a);

/* --- values */

enum jj_type {
    JJ_ABSENT, /* an argument that was not given; never seen by a template */
    JJ_UNDEF,
    JJ_NONE,
    JJ_BOOL,
    JJ_INT,
    JJ_BIG,
    JJ_FLOAT,
    JJ_STR,
    JJ_BYTES,
    JJ_LIST,
    JJ_TUPLE,
    JJ_DICT,
    JJ_VIEW, /* dict.keys(), .values(), .items() */
    JJ_RANGE,
    JJ_GEN,
    JJ_NS,
    JJ_MACRO,
    JJ_FUNC,
    JJ_METHOD,
    JJ_LOOP,
    JJ_JOINER,
    JJ_CYCLER,
};

struct jj_str {
    const char *p; /* borrowed from an arena, the template or a literal */
    size_t len;
    const struct hr_span
        *spans; /* the bytes that a user wrote; sorted, merged; may point at `one` */
    uint32_t n_spans;
    bool safe; /* Markup: `+` escapes what is added to it */
    struct hr_span one;
};

struct jj_val {
    enum jj_type type;
    union {
        bool b;
        int64_t i;
        double f;
        const struct jj_str *s;
        const struct jj_big *big;
        const struct jj_seq *seq;
        struct jj_dict *dict;
        const struct jj_view *view;
        const struct jj_range *range;
        struct jj_gen *gen;
        const struct jj_macro *macro;
        const struct jj_func *func;
        const struct jj_method *method;
        struct jj_loop *loop;
        struct jj_cycler *cycler;
        const struct jj_undef *undef;
    };
};

struct jj_seq { /* list, tuple */
    size_t n;
    bool group; /* a pair made by groupby: has .grouper and .list */
    struct jj_val v[];
};
struct jj_dict { /* insertion order; also the attributes of a namespace */
    struct jj_val *k, *v;
    size_t n, cap;
    uint32_t *index; /* open addressing, entry + 1; NULL while there are few entries */
    size_t n_index;
};
enum jj_view_kind { JJ_KEYS, JJ_VALUES, JJ_ITEMS };
struct jj_view {
    const struct jj_dict *dict;
    enum jj_view_kind kind;
};
struct jj_range {
    int64_t start, stop, step, n; /* n elements; stop is what was asked for */
};
struct jj_big { /* sign and magnitude, base 10^9, least limb first, no leading zero limb */
    bool neg;
    uint32_t n;
    uint32_t d[];
};
struct jj_undef {      /* why a value is undefined; the message is made when it is needed */
    const char *text;  /* the whole message, or NULL */
    const char *owner; /* the object's type, or NULL: a variable's name */
    struct jj_val name;
};

struct jj_run;
struct jj_args {
    const struct jj_val *pos;
    size_t n_pos;
    const struct jj_str *const *kw_name;
    const struct jj_val *kw;
    size_t n_kw;
};
#define JJ_PARAMS_MAX 6
/* `a` holds the arguments bound to the parameters, JJ_ABSENT where none was given. */
typedef struct jj_val (*jj_fn)(struct jj_run *r, struct jj_val self, const struct jj_val *a,
                               const struct jj_args *args);
struct jj_func {
    const char *name;
    jj_fn fn;
    const char *params; /* "a,b,c"; NULL: takes `args` as they are */
    int n_required;
};
struct jj_method {
    struct jj_val self;
    const struct jj_func *func;
};
struct jj_gen {       /* runs when it is first read, as a Python generator does */
    const char *type; /* "generator", "list_reverseiterator" */
    const struct jj_func *func;
    struct jj_val self;
    struct jj_val a[JJ_PARAMS_MAX];
    struct jj_args args;
    const struct jj_seq *items; /* NULL until then */
    size_t i;                   /* what has been taken */
    bool running;
};
struct jj_scope {
    struct jj_scope *parent;
    uint32_t *name;
    struct jj_val *val;
    size_t n, cap;
};
struct jj_macro {
    const struct jj_node *node; /* macro or call block */
    struct jj_scope *scope;     /* where it was defined */
};
struct jj_loop {
    const struct jj_val *items;
    size_t n, i;
    int depth;
    const struct jj_node *node; /* for a recursive loop */
    struct jj_scope *scope;
    struct jj_val changed; /* JJ_ABSENT before the first loop.changed() */
};
struct jj_cycler {
    const struct jj_seq *items;
    size_t i;
    struct jj_val sep; /* joiner */
};

/* --- syntax tree (jinja_parse.c) */

enum jj_kind {
    /* expressions */
    JJN_CONST,
    JJN_NAME,
    JJN_LIST,
    JJN_TUPLE,
    JJN_DICT,
    JJN_ATTR,
    JJN_ITEM,
    JJN_SLICE,
    JJN_CALL,
    JJN_FILTER,
    JJN_TEST,
    JJN_COND,
    JJN_AND,
    JJN_OR,
    JJN_NOT,
    JJN_NEG,
    JJN_POS,
    JJN_BINARY,
    JJN_CONCAT,
    JJN_COMPARE,
    JJN_NSREF,
    /* statements */
    JJN_DATA,
    JJN_OUTPUT,
    JJN_IF,
    JJN_FOR,
    JJN_SET,
    JJN_SETBLOCK,
    JJN_MACRO,
    JJN_CALLBLOCK,
    JJN_FILTERBLOCK,
    JJN_WITH,
    JJN_SCOPE,
    JJN_BREAK,
    JJN_CONTINUE,
};
enum jj_op { /* order: see the tables of jinja_parse.c */
             JJ_ADD,
             JJ_SUB,
             JJ_MUL,
             JJ_DIV,
             JJ_FLOORDIV,
             JJ_MOD,
             JJ_POW,
             JJ_EQ,
             JJ_NE,
             JJ_LT,
             JJ_LE,
             JJ_GT,
             JJ_GE,
             JJ_IN,
             JJ_NOTIN,
};

struct jj_nodes {
    struct jj_node **v;
    size_t n, cap;
};
struct jj_call_args {
    struct jj_nodes pos, kw;
    const struct jj_str **kw_name;
    struct jj_node *star, *star_star;
};
struct jj_node {
    enum jj_kind kind;
    uint8_t op; /* enum jj_op; of a comparison: in `ops` */
    bool flag;  /* FOR: recursive; TEST: unknown; FILTER: unknown */
    bool uses_caller, uses_kwargs, uses_varargs; /* MACRO, CALLBLOCK */
    int line;
    uint32_t name;     /* NAME, NSREF, MACRO: number of the name */
    struct jj_val val; /* CONST, DATA; ATTR, NSREF, FILTER, TEST, MACRO: a name as a string */
    const struct jj_func *func; /* FILTER, TEST */
    struct jj_node *a, *b, *c;
    struct jj_nodes list;  /* elements; keys; targets; comparison's operands; body */
    struct jj_nodes list2; /* values; defaults; else */
    uint8_t *ops;          /* COMPARE */
    struct jj_call_args *args;
};

struct hr_template {
    struct jj_arena arena;
    struct jj_nodes body;
    const struct jj_str **names; /* by number */
    size_t n_names, cap_names;
    uint32_t id_loop, id_caller, id_kwargs, id_varargs;
};

/* --- tokens (jinja_lex.c) */

enum jj_tok_type {
    JJT_EOF,
    JJT_DATA,
    JJT_VAR_BEGIN,
    JJT_VAR_END,
    JJT_BLOCK_BEGIN,
    JJT_BLOCK_END,
    JJT_NAME,
    JJT_STRING,
    JJT_INT,
    JJT_FLOAT,
    JJT_OP,
};
struct jj_tok {
    enum jj_tok_type type;
    int line;
    int op;        /* JJT_OP: its characters, the second in the high byte */
    size_t at;     /* offset in the normalised source */
    const char *p; /* DATA, NAME: the text; STRING: unescaped; INT, FLOAT: without `_` */
    size_t len;
};
struct jj_tokens {
    struct jj_tok *v; /* owned */
    size_t n, cap;
    char *source; /* owned; with \n only */
    size_t len;
};
HR_MUST_USE enum hr_status jj_lex(struct jj_arena *a, const char *source, size_t len,
                                  struct jj_tokens *out, struct hr_err *err);
void jj_tokens_finish(struct jj_tokens *t);
/* "line L, column C: ..." for the offset `at`. */
enum hr_status jj_syntax_error(const struct jj_tokens *t, size_t at, struct hr_err *err,
                               const char *fmt, ...) HR_PRINTF(4, 5);

/* --- parser: jinja_parse.c has the statements, jinja_expr.c the expressions */

struct jj_parser {
    struct hr_template *t;
    struct jj_tokens toks;
    size_t i;
    int depth;
    int loops; /* nested loops of this function, for break and continue */
    int soft;  /* inside an if: unknown filters and tests fail when they are reached */
    const struct jj_tok *unknown; /* a filter or test that nobody knows */
    bool unknown_is_test;
    const char *open[100]; /* tags that are open; the bound of their nesting */
    int n_open;
    struct jj_node **macros; /* owned; open macros, the innermost last */
    size_t n_macros, cap_macros;
    enum hr_status st;
    struct hr_err *err;
};
HR_MUST_USE enum hr_status jj_parse(struct hr_template *t, const char *source, size_t len,
                                    struct hr_err *err);
struct jj_node *jj_parse_expression(struct jj_parser *p, bool with_cond);
/* end: a name that ends the tuple, or NULL. simple: only primaries, for targets. */
struct jj_node *jj_parse_tuple(struct jj_parser *p, bool simple, bool with_cond, const char *end,
                               bool parens, bool with_ns);
struct jj_node *jj_parse_primary(struct jj_parser *p, bool with_ns);
struct jj_node *jj_parse_filters(struct jj_parser *p, struct jj_node *node, bool start_inline);
/* what both files need */
struct jj_node *jj_node(struct jj_parser *p, enum jj_kind kind, int line);
void jj_nodes_push(struct jj_parser *p, struct jj_nodes *l, struct jj_node *n);
uint32_t jj_name_id(struct hr_template *t, const char *s, size_t len);
const struct jj_tok *jj_tok(const struct jj_parser *p, size_t ahead);
bool jj_tok_is_name(const struct jj_tok *t, const char *name);
bool jj_skip_name(struct jj_parser *p, const char *name);
bool jj_skip_op(struct jj_parser *p, int op);
bool jj_expect_op(struct jj_parser *p, int op, const char *what);
void jj_parse_fail(struct jj_parser *p, const struct jj_tok *at, const char *fmt, ...)
    HR_PRINTF(3, 4);
void jj_unexpected(struct jj_parser *p, const struct jj_tok *t, const char *wanted);
#define JJ_OP2(a, b) ((a) | (b) << 8)

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
    size_t steps;
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
/* Counts one step; false when the run has failed. */
bool jj_step(struct jj_run *r);
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

/* --- strings (jinja_str.c): builder, substrings, code points */

struct jj_sb { /* zeroed but for run: empty */
    struct jj_run *run;
    char *p;
    size_t len, cap;
    struct hr_span *spans;
    uint32_t n_spans, cap_spans;
};
void jj_sb_put(struct jj_sb *sb, const char *p, size_t n); /* the template's own bytes */
void jj_sb_puts(struct jj_sb *sb, const char *s);
void jj_sb_fill(struct jj_sb *sb, const char *p, size_t n, int64_t times);
void jj_sb_str(struct jj_sb *sb, const struct jj_str *s);
void jj_sb_sub(struct jj_sb *sb, const struct jj_str *s, size_t from, size_t to);
/* bytes that stand for s[from, to): marked when any of those is */
void jj_sb_as(struct jj_sb *sb, const struct jj_str *s, size_t from, size_t to, const char *p,
              size_t n);
struct jj_val jj_sb_val(struct jj_sb *sb);
struct jj_val jj_concat(struct jj_run *r, const struct jj_str *a, const struct jj_str *b);

struct jj_val jj_str_ref(struct jj_run *r, const char *p, size_t len); /* borrows p */
struct jj_val jj_str_copy(struct jj_run *r, const char *p, size_t len);
struct jj_val jj_cstr(struct jj_run *r, const char *s);                 /* borrows */
struct jj_val jj_str_user(struct jj_run *r, const char *p, size_t len); /* borrows; all marked */
struct jj_val jj_substr(struct jj_run *r, const struct jj_str *s, size_t from, size_t to);
bool jj_str_eq(const struct jj_str *a, const struct jj_str *b);
bool jj_str_is(const struct jj_str *a, const char *s);
size_t jj_str_n_chars(const struct jj_str *s);
size_t jj_str_offset(const struct jj_str *s, size_t i_char); /* byte offset of a character */
/* First occurrence at or after `from`, last one that ends at or before `to`; SIZE_MAX if none. */
size_t jj_str_find(const struct jj_str *s, const struct jj_str *sub, size_t from);
size_t jj_str_rfind(const struct jj_str *s, const struct jj_str *sub, size_t to);
struct jj_val jj_strip(struct jj_run *r, const struct jj_str *s, const struct jj_str *chars,
                       bool left, bool right);
struct jj_val jj_replace(struct jj_run *r, const struct jj_str *s, const struct jj_str *from,
                         const struct jj_str *to, int64_t count);
struct jj_val jj_escape(struct jj_run *r, const struct jj_str *s);

/* More of them in jinja_strops.c. */
enum jj_pad { JJ_PAD_LEFT, JJ_PAD_RIGHT, JJ_PAD_BOTH };
struct jj_val jj_str_capitalize(struct jj_run *r, const struct jj_str *s);
struct jj_val jj_str_pad(struct jj_run *r, const struct jj_str *s, int64_t width, const char *fill,
                         size_t n_fill, enum jj_pad how);
/* The line that begins at `from` ends at *end, the next begins at *next. */
void jj_line_end(const struct jj_str *s, size_t from, size_t *end, size_t *next);
/* sep NULL: runs of white space. max < 0: all. */
struct jj_val jj_split(struct jj_run *r, const struct jj_str *s, const struct jj_str *sep,
                       int64_t max);
struct jj_val jj_rsplit(struct jj_run *r, const struct jj_str *s, const struct jj_str *sep,
                        int64_t max);

/* UTF-8 and character properties (jinja_uni.c). The text is valid UTF-8. */
uint32_t jj_decode(const char *p, const char *end, size_t *n);
size_t jj_encode(uint32_t c, char out[4]);
bool jj_is_space(uint32_t c);
bool jj_is_printable(uint32_t c);
bool jj_is_alpha(uint32_t c);
bool jj_is_decimal(uint32_t c);
bool jj_is_digit(uint32_t c);
bool jj_is_numeric(uint32_t c);
bool jj_is_upper(uint32_t c);
bool jj_is_lower(uint32_t c);
bool jj_is_cased(uint32_t c);
enum jj_case { JJ_TO_UPPER, JJ_TO_LOWER, JJ_TO_TITLE, JJ_TO_FOLD };
int jj_map_case(uint32_t c, enum jj_case how, uint32_t out[3]); /* number of code points */
struct jj_val jj_str_case(struct jj_run *r, const struct jj_str *s, enum jj_case how);
/* The character `c` = s[at, at + n) in the other case. */
void jj_sb_case(struct jj_sb *sb, const struct jj_str *s, size_t at, size_t n, uint32_t c,
                enum jj_case how);

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
int jj_num_compare(struct jj_val a, struct jj_val b); /* numbers only; 2 with NaN */
bool jj_is_number(struct jj_val v);                   /* bool counts, as in Python */
double jj_num_double(struct jj_val v);
/* Integer argument (bool too); fails with the type's name otherwise. */
int64_t jj_arg_int(struct jj_run *r, struct jj_val v, int64_t absent);
#define JJ_NUM_TEXT 40
void jj_float_repr(double f, char out[JJ_NUM_TEXT]);
void jj_write_int(struct jj_sb *sb, struct jj_val v); /* INT, BIG, BOOL as a number */
struct jj_val jj_to_int(struct jj_run *r, struct jj_val v, int base, bool *ok); /* int(v) */
struct jj_val jj_to_float(struct jj_run *r, struct jj_val v, bool *ok);         /* float(v) */
struct jj_val jj_int_of_double(struct jj_run *r, double f); /* truncates; finite */

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

/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_syntax: from template source to syntax tree: tokens, nodes, the parser's state. Private to
 * the room. The tree is a template's own and never changes once it is parsed, so that threads may
 * share it. */
#ifndef HR_TEXT_JINJA_SYNTAX_H
#define HR_TEXT_JINJA_SYNTAX_H

#include "text/jinja_value.h"

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
uint32_t jj_parse_name_id(struct jj_parser *p, const struct jj_tok *at); /* of a variable */
const struct jj_tok *jj_tok(const struct jj_parser *p, size_t ahead);
bool jj_tok_is_name(const struct jj_tok *t, const char *name);
bool jj_skip_name(struct jj_parser *p, const char *name);
bool jj_skip_op(struct jj_parser *p, int op);
bool jj_expect_op(struct jj_parser *p, int op, const char *what);
void jj_parse_fail(struct jj_parser *p, const struct jj_tok *at, const char *fmt, ...)
    HR_PRINTF(3, 4);
void jj_unexpected(struct jj_parser *p, const struct jj_tok *t, const char *wanted);
#define JJ_OP2(a, b) ((a) | (b) << 8)

#endif

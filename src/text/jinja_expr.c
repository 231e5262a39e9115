/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_expr: expressions of the template language, by recursive descent, one function a level of
 * precedence as in Jinja2's parser.py (so `2 ** 3 ** 2` groups to the left and `-2 ** 2` is 4, as
 * there). Nesting is bounded: PARSE_DEPTH_MAX levels of brackets, prefixes or conditions. */
#include <string.h>

#include "text/jinja_int.h"

/* Each level costs up to a dozen C frames; the original gives up at some seventy levels. */
#define PARSE_DEPTH_MAX 150

static struct jj_node *parse_or(struct jj_parser *p);
static struct jj_node *parse_unary(struct jj_parser *p, bool with_filter);

static bool deeper(struct jj_parser *p) {
    if (p->st != HR_OK) return false;
    if (p->depth < PARSE_DEPTH_MAX) {
        p->depth++;
        return true;
    }
    jj_parse_fail(p, jj_tok(p, 0), "expressions nest deeper than %d levels", PARSE_DEPTH_MAX);
    return false;
}

static bool is_op(struct jj_parser *p, int op) {
    const struct jj_tok *t = jj_tok(p, 0);
    return t->type == JJT_OP && t->op == op;
}

static struct jj_node *binary(struct jj_parser *p, enum jj_op op, int line, struct jj_node *a,
                              struct jj_node *b) {
    struct jj_node *n = jj_node(p, JJN_BINARY, line);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return n;
}

static struct jj_val name_val(struct jj_parser *p, const struct jj_tok *t) {
    struct jj_str *s = jj_arena_alloc(&p->t->arena, sizeof *s);
    char *copy = jj_arena_bytes(&p->t->arena, t->len + 1);
    memcpy(copy, t->p, t->len);
    copy[t->len] = 0; /* names go into messages */
    s->p = copy;
    s->len = t->len;
    return (struct jj_val){.type = JJ_STR, .s = s};
}

static struct jj_node *constant(struct jj_parser *p, struct jj_val v, int line) {
    struct jj_node *n = jj_node(p, JJN_CONST, line);
    n->val = v;
    return n;
}

static struct jj_node *parse_name(struct jj_parser *p, bool with_ns) {
    const struct jj_tok *t = jj_tok(p, 0);
    p->i++;
    if (jj_tok_is_name(t, "true") || jj_tok_is_name(t, "True"))
        return constant(p, jj_bool(true), t->line);
    if (jj_tok_is_name(t, "false") || jj_tok_is_name(t, "False"))
        return constant(p, jj_bool(false), t->line);
    if (jj_tok_is_name(t, "none") || jj_tok_is_name(t, "None"))
        return constant(p, jj_none(), t->line);
    struct jj_node *n = jj_node(p, JJN_NAME, t->line);
    n->name = jj_parse_name_id(p, t);
    if (with_ns && is_op(p, '.')) {
        p->i++;
        const struct jj_tok *attr = jj_tok(p, 0);
        if (attr->type != JJT_NAME) jj_unexpected(p, attr, "name");
        p->i++;
        n->kind = JJN_NSREF;
        n->val = name_val(p, attr);
        return n;
    }
    for (size_t i = 0; i < p->n_macros;
         i++) { /* a nested macro's use counts for the outer one too */
        p->macros[i]->uses_caller |= n->name == p->t->id_caller;
        p->macros[i]->uses_kwargs |= n->name == p->t->id_kwargs;
        p->macros[i]->uses_varargs |= n->name == p->t->id_varargs;
    }
    return n;
}

static struct jj_node *parse_strings(struct jj_parser *p) {
    const struct jj_tok *t = jj_tok(p, 0);
    size_t len = 0, n = 0;
    while (jj_tok(p, n)->type == JJT_STRING) len += jj_tok(p, n++)->len;
    char *bytes = jj_arena_bytes(&p->t->arena, len + 1), *q = bytes;
    for (size_t i = 0; i < n; i++) {
        memcpy(q, jj_tok(p, i)->p, jj_tok(p, i)->len);
        q += jj_tok(p, i)->len;
    }
    p->i += n;
    struct jj_str *s = jj_arena_alloc(&p->t->arena, sizeof *s);
    s->p = bytes;
    s->len = len;
    return constant(p, (struct jj_val){.type = JJ_STR, .s = s}, t->line);
}

static struct jj_node *parse_list(struct jj_parser *p) {
    struct jj_node *n = jj_node(p, JJN_LIST, jj_tok(p, 0)->line);
    p->i++;
    while (p->st == HR_OK && !is_op(p, ']')) {
        if (n->list.n && !jj_expect_op(p, ',', ",")) break;
        if (is_op(p, ']')) break;
        jj_nodes_push(p, &n->list, jj_parse_expression(p, true));
    }
    jj_expect_op(p, ']', "]");
    return n;
}

static struct jj_node *parse_dict(struct jj_parser *p) {
    struct jj_node *n = jj_node(p, JJN_DICT, jj_tok(p, 0)->line);
    p->i++;
    while (p->st == HR_OK && !is_op(p, '}')) {
        if (n->list.n && !jj_expect_op(p, ',', ",")) break;
        if (is_op(p, '}')) break;
        jj_nodes_push(p, &n->list, jj_parse_expression(p, true));
        jj_expect_op(p, ':', ":");
        jj_nodes_push(p, &n->list2, jj_parse_expression(p, true));
    }
    jj_expect_op(p, '}', "}");
    return n;
}

struct jj_node *jj_parse_primary(struct jj_parser *p, bool with_ns) {
    const struct jj_tok *t = jj_tok(p, 0);
    struct jj_node *n = jj_node(p, JJN_CONST, t->line);
    if (!deeper(p)) return n;
    if (t->type == JJT_NAME) {
        n = parse_name(p, with_ns);
    } else if (t->type == JJT_STRING) {
        n = parse_strings(p);
    } else if (t->type == JJT_INT) {
        p->i++;
        int base = t->len > 2 && t->p[0] == '0' ? (t->p[1] | 32) == 'x'   ? 16
                                                  : (t->p[1] | 32) == 'o' ? 8
                                                                          : 2
                                                : 10;
        size_t prefix = base == 10 ? 0 : 2;
        n->val = jj_int_literal(&p->t->arena, t->p + prefix, t->len - prefix, base);
        if (n->val.type == JJ_ABSENT) jj_parse_fail(p, t, "the number is too large");
    } else if (t->type == JJT_FLOAT) {
        p->i++;
        n->val = jj_float_literal(t->p);
    } else if (is_op(p, '(')) {
        p->i++;
        n = jj_parse_tuple(p, false, true, NULL, true, false);
        jj_expect_op(p, ')', ")");
    } else if (is_op(p, '[')) {
        n = parse_list(p);
    } else if (is_op(p, '{')) {
        n = parse_dict(p);
    } else {
        jj_unexpected(p, t, NULL);
    }
    p->depth--;
    return n;
}

static bool tuple_ends(struct jj_parser *p, const char *end) {
    const struct jj_tok *t = jj_tok(p, 0);
    return t->type == JJT_VAR_END || t->type == JJT_BLOCK_END || is_op(p, ')') ||
           (end && jj_tok_is_name(t, end));
}

struct jj_node *jj_parse_tuple(struct jj_parser *p, bool simple, bool with_cond, const char *end,
                               bool parens, bool with_ns) {
    struct jj_node *tuple = jj_node(p, JJN_TUPLE, jj_tok(p, 0)->line);
    bool is_tuple = false;
    while (p->st == HR_OK) {
        if (tuple->list.n && !jj_expect_op(p, ',', ",")) break;
        if (tuple_ends(p, end)) break;
        jj_nodes_push(p, &tuple->list,
                      simple ? jj_parse_primary(p, with_ns) : jj_parse_expression(p, with_cond));
        if (!is_op(p, ',')) break;
        is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (tuple->list.n) return tuple->list.v[0];
    if (!parens && p->st == HR_OK) jj_unexpected(p, jj_tok(p, 0), "an expression");
    return tuple;
}

/* `*args` and `**kwargs` of a call, or one plain or named argument. */
static void parse_argument(struct jj_parser *p, struct jj_call_args *args, size_t *cap) {
    const struct jj_tok *t = jj_tok(p, 0);
    if (is_op(p, JJ_OP2('*', '*'))) {
        p->i++;
        if (args->star_star) jj_unexpected(p, t, NULL);
        args->star_star = jj_parse_expression(p, true);
    } else if (is_op(p, '*')) {
        p->i++;
        if (args->star || args->star_star) jj_unexpected(p, t, NULL);
        args->star = jj_parse_expression(p, true);
    } else if (t->type == JJT_NAME && jj_tok(p, 1)->type == JJT_OP && jj_tok(p, 1)->op == '=') {
        if (args->star_star) jj_unexpected(p, t, NULL);
        p->i += 2;
        jj_nodes_push(p, &args->kw, jj_parse_expression(p, true));
        if (args->kw.n > *cap) {
            size_t more = *cap ? 2 * *cap : 4;
            const struct jj_str **v = jj_arena_alloc(&p->t->arena, more * sizeof *v);
            if (*cap) memcpy(v, args->kw_name, *cap * sizeof *v);
            args->kw_name = v;
            *cap = more;
        }
        args->kw_name[args->kw.n - 1] = name_val(p, t).s;
    } else {
        if (args->star || args->star_star || args->kw.n) jj_unexpected(p, t, NULL);
        jj_nodes_push(p, &args->pos, jj_parse_expression(p, true));
    }
}

static struct jj_call_args *parse_args(struct jj_parser *p) {
    struct jj_call_args *args = jj_arena_alloc(&p->t->arena, sizeof *args);
    size_t cap = 0;
    bool comma = false;
    jj_expect_op(p, '(', "(");
    while (p->st == HR_OK && !is_op(p, ')')) {
        if (comma && !jj_expect_op(p, ',', ",")) break;
        if (is_op(p, ')')) break;
        parse_argument(p, args, &cap);
        comma = true;
    }
    jj_expect_op(p, ')', ")");
    return args;
}

static struct jj_node *parse_call(struct jj_parser *p, struct jj_node *fn) {
    struct jj_node *n = jj_node(p, JJN_CALL, jj_tok(p, 0)->line);
    n->a = fn;
    n->args = parse_args(p);
    return n;
}

/* One subscript: an index or a slice whose parts may be missing. */
static struct jj_node *parse_index(struct jj_parser *p) {
    struct jj_node *part[3] = {0};
    int line = jj_tok(p, 0)->line, n = 0;
    if (!is_op(p, ':')) part[0] = jj_parse_expression(p, true);
    if (!is_op(p, ':')) return part[0];
    while (n < 2 && p->st == HR_OK && is_op(p, ':')) {
        p->i++;
        n++;
        if (!is_op(p, ']') && !is_op(p, ',') && !is_op(p, ':'))
            part[n] = jj_parse_expression(p, true);
    }
    struct jj_node *slice = jj_node(p, JJN_SLICE, line);
    slice->a = part[0];
    slice->b = part[1];
    slice->c = part[2];
    return slice;
}

static struct jj_node *parse_subscript(struct jj_parser *p, struct jj_node *of) {
    const struct jj_tok *t = jj_tok(p, 0);
    p->i++;
    if (t->op == '.') {
        const struct jj_tok *attr = jj_tok(p, 0);
        struct jj_node *n = jj_node(p, attr->type == JJT_NAME ? JJN_ATTR : JJN_ITEM, t->line);
        n->a = of;
        p->i++;
        if (attr->type == JJT_NAME) {
            n->val = name_val(p, attr);
        } else if (attr->type == JJT_INT) {
            n->b = constant(p, jj_int_literal(&p->t->arena, attr->p, attr->len, 10), attr->line);
        } else {
            jj_unexpected(p, attr, "name or number");
        }
        return n;
    }
    struct jj_node *n = jj_node(p, JJN_ITEM, t->line);
    n->a = of;
    if (is_op(p, ']')) { /* x[] is x[()] */
        n->b = jj_node(p, JJN_TUPLE, t->line);
        p->i++;
        return n;
    }
    n->b = parse_index(p);
    if (is_op(p, ',')) {
        struct jj_node *tuple = jj_node(p, JJN_TUPLE, t->line);
        jj_nodes_push(p, &tuple->list, n->b);
        while (p->st == HR_OK && jj_skip_op(p, ',')) jj_nodes_push(p, &tuple->list, parse_index(p));
        n->b = tuple;
    }
    jj_expect_op(p, ']', "]");
    return n;
}

static struct jj_node *parse_postfix(struct jj_parser *p, struct jj_node *n) {
    while (p->st == HR_OK) {
        if (is_op(p, '.') || is_op(p, '[')) {
            n = parse_subscript(p, n);
        } else if (is_op(p, '(')) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

/* Inside an `if` Jinja2 complains of an unknown filter or test only when it gets there, and
 * templates rely on it; elsewhere at once. What it knows and we do not is refused everywhere. An
 * inline `if` is seen behind its first part, so the complaint waits until the statement is
 * complete. */
static void note_unknown(struct jj_parser *p, const struct jj_tok *t, bool is_test) {
    bool refused = !is_test && jj_filter_known(t->p, t->len);
    if (p->unknown || (p->soft && !refused)) return;
    p->unknown = t;
    p->unknown_is_test = is_test;
}

/* The name of a filter or test may have dots; no filter or test that we have does. */
static const struct jj_tok *parse_dotted(struct jj_parser *p) {
    const struct jj_tok *first = jj_tok(p, 0), *last = first;
    p->i++;
    while (is_op(p, '.')) {
        p->i++;
        last = jj_tok(p, 0);
        if (last->type != JJT_NAME) jj_unexpected(p, last, "name");
        p->i++;
    }
    if (last == first || p->st != HR_OK) return first;
    struct jj_tok *whole = jj_arena_alloc(&p->t->arena, sizeof *whole);
    *whole = *first; /* with whatever blanks are around its dots */
    whole->len = (size_t)(last->p + last->len - first->p);
    return whole;
}

struct jj_node *jj_parse_filters(struct jj_parser *p, struct jj_node *node, bool start_inline) {
    while (p->st == HR_OK && (start_inline || jj_skip_op(p, '|'))) {
        const struct jj_tok *t = jj_tok(p, 0);
        struct jj_node *n = jj_node(p, JJN_FILTER, t->line);
        if (t->type != JJT_NAME) {
            jj_unexpected(p, t, "name");
            return n;
        }
        t = parse_dotted(p);
        n->a = node;
        n->val = name_val(p, t);
        n->func = jj_filter_find(t->p, t->len);
        if (!n->func) note_unknown(p, t, false);
        if (is_op(p, '(')) n->args = parse_args(p);
        node = n;
        start_inline = false;
    }
    return node;
}

/* Behind `is`, a test without brackets takes one primary as its argument. */
static bool starts_argument(const struct jj_tok *t) {
    if (t->type == JJT_STRING || t->type == JJT_INT || t->type == JJT_FLOAT) return true;
    if (t->type == JJT_OP) return t->op == '(' || t->op == '[' || t->op == '{';
    return t->type == JJT_NAME && !jj_tok_is_name(t, "else") && !jj_tok_is_name(t, "or") &&
           !jj_tok_is_name(t, "and");
}

static struct jj_node *parse_test(struct jj_parser *p, struct jj_node *of) {
    p->i++;
    bool negated = jj_skip_name(p, "not");
    const struct jj_tok *t = jj_tok(p, 0);
    struct jj_node *n = jj_node(p, JJN_TEST, t->line);
    if (t->type != JJT_NAME) {
        jj_unexpected(p, t, "name");
        return n;
    }
    t = parse_dotted(p);
    n->a = of;
    n->val = name_val(p, t);
    n->func = jj_test_find(t->p, t->len);
    if (!n->func) note_unknown(p, t, true);
    if (is_op(p, '(')) {
        n->args = parse_args(p);
    } else if (starts_argument(jj_tok(p, 0))) {
        if (jj_tok_is_name(jj_tok(p, 0), "is"))
            jj_parse_fail(p, jj_tok(p, 0), "You cannot chain multiple tests with is");
        n->args = jj_arena_alloc(&p->t->arena, sizeof *n->args);
        jj_nodes_push(p, &n->args->pos, parse_postfix(p, jj_parse_primary(p, false)));
    }
    if (!negated) return n;
    struct jj_node *not_node = jj_node(p, JJN_NOT, t->line);
    not_node->a = n;
    return not_node;
}

static struct jj_node *parse_filter_expr(struct jj_parser *p, struct jj_node *n) {
    while (p->st == HR_OK) {
        if (is_op(p, '|')) {
            n = jj_parse_filters(p, n, false);
        } else if (jj_tok_is_name(jj_tok(p, 0), "is")) {
            n = parse_test(p, n);
        } else if (is_op(p, '(')) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

static struct jj_node *parse_unary(struct jj_parser *p, bool with_filter) {
    const struct jj_tok *t = jj_tok(p, 0);
    struct jj_node *n;
    if (is_op(p, '-') || is_op(p, '+')) {
        n = jj_node(p, t->op == '-' ? JJN_NEG : JJN_POS, t->line);
        if (!deeper(p)) return n;
        p->i++;
        n->a = parse_unary(p, false);
        p->depth--;
    } else {
        n = jj_parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    return with_filter ? parse_filter_expr(p, n) : n;
}

static struct jj_node *parse_pow(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    struct jj_node *n = parse_unary(p, true);
    while (jj_skip_op(p, JJ_OP2('*', '*'))) n = binary(p, JJ_POW, line, n, parse_unary(p, true));
    return n;
}

static struct jj_node *parse_product(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    struct jj_node *n = parse_pow(p);
    while (p->st == HR_OK) {
        enum jj_op op;
        if (is_op(p, '*')) {
            op = JJ_MUL;
        } else if (is_op(p, '/')) {
            op = JJ_DIV;
        } else if (is_op(p, JJ_OP2('/', '/'))) {
            op = JJ_FLOORDIV;
        } else if (is_op(p, '%')) {
            op = JJ_MOD;
        } else {
            break;
        }
        p->i++;
        n = binary(p, op, line, n, parse_pow(p));
    }
    return n;
}

static struct jj_node *parse_concat(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    struct jj_node *first = parse_product(p);
    if (!is_op(p, '~')) return first;
    struct jj_node *n = jj_node(p, JJN_CONCAT, line);
    jj_nodes_push(p, &n->list, first);
    while (jj_skip_op(p, '~')) jj_nodes_push(p, &n->list, parse_product(p));
    return n;
}

static struct jj_node *parse_sum(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    struct jj_node *n = parse_concat(p);
    while (p->st == HR_OK && (is_op(p, '+') || is_op(p, '-'))) {
        enum jj_op op = is_op(p, '+') ? JJ_ADD : JJ_SUB;
        p->i++;
        n = binary(p, op, line, n, parse_concat(p));
    }
    return n;
}

static bool compare_op(struct jj_parser *p, enum jj_op *op) {
    static const struct {
        int tok;
        enum jj_op op;
    } table[] = {{JJ_OP2('=', '='), JJ_EQ},
                 {JJ_OP2('!', '='), JJ_NE},
                 {'<', JJ_LT},
                 {JJ_OP2('<', '='), JJ_LE},
                 {'>', JJ_GT},
                 {JJ_OP2('>', '='), JJ_GE}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!jj_skip_op(p, table[i].tok)) continue;
        *op = table[i].op;
        return true;
    }
    *op = JJ_IN;
    if (jj_skip_name(p, "in")) return true;
    if (!jj_tok_is_name(jj_tok(p, 0), "not") || !jj_tok_is_name(jj_tok(p, 1), "in")) return false;
    p->i += 2;
    *op = JJ_NOTIN;
    return true;
}

static struct jj_node *parse_compare(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    struct jj_node *first = parse_sum(p), *n = NULL;
    enum jj_op op;
    size_t cap = 0;
    while (p->st == HR_OK && compare_op(p, &op)) {
        if (!n) {
            n = jj_node(p, JJN_COMPARE, line);
            n->a = first;
        }
        if (n->list.n == cap) {
            uint8_t *ops = jj_arena_alloc(&p->t->arena, cap ? 2 * cap : 4);
            if (cap) memcpy(ops, n->ops, cap);
            n->ops = ops;
            cap = cap ? 2 * cap : 4;
        }
        n->ops[n->list.n] = (uint8_t)op;
        jj_nodes_push(p, &n->list, parse_sum(p));
    }
    return n ? n : first;
}

static struct jj_node *parse_not(struct jj_parser *p) {
    const struct jj_tok *t = jj_tok(p, 0);
    if (!jj_tok_is_name(t, "not")) return parse_compare(p);
    struct jj_node *n = jj_node(p, JJN_NOT, t->line);
    if (!deeper(p)) return n;
    p->i++;
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static struct jj_node *logic(struct jj_parser *p, enum jj_kind kind, int line, struct jj_node *a,
                             struct jj_node *b) {
    struct jj_node *n = jj_node(p, kind, line);
    n->a = a;
    n->b = b;
    return n;
}

static struct jj_node *parse_and(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    struct jj_node *n = parse_not(p);
    while (jj_skip_name(p, "and")) n = logic(p, JJN_AND, line, n, parse_not(p));
    return n;
}

static struct jj_node *parse_or(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    struct jj_node *n = parse_and(p);
    while (jj_skip_name(p, "or")) n = logic(p, JJN_OR, line, n, parse_and(p));
    return n;
}

struct jj_node *jj_parse_expression(struct jj_parser *p, bool with_cond) {
    int line = jj_tok(p, 0)->line;
    if (!deeper(p)) return jj_node(p, JJN_CONST, line);
    const struct jj_tok *unknown = p->unknown;
    bool is_cond = false;
    struct jj_node *n = parse_or(p);
    while (with_cond && jj_skip_name(p, "if")) {
        is_cond = true;
        struct jj_node *cond = jj_node(p, JJN_COND, line);
        cond->b = n;
        cond->a = parse_or(p);
        if (jj_skip_name(p, "else")) cond->c = jj_parse_expression(p, true);
        n = cond;
    }
    if (is_cond && p->unknown && !jj_filter_known(p->unknown->p, p->unknown->len))
        p->unknown = unknown;
    p->depth--;
    return n;
}

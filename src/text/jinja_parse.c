/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_parse: statements of the template language, and what statements and expressions share.
 *
 * The grammar is Jinja2's parser.py with the tags that chat templates use: if, for, set, macro,
 * call, filter, with, print, break, continue, generation, raw (in the lexer). Tags that load other
 * templates or change the escaping (include, import, from, extends, block, autoescape) are refused:
 * a chat template is one file. Nesting of tags is bounded like that of expressions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_int.h"

static void parse_body(struct jj_parser *p, struct jj_nodes *out, const char *const *ends);

struct jj_node *jj_node(struct jj_parser *p, enum jj_kind kind, int line) {
    struct jj_node *n = jj_arena_alloc(&p->t->arena, sizeof *n);
    n->kind = kind;
    n->line = line;
    n->val = jj_none();
    return n;
}

void jj_nodes_push(struct jj_parser *p, struct jj_nodes *l, struct jj_node *n) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        struct jj_node **v = jj_arena_alloc(&p->t->arena, cap * sizeof *v);
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

static uint32_t name_id(struct hr_template *t, const char *s, size_t len) {
    for (size_t i = 0; i < t->n_names; i++)
        if (t->names[i]->len == len && memcmp(t->names[i]->p, s, len) == 0) return (uint32_t)i;
    if (t->n_names == t->cap_names) {
        t->cap_names = t->cap_names ? 2 * t->cap_names : 64;
        t->names = hr_xrealloc(t->names, t->cap_names * sizeof *t->names);
    }
    struct jj_str *name = jj_arena_alloc(&t->arena, sizeof *name);
    char *copy = jj_arena_bytes(&t->arena, len + 1);
    memcpy(copy, s, len);
    copy[len] = 0;
    name->p = copy;
    name->len = len;
    t->names[t->n_names] = name;
    return (uint32_t)t->n_names++;
}

/* Names are looked up one by one, here and in scopes; templates of models have some fifty. */
#define NAMES_MAX 1000

uint32_t jj_parse_name_id(struct jj_parser *p, const struct jj_tok *at) {
    if (p->t->n_names > NAMES_MAX)
        jj_parse_fail(p, at, "the template has more than %d different names", NAMES_MAX);
    return p->st == HR_OK ? name_id(p->t, at->p, at->len) : 0;
}

const struct jj_tok *jj_tok(const struct jj_parser *p, size_t ahead) {
    size_t i = p->i + ahead;
    return &p->toks.v[i < p->toks.n ? i : p->toks.n - 1];
}

bool jj_tok_is_name(const struct jj_tok *t, const char *name) {
    return t->type == JJT_NAME && t->len == strlen(name) && memcmp(t->p, name, t->len) == 0;
}

bool jj_skip_name(struct jj_parser *p, const char *name) {
    if (p->st != HR_OK || !jj_tok_is_name(jj_tok(p, 0), name)) return false;
    p->i++;
    return true;
}

bool jj_skip_op(struct jj_parser *p, int op) {
    const struct jj_tok *t = jj_tok(p, 0);
    if (p->st != HR_OK || t->type != JJT_OP || t->op != op) return false;
    p->i++;
    return true;
}

bool jj_expect_op(struct jj_parser *p, int op, const char *what) {
    if (p->st != HR_OK) return false;
    if (jj_skip_op(p, op)) return true;
    jj_unexpected(p, jj_tok(p, 0), what);
    return false;
}

void jj_parse_fail(struct jj_parser *p, const struct jj_tok *at, const char *fmt, ...) {
    if (p->st != HR_OK) return;
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    p->st = jj_syntax_error(&p->toks, at->at, p->err, "%s", msg);
}

static void describe(const struct jj_tok *t, char out[80]) {
    static const char *const names[] = {
        [JJT_EOF] = "end of template",
        [JJT_DATA] = "template data",
        [JJT_VAR_BEGIN] = "begin of print statement",
        [JJT_VAR_END] = "end of print statement",
        [JJT_BLOCK_BEGIN] = "begin of statement block",
        [JJT_BLOCK_END] = "end of statement block",
    };
    if (t->type < JJT_NAME) {
        snprintf(out, 80, "%s", names[t->type]);
    } else {
        snprintf(out, 80, "%.*s", (int)(t->len < 60 ? t->len : 60), t->p);
    }
}

void jj_unexpected(struct jj_parser *p, const struct jj_tok *t, const char *wanted) {
    char got[80];
    describe(t, got);
    if (wanted) {
        jj_parse_fail(p, t, "expected '%s', got '%s'", wanted, got);
    } else {
        jj_parse_fail(p, t, "unexpected '%s'", got);
    }
}

static void expect_block_end(struct jj_parser *p) {
    if (p->st != HR_OK) return;
    if (jj_tok(p, 0)->type != JJT_BLOCK_END)
        jj_unexpected(p, jj_tok(p, 0), "end of statement block");
    p->i++;
}

/* `%}`, the statements up to one of `ends`, whose name is the current token afterwards. */
static void parse_block(struct jj_parser *p, struct jj_nodes *out, const char *const *ends) {
    jj_skip_op(p, ':');
    expect_block_end(p);
    parse_body(p, out, ends);
    if (p->st != HR_OK || jj_tok(p, 0)->type != JJT_EOF) return;
    char looking[200];
    int n = 0;
    for (size_t i = 0; ends[i]; i++)
        n += snprintf(looking + n, sizeof looking - (size_t)n, "%s'%s'", i ? " or " : "", ends[i]);
    jj_parse_fail(
        p, jj_tok(p, 0),
        "Unexpected end of template. Jinja was looking for the following tags: %s. The innermost "
        "block that needs to be closed is '%s'.",
        looking, p->open[p->n_open - 1]);
}

static void parse_block_to(struct jj_parser *p, struct jj_nodes *out, const char *end) {
    const char *const ends[] = {end, NULL};
    parse_block(p, out, ends);
    p->i++;
}

/* --- targets of assignments */

static bool check_target(struct jj_parser *p, const struct jj_node *n, const struct jj_tok *at) {
    if (n->kind == JJN_NAME || n->kind == JJN_NSREF) return true;
    if (n->kind == JJN_TUPLE) {
        for (size_t i = 0; i < n->list.n; i++)
            if (!check_target(p, n->list.v[i], at)) return false;
        return true;
    }
    const char *kind = n->kind == JJN_CONST ? "const" : n->kind == JJN_LIST ? "list" : "dict";
    jj_parse_fail(p, at, "can't assign to '%s'", kind);
    return false;
}

static struct jj_node *parse_target(struct jj_parser *p, const char *end, bool with_ns) {
    const struct jj_tok *at = jj_tok(p, 0);
    struct jj_node *n = jj_parse_tuple(p, true, false, end, false, with_ns);
    if (p->st == HR_OK) check_target(p, n, at);
    return n;
}

static struct jj_node *parse_name_target(struct jj_parser *p) {
    const struct jj_tok *t = jj_tok(p, 0);
    struct jj_node *n = jj_node(p, JJN_NAME, t->line);
    if (t->type != JJT_NAME) {
        jj_unexpected(p, t, "name");
        return n;
    }
    static const char *const fixed[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (jj_tok_is_name(t, fixed[i])) jj_parse_fail(p, t, "can't assign to 'name'");
    p->i++;
    n->name = jj_parse_name_id(p, t);
    return n;
}

/* --- statements */

/* What opens a scope of its own is no longer "inside an if" (jj_parser.soft); returns what was. */
static int leave_if(struct jj_parser *p) {
    int soft = p->soft;
    p->soft = 0;
    return soft;
}

static struct jj_node *parse_set(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    p->i++;
    struct jj_node *target = parse_target(p, NULL, true);
    struct jj_node *n = jj_node(p, JJN_SET, line);
    n->a = target;
    if (jj_skip_op(p, '=')) {
        n->b = jj_parse_tuple(p, false, true, NULL, false, false);
        return n;
    }
    n->kind = JJN_SETBLOCK;
    int soft = leave_if(p);
    n->b = jj_parse_filters(p, NULL, false);
    parse_block_to(p, &n->list, "endset");
    p->soft = soft;
    return n;
}

static struct jj_node *parse_for(struct jj_parser *p) {
    struct jj_node *n = jj_node(p, JJN_FOR, jj_tok(p, 0)->line);
    p->i++;
    n->a = parse_target(p, "in", false);
    if (!jj_skip_name(p, "in")) {
        jj_unexpected(p, jj_tok(p, 0), "in");
        return n;
    }
    n->b = jj_parse_tuple(p, false, false, "recursive", false, false);
    int soft = leave_if(p);
    if (jj_skip_name(p, "if")) n->c = jj_parse_expression(p, true);
    n->flag = jj_skip_name(p, "recursive");
    static const char *const ends[] = {"endfor", "else", NULL};
    p->loops++;
    parse_block(p, &n->list, ends);
    p->loops--;
    if (p->st == HR_OK && jj_skip_name(p, "else")) {
        parse_block_to(p, &n->list2, "endfor");
    } else {
        p->i++;
    }
    p->soft = soft;
    return n;
}

/* An elif is an if inside its predecessor's else, as a list so that a long chain does not nest:
 * list holds condition nodes (a: test, list: body), list2 the else. */
static struct jj_node *parse_if(struct jj_parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jj_node *n = jj_node(p, JJN_IF, jj_tok(p, 0)->line);
    p->soft++;
    do {
        struct jj_node *branch = jj_node(p, JJN_IF, jj_tok(p, 0)->line);
        p->i++;
        branch->a = jj_parse_tuple(p, false, false, NULL, false, false);
        parse_block(p, &branch->list, ends);
        jj_nodes_push(p, &n->list, branch);
    } while (p->st == HR_OK && jj_tok_is_name(jj_tok(p, 0), "elif"));
    if (p->st == HR_OK && jj_skip_name(p, "else")) {
        parse_block_to(p, &n->list2, "endif");
    } else {
        p->i++;
    }
    p->soft--;
    return n;
}

static void parse_signature(struct jj_parser *p, struct jj_node *n) {
    jj_expect_op(p, '(', "(");
    int soft = leave_if(p);
    while (p->st == HR_OK && !(jj_tok(p, 0)->type == JJT_OP && jj_tok(p, 0)->op == ')')) {
        if (n->list2.n && !jj_expect_op(p, ',', ",")) return;
        struct jj_node *arg = parse_name_target(p);
        if (jj_skip_op(p, '=')) {
            arg->a = jj_parse_expression(p, true);
        } else if (n->list2.n && n->list2.v[n->list2.n - 1]->a) {
            jj_parse_fail(p, jj_tok(p, 0), "non-default argument follows default argument");
        }
        jj_nodes_push(p, &n->list2, arg);
    }
    p->soft = soft;
    jj_expect_op(p, ')', ")");
}

/* The body of a macro is a function of its own: no break out of it, and the names that it uses
 * decide which of caller, kwargs and varargs it takes. */
static void parse_macro_body(struct jj_parser *p, struct jj_node *n, const char *end) {
    if (p->n_macros == p->cap_macros) {
        p->cap_macros = p->cap_macros ? 2 * p->cap_macros : 8;
        p->macros = hr_xrealloc(p->macros, p->cap_macros * sizeof *p->macros);
    }
    p->macros[p->n_macros++] = n;
    int loops = p->loops, soft = leave_if(p);
    p->loops = 0;
    parse_block_to(p, &n->list, end);
    p->loops = loops;
    p->soft = soft;
    p->n_macros--;
}

static struct jj_node *parse_macro(struct jj_parser *p) {
    int line = jj_tok(p, 0)->line;
    p->i++;
    struct jj_node *n = jj_node(p, JJN_MACRO, line);
    struct jj_node *name = parse_name_target(p);
    if (p->st != HR_OK) return n;
    n->name = name->name;
    n->val = (struct jj_val){.type = JJ_STR, .s = p->t->names[n->name]};
    parse_signature(p, n);
    parse_macro_body(p, n, "endmacro");
    return n;
}

static struct jj_node *parse_call_block(struct jj_parser *p) {
    const struct jj_tok *at = jj_tok(p, 0);
    struct jj_node *n = jj_node(p, JJN_CALLBLOCK, at->line);
    p->i++;
    n->name = p->t->id_caller;
    n->val = (struct jj_val){.type = JJ_STR, .s = p->t->names[n->name]};
    if (jj_tok(p, 0)->type == JJT_OP && jj_tok(p, 0)->op == '(') parse_signature(p, n);
    n->a = jj_parse_expression(p, true);
    if (p->st == HR_OK && n->a->kind != JJN_CALL) jj_parse_fail(p, at, "expected call");
    parse_macro_body(p, n, "endcall");
    return n;
}

static struct jj_node *parse_filter_block(struct jj_parser *p) {
    struct jj_node *n = jj_node(p, JJN_FILTERBLOCK, jj_tok(p, 0)->line);
    p->i++;
    int soft = leave_if(p);
    n->b = jj_parse_filters(p, NULL, true);
    parse_block_to(p, &n->list, "endfilter");
    p->soft = soft;
    return n;
}

static struct jj_node *parse_with(struct jj_parser *p) {
    struct jj_node *n = jj_node(p, JJN_WITH, jj_tok(p, 0)->line);
    p->i++;
    while (p->st == HR_OK && jj_tok(p, 0)->type != JJT_BLOCK_END) {
        if (n->list2.n && !jj_expect_op(p, ',', ",")) break;
        struct jj_node *set = jj_node(p, JJN_SET, jj_tok(p, 0)->line);
        set->a = parse_target(p, NULL, false);
        jj_expect_op(p, '=', "=");
        set->b = jj_parse_expression(p, true);
        jj_nodes_push(p, &n->list2, set);
    }
    int soft = leave_if(p);
    parse_block_to(p, &n->list, "endwith");
    p->soft = soft;
    return n;
}

static struct jj_node *parse_generation(struct jj_parser *p) {
    struct jj_node *n = jj_node(p, JJN_SCOPE, jj_tok(p, 0)->line);
    p->i++;
    int loops = p->loops, soft = leave_if(p);
    p->loops = 0; /* a call block of its own in the original */
    parse_block_to(p, &n->list, "endgeneration");
    p->loops = loops;
    p->soft = soft;
    return n;
}

static struct jj_node *parse_jump(struct jj_parser *p, enum jj_kind kind) {
    const struct jj_tok *t = jj_tok(p, 0);
    if (!p->loops)
        jj_parse_fail(p, t, "'%s' outside loop", kind == JJN_BREAK ? "break" : "continue");
    p->i++;
    return jj_node(p, kind, t->line);
}

static void parse_print(struct jj_parser *p, struct jj_nodes *out) {
    p->i++;
    size_t n = 0;
    while (p->st == HR_OK && jj_tok(p, 0)->type != JJT_BLOCK_END) {
        if (n++ && !jj_expect_op(p, ',', ",")) break;
        struct jj_node *o = jj_node(p, JJN_OUTPUT, jj_tok(p, 0)->line);
        o->a = jj_parse_expression(p, true);
        jj_nodes_push(p, out, o);
    }
}

static void parse_statement(struct jj_parser *p, struct jj_nodes *out) {
    static const struct {
        const char *tag;
        struct jj_node *(*parse)(struct jj_parser *p);
    } table[] = {{"if", parse_if},           {"for", parse_for},
                 {"set", parse_set},         {"macro", parse_macro},
                 {"call", parse_call_block}, {"filter", parse_filter_block},
                 {"with", parse_with},       {"generation", parse_generation}};
    static const char *const refused[] = {"include", "import", "from",
                                          "extends", "block",  "autoescape"};
    const struct jj_tok *t = jj_tok(p, 0);
    if (t->type != JJT_NAME) {
        jj_parse_fail(p, t, "tag name expected");
        return;
    }
    if (jj_tok_is_name(t, "print")) {
        parse_print(p, out);
        return;
    }
    if (jj_tok_is_name(t, "break") || jj_tok_is_name(t, "continue")) {
        jj_nodes_push(p, out, parse_jump(p, jj_tok_is_name(t, "break") ? JJN_BREAK : JJN_CONTINUE));
        return;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (jj_tok_is_name(t, refused[i]))
            jj_parse_fail(p, t, "the tag '%s' is not supported", refused[i]);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!jj_tok_is_name(t, table[i].tag)) continue;
        if (p->n_open == (int)(sizeof p->open / sizeof *p->open)) {
            jj_parse_fail(p, t, "tags nest deeper than %d levels", p->n_open);
            return;
        }
        p->open[p->n_open++] = table[i].tag;
        jj_nodes_push(p, out, table[i].parse(p));
        p->n_open--;
        return;
    }
    if (p->n_open) {
        jj_parse_fail(
            p, t,
            "Encountered unknown tag '%.*s'. The innermost block that needs to be closed is "
            "'%s'.",
            (int)(t->len < 60 ? t->len : 60), t->p, p->open[p->n_open - 1]);
    } else {
        jj_parse_fail(p, t, "Encountered unknown tag '%.*s'.", (int)(t->len < 60 ? t->len : 60),
                      t->p);
    }
}

static struct jj_node *parse_data(struct jj_parser *p) {
    const struct jj_tok *t = jj_tok(p, 0);
    struct jj_node *n = jj_node(p, JJN_DATA, t->line);
    struct jj_str *s = jj_arena_alloc(&p->t->arena, sizeof *s);
    char *bytes = jj_arena_bytes(&p->t->arena, t->len);
    memcpy(bytes, t->p, t->len);
    s->p = bytes;
    s->len = t->len;
    n->val = (struct jj_val){.type = JJ_STR, .s = s};
    p->i++;
    return n;
}

static bool is_end(const struct jj_tok *t, const char *const *ends) {
    for (size_t i = 0; ends && ends[i]; i++)
        if (jj_tok_is_name(t, ends[i])) return true;
    return false;
}

static void parse_body(struct jj_parser *p, struct jj_nodes *out, const char *const *ends) {
    while (p->st == HR_OK) {
        const struct jj_tok *t = jj_tok(p, 0);
        if (t->type == JJT_EOF) return;
        if (t->type == JJT_DATA) {
            jj_nodes_push(p, out, parse_data(p));
        } else if (t->type == JJT_VAR_BEGIN) {
            p->i++;
            struct jj_node *n = jj_node(p, JJN_OUTPUT, t->line);
            n->a = jj_parse_tuple(p, false, true, NULL, false, false);
            jj_nodes_push(p, out, n);
            if (p->st == HR_OK && jj_tok(p, 0)->type != JJT_VAR_END)
                jj_unexpected(p, jj_tok(p, 0), "end of print statement");
            p->i++;
        } else {
            p->i++; /* {% */
            if (is_end(jj_tok(p, 0), ends)) return;
            parse_statement(p, out);
            expect_block_end(p);
        }
        if (p->unknown) {
            t = p->unknown;
            bool known = jj_filter_known(t->p, t->len);
            jj_parse_fail(p, t, known ? "the %s '%.*s' is not supported" : "No %s named '%.*s'.",
                          p->unknown_is_test ? "test" : "filter", (int)t->len, t->p);
        }
    }
}

enum hr_status jj_parse(struct hr_template *t, const char *source, size_t len, struct hr_err *err) {
    struct jj_parser p = {.t = t, .err = err};
    enum hr_status st = jj_lex(&t->arena, source, len, &p.toks, err);
    if (st != HR_OK) return st;
    t->id_loop = name_id(t, "loop", 4);
    t->id_caller = name_id(t, "caller", 6);
    t->id_kwargs = name_id(t, "kwargs", 6);
    t->id_varargs = name_id(t, "varargs", 7);
    parse_body(&p, &t->body, NULL);
    jj_tokens_finish(&p.toks);
    free(p.macros);
    return p.st;
}

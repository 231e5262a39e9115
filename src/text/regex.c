/* SPDX-License-Identifier: Apache-2.0
 *
 * regex: the compiler: pattern to tree to code.
 *
 * Syntax and meaning are Oniguruma's (Ruby): ^ and $ are line anchors, dot is all but newline, \s
 * \d \w and \p{..} are Unicode, && intersects classes. Letters under (?i:) are ASCII; their only
 * partners outside it are U+017F and U+212A (CaseFolding.txt, status C). Refused by name:
 * back-references, named groups, conditionals, POSIX brackets, look-behind of more than one
 * character, a loop around something that can be empty. Source: Oniguruma doc/RE, version 6.9. */
#include "text/regex_int.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

enum { CODE_MAX = 20000, NODES_MAX = 4000, SETS_MAX = 100, NEST_MAX = 32, COUNT_MAX = 1000 };

enum node_kind { EMPTY, CHAR, SET, CAT, ALT, REPEAT, LOOK, BEHIND, ATOMIC, ANCHOR };

struct node {
    uint8_t kind, mode, op;
    bool negated;
    int16_t set;
    uint32_t cp[3];
    uint32_t min, max;
    int child, next; /* of CAT, ALT, REPEAT, LOOK, ATOMIC; siblings; -1: none */
};

struct compiler {
    const char *p;
    size_t len, i;
    int depth;
    bool fold; /* inside (?i) */
    struct hr_regex *re;
    struct node *nodes;
    int n_nodes;
    struct hr_err *err;
    bool failed;
};

static int refuse(struct compiler *c, const char *what) {
    if (!c->failed) {
        hr_err_set(c->err, HR_ERR_UNSUPPORTED, "regular expression, byte %zu: %s is not supported",
                   c->i, what);
    }
    c->failed = true;
    return -1;
}

static int new_node(struct compiler *c, enum node_kind kind) {
    if (c->n_nodes == NODES_MAX) return refuse(c, "a pattern of this length");
    c->nodes[c->n_nodes] = (struct node){.kind = (uint8_t)kind, .set = -1, .child = -1, .next = -1};
    return c->n_nodes++;
}

static int new_set(struct compiler *c) {
    struct hr_regex *re = c->re;
    if (re->n_sets == SETS_MAX) return refuse(c, "a pattern with so many classes");
    if (re->n_sets == re->cap_sets) {
        re->cap_sets = re->cap_sets ? re->cap_sets * 2 : 8;
        re->sets = hr_xrealloc(re->sets, (size_t)re->cap_sets * sizeof *re->sets);
    }
    re->sets[re->n_sets] = hr_xcalloc(1, sizeof **re->sets);
    return re->n_sets++;
}

static void set_add(struct hr_rx_set *s, uint32_t a, uint32_t b) {
    for (uint32_t cp = a; cp <= b && cp < 0x110000; cp++)
        s->bits[cp >> 6] |= (uint64_t)1 << (cp & 63);
}

static void set_negate(struct hr_rx_set *s) {
    for (int i = 0; i < HR_RX_WORDS; i++) s->bits[i] = ~s->bits[i];
}

static void set_or(struct hr_rx_set *s, const struct hr_rx_set *t) {
    for (int i = 0; i < HR_RX_WORDS; i++) s->bits[i] |= t->bits[i];
}

static void set_and(struct hr_rx_set *s, const struct hr_rx_set *t) {
    for (int i = 0; i < HR_RX_WORDS; i++) s->bits[i] &= t->bits[i];
}

static bool at(const struct compiler *c, const char *s) {
    size_t n = strlen(s);
    return c->len - c->i >= n && memcmp(c->p + c->i, s, n) == 0;
}

static bool take(struct compiler *c, const char *s) {
    if (!at(c, s)) return false;
    c->i += strlen(s);
    return true;
}

static const char *const cat_names[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                        "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                        "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"};
enum { N_CATS = sizeof cat_names / sizeof *cat_names };

static void add_categories(struct hr_rx_set *s, uint32_t mask) {
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (mask >> hr_uni_cat(cp) & 1) s->bits[cp >> 6] |= (uint64_t)1 << (cp & 63);
    }
}

static void add_where(struct hr_rx_set *s, bool (*is)(uint32_t cp)) {
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (is(cp)) s->bits[cp >> 6] |= (uint64_t)1 << (cp & 63);
    }
}

static bool is_space(uint32_t cp) {
    return hr_uni_is_space(cp);
}

/* The inside of \p{...}. */
static bool add_property(struct compiler *c, struct hr_rx_set *s, const char *name, size_t n) {
    uint32_t mask = 0;
    for (int k = 0; k < N_CATS; k++) {
        if ((n == 1 || n == 2) && strncmp(cat_names[k], name, n) == 0) mask |= 1u << k;
    }
    if (n == 3 && strncmp(name, "Han", 3) == 0)
        add_where(s, hr_uni_is_han);
    else if (mask)
        add_categories(s, mask);
    else
        refuse(c, "this \\p property");
    return !c->failed;
}

static bool add_class_letter(struct compiler *c, struct hr_rx_set *s, char letter) {
    switch (letter) {
    case 's':
        add_where(s, is_space);
        break;
    case 'd':
        add_categories(s, 1u << HR_ND);
        break;
    case 'w':
        add_where(s, hr_uni_is_word);
        break;
    default:
        refuse(c, "this escape");
        break;
    }
    return !c->failed;
}

static bool hex(struct compiler *c, int n_min, int n_max, uint32_t *cp) {
    int n = 0;
    *cp = 0;
    for (; n < n_max && c->i < c->len; n++, c->i++) {
        char ch = c->p[c->i], low = (char)(ch | 0x20);
        if (ch >= '0' && ch <= '9')
            *cp = *cp * 16 + (uint32_t)(ch - '0');
        else if (low >= 'a' && low <= 'f')
            *cp = *cp * 16 + (uint32_t)(low - 'a' + 10);
        else
            break;
    }
    if (n < n_min || *cp > 0x10ffff) refuse(c, "this hexadecimal escape");
    return !c->failed;
}

/* After a backslash: a literal character into *cp, or a class (or its complement) into *s when s is
 * there. Returns 1 for a character, 2 for a class, 0 for failure. */
static int parse_escape(struct compiler *c, struct hr_rx_set *s, uint32_t *cp) {
    static const char from[] = "ntrfvae0", to[] = "\n\t\r\f\v\a\x1b";
    if (c->i == c->len) return refuse(c, "a trailing backslash"), 0;
    char ch = c->p[c->i];
    const char *simple = ch ? strchr(from, ch) : NULL;
    if (simple) {
        c->i++;
        *cp = (unsigned char)to[simple - from];
        return 1;
    }
    if (ch == 'x' || ch == 'u') {
        c->i++;
        if (ch == 'x' && take(c, "{")) {
            if (!hex(c, 1, 8, cp)) return 0;
            return take(c, "}") ? 1 : (refuse(c, "this hexadecimal escape"), 0);
        }
        return hex(c, ch == 'x' ? 1 : 4, ch == 'x' ? 2 : 4, cp);
    }
    if (strchr("sdwSDWpP", ch)) {
        c->i++;
        bool negate = ch == 'S' || ch == 'D' || ch == 'W' || ch == 'P';
        if (ch == 'p' || ch == 'P') {
            if (!take(c, "{")) return refuse(c, "\\p without braces"), 0;
            if (take(c, "^")) negate = !negate;
            const char *end = memchr(c->p + c->i, '}', c->len - c->i);
            if (!end) return refuse(c, "an unclosed \\p{"), 0;
            size_t n = (size_t)(end - (c->p + c->i));
            if (!add_property(c, s, c->p + c->i, n)) return 0;
            c->i += n + 1;
        } else if (!add_class_letter(c, s, (char)(ch | 0x20))) {
            return 0;
        }
        if (negate) set_negate(s);
        return 2;
    }
    if ((unsigned char)ch < 0x80 && !hr_uni_is_punct((unsigned char)ch) && ch != ' ') {
        return refuse(c, "this escape"), 0;
    }
    int n;
    *cp = hr_utf8_get(c->p + c->i, &n);
    c->i += (size_t)n;
    return 1;
}

static bool is_ascii_letter(uint32_t cp) {
    return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
}

/* One member of a class: a character, a range, an escape. Adds to s; tmp is scratch. */
static void parse_member(struct compiler *c, struct hr_rx_set *s, struct hr_rx_set *tmp) {
    uint32_t a, b;
    int n, kind = 1;
    if (at(c, "[:")) {
        refuse(c, "a POSIX bracket");
        return;
    }
    if (take(c, "\\")) {
        memset(tmp, 0, sizeof *tmp);
        kind = parse_escape(c, tmp, &a);
        if (kind == 2) set_or(s, tmp);
        if (kind != 1) return;
    } else {
        a = hr_utf8_get(c->p + c->i, &n);
        c->i += (size_t)n;
    }
    b = a;
    if (at(c, "-") && !at(c, "-]") && c->i + 1 < c->len) {
        c->i++;
        if (take(c, "\\")) {
            if (parse_escape(c, tmp, &b) != 1) {
                refuse(c, "a range that ends in a class");
                return;
            }
        } else {
            b = hr_utf8_get(c->p + c->i, &n);
            c->i += (size_t)n;
        }
        if (b < a) {
            refuse(c, "an empty range");
            return;
        }
    }
    if (c->fold && (a != b || is_ascii_letter(a) || a >= 0x80)) {
        refuse(c, "a class of letters under (?i)");
        return;
    }
    set_add(s, a, b);
}

/* After "[": up to its "]", into s. */
static void parse_class(struct compiler *c, struct hr_rx_set *s) {
    struct hr_rx_set *part = hr_xcalloc(1, sizeof *part), *tmp = hr_xcalloc(1, sizeof *tmp);
    bool negate = take(c, "^"), first = true, some_and = false;
    if (++c->depth > NEST_MAX) refuse(c, "nesting this deep");
    memset(s, 0, sizeof *s);
    while (!c->failed) {
        if (c->i == c->len) {
            refuse(c, "an unclosed class");
        } else if (!first && take(c, "]")) {
            break;
        } else if (take(c, "&&")) {
            if (some_and)
                set_and(s, part);
            else
                memcpy(s, part, sizeof *s);
            some_and = true;
            memset(part, 0, sizeof *part);
        } else if (at(c, "[") && !at(c, "[:")) {
            c->i++;
            parse_class(c, tmp);
            set_or(part, tmp);
        } else {
            parse_member(c, part, tmp);
        }
        first = false;
    }
    if (some_and)
        set_and(s, part);
    else
        memcpy(s, part, sizeof *s);
    if (negate) set_negate(s);
    c->depth--;
    free(part);
    free(tmp);
}

static int char_node(struct compiler *c, uint32_t cp) {
    int n = new_node(c, CHAR);
    if (n < 0) return n;
    struct node *v = &c->nodes[n];
    v->cp[0] = v->cp[1] = v->cp[2] = cp;
    if (!c->fold) return n;
    if (cp >= 0x80) return refuse(c, "a character beyond ASCII under (?i)");
    if (is_ascii_letter(cp)) {
        v->cp[0] = cp | 0x20;
        v->cp[1] = v->cp[2] = cp & ~0x20u;
        if (v->cp[0] == 's') v->cp[2] = 0x17f;
        if (v->cp[0] == 'k') v->cp[2] = 0x212a;
    }
    return n;
}

static int set_node(struct compiler *c, int set) {
    int n = set < 0 ? -1 : new_node(c, SET);
    if (n >= 0) c->nodes[n].set = (int16_t)set;
    return n;
}

static int anchor_node(struct compiler *c, enum hr_rx_op op, bool negated) {
    int n = new_node(c, ANCHOR);
    if (n < 0) return n;
    c->nodes[n].op = (uint8_t)op;
    c->nodes[n].negated = negated;
    return n;
}

static int parse_alternatives(struct compiler *c);

static int wrap(struct compiler *c, enum node_kind kind, bool negated) {
    int child = parse_alternatives(c);
    if (child < 0) return child;
    if (!take(c, ")")) return refuse(c, "an unclosed group");
    if (kind == BEHIND) {
        struct node *v = &c->nodes[child];
        if (v->kind != CHAR && v->kind != SET)
            return refuse(c, "look-behind of more than a character");
    }
    int n = new_node(c, kind);
    if (n < 0) return n;
    c->nodes[n].negated = negated;
    c->nodes[n].child = child;
    return n;
}

/* After "(". */
static int parse_group(struct compiler *c) {
    bool fold = c->fold;
    int n;
    if (++c->depth > NEST_MAX) return refuse(c, "nesting this deep");
    if (take(c, "?="))
        n = wrap(c, LOOK, false);
    else if (take(c, "?!"))
        n = wrap(c, LOOK, true);
    else if (take(c, "?<="))
        n = wrap(c, BEHIND, false);
    else if (take(c, "?<!"))
        n = wrap(c, BEHIND, true);
    else if (take(c, "?>"))
        n = wrap(c, ATOMIC, false);
    else {
        if (take(c, "?i:"))
            c->fold = true;
        else if (take(c, "?-i:"))
            c->fold = false;
        else if (at(c, "?") && !at(c, "?:"))
            return refuse(c, "this kind of group");
        else
            take(c, "?:");
        n = parse_alternatives(c);
        if (n >= 0 && !take(c, ")")) n = refuse(c, "an unclosed group");
    }
    c->fold = fold;
    c->depth--;
    return n;
}

static int parse_escaped_atom(struct compiler *c) {
    if (take(c, "A")) return anchor_node(c, HR_RX_TEXT_BEGIN, false);
    if (take(c, "z")) return anchor_node(c, HR_RX_TEXT_END, false);
    if (take(c, "Z")) return anchor_node(c, HR_RX_TEXT_END_NL, false);
    if (take(c, "b")) return anchor_node(c, HR_RX_WORD_EDGE, false);
    if (take(c, "B")) return anchor_node(c, HR_RX_WORD_EDGE, true);
    uint32_t cp;
    int set = c->i < c->len && strchr("sdwSDWpP", c->p[c->i]) ? new_set(c) : -1;
    if (c->failed) return -1;
    int kind = parse_escape(c, set < 0 ? NULL : c->re->sets[set], &cp);
    if (kind == 0) return -1;
    return kind == 1 ? char_node(c, cp) : set_node(c, set);
}

static int parse_atom(struct compiler *c) {
    if (take(c, "(")) return parse_group(c);
    if (take(c, "^")) return anchor_node(c, HR_RX_LINE_BEGIN, false);
    if (take(c, "$")) return anchor_node(c, HR_RX_LINE_END, false);
    if (take(c, "\\")) return parse_escaped_atom(c);
    if (take(c, "[")) {
        int set = new_set(c);
        if (set >= 0) parse_class(c, c->re->sets[set]);
        return c->failed ? -1 : set_node(c, set);
    }
    if (take(c, ".")) {
        int set = new_set(c);
        if (set < 0) return set;
        set_add(c->re->sets[set], '\n', '\n');
        set_negate(c->re->sets[set]);
        return set_node(c, set);
    }
    if (at(c, "*") || at(c, "+") || at(c, "?")) return refuse(c, "a count of nothing");
    int n;
    uint32_t cp = hr_utf8_get(c->p + c->i, &n);
    c->i += (size_t)n;
    return char_node(c, cp);
}

/* {n}, {n,}, {,m}, {n,m}; anything else is a literal brace, and *is is false. */
static void parse_braces(struct compiler *c, uint32_t *min, uint32_t *max, bool *is) {
    size_t i = c->i + 1;
    uint32_t v[2] = {0, UINT32_MAX};
    int n_digits[2] = {0, 0}, k = 0;
    for (; i < c->len && c->p[i] != '}'; i++) {
        char ch = c->p[i];
        if (ch == ',' && k == 0) {
            k = 1;
        } else if (ch >= '0' && ch <= '9' && n_digits[k] < 5) {
            v[k] = (n_digits[k]++ ? v[k] * 10 : 0) + (uint32_t)(ch - '0');
        } else {
            return;
        }
    }
    if (i == c->len || n_digits[0] + n_digits[1] == 0) return;
    *is = true;
    *min = v[0];
    *max = k == 0 ? v[0] : v[1];
    c->i = i + 1;
    bool finite = *max != UINT32_MAX;
    if (*min > COUNT_MAX || (finite && (*max > COUNT_MAX || *max < *min))) refuse(c, "this count");
    if (at(c, "+")) refuse(c, "a count of a count");
}

/* Can the node match nothing? Also collects where it can begin into `first` (may be NULL). */
static bool nullable(const struct compiler *c, int n, struct hr_rx_set *first) {
    const struct node *v = &c->nodes[n];
    bool any = false;
    switch ((enum node_kind)v->kind) {
    case CHAR:
        if (first)
            for (int k = 0; k < 3; k++) set_add(first, v->cp[k], v->cp[k]);
        return false;
    case SET:
        if (first) set_or(first, c->re->sets[v->set]);
        return false;
    case CAT:
        for (int k = v->child; k >= 0; k = c->nodes[k].next) {
            if (!nullable(c, k, first)) return false;
        }
        return true;
    case ALT:
        for (int k = v->child; k >= 0; k = c->nodes[k].next) any |= nullable(c, k, first);
        return any;
    case REPEAT:
        return nullable(c, v->child, first) || v->min == 0;
    case ATOMIC:
        return nullable(c, v->child, first);
    case EMPTY:
    case LOOK:
    case BEHIND:
    case ANCHOR:
        return true;
    }
    return true;
}

static int parse_counted(struct compiler *c) {
    int n = parse_atom(c);
    while (n >= 0 && c->i < c->len) {
        uint32_t min = 0, max = UINT32_MAX;
        bool is = false, braces = at(c, "{");
        if (take(c, "*"))
            is = true;
        else if (take(c, "+"))
            is = true, min = 1;
        else if (take(c, "?"))
            is = true, max = 1;
        else if (braces)
            parse_braces(c, &min, &max, &is);
        if (!is) break;
        enum hr_rx_mode mode = HR_RX_GREEDY;
        if (take(c, "?"))
            mode = HR_RX_LAZY;
        else if (!braces && take(c, "+"))
            mode = HR_RX_POSSESSIVE;
        if (!c->failed && max == UINT32_MAX && nullable(c, n, NULL)) {
            return refuse(c, "a loop around something that can be empty");
        }
        int r = c->failed ? -1 : new_node(c, REPEAT);
        if (r < 0) return r;
        c->nodes[r].child = n;
        c->nodes[r].min = min;
        c->nodes[r].max = max;
        c->nodes[r].mode = (uint8_t)mode;
        n = r;
    }
    return n;
}

static int parse_sequence(struct compiler *c) {
    int list = -1, last = -1, n_items = 0;
    while (!c->failed && c->i < c->len && !at(c, "|") && !at(c, ")")) {
        int n = parse_counted(c);
        if (n < 0) return n;
        if (last < 0)
            list = n;
        else
            c->nodes[last].next = n;
        last = n;
        n_items++;
    }
    if (n_items == 1) return list;
    int n = new_node(c, n_items ? CAT : EMPTY);
    if (n >= 0) c->nodes[n].child = list;
    return n;
}

static int parse_alternatives(struct compiler *c) {
    int first = parse_sequence(c), last = first;
    if (first < 0 || !at(c, "|")) return first;
    while (take(c, "|")) {
        int n = parse_sequence(c);
        if (n < 0) return n;
        c->nodes[last].next = n;
        last = n;
    }
    int n = new_node(c, ALT);
    if (n >= 0) c->nodes[n].child = first;
    return n;
}

static int emit(struct compiler *c, struct hr_rx_inst inst) {
    struct hr_regex *re = c->re;
    if (re->n_code == CODE_MAX) return refuse(c, "a pattern that unrolls to this length");
    if (re->n_code == re->cap_code) {
        re->cap_code = re->cap_code ? re->cap_code * 2 : 64;
        re->code = hr_xrealloc(re->code, (size_t)re->cap_code * sizeof *re->code);
    }
    re->code[re->n_code] = inst;
    return re->n_code++;
}

static struct hr_rx_inst leaf(const struct node *v, enum hr_rx_op op) {
    return (struct hr_rx_inst){
        .op = (uint8_t)op, .set = v->set, .cp = {v->cp[0], v->cp[1], v->cp[2]}};
}

static void emit_node(struct compiler *c, int n);

static void emit_repeat(struct compiler *c, const struct node *v) {
    const struct node *child = &c->nodes[v->child];
    if (child->kind == CHAR || child->kind == SET) {
        struct hr_rx_inst loop = leaf(child, HR_RX_LOOP);
        loop.min = v->min;
        loop.max = v->max;
        loop.mode = v->mode;
        emit(c, loop);
        return;
    }
    int atomic =
        v->mode == HR_RX_POSSESSIVE ? emit(c, (struct hr_rx_inst){.op = HR_RX_ATOMIC}) : -1;
    for (uint32_t k = 0; k < v->min && !c->failed; k++) emit_node(c, v->child);
    uint32_t n_more = v->max == UINT32_MAX ? 1 : v->max - v->min;
    int first = c->re->n_code;
    for (uint32_t k = 0; k < n_more && !c->failed; k++) {
        emit(c, (struct hr_rx_inst){.op = HR_RX_SPLIT, .y = -1});
        emit_node(c, v->child);
    }
    if (v->max == UINT32_MAX) emit(c, (struct hr_rx_inst){.op = HR_RX_JUMP, .x = first});
    /* Every split of this repeat that has no target yet leaves to here. */
    for (int i = first; i < c->re->n_code && !c->failed; i++) {
        struct hr_rx_inst *in = &c->re->code[i];
        if (in->op != HR_RX_SPLIT || in->y != -1) continue;
        in->x = v->mode == HR_RX_LAZY ? c->re->n_code : i + 1;
        in->y = v->mode == HR_RX_LAZY ? i + 1 : c->re->n_code;
    }
    if (atomic >= 0 && !c->failed) {
        emit(c, (struct hr_rx_inst){.op = HR_RX_MATCH});
        c->re->code[atomic].x = c->re->n_code;
    }
}

static void emit_alternatives(struct compiler *c, const struct node *v) {
    int jumps = -1; /* chained through x until the end is known */
    for (int k = v->child; k >= 0 && !c->failed; k = c->nodes[k].next) {
        if (c->nodes[k].next < 0) {
            emit_node(c, k);
            break;
        }
        int split = emit(c, (struct hr_rx_inst){.op = HR_RX_SPLIT});
        emit_node(c, k);
        int jump = emit(c, (struct hr_rx_inst){.op = HR_RX_JUMP, .x = jumps});
        if (c->failed) return;
        jumps = jump;
        c->re->code[split].x = split + 1;
        c->re->code[split].y = c->re->n_code;
    }
    while (jumps >= 0 && !c->failed) {
        int next = c->re->code[jumps].x;
        c->re->code[jumps].x = c->re->n_code;
        jumps = next;
    }
}

static void emit_node(struct compiler *c, int n) {
    const struct node *v = &c->nodes[n];
    switch ((enum node_kind)v->kind) {
    case EMPTY:
        break;
    case CHAR:
        emit(c, leaf(v, HR_RX_CHAR));
        break;
    case SET:
        emit(c, leaf(v, HR_RX_SET));
        break;
    case CAT:
        for (int k = v->child; k >= 0 && !c->failed; k = c->nodes[k].next) emit_node(c, k);
        break;
    case ALT:
        emit_alternatives(c, v);
        break;
    case REPEAT:
        emit_repeat(c, v);
        break;
    case ANCHOR:
        emit(c, (struct hr_rx_inst){.op = v->op, .y = v->negated});
        break;
    case BEHIND: {
        struct hr_rx_inst in = leaf(&c->nodes[v->child], HR_RX_BEHIND);
        in.y = v->negated;
        emit(c, in);
        break;
    }
    case LOOK:
    case ATOMIC: {
        enum hr_rx_op op = v->kind == LOOK ? HR_RX_LOOK : HR_RX_ATOMIC;
        int head = emit(c, (struct hr_rx_inst){.op = (uint8_t)op, .y = v->negated});
        emit_node(c, v->child);
        emit(c, (struct hr_rx_inst){.op = HR_RX_MATCH});
        if (!c->failed) c->re->code[head].x = c->re->n_code;
        break;
    }
    }
}

enum hr_status hr_regex_compile(const char *pattern, size_t len, struct hr_regex **out,
                                struct hr_err *err) {
    struct compiler c = {.p = pattern, .len = len, .err = err};
    c.re = hr_xcalloc(1, sizeof *c.re);
    c.nodes = hr_xcalloc(NODES_MAX, sizeof *c.nodes);
    int root = parse_alternatives(&c);
    if (root >= 0 && c.i < len) root = refuse(&c, "an unmatched bracket");
    if (root >= 0) {
        emit_node(&c, root);
        emit(&c, (struct hr_rx_inst){.op = HR_RX_MATCH});
    }
    if (root >= 0 && !c.failed) {
        c.re->first = hr_xcalloc(1, sizeof *c.re->first);
        if (nullable(&c, root, c.re->first)) {
            free(c.re->first);
            c.re->first = NULL;
        }
    }
    free(c.nodes);
    if (c.failed) {
        hr_regex_destroy(&c.re);
        return HR_ERR_UNSUPPORTED;
    }
    *out = c.re;
    return HR_OK;
}

void hr_regex_destroy(struct hr_regex **re) {
    if (!*re) return;
    for (int i = 0; i < (*re)->n_sets; i++) free((*re)->sets[i]);
    free((*re)->sets);
    free((*re)->code);
    free((*re)->first);
    free(*re);
    *re = NULL;
}

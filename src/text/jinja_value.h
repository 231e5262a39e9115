/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_value: values of the template interpreter and the arenas that they live in. Private to the
 * room.
 *
 * A value is sixteen bytes: a type and a number or a pointer into an arena. What it points at never
 * changes, but for namespaces, generators, cyclers and loops. */
#ifndef HR_TEXT_JINJA_VALUE_H
#define HR_TEXT_JINJA_VALUE_H

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

#endif

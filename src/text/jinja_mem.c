/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_mem: the arenas of the template interpreter, and the counting of a render against its
 * limits.
 *
 * A block is never moved or freed before its arena ends, so a pointer into it stays good. A request
 * that does not fit gets a new block of at least twice its size, so that the text under
 * construction can usually grow in place (jj_arena_extend). */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_int.h"

/* Small enough that a short prompt costs little, large enough that malloc is rare. */
#define BLOCK_BYTES ((size_t)32 << 10)

struct jj_block {
    struct jj_block *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

static char *take(struct jj_arena *a, size_t n, size_t align) {
    struct jj_block *b = a->head;
    if (b) {
        size_t at = (b->used + align - 1) & ~(align - 1);
        if (at <= b->cap && b->cap - at >= n) {
            b->used = at + n;
            return b->data + at;
        }
    }
    size_t cap = 2 * n > BLOCK_BYTES ? 2 * n : BLOCK_BYTES;
    b = hr_xmalloc(sizeof *b + cap);
    b->next = a->head;
    b->used = n;
    b->cap = cap;
    a->head = b;
    a->held += cap;
    return b->data;
}

void *jj_arena_alloc(struct jj_arena *a, size_t n) {
    return memset(take(a, n, 16), 0, n);
}

char *jj_arena_bytes(struct jj_arena *a, size_t n) {
    return take(a, n, 1);
}

bool jj_arena_extend(struct jj_arena *a, const char *end, size_t n) {
    struct jj_block *b = a->head;
    if (!b || end != b->data + b->used || b->cap - b->used < n) return false;
    b->used += n;
    return true;
}

void jj_arena_finish(struct jj_arena *a) {
    while (a->head) {
        struct jj_block *next = a->head->next;
        free(a->head);
        a->head = next;
    }
    a->held = 0;
}

static struct jj_val fail_with(struct jj_run *r, enum hr_status st, const char *fmt, va_list ap) {
    if (r->st != HR_OK) return jj_undef();
    char msg[sizeof r->err->msg];
    vsnprintf(msg, sizeof msg, fmt, ap);
    r->st = r->line ? hr_err_set(r->err, st, "line %d: %s", r->line, msg)
                    : hr_err_set(r->err, st, "%s", msg);
    return jj_undef();
}

struct jj_val jj_fail(struct jj_run *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    struct jj_val v = fail_with(r, HR_ERR_FORMAT, fmt, ap);
    va_end(ap);
    return v;
}

struct jj_val jj_fail_limit(struct jj_run *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    struct jj_val v = fail_with(r, HR_ERR_LIMIT, fmt, ap);
    va_end(ap);
    return v;
}

static void check_memory(struct jj_run *r, double more) {
    if ((double)r->cells.held + (double)r->bytes.held + more > (double)r->lim.memory_max)
        (void)jj_fail_limit(r, "the template needs more than %zu bytes of memory",
                            r->lim.memory_max);
}

void *jj_alloc(struct jj_run *r, size_t n) {
    void *p = jj_arena_alloc(&r->cells, n);
    check_memory(r, 0);
    return p;
}

bool jj_room(struct jj_run *r, double n) {
    check_memory(r, n);
    return r->st == HR_OK;
}

bool jj_work(struct jj_run *r, size_t n, unsigned price) {
    if (r->st != HR_OK) return false;
    r->work += (uint64_t)n * price; /* n is a size in memory, so this cannot wrap */
    if (r->work / JJ_STEP > r->lim.steps_max)
        (void)jj_fail_limit(r, "the template takes more than %zu steps", r->lim.steps_max);
    return r->st == HR_OK;
}

bool jj_step(struct jj_run *r) {
    return jj_work(r, 1, JJ_STEP);
}

void jj_work_float(struct jj_run *r, double f) {
    int exponent = 0;
    (void)frexp(f, &exponent);
    (void)jj_work(r, 8 * JJ_STEP + 10 * (size_t)abs(exponent), 1);
}

bool jj_enter(struct jj_run *r) {
    if (!jj_step(r)) return false;
    if (r->depth >= r->lim.depth_max) {
        (void)jj_fail_limit(r, "the template nests deeper than %d levels", r->lim.depth_max);
        return false;
    }
    r->depth++;
    return true;
}

void jj_leave(struct jj_run *r) {
    r->depth--;
}

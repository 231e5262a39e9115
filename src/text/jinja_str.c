/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_str: strings of the template interpreter: building, cutting, searching.
 *
 * A string is bytes that never change plus the spans of them that a user wrote. Every operation is
 * made of two: appending part of a string to a builder, and cutting a part out, and both carry the
 * spans along. A string without marks costs nothing extra. */
#include <string.h>

#include "text/jinja_int.h"

/* --- builder */

static bool grow(struct jj_sb *sb, size_t n) {
    struct jj_run *r = sb->run;
    if (!jj_work(r, n + JJ_ITEM, JJ_BYTE)) return false;
    if (sb->cap - sb->len >= n) return true;
    if (!jj_room(r, (double)n)) return false;
    size_t more = n > sb->cap ? n : sb->cap;
    if (sb->p && jj_arena_extend(&r->bytes, sb->p + sb->cap, n)) {
        sb->cap += n;
        return true;
    }
    char *p = jj_arena_bytes(&r->bytes, sb->len + n + more);
    if (!jj_work(r, sb->len, JJ_BYTE)) return false;
    if (sb->len) memcpy(p, sb->p, sb->len);
    sb->p = p;
    sb->cap = sb->len + n + more;
    return true;
}

static void mark(struct jj_sb *sb, size_t begin, size_t end) {
    if (begin >= end || !jj_work(sb->run, 1, JJ_ITEM)) return;
    if (sb->n_spans && sb->spans[sb->n_spans - 1].end == begin) {
        sb->spans[sb->n_spans - 1].end = end;
        return;
    }
    if (sb->n_spans == sb->cap_spans) {
        uint32_t cap = sb->cap_spans ? 2 * sb->cap_spans : 2;
        struct hr_span *v = jj_alloc(sb->run, cap * sizeof *v);
        if (sb->n_spans) memcpy(v, sb->spans, sb->n_spans * sizeof *v);
        sb->spans = v;
        sb->cap_spans = cap;
    }
    sb->spans[sb->n_spans++] = (struct hr_span){begin, end};
}

void jj_sb_put(struct jj_sb *sb, const char *p, size_t n) {
    if (n == 0 || !grow(sb, n)) return;
    memcpy(sb->p + sb->len, p, n);
    sb->len += n;
}

void jj_sb_puts(struct jj_sb *sb, const char *s) {
    jj_sb_put(sb, s, strlen(s));
}

void jj_sb_fill(struct jj_sb *sb, const char *p, size_t n, int64_t times) {
    if (times <= 0 || n == 0 || !jj_room(sb->run, (double)times * (double)n)) return;
    for (int64_t i = 0; i < times && sb->run->st == HR_OK; i++) jj_sb_put(sb, p, n);
}

/* The first span that ends behind `at`. */
static uint32_t span_at(const struct jj_str *s, size_t at) {
    uint32_t lo = 0, hi = s->n_spans;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->spans[mid].end <= at) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

void jj_sb_sub(struct jj_sb *sb, const struct jj_str *s, size_t from, size_t to) {
    if (from >= to) return;
    size_t base = sb->len;
    jj_sb_put(sb, s->p + from, to - from);
    if (sb->len == base) return; /* the run has failed */
    for (uint32_t i = span_at(s, from); i < s->n_spans && s->spans[i].begin < to; i++) {
        size_t b = s->spans[i].begin > from ? s->spans[i].begin : from;
        size_t e = s->spans[i].end < to ? s->spans[i].end : to;
        mark(sb, base + b - from, base + e - from);
    }
}

void jj_sb_str(struct jj_sb *sb, const struct jj_str *s) {
    jj_sb_sub(sb, s, 0, s->len);
}

void jj_sb_as(struct jj_sb *sb, const struct jj_str *s, size_t from, size_t to, const char *p,
              size_t n) {
    size_t base = sb->len;
    jj_sb_put(sb, p, n);
    if (sb->len == base || !s->n_spans) return;
    uint32_t i = span_at(s, from);
    if (i < s->n_spans && s->spans[i].begin < to) mark(sb, base, sb->len);
}

static struct jj_val str_val(const struct jj_str *s) {
    return (struct jj_val){.type = JJ_STR, .s = s};
}

struct jj_val jj_sb_val(struct jj_sb *sb) {
    struct jj_str *s = jj_alloc(sb->run, sizeof *s);
    s->p = sb->p ? sb->p : "";
    s->len = sb->len;
    s->spans = sb->spans;
    s->n_spans = sb->n_spans;
    return str_val(s);
}

const char *jj_sb_cstr(struct jj_sb *sb) {
    jj_sb_put(sb, "", 1);
    return sb->run->st == HR_OK ? sb->p : "";
}

/* A string that grows by concatenation would cost its square. So the result of one keeps room
 * behind it, as much again, and the next concatenation to it writes there. The few newest are
 * remembered. */
#define TAIL_FROM 128

static struct jj_tail *find_tail(struct jj_run *r, const struct jj_str *a, size_t more) {
    for (size_t i = 0; i < JJ_TAILS; i++)
        if (r->tails[i].end == a->p + a->len && r->tails[i].room >= more) return &r->tails[i];
    return NULL;
}

static bool reserve(struct jj_sb *sb, size_t n, size_t more) {
    if (!jj_room(sb->run, (double)n + (double)more)) return false;
    sb->p = jj_arena_bytes(&sb->run->bytes, n + more);
    sb->cap = n + more;
    return true;
}

struct jj_val jj_concat(struct jj_run *r, const struct jj_str *a, const struct jj_str *b) {
    if (b->len == 0) return str_val(a);
    if (a->len == 0) return str_val(b);
    struct jj_sb sb = {.run = r};
    struct jj_tail *tail = find_tail(r, a, b->len);
    if (tail) { /* a's bytes stay, b is written behind them, and both strings share */
        sb.p = tail->end - a->len;
        sb.len = a->len;
        sb.cap = a->len + tail->room;
        for (uint32_t i = 0; i < a->n_spans && r->st == HR_OK; i++)
            mark(&sb, a->spans[i].begin, a->spans[i].end);
    } else {
        if (!reserve(&sb, a->len + b->len, a->len < TAIL_FROM ? 0 : a->len)) return jj_undef();
        jj_sb_str(&sb, a);
    }
    jj_sb_str(&sb, b);
    if (!tail && a->len >= TAIL_FROM) tail = &r->tails[r->next_tail++ % JJ_TAILS];
    if (tail) *tail = (struct jj_tail){sb.p + sb.len, sb.cap - sb.len};
    return jj_sb_val(&sb);
}

/* --- making and cutting */

struct jj_val jj_str_ref(struct jj_run *r, const char *p, size_t len) {
    struct jj_str *s = jj_alloc(r, sizeof *s);
    s->p = p;
    s->len = len;
    return str_val(s);
}

struct jj_val jj_str_copy(struct jj_run *r, const char *p, size_t len) {
    char *copy = jj_arena_bytes(&r->bytes, len);
    if (len) memcpy(copy, p, len);
    return jj_str_ref(r, copy, len);
}

struct jj_val jj_cstr(struct jj_run *r, const char *s) {
    return jj_str_ref(r, s, strlen(s));
}

struct jj_val jj_str_user(struct jj_run *r, const char *p, size_t len) {
    struct jj_str *s = jj_alloc(r, sizeof *s);
    s->p = p;
    s->len = len;
    s->one = (struct hr_span){0, len};
    s->spans = &s->one;
    s->n_spans = len ? 1 : 0;
    return str_val(s);
}

struct jj_val jj_substr(struct jj_run *r, const struct jj_str *s, size_t from, size_t to) {
    if (from > to) from = to;
    if (from == 0 && to == s->len) return str_val(s);
    struct jj_str *sub = jj_alloc(r, sizeof *sub);
    sub->p = s->p + from;
    sub->len = to - from;
    sub->safe = s->safe;
    uint32_t first = span_at(s, from), end = first;
    while (end < s->n_spans && s->spans[end].begin < to) end++;
    if (end == first || from == to || !jj_work(r, end - first, JJ_ITEM)) return str_val(sub);
    struct hr_span *v = end - first == 1 ? &sub->one : jj_alloc(r, (end - first) * sizeof *v);
    for (uint32_t i = first; i < end; i++) {
        v[i - first].begin = s->spans[i].begin > from ? s->spans[i].begin - from : 0;
        v[i - first].end = (s->spans[i].end < to ? s->spans[i].end : to) - from;
    }
    sub->spans = v;
    sub->n_spans = end - first;
    return str_val(sub);
}

struct jj_val jj_str_plain(struct jj_run *r, const struct jj_str *s) {
    if (!s->safe) return str_val(s);
    struct jj_str *out = jj_alloc(r, sizeof *out);
    *out = *s;
    if (s->spans == &s->one) out->spans = &out->one;
    out->safe = false;
    return str_val(out);
}

bool jj_str_eq(struct jj_run *r, const struct jj_str *a, const struct jj_str *b) {
    return a->len == b->len && jj_work(r, a->len, JJ_BYTE) && memcmp(a->p, b->p, a->len) == 0;
}

bool jj_str_is(const struct jj_str *a, const char *s) {
    return a->len == strlen(s) && memcmp(a->p, s, a->len) == 0;
}

size_t jj_str_n_chars(struct jj_run *r, const struct jj_str *s) {
    size_t n = 0;
    if (!jj_work(r, s->len, JJ_BYTE)) return 0;
    for (size_t i = 0; i < s->len; i++) n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return n;
}

size_t jj_str_offset(struct jj_run *r, const struct jj_str *s, size_t i_char) {
    size_t i = 0;
    if (!jj_work(r, i_char < s->len ? i_char : s->len, JJ_BYTE)) return 0;
    for (; i < s->len; i++) {
        if (((unsigned char)s->p[i] & 0xc0) == 0x80) continue;
        if (i_char == 0) return i;
        i_char--;
    }
    return i;
}

/* Paid for when it is known how far the search went: at most the rest of s, once. */
size_t jj_str_find(struct jj_run *r, const struct jj_str *s, const struct jj_str *sub,
                   size_t from) {
    if (r->st != HR_OK || from > s->len || sub->len > s->len - from) return SIZE_MAX;
    if (sub->len == 0) return from;
    const char *p = memmem(s->p + from, s->len - from, sub->p, sub->len);
    size_t passed = (p ? (size_t)(p - s->p) + sub->len : s->len) - from;
    return jj_work(r, passed + 2, JJ_SOUGHT) && p ? (size_t)(p - s->p) : SIZE_MAX;
}

size_t jj_str_rfind(struct jj_run *r, const struct jj_str *s, const struct jj_str *sub, size_t to) {
    if (to > s->len) to = s->len;
    if (sub->len > to) return SIZE_MAX;
    if (sub->len == 0) return to;
    for (size_t i = to - sub->len + 1; i-- > 0 && jj_work(r, 1, JJ_SOUGHT);) {
        if (s->p[i] != sub->p[0]) continue;
        if (jj_work(r, sub->len, JJ_BYTE) && memcmp(s->p + i, sub->p, sub->len) == 0) return i;
    }
    return SIZE_MAX;
}

static bool strips(struct jj_run *r, const struct jj_str *chars, const char *p, size_t n,
                   uint32_t c) {
    if (!chars) return jj_work(r, 1, JJ_CHAR) && jj_is_space(c);
    const struct jj_str one = {.p = p, .len = n};
    return jj_work(r, 1, JJ_CHAR) && jj_str_find(r, chars, &one, 0) != SIZE_MAX;
}

struct jj_val jj_strip(struct jj_run *r, const struct jj_str *s, const struct jj_str *chars,
                       bool left, bool right) {
    size_t from = 0, to = s->len, n;
    while (left && from < to) {
        uint32_t c = jj_decode(s->p + from, s->p + to, &n);
        if (!strips(r, chars, s->p + from, n, c)) break;
        from += n;
    }
    while (right && to > from) {
        size_t k = to - 1;
        while (k > from && ((unsigned char)s->p[k] & 0xc0) == 0x80) k--;
        uint32_t c = jj_decode(s->p + k, s->p + to, &n);
        if (!strips(r, chars, s->p + k, n, c)) break;
        to = k;
    }
    return jj_substr(r, s, from, to);
}

/* An empty `from` stands before every character and at the end, as in Python. */
static struct jj_val replace_empty(struct jj_run *r, const struct jj_str *s,
                                   const struct jj_str *to, int64_t count) {
    struct jj_sb sb = {.run = r};
    size_t i = 0, n;
    for (; count != 0 && r->st == HR_OK; count--) {
        jj_sb_str(&sb, to);
        if (i == s->len) break;
        (void)jj_decode(s->p + i, s->p + s->len, &n);
        jj_sb_sub(&sb, s, i, i + n);
        i += n;
    }
    jj_sb_sub(&sb, s, i, s->len);
    return jj_sb_val(&sb);
}

struct jj_val jj_replace(struct jj_run *r, const struct jj_str *s, const struct jj_str *from,
                         const struct jj_str *to, int64_t count) {
    if (from->len == 0) return replace_empty(r, s, to, count);
    size_t hit = jj_str_find(r, s, from, 0), done = 0;
    if (hit == SIZE_MAX || count == 0) return str_val(s);
    struct jj_sb sb = {.run = r};
    for (; hit != SIZE_MAX && count != 0 && r->st == HR_OK; count--) {
        jj_sb_sub(&sb, s, done, hit);
        jj_sb_str(&sb, to);
        done = hit + from->len;
        hit = jj_str_find(r, s, from, done);
    }
    jj_sb_sub(&sb, s, done, s->len);
    return jj_sb_val(&sb);
}

struct jj_val jj_escape(struct jj_run *r, const struct jj_str *s) {
    if (s->safe) return str_val(s);
    static const char special[] = "&<>\"'";
    static const char *const as[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    struct jj_sb sb = {.run = r};
    size_t done = 0;
    for (size_t i = 0; i < s->len && jj_work(r, 1, JJ_CHAR); i++) {
        const char *hit = s->p[i] ? strchr(special, s->p[i]) : NULL;
        if (!hit) continue;
        jj_sb_sub(&sb, s, done, i);
        jj_sb_as(&sb, s, i, i + 1, as[hit - special], strlen(as[hit - special]));
        done = i + 1;
    }
    jj_sb_sub(&sb, s, done, s->len);
    struct jj_val v = jj_sb_val(&sb);
    struct jj_str *out = jj_alloc(r, sizeof *out);
    *out = *v.s;
    out->safe = true;
    return str_val(out);
}

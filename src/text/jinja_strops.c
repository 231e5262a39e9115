/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_strops: operations on strings that filters and methods share: case, padding, lines,
 * splitting.
 *
 * Each character that stands for another keeps the mark of the one it came from. */
#include <string.h>

#include "text/jinja_int.h"

/* U+03A3 becomes the final sigma at the end of a word, as in str.lower(). */
static bool final_sigma(struct jj_run *r, const struct jj_str *s, size_t at, size_t n) {
    size_t w;
    bool before = false, after = false;
    for (size_t k = at; k > 0 && jj_work(r, 1, JJ_CHAR);) {
        for (k--; k > 0 && ((unsigned char)s->p[k] & 0xc0) == 0x80;) k--;
        uint32_t c = jj_decode(s->p + k, s->p + s->len, &w);
        if (c == '\'' || c == 0xad || c == 0x2019) continue; /* ignorable in a word */
        before = jj_is_cased(c);
        break;
    }
    for (size_t k = at + n; k < s->len && jj_work(r, 1, JJ_CHAR); k += w) {
        uint32_t c = jj_decode(s->p + k, s->p + s->len, &w);
        if (c == '\'' || c == 0xad || c == 0x2019) continue;
        after = jj_is_cased(c);
        break;
    }
    return before && !after;
}

void jj_sb_case(struct jj_sb *sb, const struct jj_str *s, size_t at, size_t n, uint32_t c,
                enum jj_case how) {
    uint32_t to[3];
    if (!jj_work(sb->run, 1, c < 0x80 ? 2 * JJ_CHAR : 2 * JJ_CLASS)) return;
    int k = jj_map_case(c, how, to);
    if (c == 0x3a3 && how == JJ_TO_LOWER && final_sigma(sb->run, s, at, n)) to[0] = 0x3c2;
    if (k == 1 && to[0] == c) {
        jj_sb_sub(sb, s, at, at + n);
        return;
    }
    char text[12];
    size_t len = 0;
    for (int i = 0; i < k; i++) len += jj_encode(to[i], text + len);
    jj_sb_as(sb, s, at, at + n, text, len);
}

static struct jj_val done(struct jj_sb *sb, const struct jj_str *like) {
    struct jj_val v = jj_sb_val(sb);
    if (!like->safe) return v;
    struct jj_str *out = jj_alloc(sb->run, sizeof *out);
    *out = *v.s;
    out->safe = true;
    v.s = out;
    return v;
}

struct jj_val jj_str_case(struct jj_run *r, const struct jj_str *s, enum jj_case how) {
    struct jj_sb sb = {.run = r};
    for (size_t i = 0, n; i < s->len && r->st == HR_OK; i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        jj_sb_case(&sb, s, i, n, c, how);
    }
    return done(&sb, s);
}

struct jj_val jj_str_capitalize(struct jj_run *r, const struct jj_str *s) {
    struct jj_sb sb = {.run = r};
    for (size_t i = 0, n; i < s->len && r->st == HR_OK; i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        jj_sb_case(&sb, s, i, n, c, i == 0 ? JJ_TO_TITLE : JJ_TO_LOWER);
    }
    return done(&sb, s);
}

struct jj_val jj_str_pad(struct jj_run *r, const struct jj_str *s, int64_t width, const char *fill,
                         size_t n_fill, enum jj_pad how) {
    int64_t more = width - (int64_t)jj_str_n_chars(r, s);
    if (more <= 0) return jj_substr(r, s, 0, s->len);
    int64_t left = how == JJ_PAD_LEFT ? more : 0;
    /* str.center gives the odd blank to the left only when the width is odd. */
    if (how == JJ_PAD_BOTH) left = more / 2 + (more & width & 1);
    struct jj_sb sb = {.run = r};
    jj_sb_fill(&sb, fill, n_fill, left);
    jj_sb_str(&sb, s);
    jj_sb_fill(&sb, fill, n_fill, more - left);
    return done(&sb, s);
}

static bool is_line_end(uint32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

void jj_line_end(struct jj_run *r, const struct jj_str *s, size_t from, size_t *end, size_t *next) {
    size_t n;
    for (size_t i = from; i < s->len && jj_work(r, 1, JJ_CHAR); i += n) {
        uint32_t c = jj_decode(s->p + i, s->p + s->len, &n);
        if (!is_line_end(c)) continue;
        *end = i;
        *next = i + n + (c == '\r' && i + 1 < s->len && s->p[i + 1] == '\n');
        return;
    }
    *end = *next = s->len;
}

/* --- split */

static bool space_at(struct jj_run *r, const struct jj_str *s, size_t at, size_t *n) {
    return jj_work(r, 1, JJ_CHAR) && jj_is_space(jj_decode(s->p + at, s->p + s->len, n));
}

static struct jj_val split_blanks(struct jj_run *r, const struct jj_str *s, int64_t max) {
    struct jj_vec out = {0};
    size_t i = 0, n = 0;
    while (r->st == HR_OK) {
        while (i < s->len && space_at(r, s, i, &n)) i += n;
        if (i == s->len) break;
        if (max-- == 0) {
            jj_vec_push(r, &out, jj_substr(r, s, i, s->len));
            break;
        }
        size_t from = i;
        while (i < s->len && !space_at(r, s, i, &n) && r->st == HR_OK) i += n;
        jj_vec_push(r, &out, jj_substr(r, s, from, i));
    }
    return jj_vec_list(r, &out);
}

static struct jj_val reversed(struct jj_run *r, struct jj_vec *v) {
    size_t n = v->s ? v->s->n : 0;
    struct jj_seq *s = jj_seq(r, n);
    for (size_t i = 0; i < n; i++) s->v[i] = v->s->v[n - 1 - i];
    return jj_list(s);
}

static size_t char_before(const struct jj_str *s, size_t i) {
    do i--;
    while (i > 0 && ((unsigned char)s->p[i] & 0xc0) == 0x80);
    return i;
}

static struct jj_val rsplit_blanks(struct jj_run *r, const struct jj_str *s, int64_t max) {
    struct jj_vec out = {0};
    size_t i = s->len, n = 0;
    while (r->st == HR_OK) {
        while (i > 0 && space_at(r, s, char_before(s, i), &n))
            i = char_before(s, i);
        if (i == 0) break;
        if (max-- == 0) {
            jj_vec_push(r, &out, jj_substr(r, s, 0, i));
            break;
        }
        size_t to = i;
        while (i > 0 && !space_at(r, s, char_before(s, i), &n) && r->st == HR_OK)
            i = char_before(s, i);
        jj_vec_push(r, &out, jj_substr(r, s, i, to));
    }
    return reversed(r, &out);
}

struct jj_val jj_split(struct jj_run *r, const struct jj_str *s, const struct jj_str *sep,
                       int64_t max) {
    if (!sep) return split_blanks(r, s, max);
    if (sep->len == 0) return jj_fail(r, "empty separator");
    struct jj_vec out = {0};
    size_t from = 0, hit;
    while (r->st == HR_OK && max-- != 0 && (hit = jj_str_find(r, s, sep, from)) != SIZE_MAX) {
        jj_vec_push(r, &out, jj_substr(r, s, from, hit));
        from = hit + sep->len;
    }
    jj_vec_push(r, &out, jj_substr(r, s, from, s->len));
    return jj_vec_list(r, &out);
}

struct jj_val jj_rsplit(struct jj_run *r, const struct jj_str *s, const struct jj_str *sep,
                        int64_t max) {
    if (!sep) return rsplit_blanks(r, s, max);
    if (sep->len == 0) return jj_fail(r, "empty separator");
    struct jj_vec out = {0};
    size_t to = s->len, hit;
    while (r->st == HR_OK && max-- != 0 && (hit = jj_str_rfind(r, s, sep, to)) != SIZE_MAX) {
        jj_vec_push(r, &out, jj_substr(r, s, hit + sep->len, to));
        to = hit;
    }
    jj_vec_push(r, &out, jj_substr(r, s, 0, to));
    return reversed(r, &out);
}

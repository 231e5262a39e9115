/* SPDX-License-Identifier: Apache-2.0
 *
 * jscan: one strict pass over a JSON text, then walkers that trust it.
 *
 * The validator is a loop with a bit of state a level, so a line of a hundred thousand brackets
 * costs an error and no stack. Strings are skipped eight bytes at a time while they are plain
 * ASCII, which is what most of a dataset is. The walkers never look past the end of the value that
 * they were given, and assume that hr_jscan_validate accepted the text. Source: RFC 8259; UTF-8 as
 * in Unicode 15, table 3-7. */
#include "base/jscan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ONES  0x0101010101010101u
#define HIGHS 0x8080808080808080u

/* Bytes of a string that need no look of their own: ASCII but for controls, quote and backslash. */
static const char *skip_plain(const char *p, const char *end) {
    while (end - p >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t quote = w ^ ONES * '"', slash = w ^ ONES * '\\';
        uint64_t hit = (w - ONES * 0x20) | (quote - ONES) | (slash - ONES) | w;
        /* A borrow can only raise a false alarm above a true one, and a byte >= 0x80 always alarms.
         */
        if (hit & HIGHS) break;
        p += 8;
    }
    while (p < end && (uint8_t)*p >= 0x20 && (uint8_t)*p < 0x80 && *p != '"' && *p != '\\') p++;
    return p;
}

/* Length of the UTF-8 character at p (not ASCII), or 0 when it is none. */
static int utf8_len(const char *p, const char *end) {
    const uint8_t *s = (const uint8_t *)p;
    size_t n = (size_t)(end - p);
    uint8_t lo = 0x80, hi = 0xbf;
    int len;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        len = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        len = 3;
        if (s[0] == 0xe0) lo = 0xa0; /* overlong below */
        if (s[0] == 0xed) hi = 0x9f; /* surrogates above */
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        len = 4;
        if (s[0] == 0xf0) lo = 0x90;
        if (s[0] == 0xf4) hi = 0x8f;
    } else {
        return 0;
    }
    if (n < (size_t)len || s[1] < lo || s[1] > hi) return 0;
    for (int i = 2; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return len;
}

bool hr_utf8_valid(const char *s, size_t len, size_t *bad) {
    const char *p = s, *end = s + len;
    while (p < end) {
        uint64_t w;
        if (end - p >= 8 && (memcpy(&w, p, 8), (w & HIGHS) == 0)) {
            p += 8;
        } else if ((uint8_t)*p < 0x80) {
            p++;
        } else {
            int n = utf8_len(p, end);
            if (n == 0) {
                if (bad != NULL) *bad = (size_t)(p - s);
                return false;
            }
            p += n;
        }
    }
    return true;
}

struct scan {
    const char *text, *p, *end;
    struct hr_err *err;
};

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_blanks(struct scan *s) {
    while (s->p < s->end && is_blank(*s->p)) s->p++;
}

static enum hr_status fault(struct scan *s, const char *at, const char *what) {
    return hr_err_set(s->err, HR_ERR_FORMAT, "%s at byte %zu", what, (size_t)(at - s->text));
}

static enum hr_status unexpected(struct scan *s, const char *wanted) {
    if (s->p >= s->end)
        return hr_err_set(s->err, HR_ERR_FORMAT, "the JSON text ends where %s should be (byte %zu)",
                          wanted, (size_t)(s->p - s->text));
    uint8_t c = (uint8_t)*s->p;
    if (c > 0x20 && c < 0x7f)
        return hr_err_set(s->err, HR_ERR_FORMAT, "unexpected '%c' where %s should be at byte %zu",
                          c, wanted, (size_t)(s->p - s->text));
    return hr_err_set(s->err, HR_ERR_FORMAT,
                      "unexpected byte 0x%02x where %s should be at byte %zu", c, wanted,
                      (size_t)(s->p - s->text));
}

static int hex4(const char *p) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* At a backslash; leaves p after the escape, both halves of a surrogate pair included. */
static enum hr_status check_escape(struct scan *s) {
    const char *at = s->p;
    if (s->end - at < 2) return fault(s, at, "unterminated string");
    if (at[1] != 'u') {
        if (memchr("\"\\/bfnrt", at[1], 8) == NULL) return fault(s, at, "unknown escape");
        s->p += 2;
        return HR_OK;
    }
    int v = s->end - at >= 6 ? hex4(at + 2) : -1;
    if (v < 0) return fault(s, at, "\\u without four hexadecimal digits");
    s->p += 6;
    if (v < 0xd800 || v > 0xdfff) return HR_OK;
    int low = v < 0xdc00 && s->end - at >= 12 && at[6] == '\\' && at[7] == 'u' ? hex4(at + 8) : -1;
    if (low < 0xdc00 || low > 0xdfff) return fault(s, at, "lone surrogate escape");
    s->p += 6;
    return HR_OK;
}

static enum hr_status check_string(struct scan *s) {
    const char *start = s->p++;
    for (;;) {
        s->p = skip_plain(s->p, s->end);
        if (s->p >= s->end) return fault(s, start, "unterminated string");
        uint8_t c = (uint8_t)*s->p;
        if (c == '"') {
            s->p++;
            return HR_OK;
        }
        if (c == '\\') {
            enum hr_status st = check_escape(s);
            if (st < 0) return st;
        } else if (c < 0x20) {
            return fault(s, s->p,
                         c == 0 ? "raw NUL byte in a string" : "raw control character in a string");
        } else {
            int n = utf8_len(s->p, s->end);
            if (n == 0) return fault(s, s->p, "invalid UTF-8");
            s->p += n;
        }
    }
}

static bool skip_digits(struct scan *s) {
    const char *start = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return s->p > start;
}

static enum hr_status check_number(struct scan *s) {
    const char *start = s->p;
    if (*s->p == '-') s->p++;
    const char *first = s->p;
    if (!skip_digits(s)) return fault(s, start, "malformed number");
    if (*first == '0' && s->p - first > 1) return fault(s, start, "number with a leading zero");
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!skip_digits(s)) return fault(s, start, "malformed number");
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
        if (!skip_digits(s)) return fault(s, start, "malformed number");
    }
    return HR_OK;
}

static enum hr_status check_scalar(struct scan *s, enum hr_jtype *type) {
    static const struct {
        const char *word;
        size_t len;
        enum hr_jtype type;
    } words[] = {{"null", 4, HR_JNULL}, {"true", 4, HR_JTRUE}, {"false", 5, HR_JFALSE}};
    if (s->p < s->end && *s->p == '"') {
        *type = HR_JSTRING;
        return check_string(s);
    }
    if (s->p < s->end && (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'))) {
        *type = HR_JNUMBER;
        return check_number(s);
    }
    for (int i = 0; i < 3; i++)
        if ((size_t)(s->end - s->p) >= words[i].len &&
            memcmp(s->p, words[i].word, words[i].len) == 0) {
            s->p += words[i].len;
            *type = words[i].type;
            return HR_OK;
        }
    return unexpected(s, "a value");
}

/* A key and its colon; p stands at the quote or at what stands in its place. */
static enum hr_status check_key(struct scan *s) {
    skip_blanks(s);
    if (s->p >= s->end || *s->p != '"') return unexpected(s, "a key in quotes");
    enum hr_status st = check_string(s);
    if (st < 0) return st;
    skip_blanks(s);
    if (s->p >= s->end || *s->p != ':') return unexpected(s, "':'");
    s->p++;
    return HR_OK;
}

/* After a value inside `depth` open containers: closes what closes here. *more: a value comes next.
 */
static enum hr_status check_after(struct scan *s, const bool *is_object, int *depth, bool *more) {
    *more = false;
    while (*depth > 0) {
        bool object = is_object[*depth - 1];
        skip_blanks(s);
        if (s->p < s->end && *s->p == ',') {
            s->p++;
            *more = true;
            return object ? check_key(s) : HR_OK;
        }
        if (s->p >= s->end || *s->p != (object ? '}' : ']'))
            return unexpected(s, object ? "',' or '}'" : "',' or ']'");
        s->p++;
        --*depth;
    }
    return HR_OK;
}

/* p stands at the bracket. *more: its first value comes next; otherwise it was empty and is closed.
 */
static enum hr_status check_open(struct scan *s, bool *is_object, int *depth, bool *more) {
    bool object = *s->p == '{';
    if (*depth == HR_JSCAN_DEPTH) return fault(s, s->p, "nested deeper than 512 levels");
    s->p++;
    skip_blanks(s);
    if (s->p < s->end && *s->p == (object ? '}' : ']')) {
        s->p++;
        *more = false;
        return HR_OK;
    }
    is_object[(*depth)++] = object;
    *more = true;
    return object ? check_key(s) : HR_OK;
}

_Static_assert(HR_JSCAN_DEPTH == 512, "the message of check_open says 512");

enum hr_status hr_jscan_validate(const char *text, size_t len, struct hr_jval *out,
                                 struct hr_err *err) {
    struct scan s = {text, text, text + len, err};
    bool is_object[HR_JSCAN_DEPTH], more = true;
    int depth = 0;
    enum hr_status st;
    skip_blanks(&s);
    const char *start = s.p;
    enum hr_jtype type = HR_JNULL, inner = HR_JNULL; /* gcc cannot see that check_scalar sets it */
    if (s.p < s.end) type = *s.p == '{' ? HR_JOBJECT : *s.p == '[' ? HR_JARRAY : HR_JNULL;
    while (more) {
        skip_blanks(&s);
        if (s.p < s.end && (*s.p == '{' || *s.p == '[')) {
            st = check_open(&s, is_object, &depth, &more);
            if (st < 0) return st;
            if (more) continue;
        } else {
            st = check_scalar(&s, &inner);
            if (st < 0) return st;
            if (depth == 0) type = inner;
        }
        st = check_after(&s, is_object, &depth, &more);
        if (st < 0) return st;
    }
    const char *end = s.p;
    skip_blanks(&s);
    if (s.p < s.end) return fault(&s, s.p, "more text after the JSON value");
    *out = (struct hr_jval){type, start, (size_t)(end - start)};
    return HR_OK;
}

/* After the closing quote of the string at p. A run of backslashes is counted once, back from the
 * quote behind it, so the whole is linear. */
static const char *skip_string(const char *p, const char *end) {
    for (p++;; p++) {
        p = memchr(p, '"', (size_t)(end - p));
        HR_ASSERT(p != NULL);
        const char *slash = p;
        while (slash[-1] == '\\') slash--;
        if ((p - slash) % 2 == 0) return p + 1;
    }
}

static const char *skip_value(const char *p, const char *end) {
    if (*p == '"') return skip_string(p, end);
    if (*p != '{' && *p != '[') {
        while (p < end && *p != ',' && *p != ']' && *p != '}' && !is_blank(*p)) p++;
        return p;
    }
    int depth = 0;
    do {
        if (*p == '"') {
            p = skip_string(p, end);
            continue;
        }
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        p++;
    } while (depth > 0);
    return p;
}

static enum hr_jtype type_at(char c) {
    switch (c) {
    case '{':
        return HR_JOBJECT;
    case '[':
        return HR_JARRAY;
    case '"':
        return HR_JSTRING;
    case 'n':
        return HR_JNULL;
    case 't':
        return HR_JTRUE;
    case 'f':
        return HR_JFALSE;
    default:
        return HR_JNUMBER;
    }
}

static struct hr_jval value_at(const char *p, const char *end) {
    return (struct hr_jval){type_at(*p), p, (size_t)(skip_value(p, end) - p)};
}

/* The next thing in a container that is not a blank, comma or colon. */
static const char *next_token(const char *p) {
    while (is_blank(*p) || *p == ',' || *p == ':') p++;
    return p;
}

bool hr_jscan_next(const struct hr_jval *container, struct hr_jiter *it, struct hr_jval *key,
                   struct hr_jval *value) {
    const char *end = container->p + container->len;
    if (container->type != HR_JARRAY && container->type != HR_JOBJECT) return false;
    const char *p = next_token(it->p == NULL ? container->p + 1 : it->p);
    it->p = p;
    if (*p == ']' || *p == '}') return false;
    if (container->type == HR_JOBJECT) {
        struct hr_jval k = value_at(p, end);
        if (key != NULL) *key = k;
        p = next_token(p + k.len);
    }
    *value = value_at(p, end);
    it->p = p + value->len;
    return true;
}

bool hr_jscan_get(const struct hr_jval *object, const char *key, struct hr_jval *value) {
    if (object->type != HR_JOBJECT) return false;
    size_t len = strlen(key);
    struct hr_jiter it = {0};
    struct hr_jval k, v;
    bool found = false;
    while (hr_jscan_next(object, &it, &k, &v))
        if (hr_jscan_str_eq(&k, key, len)) *value = v, found = true;
    return found;
}

/* Decodes the character or run at *p inside a string: plain bytes are given in place, an escape in
 * `tmp`. Returns the length; *src is where the bytes are. */
static size_t decode_piece(const char **p, const char *end, char tmp[4], const char **src) {
    const char *s = *p;
    if (*s != '\\') {
        const char *q = memchr(s, '\\', (size_t)(end - s));
        *p = q == NULL ? end : q;
        *src = s;
        return (size_t)(*p - s);
    }
    *src = tmp;
    *p = s + 2;
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *simple = memchr(from, s[1], sizeof from - 1);
    if (simple != NULL) {
        tmp[0] = to[simple - from];
        return 1;
    }
    uint32_t c = (uint32_t)hex4(s + 2);
    *p = s + 6;
    if (c >= 0xd800 && c < 0xdc00) {
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)hex4(s + 8) - 0xdc00);
        *p = s + 12;
    }
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, c >>= 6) tmp[i] = (char)(0x80 | (c & 0x3f));
    tmp[0] = (char)(lead[n] | c);
    return (size_t)n;
}

bool hr_jscan_str_eq(const struct hr_jval *string, const char *s, size_t len) {
    if (string->type != HR_JSTRING) return false;
    const char *p = string->p + 1, *end = string->p + string->len - 1, *src;
    char tmp[4];
    while (p < end) {
        size_t n = decode_piece(&p, end, tmp, &src);
        if (n > len || memcmp(src, s, n) != 0) return false;
        s += n;
        len -= n;
    }
    return len == 0;
}

void hr_jscan_str(const struct hr_jval *string, struct hr_buf *out) {
    if (string->type != HR_JSTRING) return;
    const char *p = string->p + 1, *end = string->p + string->len - 1, *src;
    char tmp[4];
    hr_buf_reserve(out, string->len);
    while (p < end) {
        size_t n = decode_piece(&p, end, tmp, &src);
        hr_buf_append(out, src, n);
    }
}

/* Exactly: digits and a power of ten, so that neither 9007199254740993.0 nor 1e18 is rounded. */
bool hr_jscan_int(const struct hr_jval *number, int64_t *out) {
    if (number->type != HR_JNUMBER) return false;
    const char *p = number->p, *end = p + number->len;
    bool negative = *p == '-', fraction = false;
    int64_t value = 0, power = 0, zeros = 0, exponent = 0; /* zeros: not multiplied in yet */
    for (p += negative; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        if (fraction) power--;
        if (*p == '0') {
            zeros += value != 0;
            continue;
        }
        for (; zeros >= 0; zeros--)
            if (__builtin_mul_overflow(value, 10, &value)) return false;
        zeros = 0;
        if (__builtin_sub_overflow(value, *p - '0', &value))
            return false; /* so that INT64_MIN fits */
    }
    if (p < end) {
        bool below = *++p == '-';
        for (p += *p == '-' || *p == '+'; p < end; p++)
            if (exponent < 1000000000) exponent = exponent * 10 + (*p - '0');
        if (below) exponent = -exponent;
    }
    if (value != 0) {
        power += zeros + exponent;
        if (power < 0) return false;
        for (; power > 0; power--)
            if (__builtin_mul_overflow(value, 10, &value)) return false;
    }
    if (!negative && __builtin_sub_overflow(0, value, &value)) return false;
    *out = value;
    return true;
}

bool hr_jscan_double(const struct hr_jval *number, double *out) {
    if (number->type != HR_JNUMBER) return false;
    char small[64], *text = number->len < sizeof small ? small : hr_xmalloc(number->len + 1);
    memcpy(text, number->p, number->len);
    text[number->len] = 0;
    double v = strtod(text, NULL);
    if (text != small) free(text);
    if (!isfinite(v)) return false;
    *out = v;
    return true;
}

/* A member of an object on its way to canonical form: both parts lie in the object's scratch
 * buffer. */
struct member {
    size_t key, key_len, value, value_len, i;
    const struct hr_buf *scratch; /* its data moves while it grows */
};

static int by_key(const void *pa, const void *pb) {
    const struct member *a = pa, *b = pb;
    size_t n = a->key_len < b->key_len ? a->key_len : b->key_len;
    int c = n == 0 ? 0 : memcmp(a->scratch->data + a->key, b->scratch->data + b->key, n);
    if (c != 0) return c;
    if (a->key_len != b->key_len) return a->key_len < b->key_len ? -1 : 1;
    return a->i < b->i ? -1 : 1;
}

static bool same_key(const struct member *a, const struct member *b) {
    return a->key_len == b->key_len &&
           (a->key_len == 0 ||
            memcmp(a->scratch->data + a->key, b->scratch->data + b->key, a->key_len) == 0);
}

static void put_members(struct member *members, size_t n, const struct hr_buf *scratch,
                        struct hr_buf *out) {
    if (n > 1) qsort(members, n, sizeof *members, by_key);
    hr_buf_putc(out, '{');
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        const struct member *m = &members[i];
        if (i + 1 < n && same_key(m, &members[i + 1])) continue;
        if (!first) hr_buf_putc(out, ',');
        first = false;
        hr_buf_json_str(out, scratch->data + m->key, m->key_len);
        hr_buf_putc(out, ':');
        hr_buf_append(out, scratch->data + m->value, m->value_len);
    }
    hr_buf_putc(out, '}');
}

static const char *canonical_at(const char *p, const char *end, struct hr_buf *out);

static const char *canonical_object(const char *p, const char *end, struct hr_buf *out) {
    struct hr_buf scratch = {0};
    struct member *members = NULL;
    size_t n = 0, cap = 0;
    for (p = next_token(p + 1); *p != '}'; p = next_token(p)) {
        if (n == cap) {
            cap = cap == 0 ? 8 : 2 * cap;
            members = hr_xrealloc(members, cap * sizeof *members);
        }
        struct hr_jval key = value_at(p, end);
        struct member *m = &members[n];
        *m = (struct member){.key = scratch.len, .i = n, .scratch = &scratch};
        hr_jscan_str(&key, &scratch);
        m->key_len = scratch.len - m->key;
        m->value = scratch.len;
        p = canonical_at(next_token(p + key.len), end, &scratch);
        m->value_len = scratch.len - m->value;
        n++;
    }
    put_members(members, n, &scratch, out);
    free(members);
    hr_buf_finish(&scratch);
    return p + 1;
}

/* Recursive as deep as the validated text: HR_JSCAN_DEPTH small frames. Returns the end of the
 * value, so that nested containers are not walked again at every level. */
static const char *canonical_at(const char *p, const char *end, struct hr_buf *out) {
    if (*p == '{') return canonical_object(p, end, out);
    if (*p == '[') {
        hr_buf_putc(out, '[');
        bool first = true;
        for (p = next_token(p + 1); *p != ']'; p = next_token(p)) {
            if (!first) hr_buf_putc(out, ',');
            first = false;
            p = canonical_at(p, end, out);
        }
        hr_buf_putc(out, ']');
        return p + 1;
    }
    struct hr_jval v = value_at(p, end);
    if (v.type == HR_JSTRING) {
        struct hr_buf text = {0};
        hr_jscan_str(&v, &text);
        hr_buf_json_str(out, text.data, text.len);
        hr_buf_finish(&text);
    } else {
        hr_buf_append(out, v.p, v.len);
    }
    return v.p + v.len;
}

void hr_jscan_canonical(const struct hr_jval *value, struct hr_buf *out) {
    canonical_at(value->p, value->p + value->len, out);
}

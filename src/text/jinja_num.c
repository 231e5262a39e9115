/* SPDX-License-Identifier: Apache-2.0
 *
 * jinja_num: numbers with Python's rules: floor division, signs of the remainder, true division,
 * integers that do not overflow, shortest float texts.
 *
 * An integer is an int64 (JJ_INT) while it fits and a decimal big number (JJ_BIG) beyond, never
 * both ways. Big numbers exist because ids in a context can be long and must print exactly; they
 * add, subtract, multiply and compare; dividing them is refused, no template does it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_int.h"

#define BASE 1000000000u
/* Python refuses to print more than 4300 digits. */
#define LIMBS_MAX 478

struct big { /* a working copy */
    bool neg;
    uint32_t n;
    uint32_t d[2 * LIMBS_MAX + 2];
};

static void trim(struct big *b) {
    while (b->n && b->d[b->n - 1] == 0) b->n--;
    if (b->n == 0) b->neg = false;
}

static void load(struct big *b, struct jj_val v) {
    if (v.type == JJ_BIG) {
        b->neg = v.big->neg;
        b->n = v.big->n;
        memcpy(b->d, v.big->d, b->n * sizeof *b->d);
        return;
    }
    int64_t i = v.type == JJ_BOOL ? v.b : v.i;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    b->neg = i < 0;
    for (b->n = 0; u; u /= BASE) b->d[b->n++] = (uint32_t)(u % BASE);
}

/* The value of a working copy in its one form; ABSENT when it is too long. */
static struct jj_val store(struct jj_arena *a, struct big *b) {
    trim(b);
    if (b->n > LIMBS_MAX) return (struct jj_val){.type = JJ_ABSENT};
    if (b->n <= 3) {
        __extension__ unsigned __int128 u = 0;
        for (uint32_t i = b->n; i-- > 0;) u = u * BASE + b->d[i];
        if (u <= (uint64_t)INT64_MAX + (b->neg ? 1 : 0))
            return jj_int(b->neg ? (int64_t)(0 - (uint64_t)u) : (int64_t)u);
    }
    struct jj_big *big = jj_arena_alloc(a, sizeof *big + b->n * sizeof *big->d);
    big->neg = b->neg;
    big->n = b->n;
    memcpy(big->d, b->d, b->n * sizeof *b->d);
    return (struct jj_val){.type = JJ_BIG, .big = big};
}

static int cmp_mag(const struct big *a, const struct big *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (uint32_t i = a->n; i-- > 0;)
        if (a->d[i] != b->d[i]) return a->d[i] < b->d[i] ? -1 : 1;
    return 0;
}

static void add_mag(struct big *a, const struct big *b) {
    uint32_t carry = 0, n = a->n > b->n ? a->n : b->n;
    for (uint32_t i = 0; i < n || carry; i++) {
        uint32_t s = carry + (i < a->n ? a->d[i] : 0) + (i < b->n ? b->d[i] : 0);
        a->d[i] = s % BASE;
        carry = s / BASE;
        if (i >= a->n) a->n = i + 1;
    }
}

static void sub_mag(struct big *a, const struct big *b) { /* |a| >= |b| */
    int64_t borrow = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        int64_t s = (int64_t)a->d[i] - borrow - (i < b->n ? b->d[i] : 0);
        borrow = s < 0;
        a->d[i] = (uint32_t)(s + (borrow ? (int64_t)BASE : 0));
    }
    trim(a);
}

static void big_add(struct big *a, struct big *b) {
    if (a->neg == b->neg) {
        add_mag(a, b);
    } else if (cmp_mag(a, b) >= 0) {
        sub_mag(a, b);
    } else {
        struct big t = *b;
        sub_mag(&t, a);
        *a = t;
    }
}

static bool mul_mag(struct big *out, const struct big *a, const struct big *b) {
    if (a->n + b->n > 2 * LIMBS_MAX) return false;
    *out = (struct big){.neg = a->neg != b->neg, .n = a->n + b->n};
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->n || carry; j++) {
            uint64_t s = out->d[i + j] + carry + (j < b->n ? (uint64_t)a->d[i] * b->d[j] : 0);
            out->d[i + j] = (uint32_t)(s % BASE);
            carry = s / BASE;
        }
    }
    trim(out);
    return true;
}

static struct jj_val big_op(struct jj_run *r, enum jj_op op, struct jj_val x, struct jj_val y) {
    struct big a, b, m;
    load(&a, x);
    load(&b, y);
    if (!jj_work(r, a.n + b.n + 50, JJ_DIGITS)) return jj_undef();
    struct jj_val v = {.type = JJ_ABSENT};
    if (op == JJ_MUL) {
        if (jj_work(r, (size_t)a.n * b.n, 4) && mul_mag(&m, &a, &b)) v = store(&r->cells, &m);
    } else {
        if (op == JJ_SUB && b.n) b.neg = !b.neg;
        big_add(&a, &b);
        v = store(&r->cells, &a);
    }
    return v.type == JJ_ABSENT ? jj_fail_limit(r, "an integer has more than 4300 digits") : v;
}

/* --- literals and texts */

static struct jj_val decimal(struct jj_arena *a, const char *p, size_t len, bool neg) {
    if (len > LIMBS_MAX * 9) return (struct jj_val){.type = JJ_ABSENT};
    struct big b = {.neg = neg};
    while (len) {
        size_t n = len < 9 ? len : 9;
        uint32_t limb = 0;
        for (size_t i = len - n; i < len; i++) limb = limb * 10 + (uint32_t)(p[i] - '0');
        b.d[b.n++] = limb;
        len -= n;
    }
    return store(a, &b);
}

struct jj_val jj_int_literal(struct jj_arena *a, const char *p, size_t len, int base) {
    bool neg = len && *p == '-';
    if (len && (*p == '-' || *p == '+')) {
        p++;
        len--;
    }
    if (base == 10) {
        while (len > 1 && *p == '0') {
            p++;
            len--;
        }
        return decimal(a, p, len, neg);
    }
    struct big b = {0}, digit, factor, m;
    load(&factor, jj_int(base));
    for (size_t i = 0; i < len; i++) {
        int c = p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10;
        if (b.n > LIMBS_MAX) return (struct jj_val){.type = JJ_ABSENT};
        mul_mag(&m, &b, &factor);
        load(&digit, jj_int(c));
        add_mag(&m, &digit);
        b = m;
    }
    b.neg = neg;
    return store(a, &b);
}

struct jj_val jj_float_literal(const char *p) {
    return jj_float(strtod(p, NULL));
}

void jj_write_int(struct jj_sb *sb, struct jj_val v) {
    char text[JJ_NUM_TEXT];
    if (v.type != JJ_BIG) {
        snprintf(text, sizeof text, "%lld", (long long)(v.type == JJ_BOOL ? v.b : v.i));
        jj_sb_puts(sb, text);
        return;
    }
    snprintf(text, sizeof text, "%s%u", v.big->neg ? "-" : "", v.big->d[v.big->n - 1]);
    jj_sb_puts(sb, text);
    for (uint32_t i = v.big->n - 1; i-- > 0 && jj_step(sb->run);) {
        snprintf(text, sizeof text, "%09u", v.big->d[i]);
        jj_sb_puts(sb, text);
    }
}

/* repr(float): the shortest digits that read back, in Python's layout (an exponent below 1e-4 and
 * from 1e16 on, at least two digits of it, ".0" when there is neither point nor exponent). */
void jj_float_repr(struct jj_run *r, double f, char out[JJ_NUM_TEXT]) {
    if (isnan(f) || isinf(f)) {
        snprintf(out, JJ_NUM_TEXT, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char e[JJ_NUM_TEXT];
    int precision = 0;
    do snprintf(e, sizeof e, "%.*e", precision, f);
    while (strtod(e, NULL) != f && ++precision < 17);
    int exponent = atoi(strchr(e, 'e') + 1);
    (void)jj_work(r, (size_t)precision + 1, 3 * JJ_STEP + 2 * (unsigned)abs(exponent));
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision > exponent ? precision - exponent : 0;
        snprintf(out, JJ_NUM_TEXT, "%.*f", decimals ? decimals : 1, f);
    } else {
        snprintf(out, JJ_NUM_TEXT, "%s", e);
    }
}

/* --- kinds */

bool jj_is_number(struct jj_val v) {
    return v.type == JJ_BOOL || v.type == JJ_INT || v.type == JJ_BIG || v.type == JJ_FLOAT;
}

static bool is_int(struct jj_val v) {
    return v.type == JJ_BOOL || v.type == JJ_INT || v.type == JJ_BIG;
}

double jj_num_double(struct jj_run *r, struct jj_val v) {
    if (v.type == JJ_FLOAT) return v.f;
    if (v.type != JJ_BIG) return v.type == JJ_BOOL ? v.b : (double)v.i;
    if (!jj_work(r, v.big->n, 2 * JJ_STEP)) return 0;
    /* Through the text, so that it is rounded once. */
    char text[LIMBS_MAX * 9 + 16];
    int n = snprintf(text, sizeof text, "%s%u", v.big->neg ? "-" : "", v.big->d[v.big->n - 1]);
    for (uint32_t i = v.big->n - 1; i-- > 0;)
        n += snprintf(text + n, sizeof text - (size_t)n, "%09u", v.big->d[i]);
    return strtod(text, NULL);
}

static int64_t small(struct jj_val v) {
    return v.type == JJ_BOOL ? v.b : v.i;
}

int jj_num_compare(struct jj_run *r, struct jj_val a, struct jj_val b) {
    if (is_int(a) && is_int(b)) {
        if (a.type != JJ_BIG && b.type != JJ_BIG)
            return small(a) < small(b) ? -1 : small(a) > small(b);
        struct big x, y;
        load(&x, a);
        load(&y, b);
        (void)jj_work(r, x.n + y.n, JJ_DIGITS);
        if (x.neg != y.neg) return x.neg ? -1 : 1;
        int c = cmp_mag(&x, &y);
        return x.neg ? -c : c;
    }
    /* A float against an int64: exact, because 2^53 + 1 must not equal 2^53. */
    double x = jj_num_double(r, a), y = jj_num_double(r, b);
    if (isnan(x) || isnan(y)) return 2;
    if (x != y || a.type == b.type) return x < y ? -1 : x > y;
    struct jj_val i = is_int(a) ? a : b;
    if (i.type == JJ_BIG || fabs(x) >= 9.2e18) return 0;
    int64_t whole = (int64_t)x;
    int c = small(i) < whole ? -1 : small(i) > whole;
    return is_int(a) ? c : -c;
}

int64_t jj_arg_int(struct jj_run *r, struct jj_val v, int64_t absent) {
    if (v.type == JJ_ABSENT) return absent;
    if (v.type == JJ_INT) return v.i;
    if (v.type == JJ_BOOL) return v.b;
    if (v.type == JJ_BIG) return v.big->neg ? INT64_MIN / 2 : INT64_MAX / 2;
    (void)jj_fail(r, "'%s' object cannot be interpreted as an integer", jj_type_name(v));
    return absent;
}

/* --- operators */

static struct jj_val int_power(struct jj_run *r, struct jj_val a, int64_t n) {
    struct jj_val result = jj_int(1);
    /* Squaring doubles the digits, so the limit of digits bounds the loop. */
    for (; n && r->st == HR_OK; n >>= 1) {
        if (n & 1) result = jj_binary(r, JJ_MUL, result, a);
        if (n > 1) a = jj_binary(r, JJ_MUL, a, a);
    }
    return result;
}

/* An operand beside a float; as in Python it must fit one. */
static double as_double(struct jj_run *r, struct jj_val v) {
    double f = jj_num_double(r, v);
    if (v.type == JJ_BIG && isinf(f)) (void)jj_fail(r, "int too large to convert to float");
    return f;
}

static struct jj_val float_op(struct jj_run *r, enum jj_op op, double x, double y) {
    switch (op) {
    case JJ_ADD:
        return jj_float(x + y);
    case JJ_SUB:
        return jj_float(x - y);
    case JJ_MUL:
        return jj_float(x * y);
    case JJ_POW:
        if (x == 0 && y < 0) return jj_fail(r, "0.0 cannot be raised to a negative power");
        if (x < 0 && y != floor(y)) return jj_fail(r, "complex numbers are not supported");
        if (isfinite(x) && isfinite(y) && isinf(pow(x, y)))
            return jj_fail(r, "the result is too large");
        return jj_float(pow(x, y));
    default:
        break;
    }
    if (y == 0)
        return jj_fail(r, op == JJ_DIV   ? "float division by zero"
                          : op == JJ_MOD ? "float modulo"
                                         : "float floor division by zero");
    if (op == JJ_DIV) return jj_float(x / y);
    jj_work_float(r, x); /* fmod goes through the difference of the exponents bit by bit */
    jj_work_float(r, y);
    double m = fmod(x, y);
    if (m != 0 && (m < 0) != (y < 0)) m += y;
    if (m == 0) m = copysign(0, y);
    if (op == JJ_MOD) return jj_float(m);
    double q = (x - m) / y, whole = floor(q);
    if (q - whole > 0.5) whole += 1;
    return jj_float(q != 0 ? whole : copysign(0, x / y));
}

static int n_bits(uint64_t x) {
    return x ? 64 - __builtin_clzll(x) : 0;
}

/* x / y rounded once: beyond 2^53 the operands themselves are no doubles. */
static double divide(int64_t x, int64_t y) {
    uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y;
    if (n_bits(a) <= 53 && n_bits(b) <= 53) return (double)x / (double)y;
    /* At least 55 bits of the quotient; the last one also stands for whatever is behind it. */
    int shift = 56 + n_bits(b) - n_bits(a);
    if (shift < 0) shift = 0;
    __extension__ unsigned __int128 scaled = (unsigned __int128)a << shift;
    uint64_t q = (uint64_t)(scaled / b) | (scaled % b != 0);
    double d = ldexp((double)q, -shift);
    return (x < 0) != (y < 0) ? -d : d;
}

static struct jj_val int_op(struct jj_run *r, enum jj_op op, struct jj_val a, struct jj_val b) {
    bool big = a.type == JJ_BIG || b.type == JJ_BIG;
    int64_t x = big ? 0 : small(a), y = big ? 0 : small(b), z;
    switch (op) {
    case JJ_ADD:
        if (!big && !__builtin_add_overflow(x, y, &z)) return jj_int(z);
        return big_op(r, op, a, b);
    case JJ_SUB:
        if (!big && !__builtin_sub_overflow(x, y, &z)) return jj_int(z);
        return big_op(r, op, a, b);
    case JJ_MUL:
        if (!big && !__builtin_mul_overflow(x, y, &z)) return jj_int(z);
        return big_op(r, op, a, b);
    case JJ_POW:
        if (b.type == JJ_BIG) return jj_fail_limit(r, "the exponent is too large");
        y = small(b);
        if (y < 0 && x == 0 && !big) return jj_fail(r, "0.0 cannot be raised to a negative power");
        if (y < 0) return float_op(r, op, as_double(r, a), (double)y);
        return int_power(r, a, y);
    default:
        break;
    }
    if (big) return jj_fail(r, "dividing integers beyond 64 bits is not supported");
    if (y == 0)
        return jj_fail(r, op == JJ_DIV ? "division by zero" : "integer division or modulo by zero");
    if (op == JJ_DIV) return jj_float(divide(x, y));
    if (y == -1) return op == JJ_MOD ? jj_int(0) : jj_negate(r, a); /* INT64_MIN / -1 */
    int64_t q = x / y, m = x % y;
    if (m && (m < 0) != (y < 0)) {
        q--;
        m += y;
    }
    return jj_int(op == JJ_MOD ? m : q);
}

/* x * n for strings and lists. */
static struct jj_val repeat(struct jj_run *r, struct jj_val x, struct jj_val n_val) {
    int64_t n = jj_arg_int(r, n_val, 0);
    if (n < 0) n = 0;
    if (x.type == JJ_STR) {
        struct jj_sb sb = {.run = r};
        if (!jj_room(r, (double)n * (double)x.s->len)) return jj_undef();
        for (int64_t i = 0; i < n && x.s->len && r->st == HR_OK; i++) jj_sb_str(&sb, x.s);
        return jj_sb_val(&sb);
    }
    if (x.seq->n == 0) n = 0;
    if (!jj_room(r, (double)n * (double)x.seq->n * sizeof(struct jj_val))) return jj_undef();
    struct jj_seq *s = jj_seq(r, (size_t)n * x.seq->n);
    for (size_t i = 0; i < s->n; i++) s->v[i] = x.seq->v[i % x.seq->n];
    return x.type == JJ_LIST ? jj_list(s) : jj_tuple(s);
}

static struct jj_val add(struct jj_run *r, struct jj_val a, struct jj_val b) {
    if (a.type == JJ_STR && b.type == JJ_STR) {
        if (!a.s->safe && !b.s->safe) return jj_concat(r, a.s, b.s);
        struct jj_val v = jj_concat(r, jj_escape(r, a.s).s, jj_escape(r, b.s).s);
        if (r->st != HR_OK) return v;
        struct jj_str *out = jj_alloc(r, sizeof *out);
        *out = *v.s;
        out->safe = true;
        v.s = out;
        return v;
    }
    if (a.type == b.type && (a.type == JJ_LIST || a.type == JJ_TUPLE)) {
        struct jj_seq *s = jj_seq(r, a.seq->n + b.seq->n);
        if (a.seq->n) memcpy(s->v, a.seq->v, a.seq->n * sizeof *s->v);
        if (b.seq->n) memcpy(s->v + a.seq->n, b.seq->v, b.seq->n * sizeof *s->v);
        return a.type == JJ_LIST ? jj_list(s) : jj_tuple(s);
    }
    if (a.type == JJ_STR || a.type == JJ_LIST || a.type == JJ_TUPLE)
        return jj_fail(r, "can only concatenate %s (not \"%s\") to %s", jj_type_name(a),
                       jj_type_name(b), jj_type_name(a));
    return jj_undef();
}

struct jj_val jj_binary(struct jj_run *r, enum jj_op op, struct jj_val a, struct jj_val b) {
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    if (r->st != HR_OK) return jj_undef();
    if (op == JJ_MOD && a.type == JJ_STR) return jj_percent(r, a.s, b);
    if (a.type == JJ_UNDEF) return jj_fail_undef(r, a);
    if (b.type == JJ_UNDEF) return jj_fail_undef(r, b);
    if (is_int(a) && is_int(b)) return int_op(r, op, a, b);
    if (jj_is_number(a) && jj_is_number(b))
        return float_op(r, op, as_double(r, a), as_double(r, b));
    bool a_seq = a.type == JJ_STR || a.type == JJ_LIST || a.type == JJ_TUPLE;
    bool b_seq = b.type == JJ_STR || b.type == JJ_LIST || b.type == JJ_TUPLE;
    if (op == JJ_MUL && a_seq && is_int(b)) return repeat(r, a, b);
    if (op == JJ_MUL && b_seq && is_int(a)) return repeat(r, b, a);
    if (op == JJ_ADD && a_seq) return add(r, a, b);
    return jj_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op],
                   jj_type_name(a), jj_type_name(b));
}

struct jj_val jj_negate(struct jj_run *r, struct jj_val a) {
    if (a.type == JJ_UNDEF) return jj_fail_undef(r, a);
    if (a.type == JJ_FLOAT) return jj_float(-a.f);
    if (is_int(a)) return int_op(r, JJ_SUB, jj_int(0), a);
    return jj_fail(r, "bad operand type for unary -: '%s'", jj_type_name(a));
}

/* --- conversions */

struct jj_val jj_int_of_double(struct jj_run *r, double f) {
    f = trunc(f);
    if (fabs(f) < 9.2e18) return jj_int((int64_t)f);
    char text[400];
    jj_work_float(r, f);
    int n = snprintf(text, sizeof text, "%.0f", f);
    return jj_int_literal(&r->cells, text, (size_t)n, 10);
}

struct jj_val jj_round_int(struct jj_run *r, struct jj_val v, int64_t digits) {
    if (digits >= 0) return v.type == JJ_BOOL ? jj_int(v.b) : v;
    if (v.type == JJ_BIG) return jj_fail(r, "rounding integers beyond 64 bits is not supported");
    if (digits < -19) return jj_int(0);
    __extension__ __int128 unit = 1, x = small(v);
    for (int64_t i = digits; i < 0; i++) unit *= 10;
    __extension__ __int128 rest = (x % unit + unit) % unit, down = x - rest;
    bool up = 2 * rest > unit || (2 * rest == unit && down / unit % 2 != 0);
    __extension__ __int128 y = up ? down + unit : down;
    if (y >= INT64_MIN && y <= INT64_MAX) return jj_int((int64_t)y);
    return big_op(r, JJ_MUL, jj_int((int64_t)(y / unit) * 10), jj_int((int64_t)(unit / 10)));
}

/* The text without blanks around it and single underscores between digits; NULL when it is too long
 * for a number or an underscore stands elsewhere. */
static bool number_text(struct jj_run *r, struct jj_val v, char out[512], size_t *n) {
    size_t from = 0, to = v.s->len;
    if (!jj_work(r, to, JJ_CHAR)) return false;
    while (from < to && (unsigned char)v.s->p[from] < 0x80 &&
           jj_is_space((unsigned char)v.s->p[from]))
        from++;
    while (to > from && (unsigned char)v.s->p[to - 1] < 0x80 &&
           jj_is_space((unsigned char)v.s->p[to - 1]))
        to--;
    if (to == from || to - from >= 512) return false;
    *n = 0;
    for (size_t i = from; i < to; i++) {
        char c = v.s->p[i];
        if (c == '_' && (i == from || i + 1 == to || v.s->p[i + 1] == '_')) return false;
        if (c != '_') out[(*n)++] = c;
    }
    out[*n] = 0;
    return true;
}

struct jj_val jj_to_int(struct jj_run *r, struct jj_val v, int base, bool *ok) {
    *ok = true;
    if (v.type == JJ_UNDEF) return jj_fail_undef(r, v);
    if (v.type == JJ_INT || v.type == JJ_BIG) return v;
    if (v.type == JJ_BOOL) return jj_int(v.b);
    if (v.type == JJ_FLOAT && isfinite(v.f)) return jj_int_of_double(r, v.f);
    char text[512];
    size_t n;
    if (v.type == JJ_STR && number_text(r, v, text, &n)) {
        const char *p = text + (text[0] == '-' || text[0] == '+');
        if (p[0] == '0' && p[1] &&
            ((p[1] | 32) == 'x' || (p[1] | 32) == 'o' || (p[1] | 32) == 'b')) {
            int prefix = (p[1] | 32) == 'x' ? 16 : (p[1] | 32) == 'o' ? 8 : 2;
            if (base == 0) base = prefix;
            if (base == prefix) p += 2;
        } else if (base == 0) {
            base = 10;
        }
        bool good = *p != 0 && base >= 2 && base <= 36;
        for (const char *q = p; *q && good; q++) {
            int c = *q >= '0' && *q <= '9'                 ? *q - '0'
                    : (*q | 32) >= 'a' && (*q | 32) <= 'z' ? (*q | 32) - 'a' + 10
                                                           : 99;
            good = c < base;
        }
        /* A digit in another base multiplies a working copy. */
        if (good && jj_work(r, strlen(p), base == 10 ? JJ_CHAR : 8 * JJ_STEP)) {
            struct jj_val i = jj_int_literal(&r->cells, p, strlen(p), base);
            if (i.type != JJ_ABSENT) return text[0] == '-' ? jj_negate(r, i) : i;
        }
    }
    *ok = false;
    return jj_undef();
}

struct jj_val jj_to_float(struct jj_run *r, struct jj_val v, bool *ok) {
    *ok = true;
    if (v.type == JJ_UNDEF) return jj_fail_undef(r, v);
    if (jj_is_number(v)) return jj_float(jj_num_double(r, v));
    char text[512];
    size_t n;
    if (v.type == JJ_STR && number_text(r, v, text, &n) && strlen(text) == n &&
        !strpbrk(text, "xXpP(")) {
        char *end;
        (void)jj_work(r, 8, JJ_STEP);
        double f = strtod(text, &end);
        if (*end == 0 && end != text) return jj_float(f);
    }
    *ok = false;
    return jj_undef();
}

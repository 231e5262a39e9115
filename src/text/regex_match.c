/* SPDX-License-Identifier: Apache-2.0
 *
 * regex_match: the matcher: backtracking over an explicit stack.
 *
 * A loop over one class is one stack entry however many characters it took: the entry remembers the
 * range of places where the loop may end and gives back one character at a time. So the stack stays
 * as small as the pattern for all patterns that tokenizers use, and a text of any length is safe.
 */
#include "text/regex_int.h"

#include "text/unicode.h"

struct entry {
    int pc;
    int kind; /* enum entry_kind */
    size_t pos, limit;
};
enum entry_kind {
    PLAIN,
    SHRINK /* pos goes down to limit */,
    GROW /* pos goes up, limit more times */
};

static inline uint32_t get(const struct hr_regex_text *t, size_t pos, size_t *next) {
    if (t->alphabet) {
        *next = pos + 1;
        return t->alphabet[(unsigned char)t->s[pos]];
    }
    int n;
    uint32_t cp = hr_utf8_get(t->s + pos, &n);
    *next = pos + (size_t)n;
    return cp;
}

static inline size_t before(const struct hr_regex_text *t, size_t pos) {
    pos--;
    if (!t->alphabet)
        while (((unsigned char)t->s[pos] & 0xc0) == 0x80) pos--;
    return pos;
}

static inline bool fits(const struct hr_regex *re, const struct hr_rx_inst *in, uint32_t cp) {
    if (in->set >= 0) return hr_rx_has(re->sets[in->set], cp);
    return cp == in->cp[0] || cp == in->cp[1] || cp == in->cp[2];
}

static void push(struct hr_regex_scratch *scratch, int pc, int kind, size_t pos, size_t limit) {
    struct entry e = {pc, kind, pos, limit};
    hr_buf_append(&scratch->stack, &e, sizeof e);
}

static bool is_word_at(const struct hr_regex_text *t, size_t pos) {
    size_t next;
    return hr_uni_is_word(get(t, pos, &next));
}

static bool anchor(const struct hr_rx_inst *in, const struct hr_regex_text *t, size_t pos) {
    switch ((enum hr_rx_op)in->op) {
    case HR_RX_LINE_BEGIN:
        return pos == 0 || (t->s[pos - 1] == '\n' && pos < t->len);
    case HR_RX_LINE_END:
        return pos == t->len || t->s[pos] == '\n';
    case HR_RX_TEXT_BEGIN:
        return pos == 0;
    case HR_RX_TEXT_END:
        return pos == t->len;
    case HR_RX_TEXT_END_NL:
        return pos == t->len || (pos + 1 == t->len && t->s[pos] == '\n');
    default: {
        bool left = pos > 0 && is_word_at(t, before(t, pos));
        bool right = pos < t->len && is_word_at(t, pos);
        return (left != right) != (in->y != 0);
    }
    }
}

/* Runs a loop from pos; false when it cannot take its minimum. Leaves the other ways on the stack.
 */
static bool loop(const struct hr_regex *re, const struct hr_rx_inst *in, int pc,
                 const struct hr_regex_text *t, struct hr_regex_scratch *scratch, size_t *pos) {
    size_t p = *pos, least = *pos, next;
    uint32_t n = 0, want = in->mode == HR_RX_LAZY ? in->min : in->max;
    while (n < want && p < t->len && fits(re, in, get(t, p, &next))) {
        p = next;
        if (++n == in->min) least = p;
    }
    if (n < in->min) return false;
    if (in->mode == HR_RX_GREEDY && p > least) push(scratch, pc + 1, SHRINK, p, least);
    if (in->mode == HR_RX_LAZY && in->max > in->min) push(scratch, pc, GROW, p, in->max - in->min);
    *pos = p;
    return true;
}

/* Takes the next way from the stack above `base`; false when there is none left. */
static bool backtrack(const struct hr_regex *re, const struct hr_regex_text *t,
                      struct hr_regex_scratch *scratch, size_t base, int *pc, size_t *pos) {
    while (scratch->stack.len > base) {
        struct entry *e = (struct entry *)(scratch->stack.data + scratch->stack.len - sizeof *e);
        if (e->kind == SHRINK) {
            e->pos = before(t, e->pos);
            *pc = e->pc;
            *pos = e->pos;
            if (e->pos <= e->limit) scratch->stack.len -= sizeof *e;
            return true;
        }
        if (e->kind == GROW) {
            size_t next;
            const struct hr_rx_inst *in = &re->code[e->pc];
            if (e->limit > 0 && e->pos < t->len && fits(re, in, get(t, e->pos, &next))) {
                e->pos = next;
                if (in->max != UINT32_MAX) e->limit--;
                *pc = e->pc + 1;
                *pos = next;
                return true;
            }
            scratch->stack.len -= sizeof *e;
            continue;
        }
        *pc = e->pc;
        *pos = e->pos;
        scratch->stack.len -= sizeof *e;
        return true;
    }
    return false;
}

/* Matches the code at pc from pos; the end of the match into *end. */
static bool run(const struct hr_regex *re, const struct hr_regex_text *t,
                struct hr_regex_scratch *scratch, int pc, size_t pos, size_t *end) {
    size_t base = scratch->stack.len, next, inner;
    for (;;) {
        const struct hr_rx_inst *in = &re->code[pc];
        bool ok = true;
        switch ((enum hr_rx_op)in->op) {
        case HR_RX_CHAR:
        case HR_RX_SET:
            ok = pos < t->len && fits(re, in, get(t, pos, &next));
            if (ok) pos = next;
            pc++;
            break;
        case HR_RX_LOOP:
            ok = loop(re, in, pc, t, scratch, &pos);
            pc++;
            break;
        case HR_RX_SPLIT:
            push(scratch, in->y, PLAIN, pos, 0);
            pc = in->x;
            break;
        case HR_RX_JUMP:
            pc = in->x;
            break;
        case HR_RX_LOOK:
            ok = run(re, t, scratch, pc + 1, pos, &inner) != (in->y != 0);
            pc = in->x;
            break;
        case HR_RX_BEHIND:
            ok = (pos > 0 && fits(re, in, get(t, before(t, pos), &next))) != (in->y != 0);
            pc++;
            break;
        case HR_RX_ATOMIC:
            ok = run(re, t, scratch, pc + 1, pos, &inner);
            if (ok) pos = inner;
            pc = in->x;
            break;
        case HR_RX_MATCH:
            *end = pos;
            scratch->stack.len = base;
            return true;
        default:
            ok = anchor(in, t, pos);
            pc++;
            break;
        }
        if (!ok && !backtrack(re, t, scratch, base, &pc, &pos)) return false;
    }
}

bool hr_regex_find(const struct hr_regex *re, const struct hr_regex_text *text, size_t from,
                   struct hr_regex_scratch *scratch, size_t *begin, size_t *end) {
    for (size_t pos = from, next; pos <= text->len; pos = next) {
        next = pos + 1;
        bool can = !re->first;
        if (pos < text->len) {
            uint32_t cp = get(text, pos, &next);
            if (!can) can = hr_rx_has(re->first, cp);
        }
        if (can && run(re, text, scratch, 0, pos, end)) {
            *begin = pos;
            return true;
        }
    }
    return false;
}

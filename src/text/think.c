/* SPDX-License-Identifier: Apache-2.0
 *
 * think: finds tags in a template's source; see think.h. */
#include "text/think.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* Tags that no rule makes from each other. Sources: the chat templates of mistralai/Ministral-3-14B-Reasoning,
 * CohereLabs/command-a-reasoning and google/gemma-4. */
static const struct {
    const char *open, *close;
} known[] = {
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel>thought\n", "<channel|>"},
};

void hr_think_finish(struct hr_think *t) {
    free(t->open);
    free(t->close);
    *t = (struct hr_think){0};
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr(":_-.", c));
}

static bool ends_with(const char *s, size_t len, const char *end) {
    size_t n = strlen(end);
    return len >= n && memcmp(s + len - n, end, n) == 0;
}

/* "</NAME>" at s, of a name that says thinking: the length of NAME, else 0. */
static size_t closing_name(const char *s, size_t len) {
    size_t n = 0;
    while (2 + n < len && is_name(s[2 + n])) n++;
    bool closed = 2 + n < len && s[2 + n] == '>';
    return closed && (ends_with(s + 2, n, "think") || ends_with(s + 2, n, "thinking")) ? n : 0;
}

static bool find_named(const char *source, size_t len, struct hr_think *out) {
    const char *end = source + len, *s = source;
    for (; (s = memmem(s, (size_t)(end - s), "</", 2)); s += 2) {
        size_t n = closing_name(s, (size_t)(end - s));
        if (n == 0) continue;
        out->close = hr_xstrndup(s, n + 3);
        out->open = hr_xstrndup(s + 1, n + 2);
        out->open[0] = '<';
        return true;
    }
    return false;
}

void hr_think_detect(const char *source, size_t len, struct hr_think *out) {
    *out = (struct hr_think){0};
    if (len == 0 || find_named(source, len, out)) return;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!memmem(source, len, known[i].close, strlen(known[i].close))) continue;
        out->open = hr_xstrdup(known[i].open);
        out->close = hr_xstrdup(known[i].close);
        return;
    }
}

static bool is_of_user(const struct hr_rendered *r, size_t begin, size_t end) {
    for (size_t i = 0; i < r->n_user; i++)
        if (r->user[i].begin < end && r->user[i].end > begin) return true;
    return false;
}

bool hr_think_is_begun(const struct hr_rendered *prompt, const char *open, size_t open_len) {
    const char *text = prompt->text.data;
    /* A tag may end in white space itself, so the longest end that could be one is tried first. */
    for (size_t len = prompt->text.len;; len--) {
        if (len >= open_len && memcmp(text + len - open_len, open, open_len) == 0)
            return !is_of_user(prompt, len - open_len, len);
        if (len == 0 || !strchr(" \t\r\n", text[len - 1]) || !text[len - 1]) return false;
    }
}

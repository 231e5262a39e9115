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

bool hr_think_is_begun(const char *prompt, size_t len, const char *open, size_t open_len) {
    /* A tag may end in white space itself, so the longest end that could be one is tried first. */
    for (;; len--) {
        if (len >= open_len && memcmp(prompt + len - open_len, open, open_len) == 0) return true;
        if (len == 0 || !strchr(" \t\r\n", prompt[len - 1]) || !prompt[len - 1]) return false;
    }
}

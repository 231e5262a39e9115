/* SPDX-License-Identifier: Apache-2.0
 *
 * think: the tags between which a model writes down its reasoning, and whether a prompt has opened them.
 *
 * The tags come from the chat template's text, because that is where a model's makers write them: every
 * template that shows a reasoning model's earlier turns cuts them at the closing tag. Taken are, in this
 * order: the first "</NAME>" whose name ends in "think" or "thinking" (so <think>, <thinking>,
 * <seed:think>, <mm:think>); [THINK]; <|START_THINKING|>; Gemma 4's thought channel. Not taken are formats
 * in which the answer has a tag of its own, too (gpt-oss's channels): cutting at one tag would leave the
 * other in the answer. */
#ifndef HR_TEXT_THINK_H
#define HR_TEXT_THINK_H

#include <stdbool.h>
#include <stddef.h>

#include "text/template.h" /* struct hr_rendered */

struct hr_think {
    char *open, *close; /* owned, not empty; NULL both: the model does not think */
};
void hr_think_finish(struct hr_think *t); /* zeroed is valid */

/* Fills *out from a template's source; nothing when it names no tags. */
void hr_think_detect(const char *source, size_t len, struct hr_think *out);

/* Does a prompt end with the opening tag (white space may follow)? Then the completion begins inside. A tag of
 * which a user wrote a byte is text. */
bool hr_think_is_begun(const struct hr_rendered *prompt, const char *open, size_t open_len);

#endif

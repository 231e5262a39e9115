/* SPDX-License-Identifier: Apache-2.0
 *
 * charsmap: the Precompiled normalizer: SentencePiece's table of replaced strings.
 *
 * The table is a double-array trie of keys and a block of NUL-ended replacements. The reference
 * does not replace the longest key, as SentencePiece does: it looks at grapheme clusters, and a
 * cluster below six bytes becomes, as a whole, what its *shortest* key stands for; otherwise each
 * character is looked up alone. Models were trained on the other rule, but their users run this
 * one. Source: crate spm_precompiled 0.1.4; tokenizers 0.23.3, src/normalizers/precompiled.rs;
 * s-yata/darts-clone, include/darts.h. */
#ifndef HR_TEXT_CHARSMAP_H
#define HR_TEXT_CHARSMAP_H

#include <stdbool.h>

#include "base/buf.h"

struct hr_charsmap;

/* From the table's bytes (already out of base64). Errors: HR_ERR_FORMAT. */
HR_MUST_USE enum hr_status hr_charsmap_create(const uint8_t *bytes, size_t len,
                                              struct hr_charsmap **out, struct hr_err *err);
void hr_charsmap_destroy(struct hr_charsmap **m);

/* Appends s with its replacements. mark, NULL or [len]: a flag a byte, carried to out_mark. */
void hr_charsmap_run(const struct hr_charsmap *m, const char *s, size_t len, const uint8_t *mark,
                     struct hr_buf *out, struct hr_buf *out_mark);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz: what the targets share. A target is one fuzz_<what>.c with LLVMFuzzerTestOneInput; what it
 * needs over a life (a folder, a prepared store) it makes at its first input.
 *
 * A target does not only wait for a crash: FUZZ_CHECK states what must hold of whatever was
 * accepted (a row reads back as itself, ids are inside the vocabulary, nothing committed is lost).
 * Bytes that a parser sees lie in memory of exactly their length, so that a read past them is seen.
 */
#ifndef HR_TESTS_FUZZ_H
#define HR_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(x)                                                                              \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #x);                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* An input of two parts is cut at its first NUL, which none of the formats has raw. Both copies are
 * owned and exact; *second is NULL when there is no NUL. */
void fuzz_cut(const uint8_t *data, size_t size, char **first, size_t *first_len, char **second,
              size_t *second_len);
char *fuzz_copy(const void *data, size_t len); /* exact, owned */

/* A folder of this process under $TMPDIR, made at the first call and removed at exit. Static. */
const char *fuzz_dir(void);
/* Puts dir/name into path[], and writes the file. */
#define FUZZ_PATH_MAX 256
void fuzz_path(char path[FUZZ_PATH_MAX], const char *name);
void fuzz_write(const char *name, const void *data, size_t len);
void fuzz_read(const char *name, struct hr_buf *out); /* appends; nothing when there is no file */
void fuzz_remove(const char *name);

/* Appends bytes, each maximal invalid subpart as U+FFFD. */
void fuzz_make_utf8(struct hr_buf *out, const uint8_t *s, size_t n);

/* Encodes and decodes in every mode and holds the results to tokenizer.h. */
void fuzz_use_tokenizer(const struct hr_tokenizer *tok, const char *text, size_t len);

/* For targets that link fuzz_map.c: hr_map_open gives these bytes for every path that ends in
 * `name`, in memory of exactly that length instead of a mapping, whose last page could be read past
 * its end unseen. data: borrowed. At most two names; NULL forgets all. */
void fuzz_serve(const char *name, const void *data, size_t len);

#endif

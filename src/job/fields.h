/* SPDX-License-Identifier: Apache-2.0
 *
 * fields: the members of a row, each key once.
 *
 * Of equal keys (after decoding) the last value wins, at the first one's place, as in Python.
 * Linear time whatever the row holds: a hash table, because a line may have a million keys. */
#ifndef HR_JOB_FIELDS_H
#define HR_JOB_FIELDS_H

#include "base/jscan.h"

struct hr_field {
    struct hr_jval key, value; /* borrowed from the row's text */
    uint64_t hash;             /* of the decoded key */
    bool used;                 /* for the caller: not to be carried */
};

struct hr_fields {
    struct hr_field *v; /* owned, [n], in file order */
    size_t n, cap;
    uint32_t *slots; /* owned; 1 + index into v, 0: free */
    size_t n_slots;  /* a power of two, or 0 */
};

/* Reads a validated object. A zeroed struct, or one that was used before: its memory is reused. */
void hr_fields_read(struct hr_fields *f, const struct hr_jval *object);
void hr_fields_finish(struct hr_fields *f);
/* NULL when there is none. */
struct hr_field *hr_fields_find(const struct hr_fields *f, const char *key, size_t len);

#endif

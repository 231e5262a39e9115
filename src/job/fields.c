/* SPDX-License-Identifier: Apache-2.0
 *
 * fields: open addressing over decoded keys, at most half full. */
#include "job/fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

void hr_fields_finish(struct hr_fields *f) {
    free(f->v);
    free(f->slots);
    *f = (struct hr_fields){0};
}

/* The slot of a key that is there, or the free one where it belongs. */
static uint32_t *find_slot(const struct hr_fields *f, uint64_t hash, const char *key, size_t len) {
    for (size_t i = hash & (f->n_slots - 1);; i = (i + 1) & (f->n_slots - 1)) {
        uint32_t *slot = &f->slots[i];
        if (*slot == 0) return slot;
        const struct hr_field *field = &f->v[*slot - 1];
        if (field->hash == hash && hr_jscan_str_eq(&field->key, key, len)) return slot;
    }
}

static void rehash(struct hr_fields *f) {
    f->n_slots = f->n_slots == 0 ? 64 : 2 * f->n_slots;
    free(f->slots);
    f->slots = hr_xcalloc(f->n_slots, sizeof *f->slots);
    for (size_t i = 0; i < f->n; i++) {
        size_t at = f->v[i].hash & (f->n_slots - 1);
        while (f->slots[at] != 0) at = (at + 1) & (f->n_slots - 1);
        f->slots[at] = (uint32_t)i + 1;
    }
}

void hr_fields_read(struct hr_fields *f, const struct hr_jval *object) {
    struct hr_jiter it = {0};
    struct hr_jval key, value;
    struct hr_buf text = {0};
    f->n = 0;
    if (f->n_slots > 0) memset(f->slots, 0, f->n_slots * sizeof *f->slots);
    while (hr_jscan_next(object, &it, &key, &value)) {
        if (2 * (f->n + 1) > f->n_slots) rehash(f);
        hr_buf_clear(&text);
        hr_jscan_str(&key, &text);
        uint64_t hash = hr_hash64(text.data, text.len, 0);
        uint32_t *slot = find_slot(f, hash, text.data, text.len);
        if (*slot != 0) {
            f->v[*slot - 1].value = value;
            continue;
        }
        if (f->n == f->cap) {
            f->cap = f->cap == 0 ? 16 : 2 * f->cap;
            f->v = hr_xrealloc(f->v, f->cap * sizeof *f->v);
        }
        f->v[f->n++] = (struct hr_field){key, value, hash, false};
        *slot = (uint32_t)f->n;
    }
    hr_buf_finish(&text);
}

struct hr_field *hr_fields_find(const struct hr_fields *f, const char *key, size_t len) {
    if (f->n == 0) return NULL;
    uint32_t *slot = find_slot(f, hr_hash64(key, len, 0), key, len);
    return *slot == 0 ? NULL : &f->v[*slot - 1];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * map: linear probing; an erased entry is closed by moving later ones back, so there are no tombstones. */
#include "kv/map.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/buf.h"

void hr_kv_map_finish(struct hr_kv_map *m) {
    free(m->entries);
    *m = (struct hr_kv_map){0};
}

/* Where key is, or the empty place where it would be. */
static size_t place(const struct hr_kv_map *m, uint64_t key) {
    size_t i = (size_t)key & (m->cap - 1);
    while (m->entries[i].key && m->entries[i].key != key) i = (i + 1) & (m->cap - 1);
    return i;
}

const struct hr_kv_entry *hr_kv_map_find(const struct hr_kv_map *m, uint64_t key) {
    if (!m->cap) return NULL;
    const struct hr_kv_entry *e = &m->entries[place(m, key)];
    return e->key ? e : NULL;
}

static void grow(struct hr_kv_map *m) {
    struct hr_kv_map big = {.cap = m->cap ? 2 * m->cap : 1024, .n = m->n};
    big.entries = hr_xcalloc(big.cap, sizeof *big.entries);
    for (size_t i = 0; i < m->cap; i++)
        if (m->entries[i].key) big.entries[place(&big, m->entries[i].key)] = m->entries[i];
    free(m->entries);
    *m = big;
}

static void erase(struct hr_kv_map *m, size_t i) {
    size_t mask = m->cap - 1, hole = i;
    for (size_t k = (i + 1) & mask; m->entries[k].key; k = (k + 1) & mask) {
        size_t home = (size_t)m->entries[k].key & mask;
        /* Entry k may move into the hole if its home is not between the hole and k. */
        if (((k - home) & mask) >= ((k - hole) & mask)) {
            m->entries[hole] = m->entries[k];
            hole = k;
        }
    }
    m->entries[hole] = (struct hr_kv_entry){0};
    m->n--;
}

int hr_kv_map_add(struct hr_kv_map *m, uint64_t key, int known, int promised) {
    if (2 * (m->n + 1) > m->cap) grow(m);
    size_t i = place(m, key);
    struct hr_kv_entry *e = &m->entries[i];
    m->n += e->key == 0;
    e->key = key;
    e->n_known += known;
    e->n_promised += promised;
    HR_ASSERT(e->n_known >= 0 && e->n_promised >= 0);
    int n_known = e->n_known;
    if (!e->n_known && !e->n_promised) erase(m, i);
    return n_known;
}

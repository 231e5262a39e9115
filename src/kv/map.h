/* SPDX-License-Identifier: Apache-2.0
 *
 * map: counts by prefix hash, private to src/kv: how many known users a page of tokens has, and how many
 * running sequences have promised to compute it. Entries with both counts 0 are gone. Counts steer eviction
 * and waiting alone, so a collision of 64-bit hashes can cost speed, never a wrong page. */
#ifndef HR_KV_MAP_H
#define HR_KV_MAP_H

#include <stddef.h>
#include <stdint.h>

struct hr_kv_entry {
    uint64_t key; /* 0: empty */
    int32_t n_known, n_promised;
};

struct hr_kv_map {
    struct hr_kv_entry *entries; /* owned; open addressing, [cap], cap a power of two */
    size_t cap, n;
};

void hr_kv_map_finish(struct hr_kv_map *m); /* zeroed is valid */
/* NULL when there is none. Borrowed until the next add. */
const struct hr_kv_entry *hr_kv_map_find(const struct hr_kv_map *m, uint64_t key);
/* Adds to both counts (never below 0, asserted) and returns the number of known users. */
int hr_kv_map_add(struct hr_kv_map *m, uint64_t key, int known, int promised);

#endif

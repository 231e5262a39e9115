/* SPDX-License-Identifier: Apache-2.0
 *
 * pages: the pool of KV page ids. Knows which ids are free and nothing of what a page holds.
 *
 * Invariant: n_free + pages handed out == n_pages; a page is handed out once. */
#ifndef HR_KV_PAGES_H
#define HR_KV_PAGES_H

#include <stdint.h>

struct hr_kv_pages;

/* Ids 0 .. n_pages-1. scatter: 0 hands out ascending ids; otherwise a permutation seeded by it, so that
 * tests meet pages in no order at all. */
struct hr_kv_pages *hr_kv_pages_create(int n_pages, uint64_t scatter);
void hr_kv_pages_destroy(struct hr_kv_pages **p);

/* A free page, or -1 when there is none. The last page given back is the first handed out. */
int32_t hr_kv_pages_take(struct hr_kv_pages *p);
/* Gives n pages back; each must be handed out (asserted). */
void hr_kv_pages_give(struct hr_kv_pages *p, const int32_t *ids, int n);

int hr_kv_pages_n_free(const struct hr_kv_pages *p);
int hr_kv_pages_n_total(const struct hr_kv_pages *p);

#endif

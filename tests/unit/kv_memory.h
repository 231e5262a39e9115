/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_memory: a stand-in for the bytes of device and host pages, for tests of kv and schedule. A position's
 * KV is stood for by a hash of all tokens up to it: what attention would read. So a page that is stale,
 * swapped, loaded from the wrong place or handed out twice shows as a wrong value. And pages of other tokens
 * with the same hash: the tree must not take one for the other. */
#ifndef HR_TESTS_KV_MEMORY_H
#define HR_TESTS_KV_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kv/kv.h"

struct memory {
    uint64_t (*dev)[HR_KV_PAGE_TOKENS], (*host)[HR_KV_PAGE_TOKENS];
};

static void memory_init(struct memory *m, int n_pages, int n_host) {
    m->dev = calloc((size_t)n_pages, sizeof *m->dev);
    m->host = calloc((size_t)n_host + 1, sizeof *m->host);
}

static void memory_finish(struct memory *m) {
    free(m->dev);
    free(m->host);
}

static void memory_obey(struct memory *m, const struct hr_kv_order *o, int n) {
    for (int i = 0; i < n; i++) {
        if (o[i].kind == HR_KV_SAVE) memcpy(m->host[o[i].host_page], m->dev[o[i].page], sizeof *m->dev);
        else memcpy(m->dev[o[i].page], m->host[o[i].host_page], sizeof *m->dev);
    }
}

/* Checks positions [0, pos0) of a sequence and writes those up to pos1; returns the first wrong position,
 * or -1. */
static int memory_compute(struct memory *m, const int32_t *tokens, const int32_t *pages, int pos0, int pos1) {
    uint64_t h = 7;
    for (int i = 0; i < pos1; i++) {
        h = hr_hash64(&tokens[i], sizeof *tokens, h);
        uint64_t *at = &m->dev[pages[i / HR_KV_PAGE_TOKENS]][i % HR_KV_PAGE_TOKENS];
        if (i >= pos0) *at = h;
        else if (*at != h) return i;
    }
    return -1;
}

/* Positions [pos0, pos1) hold what no sequence expects. */
static inline void memory_taint(struct memory *m, const int32_t *pages, int pos0, int pos1) {
    for (int i = pos0; i < pos1; i++) m->dev[pages[i / HR_KV_PAGE_TOKENS]][i % HR_KV_PAGE_TOKENS] = ~UINT64_C(0);
}

/* Changes a page of tokens below a node of hash `chain` into another of the same hash: the second word makes up
 * for what the first did to the state (hr_hash64, eight bytes a round). */
static inline void memory_twin(int32_t *page, uint64_t chain) {
    const uint64_t start = chain ^ UINT64_C(0x9E3779B97F4A7C15) ^ HR_KV_PAGE_TOKENS * sizeof *page;
    uint64_t word[2], after[2];
    memcpy(word, page, sizeof word);
    for (int i = 0; i < 2; i++) {
        word[0] ^= (uint64_t)i * 0x123;
        after[i] = (start ^ word[0]) * UINT64_C(0xff51afd7ed558ccd);
        after[i] ^= after[i] >> 32;
    }
    word[1] ^= after[0] ^ after[1];
    memcpy(page, word, sizeof word);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * pages: a stack of free ids and a mark for each page that is out. */
#include "kv/pages.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/rng.h"

struct hr_kv_pages {
    int n_pages, n_free;
    int32_t *stack; /* owned; the n_free ids that are free, next one last */
    bool *out;      /* owned; [n_pages] */
};

struct hr_kv_pages *hr_kv_pages_create(int n_pages, uint64_t scatter) {
    HR_ASSERT(n_pages > 0);
    struct hr_kv_pages *p = hr_xcalloc(1, sizeof *p);
    p->n_pages = p->n_free = n_pages;
    p->stack = hr_xmalloc((size_t)n_pages * sizeof *p->stack);
    p->out = hr_xcalloc((size_t)n_pages, sizeof *p->out);
    for (int i = 0; i < n_pages; i++) p->stack[i] = n_pages - 1 - i;
    for (int i = n_pages - 1; scatter && i > 0; i--) { /* Fisher-Yates */
        int j = (int)(hr_rng_uniform(scatter, 0, (uint64_t)i) * (i + 1));
        int32_t t = p->stack[i];
        p->stack[i] = p->stack[j];
        p->stack[j] = t;
    }
    return p;
}

void hr_kv_pages_destroy(struct hr_kv_pages **pp) {
    struct hr_kv_pages *p = *pp;
    if (!p) return;
    free(p->stack);
    free(p->out);
    free(p);
    *pp = NULL;
}

int32_t hr_kv_pages_take(struct hr_kv_pages *p) {
    if (p->n_free == 0) return -1;
    int32_t id = p->stack[--p->n_free];
    HR_ASSERT(!p->out[id]);
    p->out[id] = true;
    return id;
}

void hr_kv_pages_give(struct hr_kv_pages *p, const int32_t *ids, int n) {
    for (int i = 0; i < n; i++) {
        HR_ASSERT(ids[i] >= 0 && ids[i] < p->n_pages && p->out[ids[i]]);
        p->out[ids[i]] = false;
        p->stack[p->n_free++] = ids[i];
    }
}

int hr_kv_pages_n_free(const struct hr_kv_pages *p) {
    return p->n_free;
}

int hr_kv_pages_n_total(const struct hr_kv_pages *p) {
    return p->n_pages;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * mem: device memory of the CPU backend: slabs on huge pages, and guarded regions.
 *
 * Decode reads every weight once a step, so the page tables matter: with 4 KiB pages a core spends
 * a good part of the time on table walks. A guarded region proves in tests that nobody but an
 * operation touches device memory: outside of one it is PROT_NONE, and a stray access is a SIGSEGV.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu_int.h"
#include "base/assert.h"
#include "base/buf.h"

#define PAGE       ((size_t)4096)
#define HUGE_PAGE  ((size_t)2 << 20)
#define SLAB_BYTES ((size_t)32 << 20) /* what does not fit into one gets its own */

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* Maps `bytes` on a huge-page border; NULL with errno. */
static void *map_aligned(size_t bytes) {
    char *p =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    char *at = (char *)round_up((size_t)p, HUGE_PAGE);
    if (at > p) munmap(p, (size_t)(at - p));
    munmap(at + bytes, (size_t)(p + HUGE_PAGE - at));
    madvise(at, bytes, MADV_HUGEPAGE); /* only a wish */
    return at;
}

static struct hr_cpu_slab *slab_create(size_t bytes) {
    void *map = map_aligned(bytes);
    if (!map) return NULL;
    struct hr_cpu_slab *slab = hr_xcalloc(1, sizeof *slab);
    *slab = (struct hr_cpu_slab){.map = map, .bytes = bytes, .n_live = 1};
    return slab;
}

void hr_cpu_slab_release(struct hr_cpu_slab **slab) {
    struct hr_cpu_slab *s = *slab;
    *slab = NULL;
    if (!s || --s->n_live > 0) return;
    munmap(s->map, s->bytes);
    free(s);
}

enum hr_status hr_cpu_region_init(struct hr_cpu *be, struct hr_cpu_region *r, size_t bytes,
                                  const char *name, struct hr_err *err) {
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    size_t need = round_up(bytes, PAGE);
    if (be->guard || need > SLAB_BYTES) {
        r->slab = slab_create(need);
        if (!r->slab) goto fail;
    } else {
        if (!be->slab || be->slab->bytes - be->slab->used < need) {
            hr_cpu_slab_release(&be->slab);
            be->slab = slab_create(SLAB_BYTES);
            if (!be->slab) goto fail;
        }
        r->slab = be->slab;
        r->slab->n_live++;
    }
    r->data = (char *)r->slab->map + r->slab->used;
    r->slab->used += need;
    r->bytes = need;
    r->guard = be->guard;
    if (r->guard && mprotect(r->data, need, PROT_NONE) != 0) goto fail;
    return HR_OK;
fail:
    hr_err_set(err, HR_ERR_NOMEM, "no memory for %s (%.1f MiB): %s", name,
               (double)bytes / (1 << 20), strerror(errno));
    hr_cpu_region_finish(r);
    return HR_ERR_NOMEM;
}

void hr_cpu_region_finish(struct hr_cpu_region *r) {
    if (!r->slab) return;
    HR_ASSERT(r->n_inside == 0);
    hr_cpu_slab_release(&r->slab);
    pthread_mutex_destroy(&r->lock);
    r->data = NULL;
}

/* The bytes of a const tensor are const to the operation; its guard is not part of its value. */
static struct hr_cpu_region *writable(const struct hr_cpu_region *r) {
    return (struct hr_cpu_region *)(uintptr_t)r;
}

void hr_cpu_region_enter(const struct hr_cpu_region *region) {
    struct hr_cpu_region *r = writable(region);
    if (!r->guard) return;
    pthread_mutex_lock(&r->lock);
    if (r->n_inside++ == 0) HR_ASSERT(mprotect(r->data, r->bytes, PROT_READ | PROT_WRITE) == 0);
    pthread_mutex_unlock(&r->lock);
}

void hr_cpu_region_leave(const struct hr_cpu_region *region) {
    struct hr_cpu_region *r = writable(region);
    if (!r->guard) return;
    pthread_mutex_lock(&r->lock);
    HR_ASSERT(r->n_inside > 0);
    if (--r->n_inside == 0) HR_ASSERT(mprotect(r->data, r->bytes, PROT_NONE) == 0);
    pthread_mutex_unlock(&r->lock);
}

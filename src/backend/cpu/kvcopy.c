/* SPDX-License-Identifier: Apache-2.0
 *
 * kvcopy: copies of KV pages to the host tier and back, on a thread of their own.
 *
 * The thread does one list of copies at a time, in order, while the step loop computes; which pages the two
 * may touch meanwhile is the caller's to see to (backend.h). While it has nothing to copy it touches the host
 * tier's memory from its begin to its end, once: so a machine that cannot hold it says so in the first minutes,
 * not in hour nine, and few copies wait for the system to find a page. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "backend/cpu/cpu_int.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"

#define SYSTEM_PAGE 4096
#define TOUCH_BYTES (1 << 21) /* between two looks for copies: one huge page */
#define TOUCH_SHARE 25 /* it touches memory in one of so many moments: with one of five, a job of a minute was 5 % slower */

struct hr_cpu_copier {
    struct hr_kv_store *kv; /* borrowed */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    const struct hr_kv_copy *list; /* borrowed; NULL: nothing is out */
    int n;
    bool stop;
};

/* The bytes of a page in one layer, and of a host page in one layer. */
static char *page_at(const struct hr_kv_store *kv, int layer, int32_t page) {
    HR_ASSERT(page >= 0 && page < kv->n_pages);
    return (char *)kv->mem.data +
           ((size_t)layer * (size_t)kv->n_pages + (size_t)page) * kv->page_bytes;
}

static char *host_at(const struct hr_kv_store *kv, int layer, int32_t host_page) {
    HR_ASSERT(host_page >= 0 && host_page < kv->n_host_pages);
    return (char *)kv->host.data +
           ((size_t)host_page * (size_t)kv->n_layers + (size_t)layer) * kv->page_bytes;
}

static void copy_page(struct hr_kv_store *kv, const struct hr_kv_copy *c) {
    uint32_t crc = 0;
    for (int i = 0; i < kv->n_layers; i++) {
        char *dev = page_at(kv, i, c->page), *host = host_at(kv, i, c->host_page);
        memcpy(c->to_host ? host : dev, c->to_host ? dev : host, kv->page_bytes);
        if (kv->host_crc) crc = hr_crc32c(crc, host, kv->page_bytes);
    }
    if (kv->host_crc && c->to_host) kv->host_crc[c->host_page] = crc;
    HR_ASSERT(!kv->host_crc || kv->host_crc[c->host_page] == crc); /* what was saved is what is loaded */
}

/* Makes the system hand out the next piece of the host tier, whose bytes stay as they are; returns where to go
 * on. A system that cannot do that (Linux before 5.14) hands it out as it is used. */
static size_t touch(struct hr_kv_store *kv, size_t from) {
    size_t to = kv->host.bytes - from < TOUCH_BYTES ? kv->host.bytes : from + TOUCH_BYTES;
    hr_cpu_region_enter(&kv->host);
    uintptr_t begin = (uintptr_t)kv->host.data + from, end = (uintptr_t)kv->host.data + to;
    begin &= ~(uintptr_t)(SYSTEM_PAGE - 1);
    int rc = madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
    hr_cpu_region_leave(&kv->host);
    return rc == 0 || errno == EAGAIN ? to : kv->host.bytes;
}

/* Waits for something to change, at most ns. */
static void rest(struct hr_cpu_copier *c, int64_t ns) {
    int64_t until = hr_clock_ns() + ns; /* monotonic, as the condition's clock */
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(&c->changed, &c->lock, &t);
}

static void copy_list(struct hr_kv_store *kv, const struct hr_kv_copy *list, int n) {
    hr_cpu_region_enter(&kv->mem);
    hr_cpu_region_enter(&kv->host);
    for (int i = 0; i < n; i++) copy_page(kv, &list[i]);
    hr_cpu_region_leave(&kv->host);
    hr_cpu_region_leave(&kv->mem);
}

static void *run(void *arg) {
    struct hr_cpu_copier *c = arg;
    size_t touched = 0;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (c->list) {
            pthread_mutex_unlock(&c->lock);
            copy_list(c->kv, c->list, c->n); /* nobody changes them while a list is out */
            pthread_mutex_lock(&c->lock);
            c->list = NULL;
            pthread_cond_broadcast(&c->changed);
        } else if (touched < c->kv->host.bytes) {
            int64_t begin = hr_clock_ns();
            pthread_mutex_unlock(&c->lock);
            touched = touch(c->kv, touched);
            pthread_mutex_lock(&c->lock);
            if (!c->list && !c->stop) rest(c, (TOUCH_SHARE - 1) * (hr_clock_ns() - begin));
        } else {
            pthread_cond_wait(&c->changed, &c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

enum hr_status hr_cpu_copier_create(struct hr_kv_store *kv, struct hr_err *err) {
    struct hr_cpu_copier *c = hr_xcalloc(1, sizeof *c);
    c->kv = kv;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    kv->copier = c;
    if (pthread_create(&c->thread, NULL, run, c) == 0) return HR_OK;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    kv->copier = NULL;
    return hr_err_set(err, HR_ERR_FAILED, "cannot start the thread that copies KV pages");
}

void hr_cpu_copier_destroy(struct hr_kv_store *kv) {
    struct hr_cpu_copier *c = kv->copier;
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    kv->copier = NULL;
}

void hr_cpu_kv_copy(struct hr_backend *base, struct hr_kv_store *kv, const struct hr_kv_copy *copies,
                    int n) {
    struct hr_cpu_copier *c = kv->copier;
    if (n == 0) return;
    HR_ASSERT(c);
    pthread_mutex_lock(&c->lock);
    HR_ASSERT(!c->list);
    c->list = copies;
    c->n = n;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void hr_cpu_kv_copy_wait(struct hr_backend *base, struct hr_kv_store *kv) {
    struct hr_cpu_copier *c = kv->copier;
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    while (c->list) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

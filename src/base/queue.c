/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: a ring under one mutex; see queue.h. */
#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"

struct hr_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    char *ring; /* [cap * elem] */
    size_t elem, cap, head, len;
    bool closed;
};

struct hr_queue *hr_queue_create(size_t elem_size, size_t capacity) {
    HR_ASSERT(elem_size > 0 && capacity > 0);
    struct hr_queue *q = hr_xcalloc(1, sizeof *q);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_empty, NULL);
    pthread_cond_init(&q->not_full, NULL);
    q->ring = hr_xmalloc(elem_size * capacity);
    q->elem = elem_size;
    q->cap = capacity;
    return q;
}

void hr_queue_destroy(struct hr_queue **pq) {
    struct hr_queue *q = *pq;
    if (!q) return;
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->not_empty);
    pthread_cond_destroy(&q->not_full);
    free(q->ring);
    free(q);
    *pq = NULL;
}

size_t hr_queue_push(struct hr_queue *q, const void *elems, size_t n, bool wait) {
    pthread_mutex_lock(&q->lock);
    while (wait && n > 0 && q->len == q->cap && !q->closed) pthread_cond_wait(&q->not_full, &q->lock);
    size_t k = q->closed ? 0 : q->cap - q->len < n ? q->cap - q->len : n;
    for (size_t i = 0; i < k; i++) {
        size_t at = (q->head + q->len + i) % q->cap;
        memcpy(q->ring + at * q->elem, (const char *)elems + i * q->elem, q->elem);
    }
    q->len += k;
    if (k) pthread_cond_broadcast(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
    return k;
}

size_t hr_queue_pop(struct hr_queue *q, void *elems, size_t n, bool wait) {
    pthread_mutex_lock(&q->lock);
    while (wait && n > 0 && q->len == 0 && !q->closed) pthread_cond_wait(&q->not_empty, &q->lock);
    size_t k = q->len < n ? q->len : n;
    for (size_t i = 0; i < k; i++)
        memcpy((char *)elems + i * q->elem, q->ring + (q->head + i) % q->cap * q->elem, q->elem);
    q->head = (q->head + k) % q->cap;
    q->len -= k;
    if (k) pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
    return k;
}

size_t hr_queue_len(struct hr_queue *q) {
    pthread_mutex_lock(&q->lock);
    size_t n = q->len;
    pthread_mutex_unlock(&q->lock);
    return n;
}

void hr_queue_close(struct hr_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * queue: a bounded queue of fixed-size elements between threads; what flows back is back-pressure.
 *
 * Many producers, many consumers; a mutex and two condition variables (a few thousand elements a
 * second pass here, so simplicity wins). Elements are copied in and out. */
#ifndef HR_BASE_QUEUE_H
#define HR_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

struct hr_queue;

struct hr_queue *hr_queue_create(size_t elem_size, size_t capacity);
void hr_queue_destroy(struct hr_queue **q);
/* Up to n elements in, blocking until at least one fits unless `wait` is false; returns how many went
 * in: 0 when it is full and wait is false, or when the queue is closed. */
size_t hr_queue_push(struct hr_queue *q, const void *elems, size_t n, bool wait);
/* Up to n elements out, blocking until at least one is there unless `wait` is false; 0 when empty and
 * wait is false, or when closed and drained. */
size_t hr_queue_pop(struct hr_queue *q, void *elems, size_t n, bool wait);
size_t hr_queue_len(struct hr_queue *q);
/* Nothing more can be pushed; waiting pushers and poppers wake up. */
void hr_queue_close(struct hr_queue *q);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: the main thread's event loop: timers, signals, a bell that other threads ring, and work
 * that goes to worker threads. libuv stands behind it, in loop.c only.
 *
 * All functions are for the loop's thread but hr_wake_ring. All callbacks run on the loop's thread
 * but the `work` of an item, which runs on a worker. Handles belong to the loop: hr_loop_destroy
 * closes them. A `work` function owns what its `arg` points to until its `done` has been called. */
#ifndef HR_JOB_LOOP_H
#define HR_JOB_LOOP_H

#include <stdint.h>

#include "base/status.h"

struct hr_loop;
struct hr_timer;
struct hr_wake;

typedef void (*hr_loop_fn)(void *arg);
typedef void (*hr_loop_signal_fn)(void *arg, int signum);

HR_MUST_USE enum hr_status hr_loop_create(struct hr_loop **out, struct hr_err *err);
/* Waits for the work that is out (its `done` functions are called; timers, signals and bells call
 * nobody any more), then closes everything. */
void hr_loop_destroy(struct hr_loop **loop);

/* Runs until hr_loop_stop. It can be run again afterwards. */
void hr_loop_run(struct hr_loop *loop);
/* hr_loop_run returns once the callbacks that are due have been called. */
void hr_loop_stop(struct hr_loop *loop);

/* Calls fn every `ms` milliseconds, the first time after `ms`. Ticks that were missed are not made
 * up for. *out (may be NULL) is borrowed until the loop is destroyed. */
HR_MUST_USE enum hr_status hr_loop_timer(struct hr_loop *loop, int ms, hr_loop_fn fn, void *arg,
                                         struct hr_timer **out, struct hr_err *err);
/* Stops it for good when ms is 0, otherwise goes on with another period, counted from now. */
void hr_timer_set(struct hr_timer *timer, int ms);

/* Calls fn for each arrival of a signal instead of its default action, until hr_loop_destroy. */
HR_MUST_USE enum hr_status hr_loop_signal(struct hr_loop *loop, int signum, hr_loop_signal_fn fn,
                                          void *arg, struct hr_err *err);

/* A bell: rung by any thread, any number of times, it calls fn soon and at least once after the
 * last ring (several rings may become one call). */
HR_MUST_USE enum hr_status hr_loop_wake(struct hr_loop *loop, hr_loop_fn fn, void *arg,
                                        struct hr_wake **out, struct hr_err *err);
/* Thread-safe, also for signal handlers. Nobody may ring after hr_loop_destroy began. */
void hr_wake_ring(struct hr_wake *wake);

/* At most this many items may be out at a time (asserted): the caller bounds what it hands over. */
#define HR_LOOP_PENDING_MAX 4096

/* Calls work(arg) on a worker thread (libuv has four, or UV_THREADPOOL_SIZE), then done(arg) on the
 * loop's (NULL: nothing). */
void hr_loop_work(struct hr_loop *loop, hr_loop_fn work, hr_loop_fn done, void *arg);
/* As hr_loop_work, but items given here never overlap: they run one after the other, in order, and
 * their `done` functions are called in order. For what may be used by one thread at a time. */
void hr_loop_serial(struct hr_loop *loop, hr_loop_fn work, hr_loop_fn done, void *arg);
/* Items whose `done` has not been called yet: of both kinds, and of hr_loop_serial alone. */
int hr_loop_pending(const struct hr_loop *loop);
int hr_loop_serial_pending(const struct hr_loop *loop);

#endif

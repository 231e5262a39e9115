/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: see loop.h. Every handle is on the heap in one list of the loop, because libuv wants it to
 * live until its close callback has run. The serial queue keeps one item at the workers and the
 * others in a list; the next one leaves before the `done` of the last is called, so that the worker
 * does not wait for the loop. Source: libuv 1.x documentation, docs.libuv.org. */
#include "job/loop.h"

#include <stdbool.h>
#include <stdlib.h>
#include <uv.h>

#include "base/assert.h"
#include "base/buf.h"

enum handle_kind { TIMER, SIGNAL, WAKE };

struct handle {
    enum handle_kind kind;
    struct hr_loop *loop;
    union {
        uv_handle_t any;
        uv_timer_t timer;
        uv_signal_t signal;
        uv_async_t async;
    } uv;
    hr_loop_fn fn;
    hr_loop_signal_fn signal_fn;
    void *arg;
    struct handle *next;
};

/* The public names are views of a handle. */
struct hr_timer {
    struct handle h;
};
struct hr_wake {
    struct handle h;
};

struct item {
    uv_work_t uv;
    struct hr_loop *loop;
    bool serial;
    hr_loop_fn work, done;
    void *arg;
    struct item *next;
};

struct hr_loop {
    uv_loop_t uv;
    bool opened, closing;
    struct handle *handles;
    int n_pending, n_serial;
    struct item *first, *last; /* serial items; the first one is at the workers */
};

enum hr_status hr_loop_create(struct hr_loop **out, struct hr_err *err) {
    struct hr_loop *loop = hr_xcalloc(1, sizeof *loop);
    int e = uv_loop_init(&loop->uv);
    if (e) {
        hr_loop_destroy(&loop);
        return hr_err_set(err, HR_ERR_FAILED, "event loop: %s", uv_strerror(e));
    }
    loop->opened = true;
    *out = loop;
    return HR_OK;
}

static void free_handle(uv_handle_t *h) {
    free(h->data);
}

void hr_loop_destroy(struct hr_loop **loop) {
    struct hr_loop *l = *loop;
    if (!l) return;
    if (l->opened) {
        /* The work first: its `done` functions may still set timers. But no timer, signal or bell
         * calls anybody any more: what they would touch may be gone. */
        l->closing = true;
        while (l->n_pending > 0) uv_run(&l->uv, UV_RUN_ONCE);
        for (struct handle *h = l->handles, *next; h; h = next) {
            next = h->next;
            uv_close(&h->uv.any, free_handle);
        }
        /* More than one round when an hr_loop_stop was still waiting to be noticed. */
        while (uv_loop_close(&l->uv) == UV_EBUSY) uv_run(&l->uv, UV_RUN_DEFAULT);
    }
    free(l);
    *loop = NULL;
}

void hr_loop_run(struct hr_loop *loop) {
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void hr_loop_stop(struct hr_loop *loop) {
    uv_stop(&loop->uv);
}

static struct handle *new_handle(struct hr_loop *loop, enum handle_kind kind, void *arg) {
    struct handle *h = hr_xcalloc(1, sizeof *h);
    h->kind = kind;
    h->loop = loop;
    h->arg = arg;
    h->uv.any.data = h;
    return h;
}

/* Handles that libuv could not begin need no close, the others join the loop's list. */
static enum hr_status keep(struct hr_loop *loop, struct handle *h, int e, const char *what,
                           struct hr_err *err) {
    if (e) {
        free(h);
        return hr_err_set(err, HR_ERR_FAILED, "%s: %s", what, uv_strerror(e));
    }
    h->next = loop->handles;
    loop->handles = h;
    return HR_OK;
}

static void on_timer(uv_timer_t *t) {
    struct handle *h = t->data;
    if (!h->loop->closing) h->fn(h->arg);
}

enum hr_status hr_loop_timer(struct hr_loop *loop, int ms, hr_loop_fn fn, void *arg,
                             struct hr_timer **out, struct hr_err *err) {
    struct handle *h = new_handle(loop, TIMER, arg);
    h->fn = fn;
    enum hr_status st = keep(loop, h, uv_timer_init(&loop->uv, &h->uv.timer), "timer", err);
    if (st) return st;
    hr_timer_set((struct hr_timer *)h, ms);
    if (out) *out = (struct hr_timer *)h;
    return HR_OK;
}

void hr_timer_set(struct hr_timer *timer, int ms) {
    HR_ASSERT(timer->h.kind == TIMER && ms >= 0);
    uv_timer_stop(&timer->h.uv.timer);
    /* The loop's clock stands still while callbacks run; "from now" must mean now. */
    uv_update_time(timer->h.uv.timer.loop);
    if (ms > 0) uv_timer_start(&timer->h.uv.timer, on_timer, (uint64_t)ms, (uint64_t)ms);
}

static void on_signal(uv_signal_t *s, int signum) {
    struct handle *h = s->data;
    if (!h->loop->closing) h->signal_fn(h->arg, signum);
}

enum hr_status hr_loop_signal(struct hr_loop *loop, int signum, hr_loop_signal_fn fn, void *arg,
                              struct hr_err *err) {
    struct handle *h = new_handle(loop, SIGNAL, arg);
    h->signal_fn = fn;
    enum hr_status st =
        keep(loop, h, uv_signal_init(&loop->uv, &h->uv.signal), "signal handler", err);
    if (st) return st;
    int e = uv_signal_start(&h->uv.signal, on_signal, signum);
    if (e) return hr_err_set(err, HR_ERR_FAILED, "signal %d: %s", signum, uv_strerror(e));
    return HR_OK;
}

static void on_wake(uv_async_t *a) {
    struct handle *h = a->data;
    if (!h->loop->closing) h->fn(h->arg);
}

enum hr_status hr_loop_wake(struct hr_loop *loop, hr_loop_fn fn, void *arg, struct hr_wake **out,
                            struct hr_err *err) {
    struct handle *h = new_handle(loop, WAKE, arg);
    h->fn = fn;
    enum hr_status st = keep(loop, h, uv_async_init(&loop->uv, &h->uv.async, on_wake), "wake", err);
    if (!st) *out = (struct hr_wake *)h;
    return st;
}

void hr_wake_ring(struct hr_wake *wake) {
    int e = uv_async_send(&wake->h.uv.async);
    HR_ASSERT(e == 0);
}

static void on_work(uv_work_t *w) {
    struct item *it = w->data;
    it->work(it->arg);
}

static void send_to_worker(struct item *it);

static void on_done(uv_work_t *w, int status) {
    struct item *it = w->data;
    struct hr_loop *loop = it->loop;
    HR_ASSERT(status == 0); /* items are never cancelled */
    if (it->serial) {
        HR_ASSERT(loop->first == it);
        loop->first = it->next;
        if (!loop->first)
            loop->last = NULL;
        else
            send_to_worker(loop->first);
        loop->n_serial--;
    }
    loop->n_pending--;
    if (it->done) it->done(it->arg);
    free(it);
}

static void send_to_worker(struct item *it) {
    int e = uv_queue_work(&it->loop->uv, &it->uv, on_work, on_done);
    HR_ASSERT(e == 0); /* libuv refuses only a missing function */
}

static struct item *new_item(struct hr_loop *loop, hr_loop_fn work, hr_loop_fn done, void *arg) {
    HR_ASSERT(work && loop->n_pending < HR_LOOP_PENDING_MAX);
    struct item *it = hr_xcalloc(1, sizeof *it);
    it->loop = loop;
    it->work = work, it->done = done, it->arg = arg;
    it->uv.data = it;
    loop->n_pending++;
    return it;
}

void hr_loop_work(struct hr_loop *loop, hr_loop_fn work, hr_loop_fn done, void *arg) {
    send_to_worker(new_item(loop, work, done, arg));
}

void hr_loop_serial(struct hr_loop *loop, hr_loop_fn work, hr_loop_fn done, void *arg) {
    struct item *it = new_item(loop, work, done, arg);
    it->serial = true;
    loop->n_serial++;
    if (loop->last) {
        loop->last->next = it;
        loop->last = it;
    } else {
        loop->first = loop->last = it;
        send_to_worker(it);
    }
}

int hr_loop_pending(const struct hr_loop *loop) {
    return loop->n_pending;
}

int hr_loop_serial_pending(const struct hr_loop *loop) {
    return loop->n_serial;
}

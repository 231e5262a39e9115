/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu: the CPU backend: opened, its tier chosen, its threads put to work.
 *
 * The table of kernels is filled once: the reference first, then every tier that the machine has
 * and the mask allows, so that the last one wins. Nothing else here knows an instruction set. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/cpu_int.h"
#include "base/assert.h"
#include "base/buf.h"

/* Waking the helpers and waiting for them costs a few microseconds: less work than this is done
 * alone. */
#define ALONE_NS 8000

static void destroy(struct hr_backend *base) {
    if (!base) return;
    struct hr_cpu *be = (struct hr_cpu *)base;
    for (int i = 0; be->scratch && i < be->n_threads; i++) {
        struct hr_cpu_scratch *s = &be->scratch[i];
        free(s->row), free(s->raw), free(s->e), free(s->bucket), free(s->cands);
        free(s->q), free(s->s), free(s->o), free(s->o_seg), free(s->m);
    }
    hr_cpu_slab_release(&be->slab);
    free(be->scratch);
    free(be->seq_item0);
    free(be);
}

static void step_begin(struct hr_backend *base, const struct hr_batch *batch) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(!be->batch);
    HR_ASSERT(batch->n_tokens >= 1 && batch->n_tokens <= be->max_tokens);
    HR_ASSERT(batch->n_seqs >= 1 && batch->n_seqs <= batch->n_tokens);
    be->batch = batch;
}

static void step_end(struct hr_backend *base) {
    struct hr_cpu *be = (struct hr_cpu *)base;
    HR_ASSERT(be->batch);
    be->batch = NULL;
}

static const struct hr_backend_ops cpu_ops = {
    .name = "cpu",
    .destroy = destroy,
    .tensor_create = hr_cpu_tensor_create,
    .tensor_destroy = hr_cpu_tensor_destroy,
    .tensor_write = hr_cpu_tensor_write,
    .tensor_read = hr_cpu_tensor_read,
    .weight_create = hr_cpu_weight_create,
    .weight_destroy = hr_cpu_weight_destroy,
    .weight_write = hr_cpu_weight_write,
    .kv_create = hr_cpu_kv_create,
    .kv_destroy = hr_cpu_kv_destroy,
    .kv_copy = hr_cpu_kv_copy,
    .kv_copy_wait = hr_cpu_kv_copy_wait,
    .step_begin = step_begin,
    .step_end = step_end,
    .embed = hr_cpu_embed,
    .rmsnorm = hr_cpu_rmsnorm,
    .add_rmsnorm = hr_cpu_add_rmsnorm,
    .to_act = hr_cpu_to_act,
    .matmul = hr_cpu_matmul,
    .rope_write = hr_cpu_rope_write,
    .attend = hr_cpu_attend,
    .silu_mul = hr_cpu_silu_mul,
    .gelu_mul = hr_cpu_gelu_mul,
    .softcap = hr_cpu_softcap,
    .sample = hr_cpu_sample,
};

enum hr_status hr_cpu_backend_open(const struct hr_cpu_opts *opts, struct hr_backend **out,
                                   struct hr_err *err) {
    HR_ASSERT(opts->pool && opts->max_tokens >= 1);
    struct hr_cpu *be = hr_xcalloc(1, sizeof *be);
    be->base.ops = &cpu_ops;
    be->base.act = opts->act;
    be->pool = opts->pool;
    be->n_threads = hr_pool_n_threads(opts->pool);
    be->max_tokens = opts->max_tokens;
    be->guard = opts->guard;
    be->scratch = hr_xcalloc((size_t)be->n_threads, sizeof *be->scratch);
    be->seq_item0 = hr_xcalloc((size_t)opts->max_tokens + 1, sizeof *be->seq_item0);
    unsigned flags = hr_cpu_detect(opts->cpu_mask);
    hr_cpu_init_ref(&be->k);
#ifdef HR_CPU_X86
    hr_cpu_init_avx2(&be->k, flags);
    hr_cpu_init_avx512bf16(&be->k, flags);
#else
    (void)flags;
#endif
    snprintf(be->base.numerics, sizeof be->base.numerics, "cpu-%s-%s", be->k.tier,
             opts->act == HR_F32 ? "f32" : "bf16");
    *out = &be->base;
    return HR_OK;
}

struct job {
    struct hr_cpu *be;
    hr_cpu_items_fn fn;
    void *arg;
    int n_items, grain;
    atomic_int next;
};

/* Takes the next piece until none is left: a thread that was held up takes fewer. */
static void work(void *arg, int i_thread, int n_threads) {
    struct job *j = arg;
    for (;;) {
        int i0 = atomic_fetch_add_explicit(&j->next, j->grain, memory_order_relaxed);
        if (i0 >= j->n_items) return;
        int i1 = i0 + j->grain < j->n_items ? i0 + j->grain : j->n_items;
        j->fn(j->be, j->arg, i_thread, i0, i1);
    }
}

void hr_cpu_run(struct hr_cpu *be, int n_items, int grain, double item_ns, hr_cpu_items_fn fn,
                void *arg) {
    if (n_items <= 0) return;
    if (be->n_threads == 1 || n_items <= grain || item_ns * n_items < ALONE_NS) {
        fn(be, arg, 0, 0, n_items);
        return;
    }
    struct job j = {.be = be, .fn = fn, .arg = arg, .n_items = n_items, .grain = grain};
    hr_pool_run(be->pool, work, &j);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * backend: a whole layer through every operation, on every tier that this machine has, with memory
 * that only the backend can touch: the same bits as without the guard, and a stray read is a fault.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/cpu_int.h"

enum { DIM = 48, HEADS = 3, KV = 1, HEAD = 16, FF = 80, VOCAB = 70, TOKENS = 6, PAGES = 4 };

static const unsigned masks[] = {0, HR_CPU_AVX2, HR_CPU_AVX2 | HR_CPU_AVX512BF16};

struct layer {
    struct hr_pool *pool;
    struct hr_backend *be;
    const struct hr_backend_ops *ops;
    struct hr_weight *embed, *qkv_w, *o_w, *gate_up_w, *down_w;
    struct hr_tensor *x, *h, *qkv, *q, *att, *ff, *act, *logits, *norm, *cos_sin, *bias;
    struct hr_kv_store *kv;
};

static float value(int i) {
    return (float)((i * 7919) % 1009) / 1009.0f - 0.5f;
}

static struct hr_tensor *tensor(struct layer *l, enum hr_dtype dtype, int rows, int cols) {
    struct hr_err err;
    struct hr_tensor *t = NULL;
    assert_int_equal(l->ops->tensor_create(l->be, dtype, rows, cols, "t", &t, &err), HR_OK);
    return t;
}

static struct hr_tensor *filled(struct layer *l, int rows, int cols, float from) {
    struct hr_tensor *t = tensor(l, HR_F32, rows, cols);
    for (int r = 0; r < rows; r++) {
        float row[256];
        for (int i = 0; i < cols; i++) row[i] = from + value(r * cols + i);
        l->ops->tensor_write(l->be, t, r, 1, row);
    }
    return t;
}

struct write_job {
    struct layer *l;
    struct hr_weight *w;
    int n_out, n_in;
};

static void write_rows(void *arg, int i_thread, int n_threads) {
    struct write_job *j = arg;
    for (int r = i_thread; r < j->n_out; r += n_threads) {
        float row[256];
        for (int i = 0; i < j->n_in; i++) row[i] = value(r * j->n_in + i);
        j->l->ops->weight_write(j->l->be, j->w, r, 1, row);
    }
}

static struct hr_weight *weight(struct layer *l, int n_out, int n_in) {
    struct hr_err err;
    struct hr_weight *w = NULL;
    assert_int_equal(l->ops->weight_create(l->be, n_out, n_in, "w", &w, &err), HR_OK);
    struct write_job j = {l, w, n_out, n_in};
    hr_pool_run(l->pool, write_rows, &j);
    return w;
}

static void layer_open(struct layer *l, unsigned mask, enum hr_dtype act, bool guard) {
    struct hr_err err;
    memset(l, 0, sizeof *l);
    assert_int_equal(hr_pool_create(3, &l->pool, &err), HR_OK);
    struct hr_cpu_opts opts = {
        .act = act, .cpu_mask = mask, .pool = l->pool, .max_tokens = TOKENS, .guard = guard};
    assert_int_equal(hr_cpu_backend_open(&opts, &l->be, &err), HR_OK);
    l->ops = l->be->ops;
    struct hr_attn_shape shape = {HEADS, KV, HEAD, HEAD, 0.25f, 1e-5f};
    assert_int_equal(l->ops->kv_create(l->be, act, 1, PAGES, 2, &shape, &l->kv, &err), HR_OK);
    l->embed = weight(l, VOCAB, DIM);
    l->qkv_w = weight(l, (HEADS + 2 * KV) * HEAD, DIM);
    l->o_w = weight(l, DIM, HEADS * HEAD);
    l->gate_up_w = weight(l, 2 * FF, DIM);
    l->down_w = weight(l, DIM, FF);
    l->x = tensor(l, HR_F32, TOKENS, DIM);
    l->h = tensor(l, act, TOKENS, DIM);
    l->qkv = tensor(l, HR_F32, TOKENS, (HEADS + 2 * KV) * HEAD);
    l->q = tensor(l, act, TOKENS, HEADS * HEAD);
    l->att = tensor(l, act, TOKENS, HEADS * HEAD);
    l->ff = tensor(l, HR_F32, TOKENS, 2 * FF);
    l->act = tensor(l, act, TOKENS, FF);
    l->logits = tensor(l, HR_F32, TOKENS, VOCAB);
    l->norm = filled(l, 1, DIM, 1);
    l->cos_sin = filled(l, TOKENS, HEAD, 0.5f);
    l->bias = filled(l, 1, (HEADS + 2 * KV) * HEAD, 0);
}

static void layer_close(struct layer *l) {
    struct hr_tensor **tensors[] = {&l->x,   &l->h,      &l->qkv,  &l->q,       &l->att, &l->ff,
                                    &l->act, &l->logits, &l->norm, &l->cos_sin, &l->bias};
    struct hr_weight **weights[] = {&l->embed, &l->qkv_w, &l->o_w, &l->gate_up_w, &l->down_w};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        l->ops->tensor_destroy(l->be, tensors[i]);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        l->ops->weight_destroy(l->be, weights[i]);
    l->ops->kv_destroy(l->be, &l->kv);
    assert_null(l->kv);
    l->ops->kv_destroy(l->be, &l->kv);
    l->ops->destroy(l->be);
    hr_pool_destroy(&l->pool);
}

/* One step of every operation; the logits of the last row and what is sampled from them. */
static void layer_run(struct layer *l, float *logits, struct hr_sampled *out) {
    int32_t tokens[TOKENS], positions[TOKENS], slots[TOKENS], pages[1] = {2}, last = TOKENS - 1;
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 11) % VOCAB;
        positions[i] = i;
        slots[i] = pages[0] * HR_PAGE_TOKENS + i;
    }
    struct hr_batch_seq seq = {0, TOKENS, 0, pages};
    struct hr_batch b = {TOKENS, tokens, positions, slots, 1, &seq, 1, &last};
    const struct hr_backend_ops *o = l->ops;
    o->step_begin(l->be, &b);
    o->embed(l->be, l->x, l->embed, 1);
    o->rmsnorm(l->be, l->h, l->x, l->norm, 1e-5f, false);
    o->matmul(l->be, l->qkv, l->h, l->qkv_w, l->bias, TOKENS, false);
    o->rope_write(l->be, l->q, l->kv, 0, l->qkv, NULL, NULL, l->cos_sin);
    o->attend(l->be, l->att, l->q, l->kv, 0, 0);
    o->matmul(l->be, l->x, l->att, l->o_w, NULL, TOKENS, true);
    o->rmsnorm(l->be, l->h, l->x, l->norm, 1e-5f, false);
    o->matmul(l->be, l->ff, l->h, l->gate_up_w, NULL, TOKENS, false);
    o->silu_mul(l->be, l->act, l->ff);
    o->matmul(l->be, l->x, l->act, l->down_w, NULL, TOKENS, true);
    o->rmsnorm(l->be, l->h, l->x, l->norm, 1e-5f, true);
    o->matmul(l->be, l->logits, l->h, l->embed, NULL, 1, false);
    o->step_end(l->be);
    o->tensor_read(l->be, l->logits, 0, 1, logits);
    struct hr_sample_row row = {
        .temperature = 1, .top_p = 0.9f, .repetition_penalty = 1, .uniform = 0.3};
    o->sample(l->be, l->logits, 1, &row, out);
}

static void guarded_memory_changes_no_bit(void **state) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        for (int act = HR_F32; act <= HR_BF16; act++) {
            float logits[2][VOCAB];
            struct hr_sampled out[2];
            for (int guard = 0; guard < 2; guard++) {
                struct layer l;
                layer_open(&l, masks[m], (enum hr_dtype)act, guard);
                layer_run(&l, logits[guard], &out[guard]);
                layer_close(&l);
            }
            assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
            assert_int_equal(out[0].token, out[1].token);
            assert_true(out[0].token >= 0 && out[0].logprob <= 0);
        }
    }
}

/* Does a child that reads the byte die of a fault? */
static bool faults(const void *p) {
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        _exit(*(const volatile char *)p ? 1 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

static void guarded_memory_cannot_be_read_outside_an_operation(void **state) {
    struct layer l;
    float logits[VOCAB];
    struct hr_sampled out;
    layer_open(&l, HR_CPU_ALL, HR_BF16, true);
    layer_run(&l, logits, &out);
    assert_true(faults(l.x->mem.data));
    assert_true(faults(l.logits->mem.data));
    assert_true(faults(l.embed->mem.data));
    assert_true(faults(l.kv->mem.data));
    layer_close(&l);
    layer_open(&l, HR_CPU_ALL, HR_BF16, false);
    assert_false(faults(l.x->mem.data));
    layer_close(&l);
}

/* Attention of the last step's queries over one page. */
static void attend_over(struct layer *l, int32_t page, float *rows) {
    int32_t tokens[TOKENS] = {0}, positions[TOKENS], slots[TOKENS];
    for (int i = 0; i < TOKENS; i++) positions[i] = i, slots[i] = page * HR_PAGE_TOKENS + i;
    struct hr_batch_seq seq = {0, TOKENS, 0, &page};
    struct hr_batch b = {TOKENS, tokens, positions, slots, 1, &seq, 0, NULL};
    l->ops->step_begin(l->be, &b);
    l->ops->attend(l->be, l->att, l->q, l->kv, 0, 0);
    l->ops->step_end(l->be);
    l->ops->tensor_read(l->be, l->att, 0, TOKENS, rows);
}

static void a_page_comes_back_from_the_host_as_it_was_saved(void **state) {
    for (int act = HR_F32; act <= HR_BF16; act++) {
        struct layer l;
        float logits[VOCAB], was[TOKENS * HEADS * HEAD], empty[TOKENS * HEADS * HEAD], got[TOKENS * HEADS * HEAD];
        struct hr_sampled out;
        layer_open(&l, HR_CPU_ALL, (enum hr_dtype)act, true);
        layer_run(&l, logits, &out);
        attend_over(&l, 2, was);
        attend_over(&l, 3, empty);
        assert_memory_not_equal(was, empty, sizeof was);
        struct hr_kv_copy there[3] = {{2, 1, true}, {3, 0, true}, {2, 0, false}}, back = {3, 1, false};
        l.ops->kv_copy(l.be, l.kv, there, 3); /* the page is handed to somebody else in the end */
        l.ops->kv_copy_wait(l.be, l.kv);
        attend_over(&l, 2, got);
        assert_memory_equal(got, empty, sizeof got);
        l.ops->kv_copy(l.be, l.kv, &back, 1);
        l.ops->kv_copy_wait(l.be, l.kv);
        attend_over(&l, 3, got);
        assert_memory_equal(got, was, sizeof got);
        layer_close(&l);
    }
}

#ifdef HR_DEBUG
static void a_host_page_that_was_spoiled_is_found_when_it_is_loaded(void **state) {
    pid_t pid = fork(); /* the copying thread would not be in a child that came later */
    if (pid == 0) {
        struct layer l;
        struct hr_kv_copy there = {0, 1, true}, back = {2, 1, false};
        signal(SIGABRT, SIG_DFL);
        close(2);
        layer_open(&l, HR_CPU_ALL, HR_BF16, false);
        l.ops->kv_copy(l.be, l.kv, &there, 1);
        l.ops->kv_copy_wait(l.be, l.kv);
        ((char *)l.kv->host.data)[l.kv->page_bytes + 5] ^= 1; /* one layer: host page 1 begins there */
        l.ops->kv_copy(l.be, l.kv, &back, 1);
        l.ops->kv_copy_wait(l.be, l.kv);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
#endif

static void pages_are_saved_while_others_are_computed(void **state) {
    for (int guard = 0; guard < 2; guard++) {
        struct layer l;
        float logits[VOCAB], was[TOKENS * HEADS * HEAD], got[TOKENS * HEADS * HEAD];
        struct hr_sampled out;
        layer_open(&l, HR_CPU_ALL, HR_BF16, guard);
        layer_run(&l, logits, &out);
        attend_over(&l, 2, was);
        for (int i = 0; i < 50; i++) {
            struct hr_kv_copy there = {2, i % 2, true}, back = {3, i % 2, false};
            l.ops->kv_copy(l.be, l.kv, &there, 1);
            attend_over(&l, 2, got); /* what is being saved may be read */
            assert_memory_equal(got, was, sizeof got);
            l.ops->kv_copy_wait(l.be, l.kv);
            l.ops->kv_copy(l.be, l.kv, &back, 1);
            l.ops->kv_copy_wait(l.be, l.kv);
            attend_over(&l, 3, got);
            assert_memory_equal(got, was, sizeof got);
        }
        layer_close(&l);
    }
}

static void numerics_name_the_tier_and_the_type(void **state) {
    struct layer l;
    layer_open(&l, 0, HR_F32, false);
    assert_string_equal(l.be->numerics, "cpu-ref-f32");
    layer_close(&l);
    if (hr_cpu_detect(HR_CPU_ALL) & HR_CPU_AVX2) {
        layer_open(&l, HR_CPU_AVX2, HR_BF16, false);
        assert_string_equal(l.be->numerics, "cpu-avx2-bf16");
        layer_close(&l);
    }
    assert_int_equal(hr_cpu_detect(0), 0);
}

static void shapes_that_cannot_work_are_refused(void **state) {
    struct layer l;
    struct hr_err err;
    struct hr_kv_store *kv = NULL;
    layer_open(&l, 0, HR_BF16, false);
    struct hr_attn_shape wide = {1, 1, HR_CPU_HEAD_MAX + 1, 2, 1, 0}, uneven = {5, 2, 8, 8, 1, 0};
    assert_int_equal(l.ops->kv_create(l.be, HR_BF16, 1, 1, 0, &wide, &kv, &err), HR_ERR_UNSUPPORTED);
    assert_int_equal(l.ops->kv_create(l.be, HR_BF16, 1, 1, 0, &uneven, &kv, &err), HR_ERR_UNSUPPORTED);
    assert_null(kv);
    struct hr_attn_shape fine = {1, 1, 512, 512, 1, 0};
    assert_int_equal(l.ops->kv_create(l.be, HR_BF16, 1 << 20, 1 << 20, 0, &fine, &kv, &err), HR_ERR_NOMEM);
    assert_non_null(strstr(err.msg, "KV"));
    assert_null(kv);
    layer_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guarded_memory_changes_no_bit),
        cmocka_unit_test(guarded_memory_cannot_be_read_outside_an_operation),
        cmocka_unit_test(a_page_comes_back_from_the_host_as_it_was_saved),
#ifdef HR_DEBUG
        cmocka_unit_test(a_host_page_that_was_spoiled_is_found_when_it_is_loaded),
#endif
        cmocka_unit_test(pages_are_saved_while_others_are_computed),
        cmocka_unit_test(numerics_name_the_tier_and_the_type),
        cmocka_unit_test(shapes_that_cannot_work_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

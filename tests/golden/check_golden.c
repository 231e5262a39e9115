/* SPDX-License-Identifier: Apache-2.0
 *
 * check_golden: the whole forward pass against numbers of the reference implementation (README.md here).
 *
 *   check_golden tiny DIR           every tier: f32 logits within 1e-4 relative, greedy tokens identical, bf16
 *                                   within a mean KL of 5e-4; the same bits for any chunking of the prompt,
 *                                   any page order, any number of threads, with guarded device memory
 *   check_golden demo DIR MODEL [FULL]  the demo model (or $HEADRACE_MODEL), teacher-forced over 2,000
 *                                   positions, and its greedy answers; FULL: logits.npy of all positions, for
 *                                   an exact KL
 *
 * MODEL as bf16 safetensors is checked in f32 and bf16, a GGUF in bf16 alone (its f32 weights are not those
 * that the reference saw). Exit code 77: nothing could be checked. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/json.h"
#include "model/llama.h"

static int n_failed;

static void check(bool ok, const char *what, const char *fmt, ...) HR_PRINTF(3, 4);
static void check(bool ok, const char *what, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    printf("%s %s: ", ok ? "ok  " : "FAIL", what);
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    n_failed += !ok;
}

static void must(enum hr_status st, const struct hr_err *err) {
    if (!st) return;
    fprintf(stderr, "%s\n", err->msg);
    exit(1);
}

/* ---- a model on a backend ----------------------------------------------------------------------- */

struct setup {
    struct hr_pool *pool;
    struct hr_backend *be;
    struct hr_model_file *mf;
    struct hr_model *model;
    int n_pages, max_tokens;
    bool looks; /* each step is also computed while its faults are looked for */
    int n_faults;
};

/* Loading tells when memory is taken and the weights begin, then how far they are, also inside a matrix. */
struct told {
    uint64_t done;
    int n;
};

static void hear_progress(void *arg, uint64_t done, uint64_t total) {
    struct told *t = arg;
    if (t->n++ == 0 ? done != 0 : done < t->done || done > total) {
        fprintf(stderr, "progress %d of loading says %llu of %llu bytes after %llu\n", t->n, (unsigned long long)done,
                (unsigned long long)total, (unsigned long long)t->done);
        exit(1);
    }
    t->done = done;
}

static void open_setup(struct setup *s, const char *path, enum hr_dtype act, unsigned mask, int n_threads,
                       bool guard, int n_positions, int max_tokens) {
    struct hr_err err;
    *s = (struct setup){.n_pages = (n_positions + HR_PAGE_TOKENS - 1) / HR_PAGE_TOKENS, .max_tokens = max_tokens};
    must(hr_pool_create(n_threads, &s->pool, &err), &err);
    struct hr_cpu_opts co = {
        .act = act, .cpu_mask = mask, .pool = s->pool, .max_tokens = max_tokens, .guard = guard};
    must(hr_cpu_backend_open(&co, &s->be, &err), &err);
    must(hr_model_file_open(path, &s->mf, &err), &err);
    struct told told = {0};
    struct hr_model_opts mo = {.max_tokens = max_tokens, .max_out = max_tokens, .n_pages = s->n_pages,
                               .pool = s->pool, .progress = hear_progress, .progress_arg = &told};
    must(hr_model_create(s->be, s->mf, &mo, &s->model, &err), &err);
    const struct hr_model_config *c = hr_model_file_config(s->mf);
    int n_matrices = 1 + !c->tied_embeddings + 4 * c->n_layers;
    if (n_threads == 1 && told.n <= 1 + n_matrices) { /* with more, the calling one may get no part of small ones */
        fprintf(stderr, "loading %d matrices told its progress %d times, not inside them\n", n_matrices, told.n);
        exit(1);
    }
}

static void close_setup(struct setup *s) {
    hr_model_destroy(&s->model);
    s->be->ops->destroy(s->be);
    hr_model_file_close(&s->mf);
    hr_pool_destroy(&s->pool);
}

typedef void (*row_fn)(void *arg, int pos, const float *logits);

/* Computes ids[pos0 .. n) in steps of `chunk` tokens over pages in a scattered order; fn gets the logits of
 * every position. */
static void forward(struct setup *s, const int32_t *ids, int pos0, int n, int chunk, int stride, row_fn fn,
                    void *arg) {
    int n_vocab = hr_model_n_vocab(s->model);
    int32_t *pages = hr_xmalloc((size_t)s->n_pages * sizeof *pages), *work = hr_xmalloc((size_t)chunk * 12);
    float *row = hr_xmalloc((size_t)n_vocab * sizeof *row);
    while (s->n_pages % stride == 0 && stride > 1) stride++; /* any number without a common factor scatters */
    for (int i = 0; i < s->n_pages; i++) pages[i] = (int32_t)((int64_t)i * stride % s->n_pages);
    for (int pos = pos0; pos < n; pos += chunk) {
        int k = n - pos < chunk ? n - pos : chunk;
        for (int i = 0; i < k; i++) {
            work[i] = pos + i;
            work[chunk + i] = pages[(pos + i) / HR_PAGE_TOKENS] * HR_PAGE_TOKENS + (pos + i) % HR_PAGE_TOKENS;
            work[2 * chunk + i] = i;
        }
        struct hr_batch_seq seq = {.row0 = 0, .n_rows = k, .pos0 = pos, .pages = pages};
        struct hr_batch b = {.n_tokens = k, .tokens = ids + pos, .positions = work, .slots = work + chunk,
                             .n_seqs = 1, .seqs = &seq, .n_out = k, .out_rows = work + 2 * chunk};
        hr_model_forward(s->model, &b);
        if (s->looks) {
            struct hr_fault fault;
            hr_model_find_fault(s->model, &b, &fault);
            s->n_faults += fault.stage != HR_STAGE_NONE;
        }
        for (int i = 0; i < k; i++) {
            hr_model_logits(s->model, i, row);
            fn(arg, pos + i, row);
        }
    }
    free(pages);
    free(work);
    free(row);
}

static int argmax(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double log_sum_exp(const float *x, int n) {
    double max = x[argmax(x, n)], sum = 0;
    for (int i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

/* ---- reading goldens ---------------------------------------------------------------------------- */

/* The array of an .npy file, mapped; *n elements of 4 bytes. */
static const void *npy(const char *dir, const char *name, size_t *n) {
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s%s%s", dir, *dir ? "/" : "", name);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st)) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    const uint8_t *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    HR_ASSERT(p != MAP_FAILED);
    size_t head = 10u + (size_t)(p[8] | p[9] << 8);
    *n = ((size_t)st.st_size - head) / 4;
    return p + head;
}

static void json_ids(const struct hr_json *array, struct hr_ids *out) {
    for (size_t i = 0; i < hr_json_size(array); i++) {
        int64_t v = 0;
        HR_ASSERT(hr_json_int(hr_json_at(array, i), &v));
        hr_ids_push(out, (int32_t)v);
    }
}

/* ---- tiny models -------------------------------------------------------------------------------- */

struct tiny {
    struct hr_ids ids, positions, greedy;
    int n_prompt, n_vocab;
    const float *golden; /* [positions, n_vocab] */
    float *logits;       /* [ids, n_vocab] of the last run */
};

static void keep_row(void *arg, int pos, const float *logits) {
    struct tiny *t = arg;
    memcpy(t->logits + (size_t)pos * (size_t)t->n_vocab, logits, (size_t)t->n_vocab * sizeof *logits);
}

static void compare_tiny(const struct tiny *t, enum hr_dtype act, const char *what) {
    double worst = 0, scale = 0, kl = 0;
    for (size_t r = 0; r < t->positions.len; r++) {
        const float *g = t->golden + r * (size_t)t->n_vocab;
        const float *x = t->logits + (size_t)t->positions.data[r] * (size_t)t->n_vocab;
        double lg = log_sum_exp(g, t->n_vocab), lx = log_sum_exp(x, t->n_vocab);
        for (int i = 0; i < t->n_vocab; i++) {
            worst = fmax(worst, isfinite(x[i]) ? fabs((double)x[i] - g[i]) : INFINITY);
            scale = fmax(scale, fabs(g[i]));
            kl += exp(g[i] - lg) * ((g[i] - lg) - (x[i] - lx)) / (double)t->positions.len;
        }
    }
    if (act == HR_F32)
        check(worst < 1e-4 * scale, what, "worst logit %.3g of %.3g, %.1f %% of the bound", worst, scale,
              100 * worst / (1e-4 * scale));
    else check(kl < 5e-4, what, "mean KL %.3g of 5e-4", kl);
}

static void compare_greedy(const struct tiny *t, const char *what) {
    size_t same = 0;
    for (size_t i = 0; i < t->greedy.len; i++) {
        size_t pos = (size_t)t->n_prompt - 1 + i;
        same += argmax(t->logits + pos * (size_t)t->n_vocab, t->n_vocab) == t->greedy.data[i];
    }
    check(same == t->greedy.len, what, "%zu of %zu greedy tokens", same, t->greedy.len);
}

static void load_tiny(struct tiny *t, const char *dir) {
    struct hr_buf path = {0};
    struct hr_json *root;
    struct hr_err err;
    size_t n;
    int64_t n_prompt = 0;
    hr_buf_printf(&path, "%s/golden.json", dir);
    must(hr_json_parse_file(hr_buf_cstr(&path), 1 << 20, &root, &err), &err);
    json_ids(hr_json_get(root, "ids"), &t->ids);
    json_ids(hr_json_get(root, "positions"), &t->positions);
    json_ids(hr_json_get(root, "greedy"), &t->greedy);
    HR_ASSERT(hr_json_int(hr_json_get(root, "n_prompt"), &n_prompt));
    t->n_prompt = (int)n_prompt;
    t->golden = npy(dir, "logits.npy", &n);
    t->n_vocab = (int)(n / t->positions.len);
    /* The greedy continuation behind the prompt, so that one pass gives both. */
    hr_json_free(&root);
    hr_buf_finish(&path);
}

/* The sequence of the goldens, and apart from it the prompt with its greedy answer. */
static void tiny_run(struct tiny *t, const char *dir, enum hr_dtype act, unsigned mask, const char *tier) {
    static const struct {
        int chunk, stride, n_threads;
        bool guard, looks;
    } ways[] = {{64, 1, 1, false, false}, {1, 7, 2, false, false}, {5, 3, 3, true, true}, {17, 11, 2, true, false}};
    int n = (int)t->ids.len, n_answer = t->n_prompt + (int)t->greedy.len;
    size_t bytes = (size_t)n * (size_t)t->n_vocab * sizeof(float);
    float *first = hr_xmalloc(bytes);
    char what[128];
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct setup s;
        open_setup(&s, dir, act, mask, ways[w].n_threads, ways[w].guard, n > n_answer ? n : n_answer, 64);
        HR_ASSERT(hr_model_n_vocab(s.model) == t->n_vocab);
        s.looks = ways[w].looks;
        snprintf(what, sizeof what, "%s %s chunk %d", tier, act == HR_F32 ? "f32" : "bf16", ways[w].chunk);
        t->logits = hr_xmalloc(bytes);
        forward(&s, t->ids.data, 0, n, ways[w].chunk, ways[w].stride, keep_row, t);
        if (w == 0) {
            compare_tiny(t, act, what);
            memcpy(first, t->logits, bytes);
        } else {
            check(memcmp(first, t->logits, bytes) == 0, what, "the same bits as chunks of %d", ways[0].chunk);
            check(s.n_faults == 0, what, "%d faults in sound numbers", s.n_faults);
        }
        free(t->logits);
        if (w == 0 && act == HR_F32) {
            struct hr_ids answer = {0};
            hr_ids_append(&answer, t->ids.data, (size_t)t->n_prompt);
            hr_ids_append(&answer, t->greedy.data, t->greedy.len);
            t->logits = hr_xmalloc((size_t)n_answer * (size_t)t->n_vocab * sizeof(float));
            forward(&s, answer.data, 0, n_answer, 1, 1, keep_row, t);
            compare_greedy(t, what);
            free(t->logits);
            hr_ids_finish(&answer);
        }
        close_setup(&s);
    }
    free(first);
}

static void tiny(const char *dir) {
    static const struct {
        unsigned mask;
        const char *name;
    } tiers[] = {{0, "ref"}, {HR_CPU_AVX2, "avx2"}, {HR_CPU_ALL, "best"}};
    struct tiny t = {0};
    load_tiny(&t, dir);
    for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++) {
        if (tiers[i].mask == HR_CPU_AVX2 && !hr_cpu_detect(HR_CPU_AVX2)) {
            printf("skip avx2: this machine has none\n");
            continue;
        }
        tiny_run(&t, dir, HR_F32, tiers[i].mask, tiers[i].name);
        tiny_run(&t, dir, HR_BF16, tiers[i].mask, tiers[i].name);
    }
    hr_ids_finish(&t.ids);
    hr_ids_finish(&t.positions);
    hr_ids_finish(&t.greedy);
}

/* ---- the demo model ----------------------------------------------------------------------------- */

struct demo {
    const char *dir;
    size_t n_ids, n_rows, n;
    const int32_t *ids, *top1, *rows, *top_ids; /* [n_ids], [n_ids], [n_rows], [n_rows, n_top] */
    const float *lse, *top_logprobs, *full;     /* full: [n_ids, n_vocab] or NULL */
    int n_vocab, n_top;
    size_t next_row, n_agree;
    double kl, kl_max;
};

static void demo_row(void *arg, int pos, const float *x) {
    struct demo *d = arg;
    double lx = log_sum_exp(x, d->n_vocab), kl = 0;
    d->n_agree += argmax(x, d->n_vocab) == d->top1[pos];
    if (d->full) {
        const float *g = d->full + (size_t)pos * (size_t)d->n_vocab;
        for (int i = 0; i < d->n_vocab; i++)
            kl += exp(g[i] - (double)d->lse[pos]) * ((g[i] - (double)d->lse[pos]) - (x[i] - lx));
    } else {
        if (d->next_row == d->n_rows || d->rows[d->next_row] != pos) return;
        const int32_t *ids = d->top_ids + d->next_row * (size_t)d->n_top;
        const float *logp = d->top_logprobs + d->next_row++ * (size_t)d->n_top;
        double p_rest = 1, q_rest = 1;
        for (int i = 0; i < d->n_top; i++) {
            double p = exp(logp[i]), logq = x[ids[i]] - lx;
            kl += p * (logp[i] - logq);
            p_rest -= p;
            q_rest -= exp(logq);
        }
        /* The rest of the vocabulary as one outcome: a lower bound that is tight when the rest is small. */
        if (p_rest > 1e-9 && q_rest > 1e-9) kl += p_rest * log(p_rest / q_rest);
    }
    d->kl += kl;
    d->kl_max = fmax(d->kl_max, kl);
    d->n++;
}

static void demo_teacher(struct demo *d, const char *model, enum hr_dtype act) {
    struct setup s;
    char what[64];
    open_setup(&s, model, act, HR_CPU_ALL, hr_pool_usable_cores(), false, (int)d->n_ids, 128);
    d->n_vocab = hr_model_n_vocab(s.model);
    d->next_row = d->n_agree = d->n = 0;
    d->kl = d->kl_max = 0;
    forward(&s, d->ids, 0, (int)d->n_ids, 128, 5, demo_row, d);
    double agree = (double)d->n_agree / (double)d->n_ids, kl = d->kl / (double)d->n;
    snprintf(what, sizeof what, "demo %s", s.be->numerics);
    check(agree >= (act == HR_F32 ? 0.999 : 0.99), what, "top-1 agreement %.2f %% over %zu positions",
          100 * agree, d->n_ids);
    check(kl < (act == HR_F32 ? 1e-6 : 5e-4), what, "mean KL %.3g (largest %.3g) over %zu positions%s", kl,
          d->kl_max, d->n, d->full ? "" : ", top 64");
    close_setup(&s);
}

static void demo_greedy(const struct demo *d, const char *model, enum hr_dtype act) {
    struct setup s;
    struct hr_err err;
    struct hr_buf path = {0};
    char line[1 << 16];
    int n_rows = 0, n_same = 0, n_near = 0;
    hr_buf_printf(&path, "%s/greedy.jsonl", d->dir);
    FILE *f = fopen(hr_buf_cstr(&path), "r");
    HR_ASSERT(f);
    open_setup(&s, model, act, HR_CPU_ALL, hr_pool_usable_cores(), false, 1024, 256);
    while (fgets(line, sizeof line, f)) {
        struct hr_json *root;
        struct tiny t = {.n_vocab = hr_model_n_vocab(s.model)};
        must(hr_json_parse(line, strlen(line), &root, &err), &err);
        const struct hr_json *margins = hr_json_get(root, "margins");
        json_ids(hr_json_get(root, "prompt_ids"), &t.ids);
        json_ids(hr_json_get(root, "greedy"), &t.greedy);
        size_t n_prompt = t.ids.len, i = 0;
        hr_ids_append(&t.ids, t.greedy.data, t.greedy.len);
        t.logits = hr_xmalloc(t.ids.len * (size_t)t.n_vocab * sizeof(float));
        forward(&s, t.ids.data, 0, (int)t.ids.len - 1, 256, 1, keep_row, &t);
        while (i < t.greedy.len &&
               argmax(t.logits + (n_prompt - 1 + i) * (size_t)t.n_vocab, t.n_vocab) == t.greedy.data[i])
            i++;
        /* In bf16 a token may fall the other way where the reference's lead is within its rounding. */
        double margin = INFINITY;
        if (i < t.greedy.len) hr_json_real(hr_json_at(margins, i), &margin);
        n_rows++;
        n_same += i == t.greedy.len;
        n_near += i < t.greedy.len && act == HR_BF16 && margin < 0.25;
        free(t.logits);
        hr_ids_finish(&t.ids);
        hr_ids_finish(&t.greedy);
        hr_json_free(&root);
    }
    check(n_rows == 20 && n_same + n_near == n_rows, "demo greedy answers",
          "%d of %d equal the reference's, %d part where its lead is under 0.25 (%s)", n_same, n_rows, n_near,
          s.be->numerics);
    fclose(f);
    hr_buf_finish(&path);
    close_setup(&s);
}

static void demo(const char *dir, const char *model, const char *full) {
    struct demo d = {.dir = dir};
    struct stat st;
    size_t n;
    d.ids = npy(dir, "teacher_ids.npy", &d.n_ids);
    d.top1 = npy(dir, "teacher_top1.npy", &n);
    d.lse = npy(dir, "teacher_lse.npy", &n);
    d.rows = npy(dir, "teacher_rows.npy", &d.n_rows);
    d.top_ids = npy(dir, "teacher_top_ids.npy", &n);
    d.top_logprobs = npy(dir, "teacher_top_logprobs.npy", &n);
    d.n_top = (int)(n / d.n_rows);
    if (full) d.full = npy("", full, &n);
    HR_ASSERT(stat(model, &st) == 0);
    if (S_ISDIR(st.st_mode)) {
        demo_teacher(&d, model, HR_F32);
        demo_greedy(&d, model, HR_F32);
    }
    demo_teacher(&d, model, HR_BF16);
    demo_greedy(&d, model, HR_BF16);
}

int main(int argc, char **argv) {
    const char *model = argc > 3 ? argv[3] : getenv("HEADRACE_MODEL");
    if (argc == 3 && strcmp(argv[1], "tiny") == 0) tiny(argv[2]);
    else if (argc >= 3 && strcmp(argv[1], "demo") == 0 && model)
        demo(argv[2], model, argc > 4 ? argv[4] : NULL);
    else {
        fprintf(stderr, "usage: check_golden tiny DIR | demo DIR MODEL [FULL] (skipped)\n");
        return 77;
    }
    return n_failed ? 1 : 0;
}

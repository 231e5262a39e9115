/* SPDX-License-Identifier: Apache-2.0
 *
 * check_attend: attention against f64, and the same bits whatever a row is computed with: prefill
 * in any chunking, token by token, beside other sequences, with other threads and other pages.
 * Pages are scattered and hold NaN before they are used. Windows are shorter and longer than pages,
 * blocks of rows and segments.
 *
 * Tolerance: a score is off by d = (head_dim + 2) eps |scale| sum|q k|, so a weight by a factor of
 * e^2d, plus 4 eps for the exponential and its argument's rounding (|s - m| eps more); the weighted
 * sum of n terms and the merges round n + 8 more times, relative to sum p |v|; the result is then
 * rounded to act. */
#include "check.h"

struct shape {
    int n_heads, n_kv_heads, head_dim;
    int window; /* 0: none */
    float cap;  /* of the scores; 0: none */
};

/* Sequences of given lengths; row i of sequence s is token offset[s] + i of q, k, v. */
struct world {
    struct shape s;
    enum hr_dtype act, kv;
    int n_seqs, len[8], offset[8], n_tokens, n_pages;
    float *qkv;        /* [n_tokens, (heads + 2 kv) head_dim]: q rounded to act, k and v to kv */
    int32_t *pages[8]; /* of each sequence */
};

static int qkv_cols(const struct shape *s) {
    return (s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
}

static void shuffle_pages(struct world *w) {
    int32_t *ids = hr_xmalloc((size_t)w->n_pages * sizeof *ids);
    for (int i = 0; i < w->n_pages; i++) ids[i] = i;
    for (int i = w->n_pages - 1; i > 0; i--) {
        int j = rand_int(0, i), t = ids[i];
        ids[i] = ids[j], ids[j] = t;
    }
    for (int s = 0, at = 0; s < w->n_seqs; s++)
        for (int p = 0; p < (w->len[s] + HR_PAGE_TOKENS - 1) / HR_PAGE_TOKENS; p++)
            w->pages[s][p] = ids[at++];
    free(ids);
}

/* What the backend computes in, and what the KV store holds. */
struct types {
    enum hr_dtype act, kv;
    const char *name;
};
static const struct types types[] = {
    {HR_F32, HR_F32, "f32"}, {HR_BF16, HR_BF16, "bf16"}, {HR_BF16, HR_F32, "bf16_kv_f32"}};
#define N_TYPES ((int)(sizeof types / sizeof *types))

static struct world world_create(struct shape s, const struct types *t, int n_seqs,
                                 const int *len) {
    struct world w = {.s = s, .act = t->act, .kv = t->kv, .n_seqs = n_seqs, .n_pages = 3};
    for (int i = 0; i < n_seqs; i++) {
        int n = (len[i] + HR_PAGE_TOKENS - 1) / HR_PAGE_TOKENS;
        w.len[i] = len[i];
        w.offset[i] = w.n_tokens;
        w.n_tokens += len[i];
        w.n_pages += n;
        w.pages[i] = hr_xmalloc((size_t)n * sizeof(int32_t));
    }
    size_t n = (size_t)w.n_tokens * (size_t)qkv_cols(&s);
    w.qkv = rand_array(n, 1.5f);
    size_t cols = (size_t)qkv_cols(&s), q_cols = (size_t)(s.n_heads * s.head_dim);
    for (size_t i = 0; i < n; i++)
        w.qkv[i] = round_act(w.qkv[i], i % cols < q_cols ? t->act : t->kv);
    shuffle_pages(&w);
    return w;
}

static void world_destroy(struct world *w) {
    for (int i = 0; i < w->n_seqs; i++) free(w->pages[i]);
    free(w->qkv);
}

static float attn_scale(const struct shape *s) {
    return 1.0f / sqrtf((float)s->head_dim);
}

struct rig {
    struct check_be c;
    struct hr_kv_store *kv;
    struct hr_tensor *qkv, *q, *y, *cos_sin;
    int max_tokens;
};

static struct rig rig_create(const struct world *w, const struct check_tier *tier, int threads,
                             int max_tokens) {
    struct rig g = {.c = check_open(tier->mask, w->act, threads, max_tokens),
                    .max_tokens = max_tokens};
    int dim = w->s.n_heads * w->s.head_dim, rope_dim = w->s.head_dim / 2 * 2;
    struct hr_attn_shape shape = {.n_heads = w->s.n_heads,
                                  .n_kv_heads = w->s.n_kv_heads,
                                  .head_dim = w->s.head_dim,
                                  .rope_dim = rope_dim,
                                  .scale = attn_scale(&w->s),
                                  .softcap = w->s.cap};
    struct hr_err err;
    check_ok(g.c.ops->kv_create(g.c.be, w->kv, 2, w->n_pages, 0, &shape, &g.kv, &err), &err);
    g.qkv = check_tensor(&g.c, HR_F32, max_tokens, qkv_cols(&w->s), NULL);
    g.q = check_tensor(&g.c, w->act, max_tokens, dim, NULL);
    g.y = check_tensor(&g.c, w->act, max_tokens, dim, NULL);
    /* cosines 1 and sines 0: the rotation leaves every value as it is */
    float *cs = hr_xcalloc(1000 * (size_t)rope_dim, sizeof *cs);
    for (int p = 0; p < 1000; p++)
        for (int i = 0; i < rope_dim / 2; i++) cs[p * rope_dim + i] = 1;
    g.cos_sin = check_tensor(&g.c, HR_F32, 1000, rope_dim, cs);
    free(cs);
    return g;
}

static void rig_destroy(struct rig *g) {
    struct hr_tensor **all[] = {&g->qkv, &g->q, &g->y, &g->cos_sin};
    for (int i = 0; i < 4; i++) g->c.ops->tensor_destroy(g->c.be, all[i]);
    g->c.ops->kv_destroy(g->c.be, &g->kv);
    check_close_be(&g->c);
}

/* One piece of a step: rows from..from+n-1 of sequence s. */
struct piece {
    int s, from, n;
};

static void step(struct rig *g, const struct world *w, const struct piece *pieces, int n,
                 float *y) {
    int cols = qkv_cols(&w->s), dim = w->s.n_heads * w->s.head_dim, rows = 0;
    int32_t tokens[1000] = {0}, positions[1000], slots[1000];
    struct hr_batch_seq seqs[8];
    for (int i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        seqs[i] = (struct hr_batch_seq){rows, p->n, p->from, w->pages[p->s]};
        g->c.ops->tensor_write(g->c.be, g->qkv, rows, p->n,
                               w->qkv + (size_t)(w->offset[p->s] + p->from) * (size_t)cols);
        for (int r = 0; r < p->n; r++, rows++) {
            int pos = p->from + r;
            positions[rows] = pos;
            slots[rows] =
                w->pages[p->s][pos / HR_PAGE_TOKENS] * HR_PAGE_TOKENS + pos % HR_PAGE_TOKENS;
        }
    }
    struct hr_batch b = {.n_tokens = rows,
                         .tokens = tokens,
                         .positions = positions,
                         .slots = slots,
                         .n_seqs = n,
                         .seqs = seqs};
    g->c.ops->step_begin(g->c.be, &b);
    g->c.ops->rope_write(g->c.be, g->q, g->kv, 1, g->qkv, NULL, NULL, g->cos_sin);
    g->c.ops->attend(g->c.be, g->y, g->q, g->kv, 1, w->s.window);
    g->c.ops->step_end(g->c.be);
    for (int i = 0; i < n; i++)
        g->c.ops->tensor_read(g->c.be, g->y, seqs[i].row0, seqs[i].n_rows,
                              y + (size_t)(w->offset[pieces[i].s] + pieces[i].from) * (size_t)dim);
}

/* Writes NaN to every slot of every page. */
static void poison(struct rig *g, const struct world *w) {
    int cols = qkv_cols(&w->s);
    float *row = hr_xmalloc((size_t)cols * sizeof *row);
    for (int i = 0; i < cols; i++) row[i] = NAN;
    int32_t token = 0, page0 = 0;
    struct hr_batch_seq seq = {0, 1, 0, &page0};
    g->c.ops->tensor_write(g->c.be, g->qkv, 0, 1, row);
    for (int32_t slot = 0; slot < w->n_pages * HR_PAGE_TOKENS; slot++) {
        struct hr_batch b = {.n_tokens = 1,
                             .tokens = &token,
                             .positions = &token,
                             .slots = &slot,
                             .n_seqs = 1,
                             .seqs = &seq};
        g->c.ops->step_begin(g->c.be, &b);
        for (int layer = 0; layer < 2; layer++)
            g->c.ops->rope_write(g->c.be, g->q, g->kv, layer, g->qkv, NULL, NULL, g->cos_sin);
        g->c.ops->step_end(g->c.be);
    }
    free(row);
}

/* Everything in steps of at most `chunk` rows a sequence, all sequences side by side. */
static void run(const struct world *w, const struct check_tier *tier, int threads, int chunk,
                float *y) {
    struct rig g = rig_create(
        w, tier, threads, w->n_seqs * (chunk < 900 ? chunk : 900) < 999 ? w->n_seqs * chunk : 999);
    poison(&g, w);
    for (int from = 0, more = 1; more; from += chunk) {
        struct piece pieces[8];
        int n = 0;
        more = 0;
        for (int s = 0; s < w->n_seqs; s++) {
            int left = w->len[s] - from;
            if (left > 0) pieces[n++] = (struct piece){s, from, left < chunk ? left : chunk};
            more |= left > chunk;
        }
        step(&g, w, pieces, n, y);
    }
    rig_destroy(&g);
}

/* One head of one row in f64. */
static void want_head(const struct world *w, int s, int row, int head, double *o, double *tol) {
    const struct shape *sh = &w->s;
    int dim = sh->head_dim, cols = qkv_cols(sh), kv_head = head / (sh->n_heads / sh->n_kv_heads);
    const float *base = w->qkv + (size_t)w->offset[s] * (size_t)cols,
                *q = base + row * cols + head * dim;
    const float *k0 = base + (sh->n_heads + kv_head) * dim, *v0 = k0 + sh->n_kv_heads * dim;
    double scale = (double)attn_scale(sh), score[1000], off[1000], max = -INFINITY, sum = 0,
           drift = 0;
    int t0 = sh->window && row + 1 > sh->window ? row + 1 - sh->window : 0;
    for (int t = t0; t <= row; t++) {
        double size = 0;
        score[t] = 0;
        for (int d = 0; d < dim; d++) {
            double p = (double)q[d] * (double)k0[t * cols + d];
            score[t] += p * scale;
            size += fabs(p) * scale;
        }
        off[t] = (dim + 2) * EPS_F32 * size;
        if (sh->cap > 0) { /* tanh makes no error larger, and adds 7 roundings of its own */
            score[t] = (double)sh->cap * tanh(score[t] / (double)sh->cap);
            off[t] += 7 * EPS_F32 * fabs(score[t]);
        }
        if (score[t] > max) max = score[t];
    }
    for (int t = t0; t <= row; t++) sum += exp(score[t] - max);
    for (int t = t0; t <= row; t++) {
        double e = 2 * off[t] + (4 + (max - score[t])) * EPS_F32;
        drift += exp(score[t] - max) / sum * e;
        off[t] = e;
    }
    for (int d = 0; d < dim; d++) {
        double size = 0, moved = 0;
        o[d] = 0;
        for (int t = t0; t <= row; t++) {
            double part = exp(score[t] - max) / sum * (double)v0[t * cols + d];
            o[d] += part;
            size += fabs(part);
            moved += fabs(part) * off[t];
        }
        tol[d] = moved + size * (drift + (row + 1 + 8) * EPS_F32);
        if (w->act == HR_BF16) tol[d] += (fabs(o[d]) + tol[d]) * EPS_BF16;
    }
}

static void compare(const char *name, const struct world *w, const float *y) {
    int dim = w->s.n_heads * w->s.head_dim;
    double *want = hr_xmalloc((size_t)dim * sizeof *want),
           *tol = hr_xmalloc((size_t)dim * sizeof *tol);
    for (int s = 0; s < w->n_seqs; s++) {
        for (int row = 0; row<w->len[s]; row += row> 20 && row % 16 < 13 ? 13 - row % 16 : 1) {
            for (int h = 0; h < w->s.n_heads; h++)
                want_head(w, s, row, h, want + h * w->s.head_dim, tol + h * w->s.head_dim);
            char what[192];
            snprintf(what, sizeof what, "%s: sequence %d row %d", name, s, row);
            check_close(what, y + (size_t)(w->offset[s] + row) * (size_t)dim, want, tol,
                        (size_t)dim);
        }
    }
    free(want), free(tol);
}

static void one_shape(const struct check_tier *tier, struct shape s, const struct types *t,
                      int n_seqs, const int *len) {
    struct world w = world_create(s, t, n_seqs, len);
    size_t n = (size_t)w.n_tokens * (size_t)(s.n_heads * s.head_dim);
    float *y = hr_xmalloc(n * sizeof *y), *z = hr_xmalloc(n * sizeof *z);
    char name[128], what[192];
    snprintf(name, sizeof name, "attend_%s_h%d_kv%d_d%d_w%d_c%g_n%d_%s", t->name,
             s.n_heads, s.n_kv_heads, s.head_dim, s.window, (double)s.cap, len[0], tier->name);
    run(&w, tier, 1, 1, y);
    compare(name, &w, y);
    static const int chunks[] = {2, 7, 16, 33, 100, 256, 300};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        if (chunks[i] * n_seqs > 900) continue;
        shuffle_pages(&w);
        memset(z, 0xff, n * sizeof *z);
        run(&w, tier, 1 + (int)i % 3, chunks[i], z);
        snprintf(what, sizeof what, "%s: in chunks of %d, %d threads", name, chunks[i],
                 1 + (int)i % 3);
        check_bits(what, z, y, n);
    }
    /* each sequence alone, at once, in the same bits */
    for (int q = 0; q < n_seqs && len[q] <= 999; q++) {
        struct rig g = rig_create(&w, tier, 2, w.len[q]);
        struct piece all = {q, 0, w.len[q]};
        step(&g, &w, &all, 1, z);
        rig_destroy(&g);
    }
    snprintf(what, sizeof what, "%s: each alone", name);
    check_bits(what, z, y, n);
    free(y), free(z);
    world_destroy(&w);
}

/* A sequence whose numbers went wrong spoils no other: not beside it, and not after it through what
 * a thread keeps. */
static void nan_stays_in_its_sequence(const struct check_tier *tier, const struct types *t) {
    struct world w =
        world_create((struct shape){4, 2, 32, 0, 0}, t, 3, (const int[]){20, 20, 300});
    size_t row = 4 * 32, cols = (size_t)qkv_cols(&w.s), n = (size_t)w.n_tokens * row;
    float *y = hr_xmalloc(n * sizeof *y), *z = hr_xmalloc(n * sizeof *z);
    run(&w, tier, 1, 100, y);
    for (size_t i = 0; i < 20 * cols; i++) w.qkv[i] = i % 2 ? NAN : INFINITY;
    run(&w, tier, 1, 100, z);
    char name[96];
    snprintf(name, sizeof name, "attend_%s_nan_beside_%s", t->name, tier->name);
    check_bits(name, z + 20 * row, y + 20 * row, n - 20 * row);
    for (size_t i = 0; i < 20 * row; i++) check_true(name, isnan(z[i]));
    /* a wrong row spoils those that follow it in the sequence, and none before */
    world_destroy(&w);
    w = world_create((struct shape){4, 2, 32, 0, 0}, t, 1, (const int[]){40});
    run(&w, tier, 1, 40, y);
    for (size_t i = 17 * cols; i < 18 * cols; i++) w.qkv[i] = NAN;
    run(&w, tier, 1, 40, z);
    check_bits(name, z, y, 17 * row);
    for (size_t i = 17 * row; i < 40 * row; i++) check_true(name, isnan(z[i]));
    free(y), free(z);
    world_destroy(&w);
}

/* A row sees nothing of what lies before its window, also when that is not a number. */
static void nan_before_the_window_is_not_seen(const struct check_tier *tier,
                                              const struct types *t) {
    struct world w = world_create((struct shape){4, 2, 32, 25, 0}, t, 1, (const int[]){300});
    size_t row = 4 * 32, cols = (size_t)qkv_cols(&w.s), n = (size_t)w.n_tokens * row;
    float *y = hr_xmalloc(n * sizeof *y), *z = hr_xmalloc(n * sizeof *z);
    run(&w, tier, 1, 40, y);
    for (size_t i = 250 * cols; i < 251 * cols; i++) w.qkv[i] = NAN;
    run(&w, tier, 1, 40, z);
    char name[96];
    snprintf(name, sizeof name, "attend_%s_nan_before_window_%s", t->name, tier->name);
    check_bits(name, z, y, 250 * row);
    check_bits(name, z + 275 * row, y + 275 * row, 25 * row);
    for (size_t i = 250 * row; i < 275 * row; i++) check_true(name, isnan(z[i]));
    free(y), free(z);
    world_destroy(&w);
}

static void cases(const struct check_tier *tier) {
    static const struct shape shapes[] = {
        {9, 3, 64, 0, 0},  {4, 4, 32, 0, 0},   {8, 1, 80, 0, 2},  {2, 2, 33, 0, 0},
        {6, 2, 128, 0, 0}, {50, 1, 16, 0, 0},  {3, 3, 2, 0, 0},   {4, 2, 32, 1, 0},
        {4, 2, 16, 20, 0}, {6, 1, 33, 100, 1}, {2, 2, 16, 40, 0}, {4, 2, 32, 256, 0}};
    static const int lens[][3] = {{300, 17, 1},  {60, 256, 257}, {16, 15, 33},   {70, 5, 40},
                                  {40, 270, 2},  {20, 3, 18},    {30, 1, 2},     {40, 1, 3},
                                  {300, 20, 21}, {280, 100, 99}, {270, 256, 40}, {299, 257, 256}};
    for (int t = 0; t < N_TYPES; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            one_shape(tier, shapes[i], &types[t], 3, lens[i]);
        nan_stays_in_its_sequence(tier, &types[t]);
        nan_before_the_window_is_not_seen(tier, &types[t]);
    }
    one_shape(tier, (struct shape){3, 1, 64, 0, 0}, &types[1], 1, (const int[]){800});
}

static void bench(const struct check_tier *tier) {
    int n_threads = hr_pool_usable_cores();
    static const struct {
        int n_seqs, len, chunk;
        const char *what;
    } runs[] = {{1, 512, 1, "decode 1"}, {8, 300, 1, "decode 8"}, {1, 768, 256, "prefill"}};
    for (size_t i = 0; i < 3; i++) {
        int len[8];
        for (int s = 0; s < 8; s++) len[s] = runs[i].len;
        struct world w = world_create((struct shape){9, 3, 64, 0, 0}, &types[1], runs[i].n_seqs, len);
        struct rig g = rig_create(&w, tier, n_threads, 600);
        float *y = hr_xmalloc((size_t)w.n_tokens * 576 * sizeof *y);
        struct piece all[8];
        int done = len[0] - runs[i].chunk;
        for (int s = 0; s < w.n_seqs; s++)
            for (int from = 0, n; from < done; from += n) {
                n = done - from < 500 ? done - from : 500;
                step(&g, &w, &(struct piece){s, from, n}, 1, y);
            }
        for (int s = 0; s < w.n_seqs; s++) all[s] = (struct piece){s, done, runs[i].chunk};
        step(&g, &w, all, w.n_seqs, y);
        int64_t t0 = hr_clock_ns();
        int n = 0;
        for (; hr_clock_ns() - t0 < 300000000; n++) step(&g, &w, all, w.n_seqs, y);
        double s = (double)(hr_clock_ns() - t0) * 1e-9 / n;
        double macs = 2.0 * 576 * w.n_seqs * runs[i].chunk * (done + runs[i].chunk / 2.0);
        printf(
            "attend_bf16 %s, context %d, rope and write too, %s %d threads: %.1f us %.1f GFLOP/s\n",
            runs[i].what, len[0], tier->name, n_threads, s * 1e6, 2e-9 * macs / s);
        free(y);
        rig_destroy(&g);
        world_destroy(&w);
    }
}

int main(int argc, char **argv) {
    return check_main(argc, argv, cases, bench);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: an auditor with books of its own. It drives small random jobs under widely drawn options (host tier
 * of any size, one sequence at a time, prompts that end at page borders, resumed ones, samples of one prompt, cold
 * ones, pages that share a hash, failures, copies done as late as they may be), and after each step compares what
 * kv and schedule believe with what it has seen by itself:
 *   - every page, on both tiers, has exactly one owner, and a node as many pins as sequences stand on it;
 *   - what is announced and promised is what those who wait and run stand for, and nothing is left at the end;
 *   - every position that is read holds what its reader expects (kv_memory.h);
 *   - prefilled, cached and recomputed tokens and preemptions of each group.
 *
 * It includes the sources of both rooms: who owns a page and what the map holds is nowhere else to be seen, and
 * what schedule asks of kv, and how often kv looks for a node, can be noted between them.
 *
 * HEADRACE_LONG=1: a hundred times as many jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/rng.h"
#include "kv/tree.h"

static int64_t n_lookups; /* nodes that kv has looked for */

static struct hr_kv_node *noted_child(const struct hr_kv_tree *t, const struct hr_kv_node *parent,
                                      const int32_t *tokens) {
    n_lookups++;
    return hr_kv_tree_child(t, parent, tokens);
}

#define hr_kv_tree_child noted_child
#include "kv/kv.c"
#undef hr_kv_tree_child

static int noted_attach(struct hr_kv *kv, struct hr_kv_seq *seq, const int32_t *tokens, int n_tokens, int n_prompt);
static void noted_preempt(struct hr_kv *kv, struct hr_kv_seq *seq, int n_computed);

#define hr_kv_attach  noted_attach
#define hr_kv_preempt noted_preempt
#include "schedule/schedule.c"
#undef hr_kv_attach
#undef hr_kv_preempt

#include "kv_memory.h"

enum { PAGE = HR_KV_PAGE_TOKENS, N_PAGES_MAX = 60, N_TOKENS = 20 * PAGE, N_ITEMS_MAX = 50, N_GROUPS = 3 };

/* A sequence, and what the auditor knows of it. */
struct item {
    struct hr_seq seq;
    int32_t tokens[N_TOKENS];
    int target; /* known tokens at the end */
    bool holds, over;
    int computed; /* tokens that its pages hold, or held when it was preempted last */
    int high;     /* the most it has ever had */
    struct hr_sched_group_counts counts; /* what it adds to its group's */
};

struct audit {
    struct hr_sched_opts opts;
    struct hr_sched *s;
    struct memory mem;
    const struct hr_kv_order *late; /* [n_late]: to be carried out before the next ones */
    int n_late;
    struct item items[N_ITEMS_MAX];
    int n_items, n_submitted, n_over;
    bool has_twins; /* pages that share a hash */
    uint64_t seed, counter;
};

static int draw(struct audit *a, int lo, int hi) {
    return lo + (int)(hr_rng_uniform(a->seed, 1, a->counter++) * (hi - lo + 1));
}

static int lesser(int a, int b) {
    return a < b ? a : b;
}

static int greater(int a, int b) {
    return a > b ? a : b;
}

/* ---- jobs --------------------------------------------------------------------------------------- */

static void draw_opts(struct audit *a) {
    int n_pages = draw(a, 2, draw(a, 0, 3) ? 20 : N_PAGES_MAX);
    int host[] = {0, 1, draw(a, 1, n_pages), n_pages, draw(a, n_pages, 2 * n_pages), 8 * n_pages};
    int max_running = draw(a, 0, 4) ? draw(a, 1, 30) : 1;
    a->opts = (struct hr_sched_opts){
        .n_pages = n_pages,
        .n_host_pages = host[draw(a, 0, 5)],
        .max_running = max_running,
        .step_tokens = max_running + (draw(a, 0, 2) ? draw(a, 0, 200) : 0),
        .decode_steps = draw(a, 0, 2) ? 1 : draw(a, 1, 40),
        .window = draw(a, 0, 3) ? draw(a, 1, 64) : 1,
        .passes_max = draw(a, 0, 20),
        .scatter = draw(a, 0, 1) ? a->seed : 0,
    };
}

/* Pages of two kinds, so that many prefixes are shared; often a text that was there before, up to some page or
 * all of it; and some pages changed into others of the same hash. */
static void draw_text(struct audit *a, int i, int n_prompt) {
    int32_t *tokens = a->items[i].tokens;
    int n_same = i > 0 && draw(a, 0, 1) ? draw(a, 0, 1) ? N_TOKENS : PAGE * draw(a, 0, N_TOKENS / PAGE) : 0;
    if (n_same > 0) memcpy(tokens, a->items[draw(a, 0, i - 1)].tokens, (size_t)n_same * sizeof *tokens);
    for (int k = n_same; k < N_TOKENS; k += PAGE) {
        int kind = draw(a, 0, 1);
        for (int j = 0; j < PAGE; j++) tokens[k + j] = 1000 + 5 * kind + j;
    }
    uint64_t chain = a->s->kv->tree.root.chain;
    for (int k = 0; k + PAGE <= n_prompt; k += PAGE) {
        if (a->has_twins && draw(a, 0, 2) == 0) memory_twin(tokens + k, chain);
        chain = hr_kv_tree_chain(chain, tokens + k);
    }
}

static void draw_item(struct audit *a, int i, bool at_borders) {
    struct item *it = &a->items[i];
    int most = lesser(a->opts.n_pages * PAGE, N_TOKENS);
    int n_prompt = draw(a, 1, draw(a, 0, 1) ? most - 1 : most / 5);
    if (at_borders && n_prompt > PAGE) n_prompt -= n_prompt % PAGE;
    draw_text(a, i, n_prompt);
    int n_max = draw(a, 0, 2) ? draw(a, n_prompt + 1, most) : most;
    it->target = draw(a, 0, 1) ? draw(a, n_prompt + 1, n_max) : n_max;
    it->seq = (struct hr_seq){
        .user = it,
        .group = draw(a, 0, N_GROUPS - 1),
        .tokens = it->tokens,
        .n_prompt = n_prompt,
        .n_tokens = draw(a, 0, 3) ? n_prompt : draw(a, n_prompt, it->target - 1), /* or resumed */
        .n_max = n_max,
        .n_expected = draw(a, 0, 4) ? 0 : n_max - n_prompt,
        .cold = draw(a, 0, 9) == 0,
    };
}

/* ---- the books ---------------------------------------------------------------------------------- */

static struct item *item_of(struct hr_kv_seq *seq) {
    return (struct item *)(void *)((char *)seq - offsetof(struct item, seq.kv));
}

static int noted_attach(struct hr_kv *kv, struct hr_kv_seq *seq, const int32_t *tokens, int n_tokens, int n_prompt) {
    struct item *it = item_of(seq);
    int have = hr_kv_attach(kv, seq, tokens, n_tokens, n_prompt);
    if (have < 0) return have;
    assert_true(!it->over && !it->holds && have < n_tokens && (!seq->cold || have == 0));
    it->holds = true;
    it->computed = have;
    it->counts.cached_tokens += greater(0, lesser(have, n_prompt) - lesser(it->high, n_prompt));
    it->high = greater(it->high, have);
    return have;
}

static void noted_preempt(struct hr_kv *kv, struct hr_kv_seq *seq, int n_computed) {
    struct item *it = item_of(seq);
    assert_true(it->holds && n_computed == it->computed);
    hr_kv_preempt(kv, seq, n_computed);
    it->holds = false;
    it->counts.preemptions++;
    if (seq->cold) it->high = 0; /* it starts anew */
}

/* A piece is computed: positions below it are read. */
static void note_piece(struct audit *a, const struct hr_sched_piece *p) {
    struct item *it = p->seq->user;
    int end = p->pos0 + p->n_rows, n_prompt = p->seq->n_prompt;
    assert_true(it->holds && p->n_rows > 0 && p->pos0 == it->computed && end <= p->seq->n_tokens);
    assert_int_equal(p->samples, end == p->seq->n_tokens);
    assert_true(p->seq->cold || p->seq->n_passed <= a->opts.passes_max);
    assert_int_equal(memory_compute(&a->mem, it->tokens, p->seq->kv.pages, p->pos0, end), -1);
    it->counts.recomputed_tokens += greater(0, lesser(end, it->high) - p->pos0);
    it->counts.prefill_tokens += greater(0, lesser(end, n_prompt) - greater(p->pos0, it->high));
    it->computed = end;
    it->high = greater(it->high, end);
}

static void note_end(struct audit *a, struct item *it, int n_completion) {
    const struct hr_sched_group_counts *c = &it->counts;
    assert_false(it->over);
    /* Each token of a prompt was computed once or found once, however often it was computed again. */
    if (n_completion >= 0 && !it->seq.cold)
        assert_int_equal(c->cached_tokens + c->prefill_tokens, it->seq.n_prompt);
    it->over = true;
    it->holds = false;
    a->n_over++;
    hr_sched_finish(a->s, &it->seq, n_completion);
}

/* ---- audits ------------------------------------------------------------------------------------- */

static void audit_pages(struct audit *a) {
    const struct hr_kv *kv = a->s->kv;
    int n_owners[HR_KV_N_TIERS][9 * N_PAGES_MAX] = {0}, n_pins[9 * N_PAGES_MAX] = {0};
    for (int i = 0; i < kv->tree.n_max; i++) {
        const struct hr_kv_node *n = &kv->tree.nodes[i];
        for (int tier = 0; n->chain && tier < HR_KV_N_TIERS; tier++)
            if (n->page[tier] >= 0) n_owners[tier][n->page[tier]]++;
    }
    for (int i = 0; i < a->n_submitted; i++) {
        const struct item *it = &a->items[i];
        const struct hr_kv_seq *q = &it->seq.kv;
        if (it->over) continue;
        assert_int_equal(q->n_nodes, it->holds && !q->cold ? it->computed / PAGE : 0);
        assert_true(it->holds ? q->n_pages * PAGE >= it->computed : q->n_pages == 0);
        for (int k = 0; k < q->n_nodes; k++) {
            const struct hr_kv_node *n = q->nodes[k];
            n_pins[n - kv->tree.nodes]++;
            assert_memory_equal(n->tokens, it->tokens + k * PAGE, sizeof n->tokens);
            assert_ptr_equal(n->parent, k > 0 ? q->nodes[k - 1] : &kv->tree.root);
            assert_int_equal(q->pages[k], n->page[HR_KV_DEVICE]);
        }
        for (int k = q->n_nodes; k < q->n_pages; k++) n_owners[HR_KV_DEVICE][q->pages[k]]++;
        if (q->n_tail == 0) continue;
        n_owners[HR_KV_HOST][q->host_tail]++;
        assert_true(!it->holds && q->i_tail * PAGE + q->n_tail == it->computed && q->n_tail < PAGE);
    }
    for (int i = 0; i < kv->tree.n_max; i++)
        if (kv->tree.nodes[i].chain) assert_int_equal(kv->tree.nodes[i].n_pins, n_pins[i]);
    const int n_all[] = {a->opts.n_pages, a->opts.n_host_pages};
    for (int tier = 0; tier < HR_KV_N_TIERS; tier++) {
        int n_owned = 0;
        for (int i = 0; i < n_all[tier]; i++) {
            assert_in_range(n_owners[tier][i], 0, 1);
            n_owned += n_owners[tier][i];
        }
        if (n_all[tier]) assert_int_equal(n_owned + hr_kv_pages_n_free(kv->pool[tier]), n_all[tier]);
    }
}

static void audit_map(const struct audit *a) {
    const struct hr_kv_map *map = &a->s->kv->map;
    int64_t known = 0, promised = 0;
    for (int i = 0; i < a->n_submitted; i++) {
        const struct item *it = &a->items[i];
        if (it->over || it->seq.cold) continue;
        known += it->seq.n_prompt / PAGE + (it->holds ? 0 : it->computed / PAGE);
        promised += it->holds ? greater(0, it->seq.n_prompt / PAGE - it->computed / PAGE) : 0;
    }
    for (size_t i = 0; i < map->cap; i++) {
        known -= map->entries[i].key ? map->entries[i].n_known : 0;
        promised -= map->entries[i].key ? map->entries[i].n_promised : 0;
    }
    assert_int_equal(known, 0);
    assert_int_equal(promised, 0);
}

static void audit_counts(const struct audit *a) {
    struct hr_sched_group_counts want[N_GROUPS] = {0};
    struct hr_sched_counts c;
    hr_sched_counts(a->s, &c);
    for (int i = 0; i < a->n_submitted; i++) {
        const struct item *it = &a->items[i];
        struct hr_sched_group_counts *g = &want[it->seq.group];
        if (it->seq.cold) continue;
        g->n_running += it->holds;
        g->preemptions += it->counts.preemptions;
        g->prefill_tokens += it->counts.prefill_tokens;
        g->cached_tokens += it->counts.cached_tokens;
        g->recomputed_tokens += it->counts.recomputed_tokens;
    }
    for (int g = 0; g < N_GROUPS; g++) {
        assert_int_equal(c.groups[g].n_running, want[g].n_running);
        assert_int_equal(c.groups[g].preemptions, want[g].preemptions);
        assert_int_equal(c.groups[g].prefill_tokens, want[g].prefill_tokens);
        assert_int_equal(c.groups[g].cached_tokens, want[g].cached_tokens);
        assert_int_equal(c.groups[g].recomputed_tokens, want[g].recomputed_tokens);
    }
}

/* ---- driving ------------------------------------------------------------------------------------ */

static void obey_late(struct audit *a) {
    memory_obey(&a->mem, a->late, a->n_late);
    a->n_late = 0;
}

static void obey(struct audit *a) {
    const struct hr_kv_order *o;
    int n_before;
    obey_late(a);
    int n = hr_sched_take_orders(a->s, &o, &n_before);
    assert_in_range(n_before, 0, n);
    memory_obey(&a->mem, o, n_before);
    a->late = o + n_before;
    a->n_late = n - n_before;
    if (draw(a, 0, 1)) obey_late(a);
}

static void step(struct audit *a) {
    const struct hr_sched_piece *p;
    int n = hr_sched_plan(a->s, &p), n_rows = 0, n_sampled = 0;
    struct item *sampled[N_ITEMS_MAX];
    assert_true(n > 0 || a->s->n_waiting == 0); /* nobody waits beside an idle machine */
    obey(a);
    for (int i = 0; i < n; i++) {
        note_piece(a, &p[i]);
        n_rows += p[i].n_rows;
        if (p[i].samples) sampled[n_sampled++] = p[i].seq->user;
    }
    assert_in_range(n_rows, 0, a->opts.step_tokens);
    hr_sched_commit(a->s);
    for (int i = 0; i < n_sampled; i++) {
        struct hr_seq *seq = &sampled[i]->seq;
        if (++seq->n_tokens == sampled[i]->target) note_end(a, sampled[i], seq->n_tokens - seq->n_prompt);
    }
}

static void run_job(uint64_t seed, bool has_twins, struct hr_sched_counts *c) {
    static struct audit audit;
    struct audit *a = &audit;
    *a = (struct audit){.seed = seed, .has_twins = has_twins};
    draw_opts(a);
    a->s = hr_sched_create(&a->opts);
    memory_init(&a->mem, a->opts.n_pages, a->opts.n_host_pages);
    a->n_items = draw(a, 5, N_ITEMS_MAX);
    bool at_borders = draw(a, 0, 2) == 0, at_once = draw(a, 0, 1);
    for (int i = 0; i < a->n_items; i++) draw_item(a, i, at_borders);
    for (int i = 0; a->n_over < a->n_items; i++) {
        assert_true(i < 100000);
        while (a->n_submitted < a->n_items && (at_once || draw(a, 0, 2)))
            assert_true(hr_sched_submit(a->s, &a->items[a->n_submitted++].seq));
        if (draw(a, 0, 9) == 0) hr_sched_set_work(a->s, draw(a, 0, N_GROUPS - 1), draw(a, 0, 1000));
        step(a);
        struct item *failed = &a->items[draw(a, 0, a->n_items - 1)];
        if (draw(a, 0, 299) == 0 && failed - a->items < a->n_submitted && !failed->over) note_end(a, failed, -1);
        if (!has_twins) hr_sched_check(a->s); /* counts by hash are shared by twins, in nodes they are not */
        audit_pages(a);
        audit_map(a);
        audit_counts(a);
    }
    hr_sched_counts(a->s, c);
    assert_int_equal(a->s->kv->map.n + (size_t)c->n_pages_running + (size_t)c->kv.n_host_tails, 0);
    hr_sched_destroy(&a->s);
    memory_finish(&a->mem);
}

static void run_jobs(bool has_twins) {
    uint64_t n = getenv("HEADRACE_LONG") ? 20000 : 200;
    struct hr_sched_group_counts all = {0};
    int64_t n_loads = 0, n_host_evictions = 0;
    for (uint64_t seed = 1; seed <= n; seed++) {
        struct hr_sched_counts c;
        run_job(2 * seed + has_twins, has_twins, &c);
        for (int g = 0; g < N_GROUPS; g++) {
            all.preemptions += c.groups[g].preemptions;
            all.prefill_tokens += c.groups[g].prefill_tokens;
            all.cached_tokens += c.groups[g].cached_tokens;
            all.recomputed_tokens += c.groups[g].recomputed_tokens;
        }
        n_loads += c.kv.loads;
        n_host_evictions += c.kv.host_evictions;
    }
    printf("# %lld prefilled, %lld cached, %lld recomputed, %lld preempted, %lld loads, %lld evictions of the host\n",
           (long long)all.prefill_tokens, (long long)all.cached_tokens, (long long)all.recomputed_tokens,
           (long long)all.preemptions, (long long)n_loads, (long long)n_host_evictions);
    assert_true(all.cached_tokens > 0 && all.recomputed_tokens > 0 && all.preemptions > 0);
    assert_true(n_loads > 0 && n_host_evictions > 0);
}

static void the_books_agree_after_every_step(void **state) {
    run_jobs(false);
}

static void the_books_agree_when_pages_share_hashes(void **state) {
    run_jobs(true);
}

/* A hundred behind a prefix of 16 pages, which takes 32 steps, and then a few at a time. A plan may look at each
 * that waits where its last look has ended, not at its whole prefix. */
static void looking_for_whom_to_admit_goes_on_where_it_ended(void **state) {
    enum { N = 100, N_COMMON = 16 * PAGE, N_STEPS = 60 };
    struct hr_sched_opts o = {.n_pages = 40, .max_running = 8, .step_tokens = 8, .decode_steps = 1, .window = 256,
                              .passes_max = 1000};
    struct hr_sched *s = hr_sched_create(&o);
    struct item *items = calloc(N, sizeof *items);
    const struct hr_sched_piece *p;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < N_TOKENS; k++) items[i].tokens[k] = k < N_COMMON ? k : 1000 * (i + 1) + k;
        items[i].seq = (struct hr_seq){.tokens = items[i].tokens, .n_prompt = N_COMMON + PAGE,
                                       .n_tokens = N_COMMON + PAGE, .n_max = N_TOKENS};
        assert_true(hr_sched_submit(s, &items[i].seq));
    }
    for (int i = 0; i < N_STEPS; i++) {
        int n_running = s->n_running;
        n_lookups = 0;
        int n = hr_sched_plan(s, &p);
        int n_looks = 1 + s->n_running - n_running; /* one a choice; and attaching finds the whole prefix */
        int64_t bound = (int64_t)n_looks * (2 * N + 2 * (N_COMMON / PAGE + 1));
        assert_in_range(n_lookups, 1, bound);
        for (int k = 0; k < n; k++) p[k].seq->n_tokens += p[k].samples;
        hr_sched_commit(s);
    }
    assert_true(s->n_running > 1);
    for (int i = 0; i < N; i++) hr_sched_finish(s, &items[i].seq, -1);
    hr_sched_destroy(&s);
    free(items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_books_agree_after_every_step),
        cmocka_unit_test(the_books_agree_when_pages_share_hashes),
        cmocka_unit_test(looking_for_whom_to_admit_goes_on_where_it_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

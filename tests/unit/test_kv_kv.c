/* SPDX-License-Identifier: Apache-2.0
 *
 * kv: random operations on pool, tree and host tier against a naive model: what each position of each page
 * must hold (kv_memory.h), which prefixes have ever been computed, and the sums of pages. What is spoiled, and
 * what is computed from it, holds something else, so that whoever still finds it meets a wrong value.
 *
 * HEADRACE_LONG=1: a million operations instead of a hundred thousand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/rng.h"
#include "kv/tree.h"
#include "kv_memory.h"

#define N_SEQS   24
#define N_TOKENS 160
#define N_SEEN   (1 << 16) /* prefixes of whole pages that were ever computed, as a set of hashes */

struct actor {
    struct hr_kv_hint hint;
    struct hr_kv_seq kv;
    int32_t tokens[N_TOKENS], pages[N_TOKENS];
    struct hr_kv_node *nodes[N_TOKENS];
    int n_tokens, n_prompt, n_computed, n_kept;
    bool known, holds, tainted; /* tainted: holds nodes that were spoiled */
};

struct world {
    struct hr_kv *kv;
    struct memory mem;
    struct actor a[N_SEQS];
    uint64_t *seen; /* [N_SEEN] */
    uint64_t *firsts; /* [N_SEEN]: first pages that were spoiled, as a set of hashes */
    int *n_spoiled;   /* [N_SEEN]: how often */
    uint64_t seed, counter;
    int n_pages, n_host;
    int64_t n_hits, n_loads, n_evictions, n_tainted;
};

static int draw(struct world *w, int lo, int hi) {
    return lo + (int)(hr_rng_uniform(w->seed, 1, w->counter++) * (hi - lo + 1));
}

static uint64_t *find(uint64_t *set, uint64_t h) {
    size_t i = h % N_SEEN;
    while (set[i] && set[i] != h) i = (i + 1) % N_SEEN;
    return &set[i];
}

static uint64_t *seen_at(struct world *w, uint64_t h) {
    return find(w->seen, h);
}

/* How often what begins with this page was spoiled; the place where that is counted. */
static int *spoiled_at(struct world *w, const int32_t *tokens) {
    uint64_t h = hr_hash64(tokens, HR_KV_PAGE_TOKENS * sizeof *tokens, 98) | 1, *at = find(w->firsts, h);
    *at = h;
    return &w->n_spoiled[at - w->firsts];
}

/* A prefix that was spoiled is another one when it is computed again. */
static uint64_t prefix(struct world *w, const int32_t *tokens, int n) {
    return hr_hash64(tokens, (size_t)n * sizeof *tokens, 99 + (uint64_t)*spoiled_at(w, tokens)) | 1;
}

static void obey(struct world *w) {
    const struct hr_kv_order *o;
    int n = hr_kv_take_orders(w->kv, &o);
    memory_obey(&w->mem, o, n);
}

/* Few distinct prompts with long common beginnings: two tokens, changed rarely. */
static void new_text(struct world *w, struct actor *a) {
    a->n_prompt = draw(w, 1, N_TOKENS / 2);
    a->n_tokens = a->n_prompt + draw(w, 0, 8);
    int kind = draw(w, 0, 3), change = draw(w, 0, N_TOKENS);
    for (int i = 0; i < N_TOKENS; i++) a->tokens[i] = kind * 10 + i / 16 + (i >= change ? draw(w, 0, 1) : 0);
}

static void enter(struct world *w, struct actor *a) {
    new_text(w, a);
    a->hint = (struct hr_kv_hint){0};
    a->kv.cold = draw(w, 0, 7) == 0;
    if (!a->kv.cold) hr_kv_know(w->kv, a->tokens, a->n_prompt);
    a->known = true;
    a->n_computed = 0;
}

static void attach(struct world *w, struct actor *a) {
    struct hr_kv_match m;
    if (a->kv.cold) {
        assert_int_equal(hr_kv_attach(w->kv, &a->kv, a->tokens, a->n_tokens, a->n_prompt), 0);
        a->holds = true;
        a->n_computed = 0;
        return;
    }
    hr_kv_match(w->kv, a->tokens, a->n_tokens, &m);
    assert_true(m.n_pages * HR_KV_PAGE_TOKENS < a->n_tokens);
    bool promised;
    hr_kv_peek(w->kv, a->tokens, a->n_tokens, &a->hint, &promised); /* from wherever it ended long ago */
    assert_true(a->hint.n_pages == m.n_pages && promised == m.promised);
    for (int i = 1; i <= m.n_pages; i++) { /* nothing is in the cache that nobody has computed */
        uint64_t h = prefix(w, a->tokens, i * HR_KV_PAGE_TOKENS);
        assert_int_equal(*seen_at(w, h), h);
    }
    int had_tail = a->kv.n_tail && a->kv.i_tail == m.n_pages ? a->kv.n_tail : 0;
    int have = hr_kv_attach(w->kv, &a->kv, a->tokens, a->n_tokens, a->n_prompt);
    if (have < 0) {
        assert_true(m.n_loads > 0);
        return;
    }
    assert_true(have == m.n_pages * HR_KV_PAGE_TOKENS || have == m.n_pages * HR_KV_PAGE_TOKENS + had_tail);
    if (a->n_kept) hr_kv_forget(w->kv, a->tokens, a->n_kept);
    a->n_kept = 0;
    a->holds = true;
    a->n_computed = have;
    w->n_hits += m.n_pages > 0;
    w->n_loads += m.n_loads;
}

static void step(struct world *w, struct actor *a) {
    int n = a->n_computed + draw(w, 1, 40);
    if (n > a->n_tokens) n = a->n_tokens;
    if (n == a->n_computed || !hr_kv_grow(w->kv, &a->kv, n)) return;
    obey(w);
    if (a->tainted) memory_taint(&w->mem, a->pages, a->n_computed, n);
    else assert_int_equal(memory_compute(&w->mem, a->tokens, a->pages, a->n_computed, n), -1);
    hr_kv_computed(w->kv, &a->kv, n);
    a->n_computed = n;
    assert_true(!a->kv.cold || a->kv.n_nodes == 0);
    for (int i = HR_KV_PAGE_TOKENS; i <= n && !a->tainted && !a->kv.cold; i += HR_KV_PAGE_TOKENS) {
        uint64_t h = prefix(w, a->tokens, i);
        *seen_at(w, h) = h;
    }
    if (a->n_computed == a->n_tokens && a->n_tokens < N_TOKENS) a->n_tokens++;
}

static void leave(struct world *w, struct actor *a) {
    hr_kv_release(w->kv, &a->kv);
    if (a->n_kept) hr_kv_forget(w->kv, a->tokens, a->n_kept);
    if (!a->kv.cold) hr_kv_forget(w->kv, a->tokens, a->n_prompt);
    a->known = a->holds = a->tainted = false;
    a->n_kept = 0;
}

static void preempt(struct world *w, struct actor *a) {
    if (a->n_computed == a->n_tokens) return;
    if (!a->kv.cold) a->n_kept = a->n_computed;
    if (!a->kv.cold) hr_kv_know(w->kv, a->tokens, a->n_kept);
    hr_kv_preempt(w->kv, &a->kv, a->n_computed);
    if (a->tainted) assert_int_equal(a->kv.n_tail, 0);
    a->holds = a->tainted = false;
}

/* What an actor has computed was found wrong. */
static void spoil(struct world *w, const struct actor *a) {
    hr_kv_spoil(w->kv, a->tokens, a->n_tokens);
    if (a->n_tokens < HR_KV_PAGE_TOKENS) return;
    ++*spoiled_at(w, a->tokens);
    for (int i = 0; i < N_SEQS; i++) {
        struct actor *b = &w->a[i];
        if (!b->known || memcmp(a->tokens, b->tokens, HR_KV_PAGE_TOKENS * sizeof *a->tokens) != 0) continue;
        if (!b->holds) hr_kv_drop_tail(w->kv, &b->kv);
        if (b->kv.n_nodes == 0) continue; /* it computes its first page itself */
        w->n_tainted += !b->tainted;
        b->tainted = true;
        memory_taint(&w->mem, b->pages, 0, b->n_computed);
    }
    struct hr_kv_match m;
    hr_kv_match(w->kv, a->tokens, a->n_tokens, &m);
    assert_int_equal(m.n_pages, 0);
}

static void act(struct world *w) {
    struct actor *a = &w->a[draw(w, 0, N_SEQS - 1)];
    int what = draw(w, 0, 99);
    if (draw(w, 0, 1499) == 0) spoil(w, a);
    else if (!a->known) enter(w, a);
    else if (!a->holds && what < 90) attach(w, a);
    else if (a->holds && what < 80) step(w, a);
    else if (a->holds && what < 90) preempt(w, a);
    else leave(w, a);
}

static void random_operations(int n_pages, int n_host, uint64_t seed, int n_ops) {
    struct world *w = calloc(1, sizeof *w);
    w->seed = seed;
    w->seen = calloc(N_SEEN, sizeof *w->seen);
    w->firsts = calloc(N_SEEN, sizeof *w->firsts);
    w->n_spoiled = calloc(N_SEEN, sizeof *w->n_spoiled);
    memory_init(&w->mem, n_pages, n_host);
    w->kv = hr_kv_create(&(struct hr_kv_opts){.n_pages = n_pages, .n_host_pages = n_host, .scatter = seed});
    for (int i = 0; i < N_SEQS; i++) w->a[i].kv.pages = w->a[i].pages, w->a[i].kv.nodes = w->a[i].nodes;
    for (int i = 0; i < n_ops; i++) {
        act(w);
        if (i % 16 == 0) hr_kv_check(w->kv);
        obey(w);
    }
    for (int i = 0; i < N_SEQS; i++)
        if (w->a[i].known) leave(w, &w->a[i]);
    struct hr_kv_counts c;
    hr_kv_check(w->kv);
    hr_kv_get_counts(w->kv, &c);
    assert_int_equal(c.n_private + c.n_pinned + c.n_host_tails, 0);
    assert_true(w->n_hits > 0 && c.evictions > 0 && w->n_tainted > 0);
    if (n_host) assert_true(w->n_loads > 0);
    printf("# %d pages, %d on the host: %lld hits, %lld loads, %lld evictions, %lld of the host, %lld tainted\n",
           n_pages, n_host, (long long)w->n_hits, (long long)w->n_loads, (long long)c.evictions,
           (long long)c.host_evictions, (long long)w->n_tainted);
    hr_kv_destroy(&w->kv);
    memory_finish(&w->mem);
    free(w->seen);
    free(w->firsts);
    free(w->n_spoiled);
    free(w);
}

static void every_page_holds_what_its_reader_expects(void **state) {
    int n = getenv("HEADRACE_LONG") ? 1000000 : 100000;
    random_operations(40, 0, 1, n / 4);
    random_operations(60, 30, 2, n / 4);
    random_operations(60, 300, 3, n / 4);
    random_operations(12, 64, 4, n / 4);
}

static int32_t text[64];
static int32_t pages[3][64];
static struct hr_kv_node *nodes[3][64];

static struct hr_kv *small(int n_pages, int n_host, struct hr_kv_seq *s, int n) {
    for (int i = 0; i < 64; i++) text[i] = i;
    for (int i = 0; i < n; i++) s[i] = (struct hr_kv_seq){.pages = pages[i], .nodes = nodes[i]};
    return hr_kv_create(&(struct hr_kv_opts){.n_pages = n_pages, .n_host_pages = n_host});
}

static void a_prefix_that_is_being_computed_is_promised(void **state) {
    struct hr_kv_seq s[2];
    struct hr_kv_match m;
    struct hr_kv *kv = small(16, 0, s, 2);
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 40, 40), 0);
    hr_kv_match(kv, text, 40, &m);
    assert_true(m.n_pages == 0 && m.promised);
    hr_kv_match(kv, text, 16, &m); /* its last token is to be computed anyway: nothing to wait for */
    assert_false(m.promised);
    assert_true(hr_kv_grow(kv, &s[0], 20));
    hr_kv_computed(kv, &s[0], 20);
    hr_kv_match(kv, text, 40, &m);
    assert_true(m.n_pages == 1 && m.promised);
    hr_kv_release(kv, &s[0]); /* it will not come any more */
    hr_kv_match(kv, text, 40, &m);
    assert_true(m.n_pages == 1 && !m.promised && m.n_unpinned == 1 && m.n_loads == 0);
    hr_kv_destroy(&kv);
}

static void what_nobody_is_known_to_want_goes_first(void **state) {
    struct hr_kv_seq s[3];
    struct hr_kv_match m;
    struct hr_kv *kv = small(4, 0, s, 3);
    int32_t other[16], third[48];
    for (int i = 0; i < 48; i++) third[i] = 200 + i, other[i % 16] = 100 + i % 16;
    hr_kv_know(kv, text, 40);
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 32, 32), 0); /* wanted, but used longer ago */
    assert_true(hr_kv_grow(kv, &s[0], 32));
    hr_kv_computed(kv, &s[0], 32);
    hr_kv_release(kv, &s[0]);
    assert_int_equal(hr_kv_attach(kv, &s[1], other, 16, 16), 0);
    assert_true(hr_kv_grow(kv, &s[1], 16));
    hr_kv_computed(kv, &s[1], 16);
    hr_kv_release(kv, &s[1]);
    assert_int_equal(hr_kv_attach(kv, &s[2], third, 48, 48), 0);
    assert_true(hr_kv_grow(kv, &s[2], 32)); /* one was free, one is `other`'s */
    hr_kv_match(kv, text, 40, &m);
    assert_int_equal(m.n_pages, 2);
    assert_true(hr_kv_grow(kv, &s[2], 48)); /* now the leaf of the wanted ones */
    hr_kv_match(kv, text, 40, &m);
    assert_int_equal(m.n_pages, 1);
    hr_kv_release(kv, &s[2]);
    hr_kv_forget(kv, text, 40);
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

static void loads_come_all_or_none(void **state) {
    struct hr_kv_seq s[2];
    struct hr_kv *kv = small(4, 8, s, 2);
    int32_t other[64];
    for (int i = 0; i < 64; i++) other[i] = 500 + i;
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 50, 50), 0);
    assert_true(hr_kv_grow(kv, &s[0], 50));
    hr_kv_computed(kv, &s[0], 50);
    hr_kv_preempt(kv, &s[0], 50);
    assert_int_equal(s[0].n_tail, 2);
    assert_int_equal(hr_kv_attach(kv, &s[1], other, 40, 40), 0);
    assert_true(hr_kv_grow(kv, &s[1], 40)); /* leaves one page */
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 51, 50), -1);
    assert_true(s[0].n_pages == 0 && s[0].n_tail == 2);
    hr_kv_check(kv);
    hr_kv_release(kv, &s[1]);
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 51, 50), 50);
    const struct hr_kv_order *o;
    assert_true(hr_kv_take_orders(kv, &o) >= 3);
    hr_kv_release(kv, &s[0]);
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

static void a_cold_sequence_takes_nothing_and_leaves_nothing(void **state) {
    struct hr_kv_seq s[2];
    struct hr_kv_match m;
    struct hr_kv_counts c;
    const struct hr_kv_order *o;
    struct hr_kv *kv = small(16, 16, s, 2);
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 40, 40), 0);
    assert_true(hr_kv_grow(kv, &s[0], 20));
    hr_kv_computed(kv, &s[0], 20);
    assert_int_equal(hr_kv_take_orders(kv, &o), 1);
    s[1].cold = true;
    assert_int_equal(hr_kv_attach(kv, &s[1], text, 64, 64), 0); /* a page of it is cached */
    assert_true(hr_kv_grow(kv, &s[1], 50));
    hr_kv_computed(kv, &s[1], 50);
    hr_kv_match(kv, text, 64, &m);
    assert_int_equal(m.n_pages, 1);
    hr_kv_release(kv, &s[0]); /* its promise of the second page goes; the cold one has made none */
    hr_kv_match(kv, text, 64, &m);
    assert_false(m.promised);
    hr_kv_preempt(kv, &s[1], 50);
    assert_int_equal(s[1].n_tail, 0);
    assert_int_equal(hr_kv_take_orders(kv, &o), 0);
    hr_kv_get_counts(kv, &c);
    assert_true(c.n_tree == 1 && c.n_host_tree == 1 && c.n_private == 0);
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

static void what_is_spoiled_is_found_no_more_and_goes_with_its_last_holder(void **state) {
    struct hr_kv_seq s[3];
    struct hr_kv_match m;
    struct hr_kv_counts c;
    struct hr_kv *kv = small(16, 16, s, 3);
    int32_t branch[64], other[32];
    for (int i = 0; i < 64; i++) branch[i] = i < 16 ? text[i] : 300 + i, other[i % 32] = 600 + i % 32;
    const int32_t *texts[] = {text, branch, other};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hr_kv_attach(kv, &s[i], texts[i], 32, 32), i == 1 ? 16 : 0);
        assert_true(hr_kv_grow(kv, &s[i], 32));
        hr_kv_computed(kv, &s[i], 32);
    }
    hr_kv_release(kv, &s[1]);
    hr_kv_release(kv, &s[2]);
    hr_kv_spoil(kv, text, 15); /* not a page: nothing is meant */
    hr_kv_match(kv, branch, 64, &m);
    assert_int_equal(m.n_pages, 2);
    hr_kv_spoil(kv, text, 40);
    hr_kv_check(kv);
    hr_kv_match(kv, branch, 64, &m); /* it was computed after the same first page */
    assert_int_equal(m.n_pages, 0);
    hr_kv_match(kv, other, 33, &m);
    assert_int_equal(m.n_pages, 2);
    hr_kv_get_counts(kv, &c);
    assert_true(c.n_tree == 4 && c.n_pinned == 2 && c.n_host_tree == 2);
    assert_int_equal(hr_kv_attach(kv, &s[1], text, 40, 40), 0); /* computes it anew, beside the one that runs */
    assert_true(hr_kv_grow(kv, &s[1], 40) && hr_kv_grow(kv, &s[0], 48));
    hr_kv_computed(kv, &s[1], 40);
    hr_kv_computed(kv, &s[0], 48);
    hr_kv_match(kv, text, 64, &m); /* the third page follows from a spoiled one */
    assert_int_equal(m.n_pages, 2);
    hr_kv_check(kv);
    hr_kv_release(kv, &s[0]);
    hr_kv_get_counts(kv, &c);
    assert_true(c.n_tree == 4 && c.n_host_tree == 4);
    hr_kv_release(kv, &s[1]);
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

/* One sequence after the other computes n tokens from first_token on (two of the same beginning share it). */
static void use(struct hr_kv *kv, int32_t *tokens, int first_token, int n) {
    struct hr_kv_seq s = {.pages = pages[0], .nodes = nodes[0]};
    for (int i = 0; i < 64; i++) tokens[i] = first_token + i;
    assert_true(hr_kv_attach(kv, &s, tokens, n, n) >= 0 && hr_kv_grow(kv, &s, n));
    hr_kv_computed(kv, &s, n);
    hr_kv_release(kv, &s);
}

static int n_cached(struct hr_kv *kv, const int32_t *tokens) {
    struct hr_kv_match m;
    hr_kv_match(kv, tokens, 64, &m);
    return m.n_pages;
}

static void the_least_recently_used_goes_first(void **state) {
    int32_t x[64], y[64], z[64], other[64];
    for (int wanted = 0; wanted < 2; wanted++) { /* announcing counts as a use */
        struct hr_kv *kv = small(3, 0, NULL, 0);
        use(kv, x, 100, 16);
        use(kv, y, 200, 16);
        use(kv, z, 300, 16);
        for (int i = 0; i < 3 && wanted; i++) hr_kv_know(kv, (const int32_t *[]){x, z, y}[i], 16);
        use(kv, x, 100, 17); /* all that it has cached, then a page that it does not fill: y's */
        assert_true(n_cached(kv, x) == 1 && n_cached(kv, y) == wanted && n_cached(kv, z) == !wanted);
        use(kv, other, 400, 32); /* the free one, and the next */
        assert_true(n_cached(kv, x) == 1 && n_cached(kv, y) + n_cached(kv, z) == 0 && n_cached(kv, other) == 2);
        hr_kv_destroy(&kv);
    }
}

static void the_host_tier_forgets_the_least_recently_used_first(void **state) {
    int32_t x[64], y[64], z[64], other[64];
    struct hr_kv_seq s = {.pages = pages[0], .nodes = nodes[0]};
    struct hr_kv *kv = small(4, 3, NULL, 0);
    use(kv, x, 100, 16);
    use(kv, y, 200, 16);
    use(kv, z, 300, 16);
    use(kv, x, 100, 17);
    use(kv, other, 400, 16); /* its copy takes the place of y's */
    assert_true(hr_kv_grow(kv, &s, 64)); /* what has no copy is forgotten */
    assert_true(n_cached(kv, x) == 1 && n_cached(kv, y) == 0 && n_cached(kv, z) == 1 && n_cached(kv, other) == 1);
    hr_kv_release(kv, &s);
    hr_kv_destroy(&kv);
}

static void a_page_whose_leaf_is_gone_goes_next_unless_it_was_used_since(void **state) {
    int32_t ab[64], x[64], y[64], other[64];
    for (int used_since = 0; used_since < 2; used_since++) {
        struct hr_kv *kv = small(5, 0, NULL, 0);
        use(kv, ab, 0, 32);
        use(kv, x, 100, 16);
        use(kv, y, 200, 16);
        if (used_since) use(kv, ab, 0, 17); /* the first page, not the second */
        use(kv, other, 300, 32);
        assert_true(n_cached(kv, ab) == 1 && n_cached(kv, x) == 1 && n_cached(kv, y) == 1);
        use(kv, other, 400, 16);
        assert_true(n_cached(kv, ab) == used_since && n_cached(kv, x) == !used_since && n_cached(kv, y) == 1);
        hr_kv_check(kv);
        hr_kv_destroy(&kv);
    }
}

static void copies_of_what_runs_take_no_room_from_what_is_wanted(void **state) {
    int32_t wanted[64];
    struct hr_kv_seq s[1];
    struct hr_kv *kv = small(4, 2, s, 1);
    use(kv, wanted, 500, 32);
    hr_kv_know(kv, wanted, 33);
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 64, 64), 0);
    assert_true(hr_kv_grow(kv, &s[0], 64));
    hr_kv_computed(kv, &s[0], 64);
    assert_int_equal(n_cached(kv, wanted), 2); /* on the host alone: the pool is the other's */
    hr_kv_release(kv, &s[0]);
    hr_kv_forget(kv, wanted, 33);
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

static void copies_of_what_runs_yield_to_what_is_preempted(void **state) {
    int32_t preempted[64];
    struct hr_kv_seq s[3];
    struct hr_kv_match m;
    struct hr_kv_counts c;
    struct hr_kv *kv = small(6, 3, s, 3);
    for (int i = 0; i < 64; i++) preempted[i] = 500 + i;
    hr_kv_know(kv, text, 40);
    hr_kv_know(kv, preempted, 40);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hr_kv_attach(kv, &s[i], i ? preempted : text, 50, 40), 0);
        assert_true(hr_kv_grow(kv, &s[i], 48));
    }
    hr_kv_computed(kv, &s[1], 16);
    hr_kv_computed(kv, &s[0], 48); /* its third page finds the host tier full */
    hr_kv_computed(kv, &s[1], 40);
    hr_kv_get_counts(kv, &c);
    assert_int_equal(c.host_evictions, 0); /* what runs does not drive out what runs */
    hr_kv_preempt(kv, &s[1], 40);
    assert_int_equal(s[1].n_tail, 8); /* its second page and the unfinished one took those of the other */
    assert_true(hr_kv_grow(kv, &s[2], 48));
    hr_kv_match(kv, preempted, 40, &m);
    assert_true(m.n_pages == 2 && m.n_loads == 2);
    hr_kv_check(kv);
    for (int i = 0; i < 3; i++) hr_kv_release(kv, &s[i]);
    hr_kv_forget(kv, text, 40);
    hr_kv_forget(kv, preempted, 40);
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

static void a_tail_takes_no_room_when_its_prefix_has_none(void **state) {
    struct hr_kv_seq s[2];
    struct hr_kv *kv = small(4, 1, s, 2);
    hr_kv_know(kv, text, 40);
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 40, 40), 0);
    assert_true(hr_kv_grow(kv, &s[0], 40));
    hr_kv_computed(kv, &s[0], 40);
    hr_kv_preempt(kv, &s[0], 40);
    assert_int_equal(s[0].n_tail, 0);
    assert_true(hr_kv_grow(kv, &s[1], 64));
    assert_int_equal(n_cached(kv, text), 1); /* the copy of its first page is still there */
    for (int i = 0; i < 2; i++) hr_kv_release(kv, &s[i]);
    hr_kv_forget(kv, text, 40);
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

static void scattered_pages_come_in_no_order(void **state) {
    enum { N = 32 };
    int n_ascending = 0;
    struct hr_kv_seq s = {.pages = pages[0], .nodes = nodes[0]};
    struct hr_kv *kv = hr_kv_create(&(struct hr_kv_opts){.n_pages = N, .scatter = 5});
    assert_true(hr_kv_grow(kv, &s, N * HR_KV_PAGE_TOKENS));
    for (int i = 1; i < N; i++) n_ascending += s.pages[i] == s.pages[i - 1] + 1;
    assert_in_range(n_ascending, 0, N / 4);
    hr_kv_release(kv, &s);
    hr_kv_destroy(&kv);
}

static void a_whole_pool_may_be_saved_and_loaded_between_two_steps(void **state) {
    enum { N = 40, N_TOKENS_ALL = N * HR_KV_PAGE_TOKENS };
    static int32_t tokens[2][N_TOKENS_ALL + 1], all[N];
    static struct hr_kv_node *prefix[N];
    const struct hr_kv_order *o;
    struct hr_kv *kv = small(N, 2 * N, NULL, 0);
    struct hr_kv_seq s = {.pages = all, .nodes = prefix};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k <= N_TOKENS_ALL; k++) tokens[i][k] = 1000 * i + k;
        hr_kv_take_orders(kv, &o);
        assert_int_equal(hr_kv_attach(kv, &s, tokens[i], N_TOKENS_ALL, N_TOKENS_ALL), 0);
        assert_true(hr_kv_grow(kv, &s, N_TOKENS_ALL));
        hr_kv_computed(kv, &s, N_TOKENS_ALL);
        hr_kv_release(kv, &s);
    }
    assert_int_equal(hr_kv_attach(kv, &s, tokens[0], N_TOKENS_ALL + 1, N_TOKENS_ALL), N_TOKENS_ALL);
    int n = hr_kv_take_orders(kv, &o);
    assert_int_equal(n, 2 * N);
    for (int i = 0; i < n; i++) assert_int_equal(o[i].kind, i < N ? HR_KV_SAVE : HR_KV_LOAD);
    hr_kv_release(kv, &s);
    hr_kv_destroy(&kv);
}

static void at_least_the_last_token_is_computed(void **state) {
    struct hr_kv_seq s[1];
    struct hr_kv *kv = small(8, 8, s, 1);
    for (int n = 40; n <= 48; n += 8) { /* with an unfinished page, and with none */
        hr_kv_attach(kv, &s[0], text, n, n);
        assert_true(hr_kv_grow(kv, &s[0], n));
        hr_kv_computed(kv, &s[0], n);
        hr_kv_preempt(kv, &s[0], n);
        assert_int_equal(hr_kv_attach(kv, &s[0], text, n, n), 32); /* nothing new is known of it */
        hr_kv_release(kv, &s[0]);
    }
    hr_kv_check(kv);
    hr_kv_destroy(&kv);
}

static void pages_that_share_a_hash_are_not_taken_for_each_other(void **state) {
    struct hr_kv_seq s[1];
    struct hr_kv *kv = small(16, 0, s, 1);
    uint64_t root = 1; /* see hr_kv_tree_init */
    int32_t first[64], second[64];
    memcpy(first, text, sizeof first);
    memcpy(second, text, sizeof second);
    memory_twin(first, root);
    memory_twin(second + 16, hr_kv_tree_chain(root, text));
    assert_int_equal(hr_kv_tree_chain(root, first), hr_kv_tree_chain(root, text));
    assert_memory_not_equal(first, text, 16 * sizeof *text);
    assert_int_equal(hr_kv_attach(kv, &s[0], text, 64, 64), 0);
    assert_true(hr_kv_grow(kv, &s[0], 64));
    hr_kv_computed(kv, &s[0], 64);
    hr_kv_release(kv, &s[0]);
    assert_int_equal(n_cached(kv, text), 3);
    assert_int_equal(n_cached(kv, first), 0); /* nor its next pages, of the same tokens and the same hash */
    assert_int_equal(n_cached(kv, second), 1);
    assert_int_equal(hr_kv_attach(kv, &s[0], first, 17, 17), 0);
    assert_true(hr_kv_grow(kv, &s[0], 17));
    hr_kv_computed(kv, &s[0], 17);
    assert_int_equal(n_cached(kv, first), 1); /* its second page stands below the other's first */
    hr_kv_release(kv, &s[0]);
    hr_kv_destroy(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_holds_what_its_reader_expects),
        cmocka_unit_test(a_prefix_that_is_being_computed_is_promised),
        cmocka_unit_test(what_nobody_is_known_to_want_goes_first),
        cmocka_unit_test(loads_come_all_or_none),
        cmocka_unit_test(a_cold_sequence_takes_nothing_and_leaves_nothing),
        cmocka_unit_test(what_is_spoiled_is_found_no_more_and_goes_with_its_last_holder),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(the_host_tier_forgets_the_least_recently_used_first),
        cmocka_unit_test(a_page_whose_leaf_is_gone_goes_next_unless_it_was_used_since),
        cmocka_unit_test(copies_of_what_runs_take_no_room_from_what_is_wanted),
        cmocka_unit_test(copies_of_what_runs_yield_to_what_is_preempted),
        cmocka_unit_test(a_tail_takes_no_room_when_its_prefix_has_none),
        cmocka_unit_test(scattered_pages_come_in_no_order),
        cmocka_unit_test(a_whole_pool_may_be_saved_and_loaded_between_two_steps),
        cmocka_unit_test(at_least_the_last_token_is_computed),
        cmocka_unit_test(pages_that_share_a_hash_are_not_taken_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

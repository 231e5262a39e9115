/* SPDX-License-Identifier: Apache-2.0
 *
 * kv: who holds which page, what is evicted, saved and loaded; see kv.h. */
#include "kv/kv.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "kv/map.h"
#include "kv/pages.h"
#include "kv/tree.h"

struct hr_kv {
    struct hr_kv_opts opts;
    struct hr_kv_pages *pool[HR_KV_N_TIERS]; /* the host's is NULL without a host tier */
    struct hr_kv_tree tree;
    struct hr_kv_map map;
    struct hr_kv_order *orders, *taken; /* owned, [cap_orders]: those that come, and those that were taken */
    int n_orders, cap_orders;
    struct hr_kv_node **path; /* owned; scratch for saving ancestors, [cap_path] */
    int cap_path;
    int n_tree[HR_KV_N_TIERS], n_private, n_pinned, n_tails;
    int64_t evictions, host_evictions, saves, loads;
};

struct hr_kv *hr_kv_create(const struct hr_kv_opts *opts) {
    struct hr_kv *kv = hr_xcalloc(1, sizeof *kv);
    kv->opts = *opts;
    kv->pool[HR_KV_DEVICE] = hr_kv_pages_create(opts->n_pages, opts->scatter);
    if (opts->n_host_pages > 0)
        kv->pool[HR_KV_HOST] = hr_kv_pages_create(opts->n_host_pages, opts->scatter);
    hr_kv_tree_init(&kv->tree, opts->n_pages + opts->n_host_pages);
    /* Between two steps a page is loaded once at most, and saved or given away as a tail once; a host page
     * is the target of two saves at most. */
    kv->cap_orders = 2 * (opts->n_pages + opts->n_host_pages) + 64;
    kv->orders = hr_xmalloc((size_t)kv->cap_orders * sizeof *kv->orders);
    kv->taken = hr_xmalloc((size_t)kv->cap_orders * sizeof *kv->taken);
    kv->cap_path = opts->n_pages;
    kv->path = hr_xmalloc((size_t)kv->cap_path * sizeof(struct hr_kv_node *));
    return kv;
}

void hr_kv_destroy(struct hr_kv **pkv) {
    struct hr_kv *kv = *pkv;
    if (!kv) return;
    for (int tier = 0; tier < HR_KV_N_TIERS; tier++) hr_kv_pages_destroy(&kv->pool[tier]);
    hr_kv_tree_finish(&kv->tree);
    hr_kv_map_finish(&kv->map);
    free(kv->orders);
    free(kv->taken);
    free(kv->path);
    free(kv);
    *pkv = NULL;
}

static void order(struct hr_kv *kv, enum hr_kv_order_kind kind, int32_t page, int32_t host_page) {
    HR_ASSERT(kv->n_orders < kv->cap_orders);
    kv->orders[kv->n_orders++] = (struct hr_kv_order){kind, page, host_page};
    if (kind == HR_KV_SAVE) kv->saves++;
    else kv->loads++;
}

int hr_kv_take_orders(struct hr_kv *kv, const struct hr_kv_order **orders) {
    struct hr_kv_order *taken = kv->orders;
    int n = kv->n_orders;
    kv->orders = kv->taken;
    kv->taken = taken;
    kv->n_orders = 0;
    *orders = taken;
    return n;
}

/* ---- pages -------------------------------------------------------------------------------------- */

static void drop_page(struct hr_kv *kv, struct hr_kv_node *n, enum hr_kv_tier tier) {
    hr_kv_pages_give(kv->pool[tier], &n->page[tier], 1);
    kv->n_tree[tier]--;
    hr_kv_tree_set_page(&kv->tree, n, tier, -1);
}

static void put_page(struct hr_kv *kv, struct hr_kv_node *n, enum hr_kv_tier tier, int32_t page) {
    kv->n_tree[tier]++;
    hr_kv_tree_set_page(&kv->tree, n, tier, page);
}

/* A page of a tier, evicting a leaf of at most that worth, but not `keep`, when none is free; -1 when nothing can
 * be evicted. */
static int32_t take_page(struct hr_kv *kv, enum hr_kv_tier tier, enum hr_kv_worth up_to,
                         const struct hr_kv_node *keep) {
    if (!kv->pool[tier]) return -1;
    int32_t id = hr_kv_pages_take(kv->pool[tier]);
    if (id >= 0) return id;
    struct hr_kv_node *victim = hr_kv_tree_victim(&kv->tree, tier, up_to);
    if (!victim || victim == keep) return -1;
    drop_page(kv, victim, tier);
    if (tier == HR_KV_DEVICE) kv->evictions++;
    else kv->host_evictions++;
    return hr_kv_pages_take(kv->pool[tier]);
}

static void pin(struct hr_kv *kv, struct hr_kv_node *n) {
    if (n->n_pins++ == 0) kv->n_pinned++;
    hr_kv_tree_relist(&kv->tree, n, false);
}

/* Frees a spoiled node that nobody holds and that has no children, and then its ancestors that are such. */
static void reap(struct hr_kv *kv, struct hr_kv_node *n) {
    while (n->spoiled && n->n_pins == 0 && n->n_children[HR_KV_DEVICE] == 0 && n->n_children[HR_KV_HOST] == 0) {
        struct hr_kv_node *parent = n->parent;
        if (n->page[HR_KV_HOST] >= 0) drop_page(kv, n, HR_KV_HOST);
        if (n->page[HR_KV_DEVICE] >= 0) drop_page(kv, n, HR_KV_DEVICE);
        n = parent;
    }
}

static void unpin(struct hr_kv *kv, struct hr_kv_node *n) {
    HR_ASSERT(n->n_pins > 0);
    n->used = kv->tree.clock;
    if (--n->n_pins == 0) kv->n_pinned--;
    hr_kv_tree_relist(&kv->tree, n, false);
    reap(kv, n);
}

int hr_kv_n_available(const struct hr_kv *kv) {
    /* Pinned nodes are closed under prefixes, so all others can go, leaf by leaf. */
    return hr_kv_pages_n_free(kv->pool[HR_KV_DEVICE]) + kv->n_tree[HR_KV_DEVICE] - kv->n_pinned;
}

/* ---- known users -------------------------------------------------------------------------------- */

static void count_users(struct hr_kv *kv, const int32_t *tokens, int n_tokens, int add) {
    struct hr_kv_node *at = &kv->tree.root; /* NULL once the tree has ended */
    uint64_t chain = kv->tree.root.chain;
    for (int i = 0; i + HR_KV_PAGE_TOKENS <= n_tokens; i += HR_KV_PAGE_TOKENS) {
        chain = hr_kv_tree_chain(chain, tokens + i);
        int n_known = hr_kv_map_add(&kv->map, chain, add, 0);
        if (at) at = hr_kv_tree_child(&kv->tree, at, tokens + i);
        if (!at) continue;
        at->n_known = n_known;
        hr_kv_tree_relist(&kv->tree, at, false);
    }
}

void hr_kv_know(struct hr_kv *kv, const int32_t *tokens, int n_tokens) {
    count_users(kv, tokens, n_tokens, 1);
}

void hr_kv_forget(struct hr_kv *kv, const int32_t *tokens, int n_tokens) {
    count_users(kv, tokens, n_tokens, -1);
}

/* Adds to the promises of pages [begin, end) of the sequence; its first `begin` pages are nodes. */
static void promise(struct hr_kv *kv, const struct hr_kv_seq *seq, int begin, int end, int add) {
    uint64_t chain = begin > 0 ? seq->nodes[begin - 1]->chain : kv->tree.root.chain;
    for (int i = begin; i < end; i++) {
        chain = hr_kv_tree_chain(chain, seq->tokens + i * HR_KV_PAGE_TOKENS);
        hr_kv_map_add(&kv->map, chain, 0, add);
    }
}

/* ---- hits --------------------------------------------------------------------------------------- */

static int pages_wanted(int n_tokens) {
    return (n_tokens - 1) / HR_KV_PAGE_TOKENS;
}

void hr_kv_match(struct hr_kv *kv, const int32_t *tokens, int n_tokens, struct hr_kv_match *out) {
    struct hr_kv_node *at = &kv->tree.root;
    *out = (struct hr_kv_match){0};
    for (int i = 0; i < pages_wanted(n_tokens); i++) {
        const int32_t *page = tokens + i * HR_KV_PAGE_TOKENS;
        struct hr_kv_node *next = hr_kv_tree_child(&kv->tree, at, page);
        if (!next) {
            const struct hr_kv_entry *e = hr_kv_map_find(&kv->map, hr_kv_tree_chain(at->chain, page));
            out->promised = e && e->n_promised > 0;
            return;
        }
        at = next;
        out->n_pages++;
        out->n_loads += at->page[HR_KV_DEVICE] < 0;
        out->n_unpinned += at->page[HR_KV_DEVICE] >= 0 && at->n_pins == 0;
    }
}

void hr_kv_peek(struct hr_kv *kv, const int32_t *tokens, int n_tokens, struct hr_kv_hint *hint, bool *promised) {
    struct hr_kv_node *at = &kv->tree.root;
    int n = 0, n_wanted = pages_wanted(n_tokens);
    if (hint->n_pages > 0 && hint->node->chain == hint->chain && !hint->node->spoiled)
        at = hint->node, n = hint->n_pages;
    *promised = false;
    while (n < n_wanted) {
        struct hr_kv_node *next = hr_kv_tree_child(&kv->tree, at, tokens + n * HR_KV_PAGE_TOKENS);
        if (!next) {
            uint64_t chain = hr_kv_tree_chain(at->chain, tokens + n * HR_KV_PAGE_TOKENS);
            const struct hr_kv_entry *e = hr_kv_map_find(&kv->map, chain);
            *promised = e && e->n_promised > 0;
            break;
        }
        at = next;
        n++;
    }
    *hint = (struct hr_kv_hint){.node = at, .chain = at->chain, .n_pages = n};
}

void hr_kv_drop_tail(struct hr_kv *kv, struct hr_kv_seq *seq) {
    if (!seq->n_tail) return;
    hr_kv_pages_give(kv->pool[HR_KV_HOST], &seq->host_tail, 1);
    kv->n_tails--;
    seq->n_tail = 0;
}

/* Pins the nodes of the prefix that are on the device; returns how many nodes there are on both tiers, of
 * which seq->n_nodes are pinned. */
static int pin_prefix(struct hr_kv *kv, struct hr_kv_seq *seq, int n_wanted) {
    struct hr_kv_node *at = &kv->tree.root;
    int n = 0;
    while (n < n_wanted && (at = hr_kv_tree_child(&kv->tree, at, seq->tokens + n * HR_KV_PAGE_TOKENS))) {
        seq->nodes[n++] = at;
        if (at->page[HR_KV_DEVICE] < 0) continue;
        HR_ASSERT(seq->n_nodes == n - 1);
        pin(kv, at);
        seq->pages[seq->n_nodes++] = at->page[HR_KV_DEVICE];
    }
    return n;
}

int hr_kv_attach(struct hr_kv *kv, struct hr_kv_seq *seq, const int32_t *tokens, int n_tokens, int n_prompt) {
    HR_ASSERT(seq->n_pages == 0 && seq->n_nodes == 0);
    seq->tokens = tokens;
    seq->n_promised = 0;
    if (seq->cold) return 0;
    int n = pin_prefix(kv, seq, pages_wanted(n_tokens));
    if (n - seq->n_nodes > hr_kv_n_available(kv)) { /* all loads or none */
        while (seq->n_nodes > 0) unpin(kv, seq->nodes[--seq->n_nodes]);
        return -1;
    }
    while (seq->n_nodes < n) {
        struct hr_kv_node *node = seq->nodes[seq->n_nodes];
        /* Pinned first: taking a page on either tier must not evict what is being loaded. */
        pin(kv, node);
        int32_t page = take_page(kv, HR_KV_DEVICE, HR_KV_WANTED, NULL);
        HR_ASSERT(page >= 0);
        put_page(kv, node, HR_KV_DEVICE, page);
        order(kv, HR_KV_LOAD, page, node->page[HR_KV_HOST]);
        seq->pages[seq->n_nodes++] = page;
    }
    seq->n_pages = n;
    int have = n * HR_KV_PAGE_TOKENS;
    if (seq->n_tail && seq->i_tail == n && have + seq->n_tail < n_tokens && hr_kv_grow(kv, seq, have + 1)) {
        order(kv, HR_KV_LOAD, seq->pages[n], seq->host_tail);
        have += seq->n_tail;
    }
    hr_kv_drop_tail(kv, seq);
    int n_full = n_prompt / HR_KV_PAGE_TOKENS;
    if (n_full > n) {
        promise(kv, seq, n, n_full, 1);
        seq->n_promised = n_full;
    }
    return have;
}

bool hr_kv_grow(struct hr_kv *kv, struct hr_kv_seq *seq, int n_tokens) {
    while (seq->n_pages * HR_KV_PAGE_TOKENS < n_tokens) {
        int32_t page = take_page(kv, HR_KV_DEVICE, HR_KV_WANTED, NULL);
        if (page < 0) return false;
        seq->pages[seq->n_pages++] = page;
        kv->n_private++;
    }
    return true;
}

/* ---- pages that are full ------------------------------------------------------------------------ */

/* Saves a node and the ancestors that have no host copy, those first; gives up where no host page is. */
static void save(struct hr_kv *kv, struct hr_kv_node *n, enum hr_kv_worth up_to) {
    int k = 0;
    for (; n != &kv->tree.root && n->page[HR_KV_HOST] < 0 && k < kv->cap_path; n = n->parent) kv->path[k++] = n;
    while (k > 0) {
        struct hr_kv_node *node = kv->path[--k];
        int32_t host = take_page(kv, HR_KV_HOST, up_to, node->parent);
        if (host < 0) return;
        put_page(kv, node, HR_KV_HOST, host);
        order(kv, HR_KV_SAVE, node->page[HR_KV_DEVICE], host);
    }
}

/* Page i of the sequence, private and full, becomes the node below its prefix. */
static void make_node(struct hr_kv *kv, struct hr_kv_seq *seq, int i) {
    struct hr_kv_node *parent = i > 0 ? seq->nodes[i - 1] : &kv->tree.root;
    const int32_t *tokens = seq->tokens + i * HR_KV_PAGE_TOKENS;
    struct hr_kv_node *n = hr_kv_tree_child(&kv->tree, parent, tokens);
    if (!n) {
        n = hr_kv_tree_add(&kv->tree, parent, tokens);
        const struct hr_kv_entry *e = hr_kv_map_find(&kv->map, n->chain);
        n->spoiled = parent->spoiled; /* what follows from wrong KV is wrong */
        n->n_known = e && !n->spoiled ? e->n_known : 0;
    }
    pin(kv, n);
    kv->n_private--;
    if (n->page[HR_KV_DEVICE] >= 0) { /* somebody else computed the same: the same bits */
        hr_kv_pages_give(kv->pool[HR_KV_DEVICE], &seq->pages[i], 1);
        seq->pages[i] = n->page[HR_KV_DEVICE];
    } else {
        put_page(kv, n, HR_KV_DEVICE, seq->pages[i]);
    }
    seq->nodes[i] = n;
    seq->n_nodes = i + 1;
    if (i < seq->n_promised) hr_kv_map_add(&kv->map, n->chain, 0, -1);
    if (n->page[HR_KV_HOST] < 0 && kv->pool[HR_KV_HOST] && !n->spoiled) save(kv, n, HR_KV_UNWANTED);
}

void hr_kv_computed(struct hr_kv *kv, struct hr_kv_seq *seq, int n_computed) {
    HR_ASSERT(n_computed <= seq->n_pages * HR_KV_PAGE_TOKENS);
    if (seq->cold) return;
    while ((seq->n_nodes + 1) * HR_KV_PAGE_TOKENS <= n_computed) make_node(kv, seq, seq->n_nodes);
}

/* ---- the end ------------------------------------------------------------------------------------ */

static void let_go(struct hr_kv *kv, struct hr_kv_seq *seq) {
    kv->tree.clock++;
    if (seq->n_promised > seq->n_nodes) promise(kv, seq, seq->n_nodes, seq->n_promised, -1);
    seq->n_promised = 0;
    int n_private = seq->n_pages - seq->n_nodes;
    hr_kv_pages_give(kv->pool[HR_KV_DEVICE], seq->pages + seq->n_nodes, n_private);
    kv->n_private -= n_private;
    while (seq->n_nodes > 0) unpin(kv, seq->nodes[--seq->n_nodes]); /* the deepest is the oldest leaf */
    seq->n_pages = 0;
}

void hr_kv_release(struct hr_kv *kv, struct hr_kv_seq *seq) {
    hr_kv_drop_tail(kv, seq);
    let_go(kv, seq);
}

void hr_kv_preempt(struct hr_kv *kv, struct hr_kv_seq *seq, int n_computed) {
    if (seq->cold || (seq->n_nodes > 0 && seq->nodes[seq->n_nodes - 1]->spoiled)) {
        let_go(kv, seq);
        return;
    }
    int n = n_computed - seq->n_nodes * HR_KV_PAGE_TOKENS, n_nodes = seq->n_nodes;
    HR_ASSERT(n < HR_KV_PAGE_TOKENS && seq->n_tail == 0);
    struct hr_kv_node *last = n_nodes > 0 ? seq->nodes[n_nodes - 1] : NULL;
    int32_t tail = n > 0 ? seq->pages[n_nodes] : -1;
    /* Its nodes must not stand among the redundant ones while room is made for their copies. What it lets go
     * stays as it is until the orders that come now are carried out. */
    let_go(kv, seq);
    if (last && !last->spoiled && kv->pool[HR_KV_HOST]) save(kv, last, HR_KV_WANTED);
    bool whole = !last || last->page[HR_KV_HOST] >= 0; /* else the tail would join nothing */
    int32_t host = tail >= 0 && whole ? take_page(kv, HR_KV_HOST, HR_KV_WANTED, last) : -1;
    if (host >= 0) {
        order(kv, HR_KV_SAVE, tail, host);
        seq->host_tail = host;
        seq->n_tail = n;
        seq->i_tail = n_nodes;
        kv->n_tails++;
    }
}

/* ---- what was found wrong ----------------------------------------------------------------------- */

void hr_kv_spoil(struct hr_kv *kv, const int32_t *tokens, int n_tokens) {
    struct hr_kv_tree *t = &kv->tree;
    if (n_tokens < HR_KV_PAGE_TOKENS) return;
    struct hr_kv_node *top = hr_kv_tree_child(t, &t->root, tokens);
    if (!top) return;
    for (size_t i = 0; i < t->n_buckets; i++) {
        for (struct hr_kv_node *n = t->buckets[i]; n; n = n->bucket_next) {
            if (n->spoiled || n->top != top) continue;
            n->spoiled = true;
            n->n_known = 0;
            hr_kv_tree_relist(t, n, true);
        }
    }
    /* The copies of those that stay while somebody holds them, then the rest from its leaves upward. */
    for (int i = 0; i < t->n_max; i++) {
        struct hr_kv_node *n = &t->nodes[i];
        if (n->spoiled && n->page[HR_KV_DEVICE] >= 0 && n->page[HR_KV_HOST] >= 0) drop_page(kv, n, HR_KV_HOST);
    }
    for (int i = 0; i < t->n_max; i++) reap(kv, &t->nodes[i]);
}

/* ---- looking ------------------------------------------------------------------------------------ */

void hr_kv_get_counts(const struct hr_kv *kv, struct hr_kv_counts *out) {
    *out = (struct hr_kv_counts){
        .n_pages = kv->opts.n_pages,
        .n_free = hr_kv_pages_n_free(kv->pool[HR_KV_DEVICE]),
        .n_tree = kv->n_tree[HR_KV_DEVICE],
        .n_private = kv->n_private,
        .n_pinned = kv->n_pinned,
        .n_host_pages = kv->opts.n_host_pages,
        .n_host_free = kv->pool[HR_KV_HOST] ? hr_kv_pages_n_free(kv->pool[HR_KV_HOST]) : 0,
        .n_host_tree = kv->n_tree[HR_KV_HOST],
        .n_host_tails = kv->n_tails,
        .n_nodes = kv->tree.n_nodes,
        .evictions = kv->evictions,
        .host_evictions = kv->host_evictions,
        .saves = kv->saves,
        .loads = kv->loads,
    };
}

static void check_node(const struct hr_kv *kv, const struct hr_kv_node *n, int *n_pinned) {
    const struct hr_kv_node *root = &kv->tree.root;
    HR_ASSERT(n->page[HR_KV_DEVICE] >= 0 || n->page[HR_KV_HOST] >= 0);
    *n_pinned += n->n_pins > 0;
    for (int tier = 0; tier < HR_KV_N_TIERS; tier++) {
        bool has = n->page[tier] >= 0;
        HR_ASSERT(!has || n->parent == root || n->parent->page[tier] >= 0);
        bool is_leaf = has && n->n_children[tier] == 0;
        const struct hr_kv_list *list = NULL;
        if (is_leaf && n->n_pins == 0) list = &kv->tree.evictable[tier][n->n_known > 0];
        else if (is_leaf && tier == HR_KV_HOST) list = &kv->tree.redundant;
        HR_ASSERT(n->link[tier].list == list);
    }
    HR_ASSERT(n->n_pins == 0 || n->page[HR_KV_DEVICE] >= 0);
    HR_ASSERT(n->n_pins == 0 || n->parent == root || n->parent->n_pins > 0);
    const struct hr_kv_entry *e = hr_kv_map_find(&kv->map, n->chain);
    HR_ASSERT(n->n_known == (e && !n->spoiled ? e->n_known : 0));
    HR_ASSERT(!n->spoiled || (n->n_pins > 0 && n->page[HR_KV_HOST] < 0));
    HR_ASSERT(n->spoiled || !n->parent->spoiled);
}

void hr_kv_check(const struct hr_kv *kv) {
    int n_nodes = 0, n_pinned = 0, n_tree[HR_KV_N_TIERS] = {0};
    for (size_t i = 0; i < kv->tree.n_buckets; i++) {
        for (const struct hr_kv_node *n = kv->tree.buckets[i]; n; n = n->bucket_next) {
            check_node(kv, n, &n_pinned);
            n_nodes++;
            for (int tier = 0; tier < HR_KV_N_TIERS; tier++) n_tree[tier] += n->page[tier] >= 0;
        }
    }
    HR_ASSERT(n_nodes == kv->tree.n_nodes && n_pinned == kv->n_pinned);
    struct hr_kv_counts c;
    hr_kv_get_counts(kv, &c);
    HR_ASSERT(n_tree[HR_KV_DEVICE] == c.n_tree && n_tree[HR_KV_HOST] == c.n_host_tree);
    HR_ASSERT(c.n_free + c.n_tree + c.n_private == c.n_pages);
    HR_ASSERT(c.n_host_free + c.n_host_tree + c.n_host_tails == c.n_host_pages);
}

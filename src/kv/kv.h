/* SPDX-License-Identifier: Apache-2.0
 *
 * kv: which page of the KV cache holds what: a pool of device pages, a pool of host pages, and a radix
 * tree of token pages over both. Ids, lengths and reference counts only: it never sees a page's bytes.
 *
 * The tree. A node is one full page of tokens below its parent, so a path from the root is a prefix, and
 * prefixes share at page borders without any splitting. A node's KV is in a device page, in a host page, or
 * in both. A sequence's pages are the nodes of its prefix, pinned while it runs, and behind them private
 * pages that it is still filling; each becomes a node when it is full. If that node is there already, the
 * sequence takes it and gives its own page back: the bits are the same, whoever computed them.
 *
 * The host tier. A page is saved to the host when it becomes a node, ancestors first, so host copies are
 * closed under prefixes. Then evicting it from the device forgets it, and a later hit loads it back: all
 * promised pages or none. When the tier is full, saving pages of running sequences takes no room from what
 * somebody is known to want; a preempted one's copies, made up for when it is preempted, take it from
 * copies of what runs.
 *
 * Eviction. A job that is read ahead knows its next users: hr_kv_know announces a prompt, hr_kv_forget takes
 * it back. Unpinned leaves that nobody is known to want go first, then least recently used ones, O(1) each.
 *
 * Cold sequences. One that checks what was computed before must not read it: it computes all of its pages
 * itself, promises nothing, and leaves nothing behind. What such a check has found wrong is spoiled
 * (hr_kv_spoil): nobody finds it any more, and it is gone as soon as nobody holds it.
 *
 * Orders. What is to be copied comes out of hr_kv_take_orders. The caller carries the copies out in that order:
 * a load before the next step computes, a save before a step writes its page (which may be the next step: a page
 * is handed out again as soon as its save is ordered), and all of them before those of the next call.
 *
 * Invariant (hr_kv_check): free + in the tree + private = pool, on both tiers. */
#ifndef HR_KV_KV_H
#define HR_KV_KV_H

#include <stdbool.h>
#include <stdint.h>

#define HR_KV_PAGE_TOKENS 16

struct hr_kv;
struct hr_kv_node;

struct hr_kv_opts {
    int n_pages;      /* on the device, >= 1 */
    int n_host_pages; /* 0: no host tier */
    uint64_t scatter; /* tests: hand out pages in an order drawn from this seed (0: ascending) */
};

struct hr_kv *hr_kv_create(const struct hr_kv_opts *opts);
void hr_kv_destroy(struct hr_kv **kv);

/* What a sequence holds. Zeroed is valid and holds nothing. `pages` is the caller's, with room for the pages
 * of its longest possible text; the rest is kv's. */
struct hr_kv_seq {
    int32_t *pages; /* device pages of positions in order: nodes first, then private ones */
    int n_pages;
    struct hr_kv_node **nodes; /* the caller's, same room: the pinned prefix */
    int n_nodes;
    bool cold; /* the caller's, before attach: takes nothing from the tree, gives nothing to it */
    const int32_t *tokens; /* as given to attach; borrowed until release */
    int n_promised;  /* others may wait for pages [n_nodes, n_promised) of its prompt */
    int n_tail;      /* tokens of the unfinished page that hr_kv_preempt saved; 0: none */
    int i_tail;      /* which page of the sequence that is */
    int32_t host_tail;
};

/* A prompt that will come (and its sequence, until it ends): its full pages have a known user more. */
void hr_kv_know(struct hr_kv *kv, const int32_t *tokens, int n_tokens);
void hr_kv_forget(struct hr_kv *kv, const int32_t *tokens, int n_tokens);

/* How much of tokens is cached, in whole pages, at most n_tokens - 1 tokens of it: the last token's logits
 * are wanted, so at least that one is computed. */
struct hr_kv_match {
    int n_pages;      /* cached on either tier */
    int n_loads;      /* of them, only on the host */
    int n_unpinned;   /* of them, on the device and in no sequence: pinning them makes fewer available */
    bool promised;    /* the page behind them is just being computed by a sequence that runs */
};
void hr_kv_match(struct hr_kv *kv, const int32_t *tokens, int n_tokens, struct hr_kv_match *out);

/* The same, n_pages and promised alone, from where the last call of it for these tokens ended: O(1) while the
 * tree does not change there. hint: the caller's; zeroed is valid. A 64-bit collision can make n_pages wrong, so
 * it serves for choosing only. */
struct hr_kv_hint {
    struct hr_kv_node *node;
    uint64_t chain;
    int n_pages;
};
void hr_kv_peek(struct hr_kv *kv, const int32_t *tokens, int n_tokens, struct hr_kv_hint *hint, bool *promised);

/* Device pages that are free or can be made so. */
int hr_kv_n_available(const struct hr_kv *kv);

/* Pins the cached prefix of tokens (as in hr_kv_match) for a sequence that holds nothing but perhaps a host
 * tail, orders loads for pages that are only on the host, loads the tail when it joins the prefix, and
 * promises the other full pages below n_prompt. Returns the tokens whose KV the sequence now has. When there
 * are not enough device pages for all loads, nothing is pinned and it returns -1. */
int hr_kv_attach(struct hr_kv *kv, struct hr_kv_seq *seq, const int32_t *tokens, int n_tokens, int n_prompt);

/* Pages for the first n_tokens positions, evicting what can be. False: there are none; what was taken so far
 * is kept. */
bool hr_kv_grow(struct hr_kv *kv, struct hr_kv_seq *seq, int n_tokens);

/* The first n_computed tokens have their KV: full private pages become nodes, and saves are ordered. */
void hr_kv_computed(struct hr_kv *kv, struct hr_kv_seq *seq, int n_computed);

/* The KV of the first page of tokens, or of what was computed after it, is wrong: the nodes of that page and
 * of all that begins with it are found by nobody from here on, and their pages on both tiers are free: those
 * that sequences hold, when they let them go. Less than a page of tokens names nothing. O(nodes). */
void hr_kv_spoil(struct hr_kv *kv, const int32_t *tokens, int n_tokens);
/* Gives the host tail of a sequence back, if it has one: attach will compute those tokens instead. */
void hr_kv_drop_tail(struct hr_kv *kv, struct hr_kv_seq *seq);

/* The sequence holds nothing any more, no tail either. Its nodes stay as cache, its private pages are free. */
void hr_kv_release(struct hr_kv *kv, struct hr_kv_seq *seq);
/* As release, but first all that it has computed of positions below n_computed is saved to the host, as far as
 * there is room (the rest is dropped, and always that of a cold one or behind spoiled nodes), the unfinished page
 * too: attach brings it back. The caller has announced it (hr_kv_know) before. */
void hr_kv_preempt(struct hr_kv *kv, struct hr_kv_seq *seq, int n_computed);

enum hr_kv_order_kind { HR_KV_SAVE, HR_KV_LOAD }; /* device to host, host to device */
struct hr_kv_order {
    enum hr_kv_order_kind kind;
    int32_t page, host_page;
};
/* The copies ordered since the last call; see above. Borrowed until the next call of this. */
int hr_kv_take_orders(struct hr_kv *kv, const struct hr_kv_order **orders);

struct hr_kv_counts {
    int n_pages, n_free, n_tree, n_private, n_pinned; /* device; n_pinned: nodes in use by sequences */
    int n_host_pages, n_host_free, n_host_tree, n_host_tails;
    int n_nodes;
    int64_t evictions, host_evictions, saves, loads;
};
void hr_kv_get_counts(const struct hr_kv *kv, struct hr_kv_counts *out);

/* Walks everything and asserts the invariants; for tests and debug builds (O(n)). */
void hr_kv_check(const struct hr_kv *kv);

#endif

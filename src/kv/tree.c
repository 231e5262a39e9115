/* SPDX-License-Identifier: Apache-2.0
 *
 * tree: a hash table of nodes by path, and five lists; see tree.h. */
#include "kv/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/hash.h"

void hr_kv_tree_init(struct hr_kv_tree *t, int n_max) {
    memset(t, 0, sizeof *t);
    t->n_max = n_max;
    t->n_buckets = 1024;
    while (t->n_buckets < (size_t)n_max) t->n_buckets *= 2;
    t->nodes = hr_xcalloc((size_t)n_max, sizeof *t->nodes);
    t->buckets = hr_xcalloc(t->n_buckets, sizeof(struct hr_kv_node *));
    for (int i = n_max - 1; i >= 0; i--) {
        t->nodes[i].bucket_next = t->free;
        t->free = &t->nodes[i];
    }
    t->root.chain = 1;
}

void hr_kv_tree_finish(struct hr_kv_tree *t) {
    free(t->nodes);
    free(t->buckets);
    memset(t, 0, sizeof *t);
}

uint64_t hr_kv_tree_chain(uint64_t chain, const int32_t *tokens) {
    uint64_t h = hr_hash64(tokens, HR_KV_PAGE_TOKENS * sizeof *tokens, chain);
    return h ? h : 1;
}

static struct hr_kv_node **bucket(const struct hr_kv_tree *t, uint64_t chain) {
    return &t->buckets[chain & (t->n_buckets - 1)];
}

struct hr_kv_node *hr_kv_tree_child(const struct hr_kv_tree *t, const struct hr_kv_node *parent,
                                    const int32_t *tokens) {
    uint64_t chain = hr_kv_tree_chain(parent->chain, tokens);
    struct hr_kv_node *n = *bucket(t, chain);
    while (n && !(n->chain == chain && n->parent == parent && !n->spoiled &&
                  !memcmp(n->tokens, tokens, sizeof n->tokens)))
        n = n->bucket_next;
    return n;
}

struct hr_kv_node *hr_kv_tree_add(struct hr_kv_tree *t, struct hr_kv_node *parent, const int32_t *tokens) {
    struct hr_kv_node *n = t->free;
    HR_ASSERT(n);
    t->free = n->bucket_next;
    t->n_nodes++;
    *n = (struct hr_kv_node){.chain = hr_kv_tree_chain(parent->chain, tokens), .parent = parent, .page = {-1, -1}};
    n->top = parent == &t->root ? n : parent->top;
    memcpy(n->tokens, tokens, sizeof n->tokens);
    struct hr_kv_node **b = bucket(t, n->chain);
    n->bucket_next = *b;
    *b = n;
    return n;
}

static void unlist(struct hr_kv_node *n, enum hr_kv_tier tier) {
    struct hr_kv_link *l = &n->link[tier];
    if (!l->list) return;
    if (l->prev) l->prev->link[tier].next = l->next;
    else l->list->head = l->next;
    if (l->next) l->next->link[tier].prev = l->prev;
    else l->list->tail = l->prev;
    *l = (struct hr_kv_link){0};
}

static void enlist(struct hr_kv_list *list, struct hr_kv_node *n, enum hr_kv_tier tier, bool oldest) {
    struct hr_kv_link *l = &n->link[tier];
    l->list = list;
    l->prev = oldest ? list->tail : NULL;
    l->next = oldest ? NULL : list->head;
    if (l->prev) l->prev->link[tier].next = n;
    else list->head = n;
    if (l->next) l->next->link[tier].prev = n;
    else list->tail = n;
}

void hr_kv_tree_relist(struct hr_kv_tree *t, struct hr_kv_node *n, bool oldest) {
    if (n == &t->root) return;
    for (int tier = 0; tier < HR_KV_N_TIERS; tier++) {
        struct hr_kv_list *list = NULL;
        bool is_leaf = n->page[tier] >= 0 && n->n_children[tier] == 0;
        if (is_leaf && n->n_pins == 0) list = &t->evictable[tier][n->n_known > 0];
        else if (is_leaf && tier == HR_KV_HOST) list = &t->redundant;
        if (n->link[tier].list == list) continue;
        unlist(n, tier);
        if (list) enlist(list, n, tier, oldest);
    }
}

static void remove_node(struct hr_kv_tree *t, struct hr_kv_node *n) {
    HR_ASSERT(n->n_pins == 0 && n->n_children[HR_KV_DEVICE] == 0 && n->n_children[HR_KV_HOST] == 0);
    struct hr_kv_node **b = bucket(t, n->chain);
    while (*b != n) b = &(*b)->bucket_next;
    *b = n->bucket_next;
    n->spoiled = false; /* free nodes are none of the spoiled ones */
    n->chain = 0;       /* and no hint finds them */
    n->bucket_next = t->free;
    t->free = n;
    t->n_nodes--;
}

void hr_kv_tree_set_page(struct hr_kv_tree *t, struct hr_kv_node *n, enum hr_kv_tier tier, int32_t page) {
    HR_ASSERT((n->page[tier] < 0) != (page < 0));
    n->page[tier] = page;
    n->parent->n_children[tier] += page < 0 ? -1 : 1;
    if (page < 0) unlist(n, tier);
    /* A parent that became a leaf is next if nobody has used it after the leaf it lost; else it is as good as
     * new: its true place is somewhere between, and looking for it would not be O(1). */
    hr_kv_tree_relist(t, n->parent, n->parent->used <= n->used);
    if (n->page[HR_KV_DEVICE] < 0 && n->page[HR_KV_HOST] < 0) remove_node(t, n);
    else hr_kv_tree_relist(t, n, false);
}

struct hr_kv_node *hr_kv_tree_victim(const struct hr_kv_tree *t, enum hr_kv_tier tier, enum hr_kv_worth up_to) {
    struct hr_kv_node *n = t->evictable[tier][0].tail;
    if (!n && tier == HR_KV_HOST && up_to >= HR_KV_REDUNDANT) n = t->redundant.tail;
    if (!n && up_to >= HR_KV_WANTED) n = t->evictable[tier][1].tail;
    return n;
}

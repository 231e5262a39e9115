/* SPDX-License-Identifier: Apache-2.0
 *
 * tree: nodes of the radix tree, how they are found, and the lists from which they are evicted; private to
 * src/kv. Who holds what and when to copy is kv.c's.
 *
 * A node has a device page, a host page or both. The nodes with a device page are closed under prefixes, and
 * so are those with a host page: eviction takes leaves of its tier only.
 *
 *        root                    tokens 0..15 | 16..31 | 32..47
 *         |
 *        [A]  page 7, host 2     a prompt A B C, and one that parts after A B: they share two nodes
 *         |
 *        [B]  page 3, host 5
 *        /  \
 *      [C]  [D]  page 9, host -  */
#ifndef HR_KV_TREE_H
#define HR_KV_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "kv/kv.h"

enum hr_kv_tier { HR_KV_DEVICE, HR_KV_HOST, HR_KV_N_TIERS };

struct hr_kv_list;

struct hr_kv_link {
    struct hr_kv_node *prev, *next;
    struct hr_kv_list *list; /* NULL: in none */
};

/* Least recently used last. */
struct hr_kv_list {
    struct hr_kv_node *head, *tail;
};

struct hr_kv_node {
    uint64_t chain; /* hash of all tokens from the root to here; never 0 */
    struct hr_kv_node *parent, *bucket_next;
    int32_t tokens[HR_KV_PAGE_TOKENS];
    int32_t page[HR_KV_N_TIERS];     /* -1: none */
    int n_children[HR_KV_N_TIERS];   /* with a page of that tier */
    int n_pins;                      /* sequences that hold it */
    int64_t used;                    /* when the last sequence let it go, by the tree's clock */
    struct hr_kv_node *top;          /* the first page of its prefix: itself, or its furthest ancestor */
    int n_known;                     /* known users, see map.h; 0 when it is spoiled */
    bool spoiled;                    /* its KV is not to be trusted: found no more, gone with its last pin */
    struct hr_kv_link link[HR_KV_N_TIERS];
};

struct hr_kv_tree {
    struct hr_kv_node root;   /* without pages */
    struct hr_kv_node *nodes; /* owned, [n_max] */
    struct hr_kv_node *free;  /* by bucket_next */
    struct hr_kv_node **buckets; /* owned; by chain, [n_buckets], a power of two */
    size_t n_buckets;
    int n_nodes, n_max;
    int64_t clock; /* the caller's to move on */
    /* Evictable leaves: that nobody is known to want, and the others. */
    struct hr_kv_list evictable[HR_KV_N_TIERS][2];
    /* Host leaves that a sequence holds on the device: their copies can be made again. */
    struct hr_kv_list redundant;
};

void hr_kv_tree_init(struct hr_kv_tree *t, int n_max);
void hr_kv_tree_finish(struct hr_kv_tree *t);

/* Hash of a path that goes on from `chain` (the root's is root.chain) by one page of tokens. */
uint64_t hr_kv_tree_chain(uint64_t chain, const int32_t *tokens);

/* NULL when there is none; a spoiled one is none. */
struct hr_kv_node *hr_kv_tree_child(const struct hr_kv_tree *t, const struct hr_kv_node *parent,
                                    const int32_t *tokens);
/* A new child without pages. There is always room: n_max is the number of pages. */
struct hr_kv_node *hr_kv_tree_add(struct hr_kv_tree *t, struct hr_kv_node *parent, const int32_t *tokens);
/* Gives the node a page on a tier, or takes it (-1). A node without any page is removed. */
void hr_kv_tree_set_page(struct hr_kv_tree *t, struct hr_kv_node *n, enum hr_kv_tier tier, int32_t page);

/* Puts the node in or out of the lists of evictable leaves after pins, known users or children changed;
 * `oldest`: at the end that is evicted next. */
void hr_kv_tree_relist(struct hr_kv_tree *t, struct hr_kv_node *n, bool oldest);
/* The next to evict on a tier, or NULL. What may be evicted, in this order: */
enum hr_kv_worth {
    HR_KV_UNWANTED,  /* leaves that nobody is known to want */
    HR_KV_REDUNDANT, /* and host copies of what is pinned on the device */
    HR_KV_WANTED,    /* and leaves that somebody is known to want */
};
struct hr_kv_node *hr_kv_tree_victim(const struct hr_kv_tree *t, enum hr_kv_tier tier, enum hr_kv_worth up_to);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: which tokens of which sequences the next step computes.
 *
 * Pure: no clock, no I/O, no tensors; a step's plan depends on the calls made before it alone.
 *
 * A sequence is a run of known tokens (prompt and what has been sampled) of which the first n_computed have
 * their KV in its pages. A step computes some of the rest; when that reaches the last known token, the step
 * samples the next one. So prefill, decode, going on after a kill and coming back after a preemption are one
 * thing: computing what is known but not computed.
 *
 * Life: submit -> waiting -> (admitted) running -> finish. Each group (dataset) has a line of its own. The next
 * to be admitted comes from the group that runs least for the work it has left, so that all end together and
 * one's tail is filled by the others. In its line, of a window of waiting sequences, it is the one with the
 * most cached, so that a shared prefix is computed once and used while it is hot, and among equals the one
 * that is known to be longest: what is long and late ends alone. Nobody is passed by more than `passes_max`
 * others of its line, not counting those admitted while it waits for a page that a running sequence is just
 * computing.
 *
 * How many run is bounded by pages: with a host tier as many as have room now, without one as many as
 * will have it for the next HR_SCHED_HORIZON steps, by what is known of lengths. When the guess was low, the
 * youngest running sequence is preempted and goes before all lines; its KV stays in the tree and on the host,
 * so that coming back is a copy. The oldest is never preempted, so everything ends.
 *
 * A cold sequence (kv.h) checks what others have done, so it comes after them: it is admitted when nobody else
 * can be or when it was passed often, counts as the youngest, and has only what it was computing to lose when
 * it is preempted: then it goes to the end of its line. It is in no group's counts. */
#ifndef HR_SCHEDULE_SCHEDULE_H
#define HR_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/kv.h"

#define HR_SCHED_GROUPS_MAX 64 /* datasets in one run */
#define HR_SCHED_HORIZON    256 /* decode steps that admission looks ahead without a host tier */

struct hr_sched_opts {
    int n_pages, n_host_pages; /* of HR_KV_PAGE_TOKENS tokens */
    int max_running;  /* sequences that hold device pages at once */
    int step_tokens;  /* token budget of a step; >= max_running */
    int decode_steps; /* steps between two looks at the waiting ones; 1: each */
    int window;       /* waiting sequences among which admission chooses */
    int passes_max;   /* later ones of its line that may be admitted before a waiting one */
    int expected[HR_SCHED_GROUPS_MAX]; /* mean completion tokens to assume until rows have finished; 0: not known */
    uint64_t scatter; /* see hr_kv_opts */
};

/* One sequence. The caller owns the struct and keeps it until hr_sched_finish; fields marked (s) are the
 * scheduler's. */
struct hr_seq {
    void *user;
    int group;             /* dataset, 0 .. HR_SCHED_GROUPS_MAX-1 */
    const int32_t *tokens; /* [n_max]; the known ones are filled in. Must not move. */
    int n_tokens;          /* known tokens; the caller adds 1 after each sampled one */
    int n_prompt;          /* of them, the prompt's */
    int n_max;             /* n_tokens never passes this (prompt + max_tokens) */
    bool cold;             /* takes nothing that is cached and leaves nothing */
    int n_expected;        /* completion tokens that it will bring, as far as somebody knows; 0: nobody does */
    int n_computed;        /* (s) tokens whose KV is in the pages */
    int n_high;            /* (s) highest n_computed ever: below it computing is recomputation */
    struct hr_kv_seq kv;   /* (s) pages of positions in order: kv.pages */
    bool running, started; /* (s) */
    bool suspect;          /* (s) computed from what hr_sched_spoil was told of */
    int n_passed;          /* (s) later ones of its line admitted before it */
    struct hr_kv_hint hint; /* (s) */
    bool promised;         /* (s) its next page was being computed when it was last looked at */
    int n_kept;            /* (s) tokens announced to kv while it waits preempted */
    struct hr_seq *prev, *next; /* (s) waiting list */
};

/* One piece of a step: rows of seq from pos0 on. */
struct hr_sched_piece {
    struct hr_seq *seq;
    int pos0, n_rows;
    bool samples; /* the last row's logits give the next token */
};

struct hr_sched_group_counts {
    int64_t n_running; /* now */
    int64_t preemptions;
    int64_t prefill_tokens;    /* prompt tokens computed for the first time */
    int64_t cached_tokens;     /* prompt tokens that were found in the cache instead */
    int64_t recomputed_tokens; /* computed again after a preemption */
};
struct hr_sched_counts {
    int n_running, n_waiting;
    int n_pages_running; /* device pages of running sequences, shared ones once */
    struct hr_kv_counts kv;
    struct hr_sched_group_counts groups[HR_SCHED_GROUPS_MAX];
};

struct hr_sched;

struct hr_sched *hr_sched_create(const struct hr_sched_opts *opts);
void hr_sched_destroy(struct hr_sched **s);

/* Puts a sequence at the end of the line. False when the pool can never hold n_max tokens: it is not taken
 * then. */
bool hr_sched_submit(struct hr_sched *s, struct hr_seq *seq);

/* What the group has still to bring, running ones included, in any unit that all groups share. Until it is
 * called groups count alike. */
void hr_sched_set_work(struct hr_sched *s, int group, double work);

/* Plans a step: admits, preempts, takes pages. Returns the number of pieces (0: nothing to do); *pieces is
 * borrowed until the next call. hr_sched_take_orders says what is to be copied. */
int hr_sched_plan(struct hr_sched *s, const struct hr_sched_piece **pieces);
/* The planned step was computed: its rows count as computed, full pages become part of the tree. */
void hr_sched_commit(struct hr_sched *s);

/* Page copies since the last call, in order: the first *n_before before the planned step computes, the others
 * beside it (saves of pages that it does not write), but before those of the next call. After hr_sched_plan,
 * before hr_sched_commit. Borrowed until the next call. */
int hr_sched_take_orders(struct hr_sched *s, const struct hr_kv_order **orders, int *n_before);

/* The sequence is over, wherever it is. n_completion teaches the group's lengths (negative: teaches
 * nothing, for one that failed). */
void hr_sched_finish(struct hr_sched *s, struct hr_seq *seq, int n_completion);

/* The KV that was computed after the first page of tokens is wrong: nobody is given it any more. Who has used
 * it, running or preempted, goes on as it is and is marked suspect. O(nodes of the tree). */
void hr_sched_spoil(struct hr_sched *s, const int32_t *tokens, int n_tokens);

void hr_sched_counts(const struct hr_sched *s, struct hr_sched_counts *out);
/* Asserts all invariants; for tests and debug builds (O(pages)). */
void hr_sched_check(const struct hr_sched *s);

#endif

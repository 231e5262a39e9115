/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule: which tokens of which sequences the next step computes.
 *
 * Pure: no clock, no I/O, no tensors; a step's plan depends on the calls made before it alone.
 *
 * A sequence is a run of known tokens (prompt and what has been sampled) of which the first n_computed
 * have their KV in its pages. A step computes some of the rest; when that reaches the last known token,
 * the step samples the next one. So prefill, decode, going on after a kill and coming back after a
 * preemption are one thing: computing what is known but not computed.
 *
 * Life: submit -> waiting -> (admitted) running -> finish. When pages run out, the youngest running
 * sequence gives all its pages back and waits first in line (preemption). A sequence that alone fits
 * the pool always ends: the oldest running one is never preempted. */
#ifndef HR_SCHEDULE_SCHEDULE_H
#define HR_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/pages.h"

#define HR_SCHED_GROUPS_MAX 64 /* datasets in one run */

struct hr_sched_opts {
    int page_tokens;     /* tokens a page */
    int max_running;     /* sequences that hold pages at once */
    int step_tokens;     /* token budget of a step; >= max_running */
    uint64_t scatter;    /* see hr_kv_pages_create */
    int n_pages;
};

/* One sequence. The caller owns the struct and keeps it until hr_sched_finish; fields marked (s) are
 * the scheduler's. */
struct hr_seq {
    void *user;
    int group;      /* dataset, 0 .. HR_SCHED_GROUPS_MAX-1 */
    int n_tokens;   /* known tokens; the caller adds 1 after each sampled one */
    int n_prompt;   /* of them, the prompt's */
    int n_max;      /* n_tokens never passes this (prompt + max_tokens) */
    int n_computed; /* (s) tokens whose KV is in the pages */
    int n_high;     /* (s) highest n_computed ever: computing below it again is recomputation */
    int32_t *pages; /* (s) owned by the scheduler; page ids of positions in order */
    int n_pages;    /* (s) */
    bool running;   /* (s) */
    struct hr_seq *prev, *next; /* (s) waiting list */
};

/* One piece of a step: rows of seq from n_computed on. */
struct hr_sched_piece {
    struct hr_seq *seq;
    int pos0, n_rows;
    bool samples; /* the last row's logits give the next token */
};

struct hr_sched_group_counts {
    int64_t preemptions;
    int64_t prefill_tokens;    /* prompt tokens computed for the first time */
    int64_t recomputed_tokens; /* computed again after a preemption */
};
struct hr_sched_counts {
    int n_running, n_waiting;
    int n_pages_used, n_pages;
    struct hr_sched_group_counts groups[HR_SCHED_GROUPS_MAX];
};

struct hr_sched;

struct hr_sched *hr_sched_create(const struct hr_sched_opts *opts);
void hr_sched_destroy(struct hr_sched **s);

/* Puts a sequence at the end of the line. False when the pool can never hold n_max tokens: it is not
 * taken then. */
bool hr_sched_submit(struct hr_sched *s, struct hr_seq *seq);

/* Plans a step: admits, preempts, takes pages. Returns the number of pieces (0: nothing to do);
 * *pieces is borrowed until the next call. */
int hr_sched_plan(struct hr_sched *s, const struct hr_sched_piece **pieces);
/* The planned step was computed: its rows count as computed. */
void hr_sched_commit(struct hr_sched *s);

/* The sequence is over, wherever it is: its pages are free. n_completion teaches the group's expected
 * length (negative: teaches nothing, for a withdrawn one). */
void hr_sched_finish(struct hr_sched *s, struct hr_seq *seq, int n_completion);

void hr_sched_counts(const struct hr_sched *s, struct hr_sched_counts *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * engine: joins scheduler, model and sampler into a step loop on a thread of its own.
 *
 * Two bounded queues stand between it and the rest: requests go in ("here is what to complete"), events
 * come out ("here is what became of it"). It knows token ids and token bytes, nothing of text, JSON or
 * files. A completion depends on its request alone, whatever runs beside it. */
#ifndef HR_ENGINE_ENGINE_H
#define HR_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/fault.h"

#define HR_ENGINE_GROUPS_MAX 64

struct hr_model;
struct hr_engine;

/* The bytes that each token adds: token i is bytes[offset[i] .. offset[i+1]); tokens from n_tokens on add
 * nothing. Borrowed until the engine is destroyed. */
struct hr_engine_bytes {
    const uint8_t *bytes;
    const uint32_t *offset;
    const uint8_t *first_bytes; /* the same for the first token that is not hidden; NULL: no different */
    const uint32_t *first_offset;
    const bool *hidden; /* [n_tokens]: adds nothing for all that it has bytes; NULL: none does */
    int n_tokens;
    int n_strip; /* so many bytes `strip` at most are no part of a completion that begins with them */
    uint8_t strip;
};

struct hr_engine_opts {
    int max_running; /* sequences computed together */
    int step_tokens; /* token budget of a step: decodes and prompt chunks; >= max_running */
    int n_pages, n_host_pages; /* as the model was created with */
    int decode_steps; /* steps between two looks at waiting requests; 0 means 1 */
    int expected[HR_ENGINE_GROUPS_MAX]; /* a group's mean completion tokens until rows have finished; 0: not known */
    uint64_t scatter; /* tests: hand out KV pages in a random order (0: ascending) */
    struct hr_engine_bytes token_bytes;
    void (*wake)(void *arg); /* rung after events were queued; called on the engine's thread */
    void *wake_arg;
};

enum hr_finish {
    HR_FINISH_EOS,         /* an end-of-sequence token */
    HR_FINISH_STOP_ID,     /* which: the last token */
    HR_FINISH_STOP_STRING, /* which: stop_index */
    HR_FINISH_LENGTH,      /* max_tokens */
    HR_FINISH_NUMERIC,     /* the logits for the next token were not finite: no row comes of it */
};

/* Bytes at the front of a completion in which stop strings are not looked for. They lie between `open`, which
 * comes first but for white space (blank, tab, LF, CR), and `close`; or begin with the completion, when
 * `begun` (an `open` that comes first all the same is not one of them). Here hidden tokens count with their
 * bytes where these go on with a tag or begin one, and are passed over elsewhere. close NULL: there is no such
 * thing. */
struct hr_preface {
    const char *open, *close;
    size_t open_len, close_len; /* > 0 */
    bool begun;
};

/* The caller owns it, and all it points to, until its HR_EVENT_FINISH came out (or the engine
 * was destroyed). */
struct hr_request {
    void *user;
    int group; /* dataset, below HR_ENGINE_GROUPS_MAX */
    const int32_t *prompt;
    int n_prompt; /* >= 1 */
    const int32_t *resumed; /* completion tokens that are known already: it goes on after them */
    int n_resumed;
    int max_tokens; /* completion tokens at most, >= 1; the caller has clipped it to the context */
    int n_expected; /* completion tokens that somebody expects (an earlier run had so many); 0: nobody does.
                     * A hint to the scheduler: it changes no byte of the answer. */
    float temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int top_k;
    uint64_t seed, stream; /* random numbers are keyed by both; stream tells rows and samples apart */
    bool ignore_eos;
    const int32_t *eos;
    int n_eos;
    const int32_t *stop_ids; /* the user's; not silenced by ignore_eos */
    int n_stop_ids;
    const char *const *stop; /* stop strings, none of them empty */
    const size_t *stop_len;
    int n_stop;
    struct hr_preface preface;
    /* A canary, when not NULL: what the same request has brought before. It is computed again from the prompt,
     * from nothing that is cached, behind and beside the other requests, up to the first token that differs;
     * its one event is CHECKED. `resumed` must be empty. */
    const int32_t *canary;
    int n_canary; /* >= 1 */
    enum hr_finish canary_finish;
    int canary_stop_index;
};

enum hr_event_kind {
    HR_EVENT_TOKEN,
    HR_EVENT_FINISH,
    HR_EVENT_SUSPECT, /* in flight, with KV that the next CHECKED found wrong */
    HR_EVENT_CHECKED, /* a canary has ended; when it differs, what begins as it does has left the cache */
};

struct hr_event {
    enum hr_event_kind kind;
    struct hr_request *request;
    int32_t token; /* TOKEN: in order, not those of `resumed`; CHECKED: what differs, -1: no token */
    bool same;     /* CHECKED: tokens and end are the expected ones */
    /* FINISH; of CHECKED n_tokens, how many agree: */
    enum hr_finish finish;
    int stop_index;
    int n_tokens;      /* completion tokens in all, resumed and the stop token included */
    int64_t n_bytes;   /* of the completion's token bytes (hidden ones do not count, stripped ones do), how
                        * many are not a stop string or behind it */
    bool has_preface;  /* it is [preface_begin, preface_end) of these, the rest begins at answer_begin; one
                        * that never ended ends with the completion. All 0 when there is none. */
    int64_t preface_begin, preface_end, answer_begin;
    struct hr_fault fault; /* NUMERIC: the first value that is not finite; NONE: all were, computed again */
};

HR_MUST_USE enum hr_status hr_engine_create(struct hr_model *model, const struct hr_engine_opts *opts,
                                            struct hr_engine **out, struct hr_err *err);
/* Stops after the step that runs, joins the thread. Requests in flight are dropped; events not yet
 * popped are lost, so stop and drain first. */
void hr_engine_destroy(struct hr_engine **e);

/* False when prompt and max_tokens can never fit the KV pool; the request is not taken then. Blocks while
 * the queue is full. One thread submits. */
bool hr_engine_submit(struct hr_engine *e, struct hr_request *r);
/* What a group has still to bring, in tokens: groups run in proportion to it, so that all end together.
 * Until it is called groups count alike. Thread-safe. */
void hr_engine_set_work(struct hr_engine *e, int group, int64_t tokens);
/* Tokens that the pool holds. */
int64_t hr_engine_kv_tokens(const struct hr_engine *e);
/* Up to n events, without waiting. */
int hr_engine_events(struct hr_engine *e, struct hr_event *events, int n);
/* Ends the loop after the step that runs; returns when the thread is gone. Events stay. The thread may be
 * waiting for room in the queue of events, so somebody else must go on popping them meanwhile. */
void hr_engine_stop(struct hr_engine *e);

struct hr_engine_stats {
    int n_running, n_waiting;
    int64_t kv_tokens, kv_tokens_used; /* used by running requests */
    int64_t decode_steps;   /* steps that sampled something */
    int64_t sampled_tokens; /* so the mean number running is sampled_tokens / decode_steps */
    int64_t kv_used_sum;    /* kv_tokens_used summed over decode steps */
    int64_t saves, loads, evictions, host_evictions; /* pages */
};
struct hr_engine_group_stats {
    int64_t n_running, prefill_tokens, cached_tokens, recomputed_tokens, preemptions;
};
/* group: may be NULL, otherwise the numbers of one group. Thread-safe. */
void hr_engine_get_stats(struct hr_engine *e, struct hr_engine_stats *out, int i_group,
                         struct hr_engine_group_stats *group);

#endif

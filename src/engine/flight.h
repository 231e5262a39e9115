/* SPDX-License-Identifier: Apache-2.0
 *
 * flight: one request inside the engine: its tokens, its stop rules, what its sampler must remember.
 *
 * Everything here follows from the tokens alone, so a resumed request is brought to the same state by
 * replaying its known tokens. All memory is taken at creation. */
#ifndef HR_ENGINE_FLIGHT_H
#define HR_ENGINE_FLIGHT_H

#include "backend/backend.h"
#include "engine/engine.h"
#include "engine/scan.h"
#include "schedule/schedule.h"

struct hr_flight {
    struct hr_request *request; /* borrowed */
    struct hr_seq seq;
    int32_t *tokens; /* owned; [n_prompt + max_tokens] */
    bool finished, told; /* told: that it is suspect */
    struct hr_event end; /* valid when finished */
    struct hr_scan scan; /* stop strings */
    /* Penalties: distinct tokens, ascending, and how often each is in the completion. */
    int32_t *seen, *seen_count; /* owned; NULL when no penalty is on */
    int n_seen;
};

/* Replays r->resumed; the flight may be finished at once. bytes: borrowed. */
struct hr_flight *hr_flight_create(struct hr_request *r, const struct hr_engine_bytes *bytes);
void hr_flight_destroy(struct hr_flight **f);

/* Appends a sampled token and applies the stop rules: EOS, stop ids, stop strings (the match that starts
 * leftmost; ties by list order), max_tokens. seq.n_tokens grows by one. */
void hr_flight_push(struct hr_flight *f, int32_t token);
/* What the sampler needs for the next token. Borrowed until the next push. */
void hr_flight_sample_row(const struct hr_flight *f, struct hr_sample_row *row);

#endif

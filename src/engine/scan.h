/* SPDX-License-Identifier: Apache-2.0
 *
 * scan: where in the bytes of a completion its preface ends, and whether a stop string is in the rest.
 *
 * Follows from the tokens alone, one after the other, so a replay of them reaches the same state. Whether
 * there is a preface may stay open for some tokens ("<thi" may become "<think>"); stop strings wait
 * meanwhile, and are looked for in all that has come as soon as it is known. All memory is taken at the
 * start. */
#ifndef HR_ENGINE_SCAN_H
#define HR_ENGINE_SCAN_H

#include "engine/engine.h"

enum hr_scan_stage { HR_SCAN_FRONT, HR_SCAN_PREFACE, HR_SCAN_ANSWER };

struct hr_scan {
    const struct hr_request *request;    /* borrowed */
    const struct hr_engine_bytes *bytes; /* borrowed */
    const int32_t *tokens;               /* borrowed: the completion, which grows */
    enum hr_scan_stage stage;
    int i_first; /* the first token that is not hidden; -1: none yet */
    int n_strip; /* bytes that may still be stripped from the front */
    size_t n_open; /* FRONT: bytes of preface.open that are there */
    char *tail;    /* owned: the last bytes, as many as a match may still need */
    bool *tail_hidden; /* owned: which of them are of hidden tokens */
    size_t tail_len, stop_len_max;
    int64_t n_bytes; /* of the tokens so far, without hidden ones */
    int64_t preface_begin, preface_end, answer_begin; /* as in struct hr_event; begin -1: no preface */
    int stop_index;  /* -1: none was found */
    int64_t stop_at; /* where it begins, in n_bytes */
};

void hr_scan_init(struct hr_scan *s, const struct hr_request *r, const struct hr_engine_bytes *bytes,
                  const int32_t *tokens);
void hr_scan_finish(struct hr_scan *s);

/* Takes token i, which follows those before it. True when a stop string is complete. */
bool hr_scan_push(struct hr_scan *s, int i);
/* The completion ends after n tokens: what was open is decided. True when a stop string is in it. */
bool hr_scan_end(struct hr_scan *s, int n);

#endif

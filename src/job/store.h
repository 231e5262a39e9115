/* SPDX-License-Identifier: Apache-2.0
 *
 * store: what a dataset job has on the disk: raw_responses.jsonl, rejects.jsonl, state.db, and the
 * lock that keeps a second process out. (The head of store.c has the formats and the validity
 * rules.)
 *
 * A handle is used by one thread at a time. Rows of input are numbered by the store (`row`), each
 * has n samples; a (row, sample) is missing, done or rejected, and while missing it may have
 * journalled tokens. */
#ifndef HR_JOB_STORE_H
#define HR_JOB_STORE_H

#include <stdbool.h>

#include "base/buf.h"

struct hr_store;

struct hr_store_opts {
    const char *dir;        /* DIR/<dataset>; made when it is not there */
    const char *state_path; /* state.db elsewhere, or NULL: dir/state.db */
    /* Optional, borrowed until close: true ends the wait for a busy state.db with HR_ERR_LOCKED. */
    const volatile bool *stop;
    /* How a row of raw_responses.jsonl tells its identity; NULL: hr_record_identify_row. */
    bool (*identify)(const char *line, size_t len, uint8_t ident[16], int *occurrence, int *sample);
};

/* What opening found and mended; it is for the caller to say. */
struct hr_store_recovery {
    int n_adopted;       /* whole rows past the last commit that were taken over */
    int64_t n_cut_bytes; /* torn tail cut off raw_responses.jsonl */
    int n_redo;          /* rows that state.db called done and the file does not hold any more */
    int n_unfinished;    /* samples with journalled tokens */
    int64_t n_unfinished_tokens;
};

/* Takes the lock (HR_ERR_LOCKED names pid and host), opens or makes state.db (waits for a busy one
 * with a line every few seconds), checks sizes and the tail, adopts whole known rows, cuts a torn
 * one. HR_ERR_IO for a file system that SQLite's WAL does not work on, naming --state. */
HR_MUST_USE enum hr_status hr_store_open(const struct hr_store_opts *opts, struct hr_store **out,
                                         struct hr_store_recovery *recovery, struct hr_err *err);
void hr_store_close(struct hr_store **st);

/* What all runs of a dataset must agree on, as sorted "key" = "value" texts ("sampling.temperature"
 * = "0.8"). */
struct hr_store_setting {
    const char *key, *value;
};
/* Compares them with what is stored and changes nothing: HR_ERR_CONFIG lists every key that differs
 * with both values. *is_new: no sample is done, begun or rejected, so any settings will do. */
HR_MUST_USE enum hr_status hr_store_check(struct hr_store *st,
                                          const struct hr_store_setting *settings, int n,
                                          bool *is_new, struct hr_err *err);
/* The same, and stores them. */
HR_MUST_USE enum hr_status hr_store_bind(struct hr_store *st,
                                         const struct hr_store_setting *settings, int n,
                                         struct hr_err *err);

/* Begins a pass over the input and a record in the table of runs; occurrences count from 0 again.
 */
HR_MUST_USE enum hr_status hr_store_begin_run(struct hr_store *st, const char *version,
                                              const char *host, struct hr_err *err);

/* Registers an input row as the reader meets it. ident: hash of its id (or of its content when it
 * has none); content: hash of what is asked. Among rows with one ident, `occurrence` counts; rows
 * that were known keep the number they had, in whatever order they come now. Other content than a
 * known row's, that is no new duplicate, is taken in the row's place when nothing was made of it:
 * no sample done, no token journalled, the ident there once. Else HR_ERR_CONFIG. */
#define HR_STORE_ID_MAX 48 /* bytes of an id in a message */
struct hr_store_seen {
    int64_t row;
    int occurrence;
    bool is_new;
    bool duplicate_of_done; /* every sample asked for is done or rejected: nothing is left to do */
    int n_forgotten;        /* rejects of the content that stood here before */
};
HR_MUST_USE enum hr_status hr_store_see(struct hr_store *st, const uint8_t ident[16],
                                        const uint8_t content[16], const char *id_text,
                                        int n_samples, struct hr_store_seen *out,
                                        struct hr_err *err);

enum hr_sample_state { HR_SAMPLE_MISSING, HR_SAMPLE_DONE, HR_SAMPLE_REJECTED };
HR_MUST_USE enum hr_status hr_store_sample(struct hr_store *st, int64_t row, int sample,
                                           enum hr_sample_state *state, struct hr_err *err);
/* Appends the journalled tokens of a missing sample (none: nothing is appended). */
HR_MUST_USE enum hr_status hr_store_journalled(struct hr_store *st, int64_t row, int sample,
                                               struct hr_ids *tokens, struct hr_err *err);

/* Counters of the running run, kept in the table of runs; the totals over all runs are their sums.
 */
struct hr_run_counters {
    int64_t rows_done, rows_length, rows_repetitive, rejects;
    int64_t prompt_tokens, completion_tokens; /* of finished rows */
    int64_t sampled_tokens;                   /* that reached the journal or a row */
    int64_t prefill_tokens, cached_tokens, resumed_tokens, recomputed_tokens, preemptions;
    int64_t decode_steps, running_sum; /* mean_running = running_sum / decode_steps */
    int64_t active_ns;                 /* first admission to last row */
    /* Committed rows that were to be computed again, that were, and that came out otherwise. */
    int64_t canaries_picked, canaries_checked, canaries_failed;
};

/* One finished sample: `line` is the whole row with its newline. */
struct hr_store_done {
    int64_t row;
    int sample;
    const char *line;
    size_t len;
    int prompt_tokens, completion_tokens;
    bool length;     /* finish_reason is "length" */
    bool repetitive; /* and the completion only repeats itself */
};
/* Rows appended -> fdatasync -> one transaction (row marks, offsets, CRCs, journal entries of these
 * samples dropped, counters). Either all of it or none counts. HR_ERR_NOSPACE: nothing was
 * committed, the file is as before, call again later. */
HR_MUST_USE enum hr_status hr_store_commit(struct hr_store *st, const struct hr_store_done *rows,
                                           int n, const struct hr_run_counters *counters,
                                           struct hr_err *err);

/* Tokens sampled since the last call, of samples that are not finished. */
struct hr_store_tokens {
    int64_t row;
    int sample;
    const int32_t *ids;
    int n;
};
/* Hands them to the operating system; with `sync` down to the disk. */
HR_MUST_USE enum hr_status hr_store_journal(struct hr_store *st,
                                            const struct hr_store_tokens *tokens, int n,
                                            const struct hr_run_counters *counters, bool sync,
                                            struct hr_err *err);

/* A rejected line or sample: appended once to rejects.jsonl, however often the run is resumed.
 * key: 16 bytes that stay the same when the line is met again (hash of the raw line and its
 * occurrence; or of ident, occurrence and sample). row < 0 when there is no row. `json`: the whole
 * line for rejects.jsonl with its newline. sample < 0 with a row: all samples of the row.
 * *was_known: it stood there already. */
HR_MUST_USE enum hr_status hr_store_reject(struct hr_store *st, const uint8_t key[16], int64_t row,
                                           int sample, const char *json, size_t len,
                                           bool *was_known, struct hr_err *err);
/* Occurrence of a raw rejected line in this pass (0 for the first), for its key. */
HR_MUST_USE enum hr_status hr_store_see_line(struct hr_store *st, const uint8_t hash[16],
                                             int *occurrence, struct hr_err *err);
/* Makes the rejects and seen rows since the last commit durable (also done by commit and journal).
 */
HR_MUST_USE enum hr_status hr_store_flush(struct hr_store *st, struct hr_err *err);
/* --retry-rejects: forgets the rejects of earlier runs; rejects.jsonl is kept as rejects.jsonl.<n>.
 */
HR_MUST_USE enum hr_status hr_store_forget_rejects(struct hr_store *st, struct hr_err *err);

/* Small facts that the next run or `status` wants: "rows_total", "cap", "over_cap", "state" ... */
HR_MUST_USE enum hr_status hr_store_set_fact(struct hr_store *st, const char *key,
                                             const char *value, struct hr_err *err);
/* Appends the value; HR_ERR_NOTFOUND when there is none. */
HR_MUST_USE enum hr_status hr_store_get_fact(struct hr_store *st, const char *key,
                                             struct hr_buf *value, struct hr_err *err);

HR_MUST_USE enum hr_status hr_store_end_run(struct hr_store *st,
                                            const struct hr_run_counters *counters, const char *how,
                                            struct hr_err *err);

/* Totals over all runs. */
struct hr_store_run {
    int64_t id;
    char started[32], ended[32], how[24], version[48],
        host[64]; /* "" while it runs, or was killed */
    struct hr_run_counters c;
};
struct hr_store_totals {
    int64_t rows_done, rows_length, rows_repetitive, rejects, prompt_tokens,
        completion_tokens;      /* from the row marks */
    struct hr_run_counters sum; /* over the runs */
    int n_runs;
    struct hr_store_run *runs; /* owned, [n_runs] */
};
HR_MUST_USE enum hr_status hr_store_totals(struct hr_store *st, struct hr_store_totals *out,
                                           struct hr_err *err);
void hr_store_totals_finish(struct hr_store_totals *t);

/* Lengths of finished completions over all runs: fn once for each length, shortest first. */
typedef void (*hr_store_length_fn)(void *arg, int completion_tokens, int64_t n_rows);
HR_MUST_USE enum hr_status hr_store_lengths(struct hr_store *st, hr_store_length_fn fn, void *arg,
                                            struct hr_err *err);

/* Completion tokens of a finished sample by its row's identity; 0: it is not among the finished. */
HR_MUST_USE enum hr_status hr_store_length(struct hr_store *st, const uint8_t ident[16], int occurrence,
                                           int sample, int *completion_tokens, struct hr_err *err);

/* Opens for reading beside a live or dead run, without the lock and without changing anything;
 * *live: somebody holds the lock. Only totals, get_fact, lengths, length and close may be called on it. */
HR_MUST_USE enum hr_status hr_store_open_readonly(const struct hr_store_opts *opts,
                                                  struct hr_store **out, bool *live,
                                                  struct hr_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * run_int: what the files of `headrace run` share.
 *
 *   run.c           the command: options, opening, the event loop, the end
 *   run_setup.c     manifests, model, stores, engine: everything that is opened, and what is refused
 *   prompt.c        a record becomes prompt ids and a resolved way to sample
 *   run_intake.c    lines become samples that wait for the engine (on the serial worker)
 *   run_output.c    events become tokens, rows, commits, journal entries
 *   run_canary.c    --canary: committed rows are computed again and compared
 *   run_dry.c       --dry-run
 *
 * Two threads of the program touch these structs: the loop's, and the serial worker that owns stores and
 * shard readers. Each field says whose it is; what is not marked is the loop's. */
#ifndef HR_CMD_RUN_INT_H
#define HR_CMD_RUN_INT_H

#include <stdatomic.h>
#include <time.h>

#include "backend/backend.h"
#include "base/pool.h"
#include "cmd/prompt.h"
#include "cmd/textload.h"
#include "engine/engine.h"
#include "job/loop.h"
#include "job/manifest.h"
#include "job/progress.h"
#include "job/record.h"
#include "job/runlog.h"
#include "job/shard.h"
#include "job/store.h"
#include "model/llama.h"
#include "model/model_file.h"
#include "schedule/budget.h"
#include "schedule/schedule.h"

struct run_opts {
    const char *model, *out, *state, *now, *lengths_from;
    int64_t limit; /* -1: none */
    int64_t cap;   /* -1: the manifest's */
    int64_t max_running, step_tokens, kv_tokens, threads; /* 0: chosen by us */
    int64_t decode_steps;
    const char *hicache_size; /* NULL: chosen by us */
    int dtype; /* enum: 0 bf16, 1 f32 */
    const char *kv_cache_dtype;
    const char *cpu_mask;
    const char *canary; /* NULL: none */
    int64_t scatter;
    bool retry_rejects, dry_run, allow_mixed_numerics;
    struct hr_sampling_spec sampling; /* what the command line states */
    int64_t seed, max_tokens;         /* parsed into `sampling` */
    double temperature;
};

/* One input row that is being answered, shared by its samples. */
struct row {
    int n_refs; /* the loop's, once the intake has handed the row over */
    struct dataset *ds;
    struct hr_record record;
    struct hr_cmd_prompt prompt;
    int64_t id; /* of the store */
    int occurrence;
    int i_shard;
    int64_t line_no;
};

/* One sample of a row on its way through the engine. */
struct sample {
    struct row *row;
    int index;
    struct hr_request request;
    struct hr_ids tokens;   /* the completion so far, resumed ones first */
    struct hr_ids resumed;  /* what the journal held */
    size_t n_journalled;    /* of `tokens`, how many the journal has */
    size_t n_journalling;   /* as soon as the journal write that is out has ended */
    struct hr_event end;    /* when finished */
    bool repetitive;        /* then too */
    bool suspect;           /* a canary has found wrong what it may have been computed from */
    struct sample *prev, *next; /* in its list */
};

struct sample_list {
    struct sample *head, *tail;
    int n;
};

struct dataset {
    struct run *run;
    int group; /* index in run->datasets */
    struct hr_manifest *m;
    struct hr_sampling_spec sampling; /* command line over manifest over generation_config over default */
    const char *think_open, *think_close; /* tags around a row's reasoning, or NULL; the manifest's or model's */
    char *dir;              /* OUT/<dataset>; owned */
    struct hr_store *store; /* the serial worker's */
    struct hr_store_recovery recovery;
    struct hr_store *past; /* the serial worker's: an earlier run that knows how long rows are, or NULL */
    struct hr_shard_reader *reader;        /* the serial worker's */
    struct hr_record intake_record;        /* the serial worker's */
    int64_t n_lines;                       /* the serial worker's: rows of the input taken so far */
    int64_t n_met;                         /* the same, as far as the loop has heard of it */
    struct hr_store_totals before;         /* totals when the run began */
    char *now_text;                        /* what strftime_now says, over all runs; owned */
    struct tm now;                         /* the same, taken apart */
    bool is_new;         /* no sample was done, begun or rejected before this run */
    bool mixed_numerics; /* some rows were computed with other bits, which was allowed */
    int64_t expected_tokens; /* of a row's answer, before this run; 0: nobody knows */
    struct hr_budget budget;
    struct hr_run_counters counters; /* of this run, rows included whose commit is out */
    int64_t rows_done, rows_length, rows_repetitive, rejects; /* over all runs, committed */
    int64_t n_skipped; /* samples that earlier runs finished or rejected */
    int64_t n_numeric; /* of the rejects of this run: logits were not finite */
    atomic_int n_named; /* of them, those whose reason was said */
    int64_t rows_total, extra_samples; /* lines counted (-1: not yet); samples beyond one a line */
    bool total_told;                   /* `status` has heard of rows_total */
    int64_t running_told, queued_told; /* what `status` heard last */
    int64_t resumed_rows, resumed_tokens;
    int64_t first_ns, last_ns; /* first submission, last row that left the engine */
    int64_t first_step; /* engine's decode_steps at the first submission */
    bool input_done, capped, began, ended;
    bool store_work; /* a commit is out */
    struct sample_list ready;    /* prepared, not submitted */
    struct sample_list flying;   /* submitted */
    struct sample_list finished; /* waiting for a commit */
    struct sample_list canaries; /* committed, and in the engine once more */
};

struct run {
    struct run_opts opts;
    struct dataset *datasets;
    int n_datasets;
    char name[160]; /* of the dataset, or "3 datasets" */
    struct hr_model_file *mf;
    struct hr_model_text text;
    char model_hash[65];
    int64_t canary_n; /* one row in so many is computed again; 0: none */
    struct hr_buf suspects; /* names that the next alarm will give, */
    int n_suspects;         /* and how many there are */
    struct hr_loop *loop;
    struct hr_wake *wake;
    struct hr_timer *progress_timer;
    struct hr_runlog *runlog;
    struct hr_pool *pool;
    struct hr_backend *be;
    struct hr_model *model;
    struct hr_engine *engine;
    struct hr_model_opts model_opts;
    struct hr_engine_opts engine_opts;
    enum { MODEL_UNLOADED, MODEL_LOADING, MODEL_READY, MODEL_FAILED } model_state;
    uint64_t kv_bytes;       /* of the KV cache and its host tier */
    atomic_int load_percent; /* of the weights; -1: memory is being taken */
    struct hr_err err; /* the failure that ended the run */
    enum hr_status failed;
    bool intake_out, journal_out, journal_due, stopping, engine_stopping, engine_stopped, finished;
    bool store_broken; /* a write failed for good: nothing more is written */
    int n_signals;
    bool no_space; /* a commit or journal write met a full disk; it is tried again */
    int64_t begin_ns, sync_ns, retry_ns, recorded_ns;
    struct hr_rate rate;
    bool any_began; /* a dataset has */
    int64_t n_tokens_seen; /* sampled by the engine in this run */
    int64_t stop_ns; /* when it began to stop */
    atomic_bool stop_workers; /* for workers: no more counting, no more waiting for room */
    atomic_bool give_up;      /* for workers: no more waiting for somebody's lock on state.db */
};

void list_push(struct sample_list *l, struct sample *s);
void list_remove(struct sample_list *l, struct sample *s);
void sample_free(struct sample *s);
/* 16 bytes of SHA-256 over a domain word, bytes and two numbers. */
void run_key(const char *domain, const void *bytes, size_t len, int64_t a, int64_t b, uint8_t out[16]);

/* The row's id for a message, cut when it is long. */
void run_put_id(const struct row *row, struct hr_buf *out);

/* Samples that the dataset asks for: those of the rows met, and as many for each other row as the manifest
 * says. -1: the rows are not counted yet. */
int64_t run_rows_total(const struct dataset *ds);
/* Completion tokens that the dataset has still to bring, as far as one can tell, at least 1. Alike for all
 * datasets (1) while the rows of one of them are not counted. */
int64_t run_work_left(const struct dataset *ds);

/* run_setup.c */
enum hr_status run_open(struct run *r, char **manifests, int n, struct hr_err *err);
enum hr_status run_open_stores(struct run *r, struct hr_err *err);
enum hr_status run_plan_engine(struct run *r, struct hr_err *err);
void run_start_loading(struct run *r); /* done: run_pump */
void run_close(struct run *r);

/* run_intake.c */
void run_start_intake(struct run *r);
void run_start_counting(struct run *r);
int run_intake_window(const struct run *r);
/* The reasoning before an answer, when the model or the manifest says how it is set apart. */
struct hr_preface run_preface(const struct dataset *ds, const struct hr_cmd_prompt *p);
/* between "<think>" and "</think>": the tags of a dataset that has some. */
void run_describe_thinking(const struct dataset *ds, struct hr_buf *out);

/* run_output.c */
void run_take_events(struct run *r);
void run_submit_ready(struct run *r);
void run_start_commits(struct run *r);
void run_start_journal(struct run *r);
/* A write to a store came back with `st`: a full disk pauses the run, anything else ends it. */
void run_write_failed(struct run *r, enum hr_status st, const struct hr_err *err);
void run_space_again(struct run *r); /* one has arrived */

/* run_canary.c */
/* "1/N", "0" or NULL as N or 0. */
HR_MUST_USE enum hr_status run_canary_parse(const char *s, int64_t *n, struct hr_err *err);
/* A committed sample. True: it was picked, and belongs to the canaries now. */
bool run_canary_take(struct sample *s);
void run_canary_suspect(struct run *r, struct sample *s);
/* Its canary has ended; the sample is gone. */
void run_canary_checked(struct run *r, struct sample *s, const struct hr_event *ev);
int run_canaries_left(const struct run *r);

/* run_dry.c */
int run_dry(struct run *r);

/* run.c: looks what can be started next; to be called after anything has changed. */
void run_pump(struct run *r);
void run_fail(struct run *r, const struct hr_err *err);
/* What `status` reads beside the counters; for whoever has the store at that moment. */
void run_set_fact(struct dataset *ds, const char *key, int64_t value);

#endif

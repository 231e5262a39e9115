/* SPDX-License-Identifier: Apache-2.0
 *
 * run: `headrace run MANIFEST... --model PATH`, from prompt shards to raw_responses.jsonl.
 *
 * This file is the order of things: options; everything that can be refused before weights are read; then
 * one event loop in which each part starts when it can (run_pump): the intake reads and prepares rows, the
 * model loads when the first of them is missing an answer, ready samples go to the engine as the token
 * budget allows, events become rows, rows become commits; a journal entry every quarter of a second. It
 * ends when all of that is empty, at a failure, or at Ctrl-C after what is in flight is in the journal. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/run_int.h"

#define JOURNAL_MS       250 /* promise 2: unfinished tokens reach the operating system this often */
#define LIVE_MS          250
#define PERIODIC_MS      5000
#define SIGNALS_TO_ABORT 2
/* A row's completion tokens while nobody knows better, and the rows after which somebody does. */
#define UNKNOWN_TOKENS  256
#define ROWS_FOR_A_MEAN 8
/* A stop waits so long for somebody's lock on state.db before it leaves the last moments unwritten. */
#define STOP_LOCK_NS INT64_C(3000000000)

/* ---- options ------------------------------------------------------------------------------------ */

static bool parse_options(struct run_opts *o, int *argc, char **argv, int *exit_code) {
    struct hr_sampling_spec *s = &o->sampling;
    const struct hr_opt opts[] = {
        {"model", "PATH", "Input", "Model: a .gguf file or a Hugging Face directory. Default: the manifest's.",
         HR_OPT_STR, &o->model},
        {"limit", "N", "Input", "Only the first N rows of each dataset, in all. Default: all rows.",
         HR_OPT_COUNT, &o->limit, .min = 0, .max = 1e15},
        {"dry-run", NULL, "Input",
         "Read, render and tokenize only: counts, lengths, the first prompts; generates nothing.",
         HR_OPT_FLAG, &o->dry_run},
        {"now", "TIME", "Input",
         "What a template's clock says, as 2026-11-29T21:52:30. Default: the start of the dataset's first run.",
         HR_OPT_STR, &o->now},
        {"out", "DIR", "Output", "Rows go to DIR/<dataset>/raw_responses.jsonl. Default: prepared.",
         HR_OPT_STR, &o->out},
        {"state", "PATH", "Output",
         "Keep state.db at PATH, for an output folder on a file system that SQLite does not like. Default: "
         "beside the rows.",
         HR_OPT_STR, &o->state},
        {"lengths-from", "PATH", "Engine",
         "An earlier run's output folder (or state.db): rows that it answered start in the order of how long they "
         "were. Changes no row. Default: lengths are learned.",
         HR_OPT_STR, &o->lengths_from, .once = true},
        {"retry-rejects", NULL, "Output", "Try rejected rows again. Default: they stay rejected.",
         HR_OPT_FLAG, &o->retry_rejects},
        {"max-tokens", "N", "Sampling",
         "Completion tokens of a row at most. Default: the manifest's, or to the end of the answer.",
         HR_OPT_COUNT, &o->max_tokens, &s->has_max_tokens, .min = 1, .max = 1e9},
        {"max-tokens-per-dataset", "N", "Sampling",
         "Stop starting rows when a dataset has this many completion tokens, over all runs; 0 is no cap. "
         "Default: the manifest's.",
         HR_OPT_COUNT, &o->cap, .min = 0, .max = 1e15},
        {"temperature", "F", "Sampling", "0 is greedy. Default: the manifest's, the model's, or 1.",
         HR_OPT_REAL, &o->temperature, &s->has_temperature, .min = 0, .max = 100},
        {"seed", "N", "Sampling", "Seed of all random numbers. Default: the manifest's, or 0.",
         HR_OPT_INT, &o->seed, &s->has_seed, .min = 0, .max = 9e15},
        {"ignore-eos", NULL, "Sampling", "Go on past end-of-sequence tokens, to --max-tokens. Default: stop.",
         HR_OPT_FLAG, &s->ignore_eos, &s->has_ignore_eos},
        {"max-running", "N", "Engine", "Sequences computed together. Default: 32.", HR_OPT_INT,
         &o->max_running, .min = 1, .max = 4096},
        {"kv-tokens", "N", "Engine",
         "Tokens that the KV cache holds. Default: 2048 for each of --max-running, at most a quarter of the "
         "free memory.",
         HR_OPT_COUNT, &o->kv_tokens, .min = 16, .max = 1e9},
        {"hicache-size", "SIZE", "Engine",
         "Host tier of the KV cache: bytes such as 4G, or a share of the free memory such as 0.25; 0 is none. "
         "Default: twice the KV cache, at most a quarter of the free memory.",
         HR_OPT_STR, &o->hicache_size},
        {"continuous-decode-steps", "N", "Engine", "Steps between two looks at waiting rows. Default: 1.",
         HR_OPT_INT, &o->decode_steps, .min = 1, .max = 1024},
        {"step-tokens", "N", "Engine", "Tokens computed in one step: decodes and prompt chunks. Default: 256.",
         HR_OPT_INT, &o->step_tokens, .min = 1, .max = 65536},
        {"threads", "N", "Engine", "Threads that compute. Default: all usable cores.", HR_OPT_INT, &o->threads,
         .min = 1, .max = 1024},
        {"dtype", "bf16|f32", "Engine",
         "Weights, KV cache and matmuls; f32 is for checking. Default: bf16.", HR_OPT_CHOICE, &o->dtype},
        {"kv-cache-dtype", "TYPE", "Engine",
         "Follows --dtype; 8-bit and 4-bit caches are refused because answers degrade. Default: auto.",
         HR_OPT_STR, &o->kv_cache_dtype},
        {"cpu-mask", "MASK", "Engine", "Instruction-set tiers that may be used, 0 for none. Default: all found.",
         HR_OPT_STR, &o->cpu_mask},
        {"canary", "1/N", "Engine",
         "Compute one finished row in N again from scratch, without cache hits, and compare; a difference is an "
         "alarm and exit code 5. Default: 0, none.",
         HR_OPT_STR, &o->canary},
        {"allow-mixed-numerics", NULL, "Engine",
         "Resume although instruction set or precision, and so the bits of rows, differ. Default: refuse.",
         HR_OPT_FLAG, &o->allow_mixed_numerics},
        {"scatter", "SEED", "Engine", "For tests: hand out KV pages in a random order. Default: 0, in order.",
         HR_OPT_INT, &o->scatter, .min = 0, .max = 9e15},
    };
    const struct hr_command_line cl = {
        "run", "MANIFEST...",
        "Answers the prompts of one or more manifests. The same command after a kill goes on where it "
        "stopped: nothing is lost, nothing is done twice.",
        opts, HR_N_OPTS(opts), 1, HR_ENGINE_GROUPS_MAX};
    int n_args;
    if (!hr_options_parse(&cl, *argc, argv, &n_args, exit_code)) return false;
    *argc = n_args;
    s->max_tokens = o->max_tokens;
    s->temperature = o->temperature;
    s->seed = o->seed;
    return true;
}

static enum hr_status check_kv_dtype(const struct run_opts *o, struct hr_err *err) {
    const char *t = o->kv_cache_dtype, *own = o->dtype == 1 ? "f32" : "bf16";
    if (!t || strcmp(t, "auto") == 0 || strcmp(t, own) == 0) return HR_OK;
    if (strncmp(t, "fp8", 3) == 0 || strncmp(t, "fp4", 3) == 0 || strncmp(t, "int", 3) == 0 ||
        strncmp(t, "nvfp4", 5) == 0)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "--kv-cache-dtype %s is refused: a cache of few bits changes the model's answers (19 "
                          "points on AIME were measured for fp8) and spoils the dataset; the cache is %s",
                          t, own);
    return hr_err_set(err, HR_ERR_CONFIG, "--kv-cache-dtype %s: the cache is %s here (it follows --dtype)", t,
                      own);
}

/* ---- the loop ----------------------------------------------------------------------------------- */

static void begin_stop(struct run *r) {
    if (r->stopping) return;
    r->stopping = true;
    r->stop_ns = hr_clock_ns();
    atomic_store(&r->stop_workers, true);
}

void run_fail(struct run *r, const struct hr_err *err) {
    if (r->failed) return;
    r->failed = err->code;
    r->err = *err;
    begin_stop(r);
}

static void stop_work(void *arg) {
    struct run *r = arg;
    hr_engine_stop(r->engine);
}

static void stop_done(void *arg) {
    struct run *r = arg;
    r->engine_stopped = true;
    r->journal_due = true; /* what the last steps brought */
    run_take_events(r);
    run_pump(r);
}

static bool rows_ended(const struct dataset *ds) {
    return ds->input_done && !ds->ready.n && !ds->flying.n && !ds->finished.n && !ds->store_work;
}

static bool all_done(const struct run *r) {
    for (int i = 0; i < r->n_datasets; i++)
        if (!rows_ended(&r->datasets[i]) || r->datasets[i].canaries.n) return false;
    return !r->intake_out && !r->journal_out;
}

/* After a stop: everything that was out has come back, and what could be saved is saved. */
static bool stopped(const struct run *r) {
    bool engine_gone = !r->engine || r->engine_stopped;
    if (!engine_gone || r->intake_out || r->journal_out) return false;
    bool can_write = !r->store_broken && !r->no_space;
    if (can_write && r->journal_due) return false;
    for (int i = 0; i < r->n_datasets; i++)
        if (r->datasets[i].store_work || (can_write && r->datasets[i].finished.n)) return false;
    return true;
}

static bool any_ready(const struct run *r) {
    for (int i = 0; i < r->n_datasets; i++)
        if (r->datasets[i].ready.n) return true;
    return false;
}

static void stop_engine(struct run *r) {
    if (!r->engine || r->engine_stopping || r->model_state != MODEL_READY) return;
    r->engine_stopping = true;
    hr_loop_work(r->loop, stop_work, stop_done, r);
}

void run_pump(struct run *r) {
    if (r->finished) return;
    if (!r->store_broken) {
        run_start_commits(r);
        run_start_journal(r);
    }
    if (r->stopping) {
        stop_engine(r);
    } else {
        run_submit_ready(r);
        run_start_intake(r);
        if (any_ready(r) && r->model_state == MODEL_UNLOADED) run_start_loading(r);
    }
    r->finished = r->stopping ? stopped(r) : all_done(r);
    if (r->finished) hr_loop_stop(r->loop);
}

static void on_signal(void *arg, int signum) {
    struct run *r = arg;
    if (++r->n_signals >= SIGNALS_TO_ABORT) {
        hr_log_set_live("");
        _exit(HR_EXIT_INTERRUPTED); /* the journal holds all but the last moments */
    }
    begin_stop(r);
    hr_info("stopping: what is in flight goes to the journal (again: at once; nothing is lost either way)");
    run_pump(r);
}

static void on_wake(void *arg) {
    struct run *r = arg;
    run_take_events(r);
    run_pump(r);
}

static void on_journal_tick(void *arg) {
    struct run *r = arg;
    r->journal_due = r->model_state == MODEL_READY;
    if (r->stopping && hr_clock_ns() - r->stop_ns > STOP_LOCK_NS) atomic_store(&r->give_up, true);
    run_pump(r);
}

int64_t run_rows_total(const struct dataset *ds) {
    int64_t met = ds->n_met + ds->extra_samples;
    if (ds->input_done && !ds->capped) return met; /* read to the end */
    if (ds->rows_total < 0) return -1;
    return met + (ds->rows_total > ds->n_met ? ds->rows_total - ds->n_met : 0) * ds->sampling.n;
}

static bool only_canaries(const struct run *r) {
    for (int i = 0; i < r->n_datasets; i++)
        if (!rows_ended(&r->datasets[i])) return false;
    return run_canaries_left(r) > 0;
}

/* Mean completion tokens of a row, as far as anybody knows; 0: nobody does. */
static int64_t mean_tokens(const struct dataset *ds) {
    int64_t n = ds->before.rows_done + ds->counters.rows_done;
    if (n >= ROWS_FOR_A_MEAN) return (ds->before.completion_tokens + ds->counters.completion_tokens) / n;
    return ds->sampling.ignore_eos && ds->sampling.max_tokens > 0 ? ds->sampling.max_tokens : ds->expected_tokens;
}

int64_t run_work_left(const struct dataset *ds) {
    for (int i = 0; i < ds->run->n_datasets; i++)
        if (run_rows_total(&ds->run->datasets[i]) < 0) return 1;
    int64_t rows = run_rows_total(ds) - ds->rows_done - ds->rejects, mean = mean_tokens(ds);
    int64_t work = rows * (mean ? mean : UNKNOWN_TOKENS);
    if (ds->budget.cap > 0) {
        int64_t left = ds->budget.cap - ds->before.completion_tokens - ds->counters.completion_tokens;
        if (work > left) work = left;
    }
    return work > 1 ? work : 1;
}

/* Memory that is taken is touched, which takes as long as reading the weights of a small model. */
static void put_loading(const struct run *r, struct hr_buf *phase) {
    int percent = atomic_load(&r->load_percent);
    if (percent < 0)
        hr_buf_printf(phase, "taking %.1f GiB of memory for the KV cache", (double)r->kv_bytes / 0x1p30);
    else hr_buf_printf(phase, "loading weights %d %%", percent);
}

static void fill_progress(struct run *r, struct hr_progress *p, struct hr_buf *phase) {
    struct hr_engine_stats st = {0};
    bool expected = true, all_capped = true;
    int64_t now = hr_clock_ns();
    *p = (struct hr_progress){.dataset = r->name, .elapsed_ns = now - r->begin_ns};
    if (r->engine) hr_engine_get_stats(r->engine, &st, 0, NULL);
    for (int i = 0; i < r->n_datasets; i++) {
        const struct dataset *ds = &r->datasets[i];
        p->rows_done += ds->rows_done;
        int64_t total = run_rows_total(ds);
        if (total < 0) p->rows_total = -1;
        else if (p->rows_total >= 0) p->rows_total += total;
        p->n_length += ds->rows_length;
        p->rejects += ds->rejects;
        p->prompt_tokens += ds->before.prompt_tokens + ds->counters.prompt_tokens;
        p->completion_tokens += ds->before.completion_tokens + ds->counters.completion_tokens;
        p->cap_tokens += ds->budget.cap;
        p->queued += ds->ready.n;
        if (mean_tokens(ds) == 0) expected = false;
        if (ds->budget.cap <= 0) all_capped = false;
        p->expected_tokens += run_work_left(ds);
        for (const struct sample *s = ds->flying.head; s; s = s->next) p->inflight_tokens += (int64_t)s->tokens.len;
    }
    if (!expected) p->expected_tokens = 0;
    if (!all_capped) p->cap_tokens = 0; /* one dataset's cap ends that dataset, not the run */
    p->running = st.n_running;
    p->queued += st.n_waiting;
    p->kv_used_tokens = st.kv_tokens_used;
    p->kv_total_tokens = st.kv_tokens;
    hr_rate_add(&r->rate, now, r->n_tokens_seen);
    p->tok_s = hr_rate_per_s(&r->rate, now);
    if (r->no_space) hr_buf_puts(phase, "paused: no space left on the device");
    else if (r->model_state == MODEL_LOADING)
        put_loading(r, phase);
    else if (r->model_state == MODEL_UNLOADED) hr_buf_puts(phase, "reading");
    else if (only_canaries(r))
        hr_buf_printf(phase, "all rows are done, computing %d of them again", run_canaries_left(r));
    if (phase->len) p->phase = hr_buf_cstr(phase);
}

void run_set_fact(struct dataset *ds, const char *key, int64_t value) {
    char text[24];
    struct hr_err err;
    snprintf(text, sizeof text, "%lld", (long long)value);
    if (hr_store_set_fact(ds->store, key, text, &err)) hr_debug("fact %s: %s", key, err.msg);
}

static void on_progress_tick(void *arg) {
    struct run *r = arg;
    struct hr_progress p;
    struct hr_buf phase = {0};
    fill_progress(r, &p, &phase);
    if (!r->finished) hr_progress_show(&p);
    if (hr_progress_is_live() && hr_clock_ns() - r->recorded_ns >= PERIODIC_MS * INT64_C(1000000)) {
        hr_progress_record(&p); /* the live line is for the terminal alone */
        r->recorded_ns = hr_clock_ns();
    }
    hr_buf_finish(&phase);
}

static enum hr_status start_loop(struct run *r, struct hr_err *err) {
    enum hr_status st;
    int ms = hr_progress_is_live() ? LIVE_MS : PERIODIC_MS;
    if ((st = hr_loop_signal(r->loop, SIGINT, on_signal, r, err)) ||
        (st = hr_loop_signal(r->loop, SIGTERM, on_signal, r, err)) ||
        (st = hr_loop_signal(r->loop, SIGHUP, on_signal, r, err)) ||
        (st = hr_loop_timer(r->loop, JOURNAL_MS, on_journal_tick, r, NULL, err)) ||
        (st = hr_loop_timer(r->loop, ms, on_progress_tick, r, &r->progress_timer, err)))
        return st;
    return HR_OK;
}

/* ---- the end ------------------------------------------------------------------------------------ */

static const char *how_it_ended(const struct run *r, const struct dataset *ds) {
    if (r->failed) return "failed";
    if (r->stopping) return "interrupted";
    return ds->capped ? "capped" : "done";
}

static void end_dataset(struct run *r, struct dataset *ds) {
    const char *how = how_it_ended(r, ds);
    struct hr_err err;
    int64_t total = run_rows_total(ds);
    int64_t over = ds->capped && total >= 0 ? total - ds->rows_done - ds->rejects : 0;
    if (total >= 0) run_set_fact(ds, "rows_total", total);
    run_set_fact(ds, "cap", ds->budget.cap);
    run_set_fact(ds, "capped", ds->capped);
    run_set_fact(ds, "over_cap", over);
    if (hr_store_set_fact(ds->store, "state", how, &err) ||
        hr_store_end_run(ds->store, &ds->counters, how, &err))
        hr_warn("%s: the end of this run could not be recorded: %s", ds->m->dataset, err.msg);
    struct hr_summary s = {
        .dataset = ds->m->dataset,
        .how = ds->capped ? "stopped at the cap" : how,
        .dir = ds->dir,
        .rows_done = ds->rows_done,
        .rows_total = total,
        .rows_length = ds->rows_length,
        .rows_repetitive = ds->rows_repetitive,
        .rejects = ds->rejects,
        .numeric_errors = ds->n_numeric,
        .rejects_named = atomic_load(&ds->n_named),
        .over_cap = over,
        .prompt_tokens = ds->before.prompt_tokens + ds->counters.prompt_tokens,
        .completion_tokens = ds->before.completion_tokens + ds->counters.completion_tokens,
        .cap_tokens = ds->budget.cap,
        .resumed_tokens = ds->resumed_tokens,
        .resumed_rows = ds->resumed_rows,
        .canaries_picked = ds->before.sum.canaries_picked + ds->counters.canaries_picked,
        .canaries_checked = ds->before.sum.canaries_checked + ds->counters.canaries_checked,
        .canaries_failed = ds->before.sum.canaries_failed + ds->counters.canaries_failed,
        .run_rows = ds->counters.rows_done,
        .run_tokens = ds->counters.running_sum,
        .active_ns = ds->counters.active_ns,
    };
    hr_summary_log(&s);
}

/* Datasets that share an engine share its time: their own lines cannot be summed. */
static void log_all_datasets(const struct run *r) {
    int64_t rows = 0, tokens = 0, first = INT64_MAX, last = 0;
    for (int i = 0; i < r->n_datasets; i++) {
        const struct dataset *ds = &r->datasets[i];
        if (!ds->began) continue;
        rows += ds->counters.rows_done;
        tokens += ds->counters.running_sum;
        if (ds->first_ns < first) first = ds->first_ns;
        if (ds->last_ns > last) last = ds->last_ns;
    }
    if (last <= first) return;
    double s = (double)(last - first) / 1e9;
    struct hr_buf text = {0};
    hr_format_noun(rows, "row", &text);
    hr_buf_puts(&text, ", ");
    hr_format_noun(tokens, "token", &text);
    hr_buf_puts(&text, " in ");
    hr_format_duration(s, &text);
    hr_info("all datasets: %s, %.1f tok/s", hr_buf_cstr(&text), (double)tokens / s);
    hr_buf_finish(&text);
}

static int run_end(struct run *r) {
    bool rejects = false;
    int64_t n_alarms = 0;
    hr_log_set_live("");
    for (int i = 0; i < r->n_datasets; i++) {
        const struct dataset *ds = &r->datasets[i];
        end_dataset(r, &r->datasets[i]);
        rejects = rejects || ds->rejects > 0;
        n_alarms += ds->before.sum.canaries_failed + ds->counters.canaries_failed;
    }
    if (r->n_datasets > 1) log_all_datasets(r);
    if (r->failed) {
        hr_error("%s", r->err.msg);
        return hr_cmd_exit_code(r->failed);
    }
    if (r->stopping) {
        hr_info("interrupted; resume with the same command");
        return HR_EXIT_INTERRUPTED;
    }
    if (n_alarms > 0) {
        hr_error("%lld rows were not the same when they were computed again, in this run or an earlier one: see "
                 "CANARY in run.log; do not trust these rows",
                 (long long)n_alarms);
        return HR_EXIT_CANARY;
    }
    return rejects ? HR_EXIT_REJECTS : HR_EXIT_DONE;
}

static int run_all(struct run *r, char **manifests, int n) {
    struct hr_err err;
    enum hr_status st;
    if ((st = check_kv_dtype(&r->opts, &err)) || (st = run_canary_parse(r->opts.canary, &r->canary_n, &err)) ||
        (st = hr_loop_create(&r->loop, &err)) ||
        (st = hr_loop_wake(r->loop, on_wake, r, &r->wake, &err)) || (st = run_open(r, manifests, n, &err)))
        goto fail;
    if (r->opts.dry_run) return run_dry(r);
    if ((st = run_plan_engine(r, &err)) || (st = run_open_stores(r, &err)) || (st = start_loop(r, &err)))
        goto fail;
    run_start_counting(r);
    run_pump(r);
    if (!r->finished) hr_loop_run(r->loop);
    atomic_store(&r->stop_workers, true);
    return run_end(r);
fail:
    hr_error("%s%s", err.msg, st == HR_ERR_NOSPACE ? "; make room there, then give the same command again" : "");
    return hr_cmd_exit_code(st);
}

/* A stop while weights are being read: the worker cannot be interrupted and may have minutes to go, and
 * what it holds is memory alone. The stores have nothing out and are closed as ever. */
static void leave_loading(struct run *r, int code) {
    for (int i = 0; i < r->n_datasets; i++) hr_store_close(&r->datasets[i].store);
    _exit(code);
}

int hr_cmd_run(int argc, char **argv) {
    struct run *r = hr_xcalloc(1, sizeof *r);
    int code;
    r->opts = (struct run_opts){.out = "prepared", .limit = -1, .cap = -1};
    r->begin_ns = r->sync_ns = r->recorded_ns = hr_clock_ns();
    if (parse_options(&r->opts, &argc, argv, &code)) {
        code = run_all(r, argv, argc);
        if (r->model_state == MODEL_LOADING) leave_loading(r, code);
        run_close(r);
    }
    free(r);
    return code;
}

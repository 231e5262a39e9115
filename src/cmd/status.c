/* SPDX-License-Identifier: Apache-2.0
 *
 * status: `headrace status DIR`: how far the dataset jobs under DIR are, from their state.db alone,
 * so it tells the same of a live run, of a dead one and of one that was killed. It takes no lock
 * and changes nothing.
 *
 * DIR is a dataset's folder (it has a state.db) or the --out folder above several.
 * The keys of --json are stable: docs/design.md lists them. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "job/progress.h"
#include "job/store.h"

struct dataset_status {
    char *name; /* owned */
    bool live;
    int64_t rows_total, cap, over_cap, running, queued; /* -1: nobody has said */
    bool capped;
    struct hr_store_totals totals;
};

static void dataset_status_finish(struct dataset_status *d) {
    free(d->name);
    hr_store_totals_finish(&d->totals);
}

/* ---- reading ---- */

static enum hr_status read_fact(struct hr_store *st, const char *key, int64_t *out,
                                struct hr_err *err) {
    struct hr_buf value = {0};
    enum hr_status code = hr_store_get_fact(st, key, &value, err);
    *out = -1;
    if (code == HR_OK) *out = strtoll(hr_buf_cstr(&value), NULL, 10);
    hr_buf_finish(&value);
    return code == HR_ERR_NOTFOUND ? HR_OK : code;
}

static enum hr_status read_facts(struct hr_store *st, struct dataset_status *d,
                                 struct hr_err *err) {
    int64_t capped = 0;
    const struct {
        const char *key;
        int64_t *out;
    } facts[] = {{"rows_total", &d->rows_total}, {"cap", &d->cap},       {"over_cap", &d->over_cap},
                 {"running", &d->running},       {"queued", &d->queued}, {"capped", &capped}};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        enum hr_status code = read_fact(st, facts[i].key, facts[i].out, err);
        if (code) return code;
    }
    d->capped = capped == 1;
    return HR_OK;
}

static char *name_of(const char *dir) {
    char *whole = realpath(dir, NULL);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    char *name = hr_xstrdup(slash && slash[1] ? slash + 1 : dir);
    free(whole);
    return name;
}

static enum hr_status read_dataset(const char *dir, const char *state, struct dataset_status *d,
                                   struct hr_err *err) {
    const struct hr_store_opts opts = {.dir = dir, .state_path = state};
    struct hr_store *st = NULL;
    memset(d, 0, sizeof *d);
    enum hr_status code = hr_store_open_readonly(&opts, &st, &d->live, err);
    if (!code) code = hr_store_totals(st, &d->totals, err);
    if (!code) code = read_facts(st, d, err);
    if (!code)
        d->name = name_of(dir);
    else
        dataset_status_finish(d);
    hr_store_close(&st);
    return code;
}

/* ---- what follows from it ---- */

static const char *run_state(const struct dataset_status *d, int i_run) {
    const struct hr_store_run *run = &d->totals.runs[i_run];
    if (run->how[0]) return run->how;
    return d->live && i_run == d->totals.n_runs - 1 ? "running" : "killed";
}

static const char *state_of(const struct dataset_status *d) {
    if (d->live) return "running";
    return d->totals.n_runs == 0 ? "never run" : run_state(d, d->totals.n_runs - 1);
}

static double mean_running(const struct hr_run_counters *c) {
    return c->decode_steps > 0 ? (double)c->running_sum / (double)c->decode_steps : 0;
}

static double tok_s(const struct hr_run_counters *c) {
    return c->active_ns > 0 ? (double)c->completion_tokens * 1e9 / (double)c->active_ns : 0;
}

/* ---- JSON ---- */

static void put_int(struct hr_buf *out, const char *key, int64_t value) {
    hr_buf_printf(out, ", \"%s\": %lld", key, (long long)value);
}

static void put_known(struct hr_buf *out, const char *key, int64_t value) {
    if (value >= 0)
        put_int(out, key, value);
    else
        hr_buf_printf(out, ", \"%s\": null", key);
}

static void put_str(struct hr_buf *out, const char *key, const char *value) {
    hr_buf_printf(out, ", \"%s\": ", key);
    hr_buf_json_str(out, value, strlen(value));
}

/* A run's own share carries the same keys as the totals, so that they can be added up. */
static void put_counters(struct hr_buf *out, const struct hr_run_counters *c) {
    put_int(out, "sampled_tokens_total", c->sampled_tokens);
    put_int(out, "prefill_tokens_total", c->prefill_tokens);
    put_int(out, "cached_tokens_total", c->cached_tokens);
    put_int(out, "resumed_tokens_total", c->resumed_tokens);
    put_int(out, "recomputed_tokens_total", c->recomputed_tokens);
    put_int(out, "preemptions", c->preemptions);
    put_int(out, "canaries_picked", c->canaries_picked);
    put_int(out, "canaries_checked", c->canaries_checked);
    put_int(out, "canaries_failed", c->canaries_failed);
    hr_buf_printf(out, ", \"mean_running\": %.3f, \"tok_s\": %.2f", mean_running(c), tok_s(c));
}

static void put_run(struct hr_buf *out, const struct dataset_status *d, int i_run) {
    const struct hr_store_run *run = &d->totals.runs[i_run];
    hr_buf_printf(out, "{\"run\": %lld", (long long)run->id);
    put_str(out, "state", run_state(d, i_run));
    put_str(out, "started", run->started);
    if (run->ended[0])
        put_str(out, "ended", run->ended);
    else
        hr_buf_puts(out, ", \"ended\": null");
    put_str(out, "version", run->version);
    put_str(out, "host", run->host);
    put_int(out, "rows_done", run->c.rows_done);
    put_int(out, "rows_length", run->c.rows_length);
    put_int(out, "rows_repetitive", run->c.rows_repetitive);
    put_int(out, "rejects", run->c.rejects);
    put_int(out, "prompt_tokens", run->c.prompt_tokens);
    put_int(out, "completion_tokens", run->c.completion_tokens);
    put_counters(out, &run->c);
    hr_buf_putc(out, '}');
}

static void put_dataset(struct hr_buf *out, const struct dataset_status *d) {
    const struct hr_store_totals *t = &d->totals;
    hr_buf_puts(out, "{\"dataset\": ");
    hr_buf_json_str(out, d->name, strlen(d->name));
    put_str(out, "state", state_of(d));
    put_known(out, "rows_total", d->rows_total);
    put_int(out, "rows_done", t->rows_done);
    put_int(out, "rows_length", t->rows_length);
    put_int(out, "rows_repetitive", t->rows_repetitive);
    put_int(out, "rejects", t->rejects);
    put_int(out, "prompt_tokens", t->prompt_tokens);
    put_int(out, "completion_tokens", t->completion_tokens);
    put_counters(out, &t->sum);
    hr_buf_printf(out, ", \"capped\": %s", d->capped ? "true" : "false");
    put_known(out, "cap", d->cap > 0 ? d->cap : -1);
    put_known(out, "over_cap", d->over_cap);
    if (d->live) {
        put_known(out, "running", d->running);
        put_known(out, "queued", d->queued);
    }
    hr_buf_puts(out, ", \"runs\": [");
    for (int i = 0; i < t->n_runs; i++) {
        if (i) hr_buf_puts(out, ", ");
        put_run(out, d, i);
    }
    hr_buf_puts(out, "]}");
}

static void print_json(const struct dataset_status *all, int n) {
    struct hr_buf out = {0};
    hr_buf_puts(&out, "{\"datasets\": [");
    for (int i = 0; i < n; i++) {
        if (i) hr_buf_puts(&out, ", ");
        put_dataset(&out, &all[i]);
    }
    hr_buf_puts(&out, "]}\n");
    fwrite(out.data, 1, out.len, stdout);
    hr_buf_finish(&out);
}

/* ---- the table ---- */

enum {
    C_DATASET,
    C_STATE,
    C_ROWS,
    C_LENGTH,
    C_REJECTS,
    C_TOKENS,
    C_CAP,
    C_TOK_S,
    C_CANARIES,
    C_RUNNING,
    N_COLUMNS
};
static const char *const titles[N_COLUMNS] = {"dataset", "state", "rows",  "length",   "rejects",
                                              "tokens",  "cap",   "tok/s", "canaries", "running"};

/* "12/13" checked of picked, and what went wrong; "-" without any. */
static void put_canaries(const struct hr_run_counters *c, struct hr_buf *out) {
    if (c->canaries_picked == 0) {
        hr_buf_putc(out, '-');
        return;
    }
    hr_format_count(c->canaries_checked, out);
    hr_buf_putc(out, '/');
    hr_format_count(c->canaries_picked, out);
    if (c->canaries_failed > 0) hr_buf_printf(out, ", %lld FAILED", (long long)c->canaries_failed);
}

static void fill_cells(const struct dataset_status *d, struct hr_buf cells[N_COLUMNS]) {
    const struct hr_store_totals *t = &d->totals;
    hr_buf_puts(&cells[C_DATASET], d->name);
    hr_buf_puts(&cells[C_STATE], state_of(d));
    hr_format_count(t->rows_done, &cells[C_ROWS]);
    hr_buf_putc(&cells[C_ROWS], '/');
    if (d->rows_total >= 0)
        hr_format_count(d->rows_total, &cells[C_ROWS]);
    else
        hr_buf_putc(&cells[C_ROWS], '?');
    hr_format_count(t->rows_length, &cells[C_LENGTH]);
    if (t->rows_repetitive > 0)
        hr_buf_printf(&cells[C_LENGTH], ", %lld repetitive", (long long)t->rows_repetitive);
    hr_format_count(t->rejects, &cells[C_REJECTS]);
    hr_format_count(t->completion_tokens, &cells[C_TOKENS]);
    if (d->cap > 0)
        hr_format_count(d->cap, &cells[C_CAP]);
    else
        hr_buf_putc(&cells[C_CAP], '-');
    if (d->capped) hr_buf_puts(&cells[C_CAP], " reached");
    hr_buf_printf(&cells[C_TOK_S], "%.1f", tok_s(&t->sum));
    put_canaries(&t->sum, &cells[C_CANARIES]);
    if (d->live && d->running >= 0)
        hr_buf_printf(&cells[C_RUNNING], "%lld, %lld queued", (long long)d->running,
                      (long long)(d->queued > 0 ? d->queued : 0));
    else
        hr_buf_putc(&cells[C_RUNNING], '-');
}

static void print_table(const struct dataset_status *all, int n) {
    int width[N_COLUMNS];
    struct hr_buf(*cells)[N_COLUMNS] = hr_xcalloc((size_t)n, sizeof *cells);
    for (int c = 0; c < N_COLUMNS; c++) width[c] = (int)strlen(titles[c]);
    for (int i = 0; i < n; i++) {
        fill_cells(&all[i], cells[i]);
        for (int c = 0; c < N_COLUMNS; c++)
            if ((int)cells[i][c].len > width[c]) width[c] = (int)cells[i][c].len;
    }
    for (int i = -1; i < n; i++) {
        for (int c = 0; c < N_COLUMNS; c++) {
            const char *text = i < 0 ? titles[c] : hr_buf_cstr(&cells[i][c]);
            bool last = c == N_COLUMNS - 1;
            printf("%-*s%s", last ? 0 : width[c], text, last ? "\n" : "  ");
        }
    }
    for (int i = 0; i < n; i++)
        for (int c = 0; c < N_COLUMNS; c++) hr_buf_finish(&cells[i][c]);
    free(cells);
}

/* ---- which datasets ---- */

struct folders {
    char **paths; /* owned */
    int n;
};

static void folders_add(struct folders *f, const char *path) {
    f->paths = hr_xrealloc(f->paths, (size_t)(f->n + 1) * sizeof *f->paths);
    f->paths[f->n++] = hr_xstrdup(path);
}

static void folders_finish(struct folders *f) {
    for (int i = 0; i < f->n; i++) free(f->paths[i]);
    free(f->paths);
}

static bool has_file(const char *dir, const char *name) {
    struct stat info;
    struct hr_buf path = {0};
    hr_buf_printf(&path, "%s/%s", dir, name);
    bool there = stat(hr_buf_cstr(&path), &info) == 0 && S_ISREG(info.st_mode);
    hr_buf_finish(&path);
    return there;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum hr_status find_datasets(const char *dir, const char *state, struct folders *out,
                                    struct hr_err *err) {
    /* Rows without a state.db: the store knows best what to say about that. */
    if (state || has_file(dir, "state.db") || has_file(dir, "raw_responses.jsonl")) {
        folders_add(out, dir);
        return HR_OK;
    }
    DIR *d = opendir(dir);
    if (!d) return hr_err_set(err, HR_ERR_CONFIG, "%s: %s", dir, strerror(errno));
    struct hr_buf path = {0};
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue; /* no dataset's name begins with a dot */
        hr_buf_clear(&path);
        hr_buf_printf(&path, "%s/%s", dir, e->d_name);
        if (has_file(hr_buf_cstr(&path), "state.db")) folders_add(out, path.data);
    }
    hr_buf_finish(&path);
    closedir(d);
    if (out->n == 0)
        return hr_err_set(
            err, HR_ERR_CONFIG,
            "%s holds no dataset job: give the --out folder of a run, or one dataset's "
            "folder in it (and --state if the run had it)",
            dir);
    qsort(out->paths, (size_t)out->n, sizeof *out->paths, by_name);
    return HR_OK;
}

int hr_cmd_status(int argc, char **argv) {
    bool json = false;
    const char *state = NULL;
    const struct hr_opt opts[] = {
        {"state", "PATH", "Input",
         "The state.db of the dataset, when the run had --state. Default: state.db in its folder.",
         HR_OPT_STR, &state},
        {"json", NULL, "Output", "Print one JSON object to stdout. Default: a table.", HR_OPT_FLAG,
         &json},
    };
    const struct hr_command_line cl = {"status",
                                       "DIR",
                                       "Tells how far the dataset jobs under DIR are, whether they "
                                       "run now or not. DIR is the --out "
                                       "folder of a run or the folder of one dataset in it.",
                                       opts,
                                       HR_N_OPTS(opts),
                                       1,
                                       1};
    int n_args, exit_code;
    if (!hr_options_parse(&cl, argc, argv, &n_args, &exit_code)) return exit_code;

    struct hr_err err = {0};
    struct folders dirs = {0};
    struct dataset_status *all = NULL;
    int n = 0;
    enum hr_status code = find_datasets(argv[0], state, &dirs, &err);
    if (code) goto end;
    all = hr_xcalloc((size_t)dirs.n, sizeof *all);
    for (; n < dirs.n; n++) {
        code = read_dataset(dirs.paths[n], state, &all[n], &err);
        if (code) goto end;
    }
    if (json)
        print_json(all, n);
    else
        print_table(all, n);
end:
    if (code) hr_error("%s", err.msg);
    for (int i = 0; i < n; i++) dataset_status_finish(&all[i]);
    free(all);
    folders_finish(&dirs);
    return hr_cmd_exit_code(code);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * run_setup: opens what a run needs, in the order in which a mistake is cheapest to find: manifests,
 * outputs, the model's headers and text, memory by arithmetic, then the stores (locks), and last, when
 * there is something to answer, the weights. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/machine.h"
#include "cmd/run_int.h"

/* Sequences computed together on a CPU: past this many, more rows a step gain little there. */
#define DEFAULT_MAX_RUNNING 32
/* Tokens of a step: prompts come in chunks of this, beside the running decodes. */
#define DEFAULT_STEP_TOKENS 256
/* KV tokens that each running sequence gets by default, if the context is not shorter. */
#define DEFAULT_KV_TOKENS 2048

/* ---- manifests and model ------------------------------------------------------------------------ */

static enum hr_status check_outputs(struct dataset *ds, const char *state, struct hr_err *err) {
    static const char *const names[] = {"raw_responses.jsonl", "rejects.jsonl", "run.log", "state.db"};
    struct hr_buf path = {0};
    enum hr_status st = HR_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !st; i++) {
        hr_buf_clear(&path);
        hr_buf_printf(&path, "%s/%s", ds->dir, names[i]);
        st = hr_manifest_check_output(ds->m, hr_buf_cstr(&path), err);
    }
    if (!st && state) st = hr_manifest_check_output(ds->m, state, err);
    hr_buf_finish(&path);
    return st;
}

static enum hr_status open_manifests(struct run *r, char **paths, int n, struct hr_err *err) {
    if (n > HR_ENGINE_GROUPS_MAX)
        return hr_err_set(err, HR_ERR_CONFIG, "%d manifests in one run; at most %d", n, HR_ENGINE_GROUPS_MAX);
    if (n > 1 && r->opts.state)
        return hr_err_set(err, HR_ERR_CONFIG, "--state names one state.db, but there are %d manifests", n);
    r->datasets = hr_xcalloc((size_t)n, sizeof *r->datasets);
    for (int i = 0; i < n; i++) {
        struct dataset *ds = &r->datasets[i];
        ds->run = r;
        ds->group = i;
        ds->rows_total = -1;
        enum hr_status st = hr_manifest_load(paths[i], &ds->m, err);
        if (st) return st;
        r->n_datasets = i + 1;
        for (int k = 0; k < i; k++)
            if (strcmp(r->datasets[k].m->dataset, ds->m->dataset) == 0)
                return hr_err_set(err, HR_ERR_CONFIG, "%s and %s are both dataset \"%s\"", paths[k], paths[i],
                                  ds->m->dataset);
        struct hr_buf dir = {0};
        hr_buf_printf(&dir, "%s/%s", r->opts.out, ds->m->dataset);
        ds->dir = hr_xstrdup(hr_buf_cstr(&dir));
        hr_buf_finish(&dir);
        if ((st = check_outputs(ds, r->opts.state, err))) return st;
    }
    if (n == 1) snprintf(r->name, sizeof r->name, "%s", r->datasets[0].m->dataset);
    else snprintf(r->name, sizeof r->name, "%d datasets", n);
    return HR_OK;
}

static enum hr_status model_path(const struct run *r, const char **path, struct hr_err *err) {
    *path = r->opts.model;
    for (int i = 0; i < r->n_datasets && !r->opts.model; i++) {
        const char *m = r->datasets[i].m->model;
        if (!m)
            return hr_err_set(err, HR_ERR_CONFIG,
                              "no model: give --model PATH, or \"model\" in %s", r->datasets[i].m->path);
        if (*path && strcmp(*path, m) != 0)
            return hr_err_set(err, HR_ERR_CONFIG, "%s and %s name different models; one run has one",
                              r->datasets[0].m->path, r->datasets[i].m->path);
        *path = m;
    }
    return HR_OK;
}

static enum hr_status check_chat(const struct run *r, struct hr_err *err) {
    for (int i = 0; i < r->n_datasets; i++)
        if (r->datasets[i].m->chat && !r->text.chat_template)
            return hr_err_set(err, HR_ERR_CONFIG,
                              "%s: %s; say \"chat\": false to send prompts as they are", r->datasets[i].m->path,
                              r->text.no_template);
    return HR_OK;
}

/* A stop id that no token has harms nothing, but whoever wrote it meant another one. */
static void warn_of_stop_ids(const struct run *r, const struct dataset *ds) {
    int n_vocab = hr_model_file_config(r->mf)->n_vocab;
    const struct hr_ids *ids = &ds->sampling.stop_token_ids;
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] >= n_vocab)
            hr_warn("%s: stop_token_ids: %d is outside the model's vocabulary of %d: nothing will end with it",
                    ds->m->dataset, ids->data[i], n_vocab);
}

enum hr_status run_open(struct run *r, char **manifests, int n, struct hr_err *err) {
    const char *path = NULL;
    struct tm tm;
    enum hr_status st;
    if ((r->opts.now && (st = hr_cmd_parse_now(r->opts.now, &tm, err))) ||
        (st = open_manifests(r, manifests, n, err)) || (st = model_path(r, &path, err)) ||
        (st = hr_model_file_open(path, &r->mf, err)) || (st = hr_model_text_open(r->mf, NULL, &r->text, err)) ||
        (st = check_chat(r, err)))
        return st;
    uint8_t digest[32];
    hr_model_file_fingerprint(r->mf, digest);
    hr_hex(digest, 32, r->model_hash);
    for (int i = 0; i < r->n_datasets; i++) {
        struct dataset *ds = &r->datasets[i];
        hr_sampling_spec_merge(&ds->sampling, &r->opts.sampling);
        hr_sampling_spec_merge(&ds->sampling, &ds->m->sampling);
        hr_sampling_spec_merge(&ds->sampling, &r->text.generation);
        hr_cmd_prompt_defaults(&ds->sampling);
        warn_of_stop_ids(r, ds);
        const struct hr_manifest *m = ds->m;
        bool of_model = m->thinking == HR_THINKING_MODEL && m->chat;
        ds->think_open = of_model ? r->text.think.open : m->think_open;
        ds->think_close = of_model ? r->text.think.close : m->think_close;
    }
    return HR_OK;
}

/* ---- the engine's size -------------------------------------------------------------------------- */

static double gib(uint64_t bytes) {
    return (double)bytes / (double)(1ull << 30);
}

/* Bytes of the host tier: what was asked for, or twice the device's, within a quarter of what is free. */
static enum hr_status host_bytes(const struct run *r, uint64_t kv, uint64_t have, uint64_t *out,
                                 struct hr_err *err) {
    const char *s = r->opts.hicache_size;
    char *end;
    *out = 2 * kv < have / 4 ? 2 * kv : have / 4;
    if (!s) return HR_OK;
    double v = strtod(s, &end);
    double unit = *end == 'K' ? 0x1p10 : *end == 'M' ? 0x1p20 : *end == 'G' ? 0x1p30 : *end == 'T' ? 0x1p40 : 1;
    bool ok = end != s && v >= 0 && v * unit < 1e18 && end[unit > 1] == 0;
    if (!ok)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "--hicache-size expects bytes such as 4G, a share of the free memory such as 0.25, or "
                          "0, got '%s'",
                          s);
    bool share = unit == 1 && v > 0 && v < 1;
    *out = (uint64_t)(share ? v * (double)have : v * unit);
    return HR_OK;
}

static enum hr_status plan_memory(struct run *r, enum hr_dtype act, struct hr_err *err) {
    const struct hr_model_config *cfg = hr_model_file_config(r->mf);
    struct hr_model_plan plan;
    uint64_t have = hr_cmd_free_memory();
    int64_t tokens = r->opts.kv_tokens;
    hr_model_plan(cfg, act, &r->model_opts, &plan);
    if (tokens == 0) {
        int64_t each = cfg->n_ctx < DEFAULT_KV_TOKENS ? cfg->n_ctx : DEFAULT_KV_TOKENS;
        int64_t quarter = (int64_t)(have / 4 / plan.kv_per_token);
        tokens = each * r->engine_opts.max_running;
        if (tokens > quarter) tokens = quarter;
        if (tokens < cfg->n_ctx) tokens = cfg->n_ctx;
    }
    r->model_opts.n_pages = r->engine_opts.n_pages = (int)((tokens + HR_PAGE_TOKENS - 1) / HR_PAGE_TOKENS);
    hr_model_plan(cfg, act, &r->model_opts, &plan);
    uint64_t host = 0, page_bytes = plan.kv_per_token * HR_PAGE_TOKENS;
    enum hr_status st = host_bytes(r, plan.kv, have, &host, err);
    if (st) return st;
    uint64_t n_host = host / page_bytes, n_host_max = have / page_bytes + 1; /* which is more than there is */
    if (n_host_max > INT32_MAX) n_host_max = INT32_MAX;
    r->model_opts.n_host_pages = r->engine_opts.n_host_pages = (int)(n_host < n_host_max ? n_host : n_host_max);
    hr_model_plan(cfg, act, &r->model_opts, &plan);
    r->kv_bytes = plan.kv + plan.kv_host;
    if (n_host > n_host_max) plan.kv_host = host; /* what was asked for shall be said */
    uint64_t need = plan.weights + plan.kv + plan.kv_host + plan.activations;
    if (need > have)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "this needs %.2f GiB of memory (weights %.2f, KV cache %.2f for %lld tokens, its host "
                          "tier %.2f, activations %.2f) and %.2f GiB are free; lower --kv-tokens, "
                          "--hicache-size or --max-running",
                          gib(need), gib(plan.weights), gib(plan.kv), (long long)tokens, gib(plan.kv_host),
                          gib(plan.activations), gib(have));
    return HR_OK;
}

static void ring(void *arg) {
    hr_wake_ring(arg);
}

enum hr_status run_plan_engine(struct run *r, struct hr_err *err) {
    const struct run_opts *o = &r->opts;
    enum hr_dtype act = o->dtype == 1 ? HR_F32 : HR_BF16;
    unsigned mask = 0;
    enum hr_status st;
    int max_running = o->max_running ? (int)o->max_running : DEFAULT_MAX_RUNNING;
    int step_tokens = o->step_tokens ? (int)o->step_tokens : DEFAULT_STEP_TOKENS;
    if (step_tokens < max_running) step_tokens = max_running;
    r->model_opts.max_tokens = step_tokens;
    r->model_opts.max_out = max_running;
    const struct hr_token_bytes *bytes = hr_tokenizer_bytes(r->text.tokenizer);
    r->engine_opts = (struct hr_engine_opts){
        .max_running = max_running,
        .step_tokens = step_tokens,
        .decode_steps = (int)o->decode_steps,
        .scatter = (uint64_t)o->scatter,
        .token_bytes = {.bytes = bytes->bytes,
                        .offset = bytes->offset,
                        .first_bytes = bytes->first_bytes,
                        .first_offset = bytes->first_offset,
                        .hidden = bytes->hidden,
                        .n_tokens = bytes->n_tokens,
                        .n_strip = bytes->n_strip,
                        .strip = bytes->strip},
        .wake = ring,
        .wake_arg = r->wake,
    };
    if ((st = plan_memory(r, act, err)) || (st = hr_cmd_parse_cpu_mask(o->cpu_mask, &mask, err))) return st;
    int n_threads = o->threads ? (int)o->threads : hr_pool_usable_cores();
    if ((st = hr_pool_create(n_threads, &r->pool, err))) return st;
    r->model_opts.pool = r->pool;
    struct hr_cpu_opts cpu = {.act = act, .cpu_mask = mask, .pool = r->pool, .max_tokens = step_tokens};
    return hr_cpu_backend_open(&cpu, &r->be, err);
}

/* ---- stores ------------------------------------------------------------------------------------- */

static void make_dirs(const char *path) {
    char *p = hr_xstrdup(path);
    for (char *s = p + 1; *s; s++) {
        if (*s != '/') continue;
        *s = 0;
        mkdir(p, 0777); /* the store says what is wrong if the last one cannot be made */
        *s = '/';
    }
    free(p);
}

#define SETTINGS_MAX 24

struct settings {
    struct hr_store_setting list[SETTINGS_MAX];
    struct hr_buf values[SETTINGS_MAX];
    int n;
};

static void add_setting(struct settings *s, const char *key, const char *fmt, ...) HR_PRINTF(3, 4);
static void add_setting(struct settings *s, const char *key, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hr_buf_vprintf(&s->values[s->n], fmt, ap);
    va_end(ap);
    s->list[s->n].key = key;
    s->n++;
}

/* Which tokens end an answer, and the token before raw text: a model's files say it in several places that
 * its fingerprint does not cover. */
static void add_ends(struct settings *s, const struct hr_model_text *text) {
    struct hr_buf ids = {0};
    for (int i = 0; i < text->n_eos; i++) hr_buf_printf(&ids, "%s%d", i ? ", " : "", text->eos_ids[i]);
    if (text->add_bos) add_setting(s, "model.bos", "%d", text->bos_id);
    else add_setting(s, "model.bos", "not added");
    add_setting(s, "model.eos", "[%s]", hr_buf_cstr(&ids));
    hr_buf_finish(&ids);
}

static void add_stops(struct settings *s, const struct hr_sampling_spec *sp) {
    struct hr_buf stop = {0}, ids = {0};
    for (int i = 0; i < sp->n_stop; i++) {
        hr_buf_puts(&stop, i ? ", " : "");
        hr_buf_json_str(&stop, sp->stop[i], sp->stop_len[i]);
    }
    for (size_t i = 0; i < sp->stop_token_ids.len; i++)
        hr_buf_printf(&ids, "%s%d", i ? ", " : "", sp->stop_token_ids.data[i]);
    add_setting(s, "sampling.stop", "[%s]", hr_buf_cstr(&stop));
    add_setting(s, "sampling.stop_token_ids", "[%s]", hr_buf_cstr(&ids));
    hr_buf_finish(&stop);
    hr_buf_finish(&ids);
}

static void finish_settings(struct settings *s) {
    for (int i = 0; i < s->n; i++) hr_buf_finish(&s->values[i]);
}

/* What makes the rows of a file one population. Not speed, not caps or limits, not n (more samples of
 * the same rows are welcome). */
static void fill_settings(const struct run *r, struct dataset *ds, struct settings *s) {
    const struct hr_sampling_spec *sp = &ds->sampling;
    add_setting(s, "chat", "%s", ds->m->chat ? "true" : "false");
    add_setting(s, "model", "%s", r->model_hash);
    add_ends(s, &r->text);
    add_setting(s, "model.template", "%s", ds->m->chat ? r->text.template_hash : "not used");
    add_setting(s, "model.tokenizer", "%s", r->text.tokenizer_hash);
    add_setting(s, "output.token_ids", "%s", ds->m->output_token_ids ? "true" : "false");
    add_setting(s, "sampling.frequency_penalty", "%.9g", sp->frequency_penalty);
    add_setting(s, "sampling.ignore_eos", "%s", sp->ignore_eos ? "true" : "false");
    if (sp->max_tokens < 0) add_setting(s, "sampling.max_tokens", "to the end or the context");
    else add_setting(s, "sampling.max_tokens", "%lld", (long long)sp->max_tokens);
    add_setting(s, "sampling.min_p", "%.9g", sp->min_p);
    add_setting(s, "sampling.presence_penalty", "%.9g", sp->presence_penalty);
    add_setting(s, "sampling.repetition_penalty", "%.9g", sp->repetition_penalty);
    add_setting(s, "sampling.seed", "%lld", (long long)sp->seed);
    add_stops(s, sp);
    add_setting(s, "sampling.temperature", "%.9g", sp->temperature);
    add_setting(s, "sampling.top_k", "%lld", (long long)sp->top_k);
    add_setting(s, "sampling.top_p", "%.9g", sp->top_p);
    add_setting(s, "system", "%s", ds->m->system ? ds->m->system : "none");
    add_setting(s, "template_vars", "%.*s", (int)ds->m->template_vars.len,
                ds->m->template_vars.len ? ds->m->template_vars.data : "");
    /* Rows of a model that does not think do not depend on it. */
    if (ds->think_close) add_setting(s, "thinking", "%s to %s", ds->think_open, ds->think_close);
    for (int i = 0; i < s->n; i++) s->list[i].value = hr_buf_cstr(&s->values[i]);
}

/* The bits of a row depend on instruction set and precision; a file shall hold one kind. That it holds more,
 * which was allowed, is remembered for the canaries: half a row in the journal may be of another kind. */
static enum hr_status check_numerics(struct run *r, struct dataset *ds, struct hr_err *err) {
    struct hr_buf was = {0}, mixed = {0};
    if (ds->is_new) return HR_OK;
    enum hr_status st = hr_store_get_fact(ds->store, "numerics", &was, err);
    bool differs = !st && strcmp(hr_buf_cstr(&was), r->be->numerics) != 0;
    if (differs && !r->opts.allow_mixed_numerics)
        st = hr_err_set(err, HR_ERR_CONFIG,
                        "%s: the rows so far were computed with %s, this machine and these flags mean %s, whose "
                        "rows differ in bits; --allow-mixed-numerics accepts that",
                        ds->dir, hr_buf_cstr(&was), r->be->numerics);
    else if (differs)
        hr_warn("%s: earlier rows were computed with %s, these with %s", ds->m->dataset, hr_buf_cstr(&was),
                r->be->numerics);
    if (!st) st = hr_store_get_fact(ds->store, "numerics_mixed", &mixed, err);
    if (st == HR_ERR_NOTFOUND) st = HR_OK;
    ds->mixed_numerics = differs || (mixed.len && strcmp(hr_buf_cstr(&mixed), "0") != 0);
    hr_buf_finish(&was);
    hr_buf_finish(&mixed);
    return st;
}

/* The clock that templates see is the first run's, so that a resumed run renders the same prompts. */
static enum hr_status choose_now(struct run *r, struct dataset *ds, struct hr_err *err) {
    struct hr_buf was = {0};
    char now[25];
    hr_clock_iso(now);
    const char *use = r->opts.now ? r->opts.now : now;
    enum hr_status st = ds->is_new ? HR_ERR_NOTFOUND : hr_store_get_fact(ds->store, "now", &was, err);
    if (!st && r->opts.now && strcmp(hr_buf_cstr(&was), r->opts.now) != 0)
        st = hr_err_set(err, HR_ERR_CONFIG, "%s: --now %s, but the first run's prompts were rendered at %s",
                        ds->dir, r->opts.now, hr_buf_cstr(&was));
    if (was.len) use = hr_buf_cstr(&was);
    if (!st || st == HR_ERR_NOTFOUND) st = hr_cmd_parse_now(use, &ds->now, err);
    ds->now_text = hr_xstrdup(use);
    hr_buf_finish(&was);
    return st;
}

static const char *plural(int64_t n) {
    return n == 1 ? "" : "s";
}

/* What opening the store has mended, also when the run is refused afterwards. */
static void log_damage(const struct dataset *ds) {
    const struct hr_store_recovery *v = &ds->recovery;
    if (v->n_cut_bytes)
        hr_warn("%s/raw_responses.jsonl: %lld byte%s after the last whole row cut off and kept in "
                "raw_responses.torn",
                ds->dir, (long long)v->n_cut_bytes, plural(v->n_cut_bytes));
    if (v->n_redo)
        hr_warn("%s/raw_responses.jsonl: %d finished row%s not in the file any more (it was cut, changed or "
                "removed); generated again",
                ds->dir, v->n_redo, v->n_redo == 1 ? " is" : "s are");
}

static void log_taken_over(const struct dataset *ds) {
    const struct hr_store_recovery *v = &ds->recovery;
    const char *name = ds->m->dataset;
    if (v->n_adopted)
        hr_info("%s: took over %d row%s written but not yet recorded", name, v->n_adopted, plural(v->n_adopted));
    if (v->n_unfinished)
        hr_info("%s: the last run left %d unfinished row%s with %lld token%s; %s continued, not sampled again", name,
                v->n_unfinished, plural(v->n_unfinished), (long long)v->n_unfinished_tokens,
                plural(v->n_unfinished_tokens), v->n_unfinished == 1 ? "it is" : "they are");
}

static void open_runlog(struct run *r, struct dataset *ds, const struct settings *s) {
    struct hr_buf json = {0};
    char host[64] = "?", now[25];
    gethostname(host, sizeof host - 1);
    hr_clock_iso(now);
    hr_buf_puts(&json, "{\"version\": ");
    hr_buf_json_str(&json, hr_version(), strlen(hr_version()));
    hr_buf_puts(&json, ", \"host\": ");
    hr_buf_json_str(&json, host, strlen(host));
    hr_buf_printf(&json, ", \"pid\": %d, \"started\": \"%s\", \"numerics\": \"%s\", \"threads\": %d", (int)getpid(),
                  now, r->be->numerics, hr_pool_n_threads(r->pool));
    hr_buf_printf(&json, ", \"max_running\": %d, \"step_tokens\": %d, \"kv_tokens\": %lld",
                  r->engine_opts.max_running, r->engine_opts.step_tokens,
                  (long long)r->engine_opts.n_pages * HR_PAGE_TOKENS);
    hr_buf_printf(&json, ", \"limit\": %lld, \"cap\": %lld, \"canary\": %lld, \"settings\": {",
                  (long long)r->opts.limit, (long long)ds->budget.cap, (long long)r->canary_n);
    for (int i = 0; i < s->n; i++) {
        hr_buf_puts(&json, i ? ", " : "");
        hr_buf_json_str(&json, s->list[i].key, strlen(s->list[i].key));
        hr_buf_puts(&json, ": ");
        hr_buf_json_str(&json, s->list[i].value, strlen(s->list[i].value));
    }
    hr_buf_puts(&json, "}}");
    hr_runlog_add(r->runlog, ds->dir, hr_buf_cstr(&json));
    hr_buf_finish(&json);
}

/* The earlier run of this dataset in --lengths-from, a folder or a state.db; *found stays when there is none. */
static enum hr_status open_past(struct run *r, struct dataset *ds, bool *found, struct hr_err *err) {
    const char *from = r->opts.lengths_from, *slash = strrchr(from, '/');
    struct stat sb, own;
    struct hr_buf path = {0}, dir = {0}, mine = {0};
    struct hr_store_totals totals = {0};
    bool live, is_dir = stat(from, &sb) == 0 && S_ISDIR(sb.st_mode);
    if (is_dir) {
        hr_buf_printf(&path, "%s/state.db", from); /* a dataset's own folder, as `status` takes one? */
        hr_buf_printf(&dir, "%s", from);
        if (stat(hr_buf_cstr(&path), &sb) != 0) hr_buf_printf(&dir, "/%s", ds->m->dataset);
        hr_buf_clear(&path);
    } else hr_buf_append(&dir, slash ? from : ".", slash ? (size_t)(slash - from) + 1 : 1);
    if (is_dir) hr_buf_printf(&path, "%s/state.db", hr_buf_cstr(&dir));
    else hr_buf_puts(&path, from);
    hr_buf_printf(&mine, "%s/state.db", ds->dir);
    const char *own_path = r->opts.state ? r->opts.state : hr_buf_cstr(&mine);
    enum hr_status st = HR_OK;
    bool is_own = stat(hr_buf_cstr(&path), &sb) == 0 && stat(own_path, &own) == 0 && sb.st_dev == own.st_dev &&
                  sb.st_ino == own.st_ino;
    if (is_own)
        st = hr_err_set(err, HR_ERR_CONFIG,
                        "--lengths-from %s is this run's own output, whose lengths are known anyway; name an earlier "
                        "run's",
                        from);
    struct hr_store_opts o = {.dir = hr_buf_cstr(&dir), .state_path = hr_buf_cstr(&path)};
    if (!st) st = hr_store_open_readonly(&o, &ds->past, &live, err);
    if (!st) st = hr_store_totals(ds->past, &totals, err);
    if (!st) {
        *found = true;
        if (totals.rows_done > 0 && ds->expected_tokens == 0)
            ds->expected_tokens = totals.completion_tokens / totals.rows_done;
        hr_info("%s: the lengths of %lld rows are known from %s", ds->m->dataset, (long long)totals.rows_done,
                hr_buf_cstr(&path));
    } else if (st == HR_ERR_NOTFOUND) {
        hr_info("%s: no lengths are known: %s", ds->m->dataset, err->msg);
        st = HR_OK;
    } else if (ds->past == NULL && !is_own) {
        struct hr_err why = *err;
        st = hr_err_set(err, st, "%s; or leave --lengths-from out, which only helps the speed", why.msg);
    }
    hr_store_totals_finish(&totals);
    hr_buf_finish(&path);
    hr_buf_finish(&dir);
    hr_buf_finish(&mine);
    return st;
}

/* What is known of answers' lengths before the first one: from this dataset's own rows, from an earlier run, or
 * from the manifest. */
static enum hr_status know_lengths(struct run *r, struct hr_err *err) {
    bool found = !r->opts.lengths_from;
    for (int i = 0; i < r->n_datasets; i++) {
        struct dataset *ds = &r->datasets[i];
        if (ds->before.rows_done > 0) ds->expected_tokens = ds->before.completion_tokens / ds->before.rows_done;
        enum hr_status st = r->opts.lengths_from ? open_past(r, ds, &found, err) : HR_OK;
        if (st) return st;
        if (ds->expected_tokens == 0) ds->expected_tokens = ds->m->expected_tokens;
        r->engine_opts.expected[i] = ds->expected_tokens < INT32_MAX ? (int)ds->expected_tokens : INT32_MAX;
    }
    if (!found)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "--lengths-from %s holds no state.db of an earlier run; name its --out folder, or leave it out",
                          r->opts.lengths_from);
    return HR_OK;
}

static void seed_budget(void *arg, int completion_tokens, int64_t n_rows) {
    hr_budget_rows(arg, completion_tokens, n_rows);
}

/* Opens what is there and compares; what it finds torn is mended, but nothing says that a run has begun. */
static enum hr_status open_store(struct run *r, struct dataset *ds, struct hr_err *err) {
    struct settings s = {0};
    enum hr_status st;
    int64_t cap = r->opts.cap >= 0 ? r->opts.cap : ds->m->max_tokens_per_dataset;
    struct hr_store_opts o = {
        .dir = ds->dir, .state_path = r->opts.state, .stop = (const volatile bool *)&r->give_up};
    fill_settings(r, ds, &s);
    make_dirs(ds->dir);
    hr_budget_init(&ds->budget, cap);
    if ((st = hr_store_open(&o, &ds->store, &ds->recovery, err)) ||
        (st = hr_store_check(ds->store, s.list, s.n, &ds->is_new, err)) || (st = check_numerics(r, ds, err)) ||
        (st = choose_now(r, ds, err)) || (st = hr_store_totals(ds->store, &ds->before, err)) ||
        (cap > 0 && (st = hr_store_lengths(ds->store, seed_budget, &ds->budget, err))) ||
        (st = hr_shard_open(ds->m->shards, ds->m->n_shards, &ds->reader, err)))
        goto out;
    ds->rows_done = ds->before.rows_done;
    ds->rows_length = ds->before.rows_length;
    ds->rows_repetitive = ds->before.rows_repetitive;
    ds->rejects = r->opts.retry_rejects ? 0 : ds->before.rejects;
out:
    finish_settings(&s);
    return st;
}

/* Nothing is refused any more: the store hears what this run is. */
static enum hr_status begin_store(struct run *r, struct dataset *ds, struct hr_err *err) {
    struct settings s = {0};
    char host[64] = "?";
    enum hr_status st;
    gethostname(host, sizeof host - 1);
    fill_settings(r, ds, &s);
    if (!(st = hr_store_bind(ds->store, s.list, s.n, err)) &&
        !(ds->is_new && (st = hr_store_set_fact(ds->store, "numerics", r->be->numerics, err))) &&
        !(st = hr_store_set_fact(ds->store, "numerics_mixed", ds->mixed_numerics ? "1" : "0", err)) &&
        !(st = hr_store_set_fact(ds->store, "now", ds->now_text, err)) &&
        !(r->opts.retry_rejects && (st = hr_store_forget_rejects(ds->store, err))) &&
        !(st = hr_store_begin_run(ds->store, hr_version(), host, err))) {
        open_runlog(r, ds, &s);
        run_set_fact(ds, "cap", ds->budget.cap);
        run_set_fact(ds, "capped", 0); /* an earlier run's word */
        run_set_fact(ds, "over_cap", 0);
    }
    finish_settings(&s);
    return st;
}

/* Behind the opening of the run.logs, which get the line, too. */
static void log_templates(const struct run *r) {
    struct hr_buf text = {0};
    bool used = false;
    for (int i = 0; i < r->n_datasets; i++) used |= r->datasets[i].m->chat;
    if (!used) return;
    hr_model_text_describe_templates(&r->text, &text);
    hr_info("template: %s", hr_buf_cstr(&text));
    hr_buf_finish(&text);
}

static void log_thinking(const struct dataset *ds) {
    struct hr_buf tags = {0};
    if (!ds->think_close) return;
    run_describe_thinking(ds, &tags);
    hr_info("%s: what stands %s is a row's reasoning, not its response", ds->m->dataset, hr_buf_cstr(&tags));
    hr_buf_finish(&tags);
}

static void put_unless(struct hr_buf *out, const char *key, double value, double off) {
    if (value != off) hr_buf_printf(out, ", %s %.9g", key, value);
}

/* How its rows are sampled, defaults included; a row's own settings come before these. */
static void log_sampling(const struct dataset *ds) {
    const struct hr_sampling_spec *sp = &ds->sampling;
    struct hr_buf text = {0};
    hr_buf_printf(&text, "temperature %.9g, top_p %.9g, top_k ", sp->temperature, sp->top_p);
    if (sp->top_k > 0) hr_buf_printf(&text, "%lld", (long long)sp->top_k);
    else hr_buf_puts(&text, "off");
    put_unless(&text, "min_p", sp->min_p, 0);
    put_unless(&text, "repetition_penalty", sp->repetition_penalty, 1);
    put_unless(&text, "presence_penalty", sp->presence_penalty, 0);
    put_unless(&text, "frequency_penalty", sp->frequency_penalty, 0);
    hr_buf_puts(&text, ", max_tokens ");
    if (sp->max_tokens < 0) hr_buf_puts(&text, "to the end or the context");
    else hr_buf_printf(&text, "%lld", (long long)sp->max_tokens);
    hr_buf_printf(&text, ", seed %lld, n %lld", (long long)sp->seed, (long long)sp->n);
    if (sp->ignore_eos) hr_buf_puts(&text, ", ignore_eos");
    if (sp->n_stop || sp->stop_token_ids.len)
        hr_buf_printf(&text, ", stops %zu", (size_t)sp->n_stop + sp->stop_token_ids.len);
    hr_info("%s: %s", ds->m->dataset, hr_buf_cstr(&text));
    hr_buf_finish(&text);
}

enum hr_status run_open_stores(struct run *r, struct hr_err *err) {
    enum hr_status st = HR_OK;
    r->runlog = hr_runlog_create();
    /* All are looked at before the first is written: a refusal leaves the others as they are, too. */
    for (int i = 0; i < r->n_datasets && !st; i++) st = open_store(r, &r->datasets[i], err);
    if (!st) st = know_lengths(r, err);
    for (int i = 0; i < r->n_datasets && !st; i++) st = begin_store(r, &r->datasets[i], err);
    for (int i = 0; i < r->n_datasets; i++) log_damage(&r->datasets[i]); /* in run.log, too, when it is open */
    if (st) return st;
    for (int i = 0; i < r->n_datasets; i++) log_taken_over(&r->datasets[i]);
    log_templates(r);
    for (int i = 0; i < r->n_datasets; i++) {
        log_sampling(&r->datasets[i]);
        log_thinking(&r->datasets[i]);
    }
    return HR_OK;
}

/* ---- weights ------------------------------------------------------------------------------------ */

struct loading {
    struct run *run;
    struct hr_model *model; /* the worker's, until load_done gives them to the run */
    struct hr_engine *engine;
    enum hr_status st;
    struct hr_err err;
    int64_t begin_ns;
};

static void load_progress(void *arg, uint64_t done, uint64_t total) {
    struct run *r = arg;
    atomic_store(&r->load_percent, total ? (int)(100 * done / total) : 100);
}

static void load_work(void *arg) {
    struct loading *l = arg;
    struct run *r = l->run;
    if ((l->st = hr_model_create(r->be, r->mf, &r->model_opts, &l->model, &l->err))) return;
    l->st = hr_engine_create(l->model, &r->engine_opts, &l->engine, &l->err);
}

static void load_done(void *arg) {
    struct loading *l = arg;
    struct run *r = l->run;
    r->model = l->model;
    r->engine = l->engine;
    r->model_state = l->st ? MODEL_FAILED : MODEL_READY;
    if (l->st) run_fail(r, &l->err);
    else
        hr_info("loaded %s in %.1f s (%s, %d threads, KV cache for %lld tokens)", hr_model_file_describe(r->mf),
                (double)(hr_clock_ns() - l->begin_ns) / 1e9, r->be->numerics, hr_pool_n_threads(r->pool),
                (long long)hr_engine_kv_tokens(r->engine));
    free(l);
    run_pump(r);
}

void run_start_loading(struct run *r) {
    struct loading *l = hr_xcalloc(1, sizeof *l);
    l->run = r;
    l->begin_ns = hr_clock_ns();
    r->model_state = MODEL_LOADING;
    atomic_store(&r->load_percent, -1);
    r->model_opts.progress = load_progress;
    r->model_opts.progress_arg = r;
    hr_loop_work(r->loop, load_work, load_done, l);
}

/* ---- the end ------------------------------------------------------------------------------------ */

static void free_list(struct sample_list *l) {
    while (l->head) {
        struct sample *s = l->head;
        list_remove(l, s);
        sample_free(s);
    }
}

void run_close(struct run *r) {
    if (r->engine) hr_engine_destroy(&r->engine);
    if (r->model) hr_model_destroy(&r->model);
    if (r->be) r->be->ops->destroy(r->be);
    hr_pool_destroy(&r->pool);
    hr_loop_destroy(&r->loop);
    for (int i = 0; i < r->n_datasets; i++) {
        struct dataset *ds = &r->datasets[i];
        free_list(&ds->ready);
        free_list(&ds->flying);
        free_list(&ds->finished);
        free_list(&ds->canaries);
        hr_record_finish(&ds->intake_record);
        hr_shard_close(&ds->reader);
        hr_store_close(&ds->past);
        hr_store_close(&ds->store);
        hr_store_totals_finish(&ds->before);
        hr_sampling_spec_finish(&ds->sampling);
        hr_manifest_destroy(&ds->m);
        free(ds->dir);
        free(ds->now_text);
    }
    free(r->datasets);
    hr_buf_finish(&r->suspects);
    hr_runlog_destroy(&r->runlog);
    hr_model_text_finish(&r->text);
    hr_model_file_close(&r->mf);
    hr_sampling_spec_finish(&r->opts.sampling);
}

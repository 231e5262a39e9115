/* SPDX-License-Identifier: Apache-2.0
 *
 * run_dry: `headrace run --dry-run`: reads, renders and tokenizes every row and tells what a run would
 * meet: counts, a histogram of prompt lengths, rejects by reason, the first prompts as the model will see
 * them. Writes nothing but stdout and opens no store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/run_int.h"

#define SHOW_PROMPTS 3  /* whole, with ids */
#define SHOW_REJECTS 10 /* lines; the rest are counted */
#define N_BINS       24 /* prompt lengths by powers of two */

struct dry {
    int64_t n_rows, n_samples, n_rejects, n_over_long, n_context, n_begun;
    int64_t prompt_tokens, max_tokens; /* the latter summed over samples */
    int64_t bins[N_BINS];
    int longest;
};

static int bin_of(size_t n) {
    int b = 0;
    while (n > 1 && b < N_BINS - 1) n /= 2, b++;
    return b;
}

/* The prompt with control tokens set apart as <<...>>. */
static void show_prompt(const struct run *r, const struct hr_record *rec, const struct hr_cmd_prompt *p) {
    struct hr_buf text = {0};
    printf("--- row %.*s: %zu tokens, max_tokens %d%s\n", (int)rec->id_json.len, rec->id_json.data, p->ids.len,
           p->max_tokens, p->context_limited ? " (the context)" : "");
    hr_cmd_prompt_visible(r->text.tokenizer, p->ids.data, p->ids.len, "<<", ">>", &text);
    fwrite(text.data, 1, text.len, stdout);
    printf("\nids:");
    for (size_t i = 0; i < p->ids.len; i++) printf(" %d", p->ids.data[i]);
    printf("\n");
    hr_buf_finish(&text);
}

static void reject(struct dry *d, const struct dataset *ds, const struct hr_line *line, const char *reason) {
    if (d->n_rejects++ < SHOW_REJECTS)
        printf("reject %s:%lld: %s\n", ds->m->shards[line->i_shard], (long long)line->line_no, reason);
}

static void dry_line(struct run *r, struct dataset *ds, const struct hr_line *line, struct dry *d) {
    const struct hr_model_config *cfg = hr_model_file_config(r->mf);
    struct hr_record *rec = &ds->intake_record;
    struct hr_cmd_prompt p = {0};
    struct hr_err reason;
    d->n_rows++;
    if (line->too_long) {
        reject(d, ds, line, "the line is longer than 16 MiB");
        return;
    }
    if (line->torn || hr_record_parse(rec, ds->m, line->p, line->len, &reason)) {
        reject(d, ds, line, line->torn ? line->p : reason.msg);
        return;
    }
    enum hr_status st = hr_cmd_prompt_make(&p, rec, ds->m, &ds->sampling, &r->text, cfg->n_ctx, cfg->n_vocab,
                                       &ds->now, &reason);
    if (st) {
        d->n_over_long += st == HR_ERR_LIMIT;
        reject(d, ds, line, reason.msg);
        return;
    }
    if (d->n_samples == 0 || d->n_rows <= SHOW_PROMPTS) show_prompt(r, rec, &p);
    d->n_samples += p.sampling.n;
    d->n_context += p.context_limited;
    d->n_begun += run_preface(ds, &p).begun;
    d->prompt_tokens += (int64_t)p.ids.len;
    d->max_tokens += p.max_tokens * p.sampling.n;
    d->bins[bin_of(p.ids.len)]++;
    if ((int)p.ids.len > d->longest) d->longest = (int)p.ids.len;
    hr_cmd_prompt_finish(&p);
}

static const char *plural(int64_t n) {
    return n == 1 ? "" : "s";
}

static void report(const struct dataset *ds, const struct dry *d) {
    int64_t good = d->n_rows - d->n_rejects, most = 1;
    printf("--- %s: %lld row%s, %lld good (%lld sample%s), %lld reject%s, %lld of them longer than the context\n",
           ds->m->dataset, (long long)d->n_rows, plural(d->n_rows), (long long)good, (long long)d->n_samples,
           plural(d->n_samples), (long long)d->n_rejects, plural(d->n_rejects), (long long)d->n_over_long);
    printf("prompt tokens: %lld in all, mean %.1f, longest %d\n", (long long)d->prompt_tokens,
           good ? (double)d->prompt_tokens / (double)good : 0.0, d->longest);
    for (int i = 0; i < N_BINS; i++)
        if (d->bins[i] > most) most = d->bins[i];
    for (int i = 0; i < N_BINS; i++) {
        if (!d->bins[i]) continue;
        printf("%8d..%-8d %8lld ", 1 << i, (2 << i) - 1, (long long)d->bins[i]);
        for (int64_t k = 0; k < 40 * d->bins[i] / most; k++) putchar('#');
        putchar('\n');
    }
    if (ds->think_close) {
        struct hr_buf tags = {0};
        run_describe_thinking(ds, &tags);
        printf("reasoning: %s; %lld of the prompts begin%s it\n", hr_buf_cstr(&tags), (long long)d->n_begun,
               d->n_begun == 1 ? "s" : "");
        hr_buf_finish(&tags);
    }
    printf("completion tokens: at most %lld", (long long)d->max_tokens);
    if (d->n_context) printf(" (%lld row%s may go on to the end of the context)", (long long)d->n_context, plural(d->n_context));
    int64_t cap = ds->run->opts.cap >= 0 ? ds->run->opts.cap : ds->m->max_tokens_per_dataset;
    if (cap > 0) printf("; the dataset's cap is %lld", (long long)cap);
    printf("\n");
}

static enum hr_status dry_dataset(struct run *r, struct dataset *ds, struct dry *d, struct hr_err *err) {
    bool more = true;
    char now[25]; /* what a first run would show to templates */
    hr_clock_iso(now);
    enum hr_status st = hr_cmd_parse_now(r->opts.now ? r->opts.now : now, &ds->now, err);
    if (!st) st = hr_shard_open(ds->m->shards, ds->m->n_shards, &ds->reader, err);
    while (!st && (r->opts.limit < 0 || d->n_rows < r->opts.limit)) {
        struct hr_line line;
        if ((st = hr_shard_next(ds->reader, &line, &more, err)) || !more) break;
        dry_line(r, ds, &line, d);
    }
    return st;
}

int run_dry(struct run *r) {
    bool rejects = false;
    for (int i = 0; i < r->n_datasets; i++) {
        struct dry d = {0};
        struct hr_err err;
        enum hr_status st = dry_dataset(r, &r->datasets[i], &d, &err);
        if (st) {
            hr_error("%s", err.msg);
            return hr_cmd_exit_code(st);
        }
        report(&r->datasets[i], &d);
        rejects = rejects || d.n_rejects > 0;
    }
    return rejects ? HR_EXIT_REJECTS : HR_EXIT_DONE;
}

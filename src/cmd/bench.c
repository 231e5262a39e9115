/* SPDX-License-Identifier: Apache-2.0
 *
 * bench: `headrace bench`: how fast this machine computes a model, beside what its memory allows.
 *
 * For each batch size: prompts are prefilled in chunks, then all sequences decode together, greedily. The
 * same model code and backend as a run; no files, no scheduler. A decode step reads every weight once, so
 * weight bytes / measured read bandwidth is its floor. Prints text, or one JSON object with --json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "backend/cpu/cpu.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/machine.h"
#include "cmd/options.h"
#include "model/llama.h"

#define BATCHES_MAX 16

struct bench_opts {
    const char *model, *batches, *cpu_mask;
    int64_t prompt, decode, threads, step_tokens, repeat;
    int dtype;
    bool json;
};

struct result {
    int batch;
    double prefill_tok_s, decode_tok_s; /* best of the repeats */
};

struct bench {
    struct bench_opts o;
    int batches[BATCHES_MAX], n_batches, batch_max;
    struct hr_model_file *mf;
    struct hr_pool *pool;
    struct hr_backend *be;
    struct hr_model *model;
    struct hr_model_opts mo;
    struct hr_model_plan plan;
    double load_s, bandwidth;
    int pages_each; /* KV pages of a sequence */
    int32_t *tokens, *positions, *slots, *out_rows, *pages; /* owned; a step's batch */
    struct hr_batch_seq *seqs;
    struct hr_sample_row *rows;
    struct hr_sampled *sampled;
};

static bool parse(struct bench_opts *o, int argc, char **argv, int *code) {
    const struct hr_opt opts[] = {
        {"model", "PATH", "Input", "Model: a .gguf file or a Hugging Face directory.", HR_OPT_STR, &o->model},
        {"batch", "LIST", "Work", "Sequences that decode together, comma-separated. Default: 1,8,32.",
         HR_OPT_STR, &o->batches},
        {"prompt", "N", "Work", "Prompt tokens of each sequence. Default: 64.", HR_OPT_INT, &o->prompt,
         .min = 1, .max = 1e6},
        {"decode", "N", "Work", "Tokens that each sequence decodes. Default: 64.", HR_OPT_INT, &o->decode,
         .min = 1, .max = 1e6},
        {"repeat", "N", "Work", "Measure each N times and report the best. Default: 3.", HR_OPT_INT, &o->repeat,
         .min = 1, .max = 100},
        {"threads", "N", "Engine", "Threads that compute. Default: all usable cores.", HR_OPT_INT, &o->threads,
         .min = 1, .max = 1024},
        {"step-tokens", "N", "Engine", "Tokens of a prefill chunk. Default: 256.", HR_OPT_INT, &o->step_tokens,
         .min = 1, .max = 65536},
        {"dtype", "bf16|f32", "Engine", "Weights, KV cache and matmuls. Default: bf16.", HR_OPT_CHOICE,
         &o->dtype},
        {"cpu-mask", "MASK", "Engine", "Instruction-set tiers that may be used. Default: all found.", HR_OPT_STR,
         &o->cpu_mask},
        {"json", NULL, "Output", "Print one JSON object. Default: a table.", HR_OPT_FLAG, &o->json},
    };
    const struct hr_command_line cl = {
        "bench", "", "Measures prefill and decode speed, load time and peak memory of a model on this machine.",
        opts, HR_N_OPTS(opts), 0, 0};
    int n_args;
    return hr_options_parse(&cl, argc, argv, &n_args, code);
}

static enum hr_status parse_batches(struct bench *b, struct hr_err *err) {
    for (const char *p = b->o.batches; *p;) {
        char *end;
        long v = strtol(p, &end, 10);
        if (end == p || v < 1 || v > 1024 || (*end && *end != ',') || b->n_batches == BATCHES_MAX)
            return hr_err_set(err, HR_ERR_CONFIG,
                              "--batch expects up to %d numbers from 1 to 1024 such as 1,8,32, got '%s'",
                              BATCHES_MAX, b->o.batches);
        b->batches[b->n_batches++] = (int)v;
        if (v > b->batch_max) b->batch_max = (int)v;
        p = *end ? end + 1 : end;
    }
    return b->n_batches ? HR_OK : hr_err_set(err, HR_ERR_CONFIG, "--batch is empty");
}

static enum hr_status open_all(struct bench *b, struct hr_err *err) {
    enum hr_status st;
    unsigned mask = 0;
    if (!b->o.model) return hr_err_set(err, HR_ERR_CONFIG, "give --model PATH");
    if ((st = parse_batches(b, err)) || (st = hr_cmd_parse_cpu_mask(b->o.cpu_mask, &mask, err)) ||
        (st = hr_model_file_open(b->o.model, &b->mf, err))) return st;
    const struct hr_model_config *cfg = hr_model_file_config(b->mf);
    int64_t len = b->o.prompt + b->o.decode;
    if (len > cfg->n_ctx)
        return hr_err_set(err, HR_ERR_CONFIG, "--prompt and --decode make %lld tokens; the context holds %d",
                          (long long)len, cfg->n_ctx);
    b->pages_each = (int)((len + HR_PAGE_TOKENS - 1) / HR_PAGE_TOKENS);
    if (b->o.step_tokens < b->batch_max) b->o.step_tokens = b->batch_max;
    int n_threads = b->o.threads ? (int)b->o.threads : hr_pool_usable_cores();
    if ((st = hr_pool_create(n_threads, &b->pool, err))) return st;
    b->bandwidth = hr_cpu_read_bandwidth(b->pool);
    struct hr_cpu_opts cpu = {.act = b->o.dtype == 1 ? HR_F32 : HR_BF16,
                              .cpu_mask = mask,
                              .pool = b->pool,
                              .max_tokens = (int)b->o.step_tokens};
    if ((st = hr_cpu_backend_open(&cpu, &b->be, err))) return st;
    b->mo = (struct hr_model_opts){.max_tokens = (int)b->o.step_tokens,
                                   .max_out = b->batch_max,
                                   .n_pages = b->batch_max * b->pages_each,
                                   .pool = b->pool};
    hr_model_plan(cfg, b->be->act, &b->mo, &b->plan);
    int64_t t0 = hr_clock_ns();
    if ((st = hr_model_create(b->be, b->mf, &b->mo, &b->model, err))) return st;
    b->load_s = (double)(hr_clock_ns() - t0) / 1e9;
    size_t n = (size_t)b->o.step_tokens, m = (size_t)b->batch_max;
    b->tokens = hr_xmalloc(n * sizeof *b->tokens);
    b->positions = hr_xmalloc(n * sizeof *b->positions);
    b->slots = hr_xmalloc(n * sizeof *b->slots);
    b->out_rows = hr_xmalloc(m * sizeof *b->out_rows);
    b->seqs = hr_xmalloc(m * sizeof *b->seqs);
    b->rows = hr_xcalloc(m, sizeof *b->rows);
    b->sampled = hr_xmalloc(m * sizeof *b->sampled);
    b->pages = hr_xmalloc(m * (size_t)b->pages_each * sizeof *b->pages);
    for (int i = 0; i < b->batch_max * b->pages_each; i++) b->pages[i] = i;
    return HR_OK;
}

/* One step: n_rows rows of each of the n_seqs sequences from seq0 on, positions from pos0. */
static void step(struct bench *b, int seq0, int n_seqs, int pos0, int n_rows, bool out) {
    int n = 0, n_vocab = hr_model_n_vocab(b->model);
    for (int i = 0; i < n_seqs; i++) {
        const int32_t *pages = b->pages + (size_t)(seq0 + i) * (size_t)b->pages_each;
        b->seqs[i] = (struct hr_batch_seq){.row0 = n, .n_rows = n_rows, .pos0 = pos0, .pages = pages};
        for (int k = 0; k < n_rows; k++, n++) {
            int pos = pos0 + k;
            b->tokens[n] = (int32_t)((uint32_t)(pos * 7919 + (seq0 + i) * 104729 + 13) % (uint32_t)n_vocab);
            b->positions[n] = pos;
            b->slots[n] = pages[pos / HR_PAGE_TOKENS] * HR_PAGE_TOKENS + pos % HR_PAGE_TOKENS;
        }
        b->out_rows[i] = n - 1;
    }
    struct hr_batch batch = {.n_tokens = n, .tokens = b->tokens, .positions = b->positions, .slots = b->slots,
                             .n_seqs = n_seqs, .seqs = b->seqs, .n_out = out ? n_seqs : 0, .out_rows = b->out_rows};
    hr_model_forward(b->model, &batch);
    if (!out) return;
    for (int i = 0; i < n_seqs; i++)
        b->rows[i] = (struct hr_sample_row){.top_p = 1, .repetition_penalty = 1, .uniform = 0.5};
    hr_model_sample(b->model, n_seqs, b->rows, b->sampled);
}

static void measure(struct bench *b, int batch, struct result *r) {
    int n_prompt = (int)b->o.prompt, chunk = (int)b->o.step_tokens;
    *r = (struct result){.batch = batch};
    for (int rep = 0; rep < b->o.repeat; rep++) {
        int64_t t0 = hr_clock_ns();
        /* Whole prompts side by side while they fit a chunk, or one prompt in chunks. */
        int side = chunk / n_prompt > 0 ? chunk / n_prompt : 1;
        for (int i = 0; i < batch; i += side) {
            int n_seqs = batch - i < side ? batch - i : side;
            for (int pos = 0; pos < n_prompt; pos += chunk) {
                int n = n_prompt - pos < chunk ? n_prompt - pos : chunk;
                step(b, i, n_seqs, pos, n, pos + n == n_prompt);
            }
        }
        int64_t t1 = hr_clock_ns();
        for (int k = 0; k < b->o.decode; k++) step(b, 0, batch, n_prompt + k, 1, true);
        int64_t t2 = hr_clock_ns();
        double prefill = (double)batch * n_prompt * 1e9 / (double)(t1 - t0);
        double decode = (double)batch * (double)b->o.decode * 1e9 / (double)(t2 - t1);
        if (prefill > r->prefill_tok_s) r->prefill_tok_s = prefill;
        if (decode > r->decode_tok_s) r->decode_tok_s = decode;
    }
}

static double peak_mib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

static void print_text(const struct bench *b, const struct result *res) {
    printf("model           %s\n", hr_model_file_describe(b->mf));
    printf("numerics        %s, %d threads\n", b->be->numerics, hr_pool_n_threads(b->pool));
    printf("load            %.2f s, peak memory %.0f MiB (weights %.0f MiB)\n", b->load_s, peak_mib(),
           (double)b->plan.weights / (1 << 20));
    printf("read bandwidth  %.1f GB/s measured\n", b->bandwidth / 1e9);
    printf("work            %lld prompt tokens, %lld decoded, best of %lld\n", (long long)b->o.prompt,
           (long long)b->o.decode, (long long)b->o.repeat);
    printf("%8s %14s %14s %14s %12s %10s\n", "batch", "prefill tok/s", "decode tok/s", "steps/s", "weights GB/s",
           "of memory");
    for (int i = 0; i < b->n_batches; i++) {
        double steps = res[i].decode_tok_s / res[i].batch, bytes = steps * (double)b->plan.weights;
        printf("%8d %14.1f %14.1f %14.1f %12.1f %9.0f%%\n", res[i].batch, res[i].prefill_tok_s,
               res[i].decode_tok_s, steps, bytes / 1e9, 100 * bytes / b->bandwidth);
    }
}

static void print_json(const struct bench *b, const struct result *res) {
    struct hr_buf j = {0};
    const char *what = hr_model_file_describe(b->mf);
    hr_buf_puts(&j, "{\"model\": ");
    hr_buf_json_str(&j, what, strlen(what));
    hr_buf_printf(&j, ", \"numerics\": \"%s\", \"threads\": %d, \"load_s\": %.3f, \"peak_mib\": %.0f", b->be->numerics,
                  hr_pool_n_threads(b->pool), b->load_s, peak_mib());
    hr_buf_printf(&j, ", \"weight_bytes\": %llu, \"kv_bytes_per_token\": %llu, \"read_gb_s\": %.2f",
                  (unsigned long long)b->plan.weights, (unsigned long long)b->plan.kv_per_token,
                  b->bandwidth / 1e9);
    hr_buf_printf(&j, ", \"prompt\": %lld, \"decode\": %lld, \"results\": [", (long long)b->o.prompt,
                  (long long)b->o.decode);
    for (int i = 0; i < b->n_batches; i++) {
        double bytes = res[i].decode_tok_s / res[i].batch * (double)b->plan.weights;
        hr_buf_printf(&j, "%s{\"batch\": %d, \"prefill_tok_s\": %.1f, \"decode_tok_s\": %.1f, \"of_bandwidth\": %.3f}",
                      i ? ", " : "", res[i].batch, res[i].prefill_tok_s, res[i].decode_tok_s, bytes / b->bandwidth);
    }
    hr_buf_puts(&j, "]}");
    printf("%s\n", hr_buf_cstr(&j));
    hr_buf_finish(&j);
}

static void close_all(struct bench *b) {
    hr_model_destroy(&b->model);
    if (b->be) b->be->ops->destroy(b->be);
    hr_pool_destroy(&b->pool);
    hr_model_file_close(&b->mf);
    free(b->tokens);
    free(b->positions);
    free(b->slots);
    free(b->out_rows);
    free(b->seqs);
    free(b->rows);
    free(b->sampled);
    free(b->pages);
}

int hr_cmd_bench(int argc, char **argv) {
    struct bench b = {.o = {.batches = "1,8,32", .prompt = 64, .decode = 64, .step_tokens = 256, .repeat = 3}};
    struct hr_err err;
    int code;
    if (!parse(&b.o, argc, argv, &code)) return code;
    enum hr_status st = open_all(&b, &err);
    if (st) hr_error("%s", err.msg);
    else {
        struct result res[BATCHES_MAX];
        for (int i = 0; i < b.n_batches; i++) {
            measure(&b, b.batches[i], &res[i]);
            if (!b.o.json) hr_info("batch %d measured", b.batches[i]);
        }
        if (b.o.json) print_json(&b, res);
        else print_text(&b, res);
    }
    close_all(&b);
    return hr_cmd_exit_code(st);
}

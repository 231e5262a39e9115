/* SPDX-License-Identifier: Apache-2.0
 *
 * verify: `headrace verify --model PATH [--against goldens.jsonl]`: can this model be trusted here?
 *
 * Three answers, each with numbers: a prompt as the model sees it, control tokens made visible; tokens and
 * logits beside those of transformers (tests/golden/make_goldens.py makes them, on any machine); and what bf16
 * costs, the KV cache alone and all of it, on the user's own prompts. Writes nothing but stdout. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/machine.h"
#include "cmd/options.h"
#include "cmd/verify_int.h"

/* docs/fidelity.md, by --dtype. In f32 a lead this small is within the order of a sum. */
static const struct verify_bounds default_bounds[] = {
    {.top1 = 0.99, .kl = 5e-4, .lead = 0.25},
    {.top1 = 0.999, .kl = 1e-6, .lead = 1e-3},
};

static bool parse(struct verify_opts *o, int argc, char **argv, int *code) {
    const struct hr_opt opts[] = {
        {"model", "PATH", "Input", "Model: a .gguf file or a Hugging Face directory.", HR_OPT_STR, &o->model},
        {"prompts", "FILE", "Input",
         "Your own prompts: a manifest (.json), or rows with messages or a prompt (.jsonl, .gz, .zst). Default: "
         "those of --against, or four of our own.",
         HR_OPT_STR, &o->prompts},
        {"limit", "N", "Input", "Only the first N prompts; goldens are compared whole. Default: 8.", HR_OPT_INT,
         &o->limit, .min = 1, .max = 1024},
        {"against", "FILE", "Compare",
         "Compare text, ids and logits with what transformers says: a file made by tests/golden/make_goldens.py "
         "--model. Default: not compared.",
         HR_OPT_STR, &o->against},
        {"precision", "all|kv|none", "Compare",
         "Compare bf16 with f32 along greedy answers: the KV cache alone and everything, the KV cache alone, or "
         "nothing. Default: all, which needs memory for f32 weights.",
         HR_OPT_CHOICE, &o->precision},
        {"max-tokens", "N", "Compare", "Tokens of an answer along which precisions are compared. Default: 64.",
         HR_OPT_INT, &o->max_tokens, .min = 1, .max = 1e6},
        {"min-top1", "F", "Bounds",
         "Share of positions with the same most probable token, at least; what chance adds in a small sample is "
         "allowed for. Default: 0.99, or 0.999 for f32.",
         HR_OPT_REAL, &o->bounds.top1, &o->has_top1, .min = 0, .max = 1},
        {"max-kl", "F", "Bounds",
         "Mean KL(reference || ours) in nats, at most. Default: 5e-4, or 1e-6 for f32.",
         HR_OPT_REAL, &o->bounds.kl, &o->has_kl, .min = 0, .max = 1e3},
        {"max-lead", "F", "Bounds",
         "Greedy answers may part only where the reference's token leads by fewer logits. Default: 0.25, or 0.001 "
         "for f32.",
         HR_OPT_REAL, &o->bounds.lead, &o->has_lead, .min = 0, .max = 1e3},
        {"dtype", "bf16|f32", "Engine", "What is verified: weights, KV cache and matmuls. Default: bf16, as in a run.",
         HR_OPT_CHOICE, &o->dtype},
        {"threads", "N", "Engine", "Threads that compute. Default: all usable cores.", HR_OPT_INT, &o->threads,
         .min = 1, .max = 1024},
        {"cpu-mask", "MASK", "Engine", "Instruction-set tiers that may be used, 0 for none. Default: all found.",
         HR_OPT_STR, &o->cpu_mask},
        {"ids", NULL, "Output", "Show the token ids of the first prompt. Default: its text alone.", HR_OPT_FLAG,
         &o->ids},
        {"json", NULL, "Output", "Print one JSON object. Default: a report.", HR_OPT_FLAG, &o->json},
    };
    const struct hr_command_line cl = {
        "verify", "",
        "Tells whether a model can be trusted here: the prompt as it sees it, its tokens and logits beside those of "
        "transformers, and what bf16 costs on your prompts. Exit code 0: all bounds are kept; 3: one is broken.",
        opts, HR_N_OPTS(opts), 0, 0};
    int n_args;
    if (!hr_options_parse(&cl, argc, argv, &n_args, code)) return false;
    const struct verify_bounds *d = &default_bounds[o->dtype];
    if (!o->has_top1) o->bounds.top1 = d->top1;
    if (!o->has_kl) o->bounds.kl = d->kl;
    if (!o->has_lead) o->bounds.lead = d->lead;
    return true;
}

/* A file of lines. A pipe has an end, too; a device such as /dev/zero may have none. */
static enum hr_status check_file(const char *path, struct hr_err *err) {
    struct stat sb;
    if (stat(path, &sb) < 0) return hr_err_set(err, HR_ERR_NOTFOUND, "%s: %s", path, strerror(errno));
    if (S_ISDIR(sb.st_mode)) return hr_err_set(err, HR_ERR_CONFIG, "%s: is a directory; name a file of it", path);
    if (S_ISREG(sb.st_mode) || S_ISFIFO(sb.st_mode)) return HR_OK;
    return hr_err_set(err, HR_ERR_CONFIG, "%s: is not a regular file", path);
}

/* In the order in which a mistake is cheapest to find. */
static enum hr_status verify_all(struct verify *v, struct hr_err *err) {
    uint8_t digest[32];
    enum hr_status st;
    if (!v->o.model) return hr_err_set(err, HR_ERR_CONFIG, "give --model PATH");
    if ((st = hr_cmd_parse_cpu_mask(v->o.cpu_mask, &v->cpu_mask, err)) ||
        (v->o.against && (st = check_file(v->o.against, err))) ||
        (v->o.prompts && (st = check_file(v->o.prompts, err))) ||
        (st = hr_model_file_open(v->o.model, &v->mf, err)) || (st = hr_model_text_open(v->mf, NULL, &v->text, err)))
        return st;
    hr_model_file_fingerprint(v->mf, digest);
    hr_hex(digest, 32, v->model_hash);
    if ((v->o.against && (st = verify_read_goldens(v, err))) || (st = verify_read_prompts(v, err))) return st;
    int n_threads = v->o.threads ? (int)v->o.threads : hr_pool_usable_cores();
    if ((st = hr_pool_create(n_threads, &v->pool, err))) return st;
    return verify_compute(v, err);
}

static void close_all(struct verify *v) {
    verify_result_finish(&v->kv);
    verify_result_finish(&v->f32_kv);
    verify_result_finish(&v->f32);
    verify_goldens_finish(&v->g);
    for (int i = 0; i < v->n_prompts; i++) verify_prompt_finish(&v->prompts[i]);
    free(v->prompts);
    hr_pool_destroy(&v->pool);
    hr_model_text_finish(&v->text);
    hr_model_file_close(&v->mf);
}

int hr_cmd_verify(int argc, char **argv) {
    struct verify v = {.o = {.limit = 8, .max_tokens = 64}};
    struct hr_err err;
    int code;
    if (!parse(&v.o, argc, argv, &code)) return code;
    enum hr_status st = verify_all(&v, &err);
    if (st) {
        hr_error("%s", err.msg);
        code = hr_cmd_exit_code(st);
    } else {
        bool ok = v.o.json ? verify_print_json(&v) : verify_print_text(&v);
        code = ok ? HR_EXIT_DONE : HR_EXIT_REJECTS;
    }
    close_all(&v);
    return code;
}

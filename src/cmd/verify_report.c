/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_report: what was found, as text or as one JSON object. A line that begins with "ok" or "FAIL" is a
 * bound that is kept or broken; the last line is the verdict. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cmd/verify_int.h"

#define SHOW_PARTINGS 3

static const struct verify_result *result_at(const struct verify *v, int i) {
    const struct verify_result *all[] = {&v->g.result, &v->kv, &v->f32};
    return all[i];
}
#define N_RESULTS 3

static bool equal_ok(const struct verify_equal *e) {
    return e->n_equal == e->n;
}

static bool partings_ok(const struct verify_result *r) {
    int n_part, n_sure;
    verify_count_partings(r, &n_part, &n_sure);
    return n_sure == 0;
}

static bool result_ok(const struct verify_result *r) {
    return verify_top1_ok(r) && verify_kl_ok(r) && partings_ok(r);
}

static bool all_ok(const struct verify *v) {
    bool ok = equal_ok(&v->g.text) && equal_ok(&v->g.ids);
    for (int i = 0; i < N_RESULTS; i++) ok = ok && result_ok(result_at(v, i));
    return ok;
}

static const char *mark(bool ok) {
    return ok ? "ok  " : "FAIL";
}

static double share(int n, int of) {
    return of ? 100.0 * n / of : 100.0;
}

/* A token's text in quotes. */
static void token_text(const struct verify *v, int32_t id, struct hr_buf *out) {
    struct hr_buf text = {0};
    hr_tokenizer_decode(v->text.tokenizer, &id, 1, false, &text);
    hr_buf_json_str(out, hr_buf_cstr(&text), text.len);
    hr_buf_finish(&text);
}

static void mean_kl(const struct verify_result *r, double *mean, double *rest) {
    *mean = r->n_positions ? r->kl_sum / r->n_positions : 0;
    *rest = r->n_positions ? r->rest_sum / r->n_positions : 0;
}

/* ---- text --------------------------------------------------------------------------------------- */

static void print_token(const struct verify *v, const char *what, int32_t id) {
    struct hr_buf text = {0};
    token_text(v, id, &text);
    printf("%s%d %.*s", what, id, (int)text.len, text.data);
    hr_buf_finish(&text);
}

static void print_model(const struct verify *v) {
    const struct hr_model_text *t = &v->text;
    printf("model      %s\n", hr_model_file_describe(v->mf));
    printf("           fingerprint %.16s", v->model_hash);
    if (*v->numerics) printf(", computed with %s on %d threads", v->numerics, hr_pool_n_threads(v->pool));
    printf("\ntokenizer  %d tokens, sha256 %.16s\n", hr_tokenizer_n_vocab(t->tokenizer), t->tokenizer_hash);
    if (t->chat_template) printf("template   %s, sha256 %.16s\n", t->template_origin, t->template_hash);
    else printf("template   none: prompts go as they are\n");
    if (t->bos_id >= 0) print_token(v, "bos        ", t->bos_id);
    else printf("bos        none");
    printf("%s\n", t->bos_id < 0 ? "" : t->add_bos ? ", before raw text" : ", not added by the tokenizer");
    for (int i = 0; i < t->n_eos; i++) print_token(v, i ? ", " : "ends with  ", t->eos_ids[i]);
    printf(t->n_eos ? "\n" : "ends with  nothing: answers go on to max_tokens\n");
}

static void print_oddities(const struct verify *v) {
    int n_round = 0, n_doubled = 0, n_lacking = 0;
    const struct verify_prompt *odd = NULL;
    for (int i = 0; i < v->n_prompts; i++) {
        const struct verify_prompt *p = &v->prompts[i];
        n_round += p->round_trip;
        n_doubled += p->doubled_bos;
        n_lacking += p->lacks_bos;
        if (!p->round_trip && !odd) odd = p;
    }
    printf("\n%d of %d prompts decode to the text that was encoded", n_round, v->n_prompts);
    if (odd) printf("; prompt %s differs from byte %zu on", odd->name, odd->differs_at);
    printf("\n");
    if (n_doubled)
        printf("warning: %d of %d prompts begin with BOS twice: the template writes it, and something else does too\n",
               n_doubled, v->n_prompts);
    if (n_lacking)
        printf("note: the tokenizer's files ask for BOS, and the template writes none in %d of %d prompts\n", n_lacking,
               v->n_prompts);
    if (v->n_bad_rows) printf("note: %lld rows cannot be prompts and were left out\n", (long long)v->n_bad_rows);
}

static void print_prompt(const struct verify *v) {
    const struct verify_prompt *p = &v->prompts[0];
    const struct hr_ids *ids = &p->made.ids;
    struct hr_buf text = {0};
    hr_cmd_prompt_visible(v->text.tokenizer, ids->data, ids->len, "\xe2\x9f\xa6", "\xe2\x9f\xa7", &text);
    printf("\nprompt %s, %zu tokens, as the model sees it; what is between \xe2\x9f\xa6 and \xe2\x9f\xa7 is a "
           "control token:\n",
           p->name, ids->len);
    fwrite(text.data, 1, text.len, stdout);
    if (!text.len || text.data[text.len - 1] != '\n') printf("\n");
    if (v->o.ids) {
        printf("ids:");
        for (size_t i = 0; i < ids->len; i++) printf(" %d", ids->data[i]);
        printf("\n");
    }
    hr_buf_finish(&text);
    print_oddities(v);
}

static void print_partings(const struct verify *v, const struct verify_result *r) {
    for (int i = 0, n = 0; i < r->n_cases && n < SHOW_PARTINGS; i++) {
        const struct verify_parting *p = &r->partings[i];
        if (!p->parts) continue;
        printf("       prompt %s, token %d of the answer: ", r->cases[i].name, p->position + 1);
        print_token(v, "", p->ours);
        print_token(v, " for the reference's ", p->reference);
        printf(", which leads by %.3g logits\n", p->lead);
        n++;
    }
}

static void print_result(const struct verify *v, const struct verify_result *r) {
    int n_part, n_sure, n_differ = r->n_positions - r->n_agree;
    double mean, rest;
    if (!r->n_cases) return;
    verify_count_partings(r, &n_part, &n_sure);
    mean_kl(r, &mean, &rest);
    printf("%s top-1 agreement %.2f %%: %d of %d positions differ (up to %d may: %.4g %%, and chance)\n",
           mark(verify_top1_ok(r)), share(r->n_agree, r->n_positions), n_differ, r->n_positions,
           verify_may_differ(r->bounds.top1, r->n_positions), 100 * (1 - r->bounds.top1));
    printf("%s mean KL %.2e (at most %g), largest %.2e", mark(verify_kl_ok(r)), mean, r->bounds.kl, r->kl_max);
    if (r->tops) printf("; a lower bound: tokens with %.3g %% of the probability count as one", 100 * rest);
    printf("\n%s greedy answers: %d of %d equal", mark(n_sure == 0), r->n_cases - n_part, r->n_cases);
    if (n_part)
        printf(", %d part, %d of them where the reference leads by %g logits or more", n_part, n_sure, r->bounds.lead);
    printf("\n");
    print_partings(v, r);
}

/* Beside a bounded result: the same numbers of what no run computes. */
static void print_beside(const struct verify_result *r) {
    int n_part, n_sure;
    double mean, rest;
    if (!r->n_cases) return;
    verify_count_partings(r, &n_part, &n_sure);
    mean_kl(r, &mean, &rest);
    printf("     (%s: %.2f %%, %d differ; mean KL %.2e, largest %.2e; %d of %d equal)\n", r->title,
           share(r->n_agree, r->n_positions), r->n_positions - r->n_agree, mean, r->kl_max, r->n_cases - n_part,
           r->n_cases);
}

static void print_equal(const char *what, const struct verify_equal *e) {
    printf("%s %s: %d of %d equal", mark(equal_ok(e)), what, e->n_equal, e->n);
    if (e->first.len) printf("; %.*s", (int)e->first.len, e->first.data);
    printf("\n");
}

bool verify_print_text(const struct verify *v) {
    print_model(v);
    print_prompt(v);
    if (v->o.against) {
        printf("\n%s (%.*s; %.*s)\n", v->o.against, (int)v->g.made_with.len, v->g.made_with.data, (int)v->g.note.len,
               v->g.note.data);
        print_equal("rendered text", &v->g.text);
        print_equal("token ids", &v->g.ids);
        print_result(v, &v->g.result);
    }
    for (int i = 1; i < N_RESULTS; i++) {
        if (!result_at(v, i)->n_cases) continue;
        printf("\n%s\n", result_at(v, i)->title);
        print_result(v, result_at(v, i));
    }
    print_beside(&v->f32_kv);
    if (v->o.dtype == 1 && v->o.precision != VERIFY_NONE)
        printf("\nprecision: --dtype f32 is itself what others are compared with\n");
    bool ok = all_ok(v), compared = v->o.against || v->kv.n_cases;
    const char *verdict = ok ? "all bounds are kept" : "a bound is BROKEN, see FAIL above";
    printf("\nverdict: %s\n", compared ? verdict : "nothing was compared");
    return ok;
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static const char *boolean(bool b) {
    return b ? "true" : "false";
}

static void json_text(struct hr_buf *j, const char *key, const char *s, size_t len) {
    hr_buf_printf(j, "\"%s\": ", key);
    hr_buf_json_str(j, s ? s : "", len);
}

static void json_model(const struct verify *v, struct hr_buf *j) {
    const struct hr_model_text *t = &v->text;
    const char *what = hr_model_file_describe(v->mf), *origin = t->template_origin ? t->template_origin : "";
    json_text(j, "model", what, strlen(what));
    hr_buf_printf(j, ", \"fingerprint\": \"%s\", \"numerics\": \"%s\", \"threads\": %d", v->model_hash, v->numerics,
                  hr_pool_n_threads(v->pool));
    hr_buf_printf(j, ", \"tokenizer\": {\"n_tokens\": %d, \"sha256\": \"%s\"}, \"template\": {",
                  hr_tokenizer_n_vocab(t->tokenizer), t->tokenizer_hash);
    json_text(j, "origin", origin, strlen(origin));
    hr_buf_printf(j, ", \"sha256\": \"%s\"}, \"bos\": %d, \"adds_bos\": %s, \"eos\": [", t->template_hash, t->bos_id,
                  boolean(t->add_bos));
    for (int i = 0; i < t->n_eos; i++) hr_buf_printf(j, "%s%d", i ? ", " : "", t->eos_ids[i]);
    hr_buf_puts(j, "]");
}

static void json_prompts(const struct verify *v, struct hr_buf *j) {
    hr_buf_printf(j, ", \"left_out\": %lld, \"prompts\": [", (long long)v->n_bad_rows);
    for (int i = 0; i < v->n_prompts; i++) {
        const struct verify_prompt *p = &v->prompts[i];
        hr_buf_printf(j, "%s{\"id\": %s, ", i ? ", " : "", p->name);
        json_text(j, "rendered", p->made.rendered.text.data, p->made.rendered.text.len);
        hr_buf_puts(j, ", \"ids\": [");
        for (size_t k = 0; k < p->made.ids.len; k++) hr_buf_printf(j, "%s%d", k ? ", " : "", p->made.ids.data[k]);
        hr_buf_printf(j, "], \"round_trip\": %s, \"doubled_bos\": %s, \"lacks_bos\": %s}", boolean(p->round_trip),
                      boolean(p->doubled_bos), boolean(p->lacks_bos));
    }
    hr_buf_puts(j, "]");
}

static void json_equal(const char *key, const struct verify_equal *e, struct hr_buf *j) {
    hr_buf_printf(j, ", \"%s\": {\"n\": %d, \"equal\": %d, \"ok\": %s, ", key, e->n, e->n_equal,
                  boolean(equal_ok(e)));
    json_text(j, "first", e->first.data, e->first.len);
    hr_buf_puts(j, "}");
}

static void json_partings(const struct verify *v, const struct verify_result *r, struct hr_buf *j) {
    hr_buf_puts(j, "[");
    for (int i = 0, n = 0; i < r->n_cases; i++) {
        const struct verify_parting *p = &r->partings[i];
        if (!p->parts) continue;
        hr_buf_printf(j, "%s{\"prompt\": %s, \"position\": %d, \"ours\": %d, \"ours_text\": ", n++ ? ", " : "",
                      r->cases[i].name, p->position, p->ours);
        token_text(v, p->ours, j);
        hr_buf_printf(j, ", \"reference\": %d, \"reference_text\": ", p->reference);
        token_text(v, p->reference, j);
        hr_buf_printf(j, ", \"lead\": %.6g}", p->lead);
    }
    hr_buf_puts(j, "]");
}

static void json_result(const struct verify *v, const struct verify_result *r, struct hr_buf *j) {
    int n_part, n_sure;
    double mean, rest;
    verify_count_partings(r, &n_part, &n_sure);
    mean_kl(r, &mean, &rest);
    hr_buf_printf(j, "{\"name\": \"%s\", \"positions\": %d, \"agree\": %d, \"may_differ\": %d, \"top1_ok\": %s",
                  r->name, r->n_positions, r->n_agree, verify_may_differ(r->bounds.top1, r->n_positions),
                  boolean(verify_top1_ok(r)));
    hr_buf_printf(j, ", \"kl_mean\": %.6g, \"kl_max\": %.6g, \"kl_is_lower_bound\": %s, \"rest\": %.6g, \"kl_ok\": %s",
                  mean, r->kl_max, boolean(r->tops), rest, boolean(verify_kl_ok(r)));
    hr_buf_printf(j, ", \"answers\": %d, \"equal\": %d, \"part_sure\": %d, \"answers_ok\": %s", r->n_cases,
                  r->n_cases - n_part, n_sure, boolean(n_sure == 0));
    hr_buf_printf(j, ", \"bounds\": {\"top1\": %g, \"kl\": %g, \"lead\": %g}, \"partings\": ", r->bounds.top1,
                  r->bounds.kl, r->bounds.lead);
    json_partings(v, r, j);
    hr_buf_puts(j, "}");
}

bool verify_print_json(const struct verify *v) {
    struct hr_buf j = {0};
    bool ok = all_ok(v);
    hr_buf_puts(&j, "{");
    json_model(v, &j);
    json_prompts(v, &j);
    if (v->o.against) {
        hr_buf_puts(&j, ", \"goldens\": {");
        json_text(&j, "path", v->o.against, strlen(v->o.against));
        hr_buf_puts(&j, ", ");
        json_text(&j, "made_with", v->g.made_with.data, v->g.made_with.len);
        hr_buf_puts(&j, ", ");
        json_text(&j, "identity", v->g.note.data, v->g.note.len);
        json_equal("text", &v->g.text, &j);
        json_equal("ids", &v->g.ids, &j);
        hr_buf_puts(&j, "}");
    }
    hr_buf_puts(&j, ", \"comparisons\": [");
    for (int i = 0, n = 0; i < N_RESULTS; i++) {
        if (!result_at(v, i)->n_cases) continue;
        hr_buf_puts(&j, n++ ? ", " : "");
        json_result(v, result_at(v, i), &j);
    }
    if (v->f32_kv.n_cases) {
        hr_buf_puts(&j, ", ");
        json_result(v, &v->f32_kv, &j);
    }
    hr_buf_printf(&j, "], \"ok\": %s}\n", boolean(ok));
    fwrite(j.data, 1, j.len, stdout);
    hr_buf_finish(&j);
    return ok;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * run_canary: --canary 1/N: one committed row in N is computed again from its prompt, without anything that is
 * cached, and its tokens are compared with those that were written. A difference means that this machine or
 * this program does not keep the promise of the same bytes, so it is an alarm: in the log, in the summary, in
 * `status` and in the exit code.
 *
 * Which rows: a hash of identity and sample, so time and chance do not choose, and who was in flight on a
 * prefix that was found wrong. A canary is the sample itself, kept after its commit in the dataset's list of
 * canaries; the intake counts it among the samples that it reads ahead, so that all of them together are as
 * many as without canaries, however slow these are. It holds no row back: its row is committed, its tokens
 * count nowhere, and a stop or a kill drops it for good. The row stays as it was committed, too: which of the
 * two is right, this file does not know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/log.h"
#include "cmd/run_int.h"

#define NAMED_MAX 8  /* suspects by name: a line of the log has room for no more */
#define N_MAX     1000000000

enum hr_status run_canary_parse(const char *s, int64_t *n, struct hr_err *err) {
    char *end;
    *n = 0;
    if (!s || strcmp(s, "0") == 0) return HR_OK;
    bool ok = strncmp(s, "1/", 2) == 0 && s[2] >= '1' && s[2] <= '9';
    long long v = ok ? strtoll(s + 2, &end, 10) : 0;
    if (!ok || *end || v > N_MAX)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "--canary expects 1/N, such as 1/100 for one row in a hundred, or 0 for none, got '%s'", s);
    *n = v;
    return HR_OK;
}

static bool picked(const struct sample *s) {
    const struct row *row = s->row;
    const struct run *r = row->ds->run;
    if (r->canary_n == 0 || r->stopping) return false;
    /* Its first tokens were computed with other bits, and nobody promised that they are the same. */
    if (row->ds->mixed_numerics && s->resumed.len > 0) return false;
    uint8_t key[16];
    uint64_t h;
    run_key("canary", row->record.ident, 16, row->occurrence, s->index, key);
    memcpy(&h, key, sizeof h);
    return s->suspect || h % (uint64_t)r->canary_n == 0;
}

bool run_canary_take(struct sample *s) {
    struct dataset *ds = s->row->ds;
    if (!picked(s)) return false;
    s->request.resumed = NULL;
    s->request.n_resumed = 0;
    s->request.canary = s->tokens.data;
    s->request.n_canary = (int)s->tokens.len;
    s->request.canary_finish = s->end.finish;
    s->request.canary_stop_index = s->end.stop_index;
    ds->counters.canaries_picked++;
    list_push(&ds->canaries, s);
    HR_ASSERT(hr_engine_submit(ds->run->engine, &s->request)); /* it has fitted before */
    return true;
}

static void put_name(const struct sample *s, struct hr_buf *out) {
    hr_buf_printf(out, "%s row ", s->row->ds->m->dataset);
    run_put_id(s->row, out);
    hr_buf_printf(out, " sample %d", s->index);
}

void run_canary_suspect(struct run *r, struct sample *s) {
    s->suspect = true;
    if (r->n_suspects++ >= NAMED_MAX) return;
    if (r->suspects.len) hr_buf_puts(&r->suspects, "; ");
    put_name(s, &r->suspects);
}

/* Where the two part, in words. */
static void put_difference(const struct sample *s, const struct hr_event *ev, struct hr_buf *out) {
    int n = ev->n_tokens;
    if (n == (int)s->tokens.len) hr_buf_puts(out, "all its tokens are the same, but it ends in another way now");
    else if (ev->token >= 0)
        hr_buf_printf(out, "completion token %d is %d in the row and %d now", n, s->tokens.data[n], ev->token);
    else if (ev->finish == HR_FINISH_NUMERIC)
        hr_buf_printf(out, "completion token %d is %d in the row, and its logits are not finite now", n,
                      s->tokens.data[n]);
    else
        hr_buf_printf(out, "completion token %d is %d in the row, which ends before it now", n, s->tokens.data[n]);
}

static void alarm(struct run *r, const struct sample *s, const struct hr_event *ev) {
    struct hr_buf name = {0}, what = {0};
    put_name(s, &name);
    put_difference(s, ev, &what);
    hr_error("CANARY: %s is not the same when it is computed again: %s", hr_buf_cstr(&name), hr_buf_cstr(&what));
    if (s->row->ds->counters.canaries_failed == 1)
        hr_warn("the row stays as it is written, and what begins like it has left the KV cache; look for bad memory, "
                "and answer the dataset again into another --out");
    if (r->n_suspects > 0)
        hr_warn("%d rows in flight began with the same page and are checked when they are committed: %s%s",
                r->n_suspects, hr_buf_cstr(&r->suspects), r->n_suspects > NAMED_MAX ? "; ..." : "");
    hr_buf_clear(&r->suspects);
    r->n_suspects = 0;
    hr_buf_finish(&name);
    hr_buf_finish(&what);
}

void run_canary_checked(struct run *r, struct sample *s, const struct hr_event *ev) {
    struct dataset *ds = s->row->ds;
    ds->counters.canaries_checked++;
    if (!ev->same) {
        ds->counters.canaries_failed++;
        alarm(r, s, ev);
    }
    list_remove(&ds->canaries, s);
    sample_free(s);
}

int run_canaries_left(const struct run *r) {
    int n = 0;
    for (int i = 0; i < r->n_datasets; i++) n += r->datasets[i].canaries.n;
    return n;
}

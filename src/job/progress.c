/* SPDX-License-Identifier: Apache-2.0
 *
 * progress: see progress.h. The periodic line begins with the fields that people already grep for
 * in the logs of inference servers, in their order and spelling; ours follow behind them. */
#include "job/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"

#define BAR_MIN  8
#define BAR_MAX  30
#define LIVE_MAX 240 /* columns */
#define TEXT_MAX 240 /* bytes of a name or phase: log.c keeps 511 of the whole line */

/* ---- rate ---- */

void hr_rate_add(struct hr_rate *r, int64_t now_ns, int64_t total) {
    int last = (r->head + HR_RATE_POINTS - 1) % HR_RATE_POINTS;
    bool close = r->n >= 2 && now_ns - r->at_ns[(last + HR_RATE_POINTS - 1) % HR_RATE_POINTS] <
                                  HR_RATE_WINDOW_NS / HR_RATE_POINTS;
    if (!close) {
        last = r->head;
        r->head = (r->head + 1) % HR_RATE_POINTS;
        if (r->n < HR_RATE_POINTS) r->n++;
    }
    r->at_ns[last] = now_ns;
    r->total[last] = total;
}

double hr_rate_per_s(const struct hr_rate *r, int64_t now_ns) {
    int newest = (r->head + HR_RATE_POINTS - 1) % HR_RATE_POINTS, oldest = -1;
    for (int k = 1; k < r->n; k++) { /* back from the newest point while inside the window */
        int i = (newest + HR_RATE_POINTS - k) % HR_RATE_POINTS;
        if (now_ns - r->at_ns[i] > HR_RATE_WINDOW_NS) break;
        oldest = i;
    }
    if (oldest < 0 || now_ns <= r->at_ns[oldest]) return 0;
    /* Up to now, not up to the newest point: a run that stands still is shown to slow down. */
    return (double)(r->total[newest] - r->total[oldest]) * 1e9 /
           (double)(now_ns - r->at_ns[oldest]);
}

/* The rows that end first are the short ones: while few have ended, what all have produced so far
 * says more about the mean. A row in flight has half a mean to go at least, however long it is. */
static double tokens_left(const struct hr_progress *p, int64_t rows_left) {
    double n_flying = (double)(p->running < rows_left ? p->running : rows_left);
    double inflight = (double)p->inflight_tokens, completed = (double)p->completion_tokens;
    double mean = completed / (double)p->rows_done;
    double mean_min = (completed + inflight) / ((double)p->rows_done + n_flying);
    if (mean < mean_min) mean = mean_min;
    double to_go = n_flying > 0 ? mean - inflight / n_flying : 0;
    if (to_go < mean / 2) to_go = mean / 2;
    return ((double)rows_left - n_flying) * mean + n_flying * to_go;
}

double hr_progress_eta_s(const struct hr_progress *p) {
    int64_t rows_left = p->rows_total - p->rows_done - p->rejects;
    if (p->rows_total >= 0 && rows_left <= 0) return 0;
    if (p->tok_s <= 0) return -1;
    double left = -1;
    if (p->rows_total >= 0 && p->rows_done > 0) {
        left = tokens_left(p, rows_left);
    } else if (p->rows_total >= 0 && p->expected_tokens > 0) {
        left = (double)(p->expected_tokens > p->inflight_tokens ? p->expected_tokens - p->inflight_tokens : 0);
    }
    if (p->cap_tokens > 0) {
        double to_cap = (double)(p->cap_tokens - p->completion_tokens - p->inflight_tokens);
        if (to_cap < 0) to_cap = 0;
        if (left < 0 || to_cap < left) left = to_cap;
    }
    return left < 0 ? -1 : left / p->tok_s;
}

/* ---- words and numbers ---- */

void hr_format_duration(double seconds, struct hr_buf *out) {
    if (!(seconds >= 0)) {
        hr_buf_putc(out, '?');
        return;
    }
    if (seconds < 9.95) {
        hr_buf_printf(out, "%.1fs", seconds);
        return;
    }
    int64_t s = seconds < 9e15 ? (int64_t)(seconds + 0.5) : INT64_C(9000000000000000);
    if (s < 60)
        hr_buf_printf(out, "%ds", (int)s);
    else if (s < 3600)
        hr_buf_printf(out, "%dm%02ds", (int)(s / 60), (int)(s % 60));
    else if (s < 86400)
        hr_buf_printf(out, "%dh%02dm", (int)(s / 3600), (int)(s % 3600 / 60));
    else
        hr_buf_printf(out, "%lldd%02dh", (long long)(s / 86400), (int)(s % 86400 / 3600));
}

void hr_format_count(int64_t n, struct hr_buf *out) {
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++) {
        hr_buf_putc(out, digits[i]);
        int behind = len - 1 - i;
        if (behind > 0 && behind % 3 == 0 && digits[i] != '-') hr_buf_putc(out, ',');
    }
}

void hr_format_noun(int64_t n, const char *noun, struct hr_buf *out) {
    hr_format_count(n, out);
    hr_buf_printf(out, " %s%s", noun, n == 1 ? "" : "s");
}

static void put_rows(const struct hr_progress *p, struct hr_buf *out) {
    if (p->rows_total >= 0)
        hr_buf_printf(out, "%lld/%lld", (long long)p->rows_done, (long long)p->rows_total);
    else
        hr_buf_printf(out, "%lld/?", (long long)p->rows_done);
}

static double kv_usage(const struct hr_progress *p) {
    return p->kv_total_tokens > 0 ? (double)p->kv_used_tokens / (double)p->kv_total_tokens : 0;
}

/* ---- the two lines ---- */

void hr_progress_periodic(const struct hr_progress *p, struct hr_buf *out) {
    if (p->phase) {
        hr_buf_printf(out, "%s: %s", p->dataset, p->phase);
        return;
    }
    hr_buf_printf(out,
                  "Decode batch, #running-req: %lld, #token: %lld, token usage: %.2f, "
                  "gen throughput (token/s): %.2f, #queue-req: %lld, rows: ",
                  (long long)p->running, (long long)p->kv_used_tokens, kv_usage(p), p->tok_s,
                  (long long)p->queued);
    put_rows(p, out);
    if (p->rejects > 0) hr_buf_printf(out, ", rejects: %lld", (long long)p->rejects);
    hr_buf_puts(out, ", ETA: ");
    hr_format_duration(hr_progress_eta_s(p), out);
}

static bool is_continuation(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

static int columns(const char *s, size_t len) {
    int n = 0;
    for (size_t i = 0; i < len; i++) n += !is_continuation(s[i]);
    return n;
}

/* Appends at most `width` characters of s, never half a one. */
static void put_cut(const char *s, int width, struct hr_buf *out) {
    size_t len = 0;
    while (s[len] && len + 4 <= TEXT_MAX && width-- > 0) {
        len++;
        while (is_continuation(s[len]) && len < TEXT_MAX) len++;
    }
    for (size_t i = 0; i < len; i++) /* a newline or escape in a path must not move the cursor */
        hr_buf_putc(out, (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i]);
}

static void put_bar(double share, int width, struct hr_buf *out) {
    int inner = width - 2, filled = (int)(share * inner + 1e-9);
    hr_buf_putc(out, '[');
    for (int i = 0; i < inner; i++) hr_buf_putc(out, i < filled ? '=' : i == filled ? '>' : ' ');
    hr_buf_putc(out, ']');
}

/* The pieces of the live line in their order on it; `rank` says which goes first when it is narrow
 * (the highest). */
enum { PIECE_ROWS, PIECE_RATE, PIECE_RUNNING, PIECE_QUEUED, PIECE_KV, PIECE_ETA, N_PIECES };
static const int piece_rank[N_PIECES] = {0, 2, 4, 5, 3, 1};

static void make_pieces(const struct hr_progress *p, struct hr_buf pieces[N_PIECES]) {
    put_rows(p, &pieces[PIECE_ROWS]);
    hr_buf_printf(&pieces[PIECE_RATE], "  %.*f tok/s", p->tok_s < 99.95 ? 1 : 0, p->tok_s);
    hr_buf_printf(&pieces[PIECE_RUNNING], "  %lld running", (long long)p->running);
    hr_buf_printf(&pieces[PIECE_QUEUED], "  %lld queued", (long long)p->queued);
    hr_buf_printf(&pieces[PIECE_KV], "  KV %.0f%%", 100 * kv_usage(p));
    hr_buf_puts(&pieces[PIECE_ETA], "  ETA ");
    hr_format_duration(hr_progress_eta_s(p), &pieces[PIECE_ETA]);
}

void hr_progress_live(const struct hr_progress *p, int width, struct hr_buf *out) {
    struct hr_buf pieces[N_PIECES] = {{0}};
    bool drop[N_PIECES] = {false};
    if (width > LIVE_MAX) width = LIVE_MAX;
    if (width < 20) width = 20;
    size_t begin = out->len;
    put_cut(p->dataset, width / 3, out);
    hr_buf_puts(out, "  ");
    int used = columns(out->data + begin, out->len - begin);
    if (p->phase) {
        put_cut(p->phase, width - used, out);
        return;
    }
    make_pieces(p, pieces);
    for (int i = 0; i < N_PIECES; i++) used += (int)pieces[i].len;
    for (int rank = N_PIECES - 1; rank > 0 && used > width; rank--)
        for (int i = 0; i < N_PIECES; i++)
            if (piece_rank[i] == rank) drop[i] = true, used -= (int)pieces[i].len;
    int bar = width - used - 1;
    if (p->rows_total > 0 && bar >= BAR_MIN) {
        put_bar((double)(p->rows_done + p->rejects) / (double)p->rows_total,
                bar < BAR_MAX ? bar : BAR_MAX, out);
        hr_buf_putc(out, ' ');
    }
    for (int i = 0; i < N_PIECES; i++) {
        if (!drop[i]) hr_buf_append(out, pieces[i].data, pieces[i].len);
        hr_buf_finish(&pieces[i]);
    }
}

bool hr_progress_is_live(void) {
    const char *term = getenv("TERM");
    return isatty(2) && term && strcmp(term, "dumb") != 0;
}

void hr_progress_show(const struct hr_progress *p) {
    struct hr_buf line = {0};
    if (hr_progress_is_live()) {
        struct winsize ws;
        int width = ioctl(2, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0 ? ws.ws_col : 80;
        hr_progress_live(p, width - 1, &line); /* the last column makes some terminals wrap */
        hr_log_set_live(hr_buf_cstr(&line));
    } else {
        hr_progress_periodic(p, &line);
        hr_info("%s", hr_buf_cstr(&line));
    }
    hr_buf_finish(&line);
}

void hr_progress_record(const struct hr_progress *p) {
    struct hr_buf line = {0};
    hr_progress_periodic(p, &line);
    hr_log_quiet(HR_LOG_INFO, hr_buf_cstr(&line));
    hr_buf_finish(&line);
}

/* ---- the summary ---- */

static void put_counts(const struct hr_summary *s, struct hr_buf *out) {
    hr_buf_printf(out, "%s: %s, ", s->dataset, s->how);
    hr_format_count(s->rows_done, out);
    if (s->rows_total >= 0) hr_buf_puts(out, " of ");
    if (s->rows_total >= 0) hr_format_count(s->rows_total, out);
    bool one = s->rows_total < 0 ? s->rows_done == 1 : s->rows_total == 1;
    hr_buf_puts(out, one ? " row, " : " rows, ");
    hr_format_count(s->rejects, out);
    hr_buf_puts(out, " rejected");
    if (s->numeric_errors > 0)
        hr_buf_printf(out, " (%lld because of NaN or infinite numbers)",
                      (long long)s->numeric_errors);
}

static void put_cap(const struct hr_summary *s, struct hr_buf *out) {
    int64_t off = s->completion_tokens - s->cap_tokens;
    hr_buf_puts(out, "\n  cap        ");
    hr_format_noun(s->cap_tokens, "token", out);
    hr_buf_puts(out, ", ");
    hr_format_count(off < 0 ? -off : off, out);
    hr_buf_printf(out, " %s it (%.2f %%), ", off > 0 ? "above" : "below",
                  100.0 * (double)(off < 0 ? -off : off) / (double)s->cap_tokens);
    hr_format_noun(s->over_cap, "row", out);
    hr_buf_puts(out, " over the cap");
}

static void put_canaries(const struct hr_summary *s, struct hr_buf *out) {
    hr_buf_puts(out, "\n  canaries   ");
    hr_format_count(s->canaries_checked, out);
    hr_buf_puts(out, " of ");
    hr_format_noun(s->canaries_picked, "picked row", out);
    hr_buf_puts(out, " computed again, ");
    hr_format_count(s->canaries_failed, out);
    hr_buf_puts(out, s->canaries_failed > 0 ? " DIFFER: see run.log" : " differ");
    if (s->canaries_checked >= s->canaries_picked) return;
    /* A stop or a kill drops them for good, which must not look like success. */
    hr_buf_puts(out, ", ");
    hr_format_count(s->canaries_picked - s->canaries_checked, out);
    hr_buf_puts(out, " not checked: the run was stopped before");
}

/* A line of the input is named when it is met, far above this in a long run: here is where to look. */
static void put_rejects(const struct hr_summary *s, struct hr_buf *out) {
    int64_t more = s->rejects - s->rejects_named;
    hr_buf_puts(out, "\n  rejects    ");
    if (s->rejects_named > 0) hr_format_count(s->rejects_named, out);
    if (s->rejects_named > 0) hr_buf_puts(out, more > 0 ? " named above, and " : " named above; see ");
    if (more > 0) hr_format_count(more, out);
    if (more > 0) hr_buf_puts(out, s->rejects_named > 0 ? " more, see " : ", see ");
    hr_log_visible(s->dir, out);
    hr_buf_puts(out, "/rejects.jsonl");
}

static void put_length(const struct hr_summary *s, struct hr_buf *out) {
    hr_buf_puts(out, "\n  length     ");
    hr_format_count(s->rows_length, out);
    hr_buf_putc(out, '/');
    hr_format_noun(s->rows_done, "row", out);
    hr_buf_puts(out, " ended in length (max_tokens or the context)");
    if (s->rows_repetitive == 0) return;
    hr_buf_puts(out, ", ");
    hr_format_count(s->rows_repetitive, out);
    hr_buf_puts(out, " of them repetitive");
}

static void put_this_run(const struct hr_summary *s, struct hr_buf *out) {
    hr_buf_puts(out, "\n  this run   ");
    hr_format_noun(s->run_rows, "row", out);
    hr_buf_puts(out, ", ");
    hr_format_noun(s->run_tokens, "token", out);
    hr_buf_puts(out, " in ");
    hr_format_duration((double)s->active_ns / 1e9, out);
    if (s->active_ns > 0)
        hr_buf_printf(out, ", %.1f tok/s", (double)s->run_tokens * 1e9 / (double)s->active_ns);
    if (s->resumed_tokens == 0) return;
    hr_buf_puts(out, "\n  resumed    ");
    hr_format_noun(s->resumed_tokens, "token", out);
    hr_buf_puts(out, " of ");
    hr_format_noun(s->resumed_rows, "unfinished row", out);
}

void hr_summary_format(const struct hr_summary *s, struct hr_buf *out) {
    put_counts(s, out);
    hr_buf_puts(out, "\n  tokens     ");
    hr_format_count(s->prompt_tokens, out);
    hr_buf_puts(out, " prompt, ");
    hr_format_count(s->completion_tokens, out);
    hr_buf_puts(out, " completion");
    if (s->rows_done > 0)
        hr_buf_printf(out, ", %.1f a row", (double)s->completion_tokens / (double)s->rows_done);
    if (s->rows_done > 0) put_length(s, out);
    put_this_run(s, out);
    if (s->cap_tokens > 0) put_cap(s, out);
    if (s->canaries_picked > 0) put_canaries(s, out);
    if (s->rejects > 0) put_rejects(s, out);
    hr_buf_puts(out, "\n  files      ");
    hr_log_visible(s->dir, out); /* a newline in it would end our line */
    hr_buf_puts(out, "/raw_responses.jsonl");
}

void hr_summary_log(const struct hr_summary *s) {
    struct hr_buf text = {0};
    hr_summary_format(s, &text);
    hr_buf_cstr(&text);
    for (char *line = text.data, *end; line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end) *end = 0;
        hr_info("%s", line);
    }
    hr_buf_finish(&text);
}

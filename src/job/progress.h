/* SPDX-License-Identifier: Apache-2.0
 *
 * progress: how far a run is, as text: the live line of a terminal, the periodic line of anything
 * else, and the summary at the end.
 *
 * Formatting is pure: the state is a struct that the caller fills, time is an argument. Only
 * hr_progress_show and hr_progress_record let anybody see it, through base/log. */
#ifndef HR_JOB_PROGRESS_H
#define HR_JOB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Tokens a second over the last HR_RATE_WINDOW_NS: a ring of (time, total). Zeroed is valid. */
#define HR_RATE_WINDOW_NS INT64_C(10000000000) /* smooths prefills, follows changes */
#define HR_RATE_POINTS    64
struct hr_rate {
    int64_t at_ns[HR_RATE_POINTS], total[HR_RATE_POINTS];
    int n, head; /* points held; the next one goes to head */
};
/* `total` never falls. Points that come closer than a 64th of the window replace the last one. */
void hr_rate_add(struct hr_rate *r, int64_t now_ns, int64_t total);
/* 0 while there are fewer than two points in the window. */
double hr_rate_per_s(const struct hr_rate *r, int64_t now_ns);

struct hr_progress {
    const char *dataset; /* name, or "3 datasets"; borrowed */
    const char *phase;   /* "loading weights 43 %", "paused: no space left"; NULL: generating */
    /* Samples finished over all runs, and there to do (-1: not known yet). */
    int64_t rows_done, rows_total;
    int64_t n_length, rejects; /* of them ended in `length`; rejected */
    int64_t prompt_tokens, completion_tokens; /* of finished rows, over all runs */
    int64_t inflight_tokens; /* completion tokens of the rows that run or wait half-done */
    int64_t expected_tokens; /* completion tokens that all missing rows will bring, as somebody said before any had
                              * finished; 0: nobody did */
    int64_t cap_tokens;      /* max_tokens_per_dataset, 0: none */
    int64_t running, queued;
    int64_t kv_used_tokens, kv_total_tokens;
    double tok_s; /* hr_rate_per_s of sampled tokens */
    int64_t elapsed_ns;
};

/* Seconds to the end: what the missing rows will take at the mean completion length so far (before one
 * has finished, as expected), less what is in flight, or until the cap when that comes first; -1: not known. */
double hr_progress_eta_s(const struct hr_progress *p);

/* One line without newline of at most `width` columns (at least 20 are assumed): what matters least
 * goes first when it is narrow. */
void hr_progress_live(const struct hr_progress *p, int width, struct hr_buf *out);
/* "Decode batch, #running-req: 72, #token: 153179, token usage: 0.96, gen throughput (token/s):
 * 930.63, #queue-req: 79, rows: 12/164, ETA: 3m12s"; in a phase "demo: loading weights 43 %". */
void hr_progress_periodic(const struct hr_progress *p, struct hr_buf *out);

/* Shows the state: live line if stderr is a terminal, periodic line otherwise. */
void hr_progress_show(const struct hr_progress *p);
/* Gives the periodic line to run.log alone: for runs with a live line, which is not logged. */
void hr_progress_record(const struct hr_progress *p);
bool hr_progress_is_live(void); /* is stderr a terminal? (TERM=dumb counts as none) */

struct hr_summary {
    const char *dataset, *how; /* "done", "interrupted", "stopped at the cap", ... */
    const char *dir;           /* where the files are */
    int64_t rows_done, rows_total, rows_length, rejects, numeric_errors; /* total -1: not known */
    int64_t rejects_named;   /* of the rejects, those that this run has said by line and reason */
    int64_t rows_repetitive; /* of rows_length */
    int64_t over_cap;                         /* rows that were not begun because of the cap */
    int64_t prompt_tokens, completion_tokens; /* of finished rows, over all runs */
    int64_t cap_tokens;                       /* 0: none */
    int64_t resumed_tokens, resumed_rows;     /* taken over from the journal by this run */
    int64_t canaries_picked, canaries_checked, canaries_failed; /* over all runs */
    int64_t run_rows, run_tokens; /* finished and sampled in this run */
    int64_t active_ns;            /* its time, the load of the model left out */
};
/* Lines separated by newlines, none at the end. */
void hr_summary_format(const struct hr_summary *s, struct hr_buf *out);
/* Logs it, a line at a time. */
void hr_summary_log(const struct hr_summary *s);

/* "3m12s", "1h02m", "2d03h", "0.4s"; "?" when negative. */
void hr_format_duration(double seconds, struct hr_buf *out);
/* 1234567 as "1,234,567". */
void hr_format_count(int64_t n, struct hr_buf *out);
/* 2 and "row" as "2 rows", 1 as "1 row". */
void hr_format_noun(int64_t n, const char *noun, struct hr_buf *out);

#endif

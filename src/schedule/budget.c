/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: a survival curve of completion lengths, and the rule; see budget.h. */
#include "schedule/budget.h"

#include <math.h>
#include <string.h>

/* Standard deviations kept free: rows in flight that turn out long cannot be undone, short ones can be
 * made up for. With two, 8 of 100 simulated runs with rows of two very different lengths ended more than
 * ten rows over the cap. */
#define SPREAD 3

/* Finished rows beyond a length that make the curve there worth more than the overall rate. */
#define ENOUGH_ROWS 100

static int bin_of(double n) {
    double b = n < HR_BUDGET_EXACT ? n : HR_BUDGET_EXACT + 64 * log2(n / HR_BUDGET_EXACT);
    return b < 0 ? 0 : b >= HR_BUDGET_BINS ? HR_BUDGET_BINS - 1 : (int)b;
}

static double bin_begin(int b) {
    return b <= HR_BUDGET_EXACT ? b : HR_BUDGET_EXACT * exp2((b - HR_BUDGET_EXACT) / 64.0);
}

void hr_budget_init(struct hr_budget *b, int64_t cap) {
    memset(b, 0, sizeof *b);
    b->cap = cap;
}

void hr_budget_rows(struct hr_budget *b, int n_completion, int64_t n_rows) {
    b->finished += n_completion * n_rows;
    b->n_rows += n_rows;
    b->bin_rows[bin_of(n_completion)] += n_rows;
}

void hr_budget_flight_clear(struct hr_budget *b) {
    b->n_flight = b->flight_now = b->flight_known = 0;
    memset(b->flight_rows, 0, sizeof b->flight_rows);
    memset(b->flight_tokens, 0, sizeof b->flight_tokens);
    memset(b->flight_max, 0, sizeof b->flight_max);
}

void hr_budget_flight_add(struct hr_budget *b, int n_now, int n_max) {
    if (n_now >= n_max) {
        b->flight_known += n_now;
        return;
    }
    int i = bin_of(n_now);
    b->n_flight++;
    b->flight_now += n_now;
    b->flight_rows[i]++;
    b->flight_tokens[i] += n_now;
    b->flight_max[i] += n_max;
}

/* Chance that a row is longer than what lies before each bin; rows in flight count as long as they have
 * lasted. Only the bins up to the last one with a finished row are filled. */
struct curve {
    double alive[HR_BUDGET_BINS + 1];
    double begin[HR_BUDGET_BINS + 1];  /* tokens at the start of each bin */
    double sum[HR_BUDGET_BINS + 1];    /* integral of the chance from there on, mean's tail included */
    double moment[HR_BUDGET_BINS + 1]; /* integral of 2 t times the chance, likewise */
    int64_t beyond[HR_BUDGET_BINS + 1]; /* finished rows in this bin or a later one */
    double mean; /* tokens that a row brings, by the overall rate of endings */
    int n_bins;
};

/* The mean chance over a bin: rows end evenly in it; with bins of one token, after those that end there. */
static double bin_chance(const struct curve *c, int i) {
    double width = c->begin[i + 1] - c->begin[i];
    return c->alive[i + 1] + (c->alive[i] - c->alive[i + 1]) * (1 - 1 / width) / 2;
}

static void make_curve(const struct hr_budget *b, struct curve *c) {
    double at_risk = (double)(b->n_rows + b->n_flight);
    c->n_bins = HR_BUDGET_BINS;
    while (c->n_bins > 0 && !b->bin_rows[c->n_bins - 1]) c->n_bins--;
    c->alive[0] = 1;
    c->begin[0] = 0;
    c->beyond[0] = b->n_rows;
    c->mean = (double)(b->finished + b->flight_now + 1) / (double)b->n_rows;
    for (int i = 0; i < c->n_bins; i++) {
        /* A row in flight with n tokens has survived n: it was at risk in its bin and does not end there. */
        double die = at_risk > 0 ? (double)b->bin_rows[i] / at_risk : 0;
        c->alive[i + 1] = c->alive[i] * (die < 1 ? 1 - die : 0);
        at_risk -= (double)(b->bin_rows[i] + b->flight_rows[i]);
        c->beyond[i + 1] = c->beyond[i] - b->bin_rows[i];
        c->begin[i + 1] = bin_begin(i + 1);
    }
    double tail = c->alive[c->n_bins], end = c->begin[c->n_bins];
    c->sum[c->n_bins] = tail * c->mean;
    c->moment[c->n_bins] = tail * 2 * c->mean * (end + c->mean);
    for (int i = c->n_bins - 1; i >= 0; i--) {
        double w = bin_chance(c, i) * (c->begin[i + 1] - c->begin[i]);
        c->sum[i] = c->sum[i + 1] + w;
        c->moment[i] = c->moment[i + 1] + w * (c->begin[i] + c->begin[i + 1]);
    }
}

/* Mean and mean square of the tokens that a row which has `now` of them still brings. Where few rows have
 * ended, the curve stops too early (nobody has had the time to be long): then at least the overall mean,
 * and for a row that has outlived all others as much again as it has. */
static void residual(const struct curve *c, double now, double *mean, double *square) {
    int i = bin_of(now);
    double least = i < c->n_bins && c->beyond[i + 1] >= ENOUGH_ROWS ? 0 : c->mean, m = 0, q = 0;
    if (i >= c->n_bins && least < now) least = now;
    if (i < c->n_bins) {
        double width = c->begin[i + 1] - c->begin[i], part = (now - c->begin[i] + 1) / width;
        double alive = c->alive[i] + (c->alive[i + 1] - c->alive[i]) * (part < 1 ? part : 1);
        double w = (c->begin[i + 1] - now) * (alive + c->alive[i + 1]) / 2;
        if (alive > 0) {
            m = (w + c->sum[i + 1]) / alive;
            q = (w * (c->begin[i + 1] + now) + c->moment[i + 1]) / alive - 2 * now * m;
        }
    }
    *mean = m > least ? m : least;
    *square = q > 2 * least * least ? q : 2 * least * least;
}

/* What the rows in flight will have brought when all have ended. */
static void forecast(const struct hr_budget *b, const struct curve *c, double *mean, double *var) {
    double open = 0;
    *mean = (double)b->flight_known;
    *var = 0;
    for (int i = 0; i < HR_BUDGET_BINS; i++) {
        if (!b->flight_rows[i]) continue;
        double n = (double)b->flight_rows[i], now = (double)b->flight_tokens[i] / n;
        double room = (double)b->flight_max[i] / n - now, m, q;
        residual(c, now, &m, &q);
        double v = q - m * m;
        if (m > room) m = room;
        if (v > (room - m) * room) v = (room - m) * room; /* a row about to meet its limit cannot spread */
        *mean += n * (now + m);
        *var += n * (v > 0 ? v : 0);
        open += n * m;
    }
    /* The mean itself is only as well known as rows have finished. */
    *var += open * open / (double)b->n_rows;
}

int hr_budget_may_start(const struct hr_budget *b, int n_max) {
    if (b->cap <= 0) return 1;
    if (b->n_rows == 0) {
        if (b->n_flight == 0 && b->flight_known == 0) return b->finished < b->cap; /* somebody must be first */
        double most = (double)b->flight_known;
        for (int i = 0; i < HR_BUDGET_BINS; i++) most += (double)b->flight_max[i];
        return most + n_max <= (double)b->cap;
    }
    struct curve c;
    double mean, var, fresh, square;
    make_curve(b, &c);
    residual(&c, 0, &fresh, &square);
    if (fresh > n_max) fresh = n_max;
    forecast(b, &c, &mean, &var);
    return (double)b->finished + mean + fresh / 2 + SPREAD * sqrt(var) <= (double)b->cap;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_store: what a killed process, a disk or a person may leave at the end of
 * raw_responses.jsonl. The first byte times four says how much of the committed rows is cut off the
 * end; the rest is appended.
 *
 * Prepared once: rows r0..r3 committed, r4 half journalled, r5 with two samples, r6 rejected, r7
 * only seen. Whatever the tail is: opening never fails but for files that do not belong together,
 * and then changes nothing; no byte goes lost (the file keeps a beginning of what it was, the rest
 * is in raw_responses.torn); no row that is still whole is forgotten; each line that stays is one
 * sample that is done, and the other way round; a second start finds nothing to mend. */
#include <string.h>

#include "base/hash.h"
#include "fuzz.h"
#include "job/record.h"
#include "job/store.h"

enum { N_ROWS = 8, N_COMMITTED = 4, N_SAMPLES = 2 };

static const struct hr_manifest manifest = {.dataset = "fuzz", .id = "id", .chat = true};
static struct hr_buf state_db, rows_file; /* as prepared */
static int64_t row_of[N_ROWS];
static size_t end_of[N_COMMITTED]; /* where its line ends in the file */

static struct hr_store_opts opts(void) {
    return (struct hr_store_opts){.dir = fuzz_dir()};
}

static void remove_all(void) {
    static const char *const names[] = {
        "state.db",      "state.db-wal",        "state.db-shm",
        "rejects.jsonl", "raw_responses.jsonl", "raw_responses.torn"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) fuzz_remove(names[i]);
}

static void see(struct hr_store *st, struct hr_record *r, int i) {
    char line[80];
    struct hr_store_seen seen;
    struct hr_err err;
    snprintf(line, sizeof line, "{\"id\":\"r%d\",\"prompt\":\"say %d\"}", i, i);
    FUZZ_CHECK(hr_record_parse(r, &manifest, line, strlen(line), &err) == HR_OK);
    FUZZ_CHECK(hr_store_see(st, r->ident, r->content, "r", i == 5 ? 2 : 1, &seen, &err) == HR_OK);
    row_of[i] = seen.row;
}

static void commit(struct hr_store *st, const struct hr_record *r, int i) {
    struct hr_buf line = {0};
    const struct hr_answer a = {.text = "said",
                                .text_len = 4,
                                .finish_reason = "stop",
                                .prompt_tokens = 3,
                                .completion_tokens = 4};
    hr_record_write_row(r, &manifest, &a, &line);
    const struct hr_store_done d = {.row = row_of[i],
                                    .line = line.data,
                                    .len = line.len,
                                    .prompt_tokens = 3,
                                    .completion_tokens = 4};
    const struct hr_run_counters c = {.rows_done = i + 1};
    FUZZ_CHECK(hr_store_commit(st, &d, 1, &c, NULL) == HR_OK);
    end_of[i] = line.len + (i ? end_of[i - 1] : 0);
    hr_buf_finish(&line);
}

static void prepare(void) {
    static const int32_t ids[] = {5, 6};
    const struct hr_store_opts o = opts();
    struct hr_store *st = NULL;
    struct hr_store_recovery found;
    struct hr_record r = {0};
    bool known;
    remove_all();
    FUZZ_CHECK(hr_store_open(&o, &st, &found, NULL) == HR_OK);
    FUZZ_CHECK(hr_store_begin_run(st, "0", "mill", NULL) == HR_OK);
    for (int i = 0; i < N_ROWS; i++) {
        see(st, &r, i);
        if (i < N_COMMITTED) commit(st, &r, i);
        hr_record_finish(&r);
    }
    const struct hr_store_tokens t = {.row = row_of[4], .ids = ids, .n = 2};
    FUZZ_CHECK(hr_store_journal(st, &t, 1, &(struct hr_run_counters){0}, true, NULL) == HR_OK);
    FUZZ_CHECK(hr_store_reject(st, (const uint8_t *)"0123456789abcdef", row_of[6], -1, "{}\n", 3,
                               &known, NULL) == HR_OK);
    FUZZ_CHECK(hr_store_flush(st, NULL) == HR_OK);
    hr_store_close(&st);
    fuzz_read("state.db", &state_db);
    fuzz_read("raw_responses.jsonl", &rows_file);
    FUZZ_CHECK(state_db.len > 0 && rows_file.len == end_of[N_COMMITTED - 1]);
}

static int64_t count_lines(const struct hr_buf *b) {
    int64_t n = 0;
    for (size_t i = 0; i < b->len; i++) n += b->data[i] == '\n';
    return n;
}

/* The samples that are done are the lines that the file holds. */
static void check_samples(struct hr_store *st, const struct hr_buf *kept, size_t whole) {
    int64_t n_done = 0;
    struct hr_store_totals totals = {0};
    for (int i = 0; i < N_ROWS; i++)
        for (int k = 0; k < N_SAMPLES; k++) {
            enum hr_sample_state s;
            FUZZ_CHECK(hr_store_sample(st, row_of[i], k, &s, NULL) == HR_OK);
            n_done += s == HR_SAMPLE_DONE;
            if (i < N_COMMITTED && k == 0 && end_of[i] <= whole) FUZZ_CHECK(s == HR_SAMPLE_DONE);
            if (i == 6) FUZZ_CHECK(s == HR_SAMPLE_REJECTED);
        }
    FUZZ_CHECK(hr_store_totals(st, &totals, NULL) == HR_OK);
    FUZZ_CHECK(totals.rows_done == count_lines(kept) && totals.rows_done >= n_done);
    FUZZ_CHECK(totals.rejects == 1);
    hr_store_totals_finish(&totals);
}

/* before = kept + torn, but for the newline that a torn line gets. */
static void check_bytes(const struct hr_buf *before, const struct hr_buf *kept,
                        const struct hr_buf *torn) {
    FUZZ_CHECK(kept->len <= before->len);
    FUZZ_CHECK(kept->len == 0 || memcmp(kept->data, before->data, kept->len) == 0);
    size_t rest = before->len - kept->len;
    FUZZ_CHECK(rest == 0 || (torn->len >= rest && torn->len <= rest + 1 &&
                             memcmp(torn->data, before->data + kept->len, rest) == 0));
    FUZZ_CHECK(rest > 0 || torn->len == 0);
}

static void start(const struct hr_buf *before, size_t whole) {
    const struct hr_store_opts o = opts();
    struct hr_store *st = NULL;
    struct hr_store_recovery r;
    struct hr_err err = {0};
    struct hr_buf kept = {0}, torn = {0};
    enum hr_status code = hr_store_open(&o, &st, &r, &err);
    fuzz_read("raw_responses.jsonl", &kept);
    fuzz_read("raw_responses.torn", &torn);
    if (code != HR_OK) {
        if (code != HR_ERR_CONFIG) fprintf(stderr, "%s\n", err.msg);
        FUZZ_CHECK(code == HR_ERR_CONFIG && whole < end_of[0] && torn.len == 0);
        FUZZ_CHECK(kept.len == before->len &&
                   (kept.len == 0 || memcmp(kept.data, before->data, kept.len) == 0));
    } else {
        FUZZ_CHECK(kept.len == 0 || kept.data[kept.len - 1] == '\n');
        check_bytes(before, &kept, &torn);
        check_samples(st, &kept, whole);
        hr_store_close(&st);
        FUZZ_CHECK(hr_store_open(&o, &st, &r, &err) == HR_OK);
        FUZZ_CHECK(r.n_adopted == 0 && r.n_cut_bytes == 0 && r.n_redo == 0);
        check_samples(st, &kept, whole);
        hr_store_close(&st);
    }
    hr_buf_finish(&kept);
    hr_buf_finish(&torn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (!state_db.len) prepare();
    struct hr_buf before = {0};
    size_t cut = (size_t)data[0] * 4;
    size_t whole = cut < rows_file.len ? rows_file.len - cut : 0;
    hr_buf_append(&before, rows_file.data, whole);
    hr_buf_append(&before, data + 1, size - 1);
    remove_all();
    fuzz_write("state.db", state_db.data, state_db.len);
    fuzz_write("rejects.jsonl", "{}\n", 3);
    fuzz_write("raw_responses.jsonl", before.data, before.len);
    start(&before, whole);
    hr_buf_finish(&before);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer: the run of an encoding, and the tables that the two loaders share.
 *
 * The order is the reference's: added tokens that match the raw text; each stretch between them is
 * normalized; added tokens that match normalized text; each stretch between those is split into
 * pieces; the model turns pieces into ids; the post-processor puts its tokens around. A control
 * token that a user typed is text because it is passed over in the two matching rounds, and for no
 * other reason: the split and the merges see the whole stretch as they always do. */
#include "text/tokenizer_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void hr_tokenizer_destroy(struct hr_tokenizer **tok) {
    struct hr_tokenizer *t = *tok;
    if (!t) return;
    hr_normalizer_finish(&t->normalizer);
    hr_pretok_finish(&t->pretok);
    hr_bpe_finish(&t->bpe);
    hr_unigram_finish(&t->unigram);
    hr_decoder_finish(&t->decoder);
    for (int i = 0; i < t->n_added; i++) free(t->added[i].content);
    free(t->added);
    hr_trie_finish(&t->raw);
    hr_trie_finish(&t->normalized);
    hr_ids_finish(&t->prefix);
    hr_ids_finish(&t->suffix);
    free(t->flags);
    hr_buf_finish(&t->text);
    hr_buf_finish(&t->decoded);
    hr_buf_finish(&t->first);
    free(t->text_offset);
    free(t->decoded_offset);
    free(t->first_offset);
    free(t->hidden);
    free(t);
    *tok = NULL;
}

bool hr_tokenizer_to_bytes(const char *s, size_t len, struct hr_buf *out) {
    hr_buf_clear(out);
    for (size_t i = 0; i < len;) {
        int n, byte = hr_byte_of_char(hr_utf8_get(s + i, &n));
        if (byte < 0) return false;
        hr_buf_putc(out, (char)byte);
        i += (size_t)n;
    }
    return true;
}

enum hr_status hr_tokenizer_set_vocab(struct hr_tokenizer *t, const struct hr_token_text *model,
                                      int n_ids, size_t n_merges, struct hr_err *err) {
    struct hr_buf bytes = {0};
    size_t total = 0;
    for (int i = 0; i < n_ids; i++) total += model[i].len;
    if (total > UINT32_MAX / 2)
        return hr_err_set(err, HR_ERR_LIMIT, "vocabulary: texts over 2 GiB");
    t->n_ids = t->n_model = n_ids;
    hr_bpe_init(&t->bpe, n_ids, n_merges, t->pretok.mapped);
    for (int i = 0; i < n_ids; i++) {
        if (!model[i].s) continue;
        if (!t->pretok.mapped)
            hr_bpe_add_token(&t->bpe, i, model[i].s, model[i].len);
        else if (hr_tokenizer_to_bytes(model[i].s, model[i].len, &bytes)) {
            hr_bpe_add_token(&t->bpe, i, bytes.data, bytes.len);
        }
    }
    hr_bpe_tokens_done(&t->bpe);
    hr_buf_finish(&bytes);
    return HR_OK;
}

void hr_tokenizer_add_added(struct hr_tokenizer *t, struct hr_added_token token) {
    t->added = hr_xrealloc(t->added, (size_t)(t->n_added + 1) * sizeof *t->added);
    t->added[t->n_added++] = token;
    if (token.id >= t->n_ids) t->n_ids = token.id + 1;
}

/* Puts the added tokens into the tries and over the model's texts. One that is matched in
 * normalized text also decodes to its normalized form, and if that is another one it is not skipped
 * when special tokens are, as in the reference; `normal` keeps these forms. */
static void add_added(struct hr_tokenizer *t, struct hr_token_text *all, char **normal) {
    struct hr_norm_work work = {0};
    for (int i = 0; i < t->n_added; i++) {
        const struct hr_added_token *a = &t->added[i];
        const char *s = a->content;
        const uint8_t *mark;
        size_t len = a->len;
        uint8_t flags = HR_ID_EXISTS | HR_ID_ADDED | (a->special ? HR_ID_SPECIAL : 0);
        if (a->normalized) {
            hr_normalizer_run(&t->normalizer, s, len, NULL, &work, &s, &len, &mark);
            s = normal[i] = hr_xstrndup(s, len);
            if (len != a->len || memcmp(s, a->content, len) != 0) flags &= (uint8_t)~HR_ID_SPECIAL;
        }
        hr_trie_add(a->normalized ? &t->normalized : &t->raw, s, len, i);
        all[a->id] = (struct hr_token_text){s, len, flags};
    }
    hr_norm_work_finish(&work);
}

/* What each token adds when it is the first one. */
static void make_first(struct hr_tokenizer *t, const struct hr_token_text *all) {
    bool is_byte;
    t->first_offset = hr_xcalloc((size_t)t->n_ids + 1, sizeof *t->first_offset);
    hr_buf_reserve(&t->first, 1);
    for (int i = 0; i < t->n_ids; i++) {
        if (all[i].s) hr_decoder_token(&t->decoder, all[i].s, all[i].len, true, &t->first, &is_byte);
        t->first_offset[i + 1] = (uint32_t)t->first.len;
    }
}

static enum hr_status make_tables(struct hr_tokenizer *t, const struct hr_token_text *all,
                                  struct hr_err *err) {
    size_t n = (size_t)t->n_ids;
    t->flags = hr_xcalloc(n + 1, 1);
    t->text_offset = hr_xcalloc(n + 1, sizeof *t->text_offset);
    t->decoded_offset = hr_xcalloc(n + 1, sizeof *t->decoded_offset);
    t->hidden = hr_xcalloc(n + 1, sizeof *t->hidden);
    for (size_t i = 0; i < n; i++) {
        bool is_byte = false;
        hr_buf_append(&t->text, all[i].s, all[i].len);
        if (all[i].s) {
            hr_decoder_token(&t->decoder, all[i].s, all[i].len, false, &t->decoded, &is_byte);
        }
        t->flags[i] = all[i].flags | (is_byte ? HR_ID_BYTE : 0);
        t->hidden[i] = !all[i].s || all[i].flags & HR_ID_SPECIAL;
        t->text_offset[i + 1] = (uint32_t)t->text.len;
        t->decoded_offset[i + 1] = (uint32_t)t->decoded.len;
        if (t->text.len > UINT32_MAX / 2 || t->decoded.len > UINT32_MAX / 2)
            return hr_err_set(err, HR_ERR_LIMIT, "vocabulary: texts over 2 GiB");
    }
    hr_buf_reserve(&t->decoded, 1);
    if (t->decoder.metaspace && t->decoder.metaspace_drop_first) make_first(t, all);
    t->token_bytes = (struct hr_token_bytes){
        .bytes = (const uint8_t *)t->decoded.data,
        .offset = t->decoded_offset,
        .first_bytes = (const uint8_t *)t->first.data,
        .first_offset = t->first_offset,
        .hidden = t->hidden,
        .n_tokens = t->n_ids,
        .n_strip = t->decoder.n_strip,
        .strip = (uint8_t)t->decoder.strip,
    };
    return HR_OK;
}

/* A model has no embedding for an id that is not there, so every text would fail. */
static enum hr_status check_around(const struct hr_tokenizer *t, const struct hr_ids *around,
                                   struct hr_err *err) {
    for (size_t i = 0; i < around->len; i++) {
        int32_t id = around->data[i];
        if (id >= t->n_ids || !(t->flags[id] & HR_ID_EXISTS))
            return hr_err_set(err, HR_ERR_FORMAT,
                              "token %d, which goes around every text, is not in the vocabulary",
                              id);
    }
    return HR_OK;
}

enum hr_status hr_tokenizer_seal(struct hr_tokenizer *t, const struct hr_token_text *model,
                                 struct hr_err *err) {
    struct hr_token_text *all = hr_xcalloc((size_t)t->n_ids + 1, sizeof *all);
    char **normal = hr_xcalloc((size_t)t->n_added + 1, sizeof *normal);
    for (int i = 0; i < t->n_model; i++) {
        all[i] = model[i];
        all[i].flags = model[i].s ? HR_ID_EXISTS : 0;
    }
    add_added(t, all, normal);
    enum hr_status st = make_tables(t, all, err);
    if (!st) st = check_around(t, &t->prefix, err);
    if (!st) st = check_around(t, &t->suffix, err);
    for (int i = 0; i < t->n_added; i++) free(normal[i]);
    free(normal);
    free(all);
    return st;
}

/* One call of encode. */
struct encoding {
    const struct hr_tokenizer *t;
    const struct hr_encode_opts *opts;
    struct hr_ids *out;
    struct hr_norm_work norm;
    struct hr_pieces pieces;
    struct hr_bpe_scratch bpe;
    struct hr_unigram_scratch unigram;
    struct hr_buf mark;    /* a flag a byte of the text, made only when a normalizer moves bytes */
    const uint8_t *marks;  /* of the stretch that is being matched, or NULL */
    size_t base;           /* without marks: where the stretch begins in the text */
    size_t n_before;       /* ids that `out` had */
    enum hr_status status; /* of the first piece that has no ids */
    struct hr_err *err;
};

static bool touches_user(const struct encoding *e, size_t begin, size_t end) {
    if (e->marks) return memchr(e->marks + begin, 1, end - begin) != NULL;
    size_t lo = 0, hi = e->opts->n_plain;
    while (lo < hi) { /* the first span that ends after `begin` */
        size_t mid = (lo + hi) / 2;
        if (e->opts->plain[mid].end > e->base + begin)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo < e->opts->n_plain && e->opts->plain[lo].begin < e->base + end;
}

static bool skip_special(void *arg, size_t begin, size_t end) {
    const struct encoding *e = arg;
    return !e->opts->parse_special || touches_user(e, begin, end);
}

/* True, with the error set, when there are more ids than may be, or will be with n_more. */
static bool is_too_long(struct encoding *e, size_t n_more) {
    size_t n_max = e->opts->n_max;
    if (e->status || n_max == 0 || e->out->len - e->n_before + n_more <= n_max) return e->status;
    e->status = hr_err_set(e->err, HR_ERR_LIMIT, "the text has more than %zu tokens", n_max);
    return true;
}

static void encode_pieces(struct encoding *e, const char *s, size_t len, bool at_start) {
    if (len == 0 || e->status) return;
    enum { AT_A_TIME = 256 }; /* pieces, between two looks at how many ids there are */
    const struct hr_pieces *p = &e->pieces;
    const struct hr_tokenizer *t = e->t;
    hr_pretok_run(&t->pretok, s, len, at_start, &e->pieces);
    for (size_t i = 0, n; i < p->n && !e->status; i += n) {
        const struct hr_span *spans = p->spans + i;
        size_t n_least = 0;
        n = p->n - i < AT_A_TIME ? p->n - i : AT_A_TIME;
        for (size_t k = 0; k < n && e->opts->n_max > 0 && !t->unigram.used; k++)
            n_least += hr_bpe_at_least(&t->bpe, p->s + spans[k].begin, spans[k].end - spans[k].begin);
        if (is_too_long(e, n_least)) return;
        if (t->unigram.used)
            e->status = hr_unigram_encode(&t->unigram, p->s, spans, n, &e->unigram, e->out, e->err);
        else
            hr_bpe_encode(&t->bpe, p->s, spans, n, &e->bpe, e->out);
    }
}

/* A stretch between raw added tokens; begin is its place in the text. */
static void encode_stretch(struct encoding *e, const char *text, size_t begin, size_t end) {
    const struct hr_tokenizer *t = e->t;
    const char *s = text + begin;
    size_t len = end - begin, pos = 0, done = 0;
    struct hr_added_match m;
    const uint8_t *mark = e->mark.len ? (const uint8_t *)e->mark.data + begin : NULL;
    if (len == 0) return;
    hr_normalizer_run(&t->normalizer, s, len, mark, &e->norm, &s, &len, &e->marks);
    e->base = begin;
    while (hr_added_next(&t->normalized, t->added, s, len, &pos, skip_special, e, &m)) {
        encode_pieces(e, s + done, m.begin - done, begin + done == 0);
        hr_ids_push(e->out, m.token->id);
        done = m.end;
    }
    encode_pieces(e, s + done, len - done, begin + done == 0);
    e->marks = NULL;
}

static void make_marks(struct encoding *e, size_t len) {
    const struct hr_encode_opts *o = e->opts;
    hr_buf_reserve(&e->mark, len + 1);
    memset(e->mark.data, 0, len);
    e->mark.len = len;
    for (size_t i = 0; i < o->n_plain; i++) {
        size_t end = o->plain[i].end < len ? o->plain[i].end : len;
        if (o->plain[i].begin < end)
            memset(e->mark.data + o->plain[i].begin, 1, end - o->plain[i].begin);
    }
}

enum hr_status hr_tokenizer_encode(const struct hr_tokenizer *tok, const char *text, size_t len,
                                   const struct hr_encode_opts *opts, struct hr_ids *out,
                                   struct hr_err *err) {
    struct encoding e = {.t = tok, .opts = opts, .out = out, .n_before = out->len, .err = err};
    struct hr_added_match m;
    size_t pos = 0, done = 0;
    for (size_t i = 0; i < opts->n_plain; i++) {
        HR_ASSERT(opts->plain[i].begin <= opts->plain[i].end);
        HR_ASSERT(i == 0 || opts->plain[i - 1].end <= opts->plain[i].begin);
    }
    if (tok->normalized.n && tok->normalizer.n_steps && opts->n_plain) make_marks(&e, len);
    if (opts->add_special) hr_ids_append(out, tok->prefix.data, tok->prefix.len);
    while (hr_added_next(&tok->raw, tok->added, text, len, &pos, skip_special, &e, &m)) {
        encode_stretch(&e, text, done, m.begin);
        hr_ids_push(out, m.token->id);
        done = m.end;
        e.base = 0;
    }
    encode_stretch(&e, text, done, len);
    if (opts->add_special) hr_ids_append(out, tok->suffix.data, tok->suffix.len);
    hr_norm_work_finish(&e.norm);
    hr_pieces_finish(&e.pieces);
    hr_bpe_scratch_finish(&e.bpe);
    hr_unigram_scratch_finish(&e.unigram);
    hr_buf_finish(&e.mark);
    if (is_too_long(&e, 0)) out->len = e.n_before;
    return e.status;
}

int hr_tokenizer_n_vocab(const struct hr_tokenizer *tok) {
    return tok->n_ids;
}

bool hr_tokenizer_is_special(const struct hr_tokenizer *tok, int32_t id) {
    return id >= 0 && id < tok->n_ids && tok->flags[id] & HR_ID_SPECIAL;
}

int32_t hr_tokenizer_find(const struct hr_tokenizer *tok, const char *s, size_t len) {
    for (int i = 0; i < tok->n_added; i++) {
        if (tok->added[i].len == len && memcmp(tok->added[i].content, s, len) == 0)
            return tok->added[i].id;
    }
    /* Rare (configuration only), and an id's text need not be reachable by the model: a plain scan.
     */
    for (int i = 0; i < tok->n_ids; i++) {
        size_t n = tok->text_offset[i + 1] - tok->text_offset[i];
        if (tok->flags[i] & HR_ID_EXISTS && n == len &&
            memcmp(tok->text.data + tok->text_offset[i], s, len) == 0) {
            return i;
        }
    }
    return -1;
}

const struct hr_token_bytes *hr_tokenizer_bytes(const struct hr_tokenizer *tok) {
    return &tok->token_bytes;
}

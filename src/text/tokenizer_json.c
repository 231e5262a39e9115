/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_json: a tokenizer from Hugging Face's tokenizer.json.
 *
 * Each section names its components by "type". One that is not known here, or a setting of a known
 * one that would change ids, is refused with its path and name: a tokenizer that is nearly right
 * spoils data in silence. Padding, truncation and offsets do not concern ids here and are not read.
 * Source: tokenizers 0.23.3, the serde forms of its components. */
#include "text/tokenizer_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jscan.h"
#include "base/json.h"
#include "text/base64.h"

struct loader {
    struct hr_tokenizer *t;
    const struct hr_json *root;
    const char *text; /* the file's own bytes: scores are read from them */
    size_t text_len;
    struct hr_err *err;
};

static enum hr_status refuse(struct loader *l, const char *section, const char *what) {
    return hr_err_set(l->err, HR_ERR_UNSUPPORTED, "tokenizer.json: %s: \"%s\" is not supported",
                      section, what);
}

static enum hr_status malformed(struct loader *l, const char *section, const char *what) {
    return hr_err_set(l->err, HR_ERR_FORMAT, "tokenizer.json: %s: %s", section, what);
}

static const char *str(const struct hr_json *object, const char *key, const char *otherwise) {
    const char *s;
    size_t len;
    return hr_json_str(hr_json_get(object, key), &s, &len) ? s : otherwise;
}

static bool flag(const struct hr_json *object, const char *key, bool otherwise) {
    bool b;
    return hr_json_bool(hr_json_get(object, key), &b) ? b : otherwise;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static bool is_null(const struct hr_json *v) {
    return hr_json_type(v) == HR_JSON_NULL;
}

static char *copy_str(const struct hr_json *v, size_t *len) {
    const char *s;
    return hr_json_str(v, &s, len) ? hr_xstrndup(s, *len) : NULL;
}

/* Calls fn for each element of a Sequence, or once for a single component. */
typedef enum hr_status (*component_fn)(struct loader *l, const struct hr_json *v);

static enum hr_status each(struct loader *l, const struct hr_json *v, const char *section,
                           const char *list_key, component_fn fn) {
    if (is_null(v)) return HR_OK;
    if (hr_json_type(v) != HR_JSON_OBJECT) return malformed(l, section, "expected an object");
    if (!is(str(v, "type", ""), "Sequence")) return fn(l, v);
    const struct hr_json *list = hr_json_get(v, list_key);
    enum hr_status st = HR_OK;
    for (size_t i = 0; i < hr_json_size(list) && !st; i++) {
        st = each(l, hr_json_at(list, i), section, list_key, fn);
    }
    return st;
}

static enum hr_status add_charsmap(struct loader *l, const struct hr_json *v) {
    struct hr_norm_step step = {.type = HR_NORM_CHARSMAP};
    struct hr_buf bytes = {0};
    const char *s;
    size_t len;
    enum hr_status st = HR_OK;
    if (!hr_json_str(hr_json_get(v, "precompiled_charsmap"), &s, &len) ||
        !hr_base64_decode(s, len, &bytes)) {
        st = malformed(l, "normalizer", "Precompiled needs a \"precompiled_charsmap\" in base64");
    } else {
        st = hr_charsmap_create((const uint8_t *)bytes.data, bytes.len, &step.charsmap, l->err);
        if (st) hr_err_prefix(l->err, "tokenizer.json: normalizer Precompiled");
    }
    if (!st) hr_normalizer_add(&l->t->normalizer, step);
    hr_buf_finish(&bytes);
    return st;
}

static enum hr_status add_normalizer(struct loader *l, const struct hr_json *v) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = str(v, "type", "(no type)"), *s;
    struct hr_norm_step step = {0};
    size_t len;
    for (int i = 0; i < 4; i++) {
        if (!is(type, forms[i])) continue;
        step.form = (enum hr_uni_form)i;
        hr_normalizer_add(&l->t->normalizer, step);
        return HR_OK;
    }
    if (is(type, "Precompiled")) return add_charsmap(l, v);
    if (is(type, "Lowercase") || is(type, "StripAccents") || is(type, "Nmt") || is(type, "Strip")) {
        step.type = is(type, "Lowercase")      ? HR_NORM_LOWER
                    : is(type, "StripAccents") ? HR_NORM_STRIP_ACCENTS
                    : is(type, "Nmt")          ? HR_NORM_NMT
                                               : HR_NORM_STRIP;
        step.left = flag(v, "strip_left", true);
        step.right = flag(v, "strip_right", true);
        hr_normalizer_add(&l->t->normalizer, step);
        return HR_OK;
    }
    if (is(type, "Prepend")) {
        step.type = HR_NORM_PREPEND;
        step.to = copy_str(hr_json_get(v, "prepend"), &step.to_len);
        if (!step.to) return malformed(l, "normalizer", "Prepend needs a string \"prepend\"");
        hr_normalizer_add(&l->t->normalizer, step);
        return HR_OK;
    }
    if (!is(type, "Replace")) return refuse(l, "normalizer", type);
    const struct hr_json *pattern = hr_json_get(v, "pattern");
    step.type = HR_NORM_REPLACE;
    if (hr_json_str(hr_json_get(pattern, "Regex"), &s, &len)) {
        enum hr_status st = hr_regex_compile(s, len, &step.regex, l->err);
        if (st) return hr_err_prefix(l->err, "tokenizer.json: normalizer");
    } else {
        step.from = copy_str(hr_json_get(pattern, "String"), &step.from_len);
    }
    step.to = copy_str(hr_json_get(v, "content"), &step.to_len);
    bool good = step.to && (step.regex || (step.from && step.from_len > 0));
    hr_normalizer_add(&l->t->normalizer, step);
    return good ? HR_OK
                : malformed(l, "normalizer", "Replace needs a \"pattern\" and a \"content\"");
}

static bool parse_behavior(const char *s, enum hr_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    for (int i = 0; i < 5; i++) {
        if (!is(s, names[i])) continue;
        *out = (enum hr_split_behavior)i;
        return true;
    }
    return false;
}

static enum hr_status add_split(struct loader *l, const struct hr_json *v) {
    struct hr_pretok_step step = {.type = HR_PRETOK_SPLIT, .invert = flag(v, "invert", false)};
    const struct hr_json *pattern = hr_json_get(v, "pattern");
    const char *behavior = str(v, "behavior", "(none)"), *s;
    size_t len;
    if (!parse_behavior(behavior, &step.behavior))
        return refuse(l, "pre_tokenizer Split", behavior);
    if (hr_json_str(hr_json_get(pattern, "Regex"), &s, &len)) {
        enum hr_status st =
            hr_pretok_add_regex(&l->t->pretok, s, len, step.behavior, step.invert, l->err);
        return st ? hr_err_prefix(l->err, "tokenizer.json: pre_tokenizer Split") : HR_OK;
    }
    step.literal = copy_str(hr_json_get(pattern, "String"), &step.literal_len);
    if (!step.literal) return malformed(l, "pre_tokenizer", "Split needs a pattern");
    return hr_pretok_add(&l->t->pretok, step, l->err);
}

static enum hr_status add_metaspace(struct loader *l, const struct hr_json *v) {
    struct hr_pretok_step step = {.type = HR_PRETOK_METASPACE, .split = flag(v, "split", true)};
    const char *scheme = str(v, "prepend_scheme", NULL);
    if (!scheme) scheme = flag(v, "add_prefix_space", true) ? "always" : "never";
    if (is(scheme, "always"))
        step.prepend = HR_PREPEND_ALWAYS;
    else if (is(scheme, "first"))
        step.prepend = HR_PREPEND_FIRST;
    else if (is(scheme, "never"))
        step.prepend = HR_PREPEND_NEVER;
    else
        return refuse(l, "pre_tokenizer Metaspace prepend_scheme", scheme);
    step.literal = copy_str(hr_json_get(v, "replacement"), &step.literal_len);
    if (!step.literal) return malformed(l, "pre_tokenizer", "Metaspace needs a \"replacement\"");
    return hr_pretok_add(&l->t->pretok, step, l->err);
}

static enum hr_status add_pretok(struct loader *l, const struct hr_json *v) {
    const char *type = str(v, "type", "(no type)");
    struct hr_pretok_step step = {0};
    if (is(type, "Split")) return add_split(l, v);
    if (is(type, "Metaspace")) return add_metaspace(l, v);
    if (is(type, "ByteLevel")) {
        step.type = HR_PRETOK_BYTE_LEVEL;
        step.add_prefix_space = flag(v, "add_prefix_space", true);
        step.use_regex = flag(v, "use_regex", true);
    } else if (is(type, "Digits")) {
        step.type = HR_PRETOK_DIGITS;
        step.individual = flag(v, "individual_digits", false);
    } else if (is(type, "Punctuation")) {
        const char *behavior = str(v, "behavior", "Isolated");
        step.type = HR_PRETOK_PUNCTUATION;
        if (!parse_behavior(behavior, &step.behavior)) return refuse(l, "Punctuation", behavior);
    } else if (is(type, "WhitespaceSplit")) {
        step.type = HR_PRETOK_WHITESPACE_SPLIT;
    } else if (is(type, "Whitespace")) {
        step.type = HR_PRETOK_WHITESPACE;
    } else if (is(type, "CharDelimiterSplit")) {
        step.type = HR_PRETOK_SPLIT;
        step.behavior = HR_SPLIT_REMOVED;
        step.literal = copy_str(hr_json_get(v, "delimiter"), &step.literal_len);
        if (!step.literal)
            return malformed(l, "pre_tokenizer", "CharDelimiterSplit needs a \"delimiter\"");
    } else {
        return refuse(l, "pre_tokenizer", type);
    }
    return hr_pretok_add(&l->t->pretok, step, l->err);
}

static enum hr_status add_chars_decoder(struct loader *l, const struct hr_json *v,
                                        const char *type) {
    struct hr_decoder *d = &l->t->decoder;
    int64_t start = 0, stop = 0;
    if (is(type, "Replace")) {
        int i = d->n_replaces;
        const struct hr_json *from = hr_json_get(hr_json_get(v, "pattern"), "String");
        if (i == HR_DECODER_REPLACES || d->byte_fallback || d->metaspace || is_null(from)) {
            return refuse(l, "decoder", "this order or form of Replace");
        }
        d->n_replaces++;
        d->replace[i].from = copy_str(from, &d->replace[i].from_len);
        d->replace[i].to = copy_str(hr_json_get(v, "content"), &d->replace[i].to_len);
        return d->replace[i].to ? HR_OK : malformed(l, "decoder", "Replace needs a \"content\"");
    }
    if (is(type, "ByteFallback")) {
        d->byte_fallback = true;
        return d->metaspace ? refuse(l, "decoder", "ByteFallback after Metaspace") : HR_OK;
    }
    if (is(type, "Fuse")) return HR_OK;
    if (is(type, "Metaspace")) {
        const char *scheme = str(v, "prepend_scheme", NULL);
        d->metaspace_drop_first = scheme ? !is(scheme, "never") : flag(v, "add_prefix_space", true);
        if (d->metaspace) return refuse(l, "decoder", "Metaspace twice");
        d->metaspace = copy_str(hr_json_get(v, "replacement"), &d->metaspace_len);
        return d->metaspace ? HR_OK : malformed(l, "decoder", "Metaspace needs a \"replacement\"");
    }
    if (!is(type, "Strip")) return refuse(l, "decoder", type);
    const char *content = str(v, "content", "");
    bool good =
        hr_json_int(hr_json_get(v, "start"), &start) && hr_json_int(hr_json_get(v, "stop"), &stop);
    if (!good || strlen(content) != 1 || start < 0 || start > 1000 || stop != 0 || d->n_strip) {
        return refuse(l, "decoder", "this form of Strip");
    }
    d->strip = content[0];
    d->n_strip = (int)start;
    return HR_OK;
}

static enum hr_status add_decoder(struct loader *l, const struct hr_json *v) {
    const char *type = str(v, "type", "(no type)");
    if (!is(type, "ByteLevel")) {
        l->t->decoder.kind = HR_DECODER_CHARS;
        return add_chars_decoder(l, v, type);
    }
    if (l->t->decoder.kind == HR_DECODER_CHARS)
        return refuse(l, "decoder", "ByteLevel after others");
    return HR_OK;
}

static enum hr_status load_decoder(struct loader *l) {
    const struct hr_json *v = hr_json_get(l->root, "decoder");
    if (is_null(v)) return refuse(l, "decoder", "null");
    enum hr_status st = each(l, v, "decoder", "decoders", add_decoder);
    bool chars = l->t->decoder.kind == HR_DECODER_CHARS;
    if (!st && chars == l->t->pretok.mapped)
        return refuse(l, "decoder", "one that differs from the pre_tokenizer in kind");
    return st;
}

/* The ids of one special token that a post-processor puts in. */
static enum hr_status special_ids(struct loader *l, const struct hr_json *processor,
                                  const char *name, struct hr_ids *out) {
    const struct hr_json *ids =
        hr_json_get(hr_json_get(hr_json_get(processor, "special_tokens"), name), "ids");
    if (hr_json_size(ids) == 0)
        return malformed(l, "post_processor", "a special token without ids");
    for (size_t i = 0; i < hr_json_size(ids); i++) {
        int64_t id;
        if (!hr_json_int(hr_json_at(ids, i), &id) || id < 0 || id >= HR_VOCAB_MAX) {
            return malformed(l, "post_processor", "an id that is no id");
        }
        hr_ids_push(out, (int32_t)id);
    }
    return HR_OK;
}

/* What stands before and after the text goes around what earlier processors put there. */
static void put_around(struct hr_tokenizer *t, struct hr_ids *before, struct hr_ids *after) {
    hr_ids_append(before, t->prefix.data, t->prefix.len);
    hr_ids_append(&t->suffix, after->data, after->len);
    hr_ids_finish(&t->prefix);
    hr_ids_finish(after);
    t->prefix = *before;
}

static enum hr_status add_template(struct loader *l, const struct hr_json *v) {
    const struct hr_json *single = hr_json_get(v, "single");
    struct hr_ids around[2] = {{0}};
    int side = 0;
    enum hr_status st = HR_OK;
    for (size_t i = 0; i < hr_json_size(single) && !st; i++) {
        const struct hr_json *item = hr_json_at(single, i),
                             *special = hr_json_get(item, "SpecialToken");
        const char *sequence = str(hr_json_get(item, "Sequence"), "id", "");
        if (special)
            st = special_ids(l, v, str(special, "id", ""), &around[side]);
        else if (is(sequence, "A") && side == 0)
            side = 1;
        else
            st = malformed(l, "post_processor", "\"single\" must hold the sequence A once");
    }
    if (!st && side == 0)
        st = malformed(l, "post_processor", "\"single\" must hold the sequence A once");
    if (!st) {
        put_around(l->t, &around[0], &around[1]);
        return HR_OK;
    }
    hr_ids_finish(&around[0]);
    hr_ids_finish(&around[1]);
    return st;
}

static enum hr_status add_post_processor(struct loader *l, const struct hr_json *v) {
    const char *type = str(v, "type", "(no type)");
    if (is(type, "ByteLevel")) return HR_OK; /* moves offsets only */
    if (is(type, "TemplateProcessing")) return add_template(l, v);
    if (!is(type, "RobertaProcessing") && !is(type, "BertProcessing")) {
        return refuse(l, "post_processor", type);
    }
    struct hr_ids before = {0}, after = {0};
    int64_t cls, sep;
    bool good = hr_json_int(hr_json_at(hr_json_get(v, "cls"), 1), &cls) &&
                hr_json_int(hr_json_at(hr_json_get(v, "sep"), 1), &sep);
    if (!good || cls < 0 || sep < 0 || cls >= HR_VOCAB_MAX || sep >= HR_VOCAB_MAX) {
        return malformed(l, "post_processor", "\"cls\" and \"sep\" must be pairs of text and id");
    }
    hr_ids_push(&before, (int32_t)cls);
    hr_ids_push(&after, (int32_t)sep);
    put_around(l->t, &before, &after);
    return HR_OK;
}

/* Old files leave the type out. */
static const char *model_type(const struct hr_json *model) {
    const char *type = str(model, "type", NULL);
    if (type) return type;
    if (hr_json_get(model, "merges")) return "BPE";
    return hr_json_type(hr_json_get(model, "vocab")) == HR_JSON_ARRAY ? "Unigram" : "(no type)";
}

/* Settings of the model that would make other ids. */
static enum hr_status check_model(struct loader *l, const struct hr_json *model) {
    const char *type = model_type(model);
    if (!is(type, "BPE")) return refuse(l, "model", type);
    double dropout;
    if (hr_json_real(hr_json_get(model, "dropout"), &dropout) && dropout != 0) {
        return refuse(l, "model", "dropout");
    }
    if (*str(model, "continuing_subword_prefix", ""))
        return refuse(l, "model", "continuing_subword_prefix");
    if (*str(model, "end_of_word_suffix", "")) return refuse(l, "model", "end_of_word_suffix");
    if (hr_json_type(hr_json_get(model, "vocab")) != HR_JSON_OBJECT) {
        return malformed(l, "model", "\"vocab\" must be an object");
    }
    if (hr_json_type(hr_json_get(model, "merges")) != HR_JSON_ARRAY) {
        return malformed(l, "model", "\"merges\" must be a list");
    }
    return HR_OK;
}

/* The texts of the model's ids; *out is owned by the caller, *n is 1 + the highest id. */
static enum hr_status read_vocab(struct loader *l, const struct hr_json *vocab,
                                 struct hr_token_text **out, int *n) {
    void *it = NULL;
    const char *key;
    size_t key_len;
    const struct hr_json *value;
    int64_t id, top = -1;
    while (hr_json_next(vocab, &it, &key, &key_len, &value)) {
        if (!hr_json_int(value, &id) || id < 0 || id >= HR_VOCAB_MAX) {
            return hr_err_set(l->err, HR_ERR_FORMAT,
                              "tokenizer.json: model: the id of \"%.60s\" is no id", key);
        }
        if (id > top) top = id;
    }
    *n = (int)top + 1;
    *out = hr_xcalloc((size_t)*n + 1, sizeof **out);
    it = NULL;
    while (hr_json_next(vocab, &it, &key, &key_len, &value)) {
        if (!hr_json_int(value, &id)) continue;
        if ((*out)[id].s) {
            return hr_err_set(l->err, HR_ERR_FORMAT,
                              "tokenizer.json: model: two tokens have the id %d", (int)id);
        }
        (*out)[id] = (struct hr_token_text){key, key_len, 0};
    }
    return HR_OK;
}

/* A merge as two strings: "left right" or [left, right]. */
static bool merge_parts(const struct hr_json *v, const char **left, size_t *left_len,
                        const char **right, size_t *right_len) {
    if (hr_json_type(v) == HR_JSON_ARRAY) {
        return hr_json_size(v) == 2 && hr_json_str(hr_json_at(v, 0), left, left_len) &&
               hr_json_str(hr_json_at(v, 1), right, right_len);
    }
    if (!hr_json_str(v, left, left_len)) return false;
    const char *space = memchr(*left, ' ', *left_len);
    if (!space) return false;
    *right = space + 1;
    *right_len = *left_len - (size_t)(space + 1 - *left);
    *left_len = (size_t)(space - *left);
    return !memchr(*right, ' ', *right_len);
}

static enum hr_status read_merges(struct loader *l, const struct hr_json *merges) {
    struct hr_bpe *b = &l->t->bpe;
    struct hr_buf bytes[2] = {{0}};
    enum hr_status st = HR_OK;
    for (size_t i = 0; i < hr_json_size(merges) && !st; i++) {
        const char *s[2];
        size_t len[2];
        bool good = merge_parts(hr_json_at(merges, i), &s[0], &len[0], &s[1], &len[1]);
        bool reachable = true;
        for (int k = 0; k < 2 && good && b->byte_level; k++) {
            reachable &= hr_tokenizer_to_bytes(s[k], len[k], &bytes[k]);
            s[k] = bytes[k].data;
            len[k] = bytes[k].len;
        }
        /* A merge outside the byte alphabet can never apply; the reference keeps it all the same.
         */
        if (good && reachable) good = hr_bpe_add_merge(b, (uint32_t)i, s[0], len[0], s[1], len[1]);
        if (!good) {
            st = hr_err_set(l->err, HR_ERR_FORMAT,
                            "tokenizer.json: model: merge %zu is not two tokens that make a third",
                            i);
        }
    }
    hr_buf_finish(&bytes[0]);
    hr_buf_finish(&bytes[1]);
    return st;
}

static enum hr_status read_added(struct loader *l, const struct hr_json *list) {
    for (size_t i = 0; i < hr_json_size(list); i++) {
        const struct hr_json *v = hr_json_at(list, i);
        struct hr_added_token a = {
            .single_word = flag(v, "single_word", false),
            .lstrip = flag(v, "lstrip", false),
            .rstrip = flag(v, "rstrip", false),
            .normalized = flag(v, "normalized", false),
            .special = flag(v, "special", false),
        };
        int64_t id;
        if (!hr_json_int(hr_json_get(v, "id"), &id) || id < 0 || id >= HR_VOCAB_MAX) {
            return malformed(l, "added_tokens", "an entry without a valid \"id\"");
        }
        a.id = (int32_t)id;
        a.content = copy_str(hr_json_get(v, "content"), &a.len);
        if (!a.content) return malformed(l, "added_tokens", "an entry without \"content\"");
        hr_tokenizer_add_added(l->t, a);
    }
    return HR_OK;
}

/* The arrays of a Unigram vocabulary: a list of [text, score]. */
struct scored {
    const char **s; /* owned */
    size_t *len;    /* owned */
    double *scores; /* owned */
};

/* 10^n, rounded once; n <= 308. */
static double power_of_ten(int n) {
    char text[16];
    snprintf(text, sizeof text, "1e%d", n);
    return strtod(text, NULL);
}

/* A number as the reference's parser reads it: digits into an integer, then one product or quotient
 * by a power of ten, which may be one step off the nearest double. Equal paths are told apart by
 * such steps. Source: serde_json 1.0, src/de.rs, without "float_roundtrip". */
static double read_score(const struct hr_jval *number) {
    const char *p = number->p, *end = p + number->len;
    uint64_t digits = 0;
    int exponent = 0, sign = 1;
    bool negative = p < end && *p == '-', full = false, fraction = false;
    for (p += negative; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        uint64_t d = (uint64_t)(*p - '0');
        full |= digits > (UINT64_MAX - d) / 10;
        if (!full) digits = digits * 10 + d;
        exponent += full ? !fraction : -fraction;
    }
    if (p < end) {
        int given = 0;
        p++;
        if (*p == '-') sign = -1;
        for (p += *p == '-' || *p == '+'; p < end && given < 10000; p++)
            given = given * 10 + (*p - '0');
        exponent += sign * given;
    }
    double v = (double)digits;
    for (; exponent < -308 && v != 0; exponent += 308) v /= 1e308;
    if (exponent > 308) return v == 0 ? v : INFINITY;
    if (v != 0) v = exponent >= 0 ? v * power_of_ten(exponent) : v / power_of_ten(-exponent);
    return negative ? -v : v;
}

/* Walks model.vocab twice, side by side: the texts from the tree, the scores from the file. */
static bool read_scored(struct loader *l, const struct hr_json *vocab, int n, struct scored *v) {
    struct hr_jval root, model, list, item, key, part;
    struct hr_jiter it = {0};
    if (hr_jscan_validate(l->text, l->text_len, &root, NULL) ||
        !hr_jscan_get(&root, "model", &model) || !hr_jscan_get(&model, "vocab", &list))
        return false;
    for (int i = 0; i < n; i++) {
        struct hr_jiter in = {0};
        if (!hr_json_str(hr_json_at(hr_json_at(vocab, (size_t)i), 0), &v->s[i], &v->len[i]) ||
            !hr_jscan_next(&list, &it, &key, &item) || item.type != HR_JARRAY ||
            !hr_jscan_next(&item, &in, &key, &part) || !hr_jscan_next(&item, &in, &key, &part) ||
            part.type != HR_JNUMBER)
            return false;
        v->scores[i] = read_score(&part);
        if (!isfinite(v->scores[i])) return false;
    }
    return true;
}

static enum hr_status load_unigram(struct loader *l, const struct hr_json *model,
                                   struct hr_token_text **texts) {
    const struct hr_json *vocab = hr_json_get(model, "vocab"),
                         *unk_json = hr_json_get(model, "unk_id");
    size_t n = hr_json_size(vocab);
    int64_t unk = -1;
    if (l->t->pretok.mapped) return refuse(l, "model", "Unigram with ByteLevel");
    if (hr_json_type(vocab) != HR_JSON_ARRAY || n == 0 || n > HR_VOCAB_MAX)
        return malformed(l, "model", "\"vocab\" must be a list of texts and scores");
    bool bad_unk = !is_null(unk_json) && (!hr_json_int(unk_json, &unk) || unk < 0);
    if (bad_unk || unk >= (int64_t)n) return malformed(l, "model", "\"unk_id\" is no id");
    struct scored v = {hr_xcalloc(n, sizeof *v.s), hr_xcalloc(n, sizeof *v.len),
                       hr_xcalloc(n, sizeof *v.scores)};
    enum hr_status st = HR_OK;
    if (!read_scored(l, vocab, (int)n, &v)) {
        st = malformed(l, "model", "\"vocab\" must be a list of texts and scores");
    } else {
        hr_unigram_init(&l->t->unigram, v.s, v.len, v.scores, (int)n, (int32_t)unk,
                        flag(model, "byte_fallback", false));
        *texts = hr_xcalloc(n + 1, sizeof **texts);
        for (size_t i = 0; i < n; i++) (*texts)[i] = (struct hr_token_text){v.s[i], v.len[i], 0};
        l->t->n_ids = l->t->n_model = (int)n;
    }
    free(v.s);
    free(v.len);
    free(v.scores);
    return st;
}

static enum hr_status load_model(struct loader *l, struct hr_token_text **texts) {
    const struct hr_json *model = hr_json_get(l->root, "model"), *merges;
    if (is(model_type(model), "Unigram")) return load_unigram(l, model, texts);
    int n_model = 0;
    enum hr_status st = check_model(l, model);
    if (st) return st;
    merges = hr_json_get(model, "merges");
    if ((st = read_vocab(l, hr_json_get(model, "vocab"), texts, &n_model))) return st;
    if ((st = hr_tokenizer_set_vocab(l->t, *texts, n_model, hr_json_size(merges), l->err)))
        return st;
    struct hr_bpe *b = &l->t->bpe;
    b->ignore_merges = flag(model, "ignore_merges", false);
    b->byte_fallback = !b->byte_level && flag(model, "byte_fallback", false);
    b->fuse_unk = flag(model, "fuse_unk", false);
    const char *unk = str(model, "unk_token", NULL);
    if (unk && !b->byte_level && (b->unk = hr_bpe_find(b, unk, strlen(unk))) < 0) {
        return malformed(l, "model", "\"unk_token\" is not in the vocabulary");
    }
    if (unk && b->byte_level) return refuse(l, "model", "unk_token with ByteLevel");
    st = read_merges(l, merges);
    hr_bpe_merges_done(b);
    return st;
}

enum hr_status hr_tokenizer_create_json(const char *json, size_t len, struct hr_tokenizer **out,
                                        struct hr_err *err) {
    struct hr_json *root = NULL;
    struct hr_token_text *texts = NULL;
    struct loader l = {.err = err};
    enum hr_status st = hr_json_parse(json, len, &root, err);
    if (st) return hr_err_prefix(err, "tokenizer.json");
    l.t = hr_xcalloc(1, sizeof *l.t);
    l.root = root;
    l.text = json;
    l.text_len = len;
    if ((st = each(&l, hr_json_get(root, "normalizer"), "normalizer", "normalizers",
                   add_normalizer)))
        goto fail;
    if ((st = each(&l, hr_json_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                   add_pretok)))
        goto fail;
    if ((st = load_decoder(&l))) goto fail;
    if ((st = load_model(&l, &texts))) goto fail;
    if ((st = read_added(&l, hr_json_get(root, "added_tokens")))) goto fail;
    if ((st = each(&l, hr_json_get(root, "post_processor"), "post_processor", "processors",
                   add_post_processor)))
        goto fail;
    if ((st = hr_tokenizer_seal(l.t, texts, err))) goto fail;
    *out = l.t;
    l.t = NULL;
fail:
    hr_tokenizer_destroy(&l.t);
    hr_json_free(&root);
    free(texts);
    return st;
}

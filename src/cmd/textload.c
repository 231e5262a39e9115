/* SPDX-License-Identifier: Apache-2.0
 *
 * textload: see textload.h.
 *
 * Where a directory's files disagree: chat_template.jinja wins over the template in
 * tokenizer_config.json; a special token of tokenizer_config.json over special_tokens_map.json's.
 * End tokens are never overruled, only added: a model stops at every token that any of its files
 * names.
 * Source: huggingface/transformers tokenization_utils_base.py (files, special tokens, named
 * templates) and generation/configuration_utils.py; ggml-org/ggml docs/gguf.md "Tokenizer". */
#include "cmd/textload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"

#define TOKENIZER_BYTES_MAX ((size_t)512 << 20)
#define CONFIG_BYTES_MAX    ((size_t)64 << 20) /* tokenizer_config.json lists added tokens */
#define TEMPLATE_BYTES_MAX  ((size_t)16 << 20)

static const char *const special_names[HR_SPECIAL_MAX] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
};

/* A template's text before it is compiled. */
struct source {
    struct hr_buf text;
    bool found;
    const char *origin; /* borrowed; when found */
};

struct loader {
    const struct hr_model_file *mf;
    struct hr_model_text *out;
    struct hr_json *tokenizer_config, *special_map, *config,
        *generation; /* owned, NULL when absent */
    struct source chat, tools;
};

/* A whole file; HR_ERR_NOTFOUND without a message when there is none. */
static enum hr_status read_file(const char *path, size_t bytes_max, struct hr_buf *out,
                                struct hr_err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return HR_ERR_NOTFOUND;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && out->len <= bytes_max) {
        hr_buf_reserve(out, 1 << 16);
        n = read(fd, out->data + out->len, 1 << 16);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            out->len += (size_t)n;
    }
    int code = errno;
    if (fd >= 0) close(fd);
    if (n < 0) return hr_err_set(err, HR_ERR_IO, "%s: %s", path, strerror(code));
    if (out->len > bytes_max)
        return hr_err_set(err, HR_ERR_LIMIT, "%s: larger than %zu bytes", path, bytes_max);
    return HR_OK;
}

static const char *file_path(const struct loader *l, const char *name, struct hr_buf *b) {
    hr_buf_clear(b);
    hr_buf_printf(b, "%s/%s", hr_model_file_dir(l->mf), name);
    return hr_buf_cstr(b);
}

/* A JSON file that may be absent: then *out stays NULL. */
static enum hr_status read_json(const struct loader *l, const char *name, struct hr_json **out,
                                struct hr_err *err) {
    struct hr_buf path = {0};
    enum hr_status rc = hr_json_parse_file(file_path(l, name, &path), CONFIG_BYTES_MAX, out, err);
    if (rc == HR_ERR_NOTFOUND) rc = HR_OK;
    if (!rc && *out && hr_json_type(*out) != HR_JSON_OBJECT)
        rc = hr_err_set(err, HR_ERR_FORMAT, "%s: it is not a JSON object", hr_buf_cstr(&path));
    hr_buf_finish(&path);
    return rc;
}

/* Appends a value of a file for a message, as JSON, a long one cut. */
static void show_value(const struct hr_json *v, struct hr_buf *out) {
    const size_t shown = 40; /* bytes */
    struct hr_buf text = {0};
    hr_json_dump(v, &text);
    size_t n = text.len < shown ? text.len : shown;
    while (n < text.len && n > 0 && ((uint8_t)text.data[n] & 0xc0) == 0x80) n--; /* not inside a character */
    hr_buf_append(out, text.data, n);
    if (n < text.len) hr_buf_puts(out, "...");
    hr_buf_finish(&text);
}

static enum hr_status add_eos(struct hr_model_text *t, int32_t id, const char *where, struct hr_err *err) {
    int at = 0;
    while (at < t->n_eos && t->eos_ids[at] < id) at++;
    if (at < t->n_eos && t->eos_ids[at] == id) return HR_OK;
    if (t->n_eos == HR_EOS_MAX)
        return hr_err_set(err, HR_ERR_LIMIT, "%s: the model has more than %d end tokens", where,
                          HR_EOS_MAX);
    memmove(t->eos_ids + at + 1, t->eos_ids + at, (size_t)(t->n_eos - at) * sizeof *t->eos_ids);
    t->eos_ids[at] = id;
    t->n_eos++;
    return HR_OK;
}

/* JSON has one kind of number: 2.0 is 2. */
static bool is_token_id(const struct hr_json *v, int32_t *id) {
    double real;
    if (!hr_json_real(v, &real) || !(real >= 0 && real <= INT32_MAX) || real != (double)(int32_t)real) return false;
    *id = (int32_t)real;
    return true;
}

/* eos_token_id of a file: a number, a list of numbers, null or absent. An id outside the vocabulary harms nothing
 * but ends nothing either, and is most likely another model's. */
static enum hr_status add_eos_json(struct hr_model_text *t, const struct hr_json *root,
                                   const char *where, struct hr_err *err) {
    const struct hr_json *v = hr_json_get(root, "eos_token_id");
    bool is_list = hr_json_type(v) == HR_JSON_ARRAY;
    size_t n = is_list ? hr_json_size(v) : 1;
    int n_vocab = hr_tokenizer_n_vocab(t->tokenizer);
    enum hr_status rc = HR_OK;
    if (hr_json_type(v) == HR_JSON_NULL) return HR_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct hr_json *one = is_list ? hr_json_at(v, i) : v;
        int32_t id;
        if (!is_token_id(one, &id)) {
            struct hr_buf shown = {0};
            show_value(one, &shown);
            rc = hr_err_set(err, HR_ERR_FORMAT, "%s: \"eos_token_id\" must be a token id or a list of them; %s is none",
                            where, hr_buf_cstr(&shown));
            hr_buf_finish(&shown);
            continue;
        }
        if (id >= n_vocab)
            hr_warn("%s: end token %d is outside the tokenizer's vocabulary of %d: nothing will end with it", where,
                    (int)id, n_vocab);
        rc = add_eos(t, id, where, err);
    }
    return rc;
}

/* Makes a special token a template variable, and keeps the text of the two that others ask for. */
static void add_special(struct hr_model_text *t, const char *name, const char *s, size_t len) {
    struct hr_buf json = {0};
    if (memchr(s, 0, len)) return; /* no tokenizer has such a token */
    hr_buf_json_str(&json, s, len);
    t->special[t->n_special++] = (struct hr_template_var){
        .name = name, .json = json.data, .json_len = json.len, .trusted = true};
    if (strcmp(name, "bos_token") == 0) {
        t->bos_token = hr_xstrndup(s, len);
        t->bos_id = hr_tokenizer_find(t->tokenizer, s, len);
    } else if (strcmp(name, "eos_token") == 0) {
        t->eos_token = hr_xstrndup(s, len);
    }
}

/* A special token is a string or an object with its "content". */
static bool special_text(const struct hr_json *root, const char *name, const char **s,
                         size_t *len) {
    const struct hr_json *v = hr_json_get(root, name);
    return hr_json_str(v, s, len) || hr_json_str(hr_json_get(v, "content"), s, len);
}

static enum hr_status load_special(struct loader *l, struct hr_err *err) {
    struct hr_model_text *t = l->out;
    const char *s;
    size_t len;
    int32_t id;
    for (int i = 0; i < HR_SPECIAL_MAX; i++)
        if (special_text(l->tokenizer_config, special_names[i], &s, &len) ||
            special_text(l->special_map, special_names[i], &s, &len))
            add_special(t, special_names[i], s, len);
    hr_json_bool(hr_json_get(l->tokenizer_config, "add_bos_token"), &t->add_bos);
    if (t->bos_id < 0) t->add_bos = false;
    enum hr_status rc = add_eos_json(t, l->generation, "generation_config.json", err);
    if (!rc) rc = add_eos_json(t, l->config, "config.json", err);
    if (!rc && t->eos_token) {
        id = hr_tokenizer_find(t->tokenizer, t->eos_token, strlen(t->eos_token));
        if (id >= 0) rc = add_eos(t, id, "tokenizer_config.json", err);
    }
    return rc;
}

/* One number of generation_config.json; absent and null state nothing. */
static enum hr_status generation_real(const struct hr_json *root, const char *key, double min,
                                      double max, bool *has, double *out, struct hr_err *err) {
    const struct hr_json *v = hr_json_get(root, key);
    if (hr_json_type(v) == HR_JSON_NULL) return HR_OK;
    if (!hr_json_real(v, out) || !(*out >= min && *out <= max))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "generation_config.json: key \"%s\" is not a number from %g to %g", key,
                          min, max);
    *has = true;
    return HR_OK;
}

static enum hr_status load_generation(struct loader *l, struct hr_err *err) {
    struct hr_sampling_spec *g = &l->out->generation;
    const struct hr_json *root = l->generation, *top_k = hr_json_get(root, "top_k");
    bool do_sample = true;
    if (hr_json_bool(hr_json_get(root, "do_sample"), &do_sample) && !do_sample) {
        g->has_temperature = true;
        g->temperature = 0;
    } else {
        enum hr_status rc =
            generation_real(root, "temperature", 0, 1e4, &g->has_temperature, &g->temperature, err);
        if (!rc) rc = generation_real(root, "top_p", 1e-9, 1, &g->has_top_p, &g->top_p, err);
        if (!rc) rc = generation_real(root, "min_p", 0, 1, &g->has_min_p, &g->min_p, err);
        if (rc) return rc;
        if (hr_json_type(top_k) != HR_JSON_NULL) {
            if (!hr_json_int(top_k, &g->top_k) || g->top_k < -1)
                return hr_err_set(
                    err, HR_ERR_FORMAT,
                    "generation_config.json: key \"top_k\" is not a whole number from -1");
            g->has_top_k = true;
        }
    }
    return generation_real(root, "repetition_penalty", 1e-4, 1e4, &g->has_repetition_penalty,
                           &g->repetition_penalty, err);
}

static void set_source(struct source *s, const char *text, size_t len) {
    s->found = true;
    hr_buf_clear(
        &s->text); /* of two templates of one name the last is the one, as in the reference */
    hr_buf_append(&s->text, text, len);
}

static enum hr_status read_template(struct loader *l, const char *path, struct source *s,
                                    struct hr_err *err) {
    enum hr_status rc = read_file(path, TEMPLATE_BYTES_MAX, &s->text, err);
    s->found = rc == HR_OK;
    return rc;
}

/* tokenizer_config.json: a string, or a list of {"name", "template"} of which "default" and
 * "tool_use" are the ones that a chat can ask for. */
static void config_template(struct loader *l) {
    const struct hr_json *v = hr_json_get(l->tokenizer_config, "chat_template");
    const char *name, *text;
    size_t name_len, len;
    if (hr_json_str(v, &text, &len)) set_source(&l->chat, text, len);
    for (size_t i = 0; hr_json_type(v) == HR_JSON_ARRAY && i < hr_json_size(v); i++) {
        const struct hr_json *entry = hr_json_at(v, i);
        if (!hr_json_str(hr_json_get(entry, "name"), &name, &name_len) ||
            !hr_json_str(hr_json_get(entry, "template"), &text, &len))
            continue;
        if (name_len == 7 && memcmp(name, "default", 7) == 0) set_source(&l->chat, text, len);
        if (name_len == 8 && memcmp(name, "tool_use", 8) == 0) set_source(&l->tools, text, len);
    }
    bool named = hr_json_type(v) == HR_JSON_ARRAY;
    l->chat.origin = named ? "tokenizer_config.json: default" : "tokenizer_config.json";
    l->tools.origin = "tokenizer_config.json: tool_use";
}

static enum hr_status find_dir_template(struct loader *l, struct hr_err *err) {
    struct hr_buf path = {0};
    enum hr_status rc = read_template(l, file_path(l, "chat_template.jinja", &path), &l->chat, err);
    if (rc == HR_ERR_NOTFOUND) {
        config_template(l);
        rc = HR_OK;
    } else if (!rc) {
        l->chat.origin = "chat_template.jinja";
        l->tools.origin = "additional_chat_templates/tool_use.jinja";
        rc = read_template(l, file_path(l, l->tools.origin, &path), &l->tools, err);
        if (rc == HR_ERR_NOTFOUND) rc = HR_OK;
    }
    hr_buf_finish(&path);
    return rc;
}

static void find_gguf_template(struct loader *l) {
    const char *s;
    size_t len;
    if (hr_model_file_meta_str(l->mf, "tokenizer.chat_template", &s, &len) ||
        hr_model_file_meta_str(l->mf, "tokenizer.chat_template.default", &s, &len)) {
        set_source(&l->chat, s, len);
    }
    if (hr_model_file_meta_str(l->mf, "tokenizer.chat_template.tool_use", &s, &len))
        set_source(&l->tools, s, len);
    l->chat.origin = "tokenizer.chat_template";
    l->tools.origin = "tokenizer.chat_template.tool_use";
}

static enum hr_status find_template(struct loader *l, const char *override, struct hr_err *err) {
    if (override) {
        enum hr_status rc = read_template(l, override, &l->chat, err);
        if (rc == HR_ERR_NOTFOUND)
            return hr_err_set(err, HR_ERR_NOTFOUND, "%s: no such template file", override);
        l->chat.origin = override;
        return rc;
    }
    if (!hr_model_file_is_gguf(l->mf)) return find_dir_template(l, err);
    find_gguf_template(l);
    return HR_OK;
}

static void hash_text(const struct hr_buf *a, const struct hr_buf *b, char hex[65]) {
    struct hr_sha256 sha;
    uint8_t digest[32];
    hr_sha256_init(&sha);
    hr_sha256_update(&sha, a->data, a->len);
    if (b) { /* a NUL cannot be in a template, so the pair is told from one text */
        hr_sha256_update(&sha, "", 1);
        hr_sha256_update(&sha, b->data, b->len);
    }
    hr_sha256_final(&sha, digest);
    hr_hex(digest, sizeof digest, hex);
}

static enum hr_status compile(struct source *s, struct hr_template **out, char hex[65],
                              char **origin, struct hr_err *err) {
    *origin = hr_xstrdup(s->origin);
    hash_text(&s->text, NULL, hex);
    enum hr_status rc = hr_template_compile(hr_buf_cstr(&s->text), s->text.len, out, err);
    return rc ? hr_err_prefix(err, "chat template (%s)", s->origin) : HR_OK;
}

/* A template that is there but cannot be used is not the same as none. */
static void say_no_template(const struct loader *l, struct hr_buf *out) {
    const struct hr_json *v = hr_json_get(l->tokenizer_config, "chat_template");
    bool is_named = l->tools.found || hr_json_type(v) == HR_JSON_ARRAY;
    if (!is_named && hr_json_type(v) == HR_JSON_NULL) {
        hr_buf_puts(out, "the model has no chat template");
        return;
    }
    hr_buf_puts(out, "the model's chat template cannot be used: ");
    if (hr_model_file_is_gguf(l->mf)) {
        hr_buf_puts(out, "there is tokenizer.chat_template.tool_use, but no tokenizer.chat_template");
    } else if (is_named) {
        hr_buf_puts(out, "tokenizer_config.json: \"chat_template\" is a list without one that is named \"default\"");
    } else {
        hr_buf_puts(out, "tokenizer_config.json: \"chat_template\" is neither a string nor a list of named ones, but ");
        show_value(v, out);
    }
}

static enum hr_status load_template(struct loader *l, const char *override, struct hr_err *err) {
    struct hr_model_text *t = l->out;
    enum hr_status rc = find_template(l, override, err);
    if (rc) return rc;
    if (!l->chat.found) {
        struct hr_buf why = {0};
        say_no_template(l, &why);
        hr_buf_cstr(&why);
        t->no_template = why.data;
        return HR_OK;
    }
    rc = compile(&l->chat, &t->chat_template, t->chat_hash, &t->template_origin, err);
    if (!rc && l->tools.found)
        rc = compile(&l->tools, &t->tool_template, t->tool_hash, &t->tool_origin, err);
    if (rc) return rc;
    hr_think_detect(l->chat.text.data, l->chat.text.len, &t->think);
    if (!t->think.close) hr_think_detect(l->tools.text.data, l->tools.text.len, &t->think);
    hash_text(&l->chat.text, l->tools.found ? &l->tools.text : NULL, t->template_hash);
    return HR_OK;
}

/* Control tokens of a tiktoken.model: RESERVED ids after the ranks, with the names that
 * "added_tokens_decoder" gives them. Source: moonshotai/Kimi-K2-Instruct, tokenization_kimi.py. */
enum { RESERVED = 256 };

static enum hr_status create_ranks(struct loader *l, const struct hr_buf *text,
                                   struct hr_err *err) {
    const struct hr_json *config = l->tokenizer_config,
                         *named = hr_json_get(config, "added_tokens_decoder");
    struct hr_rank_token control[RESERVED];
    char names[RESERVED][48];
    const char *class;
    size_t n = hr_tokenizer_count_ranks(text->data, text->len), len;
    if (n > INT32_MAX / 2) return hr_err_set(err, HR_ERR_LIMIT, "%zu ranks are too many", n);
    if (!hr_json_str(hr_json_get(config, "tokenizer_class"), &class, &len) ||
        strcmp(class, "TikTokenTokenizer") != 0)
        return hr_err_set(err, HR_ERR_UNSUPPORTED,
                          "the file does not say how text is split; known is the tokenizer_class "
                          "TikTokenTokenizer (Kimi's) in tokenizer_config.json");
    for (int i = 0; i < RESERVED; i++) {
        char id[16];
        struct hr_rank_token *c = &control[i];
        snprintf(id, sizeof id, "%zu", n + (size_t)i);
        snprintf(names[i], sizeof names[i], "<|reserved_token_%s|>", id);
        const struct hr_json *entry = hr_json_get(named, id);
        *c = (struct hr_rank_token){(int32_t)(n + (size_t)i), names[i], strlen(names[i]), true};
        hr_json_str(hr_json_get(entry, "content"), &c->s, &c->len);
        hr_json_bool(hr_json_get(entry, "special"), &c->special);
    }
    return hr_tokenizer_create_ranks(text->data, text->len, NULL, control, RESERVED,
                                     &l->out->tokenizer, err);
}

static void hash_tokenizer(struct loader *l, const struct hr_buf *text, bool ranks) {
    struct hr_sha256 sha;
    struct hr_buf control = {0};
    uint8_t digest[32];
    hr_sha256_init(&sha);
    hr_sha256_update(&sha, text->data, text->len);
    const struct hr_json *named = hr_json_get(l->tokenizer_config, "added_tokens_decoder");
    if (ranks && named) {
        hr_json_dump(named, &control);
        hr_sha256_update(&sha, control.data, control.len);
    }
    hr_sha256_final(&sha, digest);
    hr_hex(digest, sizeof digest, l->out->tokenizer_hash);
    hr_buf_finish(&control);
}

/* tokenizer.json or, when there is none, tiktoken.model. */
static enum hr_status load_dir_tokenizer(struct loader *l, struct hr_err *err) {
    struct hr_buf path = {0}, text = {0};
    file_path(l, "tokenizer.json", &path);
    enum hr_status rc = read_file(hr_buf_cstr(&path), TOKENIZER_BYTES_MAX, &text, err);
    bool ranks = rc == HR_ERR_NOTFOUND;
    if (ranks) {
        file_path(l, "tiktoken.model", &path);
        rc = read_file(hr_buf_cstr(&path), TOKENIZER_BYTES_MAX, &text, err);
    }
    if (rc == HR_ERR_NOTFOUND) {
        hr_err_set(err, rc,
                   "%s: there is no tokenizer.json and no tiktoken.model; headrace needs the "
                   "tokenizer in one of these forms",
                   hr_model_file_dir(l->mf));
    }
    if (rc) goto done;
    if (ranks)
        rc = create_ranks(l, &text, err);
    else
        rc = hr_tokenizer_create_json(hr_buf_cstr(&text), text.len, &l->out->tokenizer, err);
    if (rc)
        hr_err_prefix(err, "%s", hr_buf_cstr(&path));
    else
        hash_tokenizer(l, &text, ranks);
done:
    hr_buf_finish(&path);
    hr_buf_finish(&text);
    return rc;
}

static enum hr_status load_dir(struct loader *l, struct hr_err *err) {
    enum hr_status rc = read_json(l, "tokenizer_config.json", &l->tokenizer_config, err);
    if (!rc) rc = load_dir_tokenizer(l, err);
    if (!rc) rc = read_json(l, "special_tokens_map.json", &l->special_map, err);
    if (!rc) rc = read_json(l, "config.json", &l->config, err);
    if (!rc) rc = read_json(l, "generation_config.json", &l->generation, err);
    if (!rc) rc = load_special(l, err);
    if (!rc) rc = load_generation(l, err);
    return rc;
}

/* The arrays of a GGUF vocabulary, as pointers into the file. */
struct vocab_arrays {
    const char **tokens, **merges; /* owned; their strings are the file's */
    size_t *token_len, *merge_len;
    int32_t *types;
    float *scores;
    size_t n_tokens, n_merges, n_types, n_scores;
};

static void vocab_arrays_finish(struct vocab_arrays *a) {
    free(a->tokens);
    free(a->merges);
    free(a->token_len);
    free(a->merge_len);
    free(a->types);
    free(a->scores);
}

static enum hr_status read_strings(const struct hr_model_file *mf, const char *key, bool needed,
                                   const char ***s, size_t **len, size_t *n, struct hr_err *err) {
    if (!hr_model_file_meta_array(mf, key, n)) {
        if (needed) return hr_err_set(err, HR_ERR_FORMAT, "metadata key %s is missing", key);
        *n = 0;
        return HR_OK;
    }
    if (*n > INT32_MAX / 2)
        return hr_err_set(err, HR_ERR_LIMIT, "metadata key %s has %zu entries", key, *n);
    *s = hr_xcalloc(*n, sizeof **s);
    *len = hr_xcalloc(*n, sizeof **len);
    if (!hr_model_file_meta_array_str(mf, key, *s, *len))
        return hr_err_set(err, HR_ERR_FORMAT, "metadata key %s is not an array of strings", key);
    return HR_OK;
}

static enum hr_status read_scores(const struct hr_model_file *mf, struct vocab_arrays *a,
                                  struct hr_err *err) {
    if (!hr_model_file_meta_array(mf, "tokenizer.ggml.scores", &a->n_scores)) return HR_OK;
    if (a->n_scores != a->n_tokens)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "tokenizer.ggml.scores has %zu entries for %zu tokens", a->n_scores,
                          a->n_tokens);
    a->scores = hr_xcalloc(a->n_scores, sizeof *a->scores);
    if (!hr_model_file_meta_array_f32(mf, "tokenizer.ggml.scores", a->scores))
        return hr_err_set(err, HR_ERR_FORMAT, "tokenizer.ggml.scores is not an array of f32");
    return HR_OK;
}

static enum hr_status read_vocab(const struct hr_model_file *mf, struct vocab_arrays *a,
                                 struct hr_err *err) {
    enum hr_status rc = read_strings(mf, "tokenizer.ggml.tokens", true, &a->tokens, &a->token_len,
                                     &a->n_tokens, err);
    if (!rc)
        rc = read_strings(mf, "tokenizer.ggml.merges", false, &a->merges, &a->merge_len,
                          &a->n_merges, err);
    if (!rc) rc = read_scores(mf, a, err);
    if (rc) return rc;
    if (!hr_model_file_meta_array(mf, "tokenizer.ggml.token_type", &a->n_types)) return HR_OK;
    if (a->n_types != a->n_tokens)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "tokenizer.ggml.token_type has %zu entries for %zu tokens", a->n_types,
                          a->n_tokens);
    a->types = hr_xcalloc(a->n_types, sizeof *a->types);
    if (!hr_model_file_meta_array_int(mf, "tokenizer.ggml.token_type", a->types))
        return hr_err_set(err, HR_ERR_FORMAT,
                          "tokenizer.ggml.token_type is not an array of integers");
    return HR_OK;
}

/* A token id of the metadata, -1 when it is absent. One outside the vocabulary is refused. */
static enum hr_status meta_token(const struct hr_model_file *mf, const char *key, size_t n_tokens,
                                 int32_t *out, struct hr_err *err) {
    int64_t id;
    *out = -1;
    if (!hr_model_file_meta_int(mf, key, &id)) return HR_OK;
    if (id < 0 || (uint64_t)id >= n_tokens)
        return hr_err_set(err, HR_ERR_FORMAT, "metadata key %s: %lld is not a token id", key,
                          (long long)id);
    *out = (int32_t)id;
    return HR_OK;
}

static void hash_strings(struct hr_sha256 *sha, const char *const *s, const size_t *len, size_t n) {
    hr_sha256_update(sha, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        hr_sha256_update(sha, &len[i], sizeof len[i]);
        hr_sha256_update(sha, s[i], len[i]);
    }
}

static void hash_vocab(const struct hr_vocab *v, const struct vocab_arrays *a, char out[65]) {
    struct hr_sha256 sha;
    uint8_t digest[32];
    const char *names[2] = {v->model, v->pre};
    const size_t name_len[2] = {strlen(v->model), strlen(v->pre)};
    const int32_t numbers[7] = {
        v->bos, v->eos, v->unk, v->pad, v->add_bos, v->add_eos, v->add_space_prefix};
    hr_sha256_init(&sha);
    hash_strings(&sha, names, name_len, 2);
    hash_strings(&sha, a->tokens, a->token_len, a->n_tokens);
    hash_strings(&sha, a->merges, a->merge_len, a->n_merges);
    if (a->types) hr_sha256_update(&sha, a->types, a->n_types * sizeof *a->types);
    if (v->scores) hr_sha256_update(&sha, v->scores, a->n_scores * sizeof *v->scores);
    hr_sha256_update(&sha, numbers, sizeof numbers);
    hr_sha256_final(&sha, digest);
    hr_hex(digest, sizeof digest, out);
}

/* Special tokens of a GGUF go by id; templates want their text. */
static enum hr_status gguf_special(struct loader *l, const struct vocab_arrays *a,
                                   struct hr_err *err) {
    static const struct {
        const char *key, *name;
        bool ends;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token", false},
        {"tokenizer.ggml.eos_token_id", "eos_token", true},
        {"tokenizer.ggml.unknown_token_id", "unk_token", false},
        {"tokenizer.ggml.seperator_token_id", "sep_token", false}, /* the format's own spelling */
        {"tokenizer.ggml.padding_token_id", "pad_token", false},
        {"tokenizer.ggml.cls_token_id", "cls_token", false},
        {"tokenizer.ggml.mask_token_id", "mask_token", false},
        {"tokenizer.ggml.eot_token_id", NULL, true},
        {"tokenizer.ggml.eom_token_id", NULL, true},
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        int32_t id;
        enum hr_status rc = meta_token(l->mf, ids[i].key, a->n_tokens, &id, err);
        if (!rc && id >= 0 && ids[i].ends) rc = add_eos(l->out, id, ids[i].key, err);
        if (rc) return rc;
        if (id >= 0 && ids[i].name)
            add_special(l->out, ids[i].name, a->tokens[id], a->token_len[id]);
    }
    return HR_OK;
}

static char *meta_dup(const struct hr_model_file *mf, const char *key) {
    const char *s = "";
    size_t len = 0;
    hr_model_file_meta_str(mf, key, &s, &len);
    return hr_xstrndup(s, len);
}

static enum hr_status load_gguf(struct loader *l, struct hr_err *err) {
    const struct hr_model_file *mf = l->mf;
    struct vocab_arrays a = {0};
    int64_t flag;
    char *model = meta_dup(mf, "tokenizer.ggml.model"), *pre = meta_dup(mf, "tokenizer.ggml.pre");
    enum hr_status rc = read_vocab(mf, &a, err);
    if (rc) goto done;
    struct hr_vocab v = {
        .model = model,
        .pre = pre,
        .n_tokens = (int)a.n_tokens,
        .n_merges = (int)a.n_merges,
        .tokens = a.tokens,
        .token_len = a.token_len,
        .types = a.types,
        .scores = a.scores,
        .merges = a.merges,
        .merge_len = a.merge_len,
    };
    rc = meta_token(mf, "tokenizer.ggml.bos_token_id", a.n_tokens, &v.bos, err);
    if (!rc) rc = meta_token(mf, "tokenizer.ggml.eos_token_id", a.n_tokens, &v.eos, err);
    if (!rc) rc = meta_token(mf, "tokenizer.ggml.unknown_token_id", a.n_tokens, &v.unk, err);
    if (!rc) rc = meta_token(mf, "tokenizer.ggml.padding_token_id", a.n_tokens, &v.pad, err);
    if (rc) goto done;
    if (hr_model_file_meta_int(mf, "tokenizer.ggml.add_bos_token", &flag))
        v.add_bos = flag != 0;
    else
        v.add_bos = v.bos >= 0 && strcmp(model, "llama") == 0; /* SentencePiece files' default */
    if (hr_model_file_meta_int(mf, "tokenizer.ggml.add_eos_token", &flag)) v.add_eos = flag != 0;
    if (hr_model_file_meta_int(mf, "tokenizer.ggml.add_space_prefix", &flag))
        v.add_space_prefix = flag != 0;
    else
        v.add_space_prefix = strcmp(model, "llama") == 0; /* SentencePiece's "dummy prefix" */
    rc = hr_tokenizer_create_vocab(&v, &l->out->tokenizer, err);
    if (rc) {
        hr_err_prefix(err, "tokenizer of the GGUF file");
        goto done;
    }
    hash_vocab(&v, &a, l->out->tokenizer_hash);
    rc = gguf_special(l, &a, err);
    l->out->add_bos = v.add_bos && v.bos >= 0;
done:
    vocab_arrays_finish(&a);
    free(model);
    free(pre);
    return rc;
}

enum hr_status hr_model_text_open(const struct hr_model_file *mf, const char *template_path,
                                  struct hr_model_text *out, struct hr_err *err) {
    struct hr_model_text t = {.bos_id = -1};
    struct loader l = {.mf = mf, .out = &t};
    enum hr_status rc = hr_model_file_is_gguf(mf) ? load_gguf(&l, err) : load_dir(&l, err);
    if (!rc) rc = load_template(&l, template_path, err);
    hr_json_free(&l.tokenizer_config);
    hr_json_free(&l.special_map);
    hr_json_free(&l.config);
    hr_json_free(&l.generation);
    hr_buf_finish(&l.chat.text);
    hr_buf_finish(&l.tools.text);
    if (rc)
        hr_model_text_finish(&t);
    else
        *out = t;
    return rc;
}

void hr_model_text_finish(struct hr_model_text *t) {
    hr_tokenizer_destroy(&t->tokenizer);
    hr_template_destroy(&t->chat_template);
    hr_template_destroy(&t->tool_template);
    hr_think_finish(&t->think);
    for (int i = 0; i < t->n_special; i++) free((char *)t->special[i].json);
    free(t->no_template);
    free(t->template_origin);
    free(t->tool_origin);
    free(t->bos_token);
    free(t->eos_token);
    hr_sampling_spec_finish(&t->generation);
    *t = (struct hr_model_text){.bos_id = -1};
}

void hr_model_text_describe_templates(const struct hr_model_text *t, struct hr_buf *out) {
    enum { SHOWN = 16 }; /* hex digits: enough to tell two files apart, few enough to compare by eye */
    hr_buf_printf(out, "%s (sha256 %.*s)", t->template_origin, SHOWN, t->chat_hash);
    if (t->tool_template)
        hr_buf_printf(out, "; for rows with tools %s (sha256 %.*s)", t->tool_origin, SHOWN, t->tool_hash);
}

const struct hr_template *hr_model_text_template(const struct hr_model_text *t, bool has_tools) {
    return has_tools && t->tool_template ? t->tool_template : t->chat_template;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest: one JSON object, checked key by key before anything else is opened.
 *
 * The keys, their types and which may be null stand in `keys` below and, for editors, in
 * manifests/manifest.schema.json. The sampling object goes through the same table as a row's own
 * sampling (job/sampling.h). Paths are relative to the manifest's directory. Refused: unknown keys,
 * duplicate keys, wrong types, shards that are not there, and combinations that would be ignored in
 * silence (`prompt` with `messages`, `system` or `messages` without chat). */
#include "job/manifest.h"

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/json.h"
#include "job/prompt.h"
#include "job/sampling.h"

#define MANIFEST_BYTES_MAX (4u << 20)
#define DATASET_NAME_MAX   128 /* it becomes a directory's name */
#define KEY_SHOWN_MAX      64  /* bytes of an unknown key that a message quotes and compares */

enum { IS_STRING = 1, IS_LIST = 2, IS_BOOL = 4, IS_NUMBER = 8, IS_OBJECT = 16, IS_NULL = 32 };

/* Dotted paths of all keys. Types of the sampling keys are in sampling.c. */
static const struct {
    const char *path;
    int types;
    const char *wanted;
} keys[] = {
    {"$schema", IS_STRING, "a string"},
    {"dataset", IS_STRING, "a string"},
    {"model", IS_STRING | IS_NULL, "a path or null"},
    {"shards", IS_STRING | IS_LIST, "a path or a list of paths"},
    {"prompt", IS_STRING | IS_NULL, "a field's name, a template or null"},
    {"messages", IS_STRING | IS_NULL, "a field's name or null"},
    {"id", IS_STRING, "a field's name"},
    {"system", IS_STRING | IS_NULL, "a string or null"},
    {"chat", IS_BOOL, "true or false"},
    {"sampling", IS_OBJECT, "an object"},
    {"sampling.temperature", 0, NULL},
    {"sampling.top_p", 0, NULL},
    {"sampling.top_k", 0, NULL},
    {"sampling.min_p", 0, NULL},
    {"sampling.repetition_penalty", 0, NULL},
    {"sampling.presence_penalty", 0, NULL},
    {"sampling.frequency_penalty", 0, NULL},
    {"sampling.max_tokens", 0, NULL},
    {"sampling.stop", 0, NULL},
    {"sampling.stop_token_ids", 0, NULL},
    {"sampling.ignore_eos", 0, NULL},
    {"sampling.seed", 0, NULL},
    {"sampling.n", 0, NULL},
    {"max_tokens_per_dataset", IS_NUMBER | IS_NULL, "a whole number (0 or null: no cap)"},
    {"expected_tokens", IS_NUMBER, "a whole number"},
    {"expected_tokens_field", IS_STRING, "a field's name"},
    {"output", IS_OBJECT, "an object"},
    {"output.token_ids", IS_BOOL, "true or false"},
    {"template_vars", IS_OBJECT, "an object"},
    {"thinking", IS_OBJECT | IS_BOOL | IS_NULL, "an object with \"open\" and \"close\", false or null"},
    {"thinking.open", IS_STRING, "a string"},
    {"thinking.close", IS_STRING, "a string"},
};
#define N_KEYS ((int)(sizeof keys / sizeof *keys))

static int type_bit(const struct hr_json *v) {
    switch (hr_json_type(v)) {
    case HR_JSON_STRING:
        return IS_STRING;
    case HR_JSON_ARRAY:
        return IS_LIST;
    case HR_JSON_BOOL:
        return IS_BOOL;
    case HR_JSON_INT:
    case HR_JSON_REAL:
        return IS_NUMBER;
    case HR_JSON_OBJECT:
        return IS_OBJECT;
    default:
        return IS_NULL;
    }
}

/* Optimal string alignment: insertions, deletions, changes and swaps of neighbours; both strings at
 * most KEY_SHOWN_MAX long. */
static int edit_distance(const char *a, const char *b) {
    int d[KEY_SHOWN_MAX + 1][KEY_SHOWN_MAX + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    HR_ASSERT(n <= KEY_SHOWN_MAX && m <= KEY_SHOWN_MAX);
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

/* `parent` is "" or "sampling." and so on: a key of the same object is nearer than the same word in
 * another one, but a right word in the wrong place is found too. A word that is mostly another one is no slip
 * of the fingers: naming the nearest key would only mislead. */
static enum hr_status unknown_key(const char *parent, const char *key, struct hr_err *err) {
    char word[KEY_SHOWN_MAX + 1];
    size_t len = strnlen(key, KEY_SHOWN_MAX), cut;
    if (!hr_utf8_valid(key, len, &cut)) len = cut; /* not in the middle of a character */
    memcpy(word, key, len);
    word[len] = 0;
    int best = 0, best_cost = 1 << 20, n = (int)strlen(word);
    for (int i = 0; i < N_KEYS; i++) {
        const char *dot = strchr(keys[i].path, '.'), *last = dot != NULL ? dot + 1 : keys[i].path;
        size_t parent_len = (size_t)(last - keys[i].path);
        bool same = strlen(parent) == parent_len && strncmp(parent, keys[i].path, parent_len) == 0;
        int cost = 2 * edit_distance(word, last) + !same;
        if (cost < best_cost) best_cost = cost, best = i;
    }
    if (best_cost / 2 >= n || best_cost / 2 > 1 + n / 4)
        return hr_err_set(err, HR_ERR_CONFIG, "unknown key \"%s%s\"; docs/manifest.md lists the keys", parent, word);
    return hr_err_set(err, HR_ERR_CONFIG, "unknown key \"%s%s\"; did you mean \"%s\"?", parent,
                      word, keys[best].path);
}

/* Every key of `object` is known and of a right type. */
static enum hr_status check_keys(const struct hr_json *object, const char *parent,
                                 struct hr_err *err) {
    void *it = NULL;
    const char *key;
    const struct hr_json *value;
    while (hr_json_next(object, &it, &key, NULL, &value)) {
        size_t parent_len = strlen(parent);
        int i = 0;
        while (i < N_KEYS && (strncmp(keys[i].path, parent, parent_len) != 0 ||
                              strcmp(keys[i].path + parent_len, key) != 0))
            i++;
        if (i == N_KEYS || strchr(key, '.') != NULL) return unknown_key(parent, key, err);
        if (keys[i].types != 0 && (keys[i].types & type_bit(value)) == 0)
            return hr_err_set(err, HR_ERR_CONFIG, "\"%s\" must be %s", keys[i].path,
                              keys[i].wanted);
    }
    return HR_OK;
}

/* A string of the manifest as a C string: U+0000 is refused, and so is "" unless it may be. */
static enum hr_status take_str(const struct hr_json *root, const char *key, bool may_be_empty,
                               char **out, struct hr_err *err) {
    const char *s;
    size_t len;
    if (!hr_json_str(hr_json_get(root, key), &s, &len)) return HR_OK;
    if (memchr(s, 0, len) != NULL)
        return hr_err_set(err, HR_ERR_CONFIG, "\"%s\" must not hold U+0000", key);
    if (len == 0 && !may_be_empty)
        return hr_err_set(err, HR_ERR_CONFIG, "\"%s\" must not be empty", key);
    *out = hr_xstrndup(s, len);
    return HR_OK;
}

/* `path` as seen from the manifest's directory; owned. */
static char *resolve(const struct hr_manifest *m, const char *path) {
    const char *slash = strrchr(m->path, '/');
    struct hr_buf b = {0};
    if (path[0] != '/' && slash != NULL) hr_buf_append(&b, m->path, (size_t)(slash - m->path) + 1);
    hr_buf_puts(&b, path);
    hr_buf_cstr(&b);
    return b.data;
}

static enum hr_status check_dataset(const char *name, struct hr_err *err) {
    size_t len = name == NULL ? 0 : strlen(name);
    if (name == NULL)
        return hr_err_set(err, HR_ERR_CONFIG, "\"dataset\" (the job's name) is missing");
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (len == 0 || name[0] == '.' || strspn(name, plain) != len || len > DATASET_NAME_MAX)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "\"dataset\" must be a plain name of 1 to %d letters, digits and ._-, "
                          "not beginning with a dot",
                          DATASET_NAME_MAX);
    return HR_OK;
}

/* Adds a file once: the same one by another path or link is the same rows again. */
static enum hr_status add_shard(struct hr_manifest *m, const char *path, struct hr_err *err) {
    struct stat sb, other;
    if (stat(path, &sb) < 0)
        return hr_err_set(err, HR_ERR_CONFIG, "shard %s: %s", path, strerror(errno));
    if (S_ISDIR(sb.st_mode))
        return hr_err_set(err, HR_ERR_CONFIG,
                          "shard %s is a directory; name its files, as in \"%s/*\"", path, path);
    if (!S_ISREG(sb.st_mode)) /* a pipe or terminal would hang here, and nobody could resume from it */
        return hr_err_set(err, HR_ERR_CONFIG, "shard %s is not a regular file; write its rows to one", path);
    for (int i = 0; i < m->n_shards; i++)
        if (stat(m->shards[i], &other) == 0 && other.st_dev == sb.st_dev &&
            other.st_ino == sb.st_ino)
            return HR_OK;
    m->shards = hr_xrealloc(m->shards, (size_t)(m->n_shards + 1) * sizeof *m->shards);
    m->shards[m->n_shards++] = hr_xstrdup(path);
    return HR_OK;
}

/* Directories among a glob's matches are left out: "data/" + "*" should not fail because of one. */
static enum hr_status add_glob(struct hr_manifest *m, const char *pattern, struct hr_err *err) {
    glob_t g = {0};
    struct stat sb;
    enum hr_status st = HR_OK;
    int n_files = 0, rc = glob(pattern, 0, NULL, &g);
    if (rc == 0)
        for (size_t i = 0; i < g.gl_pathc && st >= 0; i++) {
            if (stat(g.gl_pathv[i], &sb) == 0 && S_ISDIR(sb.st_mode)) continue;
            st = add_shard(m, g.gl_pathv[i], err);
            n_files++;
        }
    if (st >= 0 && n_files == 0)
        st = hr_err_set(err, HR_ERR_CONFIG, "no shard matches \"%s\"", pattern);
    globfree(&g);
    return st;
}

static enum hr_status take_shard(struct hr_manifest *m, const struct hr_json *v,
                                 struct hr_err *err) {
    const char *s;
    size_t len;
    struct stat sb;
    if (!hr_json_str(v, &s, &len) || len == 0 || memchr(s, 0, len) != NULL)
        return hr_err_set(err, HR_ERR_CONFIG, "\"shards\" must hold paths or globs");
    char *path = resolve(m, s);
    bool is_glob =
        strpbrk(s, "*?[") != NULL && stat(path, &sb) < 0; /* a file of that very name wins */
    enum hr_status st = is_glob ? add_glob(m, path, err) : add_shard(m, path, err);
    free(path);
    return st;
}

static enum hr_status take_shards(struct hr_manifest *m, const struct hr_json *v,
                                  struct hr_err *err) {
    if (hr_json_type(v) == HR_JSON_STRING) return take_shard(m, v, err);
    if (hr_json_size(v) == 0)
        return hr_err_set(err, HR_ERR_CONFIG, "\"shards\" is missing or empty");
    for (size_t i = 0; i < hr_json_size(v); i++) {
        enum hr_status st = take_shard(m, hr_json_at(v, i), err);
        if (st < 0) return st;
    }
    return HR_OK;
}

/* Through text into the table that rows use; stated nulls are errors here, but for max_tokens. */
static enum hr_status take_sampling(struct hr_manifest *m, const struct hr_json *v,
                                    struct hr_err *err) {
    struct hr_buf text = {0};
    struct hr_jval object, key, value;
    struct hr_jiter it = {0};
    if (v == NULL) return HR_OK;
    hr_json_dump(v, &text);
    enum hr_status st = hr_jscan_validate(text.data, text.len, &object, err);
    while (st >= 0 && hr_jscan_next(&object, &it, &key, &value)) {
        if (value.type == HR_JNULL && !hr_jscan_str_eq(&key, "max_tokens", 10))
            st = hr_err_set(err, HR_ERR_CONFIG, "%.*s must not be null; leave it out", (int)key.len,
                            key.p);
        else
            st = hr_sampling_take(&m->sampling, &key, &value, err);
    }
    if (st < 0) hr_err_prefix(err, "in \"sampling\"");
    hr_buf_finish(&text);
    return st;
}

static enum hr_status take_count(const struct hr_json *root, const char *key, int64_t *out,
                                 struct hr_err *err) {
    const struct hr_json *v = hr_json_get(root, key);
    double real = 0;
    if (v == NULL || hr_json_type(v) == HR_JSON_NULL) return HR_OK;
    if (!hr_json_int(v, out)) {
        if (!hr_json_real(v, &real) || real != floor(real))
            return hr_err_set(err, HR_ERR_CONFIG, "\"%s\" must be a whole number", key);
        if (real > 9007199254740992.0)
            return hr_err_set(err, HR_ERR_CONFIG, "\"%s\" must be at most 9007199254740992, not %g", key, real);
        *out = real < 0 ? -1 : (int64_t)real;
    }
    if (*out < 0) return hr_err_set(err, HR_ERR_CONFIG, "\"%s\" must not be negative", key);
    return HR_OK;
}

static enum hr_status take_thinking(struct hr_manifest *m, const struct hr_json *v, struct hr_err *err) {
    bool on = false;
    if (v == NULL) return HR_OK;
    m->thinking = hr_json_type(v) == HR_JSON_OBJECT ? HR_THINKING_TAGS : HR_THINKING_OFF;
    if (hr_json_bool(v, &on) && on)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "\"thinking\": true says no tags; leave it out to take those of the chat template");
    if (m->thinking == HR_THINKING_OFF) return HR_OK;
    enum hr_status st = take_str(v, "open", false, &m->think_open, err);
    if (st >= 0) st = take_str(v, "close", false, &m->think_close, err);
    if (st < 0) return hr_err_prefix(err, "in \"thinking\"");
    if (m->think_open == NULL || m->think_close == NULL)
        return hr_err_set(err, HR_ERR_CONFIG, "\"thinking\" needs both \"open\" and \"close\"");
    if (strchr(" \t\r\n", m->think_open[0]) != NULL)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "\"thinking.open\" must not begin with white space, which may stand before it anyway");
    return HR_OK;
}

/* What would be ignored in silence is refused. */
static enum hr_status check_prompt(const struct hr_manifest *m, struct hr_err *err) {
    if (m->prompt != NULL && m->messages != NULL)
        return hr_err_set(err, HR_ERR_CONFIG,
                          "\"prompt\" and \"messages\" are both given; leave one out");
    if (!m->chat && (m->messages != NULL || m->system != NULL))
        return hr_err_set(err, HR_ERR_CONFIG,
                          "\"%s\" needs the chat template, which \"chat\": false turns off",
                          m->messages != NULL ? "messages" : "system");
    if (m->prompt == NULL || !hr_prompt_is_template(m->prompt)) return HR_OK;
    enum hr_status st = hr_prompt_check(m->prompt, err);
    if (st < 0) hr_err_prefix(err, "\"prompt\"");
    return st;
}

bool hr_manifest_is_own_var(const char *name, size_t len) {
    return (len == 8 && memcmp(name, "messages", 8) == 0) ||
           (len == 21 && memcmp(name, "add_generation_prompt", 21) == 0);
}

static enum hr_status check_template_vars(const struct hr_json *vars, struct hr_err *err) {
    void *it = NULL;
    const char *key;
    size_t len;
    const struct hr_json *value;
    if (hr_json_size(vars) > HR_TEMPLATE_VARS_MAX)
        return hr_err_set(err, HR_ERR_CONFIG, "\"template_vars\" has %zu variables, at most %d are taken",
                          hr_json_size(vars), HR_TEMPLATE_VARS_MAX);
    while (hr_json_next(vars, &it, &key, &len, &value)) {
        bool is_list = hr_json_type(value) == HR_JSON_ARRAY;
        if (len == 0 || len > HR_TEMPLATE_VAR_LEN_MAX)
            return hr_err_set(err, HR_ERR_CONFIG, "\"template_vars\": a name has 1 to %d bytes, not %zu",
                              HR_TEMPLATE_VAR_LEN_MAX, len);
        if (hr_manifest_is_own_var(key, len))
            return hr_err_set(err, HR_ERR_CONFIG, "\"template_vars\": \"%s\" is set by headrace itself", key);
        if (!is_list && (strcmp(key, "tools") == 0 || strcmp(key, "documents") == 0))
            return hr_err_set(err, HR_ERR_CONFIG, "\"template_vars\": \"%s\" must be a list", key);
    }
    return HR_OK;
}

static enum hr_status fill(struct hr_manifest *m, const struct hr_json *root, struct hr_err *err) {
    const struct hr_json *vars = hr_json_get(root, "template_vars");
    char *model = NULL;
    enum hr_status st = HR_OK;
    if (hr_json_type(root) != HR_JSON_OBJECT)
        return hr_err_set(err, HR_ERR_CONFIG, "a manifest is a JSON object");
    if ((st = check_keys(root, "", err)) < 0) return st;
    if ((st = check_keys(hr_json_get(root, "sampling"), "sampling.", err)) < 0) return st;
    if ((st = check_keys(hr_json_get(root, "output"), "output.", err)) < 0) return st;
    if ((st = check_keys(hr_json_get(root, "thinking"), "thinking.", err)) < 0) return st;
    if ((st = take_str(root, "dataset", true, &m->dataset, err)) < 0) return st;
    if ((st = check_dataset(m->dataset, err)) < 0) return st;
    if ((st = take_str(root, "prompt", false, &m->prompt, err)) < 0) return st;
    if ((st = take_str(root, "messages", false, &m->messages, err)) < 0) return st;
    if ((st = take_str(root, "id", false, &m->id, err)) < 0) return st;
    if ((st = take_str(root, "system", true, &m->system, err)) < 0) return st;
    if ((st = take_str(root, "model", false, &model, err)) < 0) return st;
    if (model != NULL) m->model = resolve(m, model);
    free(model);
    if (m->id == NULL) m->id = hr_xstrdup("id");
    m->chat = true;
    hr_json_bool(hr_json_get(root, "chat"), &m->chat);
    hr_json_bool(hr_json_get(hr_json_get(root, "output"), "token_ids"), &m->output_token_ids);
    if ((st = check_template_vars(vars, err)) < 0) return st;
    if (vars != NULL) hr_json_dump(vars, &m->template_vars);
    if ((st = check_prompt(m, err)) < 0) return st;
    if ((st = take_sampling(m, hr_json_get(root, "sampling"), err)) < 0) return st;
    if ((st = take_thinking(m, hr_json_get(root, "thinking"), err)) < 0) return st;
    if ((st = take_count(root, "max_tokens_per_dataset", &m->max_tokens_per_dataset, err)) < 0) return st;
    if ((st = take_count(root, "expected_tokens", &m->expected_tokens, err)) < 0) return st;
    if ((st = take_str(root, "expected_tokens_field", false, &m->expected_tokens_field, err)) < 0) return st;
    return take_shards(m, hr_json_get(root, "shards"), err);
}

enum hr_status hr_manifest_load(const char *path, struct hr_manifest **out, struct hr_err *err) {
    struct hr_json *root = NULL;
    struct hr_err local;
    if (err == NULL) err = &local;
    struct hr_manifest *m = hr_xcalloc(1, sizeof *m);
    m->path = hr_xstrdup(path);
    enum hr_status st = hr_json_parse_file(path, MANIFEST_BYTES_MAX, &root, err);
    if (st < 0) goto fail; /* the message begins with the path already */
    st = fill(m, root, err);
    if (st < 0) {
        hr_err_prefix(err, "%s", path);
        goto fail;
    }
    hr_json_free(&root);
    *out = m;
    return HR_OK;
fail:
    hr_json_free(&root);
    hr_manifest_destroy(&m);
    return err->code = HR_ERR_CONFIG;
}

void hr_manifest_destroy(struct hr_manifest **pm) {
    if (pm == NULL || *pm == NULL) return;
    struct hr_manifest *m = *pm;
    free(m->path);
    free(m->dataset);
    free(m->model);
    for (int i = 0; i < m->n_shards; i++) free(m->shards[i]);
    free(m->shards);
    free(m->prompt);
    free(m->messages);
    free(m->id);
    free(m->system);
    free(m->think_open);
    free(m->think_close);
    free(m->expected_tokens_field);
    hr_sampling_spec_finish(&m->sampling);
    hr_buf_finish(&m->template_vars);
    free(m);
    *pm = NULL;
}

/* An output that does not exist cannot be an input, for inputs were there when the manifest was
 * read; stat(2) follows links, and device and inode are the file whatever its name. */
enum hr_status hr_manifest_check_output(const struct hr_manifest *m, const char *output,
                                        struct hr_err *err) {
    struct stat out, in;
    if (stat(output, &out) < 0) return HR_OK;
    for (int i = -1; i < m->n_shards; i++) {
        const char *input = i < 0 ? m->path : m->shards[i];
        if (stat(input, &in) < 0 || in.st_dev != out.st_dev || in.st_ino != out.st_ino) continue;
        return hr_err_set(err, HR_ERR_CONFIG,
                          "%s: the output %s is the same file as the %s %s; choose another --out",
                          m->path, output, i < 0 ? "manifest" : "shard", input);
    }
    return HR_OK;
}

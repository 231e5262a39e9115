/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenize: text to token ids and ids to text, a JSON line in, a JSON line out.
 *
 * For people who want to see what a model sees, and for conformance tests. A line {"text": ...} is
 * encoded (add_special and parse_special, both false unless given, as in struct hr_encode_opts), a
 * line {"ids": [...]} is taken as it is; the answer holds the ids and their text with and without
 * special tokens. Ids that the tokenizer has no token for have no text, as in the reference; the answer names them
 * in "no_token" (a model's embedding may have more rows than its tokenizer has tokens, so they are no error). A
 * line that is neither gets {"error": ...} and the next one is served. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/jscan.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/textload.h"
#include "model/model_file.h"
#include "text/tokenizer.h"

/* A tokenizer.json holds a vocabulary, not a data set: the largest known are below 40 MB. */
#define TOKENIZER_BYTES_MAX ((size_t)1 << 30)

static enum hr_status read_file(const char *path, struct hr_buf *out, struct hr_err *err) {
    FILE *f = fopen(path, "rb");
    struct stat info;
    if (!f) return hr_err_set(err, errno == ENOENT ? HR_ERR_NOTFOUND : HR_ERR_IO, "%s: %m", path);
    enum hr_status st = HR_OK;
    if (fstat(fileno(f), &info) || !S_ISREG(info.st_mode)) {
        st = hr_err_set(err, HR_ERR_IO, "%s: not a regular file", path);
    } else if ((size_t)info.st_size > TOKENIZER_BYTES_MAX) {
        st = hr_err_set(err, HR_ERR_LIMIT, "%s: larger than any tokenizer", path);
    } else {
        hr_buf_reserve(out, (size_t)info.st_size + 1);
        out->len = fread(out->data, 1, (size_t)info.st_size, f);
        if (ferror(f)) st = hr_err_set(err, HR_ERR_IO, "%s: %m", path);
    }
    fclose(f);
    return st;
}

static enum hr_status open_tokenizer_file(const char *path, struct hr_tokenizer **out,
                                          struct hr_err *err) {
    struct hr_buf json = {0};
    enum hr_status st = read_file(path, &json, err);
    if (!st) {
        st = hr_tokenizer_create_json(json.data, json.len, out, err);
        if (st) hr_err_prefix(err, "%s", path);
    }
    hr_buf_finish(&json);
    return st;
}

/* A member that must be true or false when it is there. */
static bool get_flag(const struct hr_jval *line, const char *key, bool *out) {
    struct hr_jval v;
    *out = false;
    if (!hr_jscan_get(line, key, &v)) return true;
    *out = v.type == HR_JTRUE;
    return v.type == HR_JTRUE || v.type == HR_JFALSE;
}

static enum hr_status encode_line(const struct hr_tokenizer *tok, const struct hr_jval *line,
                                  const struct hr_jval *text, struct hr_ids *ids,
                                  struct hr_err *err) {
    struct hr_encode_opts opts = {0};
    struct hr_buf s = {0};
    if (text->type != HR_JSTRING)
        return hr_err_set(err, HR_ERR_FORMAT, "\"text\" must be a string");
    if (!get_flag(line, "add_special", &opts.add_special) ||
        !get_flag(line, "parse_special", &opts.parse_special)) {
        return hr_err_set(err, HR_ERR_FORMAT,
                          "\"add_special\" and \"parse_special\" must be true or false");
    }
    hr_buf_reserve(&s, 1);
    hr_jscan_str(text, &s);
    enum hr_status st = hr_tokenizer_encode(tok, s.data, s.len, &opts, ids, err);
    hr_buf_finish(&s);
    return st;
}

static enum hr_status read_ids(const struct hr_jval *list, struct hr_ids *ids, struct hr_err *err) {
    struct hr_jiter it = {0};
    struct hr_jval key, v;
    int64_t id;
    if (list->type != HR_JARRAY) return hr_err_set(err, HR_ERR_FORMAT, "\"ids\" must be a list");
    while (hr_jscan_next(list, &it, &key, &v)) {
        if (v.type != HR_JNUMBER || !hr_jscan_int(&v, &id) || id < 0 || id > INT32_MAX)
            return hr_err_set(err, HR_ERR_FORMAT, "\"ids\"[%zu] is not a token id, which is a whole number from 0 up",
                              ids->len);
        hr_ids_push(ids, (int32_t)id);
    }
    return HR_OK;
}

static void put_no_token(const struct hr_tokenizer *tok, const struct hr_ids *ids, struct hr_buf *out) {
    const struct hr_token_bytes *b = hr_tokenizer_bytes(tok);
    bool any = false;
    for (size_t i = 0; i < ids->len; i++) {
        int32_t id = ids->data[i];
        if (id < b->n_tokens && b->offset[id + 1] > b->offset[id]) continue;
        hr_buf_printf(out, any ? ", %d" : ", \"no_token\": [%d", (int)id);
        any = true;
    }
    if (any) hr_buf_putc(out, ']');
}

static void answer(const struct hr_tokenizer *tok, const struct hr_ids *ids, struct hr_buf *out) {
    struct hr_buf text = {0};
    hr_buf_puts(out, "{\"ids\": [");
    for (size_t i = 0; i < ids->len; i++) hr_buf_printf(out, i ? ", %d" : "%d", (int)ids->data[i]);
    for (int skip = 0; skip < 2; skip++) {
        hr_buf_clear(&text);
        hr_tokenizer_decode(tok, ids->data, ids->len, skip, &text);
        hr_buf_puts(out, skip ? ", \"decoded_skip\": " : "], \"decoded\": ");
        hr_buf_json_str(out, text.data, text.len);
    }
    put_no_token(tok, ids, out);
    hr_buf_puts(out, "}\n");
    hr_buf_finish(&text);
}

static void serve_line(const struct hr_tokenizer *tok, const char *text, size_t len,
                       struct hr_buf *out) {
    struct hr_err err = {0};
    struct hr_ids ids = {0};
    struct hr_jval line, v;
    enum hr_status st = hr_jscan_validate(text, len, &line, &err);
    if (!st && line.type != HR_JOBJECT) st = hr_err_set(&err, HR_ERR_FORMAT, "expected an object");
    if (!st) {
        if (hr_jscan_get(&line, "text", &v))
            st = encode_line(tok, &line, &v, &ids, &err);
        else if (hr_jscan_get(&line, "ids", &v))
            st = read_ids(&v, &ids, &err);
        else
            st = hr_err_set(&err, HR_ERR_FORMAT, "expected \"text\" or \"ids\"");
    }
    if (st) {
        hr_buf_puts(out, "{\"error\": ");
        hr_buf_json_str(out, err.msg, strlen(err.msg));
        hr_buf_puts(out, "}\n");
    } else {
        answer(tok, &ids, out);
    }
    hr_ids_finish(&ids);
}

static bool is_blank(const char *s, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r\n", s[i])) return false;
    return true;
}

/* Each answer is flushed: a person may be typing, or a program waiting for it. */
static enum hr_status serve(const struct hr_tokenizer *tok, struct hr_err *err) {
    struct hr_buf out = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    enum hr_status st = HR_OK;
    while (!st && (n = getline(&line, &cap, stdin)) >= 0) {
        if (is_blank(line, (size_t)n)) continue;
        hr_buf_clear(&out);
        serve_line(tok, line, (size_t)n, &out);
        if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout)) {
            st = hr_err_set(err, HR_ERR_IO, "writing to stdout: %m");
        }
    }
    free(line);
    hr_buf_finish(&out);
    return st;
}

/* From a model, only its text half: weights need not be there (a vocabulary-only GGUF). */
static enum hr_status open_model_text(const char *path, struct hr_model_text *text,
                                      struct hr_err *err) {
    struct hr_model_file *mf = NULL;
    enum hr_status st = hr_model_file_open_text(path, &mf, err);
    if (!st) st = hr_model_text_open(mf, NULL, text, err);
    hr_model_file_close(&mf);
    return st;
}

int hr_cmd_tokenize(int argc, char **argv) {
    const char *model = NULL, *file = NULL;
    const struct hr_opt opts[] = {
        {"model", "PATH", "Input",
         "Take the tokenizer of this model (a .gguf file or a directory).", HR_OPT_STR, &model},
        {"tokenizer", "FILE", "Input", "Take this tokenizer.json alone.", HR_OPT_STR, &file},
    };
    const struct hr_command_line cl = {
        "tokenize",
        "",
        "Turns text into token ids and back: JSON lines on stdin, one answer a line on "
        "stdout. A line is {\"text\": \"...\", \"add_special\": false, \"parse_special\": false} "
        "or "
        "{\"ids\": [...]}.",
        opts,
        HR_N_OPTS(opts),
        0,
        0};
    struct hr_model_text text = {0};
    struct hr_tokenizer *tok = NULL;
    struct hr_err err = {0};
    int n_args, code;
    if (!hr_options_parse(&cl, argc, argv, &n_args, &code)) return code;
    if (!model == !file) {
        hr_error("tokenize: give either --model PATH or --tokenizer FILE");
        return HR_EXIT_USAGE;
    }
    enum hr_status st =
        file ? open_tokenizer_file(file, &tok, &err) : open_model_text(model, &text, &err);
    if (!st) st = serve(file ? tok : text.tokenizer, &err);
    if (st) hr_error("tokenize: %s", err.msg);
    hr_tokenizer_destroy(&tok);
    hr_model_text_finish(&text);
    return st ? hr_cmd_exit_code(st) : HR_EXIT_DONE;
}

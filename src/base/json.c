/* SPDX-License-Identifier: Apache-2.0
 *
 * json: jansson, behind a read-only tree. The only file that knows it.
 *
 * Stricter than jansson by default (duplicate keys are refused) and laxer in one point: integers
 * that do not fit 64 bits are read as reals, because tokenizer_config.json files in the wild hold
 * "model_max_length": 1000000000000000019884624838656. */
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/jscan.h"

static const json_t *node(const struct hr_json *v) {
    return (const json_t *)v;
}

static const struct hr_json *wrap(const json_t *v) {
    return (const struct hr_json *)v;
}

static bool in_number(char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Copies the text with ".0" after each integer that does not fit, outside strings. */
static void widen_integers(const char *p, size_t len, struct hr_buf *out) {
    const char *end = p + len;
    bool in_string = false;
    while (p < end) {
        if (in_string || !(*p == '-' || (*p >= '0' && *p <= '9'))) {
            if (*p == '"') in_string = !in_string;
            if (in_string && *p == '\\' && p + 1 < end) hr_buf_putc(out, *p++);
            hr_buf_putc(out, *p++);
            continue;
        }
        const char *start = p;
        bool integer = true;
        for (; p < end && in_number(*p); p++)
            if (*p == '.' || *p == 'e' || *p == 'E') integer = false;
        struct hr_jval number = {HR_JNUMBER, start, (size_t)(p - start)};
        int64_t value;
        hr_buf_append(out, start, (size_t)(p - start));
        if (integer && !hr_jscan_int(&number, &value)) hr_buf_puts(out, ".0");
    }
}

enum hr_status hr_json_parse(const char *text, size_t len, struct hr_json **out,
                             struct hr_err *err) {
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_error_t e;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, len -= 3;
    json_t *root = json_loadb(text, len, flags, &e);
    if (root == NULL && json_error_code(&e) == json_error_numeric_overflow) {
        struct hr_buf wide = {0};
        widen_integers(text, len, &wide);
        root = json_loadb(wide.data, wide.len, flags, &e);
        hr_buf_finish(&wide);
    }
    if (root == NULL)
        return hr_err_set(err, HR_ERR_FORMAT, "line %d, column %d: %s", e.line, e.column, e.text);
    *out = (struct hr_json *)root;
    return HR_OK;
}

static enum hr_status read_file(const char *path, size_t max_bytes, struct hr_buf *out,
                                struct hr_err *err) {
    struct stat sb;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &sb) < 0) goto fail;
    if (S_ISDIR(sb.st_mode)) {
        errno = EISDIR;
        goto fail;
    }
    for (;;) {
        hr_buf_reserve(out, 65536);
        ssize_t n = read(fd, out->data + out->len, 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) goto fail;
        if (n == 0) break;
        out->len += (size_t)n;
        if (out->len > max_bytes) {
            close(fd);
            return hr_err_set(err, HR_ERR_LIMIT, "%s: larger than %zu bytes", path, max_bytes);
        }
    }
    close(fd);
    return HR_OK;
fail:;
    int code = errno;
    if (fd >= 0) close(fd);
    return hr_err_set(err, code == ENOENT ? HR_ERR_NOTFOUND : HR_ERR_IO, "%s: %s", path,
                      strerror(code));
}

enum hr_status hr_json_parse_file(const char *path, size_t max_bytes, struct hr_json **out,
                                  struct hr_err *err) {
    struct hr_buf text = {0};
    enum hr_status st = read_file(path, max_bytes, &text, err);
    if (st >= 0) {
        st = hr_json_parse(text.len ? text.data : "", text.len, out, err);
        if (st < 0) hr_err_prefix(err, "%s", path);
    }
    hr_buf_finish(&text);
    return st;
}

void hr_json_free(struct hr_json **root) {
    if (root == NULL || *root == NULL) return;
    json_decref((json_t *)*root);
    *root = NULL;
}

enum hr_json_type hr_json_type(const struct hr_json *v) {
    if (v == NULL) return HR_JSON_NULL;
    switch (json_typeof(node(v))) {
    case JSON_OBJECT:
        return HR_JSON_OBJECT;
    case JSON_ARRAY:
        return HR_JSON_ARRAY;
    case JSON_STRING:
        return HR_JSON_STRING;
    case JSON_INTEGER:
        return HR_JSON_INT;
    case JSON_REAL:
        return HR_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return HR_JSON_BOOL;
    default:
        return HR_JSON_NULL;
    }
}

const struct hr_json *hr_json_get(const struct hr_json *object, const char *key) {
    return wrap(json_object_get(node(object), key)); /* NULL for a NULL or another type */
}

const struct hr_json *hr_json_at(const struct hr_json *array, size_t i) {
    return wrap(json_array_get(node(array), i));
}

size_t hr_json_size(const struct hr_json *v) {
    return json_is_object(node(v)) ? json_object_size(node(v)) : json_array_size(node(v));
}

bool hr_json_next(const struct hr_json *object, void **it, const char **key, size_t *key_len,
                  const struct hr_json **value) {
    json_t *o = (json_t *)object; /* jansson's iterators want it mutable; nothing is changed */
    *it = *it == NULL ? json_object_iter(o) : json_object_iter_next(o, *it);
    if (*it == NULL) return false;
    *key = json_object_iter_key(*it);
    if (key_len != NULL) *key_len = strlen(*key); /* jansson refuses U+0000 in keys */
    *value = wrap(json_object_iter_value(*it));
    return true;
}

bool hr_json_str(const struct hr_json *v, const char **s, size_t *len) {
    if (hr_json_type(v) != HR_JSON_STRING) return false;
    *s = json_string_value(node(v));
    if (len != NULL) *len = json_string_length(node(v));
    return true;
}

bool hr_json_int(const struct hr_json *v, int64_t *out) {
    if (hr_json_type(v) != HR_JSON_INT) return false;
    *out = json_integer_value(node(v));
    return true;
}

bool hr_json_real(const struct hr_json *v, double *out) {
    enum hr_json_type t = hr_json_type(v);
    if (t != HR_JSON_INT && t != HR_JSON_REAL) return false;
    *out = json_number_value(node(v));
    return true;
}

bool hr_json_bool(const struct hr_json *v, bool *out) {
    if (hr_json_type(v) != HR_JSON_BOOL) return false;
    *out = json_is_true(node(v));
    return true;
}

/* The shortest of 15, 16 or 17 digits that reads back as the same double, and still a real. */
static void dump_real(double v, struct hr_buf *out) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    hr_buf_puts(out, text);
    if (strpbrk(text, ".e") == NULL) hr_buf_puts(out, ".0");
}

/* Recursive as deep as jansson's parser allows (2048 levels). */
void hr_json_dump(const struct hr_json *v, struct hr_buf *out) {
    const char *s;
    size_t len;
    void *it = NULL;
    const struct hr_json *value;
    switch (hr_json_type(v)) {
    case HR_JSON_NULL:
        hr_buf_puts(out, "null");
        break;
    case HR_JSON_BOOL:
        hr_buf_puts(out, json_is_true(node(v)) ? "true" : "false");
        break;
    case HR_JSON_INT:
        hr_buf_printf(out, "%lld", (long long)json_integer_value(node(v)));
        break;
    case HR_JSON_REAL:
        dump_real(json_real_value(node(v)), out);
        break;
    case HR_JSON_STRING:
        hr_json_str(v, &s, &len);
        hr_buf_json_str(out, s, len);
        break;
    case HR_JSON_ARRAY:
        hr_buf_putc(out, '[');
        for (size_t i = 0; i < hr_json_size(v); i++) {
            if (i > 0) hr_buf_putc(out, ',');
            hr_json_dump(hr_json_at(v, i), out);
        }
        hr_buf_putc(out, ']');
        break;
    case HR_JSON_OBJECT:
        hr_buf_putc(out, '{');
        while (hr_json_next(v, &it, &s, &len, &value)) {
            if (out->data[out->len - 1] != '{') hr_buf_putc(out, ',');
            hr_buf_json_str(out, s, len);
            hr_buf_putc(out, ':');
            hr_json_dump(value, out);
        }
        hr_buf_putc(out, '}');
        break;
    }
}

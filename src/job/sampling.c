/* SPDX-License-Identifier: Apache-2.0
 *
 * sampling: one table of keys, ranges and the fields that they fill.
 *
 * Nothing is corrected in silence: a value outside its range is refused with the range. 8.0 is 8,
 * for JSON has one kind of number; "8" is not, and neither is 1.5. Limits that depend on the model
 * (a vocabulary, a context) are not known here and not checked. */
#include "job/sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { REAL, INTEGER, BOOLEAN, STOP, STOP_IDS };

struct key {
    const char *name;
    enum kind kind;
    size_t has, field; /* offsets into struct hr_sampling_spec */
    double min, max;   /* of a REAL */
    bool above_min;    /* the minimum itself is refused */
    int64_t int_min, int_max;
    const char *wanted; /* for the message */
};

#define AT(f) offsetof(struct hr_sampling_spec, has_##f), offsetof(struct hr_sampling_spec, f)

/* The penalties' range is OpenAI's and everybody's; 1e9 max_tokens is clipped by the context later.
 */
static const struct key keys[] = {
    {"temperature", REAL, AT(temperature), 0, 1e6, false, 0, 0, "a number from 0 to 1e6"},
    {"top_p", REAL, AT(top_p), 0, 1, true, 0, 0, "a number above 0 and at most 1"},
    {"top_k", INTEGER, AT(top_k), 0, 0, false, -1, INT64_MAX, "a whole number (0 or -1: off)"},
    {"min_p", REAL, AT(min_p), 0, 1, false, 0, 0, "a number from 0 to 1"},
    {"repetition_penalty", REAL, AT(repetition_penalty), 0, 1e6, true, 0, 0, "a number above 0 and at most 1e6"},
    {"presence_penalty", REAL, AT(presence_penalty), -2, 2, false, 0, 0, "a number from -2 to 2"},
    {"frequency_penalty", REAL, AT(frequency_penalty), -2, 2, false, 0, 0, "a number from -2 to 2"},
    {"max_tokens", INTEGER, AT(max_tokens), 0, 0, false, 1, INT64_MAX,
     "a whole number of at least 1, or null"},
    {"max_completion_tokens", INTEGER, AT(max_tokens), 0, 0, false, 1, INT64_MAX,
     "a whole number of at least 1, or null"},
    {"stop", STOP, AT(stop), 0, 0, false, 0, 0,
     "a string that is not empty or a list of at most 64 of them"},
    {"stop_token_ids", STOP_IDS, AT(stop_token_ids), 0, 0, false, 0, 0,
     "a list of at most 1024 token ids"},
    {"ignore_eos", BOOLEAN, AT(ignore_eos), 0, 0, false, 0, 0, "true or false"},
    {"seed", INTEGER, AT(seed), 0, 0, false, INT64_MIN, INT64_MAX, "a whole number of 64 bits"},
    {"n", INTEGER, AT(n), 0, 0, false, 1, HR_N_MAX, "a whole number from 1 to 65536"},
};
#define N_KEYS (sizeof keys / sizeof *keys)

static const struct key *find_key(const struct hr_jval *key) {
    for (size_t i = 0; i < N_KEYS; i++)
        if (hr_jscan_str_eq(key, keys[i].name, strlen(keys[i].name))) return &keys[i];
    return NULL;
}

bool hr_sampling_is_key(const struct hr_jval *key) {
    return find_key(key) != NULL;
}

void hr_sampling_spec_finish(struct hr_sampling_spec *s) {
    for (int i = 0; i < s->n_stop; i++) free(s->stop[i]);
    free(s->stop);
    free(s->stop_len);
    hr_ids_finish(&s->stop_token_ids);
    *s = (struct hr_sampling_spec){0};
}

static void add_stop(struct hr_sampling_spec *s, const char *text, size_t len) {
    s->stop = hr_xrealloc(s->stop, (size_t)(s->n_stop + 1) * sizeof *s->stop);
    s->stop_len = hr_xrealloc(s->stop_len, (size_t)(s->n_stop + 1) * sizeof *s->stop_len);
    s->stop[s->n_stop] = hr_xstrndup(text, len);
    s->stop_len[s->n_stop++] = len;
}

void hr_sampling_spec_merge(struct hr_sampling_spec *into, const struct hr_sampling_spec *from) {
#define TAKE(f)                                                                                    \
    if (!into->has_##f && from->has_##f) into->has_##f = true, into->f = from->f
    TAKE(temperature);
    TAKE(top_p);
    TAKE(top_k);
    TAKE(min_p);
    TAKE(repetition_penalty);
    TAKE(presence_penalty);
    TAKE(frequency_penalty);
    TAKE(max_tokens);
    TAKE(ignore_eos);
    TAKE(seed);
    TAKE(n);
#undef TAKE
    if (!into->has_stop && from->has_stop) {
        into->has_stop = true;
        for (int i = 0; i < from->n_stop; i++) add_stop(into, from->stop[i], from->stop_len[i]);
    }
    if (!into->has_stop_token_ids && from->has_stop_token_ids) {
        into->has_stop_token_ids = true;
        hr_ids_append(&into->stop_token_ids, from->stop_token_ids.data, from->stop_token_ids.len);
    }
}

void hr_describe_value(const struct hr_jval *value, struct hr_buf *out) {
    const size_t shown = 40; /* bytes of a value that a message quotes */
    struct hr_buf text = {0};
    size_t n;
    switch (value->type) {
    case HR_JOBJECT:
        hr_buf_puts(out, "an object");
        return;
    case HR_JARRAY:
        hr_buf_puts(out, "a list");
        return;
    case HR_JNULL:
    case HR_JTRUE:
    case HR_JFALSE:
        hr_buf_append(out, value->p, value->len);
        return;
    case HR_JNUMBER:
        hr_buf_append(out, value->p, value->len < shown ? value->len : shown);
        if (value->len > shown) hr_buf_puts(out, "...");
        return;
    case HR_JSTRING:
        break;
    }
    hr_jscan_str(value, &text);
    for (n = text.len < shown ? text.len : shown; n < text.len && n > 0; n--)
        if (((uint8_t)text.data[n] & 0xc0) != 0x80) break; /* not inside a character */
    hr_buf_puts(out, "the string ");
    hr_buf_json_str(out, text.len > 0 ? text.data : "", n);
    if (n < text.len) hr_buf_puts(out, "...");
    hr_buf_finish(&text);
}

/* i: the element of a list that is refused; -1: the value itself. */
static enum hr_status refuse(const struct key *k, int i, const char *wanted, const struct hr_jval *value,
                             struct hr_err *err) {
    struct hr_buf what = {0};
    char at[24] = "";
    hr_describe_value(value, &what);
    if (i >= 0) snprintf(at, sizeof at, "[%d]", i);
    hr_err_set(err, HR_ERR_FORMAT, "field \"%s\"%s must be %s, not %s", k->name, at, wanted, hr_buf_cstr(&what));
    hr_buf_finish(&what);
    return HR_ERR_FORMAT;
}

static enum hr_status too_many(const struct key *k, int n_max, struct hr_err *err) {
    return hr_err_set(err, HR_ERR_FORMAT, "field \"%s\" must be %s; it has more than %d", k->name, k->wanted, n_max);
}

static enum hr_status take_stop(struct hr_sampling_spec *s, const struct key *k, const struct hr_jval *value,
                                struct hr_err *err) {
    struct hr_jiter it = {0};
    struct hr_jval one = *value;
    struct hr_buf text = {0};
    bool list = value->type == HR_JARRAY;
    enum hr_status st = HR_OK;
    if (!list && value->type != HR_JSTRING) return refuse(k, -1, k->wanted, value, err);
    for (int i = 0; !st && (list ? hr_jscan_next(value, &it, NULL, &one) : i == 0); i++) {
        if (s->n_stop == HR_STOP_MAX) {
            st = too_many(k, HR_STOP_MAX, err);
        } else if (one.type != HR_JSTRING || one.len <= 2) {
            st = refuse(k, list ? i : -1, list ? "a string that is not empty" : k->wanted, &one, err);
        } else {
            hr_buf_clear(&text);
            hr_jscan_str(&one, &text);
            add_stop(s, text.data, text.len);
        }
    }
    hr_buf_finish(&text);
    return st;
}

static enum hr_status take_stop_ids(struct hr_sampling_spec *s, const struct key *k, const struct hr_jval *value,
                                    struct hr_err *err) {
    struct hr_jiter it = {0};
    struct hr_jval one;
    int64_t id;
    if (value->type != HR_JARRAY) return refuse(k, -1, k->wanted, value, err);
    for (int i = 0; hr_jscan_next(value, &it, NULL, &one); i++) {
        if (!hr_jscan_int(&one, &id) || id < 0 || id > INT32_MAX) return refuse(k, i, "a token id", &one, err);
        if (s->stop_token_ids.len == HR_STOP_IDS_MAX) return too_many(k, HR_STOP_IDS_MAX, err);
        hr_ids_push(&s->stop_token_ids, (int32_t)id);
    }
    return HR_OK;
}

static enum hr_status take_integer(struct hr_sampling_spec *s, const struct key *k,
                                   const struct hr_jval *value, struct hr_err *err) {
    int64_t *field = (int64_t *)((char *)s + k->field), v = -1;
    bool *has = (bool *)((char *)s + k->has), null = value->type == HR_JNULL;
    if (!null && (!hr_jscan_int(value, &v) || v < k->int_min || v > k->int_max))
        return refuse(k, -1, k->wanted, value, err);
    if (*has && null)
        return HR_OK; /* the other name of max_tokens holds a number, or null as well */
    if (*has && *field != -1 && *field != v)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "fields \"max_tokens\" and \"max_completion_tokens\" differ");
    *has = true;
    *field = v;
    return HR_OK;
}

enum hr_status hr_sampling_take(struct hr_sampling_spec *s, const struct hr_jval *key,
                                const struct hr_jval *value, struct hr_err *err) {
    const struct key *k = find_key(key);
    enum hr_status st = HR_OK;
    double v;
    if (k == NULL) return hr_err_set(err, HR_ERR_NOTFOUND, "not a sampling key");
    bool is_max_tokens = k->field == offsetof(struct hr_sampling_spec, max_tokens);
    if (value->type == HR_JNULL && !is_max_tokens) return HR_OK;
    switch (k->kind) {
    case INTEGER:
        return take_integer(s, k, value, err);
    case REAL:
        if (!hr_jscan_double(value, &v) || v < k->min || v > k->max ||
            (k->above_min && v == k->min))
            return refuse(k, -1, k->wanted, value, err);
        *(double *)((char *)s + k->field) = v == 0 ? 0 : v; /* -0.0 is 0 */
        break;
    case BOOLEAN:
        if (value->type != HR_JTRUE && value->type != HR_JFALSE) return refuse(k, -1, k->wanted, value, err);
        *(bool *)((char *)s + k->field) = value->type == HR_JTRUE;
        break;
    case STOP:
        st = take_stop(s, k, value, err);
        break;
    case STOP_IDS:
        st = take_stop_ids(s, k, value, err);
        break;
    }
    if (!st) *(bool *)((char *)s + k->has) = true;
    return st;
}

void hr_sampling_canonical(const struct hr_sampling_spec *s, struct hr_buf *out) {
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct key *k = &keys[i];
        const char *field = (const char *)s + k->field;
        if (!*(const bool *)((const char *)s + k->has)) continue;
        if (i > 0 && keys[i - 1].field == k->field) continue; /* the other name of max_tokens */
        hr_buf_printf(out, "%s=", k->name);
        switch (k->kind) {
        case REAL:
            hr_buf_printf(out, "%.17g", *(const double *)field);
            break;
        case INTEGER:
            hr_buf_printf(out, "%lld", (long long)*(const int64_t *)field);
            break;
        case BOOLEAN:
            hr_buf_printf(out, "%d", *(const bool *)field);
            break;
        case STOP:
            for (int j = 0; j < s->n_stop; j++) hr_buf_json_str(out, s->stop[j], s->stop_len[j]);
            break;
        case STOP_IDS:
            for (size_t j = 0; j < s->stop_token_ids.len; j++)
                hr_buf_printf(out, "%d,", (int)s->stop_token_ids.data[j]);
            break;
        }
        hr_buf_putc(out, ';');
    }
}

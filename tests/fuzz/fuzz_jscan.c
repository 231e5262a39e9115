/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_jscan: any bytes as one JSON text. What validate accepts: the walkers visit it whole, its
 * canonical form is valid, in order and its own canonical form, strings decode to UTF-8 and are
 * written back.
 */
#include <string.h>

#include "base/jscan.h"
#include "fuzz.h"

static void check_string(const struct hr_jval *v) {
    struct hr_buf text = {0}, again = {0};
    struct hr_jval back;
    size_t bad;
    hr_jscan_str(v, &text);
    FUZZ_CHECK(hr_utf8_valid(text.data, text.len, &bad));
    FUZZ_CHECK(hr_jscan_str_eq(v, text.len ? text.data : "", text.len));
    hr_buf_json_str(&again, text.data, text.len);
    FUZZ_CHECK(hr_jscan_validate(again.data, again.len, &back, NULL) == HR_OK);
    FUZZ_CHECK(hr_jscan_str_eq(&back, text.len ? text.data : "", text.len));
    hr_buf_finish(&text);
    hr_buf_finish(&again);
}

static void walk(const struct hr_jval *v) {
    struct hr_jiter it = {0};
    struct hr_jval key, value, got;
    int64_t whole;
    double real;
    if (v->type == HR_JSTRING) check_string(v);
    if (v->type == HR_JNUMBER && hr_jscan_int(v, &whole) && hr_jscan_double(v, &real))
        FUZZ_CHECK((double)whole == real);
    if (v->type != HR_JARRAY && v->type != HR_JOBJECT) return;
    while (hr_jscan_next(v, &it, &key, &value)) {
        FUZZ_CHECK(value.p > v->p && value.p + value.len < v->p + v->len);
        if (v->type == HR_JOBJECT) check_string(&key);
        walk(&value);
    }
    if (v->type == HR_JOBJECT) hr_jscan_get(v, "id", &got);
}

/* The members of a canonical object are in the order of their keys' bytes, each key once. */
static void check_order(const struct hr_jval *v) {
    struct hr_jiter it = {0};
    struct hr_jval key, value;
    struct hr_buf last = {0}, now = {0};
    bool first = true;
    while (hr_jscan_next(v, &it, &key, &value)) {
        if (value.type == HR_JARRAY || value.type == HR_JOBJECT) check_order(&value);
        if (v->type != HR_JOBJECT) continue;
        hr_buf_clear(&now);
        hr_jscan_str(&key, &now);
        size_t n = last.len < now.len ? last.len : now.len;
        int order = n ? memcmp(last.data, now.data, n) : 0;
        FUZZ_CHECK(first || order < 0 || (order == 0 && last.len < now.len));
        first = false;
        hr_buf_clear(&last);
        hr_buf_append(&last, now.data, now.len);
    }
    hr_buf_finish(&last);
    hr_buf_finish(&now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hr_jval root, again;
    struct hr_buf one = {0}, two = {0};
    struct hr_err err = {0};
    if (hr_jscan_validate((const char *)data, size, &root, &err) != HR_OK) {
        FUZZ_CHECK(err.msg[0] != 0);
        return 0;
    }
    walk(&root);
    hr_jscan_canonical(&root, &one);
    FUZZ_CHECK(hr_jscan_validate(one.data, one.len, &again, NULL) == HR_OK);
    if (again.type == HR_JARRAY || again.type == HR_JOBJECT) check_order(&again);
    hr_jscan_canonical(&again, &two);
    FUZZ_CHECK(one.len == two.len && memcmp(one.data, two.data, one.len) == 0);
    hr_buf_finish(&one);
    hr_buf_finish(&two);
    return 0;
}

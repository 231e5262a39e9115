/* SPDX-License-Identifier: Apache-2.0
 *
 * chat: what happens to messages between a row and its chat template.
 *
 * As in the reference: a message's keys whose value is null are left out, because many templates test a
 * key by its being there and then print "None"; and reasoning goes under all the names that templates
 * read it by. The first of `reasoning_content`, `thinking` and `reasoning` that is there is the
 * reasoning: it becomes `reasoning_content`, and `thinking` where the message has none, in front.
 * Beyond the reference: null keys of the parts of a list of content are left out, too. Tables that hold
 * all parts in one shape (Parquet) fill a text part with "image": null, and templates would draw an
 * image for it. Nothing deeper is touched: a null inside of a tool call may be meant.
 * The row that comes out shows the messages as they were sent.
 * Source: huggingface/transformers 5.24, utils/chat_template_utils.py, _normalize_chat_messages and
 * _alias_reasoning_fields. */
#include "cmd/chat.h"

#include <string.h>

#include "base/assert.h"
#include "job/fields.h"

/* Appends a member, after a comma unless it is the first. */
static void put(struct hr_buf *out, const char *key, size_t key_len, const struct hr_jval *value) {
    if (out->data[out->len - 1] != '{') hr_buf_putc(out, ',');
    hr_buf_append(out, key, key_len);
    hr_buf_putc(out, ':');
    hr_buf_append(out, value->p, value->len);
}

static void put_part(struct hr_buf *out, const struct hr_jval *part) {
    struct hr_fields f = {0};
    if (part->type != HR_JOBJECT) {
        hr_buf_append(out, part->p, part->len);
        return;
    }
    hr_fields_read(&f, part);
    hr_buf_putc(out, '{');
    for (size_t i = 0; i < f.n; i++)
        if (f.v[i].value.type != HR_JNULL) put(out, f.v[i].key.p, f.v[i].key.len, &f.v[i].value);
    hr_buf_putc(out, '}');
    hr_fields_finish(&f);
}

/* The content's list, its parts without nulls, into `list`. */
static struct hr_jval content_parts(const struct hr_jval *content, struct hr_buf *list) {
    struct hr_jiter it = {0};
    struct hr_jval part;
    hr_buf_putc(list, '[');
    for (bool first = true; hr_jscan_next(content, &it, NULL, &part); first = false) {
        if (!first) hr_buf_putc(list, ',');
        put_part(list, &part);
    }
    hr_buf_putc(list, ']');
    return (struct hr_jval){HR_JARRAY, list->data, list->len};
}

/* A member that is there and not null, or NULL. */
static const struct hr_jval *member(const struct hr_fields *f, const char *key) {
    const struct hr_field *m = hr_fields_find(f, key, strlen(key));
    return m && m->value.type != HR_JNULL ? &m->value : NULL;
}

static void put_message(struct hr_buf *out, const struct hr_jval *message) {
    struct hr_fields f = {0};
    struct hr_buf list = {0};
    hr_fields_read(&f, message);
    const struct hr_jval *own = member(&f, "reasoning_content"), *thinking = member(&f, "thinking");
    const struct hr_jval *reasoning = own ? own : thinking ? thinking : member(&f, "reasoning");
    hr_buf_putc(out, '{');
    if (reasoning) put(out, "\"thinking\"", 10, thinking ? thinking : reasoning);
    for (size_t i = 0; i < f.n; i++) {
        const struct hr_field *m = &f.v[i];
        struct hr_jval value = m->value;
        if (value.type == HR_JNULL || (thinking && hr_jscan_str_eq(&m->key, "thinking", 8))) continue;
        if (value.type == HR_JARRAY && hr_jscan_str_eq(&m->key, "content", 7))
            value = content_parts(&value, &list);
        put(out, m->key.p, m->key.len, &value);
    }
    if (reasoning && !own) put(out, "\"reasoning_content\"", 19, reasoning);
    hr_buf_putc(out, '}');
    hr_buf_finish(&list);
    hr_fields_finish(&f);
}

void hr_cmd_chat_messages(const char *json, size_t len, struct hr_buf *out) {
    struct hr_jval list = {HR_JARRAY, json, len}, message;
    struct hr_jiter it = {0};
    hr_buf_putc(out, '[');
    for (bool first = true; hr_jscan_next(&list, &it, NULL, &message); first = false) {
        HR_ASSERT(message.type == HR_JOBJECT);
        if (!first) hr_buf_putc(out, ',');
        put_message(out, &message);
    }
    hr_buf_putc(out, ']');
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * record: a row's bytes looked at by spans; nothing is parsed into objects and written again.
 *
 * Identity: `ident` hashes the canonical JSON text of the id, so "7" and 7 are two rows and numbers
 * beyond 2^53 stay apart, while "\u00e9" and "é" are one. `content` hashes what is asked: the
 * canonical messages or the prompt's text, the tools and the row's own sampling; not the carried
 * fields, and not the manifest's settings, which the store compares by themselves. A row without an
 * id (missing or null) takes the hex of `content` for its id. Each hash begins with a name of its
 * own and each part with its length, so that no two different questions run together.
 *
 * Refused: ids that are neither strings nor numbers, prompts that are not strings, messages that no
 * chat template could take. The reasons name the field. */
#include "job/record.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "job/fields.h"
#include "job/prompt.h"
#include "job/sampling.h"

void hr_record_finish(struct hr_record *r) {
    hr_buf_finish(&r->line);
    hr_buf_finish(&r->id_json);
    hr_buf_finish(&r->messages_json);
    hr_buf_finish(&r->prompt);
    hr_buf_finish(&r->prompt_json);
    hr_buf_finish(&r->tools_json);
    hr_buf_finish(&r->documents_json);
    hr_buf_finish(&r->template_vars);
    hr_buf_finish(&r->metadata);
    hr_sampling_spec_finish(&r->sampling);
    *r = (struct hr_record){0};
}

/* Raw carriage returns stand only between tokens: inside strings they were refused. */
static void append_raw(struct hr_buf *out, const struct hr_jval *v) {
    size_t start = out->len;
    hr_buf_append(out, v->p, v->len);
    for (char *p = out->data + start, *end = out->data + out->len;
         p < end && (p = memchr(p, '\r', (size_t)(end - p))) != NULL;)
        *p = ' ';
}

/* "<before> must be <wanted>, not <what it is>". */
static enum hr_status wrong_type(const char *before, const char *wanted,
                                 const struct hr_jval *value, struct hr_err *err) {
    struct hr_buf what = {0};
    hr_describe_value(value, &what);
    hr_err_set(err, HR_ERR_FORMAT, "%s must be %s, not %s", before, wanted, hr_buf_cstr(&what));
    hr_buf_finish(&what);
    return HR_ERR_FORMAT;
}

static enum hr_status wrong_field(const char *name, size_t len, const char *wanted,
                                  const struct hr_jval *value, struct hr_err *err) {
    char before[160];
    snprintf(before, sizeof before, "field \"%.*s\"", (int)(len < 120 ? len : 120), name);
    return wrong_type(before, wanted, value, err);
}

static enum hr_status read_id(struct hr_record *r, const struct hr_manifest *m,
                              const struct hr_fields *fields, struct hr_err *err) {
    struct hr_field *f = hr_fields_find(fields, m->id, strlen(m->id));
    if (f == NULL) return HR_OK;
    f->used = true;
    if (f->value.type == HR_JNULL) return HR_OK;
    if (f->value.type != HR_JSTRING && f->value.type != HR_JNUMBER)
        return wrong_field(m->id, strlen(m->id), "a string or a number", &f->value, err);
    r->has_id = true;
    append_raw(&r->id_json, &f->value);
    return HR_OK;
}

static enum hr_status read_plain_prompt(struct hr_record *r, const char *name,
                                        const struct hr_fields *fields, struct hr_err *err) {
    struct hr_field *f = hr_fields_find(fields, name, strlen(name));
    if (f == NULL) return hr_err_set(err, HR_ERR_FORMAT, "field \"%s\" is missing", name);
    if (f->value.type != HR_JSTRING)
        return wrong_field(name, strlen(name), "a string", &f->value, err);
    f->used = true;
    hr_jscan_str(&f->value, &r->prompt);
    append_raw(&r->prompt_json, &f->value);
    return HR_OK;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The rule for empty parts is in prompt.h. */
static enum hr_status join_prompt(struct hr_record *r, const char *template,
                                  const struct hr_fields *fields, struct hr_err *err) {
    struct hr_buf literal = {0};
    const char *name, *p = template;
    size_t len;
    bool strip_next = false, any = false;
    enum hr_status st = HR_OK;
    for (; st >= 0 && hr_prompt_next(&p, &literal, &name, &len); hr_buf_clear(&literal)) {
        struct hr_field *f = len > 0 ? hr_fields_find(fields, name, len) : NULL;
        bool absent = f == NULL || f->value.type == HR_JNULL;
        if (!absent && f->value.type != HR_JSTRING) {
            st = wrong_field(name, len, "a string", &f->value, err);
            continue;
        }
        size_t from = 0, to = literal.len;
        bool empty = len > 0 && (absent || f->value.len == 2);
        while (strip_next && from < to && is_space(literal.data[from])) from++;
        while (empty && to > from && is_space(literal.data[to - 1])) to--;
        if (to > from) hr_buf_append(&r->prompt, literal.data + from, to - from);
        if (f != NULL) f->used = true;
        if (!absent) hr_jscan_str(&f->value, &r->prompt);
        any = any || !absent;
        strip_next = empty && r->prompt.len == 0;
    }
    hr_buf_finish(&literal);
    if (st >= 0 && !any)
        st = hr_err_set(err, HR_ERR_FORMAT, "none of the fields of the prompt \"%s\" is there",
                        template);
    if (st >= 0)
        hr_buf_json_str(&r->prompt_json, r->prompt.len ? r->prompt.data : "", r->prompt.len);
    return st;
}

static void put_turn(struct hr_buf *out, const char *role, const char *text, size_t len) {
    hr_buf_printf(out, "{\"role\":\"%s\",\"content\":", role);
    hr_buf_json_str(out, text, len);
    hr_buf_putc(out, '}');
}

static enum hr_status read_prompt(struct hr_record *r, const struct hr_manifest *m,
                                  const char *prompt, const struct hr_fields *fields,
                                  struct hr_err *err) {
    enum hr_status st = hr_prompt_is_template(prompt) ? join_prompt(r, prompt, fields, err)
                                                      : read_plain_prompt(r, prompt, fields, err);
    if (st < 0 || !m->chat) return st;
    hr_buf_putc(&r->messages_json, '[');
    if (m->system != NULL) {
        put_turn(&r->messages_json, "system", m->system, strlen(m->system));
        hr_buf_putc(&r->messages_json, ',');
    }
    hr_buf_puts(&r->messages_json, "{\"role\":\"user\",\"content\":");
    hr_buf_append(&r->messages_json, r->prompt_json.data, r->prompt_json.len);
    hr_buf_puts(&r->messages_json, "}]");
    return HR_OK;
}

/* content: a string; a list of parts, each an object with a string "type" (and "text" when that is
 * its type); null or missing only where an assistant's turn has tool_calls instead. */
static enum hr_status check_content(const struct hr_jval *message, const char *at,
                                    struct hr_err *err) {
    struct hr_jval content, role, calls, part, type, text;
    char before[240];
    snprintf(before, sizeof before, "%s: \"content\"", at);
    bool there = hr_jscan_get(message, "content", &content);
    if (there && content.type == HR_JSTRING) return HR_OK;
    if (there && content.type == HR_JARRAY) {
        struct hr_jiter it = {0};
        while (hr_jscan_next(&content, &it, NULL, &part)) {
            if (!hr_jscan_get(&part, "type", &type) || type.type != HR_JSTRING)
                return hr_err_set(err, HR_ERR_FORMAT, "%s has a part without a string \"type\"",
                                  before);
            if (!hr_jscan_str_eq(&type, "text", 4)) continue;
            if (!hr_jscan_get(&part, "text", &text) || text.type != HR_JSTRING)
                return hr_err_set(err, HR_ERR_FORMAT,
                                  "%s has a text part without a string \"text\"", before);
        }
        return HR_OK;
    }
    if (there && content.type != HR_JNULL)
        return wrong_type(before, "a string or a list of parts", &content, err);
    bool assistant = hr_jscan_get(message, "role", &role) && hr_jscan_str_eq(&role, "assistant", 9);
    if (assistant && hr_jscan_get(message, "tool_calls", &calls) && calls.type == HR_JARRAY)
        return HR_OK;
    return hr_err_set(err, HR_ERR_FORMAT, "%s is %s", before, there ? "null" : "missing");
}

static enum hr_status check_messages(const char *name, const struct hr_jval *list, bool *own_system,
                                     struct hr_err *err) {
    struct hr_jiter it = {0};
    struct hr_jval message, role;
    char at[200], before[240];
    int i = 0;
    if (list->type != HR_JARRAY)
        return wrong_field(name, strlen(name), "a list of messages", list, err);
    for (; hr_jscan_next(list, &it, NULL, &message); i++) {
        snprintf(at, sizeof at, "%.120s[%d]", name, i);
        snprintf(before, sizeof before, "%s: \"role\"", at);
        if (message.type != HR_JOBJECT) return wrong_type(at, "an object", &message, err);
        if (!hr_jscan_get(&message, "role", &role))
            return hr_err_set(err, HR_ERR_FORMAT, "%s is missing", before);
        if (role.type != HR_JSTRING) return wrong_type(before, "a string", &role, err);
        enum hr_status st = check_content(&message, at, err);
        if (st < 0) return st;
        if (i == 0)
            *own_system =
                hr_jscan_str_eq(&role, "system", 6) || hr_jscan_str_eq(&role, "developer", 9);
    }
    if (i == 0) return hr_err_set(err, HR_ERR_FORMAT, "field \"%s\" is an empty list", name);
    return HR_OK;
}

static enum hr_status read_messages(struct hr_record *r, const struct hr_manifest *m,
                                    const char *name, const struct hr_fields *fields,
                                    struct hr_jval *list, struct hr_err *err) {
    struct hr_field *f = hr_fields_find(fields, name, strlen(name));
    bool own_system = false;
    if (f == NULL) return hr_err_set(err, HR_ERR_FORMAT, "field \"%s\" is missing", name);
    enum hr_status st = check_messages(name, &f->value, &own_system, err);
    if (st < 0) return st;
    f->used = true;
    r->is_messages = true;
    *list = f->value;
    struct hr_jval rest = *list;
    if (m->system != NULL && !own_system) {
        hr_buf_putc(&r->messages_json, '[');
        put_turn(&r->messages_json, "system", m->system, strlen(m->system));
        hr_buf_putc(&r->messages_json, ',');
        rest.p++, rest.len--; /* behind its '[': the list is not empty */
    }
    append_raw(&r->messages_json, &rest);
    hr_buf_append(&r->prompt_json, r->messages_json.data, r->messages_json.len);
    return HR_OK;
}

/* What is asked, by the manifest or by the default: the row's messages, else its prompt. */
static enum hr_status read_question(struct hr_record *r, const struct hr_manifest *m,
                                    const struct hr_fields *fields, struct hr_jval *list,
                                    struct hr_err *err) {
    if (m->messages != NULL) return read_messages(r, m, m->messages, fields, list, err);
    if (m->prompt != NULL) return read_prompt(r, m, m->prompt, fields, err);
    const struct hr_field *f = m->chat ? hr_fields_find(fields, "messages", 8) : NULL;
    if (f != NULL && f->value.type != HR_JNULL)
        return read_messages(r, m, "messages", fields, list, err);
    if (hr_fields_find(fields, "prompt", 6) == NULL && m->chat)
        return hr_err_set(err, HR_ERR_FORMAT,
                          "field \"prompt\" is missing, and so is \"messages\"");
    return read_prompt(r, m, "prompt", fields, err);
}

/* The list or null that a string holds; its bytes go to `text`. Line feeds become blanks, for the list goes
 * into a line. It is checked in brackets of its own: a row that holds it must not be too deep to be read. */
static bool list_in_string(const struct hr_jval *string, struct hr_buf *text, struct hr_jval *list) {
    struct hr_jval outer, more;
    struct hr_jiter it = {0};
    hr_buf_putc(text, '[');
    hr_jscan_str(string, text);
    hr_buf_putc(text, ']');
    if (hr_jscan_validate(text->data, text->len, &outer, NULL) < 0) return false;
    for (size_t i = 0; i < text->len; i++)
        if (text->data[i] == '\n') text->data[i] = ' ';
    return hr_jscan_next(&outer, &it, NULL, list) &&
           (list->type == HR_JARRAY || list->type == HR_JNULL) &&
           !hr_jscan_next(&outer, &it, NULL, &more);
}

/* Tools are a list of objects. Tables keep it as a string, because its shape differs from row to row. */
static enum hr_status read_tools(struct hr_record *r, const struct hr_jval *value,
                                 struct hr_err *err) {
    struct hr_jval list = *value, tool;
    struct hr_jiter it = {0};
    struct hr_buf text = {0};
    enum hr_status st = HR_OK;
    if (value->type == HR_JSTRING && !list_in_string(value, &text, &list)) list = *value;
    if (list.type != HR_JARRAY && list.type != HR_JNULL)
        st = wrong_field("tools", 5, "a list, or a string that holds one", value, err);
    while (!st && list.type == HR_JARRAY && hr_jscan_next(&list, &it, NULL, &tool))
        if (tool.type != HR_JOBJECT)
            st = wrong_type("a tool in field \"tools\"", "an object", &tool, err);
    if (!st && list.type == HR_JARRAY) append_raw(&r->tools_json, &list);
    hr_buf_finish(&text);
    return st;
}

/* Documents are a list of objects, which may be empty: the row then has none, whatever the manifest has. What is
 * no list is not meant for a template, and is carried. */
static enum hr_status read_documents(struct hr_record *r, const struct hr_fields *fields, struct hr_err *err) {
    struct hr_field *docs = hr_fields_find(fields, "documents", 9);
    struct hr_jiter it = {0};
    struct hr_jval one;
    if (docs == NULL || docs->used || docs->value.type != HR_JARRAY) return HR_OK;
    docs->used = true;
    while (hr_jscan_next(&docs->value, &it, NULL, &one))
        if (one.type != HR_JOBJECT) return wrong_type("a document in field \"documents\"", "an object", &one, err);
    append_raw(&r->documents_json, &docs->value);
    return HR_OK;
}

/* Template variables have a name that means nothing else, so a wrong type is a mistake. */
static enum hr_status read_template_fields(struct hr_record *r, const struct hr_fields *fields,
                                           struct hr_err *err) {
    struct hr_field *vars = hr_fields_find(fields, "chat_template_kwargs", 20);
    struct hr_jiter it = {0};
    struct hr_jval key, value;
    struct hr_buf name = {0};
    enum hr_status st = HR_OK;
    int n = 0;
    if (vars == NULL || vars->used) return HR_OK;
    vars->used = true;
    if (vars->value.type == HR_JNULL) return HR_OK;
    if (vars->value.type != HR_JOBJECT)
        return wrong_field("chat_template_kwargs", 20, "an object", &vars->value, err);
    for (; !st && hr_jscan_next(&vars->value, &it, &key, &value); n++) {
        hr_buf_clear(&name);
        hr_jscan_str(&key, &name);
        if (hr_manifest_is_own_var(name.data, name.len))
            st = hr_err_set(err, HR_ERR_FORMAT, "field \"chat_template_kwargs\": \"%s\" is set by headrace itself",
                            hr_buf_cstr(&name));
        else if (n == HR_TEMPLATE_VARS_MAX || name.len == 0 || name.len > HR_TEMPLATE_VAR_LEN_MAX)
            st = hr_err_set(err, HR_ERR_FORMAT,
                            "field \"chat_template_kwargs\" holds at most %d variables, with names of 1 to %d bytes",
                            HR_TEMPLATE_VARS_MAX, HR_TEMPLATE_VAR_LEN_MAX);
    }
    if (!st && n > 0) append_raw(&r->template_vars, &vars->value);
    hr_buf_finish(&name);
    return st;
}

/* What a template gets, and sampling keys; a field that is the id or the prompt already is neither. */
static enum hr_status read_options(struct hr_record *r, const struct hr_manifest *m,
                                   const struct hr_fields *fields, struct hr_err *err) {
    struct hr_field *tools = m->chat ? hr_fields_find(fields, "tools", 5) : NULL;
    if (tools != NULL && !tools->used) {
        tools->used = true;
        enum hr_status st = read_tools(r, &tools->value, err);
        if (st < 0) return st;
    }
    enum hr_status st = m->chat ? read_documents(r, fields, err) : HR_OK;
    if (!st && m->chat) st = read_template_fields(r, fields, err);
    if (st < 0) return st;
    for (size_t i = 0; i < fields->n; i++) {
        struct hr_field *f = &fields->v[i];
        if (f->used || !hr_sampling_is_key(&f->key)) continue;
        f->used = true;
        st = hr_sampling_take(&r->sampling, &f->key, &f->value, err);
        if (st < 0) return st;
    }
    return HR_OK;
}

/* A hint: what is no number above 0 is no hint, and the field is carried like any other. */
static void read_expected(struct hr_record *r, const struct hr_manifest *m, const struct hr_fields *fields) {
    const char *name = m->expected_tokens_field;
    const struct hr_field *f = name != NULL ? hr_fields_find(fields, name, strlen(name)) : NULL;
    double n;
    if (f == NULL || f->value.type != HR_JNUMBER || !hr_jscan_double(&f->value, &n) || !(n > 0)) return;
    r->n_expected = n < 1 ? 1 : n < 1e9 ? (int64_t)n : 1000000000;
}

static void hash_part(struct hr_sha256 *s, const void *data, size_t len) {
    uint8_t size[8];
    for (int i = 0; i < 8; i++) size[i] = (uint8_t)((uint64_t)len >> (8 * i));
    hr_sha256_update(s, size, 8);
    hr_sha256_update(s, data, len);
}

static void hash_start(struct hr_sha256 *s, const char *domain) {
    hr_sha256_init(s);
    hash_part(s, domain, strlen(domain));
}

static void hash_end(struct hr_sha256 *s, uint8_t out[16]) {
    uint8_t full[32];
    hr_sha256_final(s, full);
    memcpy(out, full, 16);
}

static void hash_id(const struct hr_jval *id, uint8_t out[16]) {
    struct hr_sha256 s;
    struct hr_buf canonical = {0};
    hr_jscan_canonical(id, &canonical);
    hash_start(&s, "headrace id 1");
    hash_part(&s, canonical.data, canonical.len);
    hash_end(&s, out);
    hr_buf_finish(&canonical);
}

/* Rows without such a field keep the hash that they had before there was one. */
static void hash_field(struct hr_sha256 *s, const char *name, enum hr_jtype type, const struct hr_buf *json) {
    struct hr_buf part = {0};
    struct hr_jval value = {type, json->data, json->len};
    if (json->len == 0) return;
    hr_jscan_canonical(&value, &part);
    hash_part(s, name, strlen(name));
    hash_part(s, part.data, part.len);
    hr_buf_finish(&part);
}

static void hash_content(struct hr_record *r, const struct hr_jval *list) {
    struct hr_sha256 s;
    struct hr_buf part = {0};
    hash_start(&s, r->is_messages ? "headrace messages 1" : "headrace prompt 1");
    if (r->is_messages)
        hr_jscan_canonical(list, &part);
    else
        hr_buf_append(&part, r->prompt.data, r->prompt.len);
    hash_part(&s, part.data, part.len);
    hr_buf_clear(&part);
    if (r->tools_json.len > 0) {
        struct hr_jval tools = {HR_JARRAY, r->tools_json.data, r->tools_json.len};
        hr_jscan_canonical(&tools, &part);
    }
    hash_part(&s, part.data, part.len);
    hr_buf_clear(&part);
    hr_sampling_canonical(&r->sampling, &part);
    hash_part(&s, part.data, part.len);
    hash_field(&s, "documents", HR_JARRAY, &r->documents_json);
    hash_field(&s, "chat_template_kwargs", HR_JOBJECT, &r->template_vars);
    hash_end(&s, r->content);
    hr_buf_finish(&part);
}

static void identify(struct hr_record *r, const struct hr_jval *list) {
    hash_content(r, list);
    if (!r->has_id) {
        char hex[33];
        hr_hex(r->content, 16, hex);
        hr_buf_clear(&r->id_json);
        hr_buf_json_str(&r->id_json, hex, 32);
    }
    struct hr_jval id = {r->id_json.data[0] == '"' ? HR_JSTRING : HR_JNUMBER, r->id_json.data,
                         r->id_json.len};
    hash_id(&id, r->ident);
}

static void collect_metadata(struct hr_record *r, const struct hr_fields *fields) {
    hr_buf_putc(&r->metadata, '{');
    for (size_t i = 0; i < fields->n; i++) {
        const struct hr_field *f = &fields->v[i];
        if (f->used) continue;
        if (r->metadata.len > 1) hr_buf_putc(&r->metadata, ',');
        append_raw(&r->metadata, &f->key);
        hr_buf_putc(&r->metadata, ':');
        append_raw(&r->metadata, &f->value);
    }
    hr_buf_putc(&r->metadata, '}');
}

enum hr_status hr_record_parse(struct hr_record *r, const struct hr_manifest *m, const char *line,
                               size_t len, struct hr_err *err) {
    struct hr_fields fields = {0};
    struct hr_jval list = {0};
    hr_record_finish(r);
    hr_buf_reserve(&r->line, len + 1); /* exact for a long line, and never NULL */
    hr_buf_append(&r->line, line, len);
    enum hr_status st = hr_jscan_validate(r->line.data, len, &r->root, err);
    if (st < 0) {
        hr_err_prefix(err, "malformed JSON");
        return st;
    }
    if (r->root.type != HR_JOBJECT) return wrong_type("the line", "a JSON object", &r->root, err);
    hr_fields_read(&fields, &r->root);
    st = read_id(r, m, &fields, err);
    if (st >= 0) st = read_question(r, m, &fields, &list, err);
    if (st >= 0) st = read_options(r, m, &fields, err);
    if (st >= 0) {
        read_expected(r, m, &fields);
        identify(r, &list);
        collect_metadata(r, &fields);
    }
    hr_fields_finish(&fields);
    return st;
}

static void put_ids(struct hr_buf *out, const char *key, const int32_t *ids, int n) {
    hr_buf_printf(out, ",\"%s\":[", key);
    for (int i = 0; ids != NULL && i < n; i++)
        hr_buf_printf(out, i > 0 ? ",%d" : "%d", (int)ids[i]);
    hr_buf_putc(out, ']');
}

static void put_field(struct hr_buf *out, const char *key, const struct hr_buf *json) {
    if (json->len == 0) return;
    hr_buf_printf(out, ",\"%s\":", key);
    hr_buf_append(out, json->data, json->len);
}

void hr_record_write_row(const struct hr_record *r, const struct hr_manifest *m,
                         const struct hr_answer *a, struct hr_buf *out) {
    hr_buf_puts(out, "{\"id\":");
    hr_buf_append(out, r->id_json.data, r->id_json.len);
    hr_buf_puts(out, ",\"dataset\":");
    hr_buf_json_str(out, m->dataset, strlen(m->dataset));
    hr_buf_printf(out, ",\"sample\":%d", a->sample);
    if (a->occurrence != 0) hr_buf_printf(out, ",\"occurrence\":%d", a->occurrence);
    hr_buf_puts(out, r->is_messages ? ",\"messages\":" : ",\"prompt\":");
    hr_buf_append(out, r->prompt_json.data, r->prompt_json.len);
    put_field(out, "tools", &r->tools_json);
    put_field(out, "documents", &r->documents_json);
    put_field(out, "chat_template_kwargs", &r->template_vars);
    if (a->reasoning != NULL) {
        hr_buf_puts(out, ",\"reasoning\":");
        hr_buf_json_str(out, a->reasoning, a->reasoning_len);
    }
    hr_buf_puts(out, ",\"response\":");
    hr_buf_json_str(out, a->text, a->text_len);
    if (a->dropped_bytes != 0) hr_buf_printf(out, ",\"dropped_bytes\":%d", a->dropped_bytes);
    hr_buf_printf(out, ",\"finish_reason\":\"%s\"", a->finish_reason);
    if (a->stop_reason_json != NULL) hr_buf_printf(out, ",\"stop_reason\":%s", a->stop_reason_json);
    if (a->repetitive) hr_buf_puts(out, ",\"repetitive\":true");
    hr_buf_printf(out, ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d},\"seed\":%lld",
                  a->prompt_tokens, a->completion_tokens, (long long)a->seed);
    if (m->output_token_ids) {
        put_ids(out, "prompt_token_ids", a->prompt_ids, a->prompt_tokens);
        put_ids(out, "completion_token_ids", a->completion_ids, a->completion_tokens);
    }
    hr_buf_puts(out, ",\"metadata\":");
    hr_buf_append(out, r->metadata.data, r->metadata.len);
    hr_buf_puts(out, "}\n");
}

/* A path or a message as a JSON string even when its bytes are not UTF-8: those become U+FFFD. */
static void put_text(struct hr_buf *out, const char *s) {
    struct hr_buf clean = {0};
    size_t len = strlen(s), bad;
    while (!hr_utf8_valid(s, len, &bad)) {
        hr_buf_append(&clean, s, bad);
        hr_buf_puts(&clean, "\xef\xbf\xbd");
        s += bad + 1;
        len -= bad + 1;
    }
    hr_buf_append(&clean, s, len);
    hr_buf_json_str(out, clean.len > 0 ? clean.data : "", clean.len);
    hr_buf_finish(&clean);
}

void hr_record_write_reject(const struct hr_buf *id_json, const char *dataset, const char *shard,
                            int64_t line_no, int sample, const char *reason, struct hr_buf *out) {
    hr_buf_puts(out, "{\"shard\":");
    put_text(out, shard);
    hr_buf_printf(out, ",\"line\":%lld", (long long)line_no);
    if (id_json != NULL && id_json->len > 0) {
        hr_buf_puts(out, ",\"id\":");
        hr_buf_append(out, id_json->data, id_json->len);
    }
    if (sample >= 0) hr_buf_printf(out, ",\"sample\":%d", sample);
    hr_buf_puts(out, ",\"reason\":");
    put_text(out, reason);
    hr_buf_puts(out, ",\"dataset\":");
    put_text(out, dataset);
    hr_buf_puts(out, "}\n");
}

static bool get_count(const struct hr_jval *row, const char *key, int *out) {
    struct hr_jval v;
    int64_t n;
    if (!hr_jscan_get(row, key, &v) || !hr_jscan_int(&v, &n) || n < 0 || n > INT32_MAX)
        return false;
    *out = (int)n;
    return true;
}

bool hr_record_identify_row(const char *line, size_t len, uint8_t ident[16], int *occurrence,
                            int *sample) {
    struct hr_jval row, id, v;
    int n_occurrence = 0, n_sample;
    if (hr_jscan_validate(line, len, &row, NULL) < 0 || row.type != HR_JOBJECT) return false;
    if (!hr_jscan_get(&row, "id", &id) || (id.type != HR_JSTRING && id.type != HR_JNUMBER))
        return false;
    if (!hr_jscan_get(&row, "response", &v) || v.type != HR_JSTRING) return false;
    if (!hr_jscan_get(&row, "finish_reason", &v) || v.type != HR_JSTRING) return false;
    if (!get_count(&row, "sample", &n_sample)) return false;
    if (hr_jscan_get(&row, "occurrence", &v) && !get_count(&row, "occurrence", &n_occurrence))
        return false;
    hash_id(&id, ident);
    *occurrence = n_occurrence;
    *sample = n_sample;
    return true;
}

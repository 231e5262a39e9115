/* SPDX-License-Identifier: Apache-2.0
 *
 * record: one line of a shard understood by its manifest: the prompt or messages, the row's own
 * sampling, its identity, the fields to carry; and the output row made from it and an answer.
 *
 * Everything carried is the input's own bytes (but for a raw carriage return between two tokens, which
 * becomes a space: some readers end a line there). Nothing in an output row differs between two runs.
 * A manifest's `system` goes before a row's messages unless they begin with a system or developer turn
 * of their own, which wins. */
#ifndef HR_JOB_RECORD_H
#define HR_JOB_RECORD_H

#include "base/jscan.h"
#include "job/manifest.h"

struct hr_record {
    struct hr_buf line;     /* owned copy of the line's bytes */
    struct hr_jval root;    /* the object in `line` */
    struct hr_buf id_json;  /* its id as JSON text (the input's own bytes; a hash in quotes if none) */
    bool has_id;
    bool is_messages;       /* messages_json holds the row's messages as sent, else prompt is one turn */
    struct hr_buf messages_json; /* what the template gets: system turn added, prompt wrapped; JSON */
    struct hr_buf prompt;   /* decoded text of the prompt (when not is_messages), U+0000 allowed */
    struct hr_buf prompt_json; /* `prompt` or messages_json, as JSON text for the output row */
    struct hr_buf tools_json;  /* the row's "tools", or empty */
    struct hr_buf documents_json; /* the row's "documents" for the template, or empty */
    struct hr_buf template_vars;  /* the row's "chat_template_kwargs", an object, or empty */
    struct hr_buf metadata;    /* JSON object of the fields to carry, in the row's order */
    struct hr_sampling_spec sampling; /* the row's own keys only */
    int64_t n_expected;  /* completion tokens that the manifest's expected_tokens_field says; 0: nothing */
    uint8_t ident[16];   /* hash of the canonical id, or of content when it has none */
    uint8_t content[16]; /* hash of what is asked: messages or prompt, tools and the like, own sampling */
};
void hr_record_finish(struct hr_record *r); /* zeroed is valid; reusable after it */

/* Errors: HR_ERR_FORMAT with the reason for rejects.jsonl ("field \"prompt\" is missing"); r->id_json
 * is set as far as an id could be read. */
HR_MUST_USE enum hr_status hr_record_parse(struct hr_record *r, const struct hr_manifest *m,
                                           const char *line, size_t len, struct hr_err *err);

struct hr_answer {
    int sample, occurrence;
    const char *reasoning; /* valid UTF-8; NULL: the answer has none */
    const char *text;      /* valid UTF-8 */
    size_t reasoning_len, text_len;
    int dropped_bytes; /* of an unfinished character at its end, not in `text` */
    const char *finish_reason;  /* "stop" or "length" */
    bool repetitive; /* the completion only repeats itself (job/repetition.h) */
    const char *stop_reason_json; /* JSON text ("\"\\n\"", "128001", "\"context\"") or NULL */
    int prompt_tokens, completion_tokens;
    int64_t seed;
    const int32_t *prompt_ids, *completion_ids; /* for output.token_ids, else NULL */
};
/* Appends the output row with its newline: id, dataset, sample, occurrence when not 0, prompt or
 * messages, tools, documents and chat_template_kwargs when the row had some, reasoning when there is some, response, dropped_bytes when not 0,
 * finish_reason, stop_reason, repetitive when it is, usage, seed,
 * prompt_token_ids and completion_token_ids when asked ([prompt_tokens] and [completion_tokens] of the
 * answer), metadata. The form is in manifests/row.schema.json. */
void hr_record_write_row(const struct hr_record *r, const struct hr_manifest *m,
                         const struct hr_answer *a, struct hr_buf *out);

/* Appends a line for rejects.jsonl: shard, line, id when known, sample when >= 0, reason, dataset. */
void hr_record_write_reject(const struct hr_buf *id_json, const char *dataset, const char *shard,
                            int64_t line_no, int sample, const char *reason, struct hr_buf *out);

/* Reads id, occurrence and sample back from a whole row of raw_responses.jsonl: ident as
 * hr_record_parse makes it. False when it is not such a row. */
bool hr_record_identify_row(const char *line, size_t len, uint8_t ident[16], int *occurrence,
                            int *sample);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer: text to token ids and back, exactly as the model's own tokenizer does it.
 *
 * Built from a Hugging Face tokenizer.json, a GGUF vocabulary or a tiktoken.model. A component that
 * is not known is refused by its name, never guessed. Immutable after creation, so any number of
 * threads may use one. */
#ifndef HR_TEXT_TOKENIZER_H
#define HR_TEXT_TOKENIZER_H

#include <stdbool.h>

#include "base/buf.h"

struct hr_tokenizer;

/* A vocabulary as a GGUF file states it. Borrowed for the call. */
enum hr_token_type { /* tokenizer.ggml.token_type */
                     HR_TOKEN_NORMAL = 1,
                     HR_TOKEN_UNKNOWN,
                     HR_TOKEN_CONTROL,
                     HR_TOKEN_USER_DEFINED,
                     HR_TOKEN_UNUSED,
                     HR_TOKEN_BYTE,
};
struct hr_vocab {
    const char *model; /* tokenizer.ggml.model: "gpt2", "llama", "gemma4" */
    const char *pre;   /* tokenizer.ggml.pre, or "" */
    int n_tokens, n_merges;
    const char *const *tokens; /* [n_tokens], in the file's byte alphabet */
    const size_t *token_len;   /* [n_tokens] */
    const int32_t *types;      /* [n_tokens] enum hr_token_type, or NULL: all normal */
    const float *scores;       /* [n_tokens]; "llama" needs them, for others NULL will do */
    const char *const *merges; /* [n_merges] "left right" */
    const size_t *merge_len;
    int32_t bos, eos, unk, pad; /* -1 when absent */
    bool add_bos, add_eos;
    bool add_space_prefix; /* "llama": a space before each text that is not only special tokens */
};

HR_MUST_USE enum hr_status hr_tokenizer_create_json(const char *json, size_t len,
                                                    struct hr_tokenizer **out, struct hr_err *err);
HR_MUST_USE enum hr_status hr_tokenizer_create_vocab(const struct hr_vocab *vocab,
                                                     struct hr_tokenizer **out, struct hr_err *err);

/* A control token of a tokenizer that comes as tiktoken's ranks. Borrowed for the call. */
struct hr_rank_token {
    int32_t id;
    const char *s;
    size_t len;
    bool special;
};
/* From tiktoken's file: lines of a token in base64 and its rank, which is its id; the pattern that
 * splits text (NULL: Kimi's) and the control tokens are said elsewhere. */
HR_MUST_USE enum hr_status hr_tokenizer_create_ranks(const char *ranks, size_t len,
                                                     const char *pattern,
                                                     const struct hr_rank_token *control,
                                                     size_t n_control, struct hr_tokenizer **out,
                                                     struct hr_err *err);
/* How many tokens such a file holds: the first control token's id. */
size_t hr_tokenizer_count_ranks(const char *ranks, size_t len);
void hr_tokenizer_destroy(struct hr_tokenizer **tok);

/* A range of bytes in a text, [begin, end). Ranges are sorted and do not overlap. */
struct hr_span {
    size_t begin, end;
};

struct hr_encode_opts {
    bool add_special;   /* run the post-processor (BOS, EOS as tokenizer.json says) */
    bool parse_special; /* text of special tokens outside `plain` becomes the control token */
    const struct hr_span
        *plain;     /* written by a user: a special token whose match touches one of these */
    size_t n_plain; /* is plain text (non-special added tokens still match) */
    size_t n_max;   /* more ids are an error, which takes less time than to make them all; 0: no bound */
};

/* Appends the ids of `text` (valid UTF-8) to `out`. Errors: HR_ERR_FORMAT for text that the
 * tokenizer cannot represent where the reference fails too; HR_ERR_LIMIT for more than n_max ids. */
HR_MUST_USE enum hr_status hr_tokenizer_encode(const struct hr_tokenizer *tok, const char *text,
                                               size_t len, const struct hr_encode_opts *opts,
                                               struct hr_ids *out, struct hr_err *err);

/* Appends the text of ids. Bytes that are not UTF-8 become U+FFFD as the reference writes it. Ids
 * outside the vocabulary are skipped, as the reference does. */
void hr_tokenizer_decode(const struct hr_tokenizer *tok, const int32_t *ids, size_t n,
                         bool skip_special, struct hr_buf *out);

int hr_tokenizer_n_vocab(const struct hr_tokenizer *tok); /* 1 + the highest id */
bool hr_tokenizer_is_special(const struct hr_tokenizer *tok, int32_t id);
/* The id of a token by its text as the file writes it (added tokens first); -1 when there is none.
 */
int32_t hr_tokenizer_find(const struct hr_tokenizer *tok, const char *s, size_t len);

/* The bytes of each token, in tables that the engine can hold without knowing text. Borrowed until
 * the tokenizer is destroyed.
 *
 * What hr_tokenizer_decode(ids, skip_special) writes is the concatenation over the tokens that are
 * not hidden, the first of them taken from the table `first`, without the strip bytes that it
 * begins with (n_strip of them at most), and with U+FFFD for what is not UTF-8. How many of those a
 * broken place becomes is the decoder's business (decoder.h): hr_detok_parts (detok.h) goes from
 * places in these bytes to text. */
struct hr_token_bytes {
    const uint8_t *bytes;
    const uint32_t *offset; /* [n_tokens + 1]: token i is bytes[offset[i] .. offset[i + 1]) */
    const uint8_t *first_bytes;   /* the same for the token that a text begins with; */
    const uint32_t *first_offset; /* NULL: the decoder treats it as any other */
    const bool *hidden;           /* [n_tokens]: a special token or a gap, which is no text */
    int n_tokens;
    int n_strip;
    uint8_t strip;
};
const struct hr_token_bytes *hr_tokenizer_bytes(const struct hr_tokenizer *tok);

#endif

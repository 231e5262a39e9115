/* SPDX-License-Identifier: Apache-2.0
 *
 * What model/gguf, gguf_llama and model_file promise about GGUF files: sound ones are read, all
 * others are refused by name before anything is computed. */
#include "model_files.h"

#include <math.h>

#include "model/model_config.h"

static void every_tensor_goes_by_its_hugging_face_name(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    gguf_llama(&f, "llama", HR_QUANT_Q8_0);
    open_gguf(&f, &mf);
    static const struct {
        const char *name;
        int n_rows, n_cols;
    } want[] = {
        {"model.embed_tokens.weight", 32, 32},
        {"model.layers.0.input_layernorm.weight", 1, 32},
        {"model.layers.0.self_attn.q_proj.weight", 32, 32},
        {"model.layers.0.self_attn.k_proj.weight", 16, 32},
        {"model.layers.0.self_attn.v_proj.weight", 16, 32},
        {"model.layers.0.self_attn.o_proj.weight", 32, 32},
        {"model.layers.0.post_attention_layernorm.weight", 1, 32},
        {"model.layers.0.mlp.gate_proj.weight", 64, 32},
        {"model.layers.0.mlp.up_proj.weight", 64, 32},
        {"model.layers.0.mlp.down_proj.weight", 32, 64},
        {"model.norm.weight", 1, 32},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        int n_rows = 0, n_cols = 0;
        const struct hr_file_tensor *t = hr_model_file_tensor(mf, want[i].name);
        assert_non_null(t);
        hr_file_tensor_shape(t, &n_rows, &n_cols);
        assert_int_equal(n_rows, want[i].n_rows);
        assert_int_equal(n_cols, want[i].n_cols);
    }
    assert_null(hr_model_file_tensor(mf, "lm_head.weight"));
    assert_null(hr_model_file_tensor(mf, "token_embd.weight"));
    const struct hr_model_config *c = hr_model_file_config(mf);
    assert_string_equal(c->arch, "llama");
    assert_int_equal(c->head_dim, 16);
    assert_int_equal(c->n_vocab, 32);
    assert_int_equal(c->n_ctx, 128);
    assert_true(c->tied_embeddings && !c->qkv_bias && !c->qk_norm);
    assert_true(c->rms_eps == 1e-5f);
    assert_string_equal(hr_model_file_describe(mf), "Test?0.001M, GGUF Q8_0");
    assert_true(hr_model_file_is_gguf(mf));
    hr_model_file_close(&mf);
    assert_null(mf);
    gguf_finish(&f);
}

/* What LlamaModel.permute of llama.cpp's converter does: reshape(heads, 2, hd/2).swapaxes(1, 2). */
static int permuted_row(int hf_row) {
    int head = hf_row / 16, in_head = hf_row % 16;
    return head * 16 + 2 * (in_head % 8) + in_head / 8;
}

static void interleaved_rotary_rows_come_back_as_halves(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    float rows[5][32], bias[32];
    gguf_llama(&f, "llama", HR_QUANT_F16);
    gguf_add(&f, "blk.0.attn_q.bias", HR_QUANT_F32, 0, 32);
    gguf_add(&f, "blk.0.attn_k.bias", HR_QUANT_F32, 0, 16);
    gguf_add(&f, "blk.0.attn_v.bias", HR_QUANT_F32, 0, 16);
    gguf_layout(&f);
    open_gguf(&f, &mf);
    assert_true(hr_model_file_config(mf)->qkv_bias);
    const struct hr_file_tensor *q =
        hr_model_file_tensor(mf, "model.layers.0.self_attn.q_proj.weight");
    hr_file_tensor_read(q, 15, 5, rows[0]);
    for (int r = 0; r < 5; r++)
        for (int i = 0; i < 32; i++)
            assert_true(rows[r][i] == (float)(1000 * permuted_row(15 + r) + i));
    hr_file_tensor_read(hr_model_file_tensor(mf, "model.layers.0.self_attn.k_proj.weight"), 9, 1,
                        rows[0]);
    assert_true(rows[0][3] == (float)(1000 * permuted_row(9) + 3));
    hr_file_tensor_read(hr_model_file_tensor(mf, "model.layers.0.self_attn.q_proj.bias"), 0, 1,
                        bias);
    for (int i = 0; i < 32; i++) assert_true(bias[i] == (float)permuted_row(i));
    hr_file_tensor_read(hr_model_file_tensor(mf, "model.layers.0.self_attn.v_proj.bias"), 0, 1,
                        bias);
    for (int i = 0; i < 16; i++) assert_true(bias[i] == (float)i);
    hr_model_file_close(&mf);
    gguf_finish(&f);
}

static void rows_of_qwen_files_stay_as_they_are(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    float row[32];
    gguf_llama(&f, "qwen3", HR_QUANT_BF16);
    gguf_add(&f, "blk.0.attn_q_norm.weight", HR_QUANT_F32, 0, 16);
    gguf_add(&f, "blk.0.attn_k_norm.weight", HR_QUANT_F32, 0, 16);
    gguf_add(&f, "output.weight", HR_QUANT_BF16, 32, 32);
    gguf_layout(&f);
    open_gguf(&f, &mf);
    assert_true(hr_model_file_config(mf)->qk_norm);
    assert_false(hr_model_file_config(mf)->tied_embeddings);
    assert_non_null(hr_model_file_tensor(mf, "lm_head.weight"));
    assert_non_null(hr_model_file_tensor(mf, "model.layers.0.self_attn.q_norm.weight"));
    hr_file_tensor_read(hr_model_file_tensor(mf, "model.layers.0.self_attn.k_proj.weight"), 9, 1,
                        row);
    assert_true(row[3] == 9003);
    hr_model_file_close(&mf);
    gguf_finish(&f);
}

static void a_file_cut_anywhere_is_refused(void **state) {
    struct gguf_file f = {0};
    struct hr_buf bytes = {0};
    struct hr_err err;
    gguf_llama(&f, "llama", HR_QUANT_Q4_0);
    gguf_write(&f, &bytes);
    size_t end = bytes.len; /* the last tensor's 128 bytes need no padding */
    for (size_t len = 0; len < end; len += len < f.header_len ? 1 : 61) {
        struct hr_model_file *mf = NULL;
        enum hr_status rc = open_bytes(bytes.data, len, &mf, &err);
        if (rc != HR_ERR_FORMAT) fail_msg("cut at %zu of %zu: status %d", len, end, rc);
        if (len >= f.header_len) assert_says(&err, "tensor ");
    }
    struct hr_model_file *mf = NULL;
    assert_int_equal(open_bytes(bytes.data, end - 1, &mf, &err), HR_ERR_FORMAT);
    assert_says(&err, "output_norm.weight");
    assert_int_equal(open_bytes(bytes.data, end, &mf, &err), HR_OK);
    hr_model_file_close(&mf);
    hr_buf_finish(&bytes);
    gguf_finish(&f);
}

/* Any byte of the header may be anything: the file is read or refused, memory is never touched
 * outside it (the sanitizers watch). */
static void no_header_byte_can_do_harm(void **state) {
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    struct gguf_file f = {0};
    struct hr_buf bytes = {0};
    struct hr_err err;
    float row[256];
    gguf_llama(&f, "llama", HR_QUANT_Q5_0);
    gguf_write(&f, &bytes);
    for (size_t i = 0; i < f.header_len; i++) {
        for (size_t k = 0; k < sizeof masks; k++) {
            struct hr_model_file *mf = NULL;
            bytes.data[i] = (char)(bytes.data[i] ^ masks[k]);
            if (open_bytes(bytes.data, bytes.len, &mf, &err) == HR_OK) {
                const struct hr_file_tensor *t = hr_model_file_tensor(mf, "model.norm.weight");
                hr_file_tensor_read(t, 0, 1, row);
                hr_model_file_close(&mf);
            } else {
                assert_true(err.msg[0] != 0);
            }
            bytes.data[i] = (char)(bytes.data[i] ^ masks[k]);
        }
    }
    hr_buf_finish(&bytes);
    gguf_finish(&f);
}

static void an_offset_past_the_end_is_refused_by_name(void **state) {
    static const uint64_t offsets[] = {1 << 20, UINT64_MAX - 31, UINT64_MAX / 64 * 32};
    for (size_t i = 0; i < 3; i++) {
        struct gguf_file f = {0};
        gguf_llama(&f, "llama", HR_QUANT_F32);
        gguf_find(&f, "blk.0.ffn_up.weight")->offset = offsets[i];
        assert_refused(&f, HR_ERR_FORMAT, "tensor blk.0.ffn_up.weight needs 8192 bytes");
        gguf_finish(&f);
    }
}

static void tensors_that_overlap_are_refused_by_name(void **state) {
    struct gguf_file f = {0};
    gguf_llama(&f, "llama", HR_QUANT_F32);
    gguf_find(&f, "blk.0.ffn_up.weight")->offset =
        gguf_find(&f, "blk.0.ffn_gate.weight")->offset + 32;
    assert_refused(&f, HR_ERR_FORMAT,
                   "tensors blk.0.ffn_gate.weight and blk.0.ffn_up.weight overlap");
    gguf_find(&f, "blk.0.ffn_up.weight")->offset = gguf_find(&f, "blk.0.ffn_gate.weight")->offset;
    assert_refused(&f, HR_ERR_FORMAT, "overlap");
    gguf_layout(&f);
    gguf_find(&f, "blk.0.ffn_up.weight")->offset -= 32; /* by one unit of alignment */
    assert_refused(&f, HR_ERR_FORMAT, "overlap");
    gguf_find(&f, "blk.0.ffn_up.weight")->offset = 4;
    assert_refused(&f, HR_ERR_FORMAT, "multiple of 32");
    gguf_finish(&f);
}

static void counts_are_not_believed(void **state) {
    static const struct {
        size_t at;
        const char *what;
    } counts[] = {{8, "more than the file has room for"}, {16, "more than the file has room for"}};
    static const uint64_t values[] = {UINT64_MAX, (uint64_t)1 << 61, (uint64_t)1 << 40, 100000};
    struct gguf_file f = {0};
    struct hr_buf bytes = {0};
    struct hr_err err;
    gguf_llama(&f, "llama", HR_QUANT_F16);
    gguf_write(&f, &bytes);
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < 4; k++) {
            struct hr_model_file *mf = NULL;
            uint64_t old;
            memcpy(&old, bytes.data + counts[i].at, sizeof old);
            memcpy(bytes.data + counts[i].at, &values[k], sizeof values[k]);
            assert_int_equal(open_bytes(bytes.data, bytes.len, &mf, &err), HR_ERR_FORMAT);
            assert_says(&err, counts[i].what);
            memcpy(bytes.data + counts[i].at, &old, sizeof old);
        }
    }
    hr_buf_finish(&bytes);
    gguf_finish(&f);

    for (size_t k = 0; k < 4; k++) {
        gguf_llama(&f, "llama", HR_QUANT_F16);
        kv_key(&f, "long.array", HR_GGUF_ARRAY);
        put_u32(&f.kv, HR_GGUF_I64);
        put_u64(&f.kv, values[k]);
        assert_refused(&f, HR_ERR_FORMAT, "long.array");
        gguf_finish(&f);
        gguf_llama(&f, "llama", HR_QUANT_F16);
        kv_key(&f, "long.string", HR_GGUF_STRING);
        put_u64(&f.kv, values[k]);
        assert_refused(&f, HR_ERR_FORMAT, "long.string");
        gguf_finish(&f);
    }
}

static void impossible_shapes_are_refused_by_name(void **state) {
    static const struct {
        uint64_t n_rows, n_cols;
    } shapes[] = {{UINT64_MAX, 32}, {32, UINT64_MAX}, {(uint64_t)1 << 40, (uint64_t)1 << 40},
                  {32, 0},          {32, 33},         {(uint64_t)1 << 31, 32}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct gguf_file f = {0};
        gguf_llama(&f, "llama", HR_QUANT_Q8_0);
        struct gguf_tensor *t = gguf_find(&f, "blk.0.attn_v.weight");
        t->n_rows = shapes[i].n_rows;
        t->n_cols = shapes[i].n_cols;
        assert_refused(&f, HR_ERR_FORMAT, "blk.0.attn_v.weight: the shape");
        gguf_finish(&f);
    }
}

static void more_than_two_dimensions_are_refused_by_name(void **state) {
    struct gguf_file f = {0};
    gguf_llama(&f, "llama", HR_QUANT_Q8_0);
    gguf_find(&f, "blk.0.attn_v.weight")->n_deep = 2;
    assert_refused(&f, HR_ERR_UNSUPPORTED, "blk.0.attn_v.weight has more than two dimensions");
    gguf_finish(&f);
}

static void a_wrong_shape_is_refused_under_both_names(void **state) {
    struct gguf_file f = {0};
    gguf_llama(&f, "llama", HR_QUANT_F16);
    gguf_find(&f, "blk.0.attn_v.weight")->n_rows = 15;
    assert_refused(
        &f, HR_ERR_FORMAT,
        "model.layers.0.self_attn.v_proj.weight (blk.0.attn_v.weight) has the shape [15, "
        "32]; the configuration asks for [16, 32]");
    gguf_finish(&f);
}

static void a_missing_tensor_is_named(void **state) {
    struct gguf_file whole = {0};
    gguf_llama(&whole, "llama", HR_QUANT_F16);
    for (size_t i = 0; i < whole.n_tensors; i++) {
        struct gguf_file f = {0};
        gguf_llama(&f, "llama", HR_QUANT_F16);
        snprintf(f.tensors[i].name, sizeof f.tensors[i].name, "blk.7.attn_v.weight");
        assert_refused(&f, HR_ERR_FORMAT, whole.tensors[i].name);
        gguf_finish(&f);
    }
    struct gguf_file f = {0};
    gguf_llama(&f, "llama", HR_QUANT_F16);
    snprintf(gguf_find(&f, "blk.0.attn_v.weight")->name, sizeof f.tensors[0].name,
             "blk.00.attn_v.weight"); /* a second spelling of a layer's number is another name */
    assert_refused(&f, HR_ERR_FORMAT, "(blk.0.attn_v.weight) is missing");
    gguf_finish(&f);
    gguf_finish(&whole);
}

static void a_tensor_that_nobody_reads_is_refused(void **state) {
    struct gguf_file f = {0};
    gguf_llama(&f, "llama", HR_QUANT_F16);
    gguf_add(&f, "blk.0.attn_sinks.weight", HR_QUANT_F32, 0, 2);
    gguf_layout(&f);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "blk.0.attn_sinks.weight");
    gguf_finish(&f);
    gguf_llama(&f, "llama", HR_QUANT_F16);
    gguf_add(&f, "blk.1.attn_norm.weight", HR_QUANT_F32, 0, 32); /* a layer too many */
    gguf_layout(&f);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "model.layers.1.input_layernorm.weight");
    gguf_finish(&f);
}

static void a_name_twice_is_refused(void **state) {
    struct gguf_file f = {0};
    gguf_llama(&f, "llama", HR_QUANT_F16);
    gguf_add(&f, "blk.0.ffn_up.weight", HR_QUANT_F16, 64, 32);
    gguf_layout(&f);
    assert_refused(&f, HR_ERR_FORMAT, "tensor blk.0.ffn_up.weight is there twice");
    gguf_finish(&f);
    gguf_llama(&f, "llama", HR_QUANT_F16);
    kv_u32(&f, "llama.block_count", 1);
    assert_refused(&f, HR_ERR_FORMAT, "metadata key llama.block_count is there twice");
    gguf_finish(&f);
}

static void what_is_not_supported_is_named_with_what_is(void **state) {
    struct gguf_file f = {0};
    gguf_llama(&f, "mamba", HR_QUANT_F16);
    assert_refused(&f, HR_ERR_UNSUPPORTED,
                   "mamba is not supported; supported are llama, mistral");
    gguf_finish(&f);
    gguf_llama(&f, "llama", HR_QUANT_F16);
    gguf_find(&f, "blk.0.ffn_up.weight")->ggml_type = 23;
    assert_refused(&f, HR_ERR_UNSUPPORTED, "blk.0.ffn_up.weight has the ggml type 23");
    assert_refused(&f, HR_ERR_UNSUPPORTED, HR_QUANT_NAMES);
    gguf_finish(&f);
    gguf_llama(&f, "llama", HR_QUANT_F16);
    kv_u32(&f, "llama.expert_count", 8);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "experts");
    gguf_finish(&f);
    gguf_llama(&f, "llama", HR_QUANT_F16);
    kv_u32(&f, "split.count", 3);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "split");
    gguf_finish(&f);
    gguf_llama(&f, "llama", HR_QUANT_F16);
    kv_str(&f, "llama.rope.scaling.type", "mrope");
    assert_refused(&f, HR_ERR_UNSUPPORTED, "mrope");
    gguf_finish(&f);
    gguf_llama(&f, "llama", HR_QUANT_F16);
    kv_u32(&f, "llama.rope.dimension_count", 8);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "rotated");
    f.version = 1;
    assert_refused(&f, HR_ERR_UNSUPPORTED, "version 1");
    f.version = __builtin_bswap32(3);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "big-endian");
    gguf_finish(&f);
}

/* The divisors that llama.cpp's converter writes for factor 8 (head size 16, base 500000). */
static void add_rope_freqs(struct gguf_file *f, double factor, double bend) {
    struct gguf_tensor *t = gguf_add(f, "rope_freqs.weight", HR_QUANT_F32, 0, 8);
    float *v = (float *)(void *)t->data.data;
    for (int i = 0; i < 8; i++) {
        double wavelen = 2 * M_PI * pow(500000, i / 8.0), smooth = (8192 / wavelen - 1) / 3;
        double d = 1 / ((1 - smooth) / factor + smooth);
        v[i] = (float)(wavelen < 8192.0 / 4 ? 1 : wavelen > 8192 ? factor : d * bend);
    }
    gguf_layout(f);
}

static void llama_3_rope_factors_become_its_parameters(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    gguf_llama(&f, "llama", HR_QUANT_F16);
    char *base = memmem(f.kv.data, f.kv.len, "freq_base", 9);
    float theta = 500000;
    memcpy(base + 9 + 4, &theta, sizeof theta);
    add_rope_freqs(&f, 8, 1);
    open_gguf(&f, &mf);
    const struct hr_model_config *c = hr_model_file_config(mf);
    assert_int_equal(c->rope.type, HR_ROPE_LLAMA3);
    assert_true(c->rope.factor == 8 && c->rope.low_freq_factor == 1);
    assert_true(c->rope.high_freq_factor == 4 && c->rope.original_ctx == 8192);
    hr_model_file_close(&mf);
    f.n_tensors--;
    hr_buf_finish(&f.tensors[f.n_tensors].data);
    add_rope_freqs(&f, 8, 1.01);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "rope_freqs.weight");
    gguf_finish(&f);
}

static void linear_rope_scaling_is_read(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    gguf_llama(&f, "llama", HR_QUANT_F16);
    kv_str(&f, "llama.rope.scaling.type", "linear");
    kv_f32(&f, "llama.rope.scaling.factor", 4);
    open_gguf(&f, &mf);
    assert_int_equal(hr_model_file_config(mf)->rope.type, HR_ROPE_LINEAR);
    assert_true(hr_model_file_config(mf)->rope.factor == 4);
    hr_model_file_close(&mf);
    gguf_finish(&f);
}

static void open_gguf_alone(const struct hr_buf *bytes, struct hr_gguf *g) {
    char path[64];
    struct hr_err err;
    int fd = memfd_create("model", 0);
    assert_true(fd >= 0 && write(fd, bytes->data, bytes->len) == (ssize_t)bytes->len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (hr_gguf_open(path, g, &err)) fail_msg("%s", err.msg);
    close(fd);
}

static void yarn_is_read(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    gguf_llama(&f, "qwen3", HR_QUANT_F16);
    kv_str(&f, "qwen3.rope.scaling.type", "yarn");
    kv_f32(&f, "qwen3.rope.scaling.factor", 4);
    kv_u32(&f, "qwen3.rope.scaling.original_context_length", 32);
    open_gguf(&f, &mf);
    const struct hr_rope *r = &hr_model_file_config(mf)->rope;
    assert_true(r->type == HR_ROPE_YARN && r->factor == 4 && r->original_ctx == 32 && r->truncate);
    assert_true(r->beta_fast == 32 && r->beta_slow == 1);
    assert_true(fabs(r->attention_factor - (0.1 * log(4) + 1)) < 1e-12);
    hr_model_file_close(&mf);
    kv_f32(&f, "qwen3.rope.scaling.yarn_log_multiplier", 0.1f);
    assert_refused(&f, HR_ERR_UNSUPPORTED, "yarn_log_multiplier");
    gguf_finish(&f);
}

/* The standard model as a Phi-3: q, k, v and gate, up fused, both sets of longrope. */
static void gguf_phi3(struct gguf_file *f) {
    gguf_llama_kv(f, "phi3");
    kv_u32(f, "phi3.rope.dimension_count", 12);
    kv_u32(f, "phi3.rope.scaling.original_context_length", 32);
    kv_f32(f, "phi3.rope.scaling.attn_factor", 1.25f);
    kv_u32(f, "phi3.attention.sliding_window", 50);
    gguf_add(f, "token_embd.weight", HR_QUANT_F16, 32, 32);
    gguf_add(f, "blk.0.attn_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_add(f, "blk.0.attn_qkv.weight", HR_QUANT_F32, 64, 32);
    gguf_add(f, "blk.0.attn_output.weight", HR_QUANT_F16, 32, 32);
    gguf_add(f, "blk.0.ffn_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_add(f, "blk.0.ffn_up.weight", HR_QUANT_F32, 128, 32);
    gguf_add(f, "blk.0.ffn_down.weight", HR_QUANT_F16, 32, 64);
    gguf_add(f, "output_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_add(f, "rope_factors_short.weight", HR_QUANT_F32, 0, 6);
    gguf_add(f, "rope_factors_long.weight", HR_QUANT_F32, 0, 6);
    float *divisors = (float *)(void *)gguf_find(f, "rope_factors_long.weight")->data.data;
    for (int i = 0; i < 6; i++) divisors[i] = 2 + (float)i;
    gguf_layout(f);
}

static void a_phi3_has_fused_matrices_and_longrope(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    float row[32];
    gguf_phi3(&f);
    open_gguf(&f, &mf);
    const struct hr_model_config *c = hr_model_file_config(mf);
    assert_true(c->fused && c->rope_dim == 12 && c->head_dim == 16);
    assert_true(c->window == 50 && c->layer[0] == HR_LAYER_SLIDING);
    assert_int_equal(c->rope.type, HR_ROPE_LONGROPE);
    assert_true(c->rope.factor == 4 && c->rope.attention_factor == 1.25 && c->rope.divisor[5] == 7);
    const struct hr_file_tensor *t =
        hr_model_file_tensor(mf, "model.layers.0.mlp.gate_up_proj.weight");
    assert_non_null(t);
    hr_file_tensor_read(t, 100, 1, row);
    assert_true(row[3] == 100003);
    assert_non_null(hr_model_file_tensor(mf, "model.layers.0.self_attn.qkv_proj.weight"));
    hr_model_file_close(&mf);
    gguf_find(&f, "rope_factors_short.weight")->name[5] = 'F';
    assert_refused(&f, HR_ERR_FORMAT, "rope_factors_short.weight");
    gguf_finish(&f);
}

static void a_gemma3_has_norms_behind_its_blocks_and_two_ropes(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    gguf_llama(&f, "gemma3", HR_QUANT_F16);
    kv_u32(&f, "gemma3.attention.sliding_window", 50);
    kv_str(&f, "gemma3.rope.scaling.type", "linear");
    kv_f32(&f, "gemma3.rope.scaling.factor", 8);
    gguf_add(&f, "blk.0.attn_q_norm.weight", HR_QUANT_F32, 0, 16);
    gguf_add(&f, "blk.0.attn_k_norm.weight", HR_QUANT_F32, 0, 16);
    gguf_add(&f, "blk.0.post_attention_norm.weight", HR_QUANT_F32, 0, 32);
    struct gguf_tensor *t = gguf_add(&f, "blk.0.post_ffw_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_layout(&f);
    open_gguf(&f, &mf);
    const struct hr_model_config *c = hr_model_file_config(mf);
    assert_true(c->post_norms && c->gelu && c->root_scale && c->qk_norm && !c->norm_plus_one);
    assert_true(c->window == 50 && c->layer[0] == HR_LAYER_SLIDING);
    assert_true(c->two_ropes && c->rope.type == HR_ROPE_LINEAR && c->rope.factor == 8);
    assert_true(c->sliding_rope.type == HR_ROPE_DEFAULT && c->sliding_rope.theta == 10000);
    assert_true(c->attn_scale == 0.25 && c->attn_softcap == 0 && c->final_softcap == 0);
    assert_true(c->tied_embeddings);
    assert_non_null(hr_model_file_tensor(mf, "model.layers.0.pre_feedforward_layernorm.weight"));
    assert_non_null(hr_model_file_tensor(mf, "model.layers.0.post_feedforward_layernorm.weight"));
    hr_model_file_close(&mf);
    snprintf(t->name, sizeof t->name, "blk.0.post_ffw_norn.weight");
    assert_refused(&f, HR_ERR_FORMAT, "post_feedforward_layernorm.weight (blk.0.post_ffw_norm.weight)");
    gguf_finish(&f);
}

static void a_gemma2_caps_its_scores_and_logits(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    gguf_llama(&f, "gemma2", HR_QUANT_F16);
    gguf_add(&f, "blk.0.post_attention_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_add(&f, "blk.0.post_ffw_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_layout(&f);
    open_gguf(&f, &mf);
    const struct hr_model_config *c = hr_model_file_config(mf);
    assert_true(c->attn_softcap == 50 && c->final_softcap == 30 && !c->two_ropes && !c->qk_norm);
    hr_model_file_close(&mf);
    kv_f32(&f, "gemma2.final_logit_softcapping", 12);
    open_gguf(&f, &mf);
    assert_true(hr_model_file_config(mf)->final_softcap == 12);
    hr_model_file_close(&mf);
    gguf_finish(&f);
}

/* q is stored in interleaved order, as Llama's; the fourth layer does not rotate. */
static void a_smollm3_skips_every_fourth_rotation(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    float row[32];
    gguf_llama(&f, "smollm3", HR_QUANT_F16);
    open_gguf(&f, &mf);
    assert_true(hr_model_file_config(mf)->layer[0] == 0);
    const struct hr_file_tensor *q =
        hr_model_file_tensor(mf, "model.layers.0.self_attn.q_proj.weight");
    hr_file_tensor_read(q, 1, 1, row);
    assert_true(row[0] == 2000);
    hr_model_file_close(&mf);
    gguf_finish(&f);
    gguf_llama_kv(&f, "smollm3");
    char *layers = memmem(f.kv.data, f.kv.len, "block_count", 11);
    uint32_t n = 5;
    memcpy(layers + 11 + 4, &n, sizeof n);
    gguf_add(&f, "token_embd.weight", HR_QUANT_F16, 32, 32);
    gguf_layout(&f);
    struct hr_buf bytes = {0};
    struct hr_gguf g = {0};
    struct hr_model_config c;
    struct hr_err err;
    gguf_write(&f, &bytes);
    open_gguf_alone(&bytes, &g);
    if (hr_model_config_from_gguf(&g, &c, &err)) fail_msg("%s", err.msg);
    for (int i = 0; i < 5; i++) assert_true(!!(c.layer[i] & HR_LAYER_NO_ROPE) == (i == 3));
    hr_gguf_close(&g);
    hr_buf_finish(&bytes);
    gguf_finish(&f);
}

static void an_olmo2_has_norms_behind_its_blocks_alone(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    gguf_llama(&f, "olmo2", HR_QUANT_F16);
    gguf_add(&f, "blk.0.attn_q_norm.weight", HR_QUANT_F32, 0, 32);
    gguf_add(&f, "blk.0.attn_k_norm.weight", HR_QUANT_F32, 0, 16);
    struct gguf_tensor *norm = gguf_find(&f, "blk.0.attn_norm.weight");
    snprintf(norm->name, sizeof norm->name, "blk.0.post_attention_norm.weight");
    norm = gguf_find(&f, "blk.0.ffn_norm.weight");
    snprintf(norm->name, sizeof norm->name, "blk.0.post_ffw_norm.weight");
    gguf_layout(&f);
    open_gguf(&f, &mf);
    assert_true(hr_model_file_config(mf)->no_pre_norms && hr_model_file_config(mf)->qk_norm_wide);
    assert_non_null(hr_model_file_tensor(mf, "model.layers.0.post_attention_layernorm.weight"));
    hr_model_file_close(&mf);
    gguf_finish(&f);
}

static void metadata_is_given_only_as_what_it_is(void **state) {
    struct gguf_file f = {0};
    struct hr_model_file *mf = NULL;
    const char *s, *strs[2];
    size_t len, n, lens[2];
    int64_t i;
    int32_t ints[2];
    double d;
    gguf_llama(&f, "llama", HR_QUANT_F16);
    kv_key(&f, "a.strings", HR_GGUF_ARRAY);
    put_u32(&f.kv, HR_GGUF_STRING);
    put_u64(&f.kv, 2);
    put_str(&f.kv, "one");
    put_str(&f.kv, "");
    kv_key(&f, "a.ints", HR_GGUF_ARRAY);
    put_u32(&f.kv, HR_GGUF_I32);
    put_u64(&f.kv, 2);
    put_u32(&f.kv, 5);
    put_u32(&f.kv, (uint32_t)-7);
    kv_key(&f, "a.bool", HR_GGUF_BOOL);
    hr_buf_putc(&f.kv, 1);
    open_gguf(&f, &mf);
    assert_true(hr_model_file_meta_str(mf, "general.architecture", &s, &len));
    assert_int_equal(len, 5);
    assert_true(hr_model_file_meta_int(mf, "a.bool", &i) && i == 1);
    assert_true(hr_model_file_meta_int(mf, "llama.block_count", &i) && i == 1);
    assert_true(hr_model_file_meta_real(mf, "llama.rope.freq_base", &d) && d == 10000);
    assert_false(hr_model_file_meta_int(mf, "llama.rope.freq_base", &i));
    assert_false(hr_model_file_meta_int(mf, "general.architecture", &i));
    assert_false(hr_model_file_meta_str(mf, "llama.block_count", &s, &len));
    assert_false(hr_model_file_meta_str(mf, "a.strings", &s, &len));
    assert_false(hr_model_file_meta_str(mf, "absent", &s, &len));
    assert_true(hr_model_file_meta_array(mf, "a.strings", &n) && n == 2);
    assert_true(hr_model_file_meta_array_str(mf, "a.strings", strs, lens));
    assert_true(lens[0] == 3 && memcmp(strs[0], "one", 3) == 0 && lens[1] == 0);
    assert_false(hr_model_file_meta_array_int(mf, "a.strings", ints));
    assert_true(hr_model_file_meta_array_int(mf, "a.ints", ints));
    assert_true(ints[0] == 5 && ints[1] == -7);
    assert_false(hr_model_file_meta_array_str(mf, "a.ints", strs, lens));
    assert_false(hr_model_file_meta_array(mf, "a.bool", &n));
    hr_model_file_close(&mf);
    gguf_finish(&f);
}

static void a_fingerprint_tells_models_apart(void **state) {
    uint8_t print[4][32];
    for (int k = 0; k < 4; k++) {
        struct gguf_file f = {0};
        struct hr_model_file *mf = NULL;
        gguf_llama(&f, "llama",
                   k == 2 ? HR_QUANT_BF16 : HR_QUANT_F16); /* another type, same sizes */
        if (k == 3) kv_u32(&f, "llama.attention.key_length", 16);
        if (k == 1) {
            char *base = memmem(f.kv.data, f.kv.len, "freq_base", 9);
            base[9 + 4 + 2] ^= 1;
        }
        open_gguf(&f, &mf);
        hr_model_file_fingerprint(mf, print[k]);
        hr_model_file_close(&mf);
        gguf_finish(&f);
    }
    assert_memory_not_equal(print[0], print[1], 32);
    assert_memory_not_equal(print[0], print[2], 32);
    assert_memory_equal(print[0], print[3], 32); /* the same thing said in other words */
}

static void other_files_are_refused(void **state) {
    struct hr_model_file *mf = NULL;
    struct hr_err err;
    assert_int_equal(open_bytes("hello, world", 12, &mf, &err), HR_ERR_FORMAT);
    assert_says(&err, "not a GGUF file");
    assert_int_equal(open_bytes("", 0, &mf, &err), HR_ERR_FORMAT);
    assert_says(&err, "empty");
    assert_int_equal(hr_model_file_open("no/such/file.gguf", &mf, &err), HR_ERR_NOTFOUND);
    assert_says(&err, "no/such/file.gguf");
    assert_null(mf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_goes_by_its_hugging_face_name),
        cmocka_unit_test(interleaved_rotary_rows_come_back_as_halves),
        cmocka_unit_test(rows_of_qwen_files_stay_as_they_are),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(no_header_byte_can_do_harm),
        cmocka_unit_test(an_offset_past_the_end_is_refused_by_name),
        cmocka_unit_test(tensors_that_overlap_are_refused_by_name),
        cmocka_unit_test(counts_are_not_believed),
        cmocka_unit_test(impossible_shapes_are_refused_by_name),
        cmocka_unit_test(more_than_two_dimensions_are_refused_by_name),
        cmocka_unit_test(a_wrong_shape_is_refused_under_both_names),
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_tensor_that_nobody_reads_is_refused),
        cmocka_unit_test(a_name_twice_is_refused),
        cmocka_unit_test(what_is_not_supported_is_named_with_what_is),
        cmocka_unit_test(llama_3_rope_factors_become_its_parameters),
        cmocka_unit_test(linear_rope_scaling_is_read),
        cmocka_unit_test(yarn_is_read),
        cmocka_unit_test(a_phi3_has_fused_matrices_and_longrope),
        cmocka_unit_test(a_gemma3_has_norms_behind_its_blocks_and_two_ropes),
        cmocka_unit_test(a_gemma2_caps_its_scores_and_logits),
        cmocka_unit_test(a_smollm3_skips_every_fourth_rotation),
        cmocka_unit_test(an_olmo2_has_norms_behind_its_blocks_alone),
        cmocka_unit_test(metadata_is_given_only_as_what_it_is),
        cmocka_unit_test(a_fingerprint_tells_models_apart),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What model/safetensors promises: sound files are read, all others are refused by name. Files live
 * in a folder of their own under the temporary folder and go with it. */
#include "model_files.h"

#include "model/safetensors.h"

static char dir[64];

static int make_dir(void **state) {
    snprintf(dir, sizeof dir, "/tmp/headrace-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "a.safetensors", "b.safetensors"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    return rmdir(dir);
}

static void write_bytes(const char *name, const void *data, size_t len) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* A file of this header and n_data bytes 0, 1, 2, ... */
static void make_file(struct hr_buf *out, const char *header, size_t n_data) {
    hr_buf_clear(out);
    put_u64(out, strlen(header));
    hr_buf_puts(out, header);
    for (size_t i = 0; i < n_data; i++) hr_buf_putc(out, (char)i);
}

static void write_file(const char *name, const char *header, size_t n_data) {
    struct hr_buf b = {0};
    make_file(&b, header, n_data);
    write_bytes(name, b.data, b.len);
    hr_buf_finish(&b);
}

static void assert_dir_refused(enum hr_status status, const char *what) {
    struct hr_safetensors s = {0};
    struct hr_err err = {0};
    enum hr_status rc = hr_safetensors_open(dir, &s, &err);
    if (rc == HR_OK) hr_safetensors_close(&s);
    if (rc != status) fail_msg("status %d, not %d: \"%s\" (wanted: %s)", rc, status, err.msg, what);
    assert_says(&err, what);
}

static void assert_header_refused(const char *header, size_t n_data, enum hr_status status,
                                  const char *what) {
    write_file("model.safetensors", header, n_data);
    assert_dir_refused(status, what);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void a_sound_file_is_read(void **state) {
    struct hr_safetensors s = {0};
    struct hr_err err = {0};
    write_file("model.safetensors",
               "{\"__metadata__\":{\"format\":\"pt\"}," T("x", "BF16", "[2,3]", 4, 16) "," T(
                   "v", "F32", "[1]", 0, 4) "," T("h", "F16", "[4]", 16, 24) "}   ",
               24);
    if (hr_safetensors_open(dir, &s, &err)) fail_msg("%s", err.msg);
    const struct hr_file_tensor *x = hr_tensor_table_find(&s.tensors, "x");
    assert_non_null(x);
    assert_int_equal(x->n_rows, 2);
    assert_int_equal(x->n_cols, 3);
    assert_int_equal(x->type, HR_QUANT_BF16);
    assert_int_equal(x->data[0], 4);
    assert_int_equal(hr_tensor_table_find(&s.tensors, "v")->n_rows, 1);
    assert_int_equal(hr_tensor_table_find(&s.tensors, "h")->data[0], 16);
    assert_int_equal(s.tensors.n, 3);
    hr_safetensors_close(&s);
}

static void a_file_cut_anywhere_is_refused(void **state) {
    struct hr_buf b = {0};
    make_file(&b, "{" T("first", "F32", "[4]", 0, 16) "," T("last", "F16", "[2,4]", 16, 32) "}",
              32);
    size_t header = b.len - 32;
    for (size_t len = 0; len < b.len; len++) {
        write_bytes("model.safetensors", b.data, len);
        const char *what = len < header        ? "model.safetensors"
                           : len < header + 16 ? "tensor first"
                                               : "tensor last";
        assert_dir_refused(HR_ERR_FORMAT, what);
    }
    hr_buf_finish(&b);
}

static void no_byte_of_the_header_can_do_harm(void **state) {
    struct hr_buf b = {0};
    make_file(&b, "{" T("first", "F32", "[4]", 0, 16) "," T("last", "F16", "[2,4]", 16, 32) "}",
              32);
    for (size_t i = 0; i < b.len - 32; i++) {
        for (int flip = 1; flip < 256; flip = flip * 2 + 1) {
            struct hr_safetensors s = {0};
            struct hr_err err = {0};
            b.data[i] = (char)(b.data[i] ^ flip);
            write_bytes("model.safetensors", b.data, b.len);
            if (hr_safetensors_open(dir, &s, &err) == HR_OK)
                hr_safetensors_close(&s);
            else
                assert_true(err.msg[0] != 0);
            b.data[i] = (char)(b.data[i] ^ flip);
        }
    }
    hr_buf_finish(&b);
}

static void lies_are_refused_by_name(void **state) {
    static const struct {
        const char *header;
        size_t n_data;
        const char *what;
    } lies[] = {
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12,
         "tensors a and b overlap"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 0, 8) "}", 8, "overlap"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 12, 20) "}", 20,
         "4 bytes before tensor b"},
        {"{" T("a", "F32", "[2]", 4, 12) "}", 12, "4 bytes before tensor a"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 9, "1 bytes at the end"},
        {"{" T("a", "F32", "[2]", 8, 16) "}", 8, "tensor a: its bytes end at 16 of 8"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", 8, "tensor a: shape [1, 3]"},
        {"{" T("a", "F16", "[3,2]", 0, 8) "}", 8, "tensor a: shape [3, 2]"},
        {"{" T("a", "F32", "[2]", 8, 0) "}", 8, "tensor a: its data_offsets"},
        {"{" T("a", "F32", "[2]", -8, 0) "}", 8, "tensor a: its data_offsets"},
        {"{" T("a", "F32", "[-2]", 0, 8) "}", 8, "tensor a: dimension 0"},
        {"{" T("a", "F32", "[0]", 0, 0) "}", 0, "tensor a: dimension 0"},
        {"{" T("a", "F32", "[4611686018427387904,4]", 0, 8) "}", 8, "tensor a: dimension 0"},
        {"{" T("a", "F32", "[1073741824,1073741824]", 0, 8) "}", 8, "tensor a: shape"},
        {"{" T("a", "F32", "[2]", 0, 9223372036854775807) "}", 8, "tensor a: shape"},
        {"{" T("a", "F32", "[2]", 9223372036854775799, 9223372036854775807) "}", 8, "tensor a"},
        {"{" T("a", "F32", "2", 0, 8) "}", 8, "tensor a: it has no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", 8, "tensor a"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "tensor a: its data_offsets"},
        {"{\"a\":7}", 8, "tensor a"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("a", "F32", "[2]", 8, 16) "}", 16, "header"},
        {"{" T("a\\u0000b", "F32", "[2]", 0, 8) "}", 8, "header"},
        {"{" T("", "F32", "[2]", 0, 8) "}", 8, "impossible name"},
        {"[]", 0, "not a JSON object"},
        {"{", 0, "header"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
        assert_header_refused(lies[i].header, lies[i].n_data, HR_ERR_FORMAT, lies[i].what);
}

static void what_is_not_supported_is_named_with_what_is(void **state) {
    assert_header_refused("{" T("a.weight", "F8_E4M3", "[8]", 0, 8) "}", 8, HR_ERR_UNSUPPORTED,
                          "tensor a.weight: its dtype F8_E4M3 is not supported; supported are F32, "
                          "F16, BF16");
    assert_header_refused("{" T("a.weight", "F32", "[1,1,2]", 0, 8) "}", 8, HR_ERR_UNSUPPORTED,
                          "tensor a.weight: it has 3 dimensions");
}

static void a_header_longer_than_the_file_is_refused(void **state) {
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 40, 17};
    char bytes[24] = {0};
    for (size_t i = 0; i < 4; i++) {
        memcpy(bytes, &lengths[i], sizeof lengths[i]);
        write_bytes("model.safetensors", bytes, sizeof bytes);
        assert_dir_refused(HR_ERR_FORMAT, "the header is cut off");
    }
}

static void write_text(const char *name, const char *text) {
    write_bytes(name, text, strlen(text));
}

static void several_files_are_one_model(void **state) {
    struct hr_safetensors s = {0};
    struct hr_err err = {0};
    write_file("a.safetensors", "{" T("x", "F32", "[2]", 0, 8) "}", 8);
    write_file("b.safetensors", "{" T("y", "F32", "[2]", 0, 8) "," T("z", "F16", "[2]", 8, 12) "}",
               12);
    write_text("model.safetensors.index.json",
               "{\"metadata\":{\"total_size\":20},\"weight_map\":{\"z\":\"b.safetensors\","
               "\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    if (hr_safetensors_open(dir, &s, &err)) fail_msg("%s", err.msg);
    assert_int_equal(s.tensors.n, 3);
    assert_int_equal(s.n_maps, 2);
    assert_int_equal(hr_tensor_table_find(&s.tensors, "z")->data[0], 8);
    hr_safetensors_close(&s);
}

static void an_index_that_lies_is_refused(void **state) {
    static const struct {
        const char *index;
        enum hr_status status;
        const char *what;
    } lies[] = {
        {"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"a.safetensors\"}}", HR_ERR_FORMAT,
         "tensor y is not in the file"},
        {"{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}}", HR_ERR_FORMAT,
         "is not in the file that the index names"},
        {"{\"weight_map\":{\"x\":\"c.safetensors\"}}", HR_ERR_NOTFOUND, "c.safetensors"},
        {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}", HR_ERR_FORMAT, "not a plain name"},
        {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", HR_ERR_FORMAT, "not a plain name"},
        {"{\"weight_map\":{\"x\":5}}", HR_ERR_FORMAT, "not a plain name"},
        {"{\"weight_map\":{}}", HR_ERR_FORMAT, "weight_map"},
        {"{}", HR_ERR_FORMAT, "weight_map"},
        {"[", HR_ERR_FORMAT, "model.safetensors.index.json"},
    };
    write_file("a.safetensors", "{" T("x", "F32", "[2]", 0, 8) "}", 8);
    write_file("b.safetensors", "{" T("y", "F32", "[2]", 0, 8) "}", 8);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        write_text("model.safetensors.index.json", lies[i].index);
        assert_dir_refused(lies[i].status, lies[i].what);
    }
    write_file("b.safetensors", "{" T("x", "F32", "[2]", 0, 8) "}", 8);
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    assert_dir_refused(HR_ERR_FORMAT, "tensor x is there twice");
}

static void a_directory_without_weights_is_told(void **state) {
    assert_dir_refused(HR_ERR_NOTFOUND, "neither model.safetensors nor");
}

int main(void) {
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        IN_DIR(a_sound_file_is_read),
        IN_DIR(a_file_cut_anywhere_is_refused),
        IN_DIR(no_byte_of_the_header_can_do_harm),
        IN_DIR(lies_are_refused_by_name),
        IN_DIR(what_is_not_supported_is_named_with_what_is),
        IN_DIR(a_header_longer_than_the_file_is_refused),
        IN_DIR(several_files_are_one_model),
        IN_DIR(an_index_that_lies_is_refused),
        IN_DIR(a_directory_without_weights_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

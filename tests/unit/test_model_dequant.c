/* SPDX-License-Identifier: Apache-2.0
 *
 * Every weight format equals the reference implementation's numbers bit for bit
 * (tests/golden/dequant, made by gguf-py). */
#include "model_files.h"

static void read_golden(const char *name, const char *suffix, struct hr_buf *out) {
    char path[1024];
    const char *root = getenv("HEADRACE_ROOT");
    snprintf(path, sizeof path, "%s/tests/golden/dequant/%s.%s", root ? root : ".", name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is missing", path);
    hr_buf_reserve(out, 1 << 16);
    out->len = fread(out->data, 1, 1 << 16, f);
    fclose(f);
}

static void every_format_equals_the_reference(void **state) {
    for (int type = 0; type < HR_QUANT_N; type++) {
        const struct hr_quant_info *info = &hr_quant_info[type];
        struct hr_buf blocks = {0}, want = {0};
        read_golden(info->name, "bin", &blocks);
        read_golden(info->name, "f32", &want);
        int64_t n = (int64_t)(want.len / sizeof(float));
        assert_int_equal(n % info->block_elems, 0);
        assert_int_equal(blocks.len, n / info->block_elems * info->block_bytes);
        float *got = hr_xcalloc((size_t)n, sizeof *got);
        /* An odd address: rows of a mapped file have no alignment to speak of. */
        char *odd = hr_xmalloc(blocks.len + 1);
        memcpy(odd + 1, blocks.data, blocks.len);
        hr_dequant((enum hr_quant)type, (const uint8_t *)odd + 1, n, got);
        for (int64_t i = 0; i < n; i++)
            if (memcmp(&got[i], want.data + i * 4, 4) != 0)
                fail_msg("%s: number %lld is %a", info->name, (long long)i, (double)got[i]);
        free(got);
        free(odd);
        hr_buf_finish(&blocks);
        hr_buf_finish(&want);
    }
}

static void every_format_is_known_by_one_number(void **state) {
    for (int a = 0; a < HR_QUANT_N; a++) {
        assert_non_null(strstr(HR_QUANT_NAMES, hr_quant_info[a].name));
        for (int b = 0; b < a; b++)
            assert_int_not_equal(hr_quant_info[a].ggml_type, hr_quant_info[b].ggml_type);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_equals_the_reference),
        cmocka_unit_test(every_format_is_known_by_one_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

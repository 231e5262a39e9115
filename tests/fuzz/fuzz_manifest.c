/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_manifest: any bytes as a manifest, in a folder with two shards. A refusal names the file.
 * Globs of an absolute path or one upward are left out: how long they take is the machine's affair.
 */
#include <string.h>

#include "fuzz.h"
#include "job/manifest.h"

static bool has(const uint8_t *data, size_t size, const char *what) {
    return data != NULL && memmem(data, size, what, strlen(what)) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[FUZZ_PATH_MAX];
    if (!path[0]) {
        fuzz_write("s.jsonl", "{}\n", 3);
        fuzz_write("t.jsonl", "{}\n", 3);
        fuzz_path(path, "m.json");
    }
    if ((has(data, size, "\"/") || has(data, size, "..") || has(data, size, "\\")) &&
        (has(data, size, "*") || has(data, size, "?") || has(data, size, "[/")))
        return 0;
    fuzz_write("m.json", data, size);
    struct hr_manifest *m = NULL;
    struct hr_err err = {0};
    if (hr_manifest_load(path, &m, &err) != HR_OK) {
        FUZZ_CHECK(m == NULL && err.code == HR_ERR_CONFIG);
        FUZZ_CHECK(strncmp(err.msg, path, strlen(path)) == 0);
        return 0;
    }
    FUZZ_CHECK(m->n_shards > 0 && m->dataset && m->dataset[0] && !strchr(m->dataset, '/'));
    FUZZ_CHECK(m->id && m->id[0] && m->max_tokens_per_dataset >= 0);
    FUZZ_CHECK(hr_manifest_check_output(m, path, &err) == HR_ERR_CONFIG);
    struct hr_sampling_spec other = {0};
    hr_sampling_spec_merge(&other, &m->sampling);
    hr_sampling_spec_finish(&other);
    hr_manifest_destroy(&m);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * replay: runs a fuzz target over the files of its corpus, for builds without a fuzzer: seeds and
 * what fuzzing once found stay tests with every compiler and sanitizer.
 *
 * usage: replay_<what> FOLDER|FILE...   A crash is the failure; so is an input that takes longer
 * than SECONDS_MAX, and a folder without a file, which would test nothing. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "fuzz.h"

#define SECONDS_MAX 10 /* as scripts/fuzz tells the fuzzer */

static int n_run, n_slow;

static void run_file(const char *path) {
    struct hr_buf b = {0};
    FILE *f = fopen(path, "rb");
    FUZZ_CHECK(f != NULL);
    size_t n;
    do {
        hr_buf_reserve(&b, 65536);
        n = fread(b.data + b.len, 1, 65536, f);
        b.len += n;
    } while (n > 0);
    fclose(f);
    char *exact = fuzz_copy(b.data, b.len);
    fprintf(stderr, "%s\n", path); /* before the call: the last line names what crashed */
    int64_t begin = hr_clock_ns();
    LLVMFuzzerTestOneInput((const uint8_t *)exact, b.len);
    double seconds = (double)(hr_clock_ns() - begin) * 1e-9;
    if (seconds > SECONDS_MAX) {
        fprintf(stderr, "%s: took %.1f s\n", path, seconds);
        n_slow++;
    }
    n_run++;
    free(exact);
    hr_buf_finish(&b);
}

static void run_path(const char *path) {
    struct stat st;
    struct dirent *e;
    FUZZ_CHECK(stat(path, &st) == 0);
    if (!S_ISDIR(st.st_mode)) {
        run_file(path);
        return;
    }
    DIR *d = opendir(path);
    FUZZ_CHECK(d != NULL);
    while ((e = readdir(d)) != NULL) {
        struct hr_buf one = {0};
        if (e->d_name[0] == '.') continue;
        hr_buf_printf(&one, "%s/%s", path, e->d_name);
        run_file(hr_buf_cstr(&one));
        hr_buf_finish(&one);
    }
    closedir(d);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) run_path(argv[i]);
    printf("%d inputs, %d too slow\n", n_run, n_slow);
    return n_run == 0 || n_slow > 0;
}

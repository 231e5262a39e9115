/* SPDX-License-Identifier: Apache-2.0
 *
 * shard: which bytes are a line, in plain and compressed files, whole and broken, in bounded
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "job/shard.h"

static char dir[64];

static int make_dir(void **state) {
    strcpy(dir, "/tmp/hr-shard-XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state) {
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static char *path_of(const char *name) {
    static char paths[4][128];
    static int i;
    char *p = paths[i++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static void write_to(const char *path, const void *data, size_t len, int flags) {
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static char *write_file(const char *name, const char *data, size_t len) {
    char *path = path_of(name);
    write_to(path, data, len, O_TRUNC);
    return path;
}

/* "1:abc|3:...": number and text of each line, "!" for too long, "torn" for a break. */
static const char *lines_of(char *const *paths, int n) {
    static struct hr_buf out;
    struct hr_shard_reader *r = NULL;
    struct hr_err err;
    struct hr_line line;
    bool more = true;
    hr_buf_clear(&out);
    assert_int_equal(hr_shard_open(paths, n, &r, &err), HR_OK);
    while (more) {
        if (hr_shard_next(r, &line, &more, &err) < 0) fail_msg("%s", err.msg);
        if (!more) break;
        if (out.len > 0) hr_buf_putc(&out, '|');
        if (n > 1) hr_buf_printf(&out, "%d/", line.i_shard);
        hr_buf_printf(&out, "%lld:", (long long)line.line_no);
        if (line.torn)
            hr_buf_puts(&out, "torn");
        else if (line.too_long)
            hr_buf_putc(&out, '!');
        else
            hr_buf_append(&out, line.p, line.len);
    }
    hr_shard_close(&r);
    assert_null(r);
    return hr_buf_cstr(&out);
}

static const char *lines_in(const char *name, const char *data, size_t len) {
    char *paths[1] = {write_file(name, data, len)};
    return lines_of(paths, 1);
}
#define LINES(text) lines_in("a.jsonl", text, sizeof(text) - 1)

static void a_line_ends_at_a_newline_and_nothing_else(void **state) {
    assert_string_equal(LINES("a\nb\n"), "1:a|2:b");
    assert_string_equal(LINES("a\r\nb\r\n"), "1:a|2:b");
    assert_string_equal(LINES("a\nlast"), "1:a|2:last");
    assert_string_equal(LINES("a\rb\n"), "1:a\rb");
    assert_string_equal(LINES("x\xe2\x80\xa8y\xc2\x85z\xe2\x80\xa9\x0b\x0c\x1e\n"),
                        "1:x\xe2\x80\xa8y\xc2\x85z\xe2\x80\xa9\x0b\x0c\x1e");
    assert_string_equal(LINES(""), "");
}

static void blank_lines_are_skipped_and_counted(void **state) {
    assert_string_equal(LINES("\n \t \na\n\r\n\n  \t\r\nb\n\n"), "3:a|7:b");
    assert_string_equal(LINES("   "), "");
}

static void a_bom_is_dropped_at_the_start_of_a_file_only(void **state) {
    assert_string_equal(LINES("\xef\xbb\xbf{}\n\xef\xbb\xbf[]\n"), "1:{}|2:\xef\xbb\xbf[]");
    assert_string_equal(LINES("\xef\xbb\xbf\na\n"), "2:a");
    char *paths[2] = {write_file("a.jsonl", "\xef\xbb\xbfx", 4),
                      write_file("b.jsonl", "\xef\xbb\xbfy", 4)};
    assert_string_equal(lines_of(paths, 2), "0/1:x|1/1:y");
}

static void a_nul_byte_is_a_byte_of_its_line(void **state) {
    char *path = write_file("a.jsonl", "a\0b\nc", 5);
    struct hr_shard_reader *r = NULL;
    struct hr_line line;
    bool more;
    assert_int_equal(hr_shard_open(&path, 1, &r, NULL), HR_OK);
    assert_int_equal(hr_shard_next(r, &line, &more, NULL), HR_OK);
    assert_int_equal(line.len, 3);
    assert_memory_equal(line.p, "a\0b", 3);
    hr_shard_close(&r);
}

static void lines_over_the_limit_are_told_and_cost_no_memory(void **state) {
    char *path = path_of("long.jsonl"), *block = malloc(1 << 20);
    memset(block, 'x', 1 << 20);
    write_to(path, "a\n", 2, O_TRUNC);
    for (int i = 0; i < 16; i++) write_to(path, block, 1 << 20, O_APPEND); /* exactly the limit */
    write_to(path, "\r\nb\n", 4, O_APPEND);
    for (int i = 0; i < 16; i++) write_to(path, block, 1 << 20, O_APPEND);
    write_to(path, "x\nc\n", 4, O_APPEND); /* one more */
    for (int i = 0; i < 100; i++) write_to(path, block, 1 << 20, O_APPEND);
    write_to(path, "\nd\n", 3, O_APPEND);
    for (int i = 0; i < 17; i++)
        write_to(path, block, 1 << 20, O_APPEND); /* no newline at the end */
    struct hr_shard_reader *r = NULL;
    struct hr_line line;
    bool more;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(hr_shard_open(&path, 1, &r, NULL), HR_OK);
    for (int i = 0; i < 8; i++) {
        static const size_t want_len[8] = {1, HR_LINE_MAX, 1, 0, 1, 0, 1, 0};
        assert_int_equal(hr_shard_next(r, &line, &more, NULL), HR_OK);
        assert_true(more);
        assert_int_equal(line.line_no, i + 1);
        assert_int_equal(line.len, want_len[i]);
        assert_int_equal(line.too_long, i == 3 || i == 5 || i == 7);
        if (line.len == 1) assert_int_equal(*line.p, "a b c d "[i]);
    }
    assert_int_equal(hr_shard_next(r, &line, &more, NULL), HR_OK);
    assert_false(more);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 80 * 1024); /* KiB: the file holds 149 MiB */
    hr_shard_close(&r);
    unlink(path);
    free(block);
}

static size_t gz(const char *text, size_t len, unsigned char *out, size_t cap) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)text, z.avail_in = (unsigned)len;
    z.next_out = out, z.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static size_t zst(const char *text, size_t len, unsigned char *out, size_t cap) {
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1); /* as zstd(1) does */
    size_t n = ZSTD_compress2(ctx, out, cap, text, len);
    ZSTD_freeCCtx(ctx);
    assert_false(ZSTD_isError(n));
    return n;
}

typedef size_t (*compress_fn)(const char *, size_t, unsigned char *, size_t);
static const struct {
    const char *name;
    compress_fn compress;
} formats[] = {{"a.jsonl.gz", gz}, {"a.jsonl.zst", zst}};

static void members_and_frames_that_follow_one_another_are_one_file(void **state) {
    for (int i = 0; i < 2; i++) {
        unsigned char buf[4096];
        size_t n = formats[i].compress("\xef\xbb\xbf"
                                       "a\nb",
                                       6, buf, sizeof buf);
        n += formats[i].compress("", 0, buf + n, sizeof buf - n);
        n += formats[i].compress("c\n\nd", 4, buf + n, sizeof buf - n);
        assert_string_equal(lines_in(formats[i].name, (char *)buf, n), "1:a|2:bc|4:d");
        n = formats[i].compress("", 0, buf, sizeof buf);
        assert_string_equal(lines_in(formats[i].name, (char *)buf, n), "");
    }
    unsigned char padded[4096] = {0};
    assert_true(gz("a\n", 2, padded, sizeof padded) < 3000);
    assert_string_equal(lines_in("a.jsonl.gz", (char *)padded, sizeof padded), "1:a");
    assert_string_equal(lines_in("a.jsonl.zst", "", 0), "");
    assert_string_equal(lines_in("a.jsonl.gz", "", 0), "1:torn");
    struct hr_shard_reader *r = NULL;
    struct hr_line line;
    bool more = false;
    char *path = write_file("none.jsonl.gz", "zzz", 3);
    assert_int_equal(hr_shard_open(&path, 1, &r, NULL), HR_OK);
    assert_int_equal(hr_shard_next(r, &line, &more, NULL), HR_OK);
    assert_true(more && line.torn);
    assert_non_null(strstr(line.p, "no line of the shard can be read: "));
    hr_shard_close(&r);
}

/* Text that does not compress to nothing, of many blocks. */
static char *numbers(int n, size_t *len) {
    struct hr_buf b = {0};
    for (int i = 0; i < n; i++)
        hr_buf_printf(&b, "%08x%08x\n", (unsigned)i * 2654435761u, (unsigned)i);
    *len = b.len;
    return b.data;
}

static void a_broken_compressed_shard_gives_all_lines_before_the_break(void **state) {
    size_t len, cap = 8 << 20;
    char *text = numbers(100000, &len);
    unsigned char *buf = malloc(cap);
    for (int i = 0; i < 2; i++) {
        for (int kind = 0; kind < 3; kind++) { /* cut, damaged, followed by rubbish */
            size_t n = formats[i].compress(text, len, buf, cap), rows = 0, torn = 0;
            if (kind == 0) n -= n / 3;
            if (kind == 1) memset(buf + n / 2, 0xff, 64);
            if (kind == 2) memcpy(buf + n, "rubbish!", 8), n += 8;
            char *paths[2] = {write_file(formats[i].name, (char *)buf, n),
                              write_file("z.jsonl", "z\n", 2)};
            struct hr_shard_reader *r = NULL;
            struct hr_line line;
            bool more = true;
            struct hr_err err;
            assert_int_equal(hr_shard_open(paths, 2, &r, &err), HR_OK);
            while (hr_shard_next(r, &line, &more, &err) == HR_OK && more && !line.torn &&
                   line.i_shard == 0) {
                /* Damage may decode to rubbish for a while before the checksum tells. */
                bool same = line.len == 16 && memcmp(line.p, text + 17 * rows, 16) == 0;
                if (kind == 1 && !same) continue;
                assert_true(same);
                rows++;
            }
            torn = more && line.torn && strstr(line.p, "the rest of the shard is lost") != NULL;
            assert_int_equal(torn, 1);
            assert_true(rows >= (kind == 0 ? 60000 : kind == 1 ? 30000 : 100000));
            if (kind != 1) assert_int_equal(line.line_no, rows + 1);
            assert_int_equal(hr_shard_next(r, &line, &more, &err),
                             HR_OK); /* the next shard goes on */
            assert_true(more && line.i_shard == 1 && *line.p == 'z');
            hr_shard_close(&r);
        }
    }
    free(buf);
    free(text);
}

static void every_cut_of_a_small_compressed_file_is_torn(void **state) {
    for (int i = 0; i < 2; i++) {
        unsigned char buf[256];
        size_t n = formats[i].compress("hello\nworld\n", 12, buf, sizeof buf);
        assert_string_equal(lines_in(formats[i].name, (char *)buf, n), "1:hello|2:world");
        for (size_t k = 1; k < n; k++) {
            const char *got = lines_in(formats[i].name, (char *)buf, k);
            if (strstr(got, "torn") == NULL) fail_msg("%s cut at %zu: %s", formats[i].name, k, got);
        }
    }
}

static void a_shard_that_cannot_be_read_is_an_error_with_its_name(void **state) {
    char *paths[2] = {path_of("missing.jsonl"), dir};
    struct hr_shard_reader *r = NULL;
    struct hr_line line;
    struct hr_err err;
    bool more;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hr_shard_open(paths + i, 1, &r, &err), HR_OK);
        assert_int_equal(hr_shard_next(r, &line, &more, &err), HR_ERR_IO);
        assert_non_null(strstr(err.msg, paths[i]));
        hr_shard_close(&r);
    }
    hr_shard_close(&r);
}

static void counting_counts_what_is_read(void **state) {
    unsigned char buf[256];
    size_t n = gz("x\n\ny", 4, buf, sizeof buf);
    char *paths[2] = {write_file("a.jsonl", "a\n\n \nb", 6),
                      write_file("b.jsonl.gz", (char *)buf, n)};
    int64_t count = -1;
    struct hr_err err;
    bool stop = false;
    assert_int_equal(hr_shard_count(paths, 2, 0, &stop, &count, &err), HR_OK);
    assert_int_equal(count, 4);
    assert_int_equal(hr_shard_count(paths, 2, 3, NULL, &count, &err), HR_OK);
    assert_int_equal(count, 3);
    stop = true;
    assert_int_equal(hr_shard_count(paths, 2, 0, &stop, &count, &err), HR_ERR_INTERRUPTED);
    assert_int_equal(count, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_ends_at_a_newline_and_nothing_else),
        cmocka_unit_test(blank_lines_are_skipped_and_counted),
        cmocka_unit_test(a_bom_is_dropped_at_the_start_of_a_file_only),
        cmocka_unit_test(a_nul_byte_is_a_byte_of_its_line),
        cmocka_unit_test(lines_over_the_limit_are_told_and_cost_no_memory),
        cmocka_unit_test(members_and_frames_that_follow_one_another_are_one_file),
        cmocka_unit_test(a_broken_compressed_shard_gives_all_lines_before_the_break),
        cmocka_unit_test(every_cut_of_a_small_compressed_file_is_torn),
        cmocka_unit_test(a_shard_that_cannot_be_read_is_an_error_with_its_name),
        cmocka_unit_test(counting_counts_what_is_read),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

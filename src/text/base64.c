/* SPDX-License-Identifier: Apache-2.0
 *
 * base64: four characters to three bytes. The last group may end in one or two '='; what the unused
 * bits of its last character hold is not looked at, as in Rust's and Python's decoders. */
#include "text/base64.h"

static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

bool hr_base64_decode(const char *s, size_t len, struct hr_buf *out) {
    size_t before = out->len, n = len;
    if (len % 4 != 0) return false;
    while (n > 0 && len - n < 2 && s[n - 1] == '=') n--;
    hr_buf_reserve(out, len / 4 * 3 + 1);
    uint32_t group = 0;
    int n_bits = 0;
    for (size_t i = 0; i < n; i++) {
        int v = value_of(s[i]);
        if (v < 0) {
            out->len = before;
            return false;
        }
        group = group << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out->data[out->len++] = (char)(group >> n_bits & 0xff);
    }
    return true;
}

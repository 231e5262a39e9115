/* SPDX-License-Identifier: Apache-2.0
 *
 * hash: SHA-256 (FIPS 180-4), CRC-32C (RFC 3720, polynomial 0x1EDC6F41 reflected) and a 64-bit mixer. */
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>

static const uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t ror(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void sha_block(uint32_t h[8], const uint8_t *p) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 |
               p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t v[8];
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha_k[i] + w[i];
        uint32_t s0 = ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void hr_sha256_init(struct hr_sha256 *s) {
    static const uint32_t init[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, init, sizeof init);
    s->n_bytes = 0;
}

void hr_sha256_update(struct hr_sha256 *s, const void *data, size_t len) {
    const uint8_t *p = data;
    while (len > 0) {
        size_t at = s->n_bytes % 64, n = 64 - at < len ? 64 - at : len;
        memcpy(s->block + at, p, n);
        s->n_bytes += n, p += n, len -= n;
        if (s->n_bytes % 64 == 0) sha_block(s->h, s->block);
    }
}

void hr_sha256_final(struct hr_sha256 *s, uint8_t out[32]) {
    uint64_t n_bits = s->n_bytes * 8;
    uint8_t pad[72] = {0x80}, tail[8];
    size_t n_pad = 1 + (119 - s->n_bytes % 64) % 64;
    for (int i = 0; i < 8; i++) tail[i] = (uint8_t)(n_bits >> (56 - 8 * i));
    hr_sha256_update(s, pad, n_pad);
    hr_sha256_update(s, tail, 8);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void hr_sha256(const void *data, size_t len, uint8_t out[32]) {
    struct hr_sha256 s;
    hr_sha256_init(&s);
    hr_sha256_update(&s, data, len);
    hr_sha256_final(&s, out);
}

void hr_hex(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    out[2 * n] = 0;
}

static uint32_t crc_step(uint32_t crc, uint8_t byte) {
    crc ^= byte;
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
    return crc;
}

uint32_t hr_crc32c(uint32_t crc, const void *data, size_t len) {
    static uint32_t table[256];
    static _Atomic int ready; /* built twice at worst, with the same values */
    if (!atomic_load(&ready)) {
        for (int i = 0; i < 256; i++) table[i] = crc_step(0, (uint8_t)i);
        atomic_store(&ready, 1);
    }
    const uint8_t *p = data;
    crc = ~crc;
    for (size_t i = 0; i < len; i++) crc = crc >> 8 ^ table[(crc ^ p[i]) & 0xff];
    return ~crc;
}

uint64_t hr_hash64(const void *data, size_t len, uint64_t seed) {
    const uint8_t *p = data;
    uint64_t h = seed ^ 0x9E3779B97F4A7C15u ^ len;
    while (len > 0) {
        uint64_t w = 0;
        size_t n = len < 8 ? len : 8;
        memcpy(&w, p, n);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
        p += n, len -= n;
    }
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

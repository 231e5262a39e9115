/* SPDX-License-Identifier: Apache-2.0
 *
 * hash: SHA-256 (identities, fingerprints; FIPS 180-4), CRC-32C (rows on the disk; RFC 3720) and a
 * 64-bit mixing hash for in-memory tables (not stable across versions, never written to a file). */
#ifndef HR_BASE_HASH_H
#define HR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hr_sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t block[64];
};

void hr_sha256_init(struct hr_sha256 *s);
void hr_sha256_update(struct hr_sha256 *s, const void *data, size_t len);
void hr_sha256_final(struct hr_sha256 *s, uint8_t out[32]);
void hr_sha256(const void *data, size_t len, uint8_t out[32]);

/* Lower-case hex of n bytes into out[2n+1]. */
void hr_hex(const uint8_t *bytes, size_t n, char *out);

/* CRC-32C of data, continuing from `crc` (0 at the start). */
uint32_t hr_crc32c(uint32_t crc, const void *data, size_t len);

uint64_t hr_hash64(const void *data, size_t len, uint64_t seed);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * flipkv: a library for LD_PRELOAD that is bad memory: when the file named by $FAULT_FLAG appears, a bit of
 * each 16-bit word in the largest anonymous mapping so far that is not zero is flipped, once, and the file is
 * removed. A test makes the KV cache (or its host tier) that mapping, by its size. */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS /* both names of mmap are defined below */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char *volatile largest;
static volatile size_t largest_bytes;

void *mmap64(void *at, size_t len, int prot, int flags, int fd, off64_t offset) {
    void *p = (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
    if (p != MAP_FAILED && fd < 0 && (prot & PROT_WRITE) && len > largest_bytes) {
        largest = p;
        largest_bytes = len;
    }
    return p;
}

/* The borders that are given back may be somebody else's next: they are no part of it any more. */
int munmap(void *at, size_t len) {
    char *p = at;
    if (p == largest) {
        largest += len;
        largest_bytes -= len;
    } else if (p > largest && p < largest + largest_bytes) {
        largest_bytes = (size_t)(p - largest);
    }
    return (int)syscall(SYS_munmap, at, len);
}

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    return mmap64(at, len, prot, flags, fd, offset);
}

static void flip(void) {
    uint16_t *words = (uint16_t *)largest;
    for (size_t i = 0; i < largest_bytes / sizeof *words; i++)
        if (words[i]) words[i] ^= 0x8000; /* the sign of a bf16 */
}

static void *wait_for_flag(void *arg) {
    const char *flag = arg;
    while (access(flag, F_OK) != 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    flip();
    unlink(flag);
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    char *flag = getenv("FAULT_FLAG");
    if (flag && pthread_create(&thread, NULL, wait_for_flag, flag) == 0) pthread_detach(thread);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * faults_io: the calls that change files, replaced by ones that can fail, for tests.
 *
 * faults_io.c defines write, pwrite, fdatasync, fsync, ftruncate, rename and unlink itself; as part
 * of an executable its definitions come before the C library's for every shared library too, SQLite
 * included. Calls on files under `dir` are counted; at the k-th one the fault happens. The state
 * lies in memory that a forked child shares with its parent, who reads it after the child is dead.
 *
 * FAULT_POWER is a power cut, roughly: the child dies at the k-th call, and each file is then put
 * back to what it was at its last sync (faults_power_cut), or left, as a disk does that wrote some
 * of it early. Source of the method: SQLite's test6.c. */
#ifndef HR_TESTS_FAULTS_IO_H
#define HR_TESTS_FAULTS_IO_H

enum fault_kind {
    FAULT_NONE,
    FAULT_KILL,    /* dies before the k-th call */
    FAULT_TORN,    /* dies in the middle of the k-th call: half of a write is done */
    FAULT_POWER,   /* dies before the k-th call; copies of files as of their last sync are kept */
    FAULT_NOSPACE, /* the k-th call and some after it find the disk full, after half of the bytes */
    FAULT_EIO,     /* the k-th call fails with EIO */
    FAULT_KINDS,
};

#define FAULT_EXIT          77 /* exit code of a child that died at its call */
#define FAULT_NOSPACE_CALLS 3

struct faults {
    enum fault_kind kind;
    int at; /* k, from 1 */
    int n;  /* calls so far */
    char dir[128], synced[128];
};

extern struct faults *faults; /* shared memory; NULL: calls go through */

/* Allocates `faults` and keeps what is needed for both folders, which must exist. */
void faults_init(const char *dir, const char *synced);
/* Puts the files of dir back to their last sync, but leaves those whose bit in `keep` is set (bit
 * 0: rows, 1: rejects, 2: the log of state.db, 3: state.db). */
void faults_power_cut(unsigned keep);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * sampling: the sampling keys that a row or a manifest may state, their types and ranges.
 *
 * One table for both, so that they cannot drift apart. (struct hr_sampling_spec is in manifest.h.)
 */
#ifndef HR_JOB_SAMPLING_H
#define HR_JOB_SAMPLING_H

#include "base/jscan.h"
#include "job/manifest.h"

#define HR_N_MAX        65536 /* samples a row: the store numbers them in an int */
#define HR_STOP_MAX     64    /* stop strings: each token is matched against all of them */
#define HR_STOP_IDS_MAX 1024

/* Is this member's key one of the sampling keys of a row? */
bool hr_sampling_is_key(const struct hr_jval *key);

/* Takes one member. A null states nothing, but for max_tokens, where it states "to EOS or the
 * context". max_completion_tokens is another name of max_tokens; a null in one gives way to a
 * number in the other, and two numbers that differ are refused. Errors: HR_ERR_FORMAT, "field \"n\"
 * must be ..., not
 * ..."; HR_ERR_NOTFOUND when it is not a sampling key. */
HR_MUST_USE enum hr_status hr_sampling_take(struct hr_sampling_spec *s, const struct hr_jval *key,
                                            const struct hr_jval *value, struct hr_err *err);

/* Appends what is stated in one canonical form, for hashing: "temperature=0.8;n=2;". */
void hr_sampling_canonical(const struct hr_sampling_spec *s, struct hr_buf *out);

/* What a value is, in words for a message: `the string "8"`, `-1`, `a list`. Appends. */
void hr_describe_value(const struct hr_jval *value, struct hr_buf *out);

#endif

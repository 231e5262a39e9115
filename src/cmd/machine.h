/* SPDX-License-Identifier: Apache-2.0
 *
 * machine: what commands ask of the machine before they load a model: its free memory, and which of its
 * instruction sets may be used. */
#ifndef HR_CMD_MACHINE_H
#define HR_CMD_MACHINE_H

#include <stdint.h>

#include "base/status.h"

/* Bytes that can be taken without swapping; "no bound" (half of UINT64_MAX) where the system does not say. */
uint64_t hr_cmd_free_memory(void);

/* --cpu-mask: a number such as 0 or 0x3; NULL means all. Errors: HR_ERR_CONFIG. */
HR_MUST_USE enum hr_status hr_cmd_parse_cpu_mask(const char *s, unsigned *mask, struct hr_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * exit_code: what a status that ended a command means to the shell that started it. */
#include "cmd/cmd.h"

int hr_cmd_exit_code(enum hr_status code) {
    switch (code) {
    case HR_OK:
        return HR_EXIT_DONE;
    case HR_ERR_CONFIG:
    case HR_ERR_LOCKED:
    case HR_ERR_FORMAT:
    case HR_ERR_UNSUPPORTED:
    case HR_ERR_LIMIT:
    case HR_ERR_NOTFOUND:
        return HR_EXIT_USAGE;
    case HR_ERR_INTERRUPTED:
        return HR_EXIT_INTERRUPTED;
    case HR_ERR_NOSPACE: /* not resumable before somebody has made room */
    case HR_ERR_FAILED:
    case HR_ERR_NOMEM:
    case HR_ERR_IO:
    case HR_ERR_NUMERIC:
        return HR_EXIT_FAILED;
    }
    return HR_EXIT_FAILED;
}

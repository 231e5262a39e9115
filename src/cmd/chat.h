/* SPDX-License-Identifier: Apache-2.0
 *
 * chat: a row's messages as a chat template is to see them. */
#ifndef HR_CMD_CHAT_H
#define HR_CMD_CHAT_H

#include <stddef.h>

#include "base/buf.h"

/* Appends the messages with what transformers changes before it renders (see chat.c). json: a validated
 * list of objects; so is the result. */
void hr_cmd_chat_messages(const char *json, size_t len, struct hr_buf *out);

#endif

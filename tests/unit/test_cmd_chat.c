/* SPDX-License-Identifier: Apache-2.0
 *
 * chat: messages against what transformers 5.24 hands to a template (its _normalize_chat_messages, then
 * _alias_reasoning_fields; the expected texts were printed by those), and parts of content. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cmd/chat.h"

struct pair {
    const char *sent, *seen;
};

static void compare(const struct pair *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct hr_buf out = {0};
        hr_cmd_chat_messages(p[i].sent, strlen(p[i].sent), &out);
        assert_string_equal(hr_buf_cstr(&out), p[i].seen);
        hr_buf_finish(&out);
    }
}
#define COMPARE(pairs) compare(pairs, sizeof(pairs) / sizeof *(pairs))

static void null_keys_of_a_message_are_not_seen(void **state) {
    static const struct pair pairs[] = {
        {"[{\"role\":\"user\",\"content\":\"a\",\"name\":null,\"tool_calls\":null}]",
         "[{\"role\":\"user\",\"content\":\"a\"}]"},
        {"[ {\"role\":\"assistant\", \"content\":null,\"tool_calls\":[{\"id\":null}]} , {\"role\":\"x\"}]",
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":null}]},{\"role\":\"x\"}]"},
        {"[{\"content\":\"a\",\"b\":1,\"content\":null}]", "[{\"b\":1}]"},
        {"[{\"content\":null,\"b\":1,\"content\":\"a\"}]", "[{\"content\":\"a\",\"b\":1}]"},
        {"[{\"a\":null}]", "[{}]"},
    };
    COMPARE(pairs);
}

static void reasoning_has_all_its_names(void **state) {
    static const struct pair pairs[] = {
        {"[{\"role\":\"assistant\",\"reasoning\":\"r\",\"content\":\"c\"}]",
         "[{\"thinking\":\"r\",\"role\":\"assistant\",\"reasoning\":\"r\",\"content\":\"c\","
         "\"reasoning_content\":\"r\"}]"},
        {"[{\"role\":\"assistant\",\"reasoning_content\":\"r\",\"content\":\"c\"}]",
         "[{\"thinking\":\"r\",\"role\":\"assistant\",\"reasoning_content\":\"r\",\"content\":\"c\"}]"},
        {"[{\"role\":\"assistant\",\"thinking\":\"t\",\"reasoning\":\"r\"}]",
         "[{\"thinking\":\"t\",\"role\":\"assistant\",\"reasoning\":\"r\",\"reasoning_content\":\"t\"}]"},
        {"[{\"reasoning_content\":\"c\",\"thinking\":\"t\"}]",
         "[{\"thinking\":\"t\",\"reasoning_content\":\"c\"}]"},
        {"[{\"reasoning_content\":null,\"reasoning\":\"\",\"thinking\":null}]",
         "[{\"thinking\":\"\",\"reasoning\":\"\",\"reasoning_content\":\"\"}]"},
    };
    COMPARE(pairs);
}

static void null_keys_of_parts_are_not_seen(void **state) {
    static const struct pair pairs[] = {
        {"[{\"content\":[{\"type\":\"text\",\"text\":\"a\",\"image\":null}, {\"type\":\"image\",\"text\":null}]}]",
         "[{\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\"}]}]"},
        {"[{\"content\":[],\"tool_calls\":[{\"function\":{\"arguments\":{\"unit\":null}}}]}]",
         "[{\"content\":[],\"tool_calls\":[{\"function\":{\"arguments\":{\"unit\":null}}}]}]"},
    };
    COMPARE(pairs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_keys_of_a_message_are_not_seen),
        cmocka_unit_test(reasoning_has_all_its_names),
        cmocka_unit_test(null_keys_of_parts_are_not_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

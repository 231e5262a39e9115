/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt: the grammar of join templates; see prompt.h for the rule. */
#include "job/prompt.h"

#include <string.h>

bool hr_prompt_is_template(const char *prompt) {
    return strpbrk(prompt, "{}") != NULL;
}

bool hr_prompt_next(const char **p, struct hr_buf *literal, const char **field, size_t *field_len) {
    const char *s = *p;
    *field = "";
    *field_len = 0;
    if (*s == 0) return false;
    for (; *s != 0; s++) {
        if (*s == '{' && s[1] != '{') {
            size_t n = strcspn(s + 1, "{}");
            *field = s + 1;
            *field_len = n;
            *p = s + 1 + n + (s[1 + n] == '}');
            return true;
        }
        hr_buf_putc(literal, *s);
        if (*s == '{' || *s == '}') s += s[1] == *s;
    }
    *p = s;
    return true;
}

enum hr_status hr_prompt_check(const char *prompt, struct hr_err *err) {
    int n_fields = 0;
    for (const char *s = prompt; *s != 0; s++) {
        if (*s != '{' && *s != '}') continue;
        if (s[1] == *s) {
            s++;
            continue;
        }
        if (*s == '}')
            return hr_err_set(err, HR_ERR_CONFIG,
                              "a '}' without its '{' at byte %zu (a literal one is written }})",
                              (size_t)(s - prompt));
        size_t n = strcspn(s + 1, "{}");
        if (n == 0 || s[1 + n] != '}')
            return hr_err_set(err, HR_ERR_CONFIG,
                              "no field name and '}' after the '{' at byte %zu (a literal one is "
                              "written {{)",
                              (size_t)(s - prompt));
        n_fields++;
        s += 1 + n;
    }
    if (n_fields == 0) return hr_err_set(err, HR_ERR_CONFIG, "the template names no {field}");
    return HR_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * render: messages through a chat template, a JSON line in, a JSON line out.
 *
 * For people who want to see what a template does, and for conformance tests. The members of a line
 * are the variables of the template; `messages` are changed as a run changes them (cmd/chat.h), `tools` and
 * `documents` are null when absent, the special tokens come from the model. With --raw a line is {"template": ..., "context": {...}, "now": ...}
 * and the template sees exactly that context. A line that fails, a syntax error included, gets
 * {"error": ...} and the next one is served. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/jscan.h"
#include "base/log.h"
#include "cmd/chat.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/textload.h"
#include "model/model_file.h"
#include "text/template.h"

/* The largest templates known are below 50 KB. */
#define TEMPLATE_BYTES_MAX ((size_t)16 << 20)

struct render {
    struct hr_model_text text;
    struct hr_template *file_template; /* of --template, or NULL */
    bool raw;
    bool has_now;
    struct tm now;
};

/* The variables of one line. Names and values are borrowed from the line, `names` or the model. */
struct variables {
    struct hr_template_var *v; /* owned */
    size_t n;
    char **names; /* owned */
    size_t n_names;
    struct hr_buf messages; /* as the template sees them */
};

static enum hr_status open_template_file(const char *path, struct hr_template **out,
                                         struct hr_err *err) {
    struct hr_buf source = {0};
    struct stat info;
    enum hr_status st = HR_OK;
    FILE *f = fopen(path, "rb");
    if (!f) return hr_err_set(err, HR_ERR_IO, "%s: %m", path);
    if (fstat(fileno(f), &info) || !S_ISREG(info.st_mode)) {
        st = hr_err_set(err, HR_ERR_IO, "%s: not a regular file", path);
    } else if ((size_t)info.st_size > TEMPLATE_BYTES_MAX) {
        st = hr_err_set(err, HR_ERR_LIMIT, "%s: larger than any template", path);
    } else {
        hr_buf_reserve(&source, (size_t)info.st_size + 1);
        source.len = fread(source.data, 1, (size_t)info.st_size, f);
        if (ferror(f)) st = hr_err_set(err, HR_ERR_IO, "%s: %m", path);
    }
    fclose(f);
    if (!st) {
        st = hr_template_compile(source.data, source.len, out, err);
        if (st) hr_err_prefix(err, "%s", path);
    }
    hr_buf_finish(&source);
    return st;
}

static void add(struct variables *vars, const char *name, const char *json, size_t len,
                bool trusted) {
    vars->v = hr_xrealloc(vars->v, (vars->n + 1) * sizeof *vars->v);
    vars->v[vars->n++] = (struct hr_template_var){name, json, len, trusted};
}

static bool is_special(const char *name) {
    size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, "_token") == 0;
}

/* Every member of the object; a later variable hides an earlier one of the same name. */
static void add_members(struct variables *vars, const struct hr_jval *object) {
    struct hr_jiter it = {0};
    struct hr_jval key, value;
    struct hr_buf name = {0};
    while (hr_jscan_next(object, &it, &key, &value)) {
        hr_buf_clear(&name);
        hr_jscan_str(&key, &name);
        char *copy = hr_xstrndup(name.data ? name.data : "", name.len);
        vars->names = hr_xrealloc(vars->names, (vars->n_names + 1) * sizeof *vars->names);
        vars->names[vars->n_names++] = copy;
        add(vars, copy, value.p, value.len, is_special(copy));
    }
    hr_buf_finish(&name);
}

static void variables_finish(struct variables *vars) {
    for (size_t i = 0; i < vars->n_names; i++) free(vars->names[i]);
    free(vars->names);
    free(vars->v);
    hr_buf_finish(&vars->messages);
}

static enum hr_status raw_line(const struct hr_jval *line, struct variables *vars,
                               struct hr_template **own, struct tm *now, struct hr_err *err) {
    struct hr_jval v;
    struct hr_buf s = {0};
    enum hr_status st = HR_OK;
    if (!hr_jscan_get(line, "context", &v) || v.type != HR_JOBJECT) {
        return hr_err_set(err, HR_ERR_FORMAT, "expected \"context\", an object");
    }
    add_members(vars, &v);
    if (hr_jscan_get(line, "now", &v) && v.type == HR_JSTRING) {
        hr_jscan_str(&v, &s);
        if (!hr_clock_parse(hr_buf_cstr(&s), now)) {
            st = hr_err_set(err, HR_ERR_FORMAT,
                            "\"now\" must be a time such as 2026-03-07T09:05:03");
        }
    }
    hr_buf_clear(&s);
    if (!st && hr_jscan_get(line, "template", &v)) {
        if (v.type == HR_JSTRING) {
            hr_jscan_str(&v, &s);
            st = hr_template_compile(hr_buf_cstr(&s), s.len, own, err);
        } else {
            st = hr_err_set(err, HR_ERR_FORMAT, "\"template\" must be a string");
        }
    }
    hr_buf_finish(&s);
    return st;
}

static bool is_list_of_objects(const struct hr_jval *v) {
    struct hr_jiter it = {0};
    struct hr_jval one;
    bool is = v->type == HR_JARRAY;
    while (is && hr_jscan_next(v, &it, NULL, &one)) is = one.type == HR_JOBJECT;
    return is;
}

/* What is no list of messages goes to the template as it is: its complaint is what the user wants to see. */
static void chat_line(const struct render *r, const struct hr_jval *line, struct variables *vars) {
    for (int i = 0; i < r->text.n_special; i++) {
        const struct hr_template_var *v = &r->text.special[i];
        add(vars, v->name, v->json, v->json_len, v->trusted);
    }
    add(vars, "tools", "null", 4, true);
    add(vars, "documents", "null", 4, true);
    add_members(vars, line);
    struct hr_jval messages;
    if (!hr_jscan_get(line, "messages", &messages) || !is_list_of_objects(&messages)) return;
    hr_cmd_chat_messages(messages.p, messages.len, &vars->messages);
    add(vars, "messages", vars->messages.data, vars->messages.len, false);
}

static const struct hr_template *pick_template(const struct render *r, const struct hr_jval *line) {
    struct hr_jval tools;
    if (r->file_template) return r->file_template;
    bool has_tools =
        hr_jscan_get(line, "tools", &tools) && tools.type == HR_JARRAY && tools.len > 2;
    return hr_model_text_template(&r->text, has_tools);
}

static enum hr_status render_line(const struct render *r, const char *text, size_t len,
                                  struct hr_rendered *out, struct hr_err *err) {
    struct hr_jval line;
    struct variables vars = {0};
    struct hr_template *own = NULL;
    struct tm now = r->now;
    enum hr_status st = hr_jscan_validate(text, len, &line, err);
    if (st) return st;
    if (line.type != HR_JOBJECT) return hr_err_set(err, HR_ERR_FORMAT, "expected an object");
    if (r->raw) {
        st = raw_line(&line, &vars, &own, &now, err);
    } else {
        chat_line(r, &line, &vars);
    }
    const struct hr_template *t = own ? own : pick_template(r, &line);
    if (!st && !t)
        st = hr_err_set(err, HR_ERR_CONFIG, "%s", r->text.no_template ? r->text.no_template : "there is no chat template");
    if (!st)
        st = hr_template_render(t, vars.v, vars.n, &now, &hr_template_limits_default, out, err);
    hr_template_destroy(&own);
    variables_finish(&vars);
    return st;
}

static void serve_line(const struct render *r, const char *text, size_t len, struct hr_buf *out) {
    struct hr_err err = {0};
    struct hr_rendered rendered = {0};
    if (render_line(r, text, len, &rendered, &err)) {
        hr_buf_puts(out, "{\"error\": ");
        hr_buf_json_str(out, err.msg, strlen(err.msg));
    } else {
        hr_buf_puts(out, "{\"text\": ");
        hr_buf_json_str(out, rendered.text.data ? rendered.text.data : "", rendered.text.len);
    }
    hr_buf_puts(out, "}\n");
    hr_rendered_finish(&rendered);
}

static bool is_blank(const char *s, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r\n", s[i])) return false;
    return true;
}

/* Each answer is flushed: a person may be typing, or a program waiting for it. */
static enum hr_status serve(struct render *r, struct hr_err *err) {
    struct hr_buf out = {0};
    char *line = NULL, iso[25];
    size_t cap = 0;
    ssize_t n;
    enum hr_status st = HR_OK;
    while (!st && (n = getline(&line, &cap, stdin)) >= 0) {
        if (is_blank(line, (size_t)n)) continue;
        if (!r->has_now) {
            hr_clock_iso(iso);
            (void)hr_clock_parse(iso, &r->now);
        }
        hr_buf_clear(&out);
        serve_line(r, line, (size_t)n, &out);
        if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout)) {
            st = hr_err_set(err, HR_ERR_IO, "writing to stdout: %m");
        }
    }
    free(line);
    hr_buf_finish(&out);
    return st;
}

static enum hr_status open_model(const char *path, struct hr_model_text *text, struct hr_err *err) {
    struct hr_model_file *mf = NULL;
    enum hr_status st = hr_model_file_open_text(path, &mf, err);
    if (!st) st = hr_model_text_open(mf, NULL, text, err);
    hr_model_file_close(&mf);
    return st;
}

int hr_cmd_render(int argc, char **argv) {
    const char *model = NULL, *file = NULL, *now = NULL;
    struct render r = {0};
    const struct hr_opt opts[] = {
        {"model", "PATH", "Input",
         "Take template and special tokens of this model (a .gguf file or a directory).",
         HR_OPT_STR, &model},
        {"template", "FILE", "Input", "Take this template. Default: the model's own.", HR_OPT_STR,
         &file},
        {"raw", NULL, "Input",
         "A line is {\"template\": ..., \"context\": {...}, \"now\": ...}. Default: "
         "a line holds messages and other variables.",
         HR_OPT_FLAG, &r.raw},
        {"now", "TIME", "Output",
         "What the template sees as the time, such as 2026-03-07T09:05:03. "
         "Default: the present time, UTC.",
         HR_OPT_STR, &now, &r.has_now},
    };
    const struct hr_command_line cl = {
        "render",
        "",
        "Renders messages with a chat template: JSON lines on stdin, one answer a line on "
        "stdout. A line is {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": "
        "true}; its messages are changed as run changes them (docs/manifest.md), but for --raw.",
        opts,
        HR_N_OPTS(opts),
        0,
        0};
    struct hr_err err = {0};
    int n_args, code;
    if (!hr_options_parse(&cl, argc, argv, &n_args, &code)) return code;
    if (!model && !file && !r.raw) {
        hr_error("render: give --model PATH or --template FILE");
        return HR_EXIT_USAGE;
    }
    if (now && !hr_clock_parse(now, &r.now)) {
        hr_error("render: --now %s: not a time such as 2026-03-07T09:05:03", now);
        return HR_EXIT_USAGE;
    }
    enum hr_status st = file ? open_template_file(file, &r.file_template, &err) : HR_OK;
    if (!st && model) st = open_model(model, &r.text, &err);
    if (!st) st = serve(&r, &err);
    if (st) hr_error("render: %s", err.msg);
    hr_template_destroy(&r.file_template);
    hr_model_text_finish(&r.text);
    return st ? hr_cmd_exit_code(st) : HR_EXIT_DONE;
}

// SPDX-License-Identifier: Apache-2.0
// Runs code in a session's kernel; its outcome looks like that of a script.

#include <string.h>

#include "file_links.h"
#include "script.h"

int
script_exit_code(const struct job *job)
{
    const json_t *exit_code = json_object_get(job->outcome.done, "exit_code");
    if (exit_code)
        return (int)json_integer_value(exit_code);
    static const struct {
        const char *status;
        int code;
    } codes[] = {{"ok", 0}, {"error", 1}, {"timeout", 124}, {"interrupted", 130}};
    for (size_t i = 0; i < KG_ARRAY_LEN(codes); i++) {
        if (strcmp(outcome_status(&job->outcome), codes[i].status) == 0)
            return codes[i].code;
    }
    return 137;
}

static json_t *
take_string(struct buf *text)
{
    return json_stringn(text->data ? text->data : "", text->len);
}

json_t *
script_stdout(const struct job *job, bool *ret_cut)
{
    const struct outcome *outcome = &job->outcome;
    KG_AUTO_BUF text = {0};
    *ret_cut = text_append_to(&outcome->out, &text) > 0;
    bool printed = text.len > 0;
    for (size_t i = 0; !printed && i < outcome->n_items; i++) {
        const struct outcome_item *item = &outcome->items[i];
        if (item->text && !outcome_has_image(item)) {
            buf_append(&text, item->text, item->text_len);
            buf_append_str(&text, "\n");
        }
    }
    return take_string(&text);
}

json_t *
script_stderr(const struct job *job, bool *ret_cut)
{
    KG_AUTO_BUF text = {0};
    *ret_cut = text_append_to(&job->outcome.err, &text) > 0;
    outcome_append_errors(&job->outcome, &text);
    return take_string(&text);
}

void
script_open(struct job *job, const char *language, enum job_session_kind kind, const char *id,
            bool must_exist, job_ready_fn fn)
{
    struct kg_error err = {0};
    const struct mcp_tools_settings *settings = &job->tools->settings;
    const struct kernelspec *spec = language
                                        ? kernelspecs_find(settings->face->specs, language, &err)
                                        : settings->face->default_spec;
    if (!spec) {
        job_fail(job, &err);
        return;
    }
    const struct job_session want = {
        .kind = kind, .id = id, .must_exist = must_exist, .spec = spec};
    job_start_progress(job);
    job_open_session(job, &want, fn);
}

static void
script_run_in(struct job *job, struct session *session, struct kernel *kernel)
{
    if (job_string(job, "branch"))
        script_run_in_branch(job, session, kernel);
    else
        job_run(job, session, kernel, job_string(job, "code"), job->script.timeout_ms,
                job->script.on_ran);
}

void
script_run(struct job *job, const char *language, enum job_session_kind kind, const char *id,
           bool must_exist, job_fn fn)
{
    struct kg_error err = {0};
    job->script.on_ran = fn;
    if (job_timeout(job, &job->script.timeout_ms, &err) < 0)
        job_fail(job, &err);
    else
        script_open(job, language, kind, id, must_exist, script_run_in);
}

char *
script_file_url(const struct job *job, const char *path)
{
    const char *base = mcp_call_base_url(job->call);
    const struct file_links *links = job->tools->settings.face->links;
    if (!base || !links)
        return NULL;
    KG_AUTO_FREE char *url =
        file_links_make(links, mcp_call_owner(job->call), job->session.id, path);
    return kg_asprintf("%s%s", base, url);
}

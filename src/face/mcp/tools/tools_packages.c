// SPDX-License-Identifier: Apache-2.0
// install_packages.

#include <string.h>

#include "session_packages.h"
#include "tools_priv.h"

static void
install_on_line(const json_t *line, void *arg)
{
    struct job *job = arg;
    const json_t *text = json_object_get(line, "text");
    if (!json_is_string(text))
        return;
    text_add(&job->outcome.out, json_string_value(text), json_string_length(text));
    text_add(&job->outcome.out, "\n", 1);
    job->outcome.newest = OUTCOME_STDOUT;
    job->progress.has_news = true;
}

static void
append_package(struct buf *text, const json_t *package, bool *ret_failed)
{
    const char *name = json_string_value(json_object_get(package, "name"));
    const char *status = json_string_value(json_object_get(package, "status"));
    const char *version = json_string_value(json_object_get(package, "version"));
    const char *message = json_string_value(json_object_get(package, "message"));
    bool failed = !status || strcmp(status, "installed") != 0;
    *ret_failed |= failed;
    buf_printf(text, "%s%s%s: %s%s%s\n", name ? name : "?", version ? " " : "",
               version ? version : "", status ? status : "failed", message ? ": " : "",
               message ? message : "");
}

static void
append_change(struct buf *text, const json_t *change)
{
    buf_printf(text,
               "%s %s takes the place of %s: code that has imported it keeps the old one until the "
               "kernel is restarted\n",
               json_string_value(json_object_get(change, "name")),
               json_string_value(json_object_get(change, "to")),
               json_string_value(json_object_get(change, "from")));
}

static void
install_on_end(const json_t *result, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, result, err);
    if (!job)
        return;
    KG_AUTO_BUF text = {0};
    bool failed = false;
    size_t i;
    json_t *package;
    json_array_foreach(json_object_get(result, "packages"), i, package)
        append_package(&text, package, &failed);
    json_array_foreach(json_object_get(result, "changed"), i, package)
        append_change(&text, package);
    if (failed && !text_is_empty(&job->outcome.out)) {
        buf_append_str(&text, "\n");
        text_append_to(&job->outcome.out, &text);
    }
    json_t *answer = result_of_text(job, text.data ? text.data : "", json_deep_copy(result));
    if (failed)
        json_object_set_new(answer, "isError", json_true());
    job_finish(job, answer);
}

static void
leave(void *work)
{
    session_install_leave(work);
}

static void
install_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    static const struct session_install_events events = {.on_line = install_on_line,
                                                         .on_end = install_on_end};
    struct kg_error err = {0};
    job->cancel_work = leave;
    job->work = session_install_start(session, job_value(job, "packages"), &events, job, &err);
    if (!job->work)
        job_fail(job, &err);
}

void
tool_install_packages(struct job *job)
{
    struct kg_error err = {0};
    if (session_packages_check(job_value(job, "packages"), &err) < 0) {
        job_fail(job, &err);
        return;
    }
    const struct job_session want = {.kind = JOB_SESSION_OWN, .id = job_string(job, "session_id")};
    job_start_progress(job);
    job_open_session(job, &want, install_in);
}

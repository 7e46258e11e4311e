// SPDX-License-Identifier: Apache-2.0
// run_code, run_python_code, run_js_code: code in a session's kernel.

#include "tools_priv.h"

static void
on_ran(struct job *job)
{
    job_finish(job, result_of_run(job));
}

static void
on_session(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)session;
    int64_t timeout_ms;
    struct kg_error err = {0};
    if (job_timeout(job, &timeout_ms, &err) < 0)
        job_fail(job, &err);
    else
        job_run(job, kernel, job_string(job, "code"), timeout_ms, on_ran);
}

static void
run_in(struct job *job, const char *language)
{
    const struct mcp_tools_settings *settings = &job->tools->settings;
    struct kg_error err = {0};
    const struct kernelspec *spec =
        language ? kernelspecs_find(settings->specs, language, &err) : settings->default_spec;
    int64_t timeout_ms;
    if (!spec || job_timeout(job, &timeout_ms, &err) < 0) {
        job_fail(job, &err);
        return;
    }
    const struct job_session want = {
        .kind = JOB_SESSION_OWN, .id = job_string(job, "session_id"), .spec = spec};
    job_start_progress(job);
    job_open_session(job, &want, on_session);
}

void
tool_run_code(struct job *job)
{
    run_in(job, job_string(job, "language"));
}

void
tool_run_python_code(struct job *job)
{
    run_in(job, "python");
}

void
tool_run_js_code(struct job *job)
{
    run_in(job, "javascript");
}

// SPDX-License-Identifier: Apache-2.0
// run_command: a shell command in a session's sandbox.

#include "tools_priv.h"

static void
on_ended(struct job *job)
{
    job_finish(job, result_of_command(job));
}

static void
command_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct sandbox_command_spec spec = {
        .command = job_string(job, "command"),
        .cwd = job_string(job, "cwd"),
        .max_output_bytes = job->tools->settings.face->max_output_bytes,
    };
    struct kg_error err = {0};
    if (job_timeout(job, &spec.timeout_ms, &err) < 0)
        job_fail(job, &err);
    else
        job_run_command(job, session, &spec, on_ended);
}

void
tool_run_command(struct job *job)
{
    const struct job_session want = {.kind = JOB_SESSION_OWN, .id = job_string(job, "session_id")};
    job_start_progress(job);
    job_open_session(job, &want, command_in);
}

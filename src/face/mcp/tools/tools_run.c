// SPDX-License-Identifier: Apache-2.0
// run_code, run_python_code, run_js_code, run_command.

#include "script.h"

// ---- Code: in a session's kernel -------------------------------------------------------------

static void
run_code_on_ran(struct job *job)
{
    job_finish(job, result_of_run(job));
}

static void
run_language(struct job *job, const char *language)
{
    script_run(job, language, JOB_SESSION_OWN, job_string(job, "session_id"), false,
               run_code_on_ran);
}

void
tool_run_code(struct job *job)
{
    run_language(job, job_string(job, "language"));
}

void
tool_run_python_code(struct job *job)
{
    run_language(job, "python");
}

void
tool_run_js_code(struct job *job)
{
    run_language(job, "javascript");
}

// ---- Commands: in a session's sandbox --------------------------------------------------------

static void
run_command_on_ended(struct job *job)
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
        job_run_command(job, session, &spec, run_command_on_ended);
}

void
tool_run_command(struct job *job)
{
    const struct job_session want = {.kind = JOB_SESSION_OWN, .id = job_string(job, "session_id")};
    job_start_progress(job);
    job_open_session(job, &want, command_in);
}

// SPDX-License-Identifier: Apache-2.0
// run_code, run_python_code, run_js_code: code in a session's kernel.

#include "script.h"

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

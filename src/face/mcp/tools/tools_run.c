// SPDX-License-Identifier: Apache-2.0
// run_code, run_python_code, run_js_code, continue_execution, run_command.

#include <stdio.h>

#include "script.h"
#include "tool_list.h"
#include "tool_results.h"

// ---- Code: in a session's kernel -------------------------------------------------------------

static void
run_code_on_ran(struct job *job)
{
    job_finish(job, result_of_run(job));
}

static void
run_language(struct job *job, const char *language)
{
    struct kg_error err = {0};
    const json_t *tools = job_value(job, "tools");
    job->run.with_tools = tools != NULL;
    if (tools)
        job->run.tools = tool_list_new(tools, &err);
    if (tools && !job->run.tools) {
        job_fail(job, &err);
        return;
    }
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

void
tool_continue_execution(struct job *job)
{
    struct kg_error err = {0};
    struct execution *execution =
        executions_find(job->tools->settings.face->executions, job_string(job, "execution_id"),
                        mcp_call_owner(job->call), &err);
    KG_AUTO(tool_results) results =
        execution ? tool_results_new(job_value(job, "results"), &err) : NULL;
    if (!results || execution_give_results(execution, results, &err) < 0) {
        job_fail(job, &err);
        return;
    }
    snprintf(job->session.id, sizeof job->session.id, "%s", execution_session_id(execution));
    job->run.execution = execution_ref(execution);
    job->run.with_tools = true;
    job->run.on_done = run_code_on_ran;
    job_start_progress(job);
    job_read_lines(job);
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

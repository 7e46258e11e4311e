// SPDX-License-Identifier: Apache-2.0
// Runs code and commands for a job, and sends progress notifications.

#include <stdio.h>
#include <string.h>

#include "tools_priv.h"

// Clients give up after a minute of silence, or sooner.
enum { LOOK_MS = 1000, SILENCE_MS = 8 * 1000 };

// ---- Progress -------------------------------------------------------------------------------

// The progress message while nothing is printed.
static const char *
doing(const struct job *job)
{
    if (job->session.open)
        return "starting the session";
    if (job->run.execution && execution_state(job->run.execution) == EXECUTION_QUEUED)
        return "waiting for earlier code";
    return "running";
}

static void
tell(struct job *job, int64_t now_ms)
{
    double seconds = (double)(now_ms - job->started_ms) / 1000;
    const char *line = outcome_newest_line(&job->outcome);
    char silence[64];
    snprintf(silence, sizeof silence, "%s, %.0f s", doing(job), seconds);
    mcp_call_progress(job->call, seconds, 0, *line ? line : silence);
    job->progress.reported_ms = now_ms;
    job->progress.has_news = false;
}

static void
on_progress(void *arg)
{
    struct job *job = arg;
    int64_t now_ms = clock_mono_ms();
    if (job->progress.has_news || now_ms - job->progress.reported_ms >= SILENCE_MS)
        tell(job, now_ms);
    loop_timer_start(job->progress.timer, LOOK_MS);
}

void
job_start_progress(struct job *job)
{
    if (job->progress.timer || !mcp_call_wants_progress(job->call))
        return;
    job->progress.reported_ms = job->started_ms;
    job->progress.timer = loop_timer_new(job->tools->settings.loop, on_progress, job);
    loop_timer_start(job->progress.timer, LOOK_MS);
}

// ---- Code -----------------------------------------------------------------------------------

void
job_run(struct job *job, struct session *session, struct kernel *kernel, const char *text,
        int64_t timeout_ms, job_fn fn)
{
    const struct session_code code = {.code = text,
                                      .timeout_ms = timeout_ms,
                                      .max_image_side = job->tools->settings.max_image_side,
                                      .tools = job->run.tools};
    struct kg_error err = {0};
    job->run.execution = session_execute(session, kernel, &code, &err);
    if (!job->run.execution) {
        job_fail(job, &err);
        return;
    }
    job->run.on_done = fn;
    job_read_lines(job);
}

// ---- Commands -------------------------------------------------------------------------------

static void
job_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct job *job = arg;
    outcome_add_text(&job->outcome, stream == SANDBOX_STDERR ? OUTCOME_STDERR : OUTCOME_STDOUT,
                     text, len);
    job->progress.has_news = true;
}

static void
job_on_command_end(const struct sandbox_command_result *result, const struct kg_error *err,
                   void *arg)
{
    struct job *job = arg;
    job->command.running = NULL;
    if (!result) {
        job_fail(job, err);
        return;
    }
    job->command.result = *result;
    job->run.on_done(job);
}

void
job_run_command(struct job *job, struct session *session, const struct sandbox_command_spec *spec,
                job_fn fn)
{
    static const struct sandbox_command_events events = {.on_output = job_on_output,
                                                         .on_end = job_on_command_end};
    struct kg_error err = {0};
    job->run.on_done = fn;
    job->command.running = session_command_start(session, spec, &events, job, &err);
    if (job->command.running)
        session_command_attend(job->command.running);
    else
        job_fail(job, &err);
}

// SPDX-License-Identifier: Apache-2.0
// A running tool call: its life and its arguments.

#include <math.h>
#include <string.h>

#include "tool_list.h"
#include "tools_priv.h"

static const struct outcome_limits model_limits = {
    .max_text_head = 10 << 10,
    .max_text_tail = 6 << 10,
};

// The client does not wait any more; the answer is discarded.
static void
on_cancel(void *arg)
{
    struct job *job = arg;
    struct kg_error err = {0};
    kg_error_set(&err, KG_INVALID, 0, "the call was cancelled");
    if (job->run.subscription)
        subscription_abandon(KG_STEAL(job->run.subscription));
    job_fail(job, &err);
}

struct job *
job_new(struct mcp_tools *tools, struct mcp_call *call, job_error_fn error_result)
{
    struct job *job = KG_NEW(struct job);
    job->tools = tools;
    job->call = call;
    job->error_result = error_result;
    job->args = mcp_call_arguments(call);
    job->started_ms = clock_mono_ms();
    struct outcome_limits limits = model_limits;
    limits.max_image_bytes = tools->settings.face->max_output_bytes;
    outcome_init(&job->outcome, &limits);
    STAILQ_INIT(&job->run.large_lines);
    TAILQ_INSERT_TAIL(&tools->jobs, job, link);
    mcp_call_on_cancel(call, on_cancel, job);
    return job;
}

void
job_free(struct job *job)
{
    if (!job)
        return;
    TAILQ_REMOVE(&job->tools->jobs, job, link);
    if (job->session.open)
        session_open_cancel(job->session.open);
    if (job->command.running)
        session_command_cancel(job->command.running);
    if (job->work)
        job->cancel_work(job->work);
    job_drop_lines(job);
    subscription_free(job->run.subscription);
    execution_unref(job->run.execution);
    tool_list_unref(job->run.tools);
    json_decref(job->run.calls);
    outcome_fini(&job->outcome);
    buf_fini(&job->file.data);
    free(job->file.mime);
    buf_fini(&job->advice);
    json_decref(job->list.gathered);
    json_decref(job->list.waiting);
    loop_timer_free(job->run.more_lines);
    loop_timer_free(job->run.quiet);
    loop_timer_free(job->run.late);
    loop_timer_free(job->deadline);
    loop_timer_free(job->progress.timer);
    free(job);
}

void
job_finish(struct job *job, json_t *result)
{
    struct mcp_call *call = job->call;
    job_free(job);
    mcp_call_finish(call, result);
}

void
job_fail(struct job *job, const struct kg_error *err)
{
    job_finish(job, job->error_result(job, err));
}

struct job *
job_after_work(struct job *job, const void *answer, const struct kg_error *err)
{
    job->work = NULL;
    if (answer)
        return job;
    struct kg_error none = {0};
    if (!err)
        kg_error_set(&none, KG_INTERNAL, 0, "the tool has no answer");
    job_fail(job, err ? err : &none);
    return NULL;
}

// ---- Arguments ------------------------------------------------------------------------------

const json_t *
job_value(const struct job *job, const char *name)
{
    const json_t *value = json_object_get(job->args, name);
    return json_is_null(value) ? NULL : value;
}

const char *
job_string(const struct job *job, const char *name)
{
    return json_string_value(job_value(job, name));
}

double
job_number(const struct job *job, const char *name, double fallback)
{
    const json_t *value = job_value(job, name);
    return value ? json_number_value(value) : fallback;
}

bool
job_bool(const struct job *job, const char *name, bool fallback)
{
    const json_t *value = job_value(job, name);
    return value ? json_is_true(value) : fallback;
}

int
job_timeout(const struct job *job, int64_t *ret_ms, struct kg_error *err)
{
    const struct mcp_tools_settings *settings = &job->tools->settings;
    double max_s = (double)settings->face->max_timeout_ms / 1000;
    double s = job_number(job, "timeout", (double)settings->face->default_timeout_ms / 1000);
    if (!(s > 0) || s > max_s)
        return kg_error_set(
            err, KG_INVALID, 0,
            "timeout must be a number of seconds above 0, at most %.15g (setting max-timeout)",
            max_s);
    *ret_ms = (int64_t)ceil(s * 1000);
    return 0;
}

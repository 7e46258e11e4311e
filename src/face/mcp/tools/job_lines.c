// SPDX-License-Identifier: Apache-2.0
// Reads the lines of an execution into a job's outcome, small ones on the loop, large ones on a
// worker.

#include "tools_priv.h"

enum {
    TURN_BYTES = 256 << 10, // of small lines, per iteration of the loop
    QUIET_MS = 50,
    LATE_MS = 1000, // code that goes on printing is not waited for any longer
};

// A large line of the log, not copied. A worker reads it, and has the job's outcome meanwhile. Then
// the line is kept for its image, or released.
struct large_line {
    STAILQ_ENTRY(large_line) link; // in job->run.large_lines
    struct job *job;               // not for the worker
    struct loop_work *work;
    struct outcome outcome;
    const char *text;
    size_t len;
    void *held;
};

static void
large_line_run(void *arg)
{
    struct large_line *line = arg;
    outcome_add_held_line(&line->outcome, line->text, line->len, KG_STEAL(line->held));
}

static void
large_line_free(void *arg)
{
    struct large_line *line = arg;
    if (line->held)
        subscription_release(line->held);
    outcome_fini(&line->outcome);
    free(line);
}

static void
large_line_cancel(void *arg)
{
    struct large_line *line = arg;
    loop_work_cancel(line->work, large_line_free);
}

static void job_on_lines(void *arg);

static void
large_line_done(void *arg)
{
    struct large_line *line = arg;
    struct job *job = line->job;
    job->work = NULL;
    job->outcome = line->outcome;
    free(line);
    outcome_release(&job->outcome);
    job_on_lines(job);
}

static void
start_large_line(struct job *job)
{
    struct large_line *line = STAILQ_FIRST(&job->run.large_lines);
    STAILQ_REMOVE_HEAD(&job->run.large_lines, link);
    job->run.large_bytes -= line->len;
    line->outcome = job->outcome;
    job->outcome = (struct outcome){0};
    job->work = line;
    job->cancel_work = large_line_cancel;
    line->work = loop_work_start(job->tools->settings.loop, loop_lane_of(mcp_call_owner(job->call)),
                                 large_line_run, large_line_done, line);
}

// Queues the newest line for a worker, without a copy. False: it cannot be held.
static bool
hold_large_line(struct job *job, const char *text, size_t len)
{
    void *held = subscription_hold(job->run.subscription);
    if (!held)
        return false;
    struct large_line *line = KG_NEW(struct large_line);
    line->job = job;
    line->text = text;
    line->len = len;
    line->held = held;
    STAILQ_INSERT_TAIL(&job->run.large_lines, line, link);
    job->run.large_bytes += len;
    return true;
}

// While a large line waits, only further large lines are taken, so that the log does not drop them,
// and not more than an answer can have.
static bool
may_take(const struct job *job)
{
    if (!job->work && STAILQ_EMPTY(&job->run.large_lines))
        return true;
    size_t len = subscription_next_len(job->run.subscription);
    return len > OUTCOME_LARGE_LINE &&
           job->run.large_bytes + len <= job->tools->settings.face->max_output_bytes;
}

static void
take_lines(struct job *job)
{
    size_t len, bytes = 0;
    while (bytes < TURN_BYTES && may_take(job)) {
        const char *line = subscription_next(job->run.subscription, &len);
        if (!line)
            return;
        job->progress.has_news = true;
        if (len > OUTCOME_LARGE_LINE && hold_large_line(job, line, len))
            continue;
        bytes += len;
        outcome_add_line(&job->outcome, line, len);
    }
    if (!job->work && !STAILQ_EMPTY(&job->run.large_lines))
        start_large_line(job);
    else if (!job->work)
        loop_timer_start(job->run.more_lines, 0);
}

static void
watch_calls(struct job *job)
{
    if (!job->run.quiet)
        return;
    loop_timer_start(job->run.quiet, QUIET_MS);
    if (!loop_timer_active(job->run.late))
        loop_timer_start(job->run.late, LATE_MS);
}

static void
job_on_lines(void *arg)
{
    struct job *job = arg;
    if (loop_timer_active(job->run.more_lines))
        return;
    take_lines(job);
    if (job->work || !subscription_finished(job->run.subscription)) {
        watch_calls(job);
        return;
    }
    loop_timer_stop(job->run.more_lines);
    loop_timer_free(KG_STEAL(job->run.quiet));
    loop_timer_free(KG_STEAL(job->run.late));
    subscription_free(KG_STEAL(job->run.subscription));
    if (json_is_true(json_object_get(job->outcome.done, "kernel_restarted")))
        mcp_call_log(job->call, MCP_LOG_WARNING, JOB_LOGGER,
                     json_sprintf("the kernel of session %s was restarted", job->session.id));
    job->run.on_done(job);
}

// If the code waits for tools, the answer says so.
static void
answer_with_calls(struct job *job)
{
    if (job->work)
        return; // job_on_lines() follows
    json_auto_t *calls = execution_waiting_calls(job->run.execution);
    size_t i;
    json_t *call;
    if (json_array_size(calls) == 0)
        return;
    json_array_foreach(calls, i, call)
        json_object_del(call, "seq");
    loop_timer_stop(job->run.more_lines);
    loop_timer_stop(job->run.quiet);
    loop_timer_stop(job->run.late);
    job->run.calls = KG_STEAL(calls);
    execution_set_gathered_seq(job->run.execution, subscription_seq(job->run.subscription));
    subscription_free(KG_STEAL(job->run.subscription));
    job->run.on_done(job);
}

// Nothing has come for a while.
static void
job_on_quiet(void *arg)
{
    struct job *job = arg;
    if (!loop_timer_active(job->run.more_lines))
        answer_with_calls(job);
}

static void
job_on_late(void *arg)
{
    answer_with_calls(arg);
}

void
job_read_lines(struct job *job)
{
    int64_t after = execution_gathered_seq(job->run.execution);
    job->outcome.release = subscription_release;
    if (execution_tools(job->run.execution)) {
        job->run.quiet = loop_timer_new(job->tools->settings.loop, job_on_quiet, job);
        job->run.late = loop_timer_new(job->tools->settings.loop, job_on_late, job);
        watch_calls(job);
    }
    job->run.subscription = execution_subscribe(job->run.execution, after, job_on_lines, job);
    if (!job->run.more_lines)
        job->run.more_lines = loop_timer_new(job->tools->settings.loop, job_on_lines, job);
    loop_timer_start(job->run.more_lines, 0); // for those that are there already
}

void
job_drop_lines(struct job *job)
{
    for (struct large_line *line; (line = STAILQ_FIRST(&job->run.large_lines));) {
        STAILQ_REMOVE_HEAD(&job->run.large_lines, link);
        large_line_free(line);
    }
}

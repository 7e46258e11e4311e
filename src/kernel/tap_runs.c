// SPDX-License-Identifier: Apache-2.0
// Logs what a kernel says about the execute_requests of taps.
//
// Such an execution waits in the kernel, so it begins with the first message about it, and has
// neither a timeout nor a grace. It has ended when its reply and its idle status have come, a
// second after idle without a reply, and, of both, when an answer to a later request has come in
// its place: kernels answer in order on each channel.

#include "tap_runs_priv.h"

#include <string.h>

enum {
    SETTLE_MS = 1000,
    MAX_SETTLES = 30, // while a reply is on its way
    MAX_RUNS = 512,   // of one kernel; twice as many as may be unanswered
};

struct tap_run {
    TAILQ_ENTRY(tap_run) link;
    struct tap_runs *runs;
    struct execution *execution;
    char *header_session;
    char *msg_id;
    bool replied;
    bool idle;
    bool is_unwanted; // to be interrupted when it begins
    enum execution_status status;
    struct loop_timer *settle; // from idle without a reply; NULL before
    int n_settles;
};

// ---- The end --------------------------------------------------------------------------------

static void
run_end(struct tap_run *run, enum execution_status status, bool kernel_restarted)
{
    KG_AUTO(execution) execution = run->execution;
    TAILQ_REMOVE(&run->runs->list, run, link);
    run->runs->n--;
    loop_timer_free(run->settle);
    free(run->header_session);
    free(run->msg_id);
    free(run);
    execution->on_interrupt = NULL;
    execution_finish(execution, status, kernel_restarted);
}

static void
run_end_normally(struct tap_run *run)
{
    bool stopped = run->execution->state == EXECUTION_INTERRUPTING;
    run_end(run, stopped ? EXECUTION_INTERRUPTED : run->status, false);
}

static void
run_on_settle(void *arg)
{
    struct tap_run *run = arg;
    bool receiving = jupyter_channels_is_receiving(run->runs->process->channels, JUPYTER_SHELL);
    if (receiving && ++run->n_settles < MAX_SETTLES)
        loop_timer_start(run->settle, SETTLE_MS); // a large reply is on its way
    else
        run_end_normally(run);
}

static void
run_settle(struct tap_run *run)
{
    if (run->replied && run->idle) {
        run_end_normally(run);
    } else if (run->idle && !run->settle) {
        run->settle = loop_timer_new(run->runs->loop, run_on_settle, run);
        loop_timer_start(run->settle, SETTLE_MS);
    }
}

void
tap_runs_end(struct tap_runs *runs, enum execution_status status, const char *evalue,
             bool kernel_restarted)
{
    for (struct tap_run *run; (run = TAILQ_FIRST(&runs->list));) {
        if (evalue)
            output_append_error(&run->execution->log, "KernelDied", evalue, NULL);
        run_end(run, status, kernel_restarted);
    }
}

// ---- Interrupts -----------------------------------------------------------------------------

// Once one of the answers has come, an interrupt would hit what runs next.
static bool
is_answered(const struct tap_run *run)
{
    return run->replied || run->idle;
}

static void
mark_interrupted(struct tap_run *run)
{
    if (run->execution->state == EXECUTION_RUNNING && !is_answered(run))
        execution_set_state(run->execution, EXECUTION_INTERRUPTING);
}

static void
run_interrupt(struct tap_run *run)
{
    mark_interrupted(run);
    if (!is_answered(run))
        process_interrupt(run->runs->process);
}

static void
run_on_interrupt(struct execution *execution, void *arg)
{
    struct tap_run *run = arg;
    if (execution->state == EXECUTION_QUEUED)
        run->is_unwanted = true;
    else
        run_interrupt(run);
}

void
tap_runs_on_interrupt(struct tap_runs *runs)
{
    struct tap_run *run;
    TAILQ_FOREACH(run, &runs->list, link)
        mark_interrupted(run);
}

// ---- What the kernel says -------------------------------------------------------------------

static struct tap_run *
find(const struct tap_runs *runs, const struct jupyter_message *message)
{
    struct tap_run *run;
    TAILQ_FOREACH(run, &runs->list, link) {
        if (strcmp(run->msg_id, message->parent_id) == 0 &&
            strcmp(run->header_session, message->parent_session) == 0)
            break;
    }
    return run;
}

static void
run_begin(struct tap_run *run)
{
    if (run->execution->state != EXECUTION_QUEUED)
        return;
    run->execution->started_us = clock_mono_us();
    execution_set_state(run->execution, EXECUTION_RUNNING);
    if (run->is_unwanted)
        run_interrupt(run);
}

static const char *
text_of(const struct jupyter_message *message, const char *key)
{
    const char *text = json_string_value(json_object_get(message->content, key));
    return text ? text : "";
}

// An aborted request has not run: the kernel has skipped it after an error in an earlier one.
static enum execution_status
status_of(const struct jupyter_message *reply)
{
    const char *status = text_of(reply, "status");
    if (strcmp(status, "aborted") == 0)
        return EXECUTION_INTERRUPTED;
    return strcmp(status, "ok") == 0 ? EXECUTION_OK : EXECUTION_ERROR;
}

static void
on_reply(struct tap_run *run, const struct jupyter_message *reply)
{
    json_int_t count = json_integer_value(json_object_get(reply->content, "execution_count"));
    if (count > 0)
        run->execution->count = count;
    if (reply->cut_bytes == 0) // else it is unknown; an `error` message sets it
        run->status = status_of(reply);
    run->replied = true;
}

static void
on_output(struct tap_run *run, const struct jupyter_message *message)
{
    if (strcmp(message->msg_type, "status") == 0)
        run->idle |= strcmp(text_of(message, "execution_state"), "idle") == 0;
    else if (strcmp(message->msg_type, "error") == 0 && !run->replied)
        run->status = EXECUTION_ERROR; // until a reply says otherwise
}

static void
settle_earlier(struct tap_run *run, enum jupyter_channel channel)
{
    struct tap_run *next;
    for (struct tap_run *earlier = TAILQ_FIRST(&run->runs->list); earlier != run; earlier = next) {
        next = TAILQ_NEXT(earlier, link);
        *(channel == JUPYTER_SHELL ? &earlier->replied : &earlier->idle) = true;
        run_settle(earlier);
    }
}

void
tap_runs_on_message(struct tap_runs *runs, enum jupyter_channel channel,
                    struct jupyter_message *message)
{
    bool is_reply = channel == JUPYTER_SHELL && strcmp(message->msg_type, "execute_reply") == 0;
    struct tap_run *run = is_reply || channel == JUPYTER_IOPUB ? find(runs, message) : NULL;
    if (!run)
        return;
    settle_earlier(run, channel);
    run_begin(run);
    if (is_reply)
        on_reply(run, message);
    else
        on_output(run, message);
    execution_take_lines(run->execution, message);
    run_settle(run);
}

// ---- The start ------------------------------------------------------------------------------

void
tap_runs_init(struct tap_runs *runs, const struct kernel_context *context,
              struct kernel_process *process)
{
    runs->loop = context->loop;
    runs->executions = context->executions;
    runs->process = process;
    TAILQ_INIT(&runs->list);
}

void
tap_runs_add(struct tap_runs *runs, const struct tap_run_request *request)
{
    const struct execution_request execution = {
        .owner = request->owner,
        .session_id = request->session_id,
        .code = "", // the client's message has it
        .keep_running = true,
    };
    if (runs->n == MAX_RUNS)
        run_end_normally(TAILQ_FIRST(&runs->list));
    struct tap_run *run = KG_NEW(struct tap_run);
    run->runs = runs;
    run->header_session = kg_strdup(request->header_session);
    run->msg_id = kg_strdup(request->msg_id);
    run->execution = execution_new(runs->executions, &execution);
    run->execution->kernel = kg_strdup(runs->process->spec->name);
    run->execution->msg_id = kg_strdup(request->msg_id);
    output_log_set_spare(&run->execution->log); // the client gets its output in any case
    run->execution->on_interrupt = run_on_interrupt;
    run->execution->on_interrupt_arg = run;
    execution_release_request(run->execution);
    TAILQ_INSERT_TAIL(&runs->list, run, link);
    runs->n++;
}

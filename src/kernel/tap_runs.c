// SPDX-License-Identifier: Apache-2.0
// Logs what a kernel says about the execute_requests of taps.
//
// Such an execution waits in the kernel, so it begins with the first message about it, and has
// neither a timeout nor a grace. It has ended when its reply and its idle status have come, and, of
// both, when an answer to a later request has come in its place: kernels answer in order on each
// channel. A second after idle without a reply, the gateway itself sends such a later request.

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
    char *subshell; // JEP 91; NULL: the main shell
    char *header;
    struct cell cell;
    bool is_past_reply;        // an answer to a later request has come on shell
    bool is_past_idle;         // on iopub
    bool is_unwanted;          // to be interrupted when it begins
    struct loop_timer *settle; // from idle without a reply; NULL before
    bool is_probed;
    char probe_id[JUPYTER_MSG_ID_SIZE]; // process_probe()
    int n_settles;
};

// ---- The end --------------------------------------------------------------------------------

static void
run_end(struct tap_run *run, enum cell_end end, const char *ename, const char *evalue,
        bool kernel_restarted)
{
    KG_AUTO(execution) execution = run->execution;
    TAILQ_REMOVE(&run->runs->list, run, link);
    run->runs->n--;
    execution->on_interrupt = NULL;
    enum execution_status status = cell_end(&run->cell, execution, end, ename, evalue);
    loop_timer_free(run->settle);
    free(run->header_session);
    free(run->msg_id);
    free(run->subshell);
    free(run->header);
    free(run);
    execution_finish(execution, status, kernel_restarted);
}

// The client waits for its answers, as this record does.
static void
answer_client(const struct tap_run *run, const char *status, const char *ename, const char *evalue)
{
    const struct tap_answer answer = {
        .channel = JUPYTER_SHELL,
        .type = "execute_request",
        .session = run->header_session,
        .header = run->header,
        .status = status,
        .ename = ename,
        .evalue = evalue,
        .needs_error = run->cell.reply == CELL_NO_REPLY && !run->cell.published,
        .needs_reply = run->cell.reply == CELL_NO_REPLY,
        .needs_idle = !run->cell.idle,
    };
    if (answer.needs_reply || answer.needs_idle)
        run->runs->answer(&answer, run->runs->arg);
}

static void
run_end_normally(struct tap_run *run)
{
    bool answered = run->cell.reply != CELL_NO_REPLY;
    if (run->execution->state == EXECUTION_INTERRUPTING)
        answer_client(run, "error", "KeyboardInterrupt", "");
    else
        answer_client(run, "error", "KernelError", "the kernel did not say how the code ended");
    run_end(run, answered ? CELL_ANSWERED : CELL_UNANSWERED, NULL, NULL, false);
}

// The main shell's answers say nothing of a subshell's: that one only gets the same time.
static void
run_probe(struct tap_run *run)
{
    run->is_probed = true;
    if (run->subshell || process_probe(run->runs->process, run->probe_id) == 0)
        loop_timer_start(run->settle, PROBE_MS);
    else
        run_end_normally(run);
}

static void
run_on_settle(void *arg)
{
    struct tap_run *run = arg;
    bool receiving = jupyter_channels_is_receiving(run->runs->process->channels, JUPYTER_SHELL);
    if (receiving && ++run->n_settles < MAX_SETTLES)
        loop_timer_start(run->settle, SETTLE_MS); // a large reply is on its way
    else if (!run->is_probed)
        run_probe(run);
    else
        run_end_normally(run);
}

static void
run_settle(struct tap_run *run)
{
    bool is_idle = run->cell.idle || run->is_past_idle;
    if (is_idle && (run->cell.reply != CELL_NO_REPLY || run->is_past_reply)) {
        run_end_normally(run);
    } else if (is_idle && !run->settle) {
        run->settle = loop_timer_new(run->runs->loop, run_on_settle, run);
        loop_timer_start(run->settle, SETTLE_MS);
    }
}

void
tap_runs_end(struct tap_runs *runs, enum cell_end end, const struct process_end *why,
             bool kernel_restarted)
{
    for (struct tap_run *run; (run = TAILQ_FIRST(&runs->list));) {
        run->cell.exit_code = why ? why->exit_code : CELL_NO_EXIT;
        if (why)
            answer_client(run, "error", why->ename, why->evalue);
        else
            answer_client(run, "aborted", "KernelRestarted", "the kernel was restarted");
        run_end(run, end, why ? why->ename : NULL, why ? why->evalue : NULL, kernel_restarted);
    }
}

// ---- Interrupts -----------------------------------------------------------------------------

static void
mark_interrupted(struct tap_run *run)
{
    if (run->execution->state != EXECUTION_RUNNING || cell_is_answered(&run->cell) || run->subshell)
        return;
    run->execution->stop_status = EXECUTION_INTERRUPTED;
    execution_set_state(run->execution, EXECUTION_INTERRUPTING);
}

static void
run_interrupt(struct tap_run *run)
{
    mark_interrupted(run);
    if (!cell_is_answered(&run->cell))
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
tap_runs_find(const struct tap_runs *runs, const struct jupyter_message *message)
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

static bool
have_same_subshell(const struct tap_run *a, const struct tap_run *b)
{
    return a->subshell && b->subshell ? strcmp(a->subshell, b->subshell) == 0
                                      : a->subshell == b->subshell;
}

// A subshell answers its requests in their order, on each channel.
static void
settle_earlier(struct tap_run *run, enum jupyter_channel channel)
{
    struct tap_run *next;
    for (struct tap_run *earlier = TAILQ_FIRST(&run->runs->list); earlier != run; earlier = next) {
        next = TAILQ_NEXT(earlier, link);
        if (!have_same_subshell(earlier, run))
            continue;
        *(channel == JUPYTER_SHELL ? &earlier->is_past_reply : &earlier->is_past_idle) = true;
        run_settle(earlier);
    }
}

void
tap_runs_on_message(struct tap_runs *runs, enum jupyter_channel channel,
                    struct jupyter_message *message)
{
    bool is_reply = channel == JUPYTER_SHELL && strcmp(message->msg_type, "execute_reply") == 0;
    struct tap_run *run =
        is_reply || channel == JUPYTER_IOPUB ? tap_runs_find(runs, message) : NULL;
    if (!run)
        return;
    settle_earlier(run, channel);
    run_begin(run);
    cell_take(&run->cell, run->execution, message);
    run_settle(run);
}

void
tap_runs_on_own_message(struct tap_runs *runs, enum jupyter_channel channel,
                        const struct jupyter_message *message)
{
    struct tap_run *run;
    if (channel != JUPYTER_SHELL)
        return;
    TAILQ_FOREACH(run, &runs->list, link) {
        if (run->is_probed && strcmp(run->probe_id, message->parent_id) == 0)
            break;
    }
    if (!run)
        return;
    run->is_past_reply = true;
    run_settle(run);
}

// ---- The start ------------------------------------------------------------------------------

void
tap_runs_init(struct tap_runs *runs, const struct kernel_context *context,
              struct kernel_process *process, tap_answer_fn answer, void *arg)
{
    runs->answer = answer;
    runs->arg = arg;
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
    run->subshell = request->subshell ? kg_strdup(request->subshell) : NULL;
    run->header = kg_strdup(request->header);
    run->cell = CELL_INIT;
    run->execution = execution_new(runs->executions, &execution);
    run->execution->kernel = kg_strdup(runs->process->name);
    run->execution->msg_id = kg_strdup(request->msg_id);
    output_log_set_spare(&run->execution->log); // the client gets its output in any case
    if (!run->subshell) {                       // a signal does not reach the threads of subshells
        run->execution->on_interrupt = run_on_interrupt;
        run->execution->on_interrupt_arg = run;
    }
    execution_release_request(run->execution);
    TAILQ_INSERT_TAIL(&runs->list, run, link);
    runs->n++;
}

// SPDX-License-Identifier: Apache-2.0
// Runs executions on a process that is up: the queue, the requests of one execution, how it is
// stopped, and its end.
//
// An execution has ended when both its execute_reply and the idle status for it have come.
// ipykernel can send idle and never a reply, so a second after idle it ends with what is known.

#include "runner_priv.h"

#include <assert.h>
#include <string.h>

#include "metrics.h"
#include "tool_calls_priv.h"

enum { SETTLE_MS = 1000, EXIT_MS = 2000, WARM_UP_MS = 30 * 1000, GRACE_MS = 3000 };
// A kernel that began less than EARLY_MS ago may have missed a signal, so another one follows.
enum { EARLY_MS = 200, AGAIN_MS = 1000 };
// Code or values above this are made into a request on a worker.
enum { LARGE_REQUEST = 64 * 1024 };
enum { MAX_ABORTED = 16 }; // requests of one execution

// Whether the process that an execution ran on is still there when it ends.
enum fate { FATE_STAYS, FATE_REPLACED, FATE_LOST };

static void run_finish(struct kernel_runner *runner, enum cell_end end, enum fate fate);
static void run_next(void *arg);

// ---- Ends by force --------------------------------------------------------------------------

// The process has to be replaced; the running execution ends by `end` when it is gone.
static void
run_kill(struct kernel_runner *runner, enum cell_end end)
{
    struct execution *execution = runner->run.execution;
    if (!execution)
        return;
    runner->run.end = end;
    if (execution->state != EXECUTION_KILLING)
        execution_set_state(execution, EXECUTION_KILLING);
}

static void
run_forget_reason(struct run *run)
{
    free(KG_STEAL(run->ename));
    free(KG_STEAL(run->evalue));
}

static void
run_keep_reason(struct run *run, const char *ename, const char *evalue)
{
    run_forget_reason(run);
    run->ename = kg_strdup(ename);
    run->evalue = kg_strdup(evalue);
}

// The process cannot be used any longer.
static void
runner_fail(struct kernel_runner *runner, const char *ename, const char *evalue)
{
    if (runner->run.execution)
        run_keep_reason(&runner->run, ename, evalue);
    run_kill(runner, CELL_DIED);
    process_replace(runner->process);
}

static const char *
string_of(const json_t *object, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : fallback;
}

// ---- Requests -------------------------------------------------------------------------------

// No request of a tap may get between those of an execution, or come before the startup code.
static void
update_hold(struct kernel_runner *runner)
{
    const struct run *run = &runner->run;
    bool sets_up = run->execution && run->step < RUN_CODE;
    bool needs_startup = runner->startup && !runner->started_up;
    hub_hold(runner->hub, sets_up || needs_startup);
}

// Takes the request.
static void
send_request(struct kernel_runner *runner, struct request_code *request)
{
    struct kg_error err = {0};
    int sent;
    runner->run.begun = runner->run.heard = false;
    runner->run.probe_id[0] = '\0';
    loop_timer_stop(runner->run.settle); // of the request before
    request_code_free(runner->run.copy);
    runner->run.copy = runner->hub->was_used ? request_code_copy(request) : NULL;
    if (strlen(request->text) > LARGE_REQUEST) {
        const struct jupyter_content content = {request_code_make, request_code_free, request};
        sent = process_send_large(runner->process, "execute_request", &content, runner->run.msg_id,
                                  &err);
    } else {
        sent = process_send(runner->process, "execute_request", request_code_make(request),
                            runner->run.msg_id, &err);
        request_code_free(request);
    }
    if (sent < 0 && runner->process->state != PROCESS_ENDING) { // else its end says why
        metric_add(METRIC_KERNEL_DEATHS, 1, "lost");
        runner_fail(runner, "KernelDied", err.message);
    }
}

static struct request_code *
code_request(const struct kernel_runner *runner, struct execution *execution)
{
    struct request_code *request = request_code_new(NULL, KG_STEAL(execution->code), false);
    request->max_image_side = execution->max_image_side;
    request->allow_stdin = execution->allow_stdin && process_has_stdin(runner->process);
    return request;
}

// The request of a step, out of the execution; NULL: this execution has nothing to do in it.
static struct request_code *
take_request(const struct kernel_runner *runner)
{
    const struct kernelspec *spec = runner->spec;
    struct execution *execution = runner->run.execution;
    switch (runner->run.step) {
    case RUN_STARTUP:
        return runner->startup && !runner->started_up
                   ? request_code_new(NULL, kg_strdup(runner->startup), true)
                   : NULL;
    case RUN_VARIABLES:
        return execution->variables
                   ? request_code_new(spec->variables_code, KG_STEAL(execution->variables), true)
                   : NULL;
    case RUN_ENV:
        return execution->env ? request_code_new(spec->env_code, kg_strdup(execution->env), true)
                              : NULL;
    case RUN_STDIN:
        return NULL;
    case RUN_CODE:
        return code_request(runner, execution);
    }
    return NULL;
}

// A kernel drops what it asks for while the channel is not linked, so the link comes first.
static bool
waits_for_stdin(const struct kernel_runner *runner)
{
    return runner->run.step == RUN_STDIN && runner->run.execution->allow_stdin &&
           process_link_stdin(runner->process);
}

// Sends the request of the current step, or of the next one that has something to do.
static void
send_step(struct kernel_runner *runner)
{
    struct run *run = &runner->run;
    struct request_code *request = NULL;
    while (!waits_for_stdin(runner) && !(request = take_request(runner)))
        run->step++;
    if (!request) { // goes on in runner_on_stdin_settled()
        update_hold(runner);
        return;
    }
    // Before it is sent: sending may fail, and end the execution.
    if (run->step == RUN_CODE)
        execution_release_request(run->execution);
    send_request(runner, request);
    update_hold(runner);
}

// After an error in a client's code a kernel may abort what it has queued ("stop_on_error" in the
// protocol): such a request has not run, and is sent again. Returns false where the reply does not
// say so.
static bool
send_again_if_aborted(struct kernel_runner *runner, const json_t *content)
{
    struct run *run = &runner->run;
    if (strcmp(string_of(content, "status", ""), "aborted") != 0 || !run->copy ||
        run->execution->state != EXECUTION_RUNNING || run->n_aborted++ == MAX_ABORTED)
        return false;
    loop_timer_stop(run->settle);
    cell_fini(&run->cell);
    run_files_end(&runner->files); // the answer was about code that has not run
    send_request(runner, KG_STEAL(run->copy));
    return true;
}

// ---- What the kernel answers ----------------------------------------------------------------

void *
runner_shape(enum jupyter_channel channel, struct jupyter_message *message)
{
    struct output_lines *lines = channel == JUPYTER_CONTROL ? NULL : output_lines_of(message);
    // Only the lines of an output are used: the rest need not be kept.
    if (lines && channel == JUPYTER_IOPUB) {
        json_decref(KG_STEAL(message->structured));
        json_object_clear(message->content);
    }
    return lines;
}

void
runner_shaped_free(void *shaped)
{
    output_lines_free(shaped);
}

static void
on_code_reply(struct kernel_runner *runner, struct jupyter_message *message)
{
    struct run *run = &runner->run;
    if (send_again_if_aborted(runner, message->content))
        return;
    cell_take(&run->cell, run->execution, message);
    if (run->execution->count > 0)
        runner->execution_count = run->execution->count;
    if (run->cell.exits) {
        loop_timer_start(run->settle, EXIT_MS);
        return;
    }
    run_files_ask(&runner->files, run->execution);
    if (run->cell.idle)
        run_finish(runner, CELL_ANSWERED, FATE_STAYS);
}

static bool
is_status(const struct jupyter_message *message, const char *state)
{
    return strcmp(message->msg_type, "status") == 0 &&
           strcmp(string_of(message->content, "execution_state", ""), state) == 0;
}

// The answer to a silent request; NULL: none has come.
static void
on_setup_reply(struct kernel_runner *runner, const json_t *content)
{
    struct run *run = &runner->run;
    if (send_again_if_aborted(runner, content))
        return;
    if (strcmp(string_of(content, "status", "error"), "ok") == 0) {
        if (run->execution->state == EXECUTION_INTERRUPTING) {
            run_finish(runner, CELL_REMOVED, FATE_STAYS); // nothing would interrupt the code
            return;
        }
        loop_timer_stop(run->settle);
        runner->started_up = true;
        run->step++;
        send_step(runner);
        return;
    }
    cell_fail(&run->cell, string_of(content, "ename", "SetupError"),
              string_of(content, "evalue",
                        "the setup before the code (startup, folder, variables or env) failed"),
              json_object_get(content, "traceback"));
    run_finish(runner, CELL_ANSWERED, FATE_STAYS);
}

static void
runner_on_output(struct kernel_runner *runner, struct jupyter_message *message)
{
    struct run *run = &runner->run;
    bool was_idle = run->cell.idle;
    run->heard |= strcmp(message->msg_type, "status") != 0;
    cell_take(&run->cell, run->execution, message);
    if (was_idle || !run->cell.idle || run->cell.exits)
        return;
    run_files_ask(&runner->files, run->execution);
    if (run->cell.reply != CELL_NO_REPLY)
        run_finish(runner, CELL_ANSWERED, FATE_STAYS);
    else
        loop_timer_start(run->settle, SETTLE_MS);
}

static int
runner_on_execution_input(struct execution *execution, const char *value, void *arg,
                          struct kg_error *err)
{
    struct kernel_runner *runner = arg;
    (void)execution;
    return process_send_input(runner->process, value, err);
}

static void
run_on_stdin(struct kernel_runner *runner, const struct jupyter_message *message)
{
    struct execution *execution = runner->run.execution;
    if (strcmp(message->msg_type, "input_request") != 0 || execution->state != EXECUTION_RUNNING)
        return;
    execution->on_input = runner_on_execution_input;
    execution->on_input_arg = runner;
    execution_ask_input(execution, string_of(message->content, "prompt", ""),
                        json_is_true(json_object_get(message->content, "password")));
}

// The link is there, or there will be none.
void
runner_on_stdin_settled(struct kernel_runner *runner)
{
    const struct run *run = &runner->run;
    if (!run->execution || run->step != RUN_STDIN || runner->process->state != PROCESS_UP)
        return;
    if (run->execution->state == EXECUTION_INTERRUPTING)
        run_finish(runner, CELL_REMOVED, FATE_STAYS);
    else
        send_step(runner);
}

static void
on_warm_reply(struct kernel_runner *runner)
{
    runner->warmup_id[0] = '\0';
    loop_timer_stop(runner->warming);
    loop_timer_start(runner->next, 0);
    runner->events->on_warm(runner->arg);
}

static void
end_asking(struct kernel_runner *runner, const json_t *content, const char *failure)
{
    if (runner->ask_id[0] == '\0')
        return;
    runner->ask_id[0] = '\0';
    loop_timer_stop(runner->asking);
    loop_timer_start(runner->next, 0);
    runner->events->on_asked(content, failure, runner->arg);
}

static void
runner_on_asking_too_long(void *arg)
{
    struct kernel_runner *runner = arg;
    process_interrupt(runner->process); // what it does for this should not go on
    end_asking(runner, NULL, "the kernel did not answer in time");
}

// Failed or not, it has run: what a tap sends then shows the kernel's own errors.
static void
on_startup_reply(struct kernel_runner *runner, const json_t *content)
{
    if (strcmp(string_of(content, "status", "error"), "ok") != 0)
        log_warning("a kernel's startup code failed", LOG_STR("kernel", runner->process->name));
    runner->startup_id[0] = '\0';
    runner->started_up = true;
    loop_timer_start(runner->next, 0);
    update_hold(runner);
}

// Between its busy status and the code, ipykernel still ignores signals.
static void
run_interrupt(struct kernel_runner *runner)
{
    struct run *run = &runner->run;
    process_interrupt(runner->process);
    if (!run->heard && clock_mono_ms() - run->begun_ms < EARLY_MS)
        loop_timer_start(run->again, AGAIN_MS);
}

static void
run_on_again(void *arg)
{
    struct kernel_runner *runner = arg;
    const struct run *run = &runner->run;
    if (!cell_is_answered(&run->cell) &&
        !jupyter_channels_is_receiving(runner->process->channels, JUPYTER_SHELL))
        process_interrupt(runner->process);
}

// An interrupt that was asked for meanwhile has waited: ipykernel ignores signals between requests.
// Messages that are left out have no parent; they are left out only while no tap has a request.
void
runner_on_begun(struct kernel_runner *runner)
{
    struct run *run = &runner->run;
    if (!run->execution || run->begun)
        return;
    run->begun = true;
    run->begun_ms = clock_mono_ms();
    if (run->execution->state != EXECUTION_INTERRUPTING)
        return;
    loop_timer_start(run->grace, GRACE_MS);
    run_interrupt(runner);
}

static void
run_end_unanswered(struct kernel_runner *runner)
{
    if (!runner->run.execution)
        return;
    if (runner->run.step == RUN_CODE)
        run_finish(runner, runner->run.cell.exits ? CELL_ANSWERED : CELL_UNANSWERED, FATE_STAYS);
    else
        on_setup_reply(runner, NULL);
}

void
runner_on_message(struct kernel_runner *runner, enum jupyter_channel channel,
                  struct jupyter_message *message)
{
    struct run *run = &runner->run;
    bool awaited = run->execution && strcmp(message->parent_id, run->msg_id) == 0;
    bool is_reply = channel == JUPYTER_SHELL && strcmp(message->msg_type, "execute_reply") == 0;
    if (!awaited) {
        if (is_reply && strcmp(message->parent_id, runner->warmup_id) == 0)
            on_warm_reply(runner);
        else if (is_reply && strcmp(message->parent_id, runner->startup_id) == 0)
            on_startup_reply(runner, message->content);
        else if (channel == JUPYTER_SHELL && *runner->ask_id &&
                 strcmp(message->parent_id, runner->ask_id) == 0)
            end_asking(runner, message->content, NULL);
        else if (channel == JUPYTER_SHELL && *run->probe_id &&
                 strcmp(message->parent_id, run->probe_id) == 0)
            run_end_unanswered(runner);
        else if (channel == JUPYTER_IOPUB && strcmp(message->msg_type, "status") != 0 &&
                 runner->process->state == PROCESS_UP)
            metric_add(METRIC_KERNEL_LATE_MESSAGES, 1);
        return;
    }
    if (channel == JUPYTER_IOPUB && is_status(message, "busy"))
        runner_on_begun(runner);
    switch (run->step) {
    case RUN_STARTUP:
    case RUN_VARIABLES:
    case RUN_ENV:
        if (is_reply)
            on_setup_reply(runner, message->content);
        else if (channel == JUPYTER_IOPUB && is_status(message, "idle"))
            loop_timer_start(run->settle, SETTLE_MS);
        return;
    case RUN_STDIN: // nothing of the kernel's is awaited
        return;
    case RUN_CODE:
        if (is_reply && run->cell.reply == CELL_NO_REPLY)
            on_code_reply(runner, message);
        else if (channel == JUPYTER_STDIN)
            run_on_stdin(runner, message);
        else if (channel == JUPYTER_IOPUB)
            runner_on_output(runner, message);
        return;
    }
}

static void
run_on_settle(void *arg)
{
    struct kernel_runner *runner = arg;
    struct run *run = &runner->run;
    if (jupyter_channels_is_receiving(runner->process->channels, JUPYTER_SHELL))
        loop_timer_start(run->settle, SETTLE_MS); // a large reply is on its way
    else if (!run->cell.exits && !*run->probe_id &&
             process_probe(runner->process, run->probe_id) == 0)
        loop_timer_start(run->settle, PROBE_MS);
    else
        run_end_unanswered(runner);
}

// ---- Beginning and end ----------------------------------------------------------------------

static void
run_begin(struct kernel_runner *runner, struct execution *execution)
{
    struct run *run = &runner->run;
    assert(!run->execution);
    run->execution = execution;
    run->step = RUN_STARTUP;
    run->cell = CELL_INIT;
    run->n_aborted = 0;
    execution->started_us = clock_mono_us();
    execution_set_state(execution, EXECUTION_RUNNING);
    run->ends_ms = clock_mono_ms() + execution->timeout_ms;
    run->rest_left_ms = execution->max_rest_ms;
    loop_timer_start(run->timeout, execution->timeout_ms);
    send_step(runner);
}

static void
restore_env(struct kernel_runner *runner, const struct execution *execution)
{
    if (!execution->env || !runner->spec->env_restore_code)
        return;
    struct request_code *request =
        request_code_new(runner->spec->env_restore_code, kg_strdup(execution->env), true);
    struct kg_error err = {0};
    if (process_send(runner->process, "execute_request", request_code_make(request), NULL, &err) <
        0)
        log_warning("the environment was not restored", LOG_ERR(&err));
    request_code_free(request);
}

static void
run_stop_timers(struct run *run)
{
    loop_timer_stop(run->timeout);
    loop_timer_stop(run->settle);
    loop_timer_stop(run->again);
    loop_timer_stop(run->grace);
}

static void
run_finish(struct kernel_runner *runner, enum cell_end end, enum fate fate)
{
    struct run *run = &runner->run;
    KG_AUTO(execution) execution = KG_STEAL(run->execution);
    tool_calls_end(execution, "the execution has ended");
    enum execution_status status = cell_end(&run->cell, execution, end, run->ename, run->evalue);
    run_forget_reason(run);
    run_stop_timers(run);
    run->msg_id[0] = '\0';
    if (fate == FATE_STAYS) {
        restore_env(runner, execution);
        loop_timer_fire(runner->next);
    }
    execution->on_interrupt = NULL; // it does not run any more
    request_code_free(KG_STEAL(run->copy));
    update_hold(runner);
    run_files_finish(&runner->files, KG_STEAL(execution), status, fate == FATE_REPLACED,
                     fate == FATE_LOST);
}

static void
runner_on_files_done(struct execution *execution, void *arg)
{
    struct kernel_runner *runner = arg;
    loop_timer_fire(runner->next);
    runner->events->on_execution_done(execution, runner->arg);
}

// ---- The queue ------------------------------------------------------------------------------

static struct execution *
take_queued(struct kernel_runner *runner, struct execution *execution)
{
    TAILQ_REMOVE(&runner->queue, execution, in_queue);
    runner->n_queued--;
    return execution;
}

static void
run_next(void *arg)
{
    struct kernel_runner *runner = arg;
    struct execution *first = TAILQ_FIRST(&runner->queue);
    bool silent =
        runner->warmup_id[0] != '\0' || runner->startup_id[0] != '\0' || runner->ask_id[0] != '\0';
    // An interrupt that is under way must not hit the next execution. One that waited in the kernel
    // behind a tap's could neither be timed nor interrupted by itself.
    if (first && runner->process->state == PROCESS_UP && !runner->process->interrupting &&
        !silent && !runner->run.execution && !runner->files.ending && runner->hub->n_executing == 0)
        run_begin(runner, take_queued(runner, first));
}

// Ends a queued execution without running it.
static void
finish_queued(struct kernel_runner *runner, struct execution *execution, enum cell_end end,
              const char *evalue)
{
    KG_AUTO(execution) taken = take_queued(runner, execution);
    struct cell cell = CELL_INIT;
    tool_calls_end(taken, "the execution has ended");
    taken->on_interrupt = NULL; // a reader that leaves at the `done` line finds nothing to stop
    execution_finish(taken, cell_end(&cell, taken, end, "KernelDied", evalue), false);
    runner->events->on_execution_done(taken, runner->arg);
}

static void
queue_end(struct kernel_runner *runner, const char *evalue)
{
    for (struct execution *queued; (queued = TAILQ_FIRST(&runner->queue));)
        finish_queued(runner, queued, CELL_DIED, evalue);
}

// The time limit rests while the code waits for a tool, for max_rest_ms in all.
static void
runner_on_execution_waits(struct execution *execution, bool waits, void *arg)
{
    struct kernel_runner *runner = arg;
    struct run *run = &runner->run;
    int64_t now_ms = clock_mono_ms();
    if (run->execution != execution || execution->state != EXECUTION_RUNNING)
        return;
    if (waits) {
        run->rests_since_ms = now_ms;
        loop_timer_start(run->timeout, run->ends_ms + run->rest_left_ms - now_ms);
        return;
    }
    int64_t rested_ms = now_ms - run->rests_since_ms;
    if (rested_ms > run->rest_left_ms)
        rested_ms = run->rest_left_ms;
    run->rest_left_ms -= rested_ms;
    run->ends_ms += rested_ms;
    loop_timer_start(run->timeout, run->ends_ms > now_ms ? run->ends_ms - now_ms : 0);
}

static void runner_on_execution_interrupt(struct execution *execution, void *arg);

struct execution *
runner_execute(struct kernel_runner *runner, const struct execution_request *request,
               struct kg_error *err)
{
    const struct kernelspec *spec = runner->spec;
    if ((request->variables && !spec->variables_code) || (request->env && !spec->env_code)) {
        kg_error_set(err, KG_INVALID, 0, "the kernel %s takes no variables or env for an execution",
                     spec->name);
        return NULL;
    }
    if (runner->n_queued >= KERNEL_MAX_QUEUE) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "%d executions wait already; try again later",
                     KERNEL_MAX_QUEUE);
        return NULL;
    }
    if (executions_check_room(runner->context->executions, request, err) < 0)
        return NULL;
    struct execution *execution = execution_new(runner->context->executions, request);
    execution->kernel = kg_strdup(runner->process->name);
    execution->on_interrupt = runner_on_execution_interrupt;
    execution->on_interrupt_arg = runner;
    execution->on_tools_wait = runner_on_execution_waits;
    tool_calls_begin(execution, request->tools);
    TAILQ_INSERT_TAIL(&runner->queue, execution, in_queue);
    runner->n_queued++;
    if (runner->process->state == PROCESS_DEAD)
        process_replace(runner->process);
    else
        loop_timer_fire(runner->next);
    return execution_ref(execution);
}

// ---- Interrupt and kill ---------------------------------------------------------------------

static void
run_on_grace_over(void *arg)
{
    struct kernel_runner *runner = arg;
    bool timed_out = runner->run.execution->stop_status == EXECUTION_TIMEOUT;
    metric_add(METRIC_KERNEL_DEATHS, 1, timed_out ? "timeout" : "interrupt");
    run_kill(runner, CELL_KILLED);
    process_replace(runner->process);
}

// Stops an execution that runs (interrupt, grace, kill) or waits.
static void
stop_execution(struct kernel_runner *runner, struct execution *execution,
               enum execution_status status)
{
    switch (execution->state) {
    case EXECUTION_QUEUED:
        finish_queued(runner, execution, CELL_REMOVED, NULL);
        return;
    case EXECUTION_RUNNING:
        execution->stop_status = status;
        execution_set_state(execution, EXECUTION_INTERRUPTING);
        execution_forget_input(execution);
        tool_calls_stop(execution, "the execution was interrupted");
        loop_timer_stop(runner->run.timeout);
        loop_timer_start(runner->run.grace, GRACE_MS);
        if (runner->run.begun)
            run_interrupt(runner);
        return;
    case EXECUTION_INTERRUPTING:
    case EXECUTION_KILLING:
    case EXECUTION_DONE:
        return;
    }
}

static void
runner_on_execution_interrupt(struct execution *execution, void *arg)
{
    stop_execution(arg, execution, EXECUTION_INTERRUPTED);
}

static void
run_on_timeout(void *arg)
{
    struct kernel_runner *runner = arg;
    stop_execution(runner, runner->run.execution, EXECUTION_TIMEOUT);
}

void
runner_interrupt(struct kernel_runner *runner)
{
    for (struct execution *queued; (queued = TAILQ_FIRST(&runner->queue));)
        finish_queued(runner, queued, CELL_REMOVED, NULL);
    if (runner->run.execution)
        stop_execution(runner, runner->run.execution, EXECUTION_INTERRUPTED);
}

const struct process_end *
runner_end_of(const struct kernel_runner *runner)
{
    static const struct process_end unheeded = {
        CELL_NO_EXIT, "KernelDied",
        "the kernel was replaced, because code did not react to an interrupt"};
    static const struct process_end unusable = {CELL_NO_EXIT, "KernelDied",
                                                "the kernel could not be used, and was replaced"};
    bool killed = runner->run.execution && runner->run.end == CELL_KILLED;
    return killed ? &unheeded : &unusable;
}

void
runner_kill(struct kernel_runner *runner)
{
    run_kill(runner, CELL_RESTARTED);
}

// ---- Warming up -----------------------------------------------------------------------------

// A silent request beside those of executions.
static int
send_silent(struct kernel_runner *runner, const char *code, char *ret_msg_id, struct kg_error *err)
{
    struct request_code *request = request_code_new(NULL, kg_strdup(code), true);
    int sent = process_send(runner->process, "execute_request", request_code_make(request),
                            ret_msg_id, err);
    request_code_free(request);
    return sent;
}

bool
runner_warm_up(struct kernel_runner *runner)
{
    struct kg_error err = {0};
    if (!runner->spec->warmup_code)
        return false;
    if (send_silent(runner, runner->spec->warmup_code, runner->warmup_id, &err) < 0) {
        log_warning("a kernel was not warmed up", LOG_ERR(&err));
        return false;
    }
    loop_timer_start(runner->warming, WARM_UP_MS);
    return true;
}

int
runner_ask(struct kernel_runner *runner, const char *msg_type, json_t *content, int64_t timeout_ms,
           struct kg_error *err)
{
    if (runner->process->state != PROCESS_UP || runner->run.execution || *runner->ask_id ||
        runner->hub->n_executing > 0) {
        json_decref(content);
        return kg_error_set(err, KG_KERNEL_BUSY, 0, "the kernel runs code");
    }
    if (process_send(runner->process, msg_type, content, runner->ask_id, err) < 0) {
        runner->ask_id[0] = '\0';
        return -1;
    }
    loop_timer_start(runner->asking, timeout_ms);
    return 0;
}

static void
runner_on_warming_too_long(void *arg)
{
    runner_fail(arg, "KernelDied", "the kernel's warm-up takes too long");
}

// ---- What process and hub report ------------------------------------------------------------

void
runner_on_taps_idle(struct kernel_runner *runner)
{
    loop_timer_start(runner->next, 0);
}

void
runner_on_tap_held(struct kernel_runner *runner)
{
    struct kg_error err = {0};
    if (runner->run.execution || runner->startup_id[0] != '\0' || runner->started_up)
        return;
    if (send_silent(runner, runner->startup, runner->startup_id, &err) < 0)
        log_warning("a kernel's startup code was not sent", LOG_ERR(&err));
}

void
runner_on_ready(struct kernel_runner *runner)
{
    loop_timer_start(runner->next, 0);
}

void
runner_on_failed(struct kernel_runner *runner, const struct kg_error *err)
{
    queue_end(runner, err->message);
}

void
runner_on_end(struct kernel_runner *runner, const struct process_end *end)
{
    if (end->exit_code >= 0)
        runner->run.cell.exit_code = end->exit_code;
    runner_fail(runner, end->ename, end->evalue);
}

void
runner_on_replacing(struct kernel_runner *runner)
{
    runner->started_up = false;
    runner->warmup_id[0] = runner->startup_id[0] = '\0';
    loop_timer_stop(runner->warming);
    end_asking(runner, NULL, "the kernel ended meanwhile");
    run_stop_timers(&runner->run);
    update_hold(runner);
}

void
runner_on_replaced(struct kernel_runner *runner)
{
    if (runner->run.execution)
        run_finish(runner, runner->run.end, FATE_REPLACED);
}

void
runner_on_stuck(struct kernel_runner *runner, const struct kg_error *err)
{
    if (runner->run.execution)
        run_finish(runner, runner->run.end, FATE_LOST);
    queue_end(runner, err->message);
}

void
runner_on_interrupted(struct kernel_runner *runner)
{
    run_next(runner);
}

// ---- Life -----------------------------------------------------------------------------------

bool
runner_is_busy(const struct kernel_runner *runner)
{
    return runner->run.execution || runner->files.ending || runner->n_queued > 0;
}

void
runner_set_folder(struct kernel_runner *runner, const char *folder, const char *home)
{
    const struct kernelspec *spec = runner->spec;
    KG_AUTO_BUF code = {0};
    if (spec->startup_code)
        buf_append_str(&code, spec->startup_code);
    if (spec->folder_code && (folder || home)) {
        json_auto_t *place =
            json_pack("{s:s, s:s*}", "folder", folder ? folder : "/mnt/data", "home", home);
        KG_AUTO_FREE char *text = json_dumps(place, JSON_ENSURE_ASCII);
        KG_AUTO_FREE char *filled = request_fill_template(spec->folder_code, text);
        buf_printf(&code, "%s%s", code.len ? "\n" : "", filled);
    }
    free(runner->startup);
    runner->startup = code.len ? buf_take(&code) : NULL;
    update_hold(runner);
}

void
runner_init(struct kernel_runner *runner, const struct kernel_context *context,
            struct kernel_process *process, struct kernel_hub *hub,
            const struct runner_events *events, void *arg)
{
    struct loop *loop = context->loop;
    runner->context = context;
    runner->spec = process->spec;
    runner->process = process;
    runner->hub = hub;
    runner->events = events;
    runner->arg = arg;
    runner->files = (struct run_files){
        .context = context,
        .sandbox = process->sandbox,
        .cursor = process->name,
        .on_done = runner_on_files_done,
        .arg = runner,
    };
    TAILQ_INIT(&runner->queue);
    runner->next = loop_timer_new(loop, run_next, runner);
    runner->warming = loop_timer_new(loop, runner_on_warming_too_long, runner);
    runner->asking = loop_timer_new(loop, runner_on_asking_too_long, runner);
    runner->run.timeout = loop_timer_new(loop, run_on_timeout, runner);
    runner->run.settle = loop_timer_new(loop, run_on_settle, runner);
    runner->run.again = loop_timer_new(loop, run_on_again, runner);
    runner->run.grace = loop_timer_new(loop, run_on_grace_over, runner);
}

void
runner_end(struct kernel_runner *runner, const char *evalue)
{
    run_files_end(&runner->files);
    if (runner->run.execution) {
        run_keep_reason(&runner->run, "KernelDied", evalue);
        run_finish(runner, CELL_GONE, FATE_LOST);
    }
    queue_end(runner, evalue);
}

void
runner_fini(struct kernel_runner *runner)
{
    run_forget_reason(&runner->run);
    free(runner->startup);
    loop_timer_free(runner->next);
    loop_timer_free(runner->warming);
    loop_timer_free(runner->asking);
    loop_timer_free(runner->run.timeout);
    loop_timer_free(runner->run.settle);
    loop_timer_free(runner->run.again);
    loop_timer_free(runner->run.grace);
}

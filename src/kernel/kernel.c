// SPDX-License-Identifier: Apache-2.0
// A kernel's state machine: start, queue, interrupt, kill, restart, death.

#include <assert.h>
#include <string.h>

#include "kernel_priv.h"
#include "metrics.h"

enum { GRACE_MS = 3000, AGENT_TIMEOUT_MS = 10 * 1000 };

static const char *const state_names[] = {
    [KERNEL_STARTING] = "starting",
    [KERNEL_READY] = "ready",
    [KERNEL_BUSY] = "busy",
    [KERNEL_INTERRUPTING] = "interrupting",
    [KERNEL_RESTARTING] = "restarting",
    [KERNEL_DEAD] = "dead",
};

const char *
kernel_state_name(enum kernel_state state)
{
    return state_names[state];
}

static bool
edge_is_legal(enum kernel_state from, enum kernel_state to)
{
    switch (from) {
    case KERNEL_STARTING:
        return to == KERNEL_READY || to == KERNEL_RESTARTING || to == KERNEL_DEAD;
    case KERNEL_READY:
        return to == KERNEL_BUSY || to == KERNEL_RESTARTING;
    case KERNEL_BUSY:
        return to == KERNEL_READY || to == KERNEL_INTERRUPTING || to == KERNEL_RESTARTING;
    case KERNEL_INTERRUPTING:
        return to == KERNEL_READY || to == KERNEL_RESTARTING;
    case KERNEL_RESTARTING:
        return to == KERNEL_STARTING || to == KERNEL_DEAD;
    case KERNEL_DEAD:
        return to == KERNEL_RESTARTING;
    }
    return false;
}

void
kernel_set_state(struct kernel *kernel, enum kernel_state state)
{
    assert(edge_is_legal(kernel->state, state));
    log_debug("kernel state", LOG_STR("sandbox", sandbox_id(kernel->sandbox)),
              LOG_STR("kernel", kernel->spec->name), LOG_STR("from", state_names[kernel->state]),
              LOG_STR("to", state_names[state]));
    kernel->state = state;
}

// ---- The queue ------------------------------------------------------------------------------

static struct execution *
take_queued(struct kernel *kernel, struct execution *execution)
{
    TAILQ_REMOVE(&kernel->queue, execution, in_queue);
    kernel->n_queued--;
    return execution;
}

static void
run_next(void *arg)
{
    struct kernel *kernel = arg;
    struct execution *first = TAILQ_FIRST(&kernel->queue);
    bool warming = kernel->warmup_id[0] != '\0';
    if (first && kernel->state == KERNEL_READY && !kernel->interrupting && !warming)
        kernel_run_begin(kernel, take_queued(kernel, first));
}

// Ends a queued execution without running it.
static void
finish_queued(struct kernel *kernel, struct execution *execution, enum execution_status status,
              const char *ename, const char *evalue)
{
    KG_AUTO(execution) taken = take_queued(kernel, execution);
    taken->kernel = NULL; // a reader that leaves when it is told finds nothing to stop
    if (ename)
        output_append_error(&taken->log, ename, evalue, NULL);
    execution_finish(taken, status, false);
    kernel->events->on_execution_done(kernel, taken, kernel->arg);
}

struct execution *
kernel_execute(struct kernel *kernel, const struct execution_request *request, struct kg_error *err)
{
    const struct kernelspec *spec = kernel->spec;
    if ((json_object_size(request->variables) > 0 && !spec->variables_code) ||
        (json_object_size(request->env) > 0 && !spec->env_code)) {
        kg_error_set(err, KG_INVALID, 0, "the kernel %s takes no variables or env for an execution",
                     spec->name);
        return NULL;
    }
    if (kernel->n_queued >= KERNEL_MAX_QUEUE) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "%d executions wait already; try again later",
                     KERNEL_MAX_QUEUE);
        return NULL;
    }
    struct execution *execution = execution_new(kernel->context->executions, kernel, request);
    TAILQ_INSERT_TAIL(&kernel->queue, execution, in_queue);
    kernel->n_queued++;
    if (kernel->state == KERNEL_DEAD)
        kernel_replace(kernel);
    else
        loop_timer_start(kernel->next, 0);
    return execution_ref(execution);
}

// ---- Interrupt and kill ---------------------------------------------------------------------

static void
on_interrupt_sent(const json_t *body, const struct kg_error *err, void *arg)
{
    struct kernel *kernel = arg;
    kernel->interrupting = NULL;
    if (!body)
        log_warning("a kernel was not interrupted", LOG_ERR(err));
    run_next(kernel);
}

static void
send_interrupt(struct kernel *kernel)
{
    struct kg_error err = {0};
    if (kernel->spec->interrupt_by_message) {
        if (!kernel->channels || // adopted, and not linked yet
            jupyter_channels_send(kernel->channels, JUPYTER_CONTROL, "interrupt_request",
                                  json_object(), NULL, &err) < 0)
            log_warning("a kernel was not interrupted", LOG_ERR(&err));
        return;
    }
    if (kernel->interrupting)
        return;
    KG_AUTO_FREE char *path = kg_asprintf("/kernels/%s/signal", kernel->spec->name);
    json_auto_t *body = json_pack("{s:s}", "signal", "INT");
    kernel->interrupting = sandbox_agent_call(kernel->sandbox, "POST", path, body, AGENT_TIMEOUT_MS,
                                              on_interrupt_sent, kernel, &err);
    if (!kernel->interrupting)
        log_warning("a kernel was not interrupted", LOG_ERR(&err));
}

static void
on_grace_over(void *arg)
{
    struct kernel *kernel = arg;
    bool timeout = kernel->run.execution->stop_status == EXECUTION_TIMEOUT;
    metric_add(METRIC_KERNEL_DEATHS, 1, timeout ? "timeout" : "interrupt");
    execution_set_state(kernel->run.execution, EXECUTION_KILLING);
    kernel_replace(kernel);
}

void
kernel_stop_execution(struct kernel *kernel, struct execution *execution,
                      enum execution_status status)
{
    switch (execution->state) {
    case EXECUTION_QUEUED:
        finish_queued(kernel, execution, status, NULL, NULL);
        return;
    case EXECUTION_RUNNING:
        execution->stop_status = status;
        execution_set_state(execution, EXECUTION_INTERRUPTING);
        kernel_set_state(kernel, KERNEL_INTERRUPTING);
        loop_timer_stop(kernel->run.timeout);
        loop_timer_start(kernel->grace, GRACE_MS);
        send_interrupt(kernel);
        return;
    case EXECUTION_INTERRUPTING:
    case EXECUTION_KILLING:
    case EXECUTION_DONE:
        return;
    }
}

bool
kernel_interrupt(struct kernel *kernel)
{
    bool any = kernel_is_busy(kernel);
    for (struct execution *queued; (queued = TAILQ_FIRST(&kernel->queue));)
        finish_queued(kernel, queued, EXECUTION_INTERRUPTED, NULL, NULL);
    if (kernel->run.execution)
        kernel_stop_execution(kernel, kernel->run.execution, EXECUTION_INTERRUPTED);
    else if (kernel->adopting)
        send_interrupt(kernel);
    return any;
}

// ---- Restart and death ----------------------------------------------------------------------

static void
tell_restarted(struct kernel *kernel, const struct kg_error *err)
{
    kernel_restart_fn fn = kernel->on_restarted;
    kernel->on_restarted = NULL;
    if (fn)
        fn(err, kernel->on_restarted_arg);
}

static void
tell_started(struct kernel *kernel, const struct kg_error *err)
{
    if (kernel->told_started)
        return;
    kernel->told_started = true;
    kernel->events->on_started(kernel, err, kernel->arg);
}

void
kernel_on_ready(struct kernel *kernel)
{
    kernel_set_state(kernel, KERNEL_READY);
    kernel->has_started = true;
    kernel->adopting = false;
    loop_timer_start(kernel->next, 0);
    tell_restarted(kernel, NULL);
    tell_started(kernel, NULL);
}

static void
close_channels(struct kernel *kernel)
{
    jupyter_channels_free(KG_STEAL(kernel->channels));
    loop_timer_stop(kernel->lost);
    if (kernel->interrupting)
        sandbox_call_cancel(KG_STEAL(kernel->interrupting));
}

// Without its agent's help a sandbox is of no use any more.
static void
on_unstoppable(struct kernel *kernel, const struct kg_error *err)
{
    kernel_set_state(kernel, KERNEL_DEAD);
    if (kernel->run.execution)
        kernel_run_finish(kernel, kernel->run.execution->stop_status, KERNEL_GOES);
    for (struct execution *queued; (queued = TAILQ_FIRST(&kernel->queue));)
        finish_queued(kernel, queued, EXECUTION_DIED, "KernelDied", err->message);
    tell_restarted(kernel, err);
    tell_started(kernel, err);
    kernel->events->on_broken(kernel, err, kernel->arg);
}

static void
on_stopped(const json_t *body, const struct kg_error *err, void *arg)
{
    struct kernel *kernel = arg;
    kernel->stopping = NULL;
    if (!body)
        log_warning("a kernel's processes were not stopped",
                    LOG_STR("sandbox", sandbox_id(kernel->sandbox)), LOG_ERR(err));
    if (kernel->state != KERNEL_RESTARTING)
        return;
    if (!body) {
        on_unstoppable(kernel, err);
        return;
    }
    kernel_set_state(kernel, KERNEL_STARTING);
    kernel_start_begin(kernel);
    if (kernel->run.execution)
        kernel_run_finish(kernel, kernel->run.execution->stop_status, KERNEL_REPLACED);
}

// Asks the agent to kill the process and all that it left behind; ends in on_stopped().
static void
stop_process(struct kernel *kernel)
{
    if (kernel->stopping)
        return;
    KG_AUTO_FREE char *path = kg_asprintf("/kernels/%s/stop", kernel->spec->name);
    struct kg_error err = {0};
    kernel->stopping = sandbox_agent_call(kernel->sandbox, "POST", path, NULL, AGENT_TIMEOUT_MS,
                                          on_stopped, kernel, &err);
    if (!kernel->stopping)
        loop_timer_start(kernel->unasked, 0);
}

void
kernel_replace(struct kernel *kernel)
{
    kernel_start_cancel(kernel);
    close_channels(kernel);
    kernel->adopting = false;
    kernel->warmup_id[0] = '\0';
    loop_timer_stop(kernel->warming);
    loop_timer_stop(kernel->grace);
    loop_timer_stop(kernel->run.timeout);
    loop_timer_stop(kernel->run.settle);
    kernel_set_state(kernel, KERNEL_RESTARTING);
    stop_process(kernel);
}

void
kernel_on_start_failed(struct kernel *kernel, const struct kg_error *err)
{
    log_warning("a kernel did not start", LOG_STR("sandbox", sandbox_id(kernel->sandbox)),
                LOG_STR("kernel", kernel->spec->name), LOG_ERR(err));
    close_channels(kernel);
    kernel_set_state(kernel, KERNEL_DEAD);
    stop_process(kernel);
    for (struct execution *queued; (queued = TAILQ_FIRST(&kernel->queue));)
        finish_queued(kernel, queued, EXECUTION_DIED, "KernelDied", err->message);
    tell_restarted(kernel, err);
    tell_started(kernel, err);
}

static void
on_unasked(void *arg)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's agent cannot be asked");
    on_stopped(NULL, &err, arg);
}

int
kernel_restart(struct kernel *kernel, kernel_restart_fn on_done, void *arg, struct kg_error *err)
{
    if (kernel->on_restarted || kernel->state == KERNEL_RESTARTING)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the kernel is being restarted already");
    kernel->on_restarted = on_done;
    kernel->on_restarted_arg = arg;
    if (kernel->run.execution) {
        kernel->run.execution->stop_status = EXECUTION_INTERRUPTED;
        execution_set_state(kernel->run.execution, EXECUTION_KILLING);
    }
    kernel_replace(kernel);
    return 0;
}

void
kernel_fail(struct kernel *kernel, const char *ename, const char *evalue)
{
    if (kernel->run.execution) {
        struct execution *execution = kernel->run.execution;
        output_append_error(&execution->log, ename, evalue, NULL);
        execution->stop_status = EXECUTION_DIED;
        if (execution->state != EXECUTION_KILLING)
            execution_set_state(execution, EXECUTION_KILLING);
    }
    kernel_replace(kernel);
}

static void
on_lost(void *arg)
{
    struct kernel *kernel = arg;
    static const char reason[] = "the gateway lost the kernel's channels";
    metric_add(METRIC_KERNEL_DEATHS, 1, "lost");
    if (kernel->state == KERNEL_STARTING)
        kernel_start_fail(kernel, reason);
    else
        kernel_fail(kernel, "KernelDied", reason);
}

static void
on_warming_too_long(void *arg)
{
    kernel_fail(arg, "KernelDied", "the kernel's warm-up takes too long");
}

// Code that asked for the process's end has ended well; code that was being stopped is stopped.
static void
fail_by_exit(struct kernel *kernel, int exit_code, int signal, bool oom)
{
    struct execution *execution = kernel->run.execution;
    bool stopping = execution && execution->state == EXECUTION_INTERRUPTING;
    if (stopping || (execution && kernel->run.exiting)) {
        if (!stopping)
            execution->stop_status = kernel->run.status;
        execution_set_state(execution, EXECUTION_KILLING);
        kernel_replace(kernel);
        return;
    }
    KG_AUTO_FREE char *evalue =
        oom           ? kg_strdup("the kernel used more memory than its sandbox may have")
        : signal != 0 ? kg_asprintf("the kernel's process was ended by signal %d (%s)", signal,
                                    sigabbrev_np(signal) ? sigabbrev_np(signal) : "?")
                      : kg_asprintf("the kernel's process ended with code %d", exit_code);
    kernel_fail(kernel, oom ? "OutOfMemory" : "KernelDied", evalue);
}

void
kernel_on_exit(struct kernel *kernel, int pid, int exit_code, int signal, bool oom)
{
    if (pid != kernel->pid)
        return; // old news, of a process that was replaced
    log_info("a kernel's process ended", LOG_STR("sandbox", sandbox_id(kernel->sandbox)),
             LOG_STR("kernel", kernel->spec->name), LOG_INT("exit_code", exit_code),
             LOG_INT("signal", signal), LOG_INT("oom", oom));
    const char *cause = oom ? "oom" : signal != 0 ? "signal" : "exit";
    switch (kernel->state) {
    case KERNEL_STARTING: {
        metric_add(METRIC_KERNEL_DEATHS, 1, cause);
        KG_AUTO_FREE char *reason =
            kg_asprintf("the kernel %s ended before it was ready (code %d, signal %d)",
                        kernel->spec->name, exit_code, signal);
        kernel_start_fail(kernel, reason);
        return;
    }
    case KERNEL_READY:
    case KERNEL_BUSY:
    case KERNEL_INTERRUPTING:
        metric_add(METRIC_KERNEL_DEATHS, 1, cause);
        fail_by_exit(kernel, exit_code, signal, oom);
        return;
    case KERNEL_RESTARTING:
    case KERNEL_DEAD:
        return;
    }
}

// ---- Its life -------------------------------------------------------------------------------

static struct kernel *
kernel_make(const struct kernel_context *context, struct sandbox *sandbox,
            const struct kernelspec *spec, const json_t *env, const struct kernel_events *events,
            void *arg)
{
    struct kernel *kernel = KG_NEW(struct kernel);
    kernel->context = context;
    kernel->sandbox = sandbox;
    kernel->spec = spec;
    kernel->env = env ? json_deep_copy(env) : json_object();
    kernel->events = events;
    kernel->arg = arg;
    kernel->state = KERNEL_STARTING;
    kernel->dir = kg_asprintf("%s/%s", sandbox_dir(sandbox), spec->name);
    TAILQ_INIT(&kernel->queue);
    kernel->next = loop_timer_new(context->loop, run_next, kernel);
    kernel->grace = loop_timer_new(context->loop, on_grace_over, kernel);
    kernel->lost = loop_timer_new(context->loop, on_lost, kernel);
    kernel->warming = loop_timer_new(context->loop, on_warming_too_long, kernel);
    kernel->unasked = loop_timer_new(context->loop, on_unasked, kernel);
    kernel_start_init(kernel);
    kernel_run_init(kernel);
    return kernel;
}

struct kernel *
kernel_new(const struct kernel_context *context, struct sandbox *sandbox,
           const struct kernelspec *spec, const json_t *env, const struct kernel_events *events,
           void *arg)
{
    struct kernel *kernel = kernel_make(context, sandbox, spec, env, events, arg);
    kernel_start_begin(kernel);
    return kernel;
}

struct kernel *
kernel_adopt(const struct kernel_context *context, struct sandbox *sandbox,
             const struct kernelspec *spec, const json_t *env, const json_t *process,
             const struct kernel_events *events, void *arg)
{
    const char *key = json_string_value(json_object_get(process, "key"));
    if (!key || strlen(key) != JUPYTER_KEY_LEN)
        return NULL;
    struct kernel *kernel = kernel_make(context, sandbox, spec, env, events, arg);
    memcpy(kernel->key, key, JUPYTER_KEY_LEN + 1);
    kernel->pid = (int)json_integer_value(json_object_get(process, "pid"));
    kernel->adopting = kernel->has_started = true;
    kernel_start_adopt(kernel);
    return kernel;
}

void
kernel_free(struct kernel *kernel, const char *reason)
{
    if (!kernel)
        return;
    const char *evalue = reason ? reason : "the session was ended";
    if (kernel->run.execution) {
        output_append_error(&kernel->run.execution->log, "KernelDied", evalue, NULL);
        kernel_run_finish(kernel, EXECUTION_DIED, KERNEL_GOES);
    }
    for (struct execution *queued; (queued = TAILQ_FIRST(&kernel->queue));)
        finish_queued(kernel, queued, EXECUTION_DIED, "KernelDied", evalue);
    close_channels(kernel);
    if (kernel->stopping)
        sandbox_call_cancel(kernel->stopping);
    kernel_start_fini(kernel);
    kernel_run_fini(kernel);
    loop_timer_free(kernel->next);
    loop_timer_free(kernel->grace);
    loop_timer_free(kernel->lost);
    loop_timer_free(kernel->warming);
    loop_timer_free(kernel->unasked);
    json_decref(kernel->env);
    free(kernel->dir);
    free(kernel);
}

void
kernel_set_events(struct kernel *kernel, const struct kernel_events *events, void *arg)
{
    kernel->events = events;
    kernel->arg = arg;
}

const struct kernelspec *
kernel_spec(const struct kernel *kernel)
{
    return kernel->spec;
}

enum kernel_state
kernel_state(const struct kernel *kernel)
{
    return kernel->state;
}

bool
kernel_has_started(const struct kernel *kernel)
{
    return kernel->has_started;
}

int64_t
kernel_execution_count(const struct kernel *kernel)
{
    return kernel->execution_count;
}

bool
kernel_is_busy(const struct kernel *kernel)
{
    return kernel->run.execution || kernel->n_queued > 0 || kernel->adopting;
}

// SPDX-License-Identifier: Apache-2.0
// A kernel's process ends, is lost or is to be replaced: what runs ends, a new process is started.

#include <string.h>

#include "kernel_priv.h"
#include "metrics.h"

enum { AGENT_TIMEOUT_MS = 10 * 1000 };

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
    kernel_queue_end(kernel, err->message);
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
    if (kernel->events->on_replaced)
        kernel->events->on_replaced(kernel, kernel->arg);
}

void
kernel_on_start_failed(struct kernel *kernel, const struct kg_error *err)
{
    log_warning("a kernel did not start", LOG_STR("sandbox", sandbox_id(kernel->sandbox)),
                LOG_STR("kernel", kernel->spec->name), LOG_ERR(err));
    close_channels(kernel);
    kernel_set_state(kernel, KERNEL_DEAD);
    stop_process(kernel);
    kernel_queue_end(kernel, err->message);
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

// ---- Life -----------------------------------------------------------------------------------

void
kernel_restart_init(struct kernel *kernel)
{
    struct loop *loop = kernel->context->loop;
    kernel->lost = loop_timer_new(loop, on_lost, kernel);
    kernel->warming = loop_timer_new(loop, on_warming_too_long, kernel);
    kernel->unasked = loop_timer_new(loop, on_unasked, kernel);
}

void
kernel_restart_fini(struct kernel *kernel)
{
    close_channels(kernel);
    if (kernel->stopping)
        sandbox_call_cancel(kernel->stopping);
    loop_timer_free(kernel->lost);
    loop_timer_free(kernel->warming);
    loop_timer_free(kernel->unasked);
}

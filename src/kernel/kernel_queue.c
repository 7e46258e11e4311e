// SPDX-License-Identifier: Apache-2.0
// The executions that wait for a kernel, and how one that runs is stopped: interrupt, grace, kill.

#include <assert.h>

#include "kernel_priv.h"
#include "metrics.h"

enum { GRACE_MS = 3000, AGENT_TIMEOUT_MS = 10 * 1000 };

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
    if (first && kernel->state == KERNEL_READY && !kernel->interrupting && !warming &&
        !kernel->artifacts.ending)
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
    if ((request->variables && !spec->variables_code) || (request->env && !spec->env_code)) {
        kg_error_set(err, KG_INVALID, 0, "the kernel %s takes no variables or env for an execution",
                     spec->name);
        return NULL;
    }
    if (kernel->n_queued >= KERNEL_MAX_QUEUE) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "%d executions wait already; try again later",
                     KERNEL_MAX_QUEUE);
        return NULL;
    }
    if (executions_check_room(kernel->context->executions, request, err) < 0)
        return NULL;
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

// ---- Life -----------------------------------------------------------------------------------

void
kernel_queue_end(struct kernel *kernel, const char *evalue)
{
    for (struct execution *queued; (queued = TAILQ_FIRST(&kernel->queue));)
        finish_queued(kernel, queued, EXECUTION_DIED, "KernelDied", evalue);
}

void
kernel_queue_init(struct kernel *kernel)
{
    TAILQ_INIT(&kernel->queue);
    kernel->next = loop_timer_new(kernel->context->loop, run_next, kernel);
    kernel->grace = loop_timer_new(kernel->context->loop, on_grace_over, kernel);
}

void
kernel_queue_fini(struct kernel *kernel)
{
    loop_timer_free(kernel->next);
    loop_timer_free(kernel->grace);
}

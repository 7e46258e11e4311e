// SPDX-License-Identifier: Apache-2.0
// The attempts of an operation: a call to the API server that is repeated after temporary errors.
#include "kubernetes_priv.h"

#define ATTEMPTS_MS 15000

static void
on_timer(void *arg)
{
    struct kube_op *op = arg;
    op->attempt(op);
}

bool
kube_op_try_again(struct kube_op *op, const struct http_call_result *result)
{
    op->n_attempts++;
    int64_t pause_ms = kube_pause_ms(result, op->n_attempts);
    if (!kube_is_transient(result) || clock_mono_ms() + pause_ms >= op->until_ms)
        return false;
    loop_timer_start(op->timer, pause_ms);
    return true;
}

void
kube_op_begin_attempts(struct kube_op *op, void (*attempt)(struct kube_op *op))
{
    op->attempt = attempt;
    op->n_attempts = 0;
    op->until_ms = clock_mono_ms() + ATTEMPTS_MS;
    if (!op->timer)
        op->timer = loop_timer_new(op->base.provisioner->loop, on_timer, op);
    loop_timer_stop(op->timer);
}

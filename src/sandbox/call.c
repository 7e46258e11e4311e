// SPDX-License-Identifier: Apache-2.0
// Opening links. Every callback is the last thing that its function does: it may free the call's
// sandbox.
#include <assert.h>
#include <string.h>

#include "call.h"
#include "link_line.h"
#include "sandbox_priv.h"

void
sandbox_call_cancel(struct sandbox_call *call)
{
    if (!call)
        return;
    TAILQ_REMOVE(&call->sandbox->calls, call, entry);
    door_call_cancel(call->opening);
    loop_timer_free(call->timer);
    agent_call_free(call->agent);
    free(call);
}

void
call_fail(struct sandbox_call *call, const struct kg_error *err)
{
    sandbox_link_fn link_fn = call->link_fn;
    void *arg = call->arg;

    if (call->agent) {
        agent_call_fail(call, err);
        return;
    }
    sandbox_call_cancel(call);
    link_fn(-1, err, arg);
}

static void
on_timeout(void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the sandbox's agent did not answer in time");
    call_fail(arg, &err);
}

static void
on_refused(struct sandbox_call *call, const struct kg_error *err)
{
    struct kg_error why = *err;

    // What an agent says to a target that it does not know.
    if (call->agent && strcmp(err->message, "bad target") == 0)
        (void)kg_error_set(&why, KG_PROVISIONER_UNAVAILABLE, 0,
                           "the sandbox's agent is of another version of kernelgate, which this "
                           "one cannot call");
    call_fail(call, &why);
}

static void
on_opened(int fd, const struct kg_error *err, void *arg)
{
    struct sandbox_call *call = arg;

    call->opening = NULL;
    if (fd < 0) {
        on_refused(call, err);
        return;
    }
    if (call->agent) {
        agent_call_on_link(call, fd);
        return;
    }
    sandbox_link_fn fn = call->link_fn;
    void *fn_arg = call->arg;
    sandbox_call_cancel(call);
    fn(fd, NULL, fn_arg);
}

bool
sandbox_fail_call(struct sandbox *sandbox, const struct kg_error *reason)
{
    struct sandbox_call *call = TAILQ_FIRST(&sandbox->calls);

    if (!call)
        return false;
    call_fail(call, reason);
    return true;
}

// ---- Starting -------------------------------------------------------------------------------

struct sandbox_call *
sandbox_call_new(struct sandbox *sandbox, void *arg, struct kg_error *err)
{
    if (!sandbox->door) {
        (void)kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox is gone");
        return NULL;
    }
    struct sandbox_call *call = KG_NEW(struct sandbox_call);
    call->sandbox = sandbox;
    call->timer = loop_timer_new(sandbox->context.loop, on_timeout, call);
    call->arg = arg;
    TAILQ_INSERT_TAIL(&sandbox->calls, call, entry);
    return call;
}

void
sandbox_call_open(struct sandbox_call *call, const char *target, int64_t timeout_ms)
{
    assert(timeout_ms > 0);
    call->opening = door_open(call->sandbox->door, target, timeout_ms, on_opened, call);
}

struct sandbox_call *
sandbox_open_link(struct sandbox *sandbox, const char *target, int64_t timeout_ms,
                  sandbox_link_fn fn, void *arg, struct kg_error *err)
{
    if (!link_target_valid(target)) {
        (void)kg_error_set(err, KG_INVALID, 0, "bad link target");
        return NULL;
    }
    struct sandbox_call *call = sandbox_call_new(sandbox, arg, err);
    if (!call)
        return NULL;
    call->link_fn = fn;
    sandbox_call_open(call, target, timeout_ms);
    return call;
}

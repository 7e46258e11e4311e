// SPDX-License-Identifier: Apache-2.0
// Calls that are about one kernel of a session: how they wait and are answered; restarts and
// removals. What comes from inside a kernel's events is answered in the session's step.

#include <string.h>

#include "session_files.h"
#include "session_kernels.h"
#include "sessions_priv.h"

enum { REMOVE_TIMEOUT_MS = 20 * 1000 };

struct session_kernel_call *
session_kernel_call_new(struct session *session, enum session_kernel_call_kind kind,
                        const char *name, session_kernel_fn fn, void *arg)
{
    struct session_kernel_call *call = KG_NEW(struct session_kernel_call);
    call->session = session;
    call->kind = kind;
    memcpy(call->name, name, strlen(name) + 1);
    call->waits = true;
    call->fn = fn;
    call->arg = arg;
    TAILQ_INSERT_TAIL(&session->kernel_calls, call, link);
    return call;
}

void
session_kernel_call_free(struct session_kernel_call *call)
{
    TAILQ_REMOVE(&call->session->kernel_calls, call, link);
    session_recording_cancel(call->recording);
    session_file_op_cancel(call->look);
    sandbox_call_cancel(call->stop);
    free(call);
}

struct session_kernel_call *
session_kernel_begin_to_remove(struct session *session, struct session_kernel *kernel,
                               session_kernel_fn fn, void *arg)
{
    const char *name = kernel_name(kernel->kernel);
    kernel->remover = session_kernel_call_new(session, KERNEL_CALL_REMOVE, name, fn, arg);
    loop_timer_fire(session->step);
    return kernel->remover;
}

// ---- Answers --------------------------------------------------------------------------------

// An open that has failed takes its kernel back.
static struct kernel *
kernel_of(const struct session_kernel_call *call, struct kg_error *err)
{
    struct session *session = call->session;
    struct session_kernel *kernel = session_kernel_named(session, call->name);
    bool is_shown = kernel && !kernel->remover;
    *err = call->err;
    if (call->kind == KERNEL_CALL_REMOVE)
        return NULL;
    if (is_shown && err->code == KG_OK)
        return kernel->kernel;
    if (is_shown && call->kind == KERNEL_CALL_OPEN)
        session_kernel_begin_to_remove(session, kernel, NULL, NULL);
    if (err->code == KG_OK)
        kg_error_set(err, KG_NOT_FOUND, 0, "the kernel was removed meanwhile");
    return NULL;
}

static void
call_answer(struct session_kernel_call *call)
{
    struct session *session = call->session;
    session_kernel_fn fn = call->fn;
    void *arg = call->arg;
    bool was_removal = call->kind == KERNEL_CALL_REMOVE;
    struct kg_error err;
    struct kernel *kernel = kernel_of(call, &err);
    session_kernel_call_free(call);
    if (was_removal)
        session_start_kernels(session); // somebody may want that kernel again
    if (fn)
        fn(kernel, err.code == KG_OK ? NULL : &err, arg);
}

// One of the things that the call waits for is there, or has failed.
void
session_kernel_call_settle(struct session_kernel_call *call, const struct kg_error *err)
{
    if (err && call->err.code == KG_OK)
        call->err = *err;
    if (--call->n_pending == 0)
        call_answer(call);
}

static void
call_on_recorded(const struct kg_error *err, void *arg)
{
    struct session_kernel_call *call = arg;
    call->recording = NULL;
    // One that was removed is gone all the same; one that the next gateway would not know is not
    // kept.
    session_kernel_call_settle(call, call->kind == KERNEL_CALL_OPEN ? err : NULL);
}

void
session_kernel_call_record(struct session_kernel_call *call)
{
    struct kg_error err = {0};
    call->recording = session_record(call->session, call_on_recorded, call, &err);
    if (call->recording)
        return;
    log_warning("the kernels of a session are not recorded", LOG_STR("session", call->session->id),
                LOG_ERR(&err));
    session_kernel_call_settle(call, call->kind == KERNEL_CALL_OPEN ? &err : NULL);
}

// ---- Removing -------------------------------------------------------------------------------

static void ask_to_remove(struct session_kernel_call *call);

static void
call_on_removed(const json_t *body, const struct kg_error *err, void *arg)
{
    struct session_kernel_call *call = arg;
    call->stop = NULL;
    if (body || err->code == KG_NOT_FOUND) {
        session_kernel_call_settle(call, NULL);
    } else if (!call->by_stop) {
        call->by_stop = true; // an older agent can only stop it
        ask_to_remove(call);
    } else {
        log_warning("the process of a removed kernel was not stopped",
                    LOG_STR("session", call->session->id), LOG_ERR(err));
        session_kernel_call_settle(call, err);
    }
}

static void
ask_to_remove(struct session_kernel_call *call)
{
    struct kg_error err = {0};
    json_auto_t *params = json_pack("{s:s}", "name", call->name);
    call->stop = sandbox_agent_call(call->session->sandbox,
                                    call->by_stop ? "kernels.stop"
                                    : call->alone ? "kernels.end"
                                                  : "kernels.remove",
                                    params, REMOVE_TIMEOUT_MS, call_on_removed, call, &err);
    if (!call->stop)
        session_kernel_call_settle(call, &err);
}

struct session_kernel_call *
session_kernel_call_waiting(const struct session *session, enum session_kernel_call_kind kind,
                            const char *name)
{
    struct session_kernel_call *call;
    TAILQ_FOREACH(call, &session->kernel_calls, link) {
        if (call->kind == kind && call->waits && (!name || strcmp(call->name, name) == 0))
            return call;
    }
    return NULL;
}

// A callback may have cancelled it.
static bool
is_under_way(const struct session *session, const struct session_kernel_call *wanted)
{
    const struct session_kernel_call *call;
    TAILQ_FOREACH(call, &session->kernel_calls, link) {
        if (call == wanted)
            break;
    }
    return call;
}

// Ends the kernel. Afterwards the call may be gone, and the session may have ended.
static void
end_kernel(struct session_kernel_call *call)
{
    struct session *session = call->session;
    struct session_kernel *kernel = session_kernel_named(session, call->name);
    struct session_kernel_call *opens =
        session_kernel_call_waiting(session, KERNEL_CALL_OPEN, call->name);
    struct kg_error err = {0};
    call->waits = false;
    call->n_pending = 2;
    session_drop_kernel(session, kernel, "the kernel was removed");
    if (session->state != SESSION_READY) // a reader of its executions has ended it
        return;
    if (opens)
        opens->waits = false;
    session_kernel_call_record(call);
    ask_to_remove(call);
    if (opens && session->state == SESSION_READY && is_under_way(session, opens)) {
        kg_error_set(&err, KG_NOT_FOUND, 0, "the kernel was removed meanwhile");
        session_kernel_call_settle(opens, &err);
    }
}

static struct session_kernel_call *
first_to_end(const struct session *session)
{
    struct session_kernel_call *call;
    TAILQ_FOREACH(call, &session->kernel_calls, link) {
        if (call->kind == KERNEL_CALL_REMOVE && call->waits &&
            !kernel_is_starting(session_kernel_named(session, call->name)->kernel))
            return call;
    }
    return NULL;
}

struct session_kernel_call *
session_kernel_remove(struct session *session, const char *name, session_kernel_fn fn, void *arg,
                      struct kg_error *err)
{
    if (!session_kernel_find(session, name, err))
        return NULL;
    session_touch(session);
    session->outlives_kernels = true;
    return session_kernel_begin_to_remove(session, session_kernel_named(session, name), fn, arg);
}

void
session_kernel_forget(struct session *session, const char *name, bool alone)
{
    struct session_kernel_call *call =
        session_kernel_call_new(session, KERNEL_CALL_REMOVE, name, NULL, NULL);
    call->waits = false;
    call->alone = alone;
    call->n_pending = 1;
    ask_to_remove(call);
}

// ---- Restarting -----------------------------------------------------------------------------

static void
call_on_restarted(const struct kg_error *err, void *arg)
{
    struct session_kernel_call *call = arg;
    call->restarted = true;
    if (err)
        call->err = *err;
    loop_timer_start(call->session->step, 0);
}

struct session_kernel_call *
session_kernel_restart(struct session *session, const char *name, session_kernel_fn fn, void *arg,
                       struct kg_error *err)
{
    return session_kernel_restore(session, name, NULL, fn, arg, err);
}

struct session_kernel_call *
session_kernel_restore(struct session *session, const char *name,
                       const struct session_savepoint *savepoint, session_kernel_fn fn, void *arg,
                       struct kg_error *err)
{
    struct kernel *kernel = session_kernel_find(session, name, err);
    if (!kernel)
        return NULL;
    struct session_kernel_call *call =
        session_kernel_call_new(session, KERNEL_CALL_RESTART, name, fn, arg);
    call->n_pending = 1;
    int begun = savepoint ? kernel_restore(kernel, savepoint->id, savepoint->execution_count,
                                           savepoint->has_files, call_on_restarted, call, err)
                          : kernel_restart(kernel, call_on_restarted, call, err);
    if (begun < 0) {
        session_kernel_call_free(call);
        return NULL;
    }
    session_touch(session);
    return call;
}

int
session_kernel_interrupt(struct session *session, const char *name, bool *ret_busy,
                         struct kg_error *err)
{
    struct kernel *kernel = session_kernel_find(session, name, err);
    if (!kernel)
        return -1;
    bool busy = kernel_interrupt(kernel);
    session_touch(session);
    if (ret_busy)
        *ret_busy = busy;
    return 0;
}

// ---- The step -------------------------------------------------------------------------------

static struct session_kernel_call *
first_to_settle(const struct session *session)
{
    struct session_kernel_call *call;
    TAILQ_FOREACH(call, &session->kernel_calls, link) {
        const struct session_kernel *kernel = session_kernel_named(session, call->name);
        if (call->waits &&
            ((call->kind == KERNEL_CALL_OPEN && kernel && kernel_has_started(kernel->kernel)) ||
             (call->kind == KERNEL_CALL_RESTART && call->restarted)))
            return call;
    }
    return NULL;
}

void
session_kernel_calls_step(struct session *session)
{
    struct session_kernel_call *call;
    while (session->state == SESSION_READY && (call = first_to_settle(session))) {
        call->waits = false;
        session_kernel_call_settle(call, NULL);
    }
    while (session->state == SESSION_READY && (call = first_to_end(session)))
        end_kernel(call);
}

// ---- Ends -----------------------------------------------------------------------------------

void
session_kernel_call_cancel(struct session_kernel_call *call)
{
    if (!call)
        return;
    call->fn = NULL;
    if (call->kind != KERNEL_CALL_OPEN)
        return;
    struct session_kernel *kernel = session_kernel_named(call->session, call->name);
    if (kernel && !kernel->remover)
        session_kernel_begin_to_remove(call->session, kernel, NULL, NULL);
    session_kernel_call_free(call);
}

void
session_kernel_calls_end(struct session *session, const struct kg_error *err)
{
    for (struct session_kernel_call *call; (call = TAILQ_FIRST(&session->kernel_calls));) {
        session_kernel_fn fn = call->fn;
        void *arg = call->arg;
        session_kernel_call_free(call);
        if (fn)
            fn(NULL, err, arg);
    }
}

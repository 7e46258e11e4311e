// SPDX-License-Identifier: Apache-2.0
// Operations on a whole session: describe, change, execute, interrupt, restart.

#include <string.h>

#include "sessions_priv.h"

static json_t *
rfc3339(int64_t wall_ms)
{
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(wall_ms, text);
    return json_string(text);
}

static json_t *
describe_kernel(const struct session *session, const struct kernel *kernel)
{
    json_t *description = kernel_describe(kernel);
    if (session_kernel_is_default(kernel))
        return description;
    json_object_set_new(description, "kernel", json_string(kernel_spec(kernel)->name));
    json_object_set_new(description, "cwd", json_string(session_kernel_cwd(session, kernel)));
    return description;
}

json_t *
session_describe(const struct session *session)
{
    json_t *kernels = json_object();
    for (size_t i = 0; i < session->n_kernels; i++) {
        const struct session_kernel *kernel = session->kernels[i];
        if (!kernel->remover)
            json_object_set_new(kernels, kernel_name(kernel->kernel),
                                describe_kernel(session, kernel->kernel));
    }
    int64_t memory = session->sandbox ? sandbox_memory(session->sandbox) : -1;
    struct sandbox_activity activity = session_activity(session);
    bool busy = session_is_busy(session);
    int64_t active_ms = busy ? clock_wall_ms() : session->active_wall_ms;
    int64_t ends_ms = session->ends_wall_ms;
    int64_t expires_ms = active_ms + session->idle_timeout_ms;
    if (ends_ms && expires_ms > ends_ms)
        expires_ms = ends_ms;
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:I, s:o, s:o, s:i, s:i, s:o}", "session_id",
                     session->id, "created_at", rfc3339(session->created_wall_ms), "last_activity",
                     rfc3339(active_ms), "expires_at", rfc3339(expires_ms), "ends_at",
                     ends_ms ? rfc3339(ends_ms) : json_null(), "is_busy", busy, "execution_count",
                     (json_int_t)session->execution_count, "kernels", kernels, "memory_bytes",
                     memory >= 0 ? json_integer(memory) : json_null(), "commands",
                     activity.n_running, "terminals", activity.n_terminals, "metadata",
                     json_deep_copy(session->metadata));
}

int64_t
session_age_ms(const struct session *session)
{
    return clock_wall_ms() - session->created_wall_ms;
}

int64_t
session_left_ms(const struct session *session)
{
    return session->ends_wall_ms ? session->ends_wall_ms - clock_wall_ms() : INT64_MAX;
}

// What session_change() changes.
struct changeable {
    json_t *metadata; // owned
    int64_t idle_timeout_ms, ends_wall_ms;
};

// Returns what the session had before.
static struct changeable
swap_changeable(struct session *session, struct changeable now)
{
    struct changeable was = {.metadata = session->metadata,
                             .idle_timeout_ms = session->idle_timeout_ms,
                             .ends_wall_ms = session->ends_wall_ms};
    session->metadata = now.metadata;
    session->idle_timeout_ms = now.idle_timeout_ms;
    session->ends_wall_ms = now.ends_wall_ms;
    return was;
}

struct session_recording *
session_change(struct session *session, const struct session_change *change, session_recorded_fn fn,
               void *arg, struct kg_error *err)
{
    int64_t ends_ms = change->lifetime_s ? clock_wall_ms() + change->lifetime_s * 1000
                                         : session->created_wall_ms + change->max_lifetime_s * 1000;
    if (session->state != SESSION_READY) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
        return NULL;
    }
    if (change->max_lifetime_s && ends_ms <= clock_wall_ms()) {
        kg_error_set(err, KG_INVALID, 0,
                     "max_lifetime: the session is older than that; to end it, delete it");
        return NULL;
    }
    struct changeable was = swap_changeable(
        session,
        (struct changeable){
            .metadata = change->metadata ? json_deep_copy(change->metadata)
                                         : json_incref(session->metadata),
            .idle_timeout_ms =
                change->idle_timeout_s ? change->idle_timeout_s * 1000 : session->idle_timeout_ms,
            .ends_wall_ms =
                change->max_lifetime_s || change->lifetime_s ? ends_ms : session->ends_wall_ms,
        });
    struct session_recording *recording = session_record(session, fn, arg, err);
    if (!recording)
        was = swap_changeable(session, was);
    json_decref(was.metadata);
    if (!recording)
        return NULL;
    session_touch(session);
    loop_timer_start(session->expiry, 0); // it looks again when it is due
    return recording;
}

struct execution *
session_execute(struct session *session, struct kernel *kernel, const struct session_code *code,
                struct kg_error *err)
{
    bool any_dropped = json_array_size(session->untold_savepoints) > 0;
    json_auto_t *dropped = any_dropped ? json_copy(session->untold_savepoints) : NULL;
    json_auto_t *more_done =
        json_pack("{s:s*, s:O*}", "savepoint", code->savepoint, "savepoints_dropped", dropped);
    const struct execution_request request = {
        .owner = session->owner,
        .session_id = session->id,
        .code = code->code,
        .max_image_side = code->max_image_side,
        .variables = code->variables,
        .env = code->env,
        .timeout_ms = code->timeout_ms,
        .keep_running = code->keep_running,
        .allow_stdin = code->allow_stdin,
        .more_done = more_done,
        .session_ends = session->one_shot,
        .tools = code->tools,
    };
    struct execution *execution = kernel_execute(kernel, &request, err);
    if (execution) {
        json_array_clear(session->untold_savepoints); // `done` of this execution reports them
        session_touch(session);
    }
    return execution;
}

bool
session_interrupt(struct session *session)
{
    bool any = false;
    for (size_t i = 0; i < session->n_kernels; i++)
        any |= kernel_interrupt(session->kernels[i]->kernel);
    session_touch(session);
    return any;
}

static void
on_restarted(const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    struct session_restart *restart = &session->restart;
    if (err && restart->err.code == KG_OK)
        restart->err = *err;
    if (--restart->n_pending > 0)
        return;
    session_restart_fn fn = KG_STEAL(restart->fn);
    fn(restart->err.code == KG_OK ? NULL : &restart->err, restart->arg);
}

int
session_restart(struct session *session, session_restart_fn fn, void *arg, struct kg_error *err)
{
    if (session->restart.n_pending > 0)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the session is already being restarted");
    if (session->n_kernels == 0)
        return session->outlives_kernels
                   ? kg_error_set(err, KG_NOT_FOUND, 0,
                                  "all kernels of the session were removed; run code to start one")
                   : kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
    session_touch(session);
    struct session_restart restart = {.fn = fn, .arg = arg};
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (kernel_restart(session->kernels[i]->kernel, on_restarted, session, err) == 0)
            restart.n_pending++;
    }
    if (restart.n_pending == 0)
        return -1; // none was started, so `fn` is not called
    session->restart = restart;
    return 0;
}

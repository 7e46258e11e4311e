// SPDX-License-Identifier: Apache-2.0
// Operations on a whole session: describe, execute, interrupt, restart.

#include <string.h>

#include "sessions_priv.h"

static json_t *
rfc3339(int64_t wall_ms)
{
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(wall_ms, text);
    return json_string(text);
}

json_t *
session_describe(const struct session *session)
{
    json_t *kernels = json_object();
    for (size_t i = 0; i < session->n_kernels; i++) {
        const struct kernel *kernel = session->kernels[i];
        json_object_set_new(kernels, kernel_spec(kernel)->name, kernel_describe(kernel));
    }
    int64_t memory = session->sandbox ? sandbox_memory(session->sandbox) : -1;
    bool busy = session_is_busy(session);
    int64_t active_ms = busy ? clock_wall_ms() : session->active_wall_ms;
    return json_pack("{s:s, s:o, s:o, s:o, s:b, s:I, s:o, s:o}", "session_id", session->id,
                     "created_at", rfc3339(session->created_wall_ms), "last_activity",
                     rfc3339(active_ms), "expires_at",
                     rfc3339(active_ms + session->idle_timeout_ms), "is_busy", busy,
                     "execution_count", (json_int_t)session->execution_count, "kernels", kernels,
                     "memory_bytes", memory >= 0 ? json_integer(memory) : json_null());
}

struct execution *
session_execute(struct session *session, struct kernel *kernel, const struct session_code *code,
                struct kg_error *err)
{
    const struct execution_request request = {
        .owner = session->owner,
        .session_id = session->id,
        .code = code->code,
        .max_image_side = code->max_image_side,
        .variables = code->variables,
        .env = code->env,
        .timeout_ms = code->timeout_ms,
        .keep_running = code->keep_running,
        .session_ends = session->one_shot,
    };
    struct execution *execution = kernel_execute(kernel, &request, err);
    if (execution)
        session_touch(session);
    return execution;
}

bool
session_interrupt(struct session *session)
{
    bool any = false;
    for (size_t i = 0; i < session->n_kernels; i++)
        any |= kernel_interrupt(session->kernels[i]);
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
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
    session_touch(session);
    struct session_restart restart = {.fn = fn, .arg = arg};
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (kernel_restart(session->kernels[i], on_restarted, session, err) == 0)
            restart.n_pending++;
    }
    if (restart.n_pending == 0)
        return -1; // none was started, so `fn` is not called
    session->restart = restart;
    return 0;
}

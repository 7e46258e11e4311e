// SPDX-License-Identifier: Apache-2.0
// The step of a session: what kernels' events lead to.

#include "session_kernels.h"
#include "sessions_priv.h"

// Removes kernels that could not be started, and fails what waits for them. A callback may add a
// kernel at the end, or end the session, which empties the list; it removes no other.
static void
remove_failed_kernels(struct session *session)
{
    for (size_t i = 0; i < session->n_kernels;) {
        struct session_kernel *kernel = session->kernels[i];
        if (kernel->remover || kernel_state(kernel->kernel) != KERNEL_DEAD ||
            kernel_has_started(kernel->kernel)) {
            i++;
            continue;
        }
        if (!session_kernel_is_default(kernel->kernel)) {
            session_kernel_opens_fail(session, kernel);
            i++;
            continue;
        }
        const struct kernelspec *spec = kernel_spec(kernel->kernel);
        const struct kg_error err = kernel->err;
        session_drop_kernel(session, kernel, NULL);
        session_opens_fail(session, spec, &err);
    }
}

static void
end_if_over(struct session *session)
{
    bool has_none = session->n_kernels == 0 && !session->outlives_kernels;
    if (session->broken)
        session_end(session, "the sandbox's agent does not answer", NULL, NULL);
    else if (session_is_over(session) || has_none)
        session_end(session, NULL, NULL, NULL);
}

// Runs the parts in turn while the session is ready. Callbacks of each part may end the session: it
// stays allocated until its sandbox is gone, which is reported in a later loop iteration.
void
session_step(void *arg)
{
    static void (*const parts[])(struct session * session) = {
        session_commands_run, session_opens_answer, remove_failed_kernels,
        session_kernel_calls_step, end_if_over};
    struct session *session = arg;
    for (size_t i = 0; i < KG_ARRAY_LEN(parts) && session->state == SESSION_READY; i++)
        parts[i](session);
}

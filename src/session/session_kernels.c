// SPDX-License-Identifier: Apache-2.0
// The kernels of a session, and its step, which does what kernels' events lead to: as a callback of
// the loop, since a kernel must not be freed from inside its events.

#include <string.h>

#include "session.h"
#include "session_commands.h"
#include "sessions_priv.h"

// ---- Events ---------------------------------------------------------------------------------

static void
session_on_kernel_started(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    for (size_t i = 0; i < session->n_kernels && err; i++) {
        if (session->kernels[i] == kernel)
            session->kernel_errs[i] = *err;
    }
    loop_timer_start(session->step, 0);
}

static void
session_on_execution_done(struct kernel *kernel, struct execution *execution, void *arg)
{
    (void)kernel;
    (void)execution;
    struct session *session = arg;
    session->execution_count++;
    if (session->state == SESSION_ENDING)
        return;
    session_touch(session);
    loop_timer_fire(session->step);
}

static void
session_on_kernel_broken(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    struct session *session = arg;
    log_warning("a session's sandbox can run no kernel any more", LOG_STR("session", session->id),
                LOG_ERR(err));
    session->broken = true;
    loop_timer_start(session->step, 0);
}

const struct kernel_events session_kernel_events = {
    .on_started = session_on_kernel_started,
    .on_broken = session_on_kernel_broken,
    .on_execution_done = session_on_execution_done,
};

// ---- Starting -------------------------------------------------------------------------------

void
session_add_kernel(struct session *session, struct kernel *kernel)
{
    session->kernel_errs[session->n_kernels] = (struct kg_error){0};
    session->kernels[session->n_kernels++] = kernel;
}

struct kernel *
session_kernel(struct session *session, const struct kernelspec *spec, struct kg_error *err)
{
    struct kernel *kernel = session_find_kernel(session, spec);
    if (kernel)
        return kernel;
    if (session->n_kernels == SESSION_MAX_KERNELS) {
        kg_error_set(err, KG_INVALID, 0, "a session has at most %d kernels", SESSION_MAX_KERNELS);
        return NULL;
    }
    const struct kernel_settings settings = {.spec = spec, .env = session->env};
    kernel = kernel_new(session->sessions->settings.kernels, session->sandbox, &settings,
                        &session_kernel_events, session);
    session_add_kernel(session, kernel);
    return kernel;
}

static const struct session_open *
open_without_kernel(const struct session *session)
{
    const struct session_open *open;
    TAILQ_FOREACH(open, &session->opens, link) {
        if (!session_find_kernel(session, open->spec))
            return open;
    }
    return NULL;
}

void
session_start_kernels(struct session *session)
{
    struct kg_error err = {0};
    const struct session_open *open;
    TAILQ_FOREACH(open, &session->opens, link)
        (void)!session_kernel(session, open->spec, &err);
    while ((open = open_without_kernel(session)))
        session_opens_fail(session, open->spec, &err);
    if (session->state == SESSION_READY) // a callback may have ended it
        loop_timer_start(session->step, 0);
}

// ---- The step -------------------------------------------------------------------------------

// Removes kernels that could not be started, and fails the opens that wait for them. A callback may
// add a kernel at the end, or end the session, which empties the list; it removes no other.
static void
remove_failed_kernels(struct session *session)
{
    for (size_t i = 0; i < session->n_kernels;) {
        struct kernel *kernel = session->kernels[i];
        if (kernel_state(kernel) != KERNEL_DEAD || kernel_has_started(kernel)) {
            i++;
            continue;
        }
        const struct kernelspec *spec = kernel_spec(kernel);
        const struct kg_error err = session->kernel_errs[i];
        size_t last = --session->n_kernels;
        session->kernels[i] = session->kernels[last];
        session->kernel_errs[i] = session->kernel_errs[last];
        kernel_free(kernel, NULL);
        session_opens_fail(session, spec, &err);
    }
}

static void
end_if_over(struct session *session)
{
    if (session->broken)
        session_end(session, "the sandbox's agent does not answer", NULL, NULL);
    else if (session_is_over(session) || session->n_kernels == 0)
        session_end(session, NULL, NULL, NULL);
}

// Runs the parts in turn while the session is ready. Callbacks of each part may end the session: it
// stays allocated until its sandbox is gone, which is reported in a later loop iteration.
void
session_step(void *arg)
{
    static void (*const parts[])(struct session * session) = {
        session_commands_run, session_opens_answer, remove_failed_kernels, end_if_over};
    struct session *session = arg;
    for (size_t i = 0; i < KG_ARRAY_LEN(parts) && session->state == SESSION_READY; i++)
        parts[i](session);
}

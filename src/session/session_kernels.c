// SPDX-License-Identifier: Apache-2.0
// The kernels of a session: their events, starting and finding them.

#include "session_kernels.h"

#include <string.h>

#include "session.h"
#include "sessions_priv.h"

// ---- Events ---------------------------------------------------------------------------------

static void
session_on_kernel_started(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    struct session_kernel *started = session_kernel_named(session, kernel_name(kernel));
    if (err && started)
        started->err = *err;
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

static void
session_on_kernel_settled(struct kernel *kernel, void *arg)
{
    (void)kernel;
    struct session *session = arg;
    loop_timer_start(session->step, 0);
}

const struct kernel_events session_kernel_events = {
    .on_started = session_on_kernel_started,
    .on_broken = session_on_kernel_broken,
    .on_execution_done = session_on_execution_done,
    .on_settled = session_on_kernel_settled,
};

// ---- Starting and ending --------------------------------------------------------------------

struct session_kernel *
session_add_kernel(struct session *session, struct kernel *kernel)
{
    struct session_kernel *added = KG_NEW(struct session_kernel);
    added->kernel = kernel;
    added->memory_bytes = -1;
    session->kernels[session->n_kernels++] = added;
    if (!session_kernel_is_default(kernel)) {
        budget_hold_start(&added->place, &session->sessions->further_kernels, session->owner);
        budget_hold_set(&added->place, 1);
    }
    return added;
}

void
session_drop_kernel(struct session *session, struct session_kernel *kernel, const char *reason)
{
    size_t i = 0;
    while (session->kernels[i] != kernel)
        i++;
    session->n_kernels--;
    for (; i < session->n_kernels; i++)
        session->kernels[i] = session->kernels[i + 1];
    budget_hold_end(&kernel->place);
    kernel_free(kernel->kernel, reason);
    free(kernel);
}

struct kernel_settings
session_kernel_settings(const struct session *session, const struct kernelspec *spec,
                        const char *name, const char *cwd)
{
    return (struct kernel_settings){
        .spec = spec,
        .name = name,
        .env = session->env,
        .folder = cwd ? cwd : session->home,
        .home = session->home,
    };
}

// Either there is one, or the process of one that was removed has not ended yet.
static bool
has_kernel_named(const struct session *session, const char *name)
{
    const struct session_kernel_call *call;
    if (session_kernel_named(session, name))
        return true;
    TAILQ_FOREACH(call, &session->kernel_calls, link) {
        if (strcmp(call->name, name) == 0)
            return true;
    }
    return false;
}

int
session_want_kernel(struct session *session, const struct kernelspec *spec, struct kg_error *err)
{
    if (has_kernel_named(session, spec->name))
        return 0;
    if (session->n_kernels == SESSION_MAX_KERNELS)
        return kg_error_set(err, KG_INVALID, 0, "a session has at most %d kernels",
                            SESSION_MAX_KERNELS);
    const struct kernel_settings settings = session_kernel_settings(session, spec, NULL, NULL);
    session_add_kernel(session, kernel_new(session->sessions->settings.kernels, session->sandbox,
                                           &settings, &session_kernel_events, session));
    return 0;
}

static const struct session_open *
open_without_kernel(const struct session *session)
{
    const struct session_open *open;
    TAILQ_FOREACH(open, &session->opens, link) {
        if (!has_kernel_named(session, open->spec->name))
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
        (void)!session_want_kernel(session, open->spec, &err);
    while ((open = open_without_kernel(session)))
        session_opens_fail(session, open->spec, &err);
    if (session->state == SESSION_READY) // a callback may have ended it
        loop_timer_start(session->step, 0);
}

// ---- Finding --------------------------------------------------------------------------------

bool
session_kernel_is_default(const struct kernel *kernel)
{
    return strcmp(kernel_name(kernel), kernel_spec(kernel)->name) == 0;
}

json_t *
session_process_named(const json_t *processes, const char *name)
{
    size_t i;
    json_t *process;
    json_array_foreach(processes, i, process) {
        const char *its_name = json_string_value(json_object_get(process, "name"));
        if (its_name && strcmp(its_name, name) == 0)
            return process;
    }
    return NULL;
}

int
session_taken_up_check(const struct session *session, struct kg_error *err)
{
    if (session->recorded_kernels || session->recorded_savepoints)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "the gateway has just started, and still asks the session what runs");
    return 0;
}

struct kernel *
session_kernel_find(const struct session *session, const char *name, struct kg_error *err)
{
    const struct session_kernel *kernel = session_kernel_named(session, name);
    if (kernel && !kernel->remover)
        return kernel->kernel;
    if (session_taken_up_check(session, err) == 0)
        kg_error_set(err, KG_NOT_FOUND, 0, "the session has no kernel \"%.40s\"", name);
    return NULL;
}

struct kernel *
session_first_kernel(const struct session *session)
{
    struct kernel *kernel;
    size_t i = 0;
    while ((kernel = session_kernel_at(session, i)) && !session_kernel_is_default(kernel))
        i++;
    return kernel;
}

struct kernel *
session_kernel_at(const struct session *session, size_t index)
{
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (!session->kernels[i]->remover && index-- == 0)
            return session->kernels[i]->kernel;
    }
    return NULL;
}

int64_t
session_kernel_memory(const struct session *session, const struct kernel *kernel)
{
    return session_kernel_named(session, kernel_name(kernel))->memory_bytes;
}

const char *
session_kernel_cwd(const struct session *session, const struct kernel *kernel)
{
    const char *folder = kernel_folder(kernel);
    return folder ? folder : session->home ? session->home : "/mnt/data";
}

// ---- Places ---------------------------------------------------------------------------------

void
sessions_kernels_init(struct sessions *sessions)
{
    size_t max = sessions->settings.max_further_kernels;
    budget_init(&sessions->further_kernels, "further_kernels", max, max);
    budget_set_several_owners(&sessions->further_kernels, sessions->settings.several_owners);
}

void
sessions_kernels_fini(struct sessions *sessions)
{
    budget_fini(&sessions->further_kernels);
}

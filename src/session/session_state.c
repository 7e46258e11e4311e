// SPDX-License-Identifier: Apache-2.0
// A session's state and activity: what all other files of the module use.

#include <assert.h>
#include <string.h>

#include "sessions_priv.h"

static const char *const state_names[] = {
    [SESSION_CREATING] = "creating",
    [SESSION_READY] = "ready",
    [SESSION_ENDING] = "ending",
};

struct session_bucket *
session_bucket_of(struct sessions *sessions, const char *id)
{
    return &sessions->buckets[hash_fnv1a(id, strlen(id)) % SESSION_BUCKETS];
}

void
session_rename(struct session *session, const char *id)
{
    LIST_REMOVE(session, in_bucket);
    snprintf(session->id, sizeof session->id, "%s", id);
    LIST_INSERT_HEAD(session_bucket_of(session->sessions, id), session, in_bucket);
}

void
session_set_state(struct session *session, enum session_state state)
{
    assert(session->state != SESSION_ENDING && state != SESSION_CREATING);
    log_debug("session state", LOG_STR("session", session->id),
              LOG_STR("from", state_names[session->state]), LOG_STR("to", state_names[state]));
    session->state = state;
}

const char *
session_id(const struct session *session)
{
    return session->id;
}

const char *
session_owner(const struct session *session)
{
    return session->owner;
}

struct sandbox *
session_sandbox(const struct session *session)
{
    return session->sandbox;
}

const json_t *
session_face(const struct session *session)
{
    return session->face;
}

const char *
session_home(const struct session *session)
{
    return session->home;
}

struct session_kernel *
session_kernel_named(const struct session *session, const char *name)
{
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (strcmp(kernel_name(session->kernels[i]->kernel), name) == 0)
            return session->kernels[i];
    }
    return NULL;
}

struct kernel *
session_find_kernel(const struct session *session, const struct kernelspec *spec)
{
    const struct session_kernel *kernel = session_kernel_named(session, spec->name);
    return kernel && !kernel->remover ? kernel->kernel : NULL;
}

void
session_keep(struct session *session)
{
    session->active_ms = clock_mono_ms();
    session->active_wall_ms = clock_wall_ms();
}

bool
session_is_used(const struct session *session)
{
    enum { USED_MS = 24 * 3600 * 1000 };
    return clock_mono_ms() - session->used_ms < USED_MS;
}

void
session_touch(struct session *session)
{
    session_keep(session);
    session->used_ms = session->active_ms;
}

int64_t
session_idle_ms(const struct session *session)
{
    return clock_mono_ms() - session->active_ms;
}

bool
session_is_busy(const struct session *session)
{
    return session_is_awaited(session) || session_works_alone(session);
}

bool
session_is_awaited(const struct session *session)
{
    // An adopted session may be busy until its agent has listed the kernels.
    if (session->state == SESSION_CREATING && session->sandbox)
        return true;
    if (session_commands_run_now(session) || !TAILQ_EMPTY(&session->downloads) ||
        !TAILQ_EMPTY(&session->installs) || !TAILQ_EMPTY(&session->savepoint_calls))
        return true;
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (kernel_is_busy(session->kernels[i]->kernel))
            return true;
    }
    return false;
}

bool
session_is_over(const struct session *session)
{
    return session->one_shot && TAILQ_EMPTY(&session->opens) &&
           TAILQ_EMPTY(&session->kernel_calls) && !session_is_busy(session);
}

bool
session_is_idle(const struct session *session)
{
    return session->state == SESSION_READY && TAILQ_EMPTY(&session->opens) &&
           TAILQ_EMPTY(&session->kernel_calls) && TAILQ_EMPTY(&session->clients) &&
           session->n_file_ops == 0 && session->restart.n_pending == 0 && !session_is_busy(session);
}

// SPDX-License-Identifier: Apache-2.0
// How a session ends: its sandbox is destroyed, or left to the next gateway.

#include "session_priv.h"

// Frees all but what its end still needs; tells those who wait.
static void
dismantle(struct session *session, const char *reason)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_SESSION_NOT_FOUND, 0, "%s",
                 reason ? reason : "the session was ended meanwhile");
    session_fail_opens(session, NULL, &err);
    session_commands_end(session, &err);
    session_downloads_end(session, &err);
    session_installs_end(session, &err);
    loop_timer_free(KG_STEAL(session->install_step));
    if (session->restart.fn) {
        kernel_restart_fn fn = KG_STEAL(session->restart.fn);
        fn(&err, session->restart.arg);
    }
    for (size_t i = 0; i < session->n_kernels; i++)
        kernel_free(session->kernels[i], reason);
    session->n_kernels = 0;
    loop_timer_free(KG_STEAL(session->expiry));
    loop_timer_free(KG_STEAL(session->wake));
    if (session->asking)
        pool_request_cancel(KG_STEAL(session->asking));
}

static void
dispose(struct session *session)
{
    json_decref(session->env);
    json_decref(session->packages);
    free(session->owner);
    free(session);
}

void
session_free(struct session *session)
{
    struct sessions *sessions = session->sessions;
    TAILQ_REMOVE(&sessions->live, session, link);
    sessions->n_live--;
    session_set_state(session, SESSION_ENDING);
    dismantle(session, "the gateway is shutting down");
    sandbox_free(session->sandbox);
    dispose(session);
}

static void
on_destroyed(const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    struct sessions *sessions = session->sessions;
    if (err)
        log_error("a sandbox was not destroyed", LOG_STR("session", session->id), LOG_ERR(err));
    else
        log_info("session ended", LOG_STR("session", session->id));
    TAILQ_REMOVE(&sessions->ending, session, link);
    if (session->on_ended)
        session->on_ended(session->on_ended_arg);
    dispose(session);
    sessions_look_whether_ended(sessions);
}

void
session_end(struct session *session, const char *reason, loop_fn on_done, void *arg)
{
    struct sessions *sessions = session->sessions;
    TAILQ_REMOVE(&sessions->live, session, link);
    sessions->n_live--;
    TAILQ_INSERT_TAIL(&sessions->ending, session, link);
    session_set_state(session, SESSION_ENDING);
    session->on_ended = on_done;
    session->on_ended_arg = arg;
    dismantle(session, reason);
    if (session->sandbox)
        sandbox_destroy(session->sandbox, on_destroyed, session);
    else
        on_destroyed(NULL, session);
}

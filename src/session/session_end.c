// SPDX-License-Identifier: Apache-2.0
// The end of one session and of all: sandboxes are destroyed, or left to the next gateway.

#include "packages.h"
#include "pool.h"
#include "session.h"
#include "session_requests.h"
#include "session_tools.h"
#include "sessions_priv.h"

static void
report_if_all_ended(struct sessions *sessions)
{
    if (!sessions->on_all_ended || !sessions->pool_ended || !TAILQ_EMPTY(&sessions->live) ||
        !TAILQ_EMPTY(&sessions->ending))
        return;
    loop_fn fn = KG_STEAL(sessions->on_all_ended);
    fn(sessions->on_all_ended_arg);
}

// ---- One ------------------------------------------------------------------------------------

// Ends everything that clients wait for, and frees all but what the sandbox's end still needs.
static void
dismantle(struct session *session, const char *reason, const struct kg_error *opens_err)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_SESSION_NOT_FOUND, 0, "%s", reason ? reason : "the session has ended");
    session_opens_fail(session, NULL, opens_err ? opens_err : &err);
    session_savepoints_end(session, &err);
    session_savepoint_files_end(session);
    session_kernel_calls_end(session, &err);
    session_recordings_end(session, &err);
    session_commands_end(session, &err);
    session_downloads_end(session, &err);
    session_requests_end(session);
    session_tools_end(session);
    session_installs_end(session, &err);
    session_ports_end(session, &err);
    session_watches_end(session, &err);
    session_clients_end(session);
    loop_timer_free(KG_STEAL(session->install_step));
    if (session->restart.fn) {
        session_restart_fn fn = KG_STEAL(session->restart.fn);
        fn(&err, session->restart.arg);
    }
    while (session->n_kernels > 0)
        session_drop_kernel(session, session->kernels[0], reason);
    loop_timer_free(KG_STEAL(session->expiry));
    loop_timer_free(KG_STEAL(session->step));
    if (session->pool_request)
        pool_request_cancel(KG_STEAL(session->pool_request));
}

static void
dispose(struct session *session)
{
    json_decref(session->env);
    json_decref(session->recorded_kernels);
    session_savepoints_fini(session);
    free(session->home);
    json_decref(session->metadata);
    json_decref(session->face);
    free(session->tokens);
    json_decref(session->packages);
    free(session->owner);
    free(session);
}

static void
session_on_destroyed(const struct kg_error *err, void *arg)
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
    report_if_all_ended(sessions);
}

// Takes the session out of the registry first: a callback may open another one of the same name.
static void
end_now(struct session *session, const char *reason, const struct kg_error *opens_err)
{
    struct sessions *sessions = session->sessions;
    TAILQ_REMOVE(&sessions->live, session, link);
    LIST_REMOVE(session, in_bucket);
    sessions->n_live--;
    TAILQ_INSERT_TAIL(&sessions->ending, session, link);
    session_set_state(session, SESSION_ENDING);
    dismantle(session, reason, opens_err);
    if (session->sandbox && sessions->settings.packages)
        packages_use_set(sessions->settings.packages, sandbox_id(session->sandbox), session->owner,
                         NULL);
    if (session->sandbox)
        sandbox_destroy(session->sandbox, session_on_destroyed, session);
    else
        session_on_destroyed(NULL, session);
}

void
session_end(struct session *session, const char *reason, loop_fn on_done, void *arg)
{
    session->on_ended = on_done;
    session->on_ended_arg = arg;
    end_now(session, reason, NULL);
}

void
session_fail(struct session *session, const struct kg_error *err)
{
    end_now(session, err->message, err);
}

// ---- All ------------------------------------------------------------------------------------

static void
sessions_on_pool_ended(void *arg)
{
    struct sessions *sessions = arg;
    sessions->pool_ended = true;
    report_if_all_ended(sessions);
}

void
sessions_end_all(struct sessions *sessions, const char *reason, loop_fn on_done, void *arg)
{
    sessions->on_all_ended = on_done;
    sessions->on_all_ended_arg = arg;
    if (sessions->settings.packages)
        packages_stop(sessions->settings.packages);
    for (struct session *session; (session = TAILQ_FIRST(&sessions->live));)
        session_end(session, reason, NULL, NULL);
    pool_end(sessions->pool, sessions_on_pool_ended, sessions);
}

static void
release(struct session *session, void (*leave)(struct sandbox *sandbox))
{
    struct sessions *sessions = session->sessions;
    TAILQ_REMOVE(&sessions->live, session, link);
    LIST_REMOVE(session, in_bucket);
    sessions->n_live--;
    session_set_state(session, SESSION_ENDING);
    dismantle(session, "the gateway is shutting down", NULL);
    leave(session->sandbox);
    dispose(session);
}

void
sessions_hand_over(struct sessions *sessions)
{
    struct session *next;
    for (struct session *session = TAILQ_FIRST(&sessions->live); session; session = next) {
        next = TAILQ_NEXT(session, link);
        if (!session_is_idle(session))
            continue;
        log_info("session handed over", LOG_STR("session", session->id));
        release(session, sandbox_hand_over);
    }
}

void
sessions_release(struct sessions *sessions)
{
    if (sessions->settings.packages)
        packages_stop(sessions->settings.packages);
    pool_stop(sessions->pool);
    for (struct session *session; (session = TAILQ_FIRST(&sessions->live));)
        release(session, sandbox_free);
}

// SPDX-License-Identifier: Apache-2.0
// The session of a job.

#include <stdio.h>
#include <string.h>

#include "tools_priv.h"

enum { RANDOM_ID_LEN = 16 };

// A value of the MCP session: the session that its calls use by default.
struct own_session {
    struct mcp_tools *tools;
    const struct mcp_session *client;
    char *owner;
    bool opened; // it has existed
    char id[SESSION_MAX_ID_LEN + 1];
};

static const char own_key;

// The client may not come back. The session stays until it expires or its place is needed.
static void
own_session_free(void *value)
{
    struct own_session *own = value;
    made_sessions_leave(own->tools, own->client, own->id);
    free(own->owner);
    free(own);
}

// NULL: the call has no MCP session.
static struct own_session *
own_session(const struct job *job)
{
    if (!mcp_call_has_session(job->call))
        return NULL;
    struct own_session *own = mcp_call_session_value(job->call, &own_key);
    if (own)
        return own;
    own = KG_NEW(struct own_session);
    own->tools = job->tools;
    own->client = mcp_call_session(job->call);
    own->owner = kg_strdup(mcp_call_owner(job->call));
    snprintf(own->id, sizeof own->id, "sess_");
    id_random(own->id + strlen(own->id), RANDOM_ID_LEN);
    mcp_call_set_session_value(job->call, &own_key, own, own_session_free);
    return own;
}

// The call's MCP session, whose end own_session_free() reports; NULL: it has none.
static const struct mcp_session *
client_of(const struct job *job)
{
    const struct own_session *own = own_session(job);
    return own ? own->client : NULL;
}

const char *
job_own_session_id(const struct job *job)
{
    const struct own_session *own = own_session(job);
    return own ? own->id : NULL;
}

// The client has closed its own session, so the result need not say that the next one is new.
static void
forget_own_session(const struct job *job, const char *id)
{
    struct own_session *own = own_session(job);
    if (own && strcmp(own->id, id) == 0)
        own->opened = false;
}

json_t *
job_describe_sessions(const struct job *job)
{
    json_t *sessions =
        sessions_describe(job->tools->settings.face->sessions, mcp_call_owner(job->call));
    const json_t *body;
    size_t i;
    json_array_foreach(mcp_call_elsewhere(job->call), i, body) {
        json_auto_t *copy = json_deep_copy(json_object_get(body, "sessions"));
        json_object_update(sessions, copy);
    }
    return sessions;
}

json_t *
job_session_ids(const struct job *job)
{
    return sessions_ids(job->tools->settings.face->sessions, mcp_call_owner(job->call));
}

struct session *
job_find_session(struct job *job, const char *id, struct kg_error *err)
{
    const char *meant = id ? id : job_own_session_id(job);
    if (meant)
        return sessions_find(job->tools->settings.face->sessions, mcp_call_owner(job->call), meant,
                             err);
    kg_error_set(err, KG_INVALID_SESSION_ID, 0,
                 "session_id is missing, and this connection has no session of its own: call "
                 "create_session first");
    return NULL;
}

static void
opened(struct job *job, struct session *session, struct kernel *kernel)
{
    const char *id = session_id(session);
    snprintf(job->session.id, sizeof job->session.id, "%s", id);
    struct own_session *own = own_session(job);
    if (own && strcmp(own->id, id) == 0)
        own->opened = true;
    job->session.on_ready(job, session, kernel);
}

// The client knows the session, or has chosen its id.
static bool
names_session(const struct job *job)
{
    return job_string(job, "session_id") || job_string(job, "sandbox_id");
}

static void
note_made(struct job *job, const char *id)
{
    const struct own_session *own = own_session(job);
    bool is_own = own && strcmp(own->id, id) == 0;
    const struct made_session_traits traits = {
        .client = client_of(job),
        .is_named = is_own || names_session(job) || job->session.is_asked_for,
        .of_profile = !is_own && !names_session(job) && !job->session.is_asked_for &&
                      job->session.note != JOB_NOTE_NEW,
        .is_chosen = names_session(job),
        .has_own_timeout = job->session.has_own_timeout,
    };
    made_session_add(job->tools, mcp_call_owner(job->call), id, &traits);
}

static void
on_open(struct session *session, struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct job *job = arg;
    job->session.open = NULL;
    if (err) {
        job_fail(job, err);
        return;
    }
    bool again = job->session.note == JOB_NOTE_AGAIN;
    mcp_call_log(job->call, again ? MCP_LOG_WARNING : MCP_LOG_DEBUG, JOB_LOGGER,
                 json_sprintf("session %s %s", session_id(session),
                              again ? "was created again" : "is ready"));
    if (job->session.is_made)
        note_made(job, session_id(session));
    opened(job, session, kernel);
}

static void
start_opening(struct job *job, const struct session_request *request)
{
    struct sessions *sessions = job->tools->settings.face->sessions;
    struct kg_error err = {0};
    job->session.open = session_open_start(sessions, request, on_open, job, &err);
    if (!job->session.open && err.code == KG_MAX_SESSIONS &&
        made_session_evict(job->tools, request->owner))
        job->session.open = session_open_start(sessions, request, on_open, job, &err);
    if (!job->session.open)
        job_fail(job, &err);
}

void
job_open_session(struct job *job, const struct job_session *want, job_ready_fn fn)
{
    const struct mcp_tools_settings *settings = &job->tools->settings;
    struct own_session *own = want->kind == JOB_SESSION_OWN && !want->id ? own_session(job) : NULL;
    const char *owner = mcp_call_owner(job->call), *id = own ? own->id : want->id;
    struct kg_error err = {0};
    struct session *found = id ? sessions_find(settings->face->sessions, owner, id, &err) : NULL;
    job->session.on_ready = fn;
    if (id && !found && (want->must_exist || err.code != KG_SESSION_NOT_FOUND)) {
        job_fail(job, &err);
        return;
    }
    if (want->id)
        made_session_touch(job->tools, owner, want->id, client_of(job));
    // A session that another call is creating has no sandbox yet: then this call waits for it, too.
    if (found && !want->spec && session_sandbox(found)) {
        session_touch(found);
        opened(job, found, NULL);
        return;
    }
    bool is_new = !found && !want->creates;
    bool one_shot = want->kind == JOB_SESSION_ONE_SHOT && !id;
    job->session.is_made = !found && !one_shot;
    job->session.is_asked_for = want->creates;
    job->session.has_own_timeout = want->idle_timeout_s > 0;
    if (is_new && (names_session(job) || (own && own->opened)))
        job->session.note = JOB_NOTE_AGAIN;
    else if (is_new && !own && want->kind == JOB_SESSION_OWN)
        job->session.note = JOB_NOTE_NEW;
    const struct session_request request = {
        .owner = owner,
        .session_id = id,
        .kernelspec = want->spec ? want->spec : settings->face->default_spec,
        .env = want->env,
        .idle_timeout_s = want->idle_timeout_s,
        .one_shot = one_shot,
    };
    start_opening(job, &request);
}

// ---- Closing --------------------------------------------------------------------------------

struct closing {
    struct job *job; // NULL: freed
    char id[SESSION_MAX_ID_LEN + 1];
};

static void
forget_job(void *work)
{
    struct closing *closing = work;
    closing->job = NULL;
}

static void
on_closed(void *arg)
{
    KG_AUTO_FREE struct closing *closing = arg;
    struct job *job = closing->job;
    if (!job)
        return;
    job->work = NULL;
    job->session.on_closed(job, closing->id);
}

void
job_close_session(struct job *job, struct session *session,
                  void (*fn)(struct job *, const char *id))
{
    struct closing *closing = KG_NEW(struct closing);
    closing->job = job;
    memcpy(closing->id, session_id(session), strlen(session_id(session)));
    made_session_remove(job->tools, mcp_call_owner(job->call), closing->id);
    forget_own_session(job, closing->id);
    job->work = closing;
    job->cancel_work = forget_job;
    job->session.on_closed = fn;
    session_end(session, "the session was ended by its owner", on_closed, closing);
}

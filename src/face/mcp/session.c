// SPDX-License-Identifier: Apache-2.0
// MCP sessions: what is kept between the requests of a client, the limits of their number, and
// their expiry.

#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"
#include "metrics.h"

struct mcp_session *
mcp_session_new(struct mcp *mcp, const char *owner, const char *profile)
{
    struct mcp_session *session = KG_NEW(struct mcp_session);
    session->mcp = mcp;
    id_random_hex(session->id, MCP_SESSION_ID_LEN);
    snprintf(session->id + MCP_SESSION_ID_LEN, sizeof session->id - MCP_SESSION_ID_LEN, "%s",
             mcp->id_suffix);
    session->owner = kg_strdup(owner);
    budget_hold_start(&session->replay, &mcp->replay, owner);
    session->profile = kg_strdup(profile);
    session->revision = MCP_2025_11_25;
    session->log_level = MCP_LOG_INFO;
    session->used_ms = clock_mono_ms();
    LIST_INIT(&session->calls);
    TAILQ_INIT(&session->streams);
    LIST_INSERT_HEAD(&mcp->sessions, session, link);
    mcp_start_clock(mcp);
    return session;
}

static void
session_free(struct mcp_session *session)
{
    LIST_REMOVE(session, link);
    struct sse *sse;
    while ((sse = TAILQ_FIRST(&session->streams)))
        sse_free(sse);
    budget_hold_end(&session->replay);
    for (size_t i = 0; i < session->n_values; i++) {
        if (session->values[i].free_fn)
            session->values[i].free_fn(session->values[i].value);
    }
    free(session->values);
    free(session->base_url);
    free(session->host_id);
    free(session->profile);
    free(session->owner);
    free(session);
}

// ---- The registry ---------------------------------------------------------------------------

static struct session_bucket *
bucket_of(struct mcp *mcp, const char *id)
{
    unsigned hash = 0;
    for (int i = 0; i < 8 && id[i]; i++)
        hash = hash * 31 + (unsigned char)id[i];
    return &mcp->buckets[hash % SESSION_BUCKETS];
}

static bool
has_connection(const struct mcp_session *session)
{
    const struct sse *sse;
    TAILQ_FOREACH(sse, &session->streams, in_session) {
        if (sse->request)
            return true;
    }
    return false;
}

static bool
is_idle(const struct mcp_session *session)
{
    return session->n_calls == 0 && !has_connection(session);
}

int64_t
mcp_session_idle_ms(const struct mcp_session *session)
{
    bool can_leave = session->registered || session->closed;
    return can_leave && is_idle(session) ? clock_mono_ms() - session->used_ms : 0;
}

// Ends the owner's longest idle session if there are too many.
static int
make_room(struct mcp *mcp, const char *owner, struct kg_error *err)
{
    size_t of_owner = 0;
    struct mcp_session *session;
    struct mcp_session *longest_idle = NULL;
    TAILQ_FOREACH(session, &mcp->by_use, by_use) {
        if (!budget_is_common(session->owner, owner))
            continue;
        of_owner++;
        if (!longest_idle && is_idle(session))
            longest_idle = session;
    }
    bool full = mcp->n_registered >= mcp->max_sessions;
    if (!full && of_owner < mcp->max_sessions_per_owner)
        return 0;
    if (!longest_idle)
        return kg_error_set(err, KG_MAX_SESSIONS, 0,
                            "too many MCP sessions: end one with DELETE, or try again later");
    mcp_session_close(longest_idle);
    return 0;
}

int
mcp_session_register(struct mcp_session *session, struct kg_error *err)
{
    struct mcp *mcp = session->mcp;
    if (mcp->draining)
        return kg_error_set(err, KG_DRAINING, 0, "the gateway is shutting down");
    if (make_room(mcp, session->owner, err) < 0)
        return -1;
    session->registered = true;
    mcp->n_registered++;
    LIST_INSERT_HEAD(bucket_of(mcp, session->id), session, in_bucket);
    TAILQ_INSERT_TAIL(&mcp->by_use, session, by_use);
    metric_set(METRIC_MCP_SESSIONS, (double)mcp->n_registered);
    return 0;
}

static void
session_unregister(struct mcp_session *session)
{
    if (!session->registered)
        return;
    struct mcp *mcp = session->mcp;
    session->registered = false;
    mcp->n_registered--;
    LIST_REMOVE(session, in_bucket);
    TAILQ_REMOVE(&mcp->by_use, session, by_use);
    metric_set(METRIC_MCP_SESSIONS, (double)mcp->n_registered);
}

static void
touch(struct mcp_session *session)
{
    session->used_ms = clock_mono_ms();
    if (!session->registered)
        return;
    TAILQ_REMOVE(&session->mcp->by_use, session, by_use);
    TAILQ_INSERT_TAIL(&session->mcp->by_use, session, by_use);
}

struct mcp_session *
mcp_session_find(struct mcp *mcp, const char *owner, const char *id)
{
    struct mcp_session *session;
    LIST_FOREACH(session, bucket_of(mcp, id), in_bucket) {
        if (strcmp(session->id, id) != 0 || strcmp(session->owner, owner) != 0)
            continue;
        touch(session);
        return session;
    }
    return NULL;
}

bool
mcp_made_id(const struct mcp *mcp, const char *id)
{
    size_t len = strlen(id), suffix_len = strlen(mcp->id_suffix);
    return len > suffix_len && strcmp(id + len - suffix_len, mcp->id_suffix) == 0;
}

struct mcp_session *
mcp_session_next_guest(struct mcp *mcp, struct mcp_session *after, const char *owner,
                       const char *host_id)
{
    struct mcp_session *session = after ? LIST_NEXT(after, link) : LIST_FIRST(&mcp->sessions);
    while (session && !(session->host_id && strcmp(session->host_id, host_id) == 0 &&
                        strcmp(session->owner, owner) == 0))
        session = LIST_NEXT(session, link);
    return session;
}

// ---- Streams --------------------------------------------------------------------------------

static void
on_client_left(void *arg)
{
    touch(arg);
}

struct sse *
mcp_session_stream(struct mcp_session *session, bool kept)
{
    struct sse *sse = sse_new(session->mcp, session, kept);
    sse->on_left = on_client_left;
    return sse;
}

// ---- The end --------------------------------------------------------------------------------

static struct mcp_call *
next_to_cancel(struct mcp_session *session)
{
    struct mcp_call *call;
    LIST_FOREACH(call, &session->calls, in_session) {
        if (!call->cancelled)
            return call;
    }
    return NULL;
}

void
mcp_session_close(struct mcp_session *session)
{
    if (session->closed)
        return;
    session_unregister(session);
    session->closed = true;
    session->news = NULL;
    struct mcp_call *call;
    // One at a time: when a call is cancelled, it and others may be answered and freed.
    while ((call = next_to_cancel(session)))
        mcp_call_cancel(call);
    struct sse *sse;
    TAILQ_FOREACH(sse, &session->streams, in_session)
        sse_disconnect(sse);
    mcp_session_release(session);
}

void
mcp_session_release(struct mcp_session *session)
{
    if (!session->closed && !session->host_id)
        touch(session);
    else if (session->n_calls == 0)
        loop_timer_start(session->mcp->reaper, 0); // not now: a provider may be on the stack
}

void
mcp_sessions_reap(struct mcp *mcp)
{
    struct mcp_session *session = LIST_FIRST(&mcp->sessions);
    while (session) {
        struct mcp_session *next = LIST_NEXT(session, link);
        if ((session->closed || session->host_id) && session->n_calls == 0)
            session_free(session);
        session = next;
    }
}

void
mcp_sessions_expire(struct mcp *mcp)
{
    int64_t before_ms = clock_mono_ms() - mcp->session_idle_ms;
    struct mcp_session *session = TAILQ_FIRST(&mcp->by_use);
    while (session && session->used_ms < before_ms) {
        struct mcp_session *next = TAILQ_NEXT(session, by_use);
        if (is_idle(session)) {
            log_debug("mcp session expired", LOG_STR("session", session->id));
            mcp_session_close(session);
        }
        session = next;
    }
}

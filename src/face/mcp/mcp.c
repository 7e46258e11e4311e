// SPDX-License-Identifier: Apache-2.0
// The adapter: its providers, its timers, its end.

#include <string.h>

#include "mcp_priv.h"

static void
on_tick(void *arg)
{
    struct mcp *mcp = arg;
    int64_t now_ms = clock_mono_ms();
    mcp_sessions_expire(mcp);
    if (now_ms - mcp->last_keepalive_ms >= MCP_KEEPALIVE_MS) {
        mcp->last_keepalive_ms = now_ms;
        sse_keepalive(mcp);
    }
    if (!LIST_EMPTY(&mcp->sessions) || !LIST_EMPTY(&mcp->connected))
        loop_timer_start(mcp->tick, MCP_TICK_MS);
}

static void
on_reap(void *arg)
{
    mcp_sessions_reap(arg);
}

struct mcp *
mcp_new(const struct mcp_settings *settings)
{
    struct mcp *mcp = KG_NEW(struct mcp);
    mcp->loop = settings->loop;
    mcp->max_sessions = settings->max_sessions;
    mcp->max_sessions_per_owner = settings->max_sessions_per_owner;
    mcp->session_idle_ms = settings->session_idle_ms;
    mcp->max_replay_bytes = settings->max_replay_bytes;
    size_t n = 0;
    while (settings->profiles && settings->profiles[n])
        n++;
    mcp->profiles = kg_calloc(n + 1, sizeof mcp->profiles[0]);
    for (size_t i = 0; i < n; i++)
        mcp->profiles[i] = kg_strdup(settings->profiles[i]);
    if (settings->id_suffix)
        strncat(mcp->id_suffix, settings->id_suffix, MCP_SUFFIX_MAX);
    TAILQ_INIT(&mcp->by_use);
    TAILQ_INIT(&mcp->bodies);
    TAILQ_INIT(&mcp->room_waits);
    budget_init(&mcp->requests, "mcp_request_bytes", MCP_HELD_MAX, MCP_OWNER_HELD_MAX);
    budget_init(&mcp->answers, "mcp_answer_bytes", MCP_ANSWERS_MAX, MCP_OWNER_ANSWERS_MAX);
    budget_init(&mcp->replay, "mcp_replay_bytes", MCP_REPLAY_TOTAL_MAX, MCP_REPLAY_OWNER_MAX);
    mcp->room_wait_ms = MCP_ROOM_WAIT_MS;
    mcp->tick = loop_timer_new(mcp->loop, on_tick, mcp);
    mcp->reaper = loop_timer_new(mcp->loop, on_reap, mcp);
    return mcp;
}

void
mcp_add_provider(struct mcp *mcp, const struct mcp_provider *provider, void *arg)
{
    mcp->providers = kg_realloc(mcp->providers, (mcp->n_providers + 1) * sizeof mcp->providers[0]);
    mcp->providers[mcp->n_providers++] = (struct provider_entry){.provider = provider, .arg = arg};
}

void
mcp_set_admit(struct mcp *mcp, mcp_admit_fn admit, void *arg)
{
    mcp->admit = admit;
    mcp->admit_arg = arg;
}

bool
mcp_knows_profile(const struct mcp *mcp, const char *profile)
{
    if (!*profile)
        return true;
    for (char **known = mcp->profiles; *known; known++) {
        if (strcmp(*known, profile) == 0)
            return true;
    }
    return false;
}

// Streams on which an answer is expected stay open. Others would never end.
void
mcp_drain(struct mcp *mcp)
{
    mcp->draining = true;
    struct mcp_call *call;
    while ((call = LIST_FIRST(&mcp->listeners)))
        mcp_end_listener(call);
    struct sse *sse = LIST_FIRST(&mcp->connected);
    while (sse) {
        struct sse *next = LIST_NEXT(sse, connected);
        struct mcp_session *session = sse->session;
        bool news = session && session->news == &sse->base;
        if (news && !(session->one_stream && session->n_calls > 0))
            sse_disconnect(sse);
        sse = next;
    }
}

void
mcp_free(struct mcp *mcp)
{
    if (!mcp)
        return;
    struct mcp_session *session;
    LIST_FOREACH(session, &mcp->sessions, link)
        mcp_session_close(session);
    struct mcp_call *call;
    while ((call = LIST_FIRST(&mcp->calls))) {
        if (call->encoding) {
            mcp_call_drop_answer(call);
            continue;
        }
        mcp_call_cancel(call);
        // The provider has not answered, and must not do so from now on.
        if (call == LIST_FIRST(&mcp->calls))
            mcp_call_answer(call, NULL, 200);
    }
    mcp_sessions_reap(mcp);
    budget_fini(&mcp->requests);
    budget_fini(&mcp->answers); // libevent may still have some to send
    budget_fini(&mcp->replay);
    loop_timer_free(mcp->tick);
    loop_timer_free(mcp->reaper);
    for (char **profile = mcp->profiles; *profile; profile++)
        free(*profile);
    free(mcp->profiles);
    free(mcp->providers);
    free(mcp);
}

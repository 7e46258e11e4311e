// SPDX-License-Identifier: Apache-2.0
// The sessions that MCP calls have made. Clients seldom close them, and many never come back. They
// live until they expire, like others, but where there are too many sessions, one of the owner's
// ends before a new session is refused. In this order:
//
// - one that no client can name or that none has named: the call that made it named none, or its
//   client has ended its MCP session;
// - of the clients of profiles, which can do nothing but name them, the one that was used longest
//   ago;
// - the one that was used longest ago of those whose client seems to have left without a word: it
//   has sent nothing for a while, and has no stream open. Those whose ids clients have chosen come
//   last; those for which a client has asked how long they are kept do not end.
//
// A client that comes back is informed by the result (JOB_NOTE_AGAIN) or by the error.

#include <string.h>

#include "tools_priv.h"

enum { MAX_MADE = 1024 };

static void
made_drop(struct mcp_tools *tools, struct made_session *made)
{
    TAILQ_REMOVE(&tools->made, made, link);
    tools->n_made--;
    free(made);
}

static bool
made_is_of(const struct made_session *made, const char *owner)
{
    return strcmp(made->owner, owner) == 0;
}

static struct made_session *
made_find(const struct mcp_tools *tools, const char *owner, const char *id)
{
    struct made_session *made;
    TAILQ_FOREACH(made, &tools->made, link) {
        if (made_is_of(made, owner) && strcmp(made->id, id) == 0)
            break;
    }
    return made;
}

static struct session *
made_session(const struct mcp_tools *tools, const struct made_session *made)
{
    return sessions_find(tools->settings.face->sessions, made->owner, made->id, NULL);
}

// Those that have ended are noticed here.
static void
made_bound(struct mcp_tools *tools)
{
    struct made_session *made, *next;
    if (tools->n_made <= MAX_MADE)
        return;
    for (made = TAILQ_FIRST(&tools->made); made; made = next) {
        next = TAILQ_NEXT(made, link);
        if (!made_session(tools, made))
            made_drop(tools, made);
    }
    if (tools->n_made > MAX_MADE)
        made_drop(tools, TAILQ_FIRST(&tools->made));
}

void
made_session_add(struct mcp_tools *tools, const char *owner, const char *id,
                 const struct made_session_traits *traits)
{
    size_t size = strlen(owner) + 1;
    made_session_remove(tools, owner, id);
    struct made_session *made = kg_calloc(1, sizeof *made + size);
    made->traits = *traits;
    memcpy(made->owner, owner, size);
    memcpy(made->id, id, strnlen(id, SESSION_MAX_ID_LEN));
    TAILQ_INSERT_TAIL(&tools->made, made, link);
    tools->n_made++;
    made_bound(tools);
}

void
made_session_remove(struct mcp_tools *tools, const char *owner, const char *id)
{
    struct made_session *made = made_find(tools, owner, id);
    if (made)
        made_drop(tools, made);
}

void
made_session_touch(struct mcp_tools *tools, const char *owner, const char *id,
                   const struct mcp_session *client)
{
    struct made_session *made = made_find(tools, owner, id);
    if (!made)
        return;
    made->traits.is_named = true;
    made->traits.client = client;
    TAILQ_REMOVE(&tools->made, made, link);
    TAILQ_INSERT_TAIL(&tools->made, made, link);
}

void
made_sessions_leave(struct mcp_tools *tools, const struct mcp_session *client, const char *own_id)
{
    struct made_session *made, *own = NULL;
    TAILQ_FOREACH(made, &tools->made, link) {
        if (made->traits.client != client)
            continue;
        made->traits.client = NULL;
        if (strcmp(made->id, own_id) == 0)
            own = made;
    }
    if (!own)
        return;
    own->traits.is_named = false;
    TAILQ_REMOVE(&tools->made, own, link);
    TAILQ_INSERT_TAIL(&tools->made, own, link);
}

// ---- The one that ends ----------------------------------------------------------------------

// Whether it has been idle for a while, and its client cannot be about to use it.
static bool
made_is_left(const struct mcp_tools *tools, const struct made_session *made,
             const struct session *session)
{
    int64_t left_ms = tools->settings.evict_idle_ms;
    const struct mcp_session *client = made->traits.client;
    return left_ms > 0 && session_idle_ms(session) >= left_ms &&
           (!client || mcp_session_idle_ms(client) >= left_ms);
}

// The order in which they end; -1: it does not.
static int
made_rank(const struct mcp_tools *tools, const struct made_session *made,
          const struct session *session)
{
    const struct made_session_traits *traits = &made->traits;
    if (!session_is_idle(session))
        return -1;
    if (!traits->is_named)
        return 0;
    if (traits->of_profile)
        return 1;
    if (traits->has_own_timeout || !made_is_left(tools, made, session))
        return -1;
    return traits->is_chosen ? 3 : 2;
}

bool
made_session_evict(struct mcp_tools *tools, const char *owner)
{
    struct session *found = NULL;
    int least = 4;
    struct made_session *made, *next;
    for (made = TAILQ_FIRST(&tools->made); made; made = next) {
        next = TAILQ_NEXT(made, link);
        if (!made_is_of(made, owner))
            continue;
        struct session *session = made_session(tools, made);
        int rank = session ? made_rank(tools, made, session) : -1;
        if (!session)
            made_drop(tools, made);
        // The list is in the order in which clients have named them; of the last two ranks, a
        // client may have used its own one since.
        bool older = rank >= 2 && rank == least && found &&
                     session_idle_ms(session) > session_idle_ms(found);
        if (rank >= 0 && (rank < least || older)) {
            least = rank;
            found = session;
        }
    }
    if (!found)
        return false;
    log_info("session evicted for an MCP client", LOG_STR("session", session_id(found)),
             LOG_STR("owner", owner), LOG_INT("idle_s", session_idle_ms(found) / 1000));
    made_session_remove(tools, owner, session_id(found));
    session_end(found, "the session was ended to make room for another one", NULL, NULL);
    return true;
}

void
made_sessions_fini(struct mcp_tools *tools)
{
    while (!TAILQ_EMPTY(&tools->made))
        made_drop(tools, TAILQ_FIRST(&tools->made));
}

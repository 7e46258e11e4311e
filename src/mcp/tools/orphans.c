// SPDX-License-Identifier: Apache-2.0
// Orphaned sessions, to which perhaps no client comes back. They live until they expire, like
// others, but if there are too many sessions, the oldest orphan is ended before a new session is
// refused.

#include <string.h>

#include "tools_priv.h"

enum { MAX_ORPHANS = 1024 };

static void
drop(struct mcp_tools *tools, struct orphaned_session *orphan)
{
    TAILQ_REMOVE(&tools->orphans, orphan, link);
    tools->n_orphans--;
    free(orphan);
}

static bool
is_of(const struct orphaned_session *orphan, const char *owner)
{
    return strcmp(orphan->owner, owner) == 0;
}

void
orphan_add(struct mcp_tools *tools, const char *owner, const char *id)
{
    size_t size = strlen(owner) + 1;
    struct orphaned_session *orphan = kg_calloc(1, sizeof *orphan + size);
    memcpy(orphan->owner, owner, size);
    memcpy(orphan->id, id, strnlen(id, SESSION_MAX_ID_LEN));
    TAILQ_INSERT_TAIL(&tools->orphans, orphan, link);
    if (++tools->n_orphans > MAX_ORPHANS)
        drop(tools, TAILQ_FIRST(&tools->orphans));
}

void
orphan_remove(struct mcp_tools *tools, const char *owner, const char *id)
{
    struct orphaned_session *orphan;
    TAILQ_FOREACH(orphan, &tools->orphans, link) {
        if (is_of(orphan, owner) && strcmp(orphan->id, id) == 0) {
            drop(tools, orphan);
            return;
        }
    }
}

bool
orphan_evict(struct mcp_tools *tools, const char *owner)
{
    struct orphaned_session *next;
    for (struct orphaned_session *orphan = TAILQ_FIRST(&tools->orphans); orphan; orphan = next) {
        next = TAILQ_NEXT(orphan, link);
        if (!is_of(orphan, owner))
            continue;
        struct session *session =
            sessions_find(tools->settings.face->sessions, owner, orphan->id, NULL);
        bool idle = session && session_is_idle(session);
        if (idle || !session)
            drop(tools, orphan);
        if (idle) {
            session_end(session, "the session was ended to make room for another one", NULL, NULL);
            return true;
        }
    }
    return false;
}

void
orphans_fini(struct mcp_tools *tools)
{
    while (!TAILQ_EMPTY(&tools->orphans))
        drop(tools, TAILQ_FIRST(&tools->orphans));
}

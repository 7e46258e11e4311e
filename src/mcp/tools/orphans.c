// SPDX-License-Identifier: Apache-2.0
// Orphaned sessions, to which perhaps no client comes back: nobody named them when they were made,
// or their client has left. They live until they expire, like others, but if there are too many
// sessions, an orphan is ended before a new session is refused: one that nobody has named at all,
// else, of the clients of profiles, which can do nothing but name them, the one that was used
// longest ago.

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
orphan_add(struct mcp_tools *tools, const char *owner, const char *id, bool of_profile)
{
    size_t size = strlen(owner) + 1;
    struct orphaned_session *orphan = kg_calloc(1, sizeof *orphan + size);
    orphan->of_profile = of_profile;
    memcpy(orphan->owner, owner, size);
    memcpy(orphan->id, id, strnlen(id, SESSION_MAX_ID_LEN));
    TAILQ_INSERT_TAIL(&tools->orphans, orphan, link);
    if (++tools->n_orphans > MAX_ORPHANS)
        drop(tools, TAILQ_FIRST(&tools->orphans));
}

static struct orphaned_session *
orphan_find(const struct mcp_tools *tools, const char *owner, const char *id)
{
    struct orphaned_session *orphan;
    TAILQ_FOREACH(orphan, &tools->orphans, link) {
        if (is_of(orphan, owner) && strcmp(orphan->id, id) == 0)
            break;
    }
    return orphan;
}

void
orphan_touch(struct mcp_tools *tools, const char *owner, const char *id)
{
    struct orphaned_session *orphan = orphan_find(tools, owner, id);
    if (!orphan)
        return;
    if (!orphan->of_profile) {
        drop(tools, orphan);
        return;
    }
    orphan->was_named = true;
    TAILQ_REMOVE(&tools->orphans, orphan, link);
    TAILQ_INSERT_TAIL(&tools->orphans, orphan, link);
}

void
orphan_remove(struct mcp_tools *tools, const char *owner, const char *id)
{
    struct orphaned_session *orphan = orphan_find(tools, owner, id);
    if (orphan)
        drop(tools, orphan);
}

static bool
evict(struct mcp_tools *tools, const char *owner, bool was_named)
{
    struct orphaned_session *next;
    for (struct orphaned_session *orphan = TAILQ_FIRST(&tools->orphans); orphan; orphan = next) {
        next = TAILQ_NEXT(orphan, link);
        if (orphan->was_named != was_named || !is_of(orphan, owner))
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

bool
orphan_evict(struct mcp_tools *tools, const char *owner)
{
    return evict(tools, owner, false) || evict(tools, owner, true);
}

void
orphans_fini(struct mcp_tools *tools)
{
    while (!TAILQ_EMPTY(&tools->orphans))
        drop(tools, TAILQ_FIRST(&tools->orphans));
}

// SPDX-License-Identifier: Apache-2.0
// Sessions that nobody may come back to. They live until they expire, like others; but where there
// are too many sessions, the oldest of them ends before a new one is refused.

#include <string.h>

#include "tools_priv.h"

enum { MAX_LOOSE = 1024 };

static void
drop(struct mcp_tools *tools, struct loose_session *loose)
{
    TAILQ_REMOVE(&tools->loose, loose, link);
    tools->n_loose--;
    free(loose);
}

static bool
is_of(const struct loose_session *loose, const char *owner)
{
    return strcmp(loose->owner, owner) == 0;
}

void
loose_add(struct mcp_tools *tools, const char *owner, const char *id)
{
    size_t size = strlen(owner) + 1;
    struct loose_session *loose = kg_calloc(1, sizeof *loose + size);
    memcpy(loose->owner, owner, size);
    memcpy(loose->id, id, strnlen(id, SESSION_MAX_ID_LEN));
    TAILQ_INSERT_TAIL(&tools->loose, loose, link);
    if (++tools->n_loose > MAX_LOOSE)
        drop(tools, TAILQ_FIRST(&tools->loose));
}

void
loose_remove(struct mcp_tools *tools, const char *owner, const char *id)
{
    struct loose_session *loose;
    TAILQ_FOREACH(loose, &tools->loose, link) {
        if (is_of(loose, owner) && strcmp(loose->id, id) == 0) {
            drop(tools, loose);
            return;
        }
    }
}

bool
loose_evict(struct mcp_tools *tools, const char *owner)
{
    struct loose_session *next;
    for (struct loose_session *loose = TAILQ_FIRST(&tools->loose); loose; loose = next) {
        next = TAILQ_NEXT(loose, link);
        if (!is_of(loose, owner))
            continue;
        struct session *session =
            sessions_find(tools->settings.face->sessions, owner, loose->id, NULL);
        bool idle = session && session_is_idle(session);
        if (idle || !session)
            drop(tools, loose);
        if (idle) {
            session_end(session, "the session made room for another one", NULL, NULL);
            return true;
        }
    }
    return false;
}

void
loose_fini(struct mcp_tools *tools)
{
    while (!TAILQ_EMPTY(&tools->loose))
        drop(tools, TAILQ_FIRST(&tools->loose));
}

// SPDX-License-Identifier: Apache-2.0
// Counts what the clients of each owner make the gateway hold, and makes answers wait for room.

#include <string.h>

#include "budget.h"
#include "mcp_priv.h"

struct owner_share *
mcp_share_join(struct mcp *mcp, const char *owner)
{
    const char *name = budget_name(owner);
    struct owner_share *share;
    LIST_FOREACH(share, &mcp->shares, link) {
        if (strcmp(share->name, name) == 0)
            break;
    }
    if (!share) {
        size_t size = strlen(name) + 1;
        share = kg_calloc(1, sizeof *share + size);
        share->mcp = mcp;
        memcpy(share->name, name, size);
        LIST_INSERT_HEAD(&mcp->shares, share, link);
    }
    share->n_users++;
    return share;
}

void
mcp_share_leave(struct owner_share *share)
{
    if (--share->n_users > 0)
        return;
    if (share->mcp)
        LIST_REMOVE(share, link);
    free(share);
}

void
mcp_shares_detach(struct mcp *mcp)
{
    struct owner_share *share;
    while ((share = LIST_FIRST(&mcp->shares))) {
        LIST_REMOVE(share, link);
        share->mcp = NULL;
    }
}

// ---- Answers --------------------------------------------------------------------------------

void
mcp_share_count(struct owner_share *share, int64_t bytes)
{
    share->answer_bytes += (size_t)bytes;
    if (share->mcp)
        share->mcp->answer_bytes += (size_t)bytes;
}

bool
mcp_share_has_room(const struct mcp *mcp, const char *owner, size_t len)
{
    const char *name = budget_name(owner);
    const struct owner_share *share;
    if (mcp->answer_bytes + len > MCP_ANSWERS_MAX)
        return false;
    LIST_FOREACH(share, &mcp->shares, link) {
        if (strcmp(share->name, name) == 0)
            return share->answer_bytes + len <= MCP_OWNER_ANSWERS_MAX;
    }
    return true;
}

// ---- Waiting for room -----------------------------------------------------------------------

struct room_wait {
    TAILQ_ENTRY(room_wait) link;
    struct owner_share *share;
    size_t len;
    struct loop_timer *deadline;
    loop_fn fn;
    void *arg;
};

void
mcp_room_wait_cancel(struct room_wait *wait)
{
    if (!wait)
        return;
    TAILQ_REMOVE(&wait->share->mcp->room_waits, wait, link);
    loop_timer_free(wait->deadline);
    mcp_share_leave(wait->share);
    free(wait);
}

static void
room_wait_end(void *arg)
{
    struct room_wait *wait = arg;
    loop_fn fn = wait->fn;
    void *fn_arg = wait->arg;
    mcp_room_wait_cancel(wait);
    fn(fn_arg);
}

struct room_wait *
mcp_room_wait_start(struct mcp *mcp, const char *owner, size_t len, loop_fn fn, void *arg)
{
    struct room_wait *wait = KG_NEW(struct room_wait);
    wait->share = mcp_share_join(mcp, owner);
    wait->len = len;
    wait->fn = fn;
    wait->arg = arg;
    TAILQ_INSERT_TAIL(&mcp->room_waits, wait, link);
    wait->deadline = loop_timer_new(mcp->loop, room_wait_end, wait);
    loop_timer_start(wait->deadline, mcp->room_wait_ms);
    return wait;
}

void
mcp_room_freed(struct mcp *mcp)
{
    struct room_wait *next;
    for (struct room_wait *wait = TAILQ_FIRST(&mcp->room_waits); wait; wait = next) {
        next = TAILQ_NEXT(wait, link);
        if (mcp_share_has_room(mcp, wait->share->name, wait->len))
            room_wait_end(wait);
    }
}

// SPDX-License-Identifier: Apache-2.0
// Makes answers wait until the clients of their owner have read enough of the earlier ones.

#include "mcp_priv.h"

struct room_wait {
    TAILQ_ENTRY(room_wait) link;
    struct mcp *mcp;
    struct budget_hold held; // nothing: for the owner's share
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
    TAILQ_REMOVE(&wait->mcp->room_waits, wait, link);
    loop_timer_free(wait->deadline);
    budget_hold_end(&wait->held);
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
    wait->mcp = mcp;
    budget_hold_start(&wait->held, &mcp->answers, owner);
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
        if (budget_hold_has_room(&wait->held, wait->len))
            room_wait_end(wait);
    }
}

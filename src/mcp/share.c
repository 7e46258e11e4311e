// SPDX-License-Identifier: Apache-2.0
// What the clients of one owner make the gateway hold.

#include <string.h>

#include "mcp_priv.h"

struct owner_share *
mcp_share_join(struct mcp *mcp, const char *owner)
{
    struct owner_share *share;
    LIST_FOREACH(share, &mcp->shares, link) {
        if (strcmp(share->owner, owner) == 0)
            break;
    }
    if (!share) {
        size_t size = strlen(owner) + 1;
        share = kg_calloc(1, sizeof *share + size);
        share->mcp = mcp;
        memcpy(share->owner, owner, size);
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

void
mcp_share_reserve(struct mcp *mcp, const char *owner, size_t len)
{
    mcp_share_join(mcp, owner)->answer_bytes += len;
    mcp->answer_bytes += len;
}

void
mcp_share_release(struct mcp *mcp, const char *owner, size_t len)
{
    struct owner_share *share = mcp_share_join(mcp, owner);
    share->answer_bytes -= len;
    mcp->answer_bytes -= len;
    mcp_share_leave(share);
    mcp_share_leave(share); // for mcp_share_reserve()
}

bool
mcp_share_has_room(const struct mcp *mcp, const char *owner, size_t len)
{
    const struct owner_share *share;
    if (mcp->answer_bytes + len > MCP_ANSWERS_MAX)
        return false;
    LIST_FOREACH(share, &mcp->shares, link) {
        if (strcmp(share->owner, owner) == 0)
            return share->answer_bytes + len <= MCP_OWNER_ANSWERS_MAX;
    }
    return true;
}

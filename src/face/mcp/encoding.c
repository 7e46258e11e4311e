// SPDX-License-Identifier: Apache-2.0
// Encodes large answers on a worker. An answer with attachments first waits until the owner's
// clients have read enough of the earlier ones: until then its figures exist only once.

#include "mcp_priv.h"

// While `work` runs, the worker has `answer`, `request`, `attachments` and `payload`.
struct encoding {
    struct mcp *mcp;
    struct owner_share *share;
    struct room_wait *wait; // NULL: it has begun
    struct loop_work *work;
    size_t reserved; // bytes of the attachments, counted in the owner's share
    json_t *answer;
    json_t *request; // has the answer's id
    struct attachments attachments;
    struct payload *payload;
    encoding_fn fn;
    void *arg;
};

// Not while the work runs.
static void
encoding_free(void *arg)
{
    struct encoding *encoding = arg;
    json_decref(encoding->answer);
    json_decref(encoding->request);
    payload_unref(encoding->payload);
    attachments_fini(&encoding->attachments);
    mcp_share_leave(encoding->share);
    free(encoding);
}

static void
encoding_run(void *arg)
{
    struct encoding *encoding = arg;
    encoding->payload = payload_with(KG_STEAL(encoding->answer), &encoding->attachments);
    json_decref(KG_STEAL(encoding->request));
}

static void
encoding_done(void *arg)
{
    struct encoding *encoding = arg;
    struct mcp *mcp = encoding->mcp;
    struct payload *payload = KG_STEAL(encoding->payload);
    encoding_fn fn = encoding->fn;
    void *fn_arg = encoding->arg;
    mcp_share_count(encoding->share, -(int64_t)encoding->reserved);
    encoding_free(encoding);
    fn(payload, fn_arg); // counts the payload, so that those who wait cannot take its room
    mcp_room_freed(mcp);
}

// From here on the attachments count, so that later answers wait.
static void
encoding_begin(void *arg)
{
    struct encoding *encoding = arg;
    encoding->wait = NULL;
    encoding->reserved = attachments_len(&encoding->attachments);
    mcp_share_count(encoding->share, (int64_t)encoding->reserved);
    encoding->work = loop_work_start(encoding->mcp->loop, loop_lane_of(encoding->share->name),
                                     encoding_run, encoding_done, encoding);
}

struct encoding *
encoding_start(struct mcp *mcp, const char *owner, json_t *answer, json_t *request,
               struct attachments *attachments, encoding_fn fn, void *arg)
{
    size_t len = attachments_len(attachments);
    size_t room = len + MCP_LARGE_BYTES;
    bool has_room = len == 0 || mcp_share_has_room(mcp, owner, room);
    struct encoding *encoding = KG_NEW(struct encoding);
    encoding->mcp = mcp;
    encoding->share = mcp_share_join(mcp, owner);
    encoding->answer = answer;
    encoding->request = request;
    encoding->attachments = *attachments;
    *attachments = (struct attachments){0};
    encoding->fn = fn;
    encoding->arg = arg;
    if (has_room)
        encoding_begin(encoding);
    else
        encoding->wait = mcp_room_wait_start(mcp, owner, room, encoding_begin, encoding);
    return encoding;
}

void
encoding_cancel(struct encoding *encoding)
{
    mcp_share_count(encoding->share, -(int64_t)encoding->reserved);
    mcp_room_wait_cancel(encoding->wait);
    if (encoding->work)
        loop_work_cancel(encoding->work, encoding_free);
    else
        encoding_free(encoding);
}

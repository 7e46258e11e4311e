// SPDX-License-Identifier: Apache-2.0
// Encodes large answers on a worker. An answer with attachments first waits until the owner's
// clients have read enough of the earlier ones: until then its figures exist only once.

#include "mcp_priv.h"

// While `work` runs, the worker has `answer`, `request`, `attachments` and `payload`.
struct encoding {
    struct mcp *mcp;
    struct budget_hold held; // of mcp->answers: the bytes of the attachments
    struct room_wait *wait;  // NULL: it has begun
    struct loop_work *work;
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
    budget_hold_end(&encoding->held);
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
    budget_hold_set(&encoding->held, attachments_len(&encoding->attachments));
    encoding->work = loop_work_start(encoding->mcp->loop, loop_lane_of(encoding->held.share->name),
                                     encoding_run, encoding_done, encoding);
}

struct encoding *
encoding_start(struct mcp *mcp, const char *owner, json_t *answer, json_t *request,
               struct attachments *attachments, encoding_fn fn, void *arg)
{
    size_t len = attachments_len(attachments);
    size_t room = len + MCP_LARGE_BYTES;
    struct encoding *encoding = KG_NEW(struct encoding);
    encoding->mcp = mcp;
    budget_hold_start(&encoding->held, &mcp->answers, owner);
    encoding->answer = answer;
    encoding->request = request;
    encoding->attachments = *attachments;
    *attachments = (struct attachments){0};
    encoding->fn = fn;
    encoding->arg = arg;
    if (len == 0 || budget_hold_has_room(&encoding->held, room))
        encoding_begin(encoding);
    else
        encoding->wait = mcp_room_wait_start(mcp, owner, room, encoding_begin, encoding);
    return encoding;
}

void
encoding_cancel(struct encoding *encoding)
{
    budget_hold_end(&encoding->held);
    mcp_room_wait_cancel(encoding->wait);
    if (encoding->work)
        loop_work_cancel(encoding->work, encoding_free);
    else
        encoding_free(encoding);
}

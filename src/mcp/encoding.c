// SPDX-License-Identifier: Apache-2.0
// Encodes large answers on a worker. Those with attachments wait until the owner's clients have
// read enough of the answers before: until then their figures stay where they are counted once.

#include "mcp_priv.h"

enum { ROOM_WAIT_MS = 10 * 1000 }; // then the answer is encoded and, without room, refused

// An answer and its request, which may be large, too, and has the answer's id. While `work` runs
// all but the call are the worker's.
struct encoding {
    struct mcp_call *call;
    struct loop_work *work; // NULL: it waits for room
    struct loop_timer *deadline;
    size_t reserved; // bytes of the attachments, counted in the owner's share
    json_t *answer;
    json_t *request;
    struct attachments attachments;
    struct payload *payload;
    TAILQ_ENTRY(encoding) waiting;
};

// Only once the work has ended.
static void
encoding_free(void *arg)
{
    struct encoding *encoding = arg;
    json_decref(encoding->answer);
    json_decref(encoding->request);
    payload_unref(encoding->payload);
    attachments_fini(&encoding->attachments);
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
    struct mcp_call *call = encoding->call;
    struct mcp *mcp = call->mcp;
    struct payload *payload = KG_STEAL(encoding->payload);
    call->encoding = NULL;
    mcp_share_release(mcp, call->owner, encoding->reserved);
    encoding_free(encoding);
    mcp_call_deliver(call, payload, call->http_status);
    encodings_continue(mcp);
}

// Its answer counts from here on, so that those behind it wait.
static void
encoding_begin(struct encoding *encoding)
{
    struct mcp_call *call = encoding->call;
    loop_timer_free(KG_STEAL(encoding->deadline));
    encoding->reserved = attachments_len(&encoding->attachments);
    mcp_share_reserve(call->mcp, call->owner, encoding->reserved);
    encoding->work = loop_work_start(call->mcp->loop, loop_lane_of(call->owner), encoding_run,
                                     encoding_done, encoding);
}

static void
encoding_on_deadline(void *arg)
{
    struct encoding *encoding = arg;
    TAILQ_REMOVE(&encoding->call->mcp->encodings, encoding, waiting);
    encoding_begin(encoding);
}

static bool
has_room(const struct encoding *encoding)
{
    const struct mcp_call *call = encoding->call;
    size_t len = attachments_len(&encoding->attachments);
    return len == 0 || mcp_share_has_room(call->mcp, call->owner, len + MCP_LARGE_BYTES);
}

void
encoding_start(struct mcp_call *call, json_t *answer, int http_status)
{
    struct encoding *encoding = KG_NEW(struct encoding);
    encoding->call = call;
    encoding->answer = answer;
    encoding->attachments = call->attachments;
    call->attachments = (struct attachments){0};
    encoding->request = mcp_call_take_message(call);
    call->mcp->held_bytes -= call->weight;
    call->weight = 0;
    call->http_status = http_status;
    call->encoding = encoding;
    if (has_room(encoding)) {
        encoding_begin(encoding);
        return;
    }
    TAILQ_INSERT_TAIL(&call->mcp->encodings, encoding, waiting);
    encoding->deadline = loop_timer_new(call->mcp->loop, encoding_on_deadline, encoding);
    loop_timer_start(encoding->deadline, ROOM_WAIT_MS);
}

void
encodings_continue(struct mcp *mcp)
{
    struct encoding *next;
    for (struct encoding *encoding = TAILQ_FIRST(&mcp->encodings); encoding; encoding = next) {
        next = TAILQ_NEXT(encoding, waiting);
        if (!has_room(encoding))
            continue;
        TAILQ_REMOVE(&mcp->encodings, encoding, waiting);
        encoding_begin(encoding);
    }
}

void
encoding_drop(struct mcp_call *call)
{
    struct encoding *encoding = KG_STEAL(call->encoding);
    if (encoding->work) {
        mcp_share_release(call->mcp, call->owner, encoding->reserved);
        loop_work_cancel(encoding->work, encoding_free);
    } else {
        TAILQ_REMOVE(&call->mcp->encodings, encoding, waiting);
        loop_timer_free(encoding->deadline);
        encoding_free(encoding);
    }
    mcp_call_deliver(call, NULL, call->http_status);
}

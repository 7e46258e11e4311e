// SPDX-License-Identifier: Apache-2.0
// The outlet of a POST: JSON if the answer is ready soon, else a stream.

#include "mcp_priv.h"

// `request` is NULL after the answer has begun, or the client has left.
struct post {
    struct outlet base;
    struct mcp *mcp;
    struct mcp_session *session;
    struct http_request *request;
    struct sse *sse;
    struct accepted accepted;
    struct loop_timer *later;
};

static void
post_free(struct post *post)
{
    loop_timer_free(post->later);
    free(post);
}

// A stateless client cancels by closing the stream. If the call is answered at once, the post is
// freed.
static void
cancel_for_gone_client(struct post *post)
{
    if (!post->session && post->base.call)
        mcp_call_cancel(post->base.call);
}

static void
post_on_stream_gone(void *arg)
{
    cancel_for_gone_client(arg);
}

static void
on_request_gone(void *arg)
{
    struct post *post = arg;
    http_request_abandon(KG_STEAL(post->request));
    loop_timer_stop(post->later);
    cancel_for_gone_client(post);
}

// The revision is known after initialize has been answered.
static bool
has_priming_event(const struct post *post)
{
    const struct mcp_session *session = post->session;
    return session && !session->host_id && revision_get(session->revision)->priming_event;
}

// Begins to answer with a stream if possible. Returns whether there is one.
static bool
begin_stream(struct post *post)
{
    if (post->sse || !post->request || !post->accepted.stream)
        return post->sse != NULL;
    loop_timer_stop(post->later);
    post->sse = post->session ? mcp_session_stream(post->session, !post->session->host_id)
                              : sse_new(post->mcp, NULL, false);
    post->sse->on_gone = post_on_stream_gone;
    post->sse->on_gone_arg = post;
    sse_connect(post->sse, KG_STEAL(post->request), 0);
    if (has_priming_event(post))
        sse_prime(post->sse);
    return true;
}

static void
on_later(void *arg)
{
    begin_stream(arg);
}

static void
post_send(struct outlet *outlet, json_t *message, bool minor)
{
    struct post *post = (struct post *)outlet;
    if (begin_stream(post))
        post->sse->base.ops->send(&post->sse->base, message, minor);
    else
        json_decref(message);
}

static void
answer_whole(struct post *post, struct payload *payload, int http_status)
{
    struct http_request *request = KG_STEAL(post->request);
    if (!payload) { // cancelled, but HTTP requires an answer
        http_reply(request, 202, NULL, NULL, 0);
        return;
    }
    http_reply_shared(request, http_status, "application/json", payload->text, payload->len,
                      payload_release, payload);
}

static void
post_answer(struct outlet *outlet, struct payload *payload, int http_status)
{
    struct post *post = (struct post *)outlet;
    if (!post->accepted.json && payload && http_status == 200)
        begin_stream(post);
    if (post->sse) {
        if (payload)
            sse_send(post->sse, payload);
        sse_end(post->sse);
    } else if (post->request) {
        answer_whole(post, payload, http_status);
    } else {
        payload_unref(payload);
    }
    post_free(post);
}

static bool
post_can_send(const struct outlet *outlet)
{
    const struct post *post = (const struct post *)outlet;
    return post->sse || (post->request && post->accepted.stream);
}

static const struct outlet_ops post_ops = {
    .send = post_send,
    .answer = post_answer,
    .can_send = post_can_send,
};

struct outlet *
mcp_post_new(struct mcp *mcp, struct mcp_session *session, struct http_request *request,
             struct accepted accepted)
{
    struct post *post = KG_NEW(struct post);
    post->base.ops = &post_ops;
    post->mcp = mcp;
    post->session = session;
    post->request = request;
    post->accepted = accepted;
    post->later = loop_timer_new(mcp->loop, on_later, post);
    loop_timer_start(post->later, MCP_STREAM_AFTER_MS);
    http_request_on_gone(request, on_request_gone, post);
    return &post->base;
}

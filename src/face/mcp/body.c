// SPDX-License-Identifier: Apache-2.0
// Parses the bodies of POSTs. Large ones are parsed by workers, few at a time; the others wait in
// their connections, where the HTTP server counts them.

#include "mcp_priv.h"

struct body {
    struct mcp *mcp;
    struct http_request *request;
    struct reception *reception; // NULL: it waits
    mcp_body_fn fn;
    TAILQ_ENTRY(body) link; // in mcp->bodies, while it waits
};

static void
body_give(struct mcp *mcp, struct http_request *request, struct received *received, mcp_body_fn fn)
{
    if (received->message)
        fn(mcp, request, received);
    else
        mcp_http_answer_error(request, 400, NULL, received->code, "%s", received->err.message);
}

static void bodies_start(struct mcp *mcp);

static void
body_on_received(struct received *received, void *arg)
{
    struct body *body = arg;
    struct mcp *mcp = body->mcp;
    struct http_request *request = body->request;
    mcp_body_fn fn = body->fn;
    http_request_disown(request);
    mcp->n_parsing--;
    free(body);
    bodies_start(mcp);
    http_request_body_done(request);
    body_give(mcp, request, received, fn);
}

// The first body of another owner than the last one, if there is one; else the first.
static struct body *
bodies_next(const struct mcp *mcp)
{
    struct body *body;
    TAILQ_FOREACH(body, &mcp->bodies, link) {
        if (loop_lane_of(http_request_owner(body->request)) != mcp->last_parsed)
            return body;
    }
    return TAILQ_FIRST(&mcp->bodies);
}

static void
bodies_start(struct mcp *mcp)
{
    struct body *body;
    while (mcp->n_parsing < MCP_PARSING_MAX && (body = bodies_next(mcp))) {
        const char *owner = http_request_owner(body->request);
        mcp->last_parsed = loop_lane_of(owner);
        TAILQ_REMOVE(&mcp->bodies, body, link);
        mcp->n_parsing++;
        body->reception = mcp_receive_body_start(mcp, owner, http_request_take_body(body->request),
                                                 body_on_received, body);
    }
}

static void
body_cancel(void *arg)
{
    struct body *body = arg;
    struct mcp *mcp = body->mcp;
    if (body->reception) {
        mcp_receive_cancel(body->reception);
        mcp->n_parsing--;
    } else {
        TAILQ_REMOVE(&mcp->bodies, body, link);
    }
    free(body);
    bodies_start(mcp);
}

void
mcp_body_receive(struct mcp *mcp, struct http_request *request, mcp_body_fn fn)
{
    if (http_request_body_len(request) <= MCP_LARGE_BYTES) {
        size_t len;
        const char *data = http_request_body(request, &len);
        struct received received;
        mcp_received_fill(&received, data, len);
        body_give(mcp, request, &received, fn);
        mcp_received_fini(mcp, &received);
        return;
    }
    struct body *body = KG_NEW(struct body);
    body->mcp = mcp;
    body->request = request;
    body->fn = fn;
    http_request_own(request, body, body_cancel);
    TAILQ_INSERT_TAIL(&mcp->bodies, body, link);
    bodies_start(mcp);
}

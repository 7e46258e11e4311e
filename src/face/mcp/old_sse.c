// SPDX-License-Identifier: Apache-2.0
// The transport HTTP+SSE of 2024-11-05: GET /sse is one stream for all answers, the client POSTs
// its messages to /messages/.

#include <string.h>

#include "mcp_priv.h"

static void
old_sse_on_stream_gone(void *arg)
{
    mcp_session_close(arg);
}

// Tells the client where to POST. It may be unable to send headers, so the URL repeats the key.
static void
send_endpoint(struct sse *sse, const struct mcp_session *session, const char *api_key)
{
    KG_AUTO_BUF text = {0};
    buf_printf(&text, "event: endpoint\ndata: /messages/?session_id=%s", session->id);
    if (api_key) {
        buf_append_str(&text, "&api_key=");
        percent_append(&text, api_key, "");
    }
    buf_append_str(&text, "\n\n");
    sse_write_raw(sse, text.data);
}

void
old_sse_handle_stream(struct http_request *request, void *arg)
{
    struct mcp *mcp = arg;
    struct kg_error err = {0};
    if (http_request_method(request) == HTTP_HEAD) {
        http_reply(request, 200, "text/event-stream", NULL, 0);
        return;
    }
    const char *profile = mcp_http_profile(mcp, request);
    if (!profile)
        return;
    struct mcp_session *session = mcp_session_new(mcp, http_request_owner(request), profile);
    session->base_url = mcp_http_base_url(request);
    if (mcp_session_register(session, &err) < 0) {
        mcp_session_close(session);
        http_reply_error(request, &err);
        return;
    }
    const char *key = http_request_query(request, "api_key");
    KG_AUTO_FREE char *api_key = key ? kg_strdup(key) : NULL;
    struct sse *sse = mcp_session_stream(session, false);
    sse->on_gone = old_sse_on_stream_gone;
    sse->on_gone_arg = session;
    session->news = &sse->base;
    session->one_stream = true;
    sse_connect(sse, request, 0);
    send_endpoint(sse, session, api_key);
}

// The session of a message; NULL: answered with an error.
static struct mcp_session *
session_of(struct mcp *mcp, struct http_request *request)
{
    const char *id = http_request_query(request, "session_id");
    struct mcp_session *session =
        id ? mcp_session_find(mcp, http_request_owner(request), id) : NULL;
    if (session && session->one_stream)
        return session;
    mcp_http_answer_error(request, 404, NULL, MCP_SESSION_UNKNOWN,
                          "session_id: unknown, or its /sse stream has ended");
    return NULL;
}

static void
take_message(struct mcp *mcp, struct http_request *request, struct received *received)
{
    struct mcp_session *session = session_of(mcp, request); // it may have ended in the meantime
    if (!session)
        return;
    const char *why = mcp_receive_check(session, received->message);
    if (why) {
        mcp_http_answer_error(request, 400, json_object_get(received->message, "id"),
                              MCP_INVALID_REQUEST, "%s", why);
        return;
    }
    http_reply(request, 202, "text/plain", "Accepted", 8);
    mcp_receive(session, session->news, KG_STEAL(received->message), received->weights, NULL);
}

void
old_sse_handle_message(struct http_request *request, void *arg)
{
    struct mcp *mcp = arg;
    if (session_of(mcp, request))
        mcp_body_receive(mcp, request, take_message);
}

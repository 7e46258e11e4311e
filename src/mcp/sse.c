// SPDX-License-Identifier: Apache-2.0
// Server-sent events: streams whose client may go and come back, what is kept for it, keepalives.

#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"

enum {
    EVENT_OVERHEAD = 128,
    // A client that does not read is cut, within a second; what it missed it can have by
    // Last-Event-ID.
    CONNECTION_BACKLOG_MAX = 16 << 20,
};

// ---- The outlet -----------------------------------------------------------------------------

static bool
sse_backed_up(const struct sse *sse)
{
    return sse->request && http_stream_backlog(sse->request) > MCP_BACKLOG_MAX;
}

static void
sse_outlet_send(struct outlet *outlet, json_t *message, bool minor)
{
    struct sse *sse = (struct sse *)outlet;
    if (!minor || !sse_backed_up(sse)) {
        size_t len;
        KG_AUTO_FREE char *text = rpc_dump(message, &len);
        if (text)
            sse_send(sse, text, len);
    }
    json_decref(message);
}

// Where many requests share one stream.
static void
sse_outlet_answer(struct outlet *outlet, json_t *message, int http_status)
{
    (void)http_status;
    if (message)
        sse_outlet_send(outlet, message, false);
}

static bool
sse_outlet_can_send(const struct outlet *outlet)
{
    (void)outlet;
    return true;
}

static const struct outlet_ops sse_ops = {
    .send = sse_outlet_send,
    .answer = sse_outlet_answer,
    .can_send = sse_outlet_can_send,
};

// ---- Life -----------------------------------------------------------------------------------

struct sse *
sse_new(struct mcp *mcp, struct mcp_session *session, bool kept)
{
    struct sse *sse = KG_NEW(struct sse);
    sse->base.ops = &sse_ops;
    sse->mcp = mcp;
    sse->session = session;
    sse->kept = kept;
    TAILQ_INIT(&sse->events);
    if (session) {
        sse->number = session->last_stream++;
        TAILQ_INSERT_TAIL(&session->streams, sse, in_session);
    }
    return sse;
}

static void
drop_oldest_event(struct sse *sse)
{
    struct event *event = TAILQ_FIRST(&sse->events);
    size_t size = event->len + EVENT_OVERHEAD;
    sse->session->replay_bytes -= size;
    sse->mcp->replay_bytes -= size;
    TAILQ_REMOVE(&sse->events, event, link);
    free(event);
}

void
sse_free(struct sse *sse)
{
    if (!sse)
        return;
    sse->on_gone = NULL;
    sse_disconnect(sse);
    while (!TAILQ_EMPTY(&sse->events))
        drop_oldest_event(sse);
    if (sse->session)
        TAILQ_REMOVE(&sse->session->streams, sse, in_session);
    free(sse);
}

struct sse *
sse_find(struct mcp_session *session, unsigned number)
{
    struct sse *sse;
    TAILQ_FOREACH(sse, &session->streams, in_session) {
        if (sse->number == number)
            return sse;
    }
    return NULL;
}

// ---- Replay ---------------------------------------------------------------------------------

// Drops the session's oldest event, unless it is `newest`.
static bool
evict_one(struct mcp_session *session, const struct event *newest)
{
    struct sse *sse;
    TAILQ_FOREACH(sse, &session->streams, in_session) {
        struct event *event = TAILQ_FIRST(&sse->events);
        if (!event || event == newest)
            continue;
        drop_oldest_event(sse);
        if (sse->ended && !sse->request && TAILQ_EMPTY(&sse->events))
            sse_free(sse);
        return true;
    }
    return false;
}

static void
evict(struct mcp_session *session, const struct event *newest)
{
    struct mcp *mcp = session->mcp;
    while (session->replay_bytes > mcp->max_replay_bytes && evict_one(session, newest))
        ;
    struct mcp_session *oldest = TAILQ_FIRST(&mcp->by_use);
    while (mcp->replay_bytes > MCP_REPLAY_TOTAL_MAX && oldest) {
        if (!evict_one(oldest, newest))
            oldest = TAILQ_NEXT(oldest, by_use);
    }
}

static void
keep_event(struct sse *sse, unsigned seq, const char *data, size_t len)
{
    struct event *event = kg_calloc(1, sizeof *event + len);
    event->seq = seq;
    event->len = len;
    memcpy(event->data, data, len);
    TAILQ_INSERT_TAIL(&sse->events, event, link);
    sse->session->replay_bytes += len + EVENT_OVERHEAD;
    sse->mcp->replay_bytes += len + EVENT_OVERHEAD;
    evict(sse->session, event);
}

// ---- Writing --------------------------------------------------------------------------------

static void
write_event(struct sse *sse, unsigned seq, const char *data, size_t len)
{
    if (!sse->request)
        return;
    char head[64];
    int head_len = sse->kept ? snprintf(head, sizeof head,
                                        "id: %u-%u\nevent: message\ndata: ", sse->number, seq)
                             : snprintf(head, sizeof head, "event: message\ndata: ");
    KG_AUTO_BUF frame = {0};
    buf_reserve(&frame, (size_t)head_len + len + 2);
    buf_append(&frame, head, (size_t)head_len);
    buf_append(&frame, data, len);
    buf_append(&frame, "\n\n", 2);
    http_stream_write(sse->request, frame.data, frame.len);
}

void
sse_send(struct sse *sse, const char *data, size_t len)
{
    unsigned seq = ++sse->last_seq;
    if (!sse->too_slow)
        write_event(sse, seq, data, len);
    sse->too_slow |=
        sse->request && http_stream_backlog(sse->request) > CONNECTION_BACKLOG_MAX + len;
    if (sse->kept)
        keep_event(sse, seq, data, len);
}

void
sse_prime(struct sse *sse)
{
    char text[80];
    snprintf(text, sizeof text, "id: %u-%u\nretry: %d\ndata: \n\n", sse->number, ++sse->last_seq,
             MCP_RETRY_MS);
    sse_write_raw(sse, text);
}

void
sse_write_raw(struct sse *sse, const char *text)
{
    if (sse->request)
        http_stream_write(sse->request, text, strlen(text));
}

// ---- The connection -------------------------------------------------------------------------

static struct http_request *
take_request(struct sse *sse)
{
    LIST_REMOVE(sse, connected);
    sse->too_slow = false;
    return KG_STEAL(sse->request);
}

// The stream may be gone afterwards.
static void
lose_client(struct sse *sse)
{
    if (sse->session)
        mcp_session_touch(sse->session);
    if (sse->on_gone)
        sse->on_gone(sse->on_gone_arg);
    else if (sse->ended && TAILQ_EMPTY(&sse->events))
        sse_free(sse);
}

static void
on_client_gone(void *arg)
{
    struct sse *sse = arg;
    http_request_abandon(take_request(sse));
    lose_client(sse);
}

static struct sse *
next_too_slow(struct mcp *mcp)
{
    struct sse *sse;
    LIST_FOREACH(sse, &mcp->connected, connected) {
        if (sse->too_slow)
            return sse;
    }
    return NULL;
}

// Apart from what is sent: it may end calls and sessions.
void
sse_cut_slow(struct mcp *mcp)
{
    for (struct sse *sse; (sse = next_too_slow(mcp));) {
        http_stream_abort(take_request(sse));
        lose_client(sse);
    }
}

void
sse_connect(struct sse *sse, struct http_request *request, unsigned after)
{
    sse_disconnect(sse);
    sse->request = request;
    LIST_INSERT_HEAD(&sse->mcp->connected, sse, connected);
    http_stream_start(request, 200, "text/event-stream");
    http_request_on_gone(request, on_client_gone, sse);
    struct event *event;
    TAILQ_FOREACH(event, &sse->events, link) {
        if (event->seq > after)
            write_event(sse, event->seq, event->data, event->len);
    }
    if (sse->ended)
        sse_disconnect(sse);
}

void
sse_disconnect(struct sse *sse)
{
    if (!sse->request)
        return;
    struct http_request *request = take_request(sse);
    http_request_on_gone(request, NULL, NULL);
    http_stream_end(request);
}

void
sse_end(struct sse *sse)
{
    sse->on_gone = NULL;
    sse->ended = true;
    sse_disconnect(sse);
    if (TAILQ_EMPTY(&sse->events))
        sse_free(sse);
}

bool
mcp_session_has_connection(const struct mcp_session *session)
{
    const struct sse *sse;
    TAILQ_FOREACH(sse, &session->streams, in_session) {
        if (sse->request)
            return true;
    }
    return false;
}

void
sse_keepalive(struct mcp *mcp)
{
    struct sse *sse;
    LIST_FOREACH(sse, &mcp->connected, connected)
        sse_write_raw(sse, ": keepalive\n\n");
}

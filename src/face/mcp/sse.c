// SPDX-License-Identifier: Apache-2.0
// SSE streams: events, their replay to a client that comes back, keepalives.

#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"
#include "pace.h"

enum {
    EVENT_OVERHEAD = 128,
    COPIED_BYTES = 4 << 10, // smaller payloads are copied into one write
    // A client that is further behind is cut off within a second. It can get what it missed by
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
        sse_send(sse, payload_of(message));
        return;
    }
    json_decref(message);
}

// For the transports where all answers share one stream.
static void
sse_outlet_answer(struct outlet *outlet, struct payload *payload, int http_status)
{
    (void)http_status;
    if (payload)
        sse_send((struct sse *)outlet, payload);
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

static size_t
event_size(const struct event *event)
{
    return event->payload->len + EVENT_OVERHEAD;
}

static void
drop_oldest_event(struct sse *sse)
{
    struct event *event = TAILQ_FIRST(&sse->events);
    struct budget_hold *replay = &sse->session->replay;
    budget_hold_set(replay, replay->held - event_size(event));
    TAILQ_REMOVE(&sse->events, event, link);
    payload_unref(event->payload);
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

// Drops the oldest event of the owner's longest idle session that has one. NULL: of any owner.
static bool
evict_of_owner(struct mcp *mcp, const struct budget_share *share, const struct event *newest)
{
    struct mcp_session *session;
    TAILQ_FOREACH(session, &mcp->by_use, by_use) {
        if ((!share || session->replay.share == share) && evict_one(session, newest))
            return true;
    }
    return false;
}

// If the total is too large, the owner that keeps most loses its oldest event, so that no owner
// loses events to one that keeps more, except when only the newest event is left there.
static void
evict(struct mcp_session *session, const struct event *newest)
{
    struct mcp *mcp = session->mcp;
    const struct budget *all = &mcp->replay;
    const struct budget_share *own = session->replay.share;
    while (session->replay.held > mcp->max_replay_bytes && evict_one(session, newest))
        ;
    while (own->held > all->max_share && evict_of_owner(mcp, own, newest))
        ;
    while (all->held > all->max &&
           (evict_of_owner(mcp, budget_largest(all), newest) || evict_of_owner(mcp, NULL, newest)))
        ;
}

// Takes the payload.
static void
keep_event(struct sse *sse, unsigned seq, struct payload *payload)
{
    struct event *event = KG_NEW(struct event);
    event->seq = seq;
    event->payload = payload;
    TAILQ_INSERT_TAIL(&sse->events, event, link);
    struct budget_hold *replay = &sse->session->replay;
    budget_hold_set(replay, replay->held + event_size(event));
    evict(sse->session, event);
}

// ---- Writing --------------------------------------------------------------------------------

static void
write_event(struct sse *sse, unsigned seq, struct payload *payload)
{
    char head[64];
    int head_len = sse->kept ? snprintf(head, sizeof head,
                                        "id: %u-%u\nevent: message\ndata: ", sse->number, seq)
                             : snprintf(head, sizeof head, "event: message\ndata: ");
    if (payload->len > COPIED_BYTES) {
        http_stream_write(sse->request, head, (size_t)head_len);
        http_stream_write_shared(sse->request, payload->text, payload->len, payload_release,
                                 payload_ref(payload));
        http_stream_write(sse->request, "\n\n", 2);
        return;
    }
    KG_AUTO_BUF frame = {0};
    buf_append(&frame, head, (size_t)head_len);
    buf_append(&frame, payload->text, payload->len);
    buf_append(&frame, "\n\n", 2);
    http_stream_write(sse->request, frame.data, frame.len);
}

void
sse_send(struct sse *sse, struct payload *payload)
{
    unsigned seq = ++sse->last_seq;
    if (sse->request && !http_pace_is_behind(sse->pace)) {
        write_event(sse, seq, payload);
        http_pace_limit(sse->pace, CONNECTION_BACKLOG_MAX + payload->len);
    }
    if (sse->kept)
        keep_event(sse, seq, payload);
    else
        payload_unref(payload);
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
    http_pace_free(KG_STEAL(sse->pace));
    return KG_STEAL(sse->request);
}

// May free the stream.
static void
lose_client(struct sse *sse)
{
    if (sse->on_left)
        sse->on_left(sse->session);
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

// Not while something is sent, since it may end calls and sessions.
static void
sse_on_slow(void *arg)
{
    struct sse *sse = arg;
    http_stream_abort(take_request(sse));
    lose_client(sse);
}

void
sse_connect(struct sse *sse, struct http_request *request, unsigned after)
{
    static const struct http_pace_rule rule = {.tick_ms = MCP_TICK_MS, .on_slow = sse_on_slow};
    sse_disconnect(sse);
    sse->request = request;
    sse->pace = http_pace_new(sse->mcp->loop, request, &rule, sse);
    LIST_INSERT_HEAD(&sse->mcp->connected, sse, connected);
    mcp_start_clock(sse->mcp);
    http_stream_start(request, 200, "text/event-stream");
    http_request_on_gone(request, on_client_gone, sse);
    struct event *event;
    TAILQ_FOREACH(event, &sse->events, link) {
        if (event->seq > after)
            write_event(sse, event->seq, event->payload);
    }
    if (sse->ended)
        sse_disconnect(sse);
}

void
sse_disconnect(struct sse *sse)
{
    if (sse->request)
        http_stream_end(take_request(sse));
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

void
sse_keepalive(struct mcp *mcp)
{
    struct sse *sse;
    LIST_FOREACH(sse, &mcp->connected, connected)
        sse_write_raw(sse, ": keepalive\n\n");
}

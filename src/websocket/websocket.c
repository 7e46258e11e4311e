// SPDX-License-Identifier: Apache-2.0
// A WebSocket: the handshake, messages in by wslay, messages out, pings, the end.
//
// wslay reads frames, checks them, and answers pings and closes. It does not buffer messages: its
// buffers cost a multiple of short fragments. Messages out are written here, without a copy; only
// control frames wait in wslay's queue, which is sent after each call.

#include "websocket.h"

#include <assert.h>
#include <endian.h>
#include <string.h>
#include <strings.h>
#include <wslay/wslay.h>

#include "http.h"
#include "pace.h"

enum {
    PING_MS = 30 * 1000,
    MAX_SILENT_PINGS = 3, // answered by nothing at all
    // Of one message: empty ones would have no bound.
    MAX_FRAGMENTS = 16384,
};

struct websocket {
    struct http_request *request;
    struct wslay_event_context *wslay;
    const struct websocket_events *events; // NULL once it was closed by its owner
    void *arg;
    struct http_pace *pings;
    size_t max_message_bytes;
    struct buf message; // that is being received
    size_t incoming;    // its bytes, with all of its present frame
    int n_fragments;    // its frames so far
    bool is_text;
    bool in_control;   // a control frame comes, maybe between those of a message
    bool is_receiving; // wslay is on the stack
    bool is_paused;    // by its owner
    bool is_choked;    // what waits for the client is too much to read on
    bool was_heard;    // since the last ping
    bool has_failed;
};

// ---- The end --------------------------------------------------------------------------------

static void
websocket_free(struct websocket *ws)
{
    wslay_event_context_free(ws->wslay);
    http_pace_free(ws->pings);
    buf_fini(&ws->message);
    free(ws);
}

// The owner's callback comes last: it may not use the WebSocket any more.
static void
websocket_finish(struct websocket *ws, void (*how)(struct http_request *request))
{
    const struct websocket_events *events = ws->events;
    void *arg = ws->arg;
    struct http_request *request = ws->request;
    websocket_free(ws);
    how(request);
    if (events)
        events->on_end(arg);
}

static void
websocket_on_gone(void *arg)
{
    struct websocket *ws = arg;
    websocket_finish(ws, http_request_abandon);
}

// ---- Out ------------------------------------------------------------------------------------

static ssize_t
websocket_on_send(wslay_event_context_ptr wslay, const uint8_t *data, size_t len, int flags,
                  void *arg)
{
    (void)wslay;
    (void)flags;
    struct websocket *ws = arg;
    http_stream_write(ws->request, data, len);
    return (ssize_t)len;
}

static void
choke(struct websocket *ws)
{
    bool is_choked = websocket_backlog(ws) > WEBSOCKET_HIGH_WATERMARK;
    if (ws->is_choked == is_choked)
        return;
    ws->is_choked = is_choked;
    if (!ws->is_paused)
        http_upgrade_pause(ws->request, is_choked);
}

// Sends control frames, and ends the connection after a close, in a turn without wslay.
static void
flush(struct websocket *ws)
{
    if (ws->is_receiving)
        return;
    if (ws->has_failed || wslay_event_send(ws->wslay) != 0)
        websocket_finish(ws, http_stream_abort);
    else if (wslay_event_get_close_sent(ws->wslay))
        websocket_finish(ws, http_upgrade_end);
    else
        choke(ws);
}

void
websocket_begin(struct websocket *ws, bool is_text, size_t len)
{
    unsigned char head[10] = {is_text ? 0x81 : 0x82};
    size_t head_len = 2;
    if (len < 126) {
        head[1] = (unsigned char)len;
    } else if (len <= UINT16_MAX) {
        const uint16_t big = htobe16((uint16_t)len);
        head[1] = 126;
        memcpy(head + 2, &big, sizeof big);
        head_len += sizeof big;
    } else {
        const uint64_t big = htobe64(len);
        head[1] = 127;
        memcpy(head + 2, &big, sizeof big);
        head_len += sizeof big;
    }
    http_stream_write(ws->request, head, head_len);
}

void
websocket_write(struct websocket *ws, const void *data, size_t len)
{
    http_stream_write(ws->request, data, len);
}

void
websocket_write_text(struct websocket *ws, const char *text)
{
    websocket_begin(ws, true, strlen(text));
    websocket_write(ws, text, strlen(text));
}

void
websocket_write_shared(struct websocket *ws, const void *data, size_t len, loop_fn release,
                       void *arg)
{
    http_stream_write_shared(ws->request, data, len, release, arg);
}

size_t
websocket_backlog(const struct websocket *ws)
{
    return http_stream_backlog(ws->request);
}

static void
websocket_on_drain(void *arg)
{
    struct websocket *ws = arg;
    choke(ws);
    if (ws->events)
        ws->events->on_drain(ws->arg);
}

static void
queue_close(struct websocket *ws, int status, const char *reason)
{
    wslay_event_shutdown_read(ws->wslay);
    if (wslay_event_queue_close(ws->wslay, (uint16_t)status, (const uint8_t *)reason,
                                strlen(reason)) != 0)
        ws->has_failed = true;
}

void
websocket_close(struct websocket *ws, int status, const char *reason)
{
    ws->events = NULL;
    queue_close(ws, status, reason);
    flush(ws);
}

void
websocket_abort(struct websocket *ws)
{
    ws->events = NULL;
    wslay_event_shutdown_read(ws->wslay);
    ws->has_failed = true;
    flush(ws);
}

// Whatever comes from the client counts as an answer to a ping, and so does taking what waits for
// it: it is not read meanwhile. A paused one cannot be heard.
static bool
websocket_is_silent(const void *arg)
{
    const struct websocket *ws = arg;
    return !ws->was_heard && !ws->is_paused;
}

static void
websocket_ping(size_t backlog, void *arg)
{
    (void)backlog;
    struct websocket *ws = arg;
    const struct wslay_event_msg ping = {.opcode = WSLAY_PING};
    ws->was_heard = false;
    ws->has_failed |= wslay_event_queue_msg(ws->wslay, &ping) != 0;
    flush(ws);
}

static void
websocket_on_silence(void *arg)
{
    struct websocket *ws = arg;
    ws->has_failed = true;
    flush(ws);
}

static struct http_pace *
pings_start(struct websocket *ws, const struct websocket_settings *settings)
{
    const struct http_pace_rule rule = {
        .tick_ms = settings->ping_ms > 0 ? settings->ping_ms : PING_MS,
        .max_ticks = MAX_SILENT_PINGS + 1,
        .min_bytes = 1,
        .owes_answer = true,
        .counts = websocket_is_silent,
        .on_tick = websocket_ping,
        .on_slow = websocket_on_silence,
    };
    struct http_pace *pings = http_pace_new(settings->loop, ws->request, &rule, ws);
    http_pace_start(pings);
    return pings;
}

// ---- In -------------------------------------------------------------------------------------

static ssize_t
websocket_on_recv(wslay_event_context_ptr wslay, uint8_t *to, size_t len, int flags, void *arg)
{
    (void)flags;
    struct websocket *ws = arg;
    size_t n = ws->is_paused ? 0 : http_upgrade_read(ws->request, to, len);
    if (n == 0) {
        wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    ws->was_heard = true;
    return (ssize_t)n;
}

static void
websocket_on_frame(wslay_event_context_ptr wslay,
                   const struct wslay_event_on_frame_recv_start_arg *frame, void *arg)
{
    (void)wslay;
    struct websocket *ws = arg;
    ws->in_control = wslay_is_ctrl_frame(frame->opcode);
    if (ws->in_control)
        return;
    if (frame->opcode != WSLAY_CONTINUATION_FRAME) {
        ws->is_text = frame->opcode == WSLAY_TEXT_FRAME;
        ws->n_fragments = 0;
    }
    if (++ws->n_fragments > MAX_FRAGMENTS) {
        queue_close(ws, WEBSOCKET_POLICY, "the message has too many fragments");
        return;
    }
    if (frame->payload_length > ws->max_message_bytes - ws->message.len) {
        queue_close(ws, WSLAY_CODE_MESSAGE_TOO_BIG, "the message is too large");
        return;
    }
    ws->incoming = ws->message.len + (size_t)frame->payload_length;
    if (ws->incoming > WEBSOCKET_SMALL_BYTES && ws->events &&
        !ws->events->may_receive(ws->incoming, ws->arg))
        queue_close(ws, WEBSOCKET_TRY_LATER, "too much is being received: try again later");
}

size_t
websocket_incoming(const struct websocket *ws)
{
    return ws->incoming;
}

static void
websocket_on_chunk(wslay_event_context_ptr wslay,
                   const struct wslay_event_on_frame_recv_chunk_arg *chunk, void *arg)
{
    struct websocket *ws = arg;
    if (wslay_event_get_read_enabled(wslay) && !ws->in_control)
        buf_append(&ws->message, chunk->data, chunk->data_length);
}

static void
websocket_on_msg(wslay_event_context_ptr wslay, const struct wslay_event_on_msg_recv_arg *msg,
                 void *arg)
{
    struct websocket *ws = arg;
    if (wslay_is_ctrl_frame(msg->opcode) || !wslay_event_get_read_enabled(wslay))
        return;
    struct buf message = ws->message;
    ws->message = (struct buf){0};
    ws->incoming = 0;
    if (ws->events)
        ws->events->on_message(ws->is_text, message.data ? message.data : "", message.len, ws->arg);
    buf_fini(&message);
}

static void
websocket_on_data(void *arg)
{
    struct websocket *ws = arg;
    if (ws->is_receiving)
        return;
    ws->is_receiving = true;
    (void)wslay_event_recv(ws->wslay); // after an error it has queued a close
    ws->is_receiving = false;
    flush(ws);
}

void
websocket_pause(struct websocket *ws, bool paused)
{
    if (ws->is_paused == paused)
        return;
    ws->is_paused = paused;
    if (!ws->is_choked)
        http_upgrade_pause(ws->request, paused);
}

// ---- The handshake --------------------------------------------------------------------------

bool
websocket_offers(const struct http_request *request, const char *subprotocol)
{
    const char *list = http_request_header(request, "Sec-WebSocket-Protocol");
    size_t len = strlen(subprotocol);
    for (const char *item = list ? list : ""; *item; item += *item == ',') {
        item += strspn(item, " \t");
        size_t n = strcspn(item, ", \t");
        if (n == len && memcmp(item, subprotocol, n) == 0)
            return true;
        item += strcspn(item, ",");
    }
    return false;
}

static void
refuse(struct http_request *request, int status, const char *message)
{
    http_reply_json(
        request, status,
        json_pack("{s:s, s:s}", "message", message, "reason", "Not a WebSocket handshake"));
}

// RFC 9110, sections 15.5.22 and 7.8.
static void
refuse_without_upgrade(struct http_request *request, const char *message)
{
    http_reply_header(request, "Upgrade", "websocket");
    http_reply_header(request, "Connection", "Upgrade");
    refuse(request, 426, message);
}

bool
websocket_is_asked(struct http_request *request)
{
    const char *version = http_request_header(request, "Sec-WebSocket-Version");
    const char *key = http_request_header(request, "Sec-WebSocket-Key");
    if (!http_upgrade_is_asked(request, "websocket")) {
        refuse_without_upgrade(request, "this path is for WebSockets");
        return false;
    }
    if (!version || strcmp(version, "13") != 0) {
        http_reply_header(request, "Sec-WebSocket-Version", "13");
        refuse_without_upgrade(request, "Sec-WebSocket-Version: must be 13");
        return false;
    }
    KG_AUTO_FREE char *accept = key ? websocket_accept_key(key) : NULL;
    if (!accept)
        refuse(request, 400, "Sec-WebSocket-Key: must be 16 bytes in base64");
    return accept != NULL;
}

static struct wslay_event_context *
wslay_new(struct websocket *ws)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = websocket_on_recv,
        .send_callback = websocket_on_send,
        .on_frame_recv_start_callback = websocket_on_frame,
        .on_frame_recv_chunk_callback = websocket_on_chunk,
        .on_msg_recv_callback = websocket_on_msg,
    };
    struct wslay_event_context *wslay;
    if (wslay_event_context_server_init(&wslay, &callbacks, ws) != 0)
        abort();
    wslay_event_config_set_no_buffering(wslay, 1);
    wslay_event_config_set_max_recv_msg_length(wslay, ws->max_message_bytes);
    return wslay;
}

struct websocket *
websocket_start(struct http_request *request, const struct websocket_settings *settings)
{
    KG_AUTO_FREE char *accept =
        websocket_accept_key(http_request_header(request, "Sec-WebSocket-Key"));
    assert(accept); // websocket_is_asked()
    struct websocket *ws = KG_NEW(struct websocket);
    ws->request = request;
    ws->events = settings->events;
    ws->arg = settings->arg;
    ws->max_message_bytes = settings->max_message_bytes;
    ws->wslay = wslay_new(ws);
    ws->pings = pings_start(ws, settings);
    http_reply_header(request, "Sec-WebSocket-Accept", accept);
    if (settings->subprotocol)
        http_reply_header(request, "Sec-WebSocket-Protocol", settings->subprotocol);
    http_request_on_gone(request, websocket_on_gone, ws);
    http_upgrade_start(request, "websocket", websocket_on_data, ws);
    http_stream_on_drain(request, WEBSOCKET_LOW_WATERMARK, websocket_on_drain, ws);
    return ws;
}

// SPDX-License-Identifier: Apache-2.0
// The server's end of a WebSocket (RFC 6455), on wslay and an upgraded connection of http.h.
#pragma once

#include "base.h"
#include "loop.h"

struct http_request;
struct websocket;

// Status codes of a close (RFC 6455, 7.4.1).
enum {
    WEBSOCKET_GOING_AWAY = 1001,
    WEBSOCKET_BAD_DATA = 1007,
    WEBSOCKET_POLICY = 1008,
    WEBSOCKET_TRY_LATER = 1013,
};

// Each callback may close the WebSocket.
struct websocket_events {
    // A whole message, borrowed.
    void (*on_message)(bool is_text, const void *data, size_t len, void *arg);
    // Whether that many bytes of a message may be received; asked for each frame of a message that
    // has more than WEBSOCKET_SMALL_BYTES. False ends the WebSocket with 1013.
    bool (*may_receive)(size_t len, void *arg);
    // What waits for the client has fallen to WEBSOCKET_LOW_WATERMARK.
    void (*on_drain)(void *arg);
    // The client has closed it, has disconnected, has broken the protocol, or does not answer to
    // pings. The WebSocket is gone. Not after websocket_close().
    void (*on_end)(void *arg);
};

struct websocket_settings {
    struct loop *loop;
    const char *subprotocol;  // that was chosen; NULL: none
    size_t max_message_bytes; // a longer message ends it with 1009
    int64_t ping_ms;          // between two pings; 0: 30 seconds
    const struct websocket_events *events;
    void *arg;
};

enum {
    WEBSOCKET_HIGH_WATERMARK = 64 << 10, // that wait for the client: above it, write no more
    WEBSOCKET_LOW_WATERMARK = 16 << 10,
    WEBSOCKET_SMALL_BYTES = 64 << 10,
};

// Whether the client offers that subprotocol.
bool websocket_offers(const struct http_request *request, const char *subprotocol);
// Whether the request is a handshake (section 4.2); if not, that was answered.
KG_MUST_CHECK bool websocket_is_asked(struct http_request *request);
// Answers a handshake.
KG_MUST_CHECK struct websocket *websocket_start(struct http_request *request,
                                                const struct websocket_settings *settings);
// Bytes of the message that is being received, with all of its present frame.
size_t websocket_incoming(const struct websocket *ws);
// Paused, it reads nothing more; up to 4 KiB of messages may still come.
void websocket_pause(struct websocket *ws, bool paused);
// Bytes that wait for the client.
size_t websocket_backlog(const struct websocket *ws);
// Begins a message of `len` bytes, which the following writes make up.
void websocket_begin(struct websocket *ws, bool is_text, size_t len);
void websocket_write(struct websocket *ws, const void *data, size_t len);
// A whole message of text, which ends with a NUL.
void websocket_write_text(struct websocket *ws, const char *text);
// See http_stream_write_shared().
void websocket_write_shared(struct websocket *ws, const void *data, size_t len, loop_fn release,
                            void *arg);
// Closes it with a status and a reason of at most 120 bytes; it is gone afterwards, from inside
// on_message too.
void websocket_close(struct websocket *ws, int status, const char *reason);
// Cuts the connection of a client that does not read.
void websocket_abort(struct websocket *ws);

// The answer to a key (section 4.2.2), to be freed; NULL: it is not the base64 of 16 bytes.
char *websocket_accept_key(const char *key);

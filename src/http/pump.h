// SPDX-License-Identifier: Apache-2.0
// Carries a request to another server, over a socket, and the bytes that come back to whoever makes
// an answer of them. On the loop's thread.
#pragma once

#include "http.h"
#include "loop.h"

struct http_pump;
struct http_pump_events {
    // Bytes have come (borrowed). False: the pump was freed.
    bool (*on_data)(const char *data, size_t len, void *arg);
    // The other server has closed the connection (`why` NULL), or it has failed. Must free the
    // pump, or end the request, which owns it.
    void (*on_end)(const char *why, void *arg);
};
// Sends `head` (copied), the body of the request and, of an upgraded connection, what the client
// sends. Owns `fd`, a connected non-blocking socket.
struct http_pump *http_pump_new(struct loop *loop, struct http_request *request, int fd,
                                const char *head, const struct http_pump_events *events, void *arg);
void http_pump_free(struct http_pump *pump);
// One of these when the answer begins, from on_data. From then on it is not read while the client
// does not.
void http_pump_stream(struct http_pump *pump); // after the start of a stream
void http_pump_tunnel(struct http_pump *pump, int status, bool upgrades);
void http_pump_upgrade(struct http_pump *pump, const char *protocol);

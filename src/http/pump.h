// SPDX-License-Identifier: Apache-2.0
// Sends a request to another server over a socket, and gives the bytes of its answer to the caller,
// who writes the client's answer. On the loop's thread.
#pragma once

#include "http.h"
#include "loop.h"

struct http_pump;
struct http_pump_events {
    // Bytes have arrived (borrowed). Returns false if it has freed the pump.
    bool (*on_data)(const char *data, size_t len, void *arg);
    // The other server has closed the connection (`why` is NULL), or the connection has failed.
    // Must free the pump, or end the request if that owns the pump.
    void (*on_end)(const char *why, void *arg);
};
// Sends `head` (copied), then the request's body, and after an upgrade what the client sends. Owns
// `fd`, a connected non-blocking socket.
struct http_pump *http_pump_new(struct loop *loop, struct http_request *request, int fd,
                                const char *head, const struct http_pump_events *events, void *arg);
void http_pump_free(struct http_pump *pump);
// on_data calls one of these when the answer begins. From then on the pump does not read from the
// other server while too much waits for the client.
void http_pump_stream(struct http_pump *pump); // after the start of a stream
void http_pump_tunnel(struct http_pump *pump, int status, bool upgrades);
void http_pump_upgrade(struct http_pump *pump, const char *protocol);

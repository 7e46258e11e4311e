// SPDX-License-Identifier: Apache-2.0
// What the files of the bridge share. Everything runs on the loop.
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "event_reader.h"
#include "line_io.h"
#include "mcp_bridge.h"

enum {
    ANSWER_MAX_BYTES = 256 << 20,
    RETRY_MS = 1000,
    RETRIES_MAX = 30, // of one request
    GOODBYE_MS = 1000,
};

// ---- Exchanges (exchange.c) -----------------------------------------------------------------

enum exchange_kind {
    EXCHANGE_MESSAGE, // a message of the client
    EXCHANGE_REOPEN,  // the client's initialize, sent again after the session was lost
    EXCHANGE_NEWS,    // the GET stream
    EXCHANGE_GOODBYE, // DELETE
};

// An HTTP request to the gateway, and further ones that resume its stream.
struct exchange {
    struct mcp_bridge *bridge;
    enum exchange_kind kind;
    json_t *message; // or NULL
    struct http_call *call;
    struct loop_timer *again;
    struct event_reader reader;
    struct buf body;
    int status;
    int retries;
    bool stream;   // the answer is a stream of events
    bool answered; // the response was passed to the client
    LIST_ENTRY(exchange) link;
};

struct mcp_bridge {
    struct loop *loop;
    struct http_client *client;
    char *url;
    char *api_key;
    struct line_io *io;
    json_t *initialize; // the client's request, or NULL
    char session_id[64];
    char version[32]; // negotiated; "": none
    bool reopening;
    bool opening; // initialize is not answered yet: messages wait
    int64_t opened_ms;
    json_t *waiting;
    struct loop_timer *end_timer;
    loop_fn on_end;
    void *arg;
    LIST_HEAD(, exchange) exchanges;
};

// Starts an exchange. Takes the message (may be NULL).
void exchange_start(struct mcp_bridge *bridge, enum exchange_kind kind, json_t *message);
// Cancels it.
void exchange_free(struct exchange *exchange);
// The exchange of the client's request with this id, or NULL.
struct exchange *exchange_find(struct mcp_bridge *bridge, const json_t *id);

// ---- bridge.c -------------------------------------------------------------------------------

// Writes a message to the client.
void bridge_pass(struct mcp_bridge *bridge, const char *text, size_t len);
// Answers a request with an error of the bridge.
void bridge_fail(struct mcp_bridge *bridge, const json_t *request, const char *why);
// initialize was answered. NULL: it failed.
void bridge_opened(struct mcp_bridge *bridge, const json_t *answer);
// Whether the client has sent initialize, and the last attempt to open a session was not just now.
bool bridge_may_reopen(const struct mcp_bridge *bridge);
// The session is lost: opens a new one, and then sends `message` (taken).
void bridge_reopen(struct mcp_bridge *bridge, json_t *message);
// The session was deleted, or there is none: ends the bridge.
void bridge_goodbye_said(struct mcp_bridge *bridge);

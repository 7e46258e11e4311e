// SPDX-License-Identifier: Apache-2.0
// What the files of the bridge share.
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "line_io.h"
#include "mcp_bridge.h"

enum {
    ANSWER_MAX_BYTES = 256 << 20,
    RETRY_MS = 1000,
    RETRIES_MAX = 30, // of one request
    GOODBYE_MS = 1000,
};

// ---- Server-sent events (event_reader.c) ----------------------------------------------------

// Takes a stream of events apart.
struct event_reader {
    struct buf line;
    struct buf data;
    char id[64]; // of the last whole event that had one; "" before
    char coming_id[64];
    bool has_data;
};
typedef void (*event_fn)(const char *data, size_t len, void *arg);
void event_reader_fini(struct event_reader *reader);
// Forgets the event that had begun, not the id of the last one.
void event_reader_rewind(struct event_reader *reader);
// Calls `fn` for every event that is complete; false: it is too long to be one.
KG_MUST_CHECK bool event_reader_take(struct event_reader *reader, const char *bytes, size_t len,
                                     event_fn fn, void *arg);

// ---- Exchanges (exchange.c) -----------------------------------------------------------------

enum exchange_kind {
    EXCHANGE_MESSAGE, // a line of the client
    EXCHANGE_REOPEN,  // its initialize, sent again after the session was lost
    EXCHANGE_NEWS,    // the GET stream
    EXCHANGE_GOODBYE, // DELETE
};

// One call of the gateway, or several where a stream has to be taken up again.
struct exchange {
    struct mcp_bridge *bridge;
    enum exchange_kind kind;
    json_t *message; // NULL where there is none
    struct http_call *call;
    struct loop_timer *again;
    struct event_reader reader;
    struct buf body;
    int status;
    int retries;
    bool stream;   // what comes is a stream of events
    bool answered; // the response has been passed on
    LIST_ENTRY(exchange) link;
};

struct mcp_bridge {
    struct loop *loop;
    struct http_client *client;
    char *url;
    char *api_key;
    struct line_io *io;
    json_t *initialize; // what the client began with
    char session_id[64];
    char version[32]; // negotiated; "": not yet
    bool reopening;
    bool opening; // initialize is under way: what comes waits
    int64_t opened_ms;
    json_t *waiting;
    struct loop_timer *end_timer;
    loop_fn on_end;
    void *arg;
    LIST_HEAD(, exchange) exchanges;
};

// Starts one; takes the message.
void exchange_start(struct mcp_bridge *bridge, enum exchange_kind kind, json_t *message);
// Ends it without a word.
void exchange_free(struct exchange *exchange);
// The exchange of the request with this id, or NULL.
struct exchange *exchange_find(struct mcp_bridge *bridge, const json_t *id);

// ---- bridge.c -------------------------------------------------------------------------------

// Passes a message of the gateway on to the client.
void bridge_pass(struct mcp_bridge *bridge, const char *text, size_t len);
// Answers a request by itself.
void bridge_fail(struct mcp_bridge *bridge, const json_t *request, const char *why);
// The answer to initialize has come, or there will be none.
void bridge_opened(struct mcp_bridge *bridge, const json_t *answer);
// Whether there is something to open a session with, and the last attempt is not just ago.
bool bridge_may_reopen(const struct mcp_bridge *bridge);
// The session is gone: opens another one, and sends `message` (taken) then.
void bridge_reopen(struct mcp_bridge *bridge, json_t *message);
void bridge_goodbye_said(struct mcp_bridge *bridge);

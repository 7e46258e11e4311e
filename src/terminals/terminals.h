// SPDX-License-Identifier: Apache-2.0
// Clients of terminals: each is a WebSocket at one end, and at the other a command in a session's
// sandbox that has a terminal. The command outlives its clients, several of which may share it.
// What the messages look like is the dialect's, so faces bring their own.
//
// A client that reads too slowly holds the command back, so that it misses nothing, but not longer
// than two seconds: then it misses output until it has read what waits. What a client types waits
// while the command does not read it, and its WebSocket is not read meanwhile.
//
// A client's key is checked again for what it types, and every few seconds.
#pragma once

#include <jansson.h>

#include "sandbox.h"
#include "websocket.h"

struct http_request;
struct session;

// Those of a gateway. All calls and callbacks are on the loop's thread.
struct terminals;
struct terminals *terminals_new(struct loop *loop);
// Closes all clients: the gateway is shutting down. Commands go on.
void terminals_disconnect(struct terminals *terminals);
void terminals_free(struct terminals *terminals);

// ---- Dialects -------------------------------------------------------------------------------

// What a client has said.
struct terminal_word {
    enum { TERMINAL_NOTHING, TERMINAL_INPUT, TERMINAL_RESIZE } kind;
    const char *data; // of TERMINAL_INPUT, borrowed from the message or from `owner`
    size_t len;
    int cols, rows; // of TERMINAL_RESIZE
    json_t *owner;  // a reference for the caller, or NULL
};

// The bytes of a character that has not come as a whole. All zero: none.
struct terminal_tail {
    char bytes[4];
    size_t len;
};

struct terminal_dialect {
    // Chosen if the client offers it; NULL: none.
    const char *subprotocol;
    // Reads a message; -1: the client is disconnected, with the error's text.
    int (*read)(bool is_text, const void *data, size_t len, struct terminal_word *ret,
                struct kg_error *err);
    // What is said to a client that has joined.
    void (*write_start)(struct websocket *ws, const struct sandbox_command_start *start);
    // Bytes of a terminal, or text of a command without one. `tail` is the dialect's.
    void (*write_output)(struct websocket *ws, struct terminal_tail *tail, const char *data,
                         size_t len);
    void (*write_missed)(struct websocket *ws, int64_t bytes);
    // The command has ended. `result` is NULL if `err` is set.
    void (*write_end)(struct websocket *ws, const struct sandbox_command_result *result,
                      const struct kg_error *err);
};

// ---- Opening --------------------------------------------------------------------------------

// All borrowed until terminals_open() returns, but the dialect, which stays.
struct terminal_wish {
    struct session *session;
    const char *id;  // of the command; NULL: a new one
    bool only_joins; // the command must be known; else it is started if it is not
    const char *cwd; // of a new one; or NULL
    int cols, rows;  // of a new one
    const struct terminal_dialect *dialect;
    // Answers the request that cannot be served.
    void (*fail)(struct http_request *request, const struct kg_error *err);
};
// Connects the client of a request, which is a handshake, or answers why not.
void terminals_open(struct terminals *terminals, struct http_request *request,
                    const struct terminal_wish *wish);

enum { TERMINAL_ID_LEN = 8 };
// The id of a new terminal: random.
void terminals_make_id(char ret[TERMINAL_ID_LEN + 1]);

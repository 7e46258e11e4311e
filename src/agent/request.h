// SPDX-License-Identifier: Apache-2.0
// Calls of the gateway (see rpc.h), as the methods of the agent take and answer them. All on the
// loop's thread.
#pragma once

#include <jansson.h>

#include "rpc.h"

// A call under way. Each is ended once, by request_reply() or request_fail(), also where its caller
// has left; what is sent to a caller who has left is dropped.
struct request;

struct method {
    const char *name;
    void (*fn)(struct request *request, void *arg);
    bool takes_body;
};

// ---- The server -----------------------------------------------------------------------------

// Serves `methods`, which a NULL name ends (borrowed).
struct server;
struct server *server_new(struct loop *loop, const struct method *methods, void *arg);
// Closes every link. Requests that are not ended stay for their methods to end.
void server_free(struct server *server);
// Takes over a link, non-blocking, on which the gateway makes its calls; NULL where there are too
// many. `on_end` fires once when the link has ended, unless it was dropped before.
struct conversation;
struct conversation *server_take(struct server *server, int fd, loop_fn on_end, void *arg);
// Closes the link; NULL is fine.
void server_drop(struct conversation *conversation);

// ---- A request ------------------------------------------------------------------------------

// An object, borrowed; empty where the gateway sent none.
json_t *request_params(const struct request *request);
// Ends the request with its result, whose reference is taken.
void request_reply(struct request *request, json_t *result);
void request_fail(struct request *request, const struct kg_error *err);
// The one or, where `result` is NULL, the other.
void request_end(struct request *request, json_t *result, const struct kg_error *err);

// The bytes that follow the request, in all; each part of them is told by `fn`, which may end the
// request.
int64_t request_body_len(const struct request *request);
typedef void (*request_body_fn)(struct request *request, const void *data, size_t len, void *arg);
void request_on_body(struct request *request, request_body_fn fn, void *arg);

// The caller has left: fires once. Without it the request goes on as if nothing had happened.
void request_on_gone(struct request *request, loop_fn fn, void *arg);

// ---- Streamed answers -----------------------------------------------------------------------

// The reference of `head` is taken. Data may follow, each part at most FRAME_DATA_MAX.
void request_begin(struct request *request, json_t *head);
void request_send(struct request *request, const void *data, size_t len);
void request_send2(struct request *request, const void *data, size_t len, const void *more,
                   size_t more_len);
// Bytes that the gateway has not taken: above WIRE_HIGH the method should stop, until on_room.
size_t request_backlog(const struct request *request);
void request_on_room(struct request *request, loop_fn fn, void *arg);
// Asks for one on_room, see wire_want().
void request_want_room(struct request *request);

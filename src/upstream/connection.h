// SPDX-License-Identifier: Apache-2.0
// A connection with an MCP server, as its client: initialize, requests, their answers, and what the
// server asks, which is refused. It opens by itself, and again with a growing delay while that
// fails. How messages travel is the transport's (http_transport.c, stdio_transport.c). All on the
// loop's thread.
#pragma once

#include <sys/queue.h>

#include "budget.h"
#include "loop.h"
#include "message.h"
#include "servers_file.h"

struct connection;
struct http_client;
struct rpc_call;

// ---- For its user ---------------------------------------------------------------------------

struct connection_events {
    void (*on_up)(struct connection *connection, void *arg); // initialized
    // It was up, or an attempt has failed: see connection_error().
    void (*on_down)(struct connection *connection, void *arg);
    void (*on_list_changed)(struct connection *connection, void *arg);
};

struct transport_ops;
extern const struct transport_ops http_transport, stdio_transport;
enum { CONNECTION_HTTP, CONNECTION_STDIO };

// What all connections share.
struct connection_context {
    const struct transport_ops *transports[2]; // by CONNECTION_HTTP and CONNECTION_STDIO
    struct loop *loop;
    struct http_client *client;
    struct budget *bytes; // of what servers have said, and nobody has taken
    // Starts the program of the server `number`. Returns a handle for stop(), or NULL with `err`;
    // `fn` is called once, never before this returns, with a socket that is its stdin and stdout,
    // and is the callback's, or with -1 and `err`.
    void *(*start)(size_t number, void (*fn)(int fd, const struct kg_error *err, void *arg),
                   void *fn_arg, void *arg, struct kg_error *err);
    void (*stop)(void *start, void *arg); // `fn` is not called any more
    void *start_arg;
};

// Everything is borrowed. It opens with the first request, or by connection_open(). While it is
// down it tries again by itself, if it `keeps_trying`, or else with the next request.
struct connection *connection_new(const struct connection_context *context,
                                  const struct server_spec *spec, size_t number, bool keeps_trying,
                                  const struct connection_events *events, void *arg);
// Without a callback; HTTP servers are told.
void connection_free(struct connection *connection);
void connection_open(struct connection *connection);
bool connection_is_up(const struct connection *connection);
bool connection_has_failed(const struct connection *connection); // since it was up last
// Whether it hears of changes of the list without asking.
bool connection_hears_changes(const struct connection *connection);
const struct kg_error *connection_error(const struct connection *connection); // why it is not up
const char *connection_detail(const struct connection *connection); // the same, for the operator

// `message` has "result" or "error", and is borrowed; or it is NULL, and `err` says why. `sent`:
// the server may have had the request.
typedef void (*rpc_fn)(struct message *message, const struct kg_error *err, bool sent, void *arg);
// Waits until the connection is up, if it is being opened. `params` is taken, and may be NULL. `fn`
// is called once, later. NULL with `err`: the server is down.
KG_MUST_CHECK struct rpc_call *connection_call(struct connection *connection, const char *method,
                                               json_t *params, rpc_fn fn, void *arg,
                                               struct kg_error *err);
// Tells the server, if it may have the request. `fn` is not called any more. NULL is fine.
void rpc_call_cancel(struct rpc_call *call);

// ---- For the transports ---------------------------------------------------------------------

struct transport_ops {
    // Begins to open it; then connection_opened() or connection_fail(), never before this returns.
    void (*open)(struct connection *connection);
    // Sends a message, which is taken; `id` is that of a request, or 0.
    void (*send)(struct connection *connection, char *text, size_t len, int64_t id);
    void (*withdraw)(struct connection *connection, int64_t id); // nobody waits for the answer
    void (*up)(struct connection *connection);                   // it is initialized; may be NULL
    void (*close)(struct connection *connection);                // also of one that is not open
    void (*free)(struct connection *connection);
};

void connection_opened(struct connection *connection);
// Ends it, and tries again later. Not from within connection_take().
void connection_fail(struct connection *connection, const struct kg_error *err);
// The server has said something, in answer to the request `id`, or 0. A message that cannot be read
// ends that request.
void connection_take(struct connection *connection, const char *text, size_t len, int64_t id);
// Nothing more comes in answer to the request `id`: if it was not answered, it fails.
void connection_end_answers(struct connection *connection, int64_t id, const struct kg_error *err);
// Whether something that the server has said for `id` is still being read, or nobody waits for it.
bool connection_has_answer(const struct connection *connection, int64_t id);
// The server has not taken the request, since it does not know the session: a new one begins.
void connection_lose_session(struct connection *connection, int64_t id);
// Maybe the list has changed while nobody listened.
void connection_doubt_list(struct connection *connection);
// What the operator should know of the failure that follows: code does not see it, since it may
// name addresses.
void connection_note(struct connection *connection, const char *detail);
// Whether `id` is that of initialize.
bool connection_is_initialize(const struct connection *connection, int64_t id);
const char *connection_version(const struct connection *connection); // "": not known
const struct server_spec *connection_spec(const struct connection *connection);
size_t connection_number(const struct connection *connection);
const struct connection_context *connection_context(const struct connection *connection);
// What the transport keeps.
void *connection_data(const struct connection *connection);
void connection_set_data(struct connection *connection, void *data);
void connection_set_hears_changes(struct connection *connection, bool hears);

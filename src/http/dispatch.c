// SPDX-License-Identifier: Apache-2.0
// The way of a request to its handler: the checks that each one must pass, first of its head alone,
// then of the whole request, and the answers if a check fails.

#include "http_priv.h"

// ---- Checks ---------------------------------------------------------------------------------

static void
answer_unrouted(struct http_request *request, int methods)
{
    struct kg_error err;
    char allow[64];
    methods_format(methods | HTTP_OPTIONS, allow, sizeof allow);
    if (methods == 0) {
        kg_error_set(&err, KG_NOT_FOUND, 0, "no route has this path");
        http_reply_error(request, &err);
        return;
    }
    http_reply_header(request, "Allow", allow);
    if (request->method == HTTP_OPTIONS) {
        http_reply(request, 204, NULL, NULL, 0);
        return;
    }
    kg_error_set(&err, KG_METHOD_NOT_ALLOWED, 0, "this path accepts %s only", allow);
    http_reply_error(request, &err);
}

// Finds the route of a target. Without an error `ret_entry` may still be NULL: the path has no
// route for this method, but for `ret_methods`.
static int
request_route(const struct http_server *server, struct http_request *request, const char *target,
              const struct http_router_entry **ret_entry, int *ret_methods, struct kg_error *err)
{
    *ret_entry = NULL;
    if (request_parse_target(request, target, err))
        return -1;
    const struct http_router_entry *entry = router_find(&server->router, request, ret_methods);
    if (!entry)
        return 0;
    request->route = entry->route.pattern;
    request->flags = entry->route.flags;
    *ret_entry = entry;
    return 0;
}

// Whether the request may use its route.
static int
request_check(struct http_connection *conn, struct http_request *request, uint64_t body_len,
              struct kg_error *err)
{
    const struct http_server *server = conn->server;
    size_t max = server->max_body_bytes;
    if (server->max_small_body_bytes > 0 && !(request->flags & HTTP_LARGE_BODY))
        max = server->max_small_body_bytes;
    if (identify_check(conn, request, err) < 0)
        return -1;
    if (body_len > max)
        return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                            "the body is too large: at most %zu bytes are allowed here", max);
    return 0;
}

enum dispatch_verdict
dispatch_judge(struct http_connection *conn, const struct http_head *head,
               http_identified_fn on_identified)
{
    const struct http_server *server = conn->server;
    struct http_request probe = {.headers = &head->headers, .method = method_by_name(head->method)};
    const struct http_router_entry *entry = NULL;
    int known;
    struct kg_error err;
    enum dispatch_verdict verdict = DISPATCH_REFUSED;
    bool found = origin_check(server, &probe, &err) == 0 &&
                 request_route(server, &probe, head->target, &entry, &known, &err) == 0 && entry;
    if (found && !conn->checked && identify_start(conn, &probe, on_identified))
        verdict = DISPATCH_LATER;
    else if (found && request_check(conn, &probe, conn->body_len, &err) == 0 && probe.owner[0])
        verdict = DISPATCH_ADMITTED;
    request_fini_target(&probe);
    if (verdict == DISPATCH_ADMITTED)
        connection_trust(conn);
    return verdict;
}

// ---- Wrong keys -----------------------------------------------------------------------------

enum { SLOW_MS = 100, SLOWED_MAX = 256 };

static void
slow_on_gone(void *arg)
{
    struct http_request *request = arg;
    request->server->n_slowed--;
    http_request_abandon(request);
}

static void
slow_on_timer(void *arg)
{
    struct http_request *request = arg;
    struct kg_error err;
    request->server->n_slowed--;
    kg_error_set(&err, KG_UNAUTHORIZED, 0, "Invalid API key");
    http_request_on_gone(request, NULL, NULL);
    http_reply_error(request, &err);
}

// Delays the answers to an address that tries keys. If too many wait already, the connection is
// closed instead.
static void
refuse_key(struct http_request *request, const struct kg_error *err)
{
    struct http_server *server = request->conn->server;
    bool slow = peer_failed(request->conn->peer, clock_mono_ms());
    if (slow && server->n_slowed < SLOWED_MAX) {
        server->n_slowed++;
        request->slow_timer = loop_timer_new(server->loop, slow_on_timer, request);
        loop_timer_start(request->slow_timer, SLOW_MS);
        http_request_on_gone(request, slow_on_gone, request);
        return;
    }
    if (slow)
        http_reply_header(request, "Connection", "close");
    http_reply_error(request, err);
}

// While the server drains, requests that start work are refused; those that watch or end it are
// not.
static int
refuse_work(const struct http_request *request, struct kg_error *err)
{
    if (request->server->draining && (request->flags & HTTP_STARTS_WORK))
        return kg_error_set(err, KG_DRAINING, 0, "the gateway is shutting down");
    return 0;
}

int
http_request_set_owner(struct http_request *request, const char *owner, struct kg_error *err)
{
    struct http_connection *conn = request->conn;
    if (!conn)
        return kg_error_set(err, KG_INTERNAL, 0, "the client has disconnected");
    if (identify_as(conn, request, owner, err) < 0)
        return -1;
    connection_trust(conn);
    if (refuse_work(request, err) < 0)
        return -1;
    return http_server_admit(conn->server, request->owner, err);
}

void
http_request_refuse_secret(struct http_request *request)
{
    struct kg_error err;
    kg_error_set(&err, KG_UNAUTHORIZED, 0, "API key required");
    if (request->conn)
        refuse_key(request, &err);
    else
        http_request_abandon(request);
}

static void
start_handler(struct http_request *request, const struct http_router_entry *entry)
{
    const struct http_server *server = request->server;
    request->handler = entry->route.handler;
    request->handler_arg = entry->arg;
    request->concerns = entry->route.concerns;
    if (!server->forward || !server->forward(request, server->forward_arg))
        http_request_handle(request);
}

bool
http_request_can_move(const struct http_request *request)
{
    return request->flags & (HTTP_STARTS_WORK | HTTP_CAN_MOVE);
}

const struct http_concern *
http_request_concerns(const struct http_request *request)
{
    return request->concerns;
}

void *
http_request_arg(const struct http_request *request)
{
    return request->handler_arg;
}

void
http_request_handle(struct http_request *request)
{
    struct kg_error err;
    if (!(request->flags & HTTP_PUBLIC) && refuse_work(request, &err) < 0)
        http_reply_error(request, &err);
    else if (!body_parse_before_handler(request))
        request->handler(request, request->handler_arg);
}

void
dispatch_handle(struct http_connection *conn, struct evhttp_request *ev)
{
    struct http_server *server = conn->server;
    struct http_request *request = request_new(conn, ev);
    server->handling = request;
    const struct http_router_entry *entry;
    struct kg_error err;
    int known;
    if (conn->body_unread) {
        conn->lingers = true;
        http_reply_header(request, "Connection", "close");
    }
    if (origin_check(server, request, &err)) {
        http_reply_error(request, &err);
        return;
    }
    origin_add_headers(request);
    uint64_t body_len = conn->body_cut ? conn->body_len : http_request_body_len(request);
    int failed = request_route(server, request, evhttp_request_get_uri(ev), &entry, &known, &err);
    if (!failed && !entry) {
        answer_unrouted(request, known);
        return;
    }
    if (!failed)
        failed = request_check(conn, request, body_len, &err);
    if (failed && err.code == KG_RATE_LIMITED && !conn->body_unread)
        http_reply_header(request, "Connection", "close"); // its owner has too many connections
    if (request->owner[0])
        connection_trust(conn);
    if (!failed && conn->body_cut)
        failed = kg_error_set(&err, KG_UPLOAD_TOO_LARGE, 0,
                              "without an API key a body may have %d bytes, and its length must be "
                              "given",
                              HTTP_STRANGER_BYTES_MAX);
    if (!failed && !(request->flags & HTTP_PUBLIC))
        failed = http_server_admit(server, request->owner, &err);
    if (failed && err.code == KG_UNAUTHORIZED && request->wrong_key)
        refuse_key(request, &err);
    else if (failed)
        http_reply_error(request, &err);
    else
        start_handler(request, entry);
}

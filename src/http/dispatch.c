// SPDX-License-Identifier: Apache-2.0
// The way of a request from its head to its handler: route, owner, checks, body; and the answers if
// a check fails. A request that fails is answered when its body has been read, so that its
// connection can go on, unless the body is large or its client waits to be told to send it.

#include <event2/event.h>
#include <strings.h>

#include "http_priv.h"

// ---- Checks ---------------------------------------------------------------------------------

static void
answer_unrouted(struct http_request *request, int methods)
{
    struct kg_error err;
    char allow[HTTP_METHODS_TEXT_SIZE];
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

// Finds the route. Without an error there may still be none: the path has none for this method, but
// for `known_methods`.
static int
find_route(struct http_request *request, struct kg_error *err)
{
    if (request_parse_target(request, request->head.target, err) < 0)
        return -1;
    const struct http_router_entry *entry =
        router_find(&request->server->router, request, &request->known_methods);
    if (!entry)
        return 0;
    request->route = entry->route.pattern;
    request->flags = entry->route.flags;
    request->handler = entry->route.handler;
    request->handler_arg = entry->arg;
    request->concerns = entry->route.concerns;
    request->dialect = entry->dialect;
    if (request->dialect && request->dialect->prepare)
        request->dialect->prepare(request);
    return 0;
}

static size_t
max_body_of(const struct http_request *request)
{
    const struct http_server *server = request->server;
    bool is_small = server->max_small_body_bytes > 0 && !(request->flags & HTTP_LARGE_BODY);
    return is_small ? server->max_small_body_bytes : server->max_body_bytes;
}

static int
fail_too_large(const struct http_request *request, struct kg_error *err)
{
    return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                        "the body is too large: at most %zu bytes are allowed here",
                        request->max_body);
}

// Whether the request may use its route.
static int
check_use(struct http_connection *conn, struct http_request *request, struct kg_error *err)
{
    if (identify_check(conn, request, err) < 0)
        return -1;
    if ((request->flags & HTTP_GZIP_BODY) &&
        coding_of_body(&request->head, &request->body_is_coded, err) < 0) {
        http_reply_header(request, "Accept-Encoding", "gzip");
        return -1;
    }
    if (request->head.content_length > 0 &&
        (uint64_t)request->head.content_length > request->max_body)
        return fail_too_large(request, err);
    return 0;
}

// ---- Wrong keys -----------------------------------------------------------------------------

enum { SLOW_MS = 100, SLOWED_MAX = 256 };

static void
slow_on_end(void *arg)
{
    const struct http_request *request = arg;
    request->server->n_slowed--;
}

static void
slow_on_timer(void *arg)
{
    struct http_request *request = arg;
    struct kg_error err;
    kg_error_set(&err, KG_UNAUTHORIZED, 0, "Invalid API key");
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
        http_request_own(request, request, slow_on_end);
        return;
    }
    if (slow)
        reply_close(request);
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
    place_trust(conn);
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

// ---- Handlers -------------------------------------------------------------------------------

static void
json_body_read(const char *text, size_t len, void *arg)
{
    struct http_parsed *parsed = arg;
    bool beyond;
    parsed->value =
        http_json_parse_within(text, len, HTTP_JSON_BODY_VALUE_BYTES_MAX, &beyond, &parsed->err);
}

// Meanwhile the token's session may have ended, and there may be another one of its name.
static void
json_body_done(struct http_request *request, void *parsed)
{
    struct kg_error err;
    request->json = parsed;
    if (http_request_check_token(request, &err) < 0)
        http_reply_error(request, &err);
    else
        request->handler(request, request->handler_arg);
}

// If the route has HTTP_JSON_BODY and the body is large, parses it on a worker, then calls the
// handler. Otherwise false.
static bool
parse_before_handler(struct http_request *request)
{
    static const struct http_body_reader reader = {json_body_read, json_body_done, parsed_free};
    size_t len = http_request_body_len(request);
    if (!(request->flags & HTTP_JSON_BODY) || len <= HTTP_JSON_INLINE_MAX)
        return false;
    request->json_len = len;
    http_request_read_body(request, &reader, KG_NEW(struct http_parsed));
    return true;
}

static void
handle_decoded(struct http_request *request)
{
    if (!parse_before_handler(request))
        request->handler(request, request->handler_arg);
}

void
http_request_handle(struct http_request *request)
{
    struct kg_error err;
    if (token_check_whole(request, &err) < 0 ||
        (!(request->flags & HTTP_PUBLIC) && refuse_work(request, &err) < 0))
        http_reply_error(request, &err);
    else if (!decode_start(request, handle_decoded))
        handle_decoded(request);
}

// ---- The way --------------------------------------------------------------------------------

// What is left to check of a request that is complete, or whose body is not read.
static int
check_whole(struct http_request *request, struct kg_error *err)
{
    if (request->body_is_cut && request->owner[0])
        return fail_too_large(request, err);
    if (request->body_is_cut)
        return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                            "without an API key a body may have %d bytes, and its length must be "
                            "given",
                            HTTP_STRANGER_BYTES_MAX);
    if (request->flags & HTTP_PUBLIC)
        return 0;
    return http_server_admit(request->server, request->owner, err);
}

void
dispatch_handle(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    const struct http_server *server = request->server;
    struct kg_error *err = &request->err;
    request->is_handled = true;
    pipeline_is_handled(conn);
    if (request->body_is_unread || request->body_is_cut) {
        conn->lingers = true;
        reply_close(request);
    }
    if (!err->code && !request->route) {
        answer_unrouted(request, request->known_methods);
        return;
    }
    if (!err->code)
        (void)check_whole(request, err);
    else if (err->code == KG_RATE_LIMITED)
        reply_close(request); // its owner has too many connections
    if (err->code == KG_UNAUTHORIZED && request->wrong_key)
        refuse_key(request, err);
    else if (err->code)
        http_reply_error(request, err);
    else if (!server->forward || !server->forward(request, server->forward_arg))
        http_request_handle(request);
}

static bool
waits_to_be_told(const struct http_head *head)
{
    const char *expect = head_find(head, "Expect");
    return expect && strcasecmp(expect, "100-continue") == 0;
}

static bool
is_read_as_it_comes(const struct http_request *request)
{
    bool is_large = request->head.content_length > HTTP_READ_AHEAD_MAX && !request->body_is_coded;
    return (request->flags & HTTP_OPEN_BODY) || ((request->flags & HTTP_STREAMED_BODY) && is_large);
}

// The owner is known, or there is none.
static void
on_identified(struct http_connection *conn)
{
    struct http_request *request = conn->request;
    const struct http_head *head = &request->head;
    bool has_body = head->chunked || head->content_length > 0;
    bool is_small = !head->chunked && head->content_length <= HTTP_STRANGER_BYTES_MAX &&
                    !waits_to_be_told(head);
    if (!request->err.code && request->route)
        (void)check_use(conn, request, &request->err);
    if (request->owner[0])
        place_trust(conn);
    bool is_admitted = !request->err.code && (request->owner[0] || request->is_trusted);
    request->body_is_unread = has_body && !(request->method & HTTP_METHODS_WITH_BODY);
    request->body_is_cut = has_body && !request->body_is_unread && !is_admitted && !is_small;
    if (!has_body || request->body_is_unread || request->body_is_cut) {
        dispatch_handle(request);
        return;
    }
    if (is_admitted)
        deadline_stop(conn);
    framing_init(&request->framing, head->chunked, (uint64_t)head->content_length);
    request->body_is_streamed = is_admitted && is_read_as_it_comes(request);
    request->framing.in_parts = request->body_is_streamed;
    if (request->body_is_streamed && request->body_is_coded)
        request->gunzip = gunzip_new();
    pipeline_read_body(conn);
}

void
dispatch_head(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    struct kg_error *err = &request->err;
    request->method = method_by_name(request->head.method);
    if (!request->method) {
        char allow[HTTP_METHODS_TEXT_SIZE];
        methods_format(-1, allow, sizeof allow);
        http_reply_header(request, "Allow", allow);
        reply_close(request);
        kg_error_set(err, KG_METHOD_NOT_ALLOWED, 0, "no path accepts this method");
    } else if (site_take(request, err)) {
        request->of_site = true;
    } else if (origin_check(request->server, request, err) == 0) {
        origin_add_headers(request);
        (void)find_route(request, err);
    }
    request->max_body = max_body_of(request);
    conn->state = CONNECTION_CHECKING;
    if (request->err.code || !request->route || request->of_site ||
        !identify_start(conn, request, on_identified))
        on_identified(conn);
    else
        bufferevent_setwatermark(conn->bev, EV_READ, 0, HTTP_READ_AHEAD_MAX);
}

// SPDX-License-Identifier: Apache-2.0
// A request: the checks that every one passes, and what handlers ask of it.

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"
#include "metrics.h"

// ---- Life -----------------------------------------------------------------------------------

static const struct {
    enum evhttp_cmd_type type;
    const char *name;
    enum http_method method;
} methods_known[] = {
    {EVHTTP_REQ_GET, "GET", HTTP_GET},          {EVHTTP_REQ_HEAD, "HEAD", HTTP_HEAD},
    {EVHTTP_REQ_POST, "POST", HTTP_POST},       {EVHTTP_REQ_PUT, "PUT", HTTP_PUT},
    {EVHTTP_REQ_DELETE, "DELETE", HTTP_DELETE}, {EVHTTP_REQ_OPTIONS, "OPTIONS", HTTP_OPTIONS},
    {EVHTTP_REQ_PATCH, "PATCH", HTTP_PATCH},
};

static enum http_method
method_of(struct evhttp_request *ev)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(methods_known); i++)
        if (methods_known[i].type == evhttp_request_get_command(ev))
            return methods_known[i].method;
    abort(); // evhttp_set_allowed_methods() lets no other through
}

static struct http_request *
request_new(struct http_connection *conn, struct evhttp_request *ev)
{
    struct http_request *request = KG_NEW(struct http_request);
    request->server = conn->server;
    request->conn = conn;
    request->ev = ev;
    request->headers = evhttp_request_get_input_headers(ev);
    request->method = method_of(ev);
    id_random(request->id, HTTP_ID_LEN);
    conn->request = request;
    LIST_INSERT_HEAD(&conn->server->requests, request, link);
    return request;
}

// Leaves the server's lists; from here on the request has nothing to do with it.
static void
request_detach(struct http_request *request)
{
    struct http_server *server = request->conn->server;
    stream_stop_watching(request);
    LIST_REMOVE(request, link);
    if (server->handling == request)
        server->handling = NULL;
    request->conn->request = NULL;
    request->conn = NULL;
}

void
request_gone(struct http_request *request)
{
    request_detach(request);
    loop_fn on_gone = KG_STEAL(request->on_gone);
    if (on_gone)
        on_gone(request->on_gone_arg);
}

static void
count_request(const struct http_request *request)
{
    static const char *const classes[] = {"gone", "1xx", "2xx", "3xx", "4xx", "5xx"};
    char method[8];
    assert(request->status < 600);
    router_format_methods((int)request->method, method, sizeof method);
    metric_add(METRIC_HTTP_REQUESTS, 1, request->route ? request->route : "none", method,
               classes[request->status / 100]);
}

static void
request_fini(struct http_request *request)
{
    free(request->raw_path);
    free(request->path);
    free(request->query);
}

void
request_free(struct http_request *request)
{
    count_request(request);
    if (request->conn)
        request_detach(request);
    else
        evhttp_request_free(request->ev);
    loop_timer_free(request->drain_timer);
    loop_timer_free(request->slow_timer);
    json_work_end(request);
    request_fini(request);
    free(request);
}

struct http_server *
http_request_server(const struct http_request *request)
{
    return request->server;
}

int
http_request_flags(const struct http_request *request)
{
    return request->flags;
}

void
http_request_abandon(struct http_request *request)
{
    assert(!request->conn);
    request_free(request);
}

void
http_request_on_gone(struct http_request *request, loop_fn on_gone, void *arg)
{
    request->on_gone = on_gone;
    request->on_gone_arg = arg;
}

// ---- The target -----------------------------------------------------------------------------

static int
parse_path(struct http_request *request, struct kg_error *err)
{
    // Split before decoding: a %2F is no separator.
    size_t len = strlen(request->raw_path + 1);
    request->path = kg_strdup(request->raw_path + 1);
    for (size_t i = 0; i < len; i++)
        if (request->path[i] == '/')
            request->path[i] = '\0';
    if (percent_decode(request->path, &len, PERCENT_PATH) ||
        utf8_valid_prefix(request->path, len) < len)
        return kg_error_set(err, KG_INVALID, 0, "the path is not valid percent-encoded UTF-8");
    request->path[len] = '\0';
    request->path_len = len;
    return 0;
}

static int
append_decoded(struct http_request *request, const char *data, size_t len)
{
    char *out = request->query + request->query_len;
    memcpy(out, data, len);
    if (percent_decode(out, &len, PERCENT_FORM) || utf8_valid_prefix(out, len) < len)
        return -1;
    out[len] = '\0';
    request->query_len += len + 1;
    return 0;
}

static int
parse_query(struct http_request *request, const char *query, struct kg_error *err)
{
    request->query = kg_calloc(strlen(query) + 1, 2);
    while (*query) {
        size_t len = strcspn(query, "&");
        size_t name_len = strcspn(query, "=&");
        size_t value_at = name_len < len ? name_len + 1 : len;
        if (append_decoded(request, query, name_len) ||
            append_decoded(request, query + value_at, len - value_at))
            return kg_error_set(err, KG_INVALID, 0, "the query is not valid percent-encoded UTF-8");
        query += len + (query[len] == '&');
    }
    return 0;
}

static int
parse_target(struct http_request *request, const char *target, struct kg_error *err)
{
    size_t path_len = strcspn(target, "?#");
    request->raw_path = kg_strndup(target, path_len);
    if (target[0] != '/')
        return kg_error_set(err, KG_NOT_FOUND, 0, "no route has this path");
    if (parse_path(request, err))
        return -1;
    return target[path_len] == '?' ? parse_query(request, target + path_len + 1, err) : 0;
}

// ---- Dispatch -------------------------------------------------------------------------------

static void
answer_unrouted(struct http_request *request, int methods)
{
    struct kg_error err;
    char allow[64];
    router_format_methods(methods | HTTP_OPTIONS, allow, sizeof allow);
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

static int
check_body(const struct http_server *server, const struct http_request *request, uint64_t len,
           struct kg_error *err)
{
    size_t max = server->max_body_bytes;
    if (server->max_small_body_bytes > 0 && !(request->flags & HTTP_LARGE_BODY))
        max = server->max_small_body_bytes;
    if (len <= max)
        return 0;
    return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                        "the body is too large: at most %zu bytes are allowed here", max);
}

// Finds the route of a target. Without an entry and an error there is none for the method:
// `ret_methods` says for which there are.
static int
request_route(const struct http_server *server, struct http_request *request, const char *target,
              const struct http_router_entry **ret_entry, int *ret_methods, struct kg_error *err)
{
    *ret_entry = NULL;
    if (parse_target(request, target, err))
        return -1;
    const struct http_router_entry *entry = router_find(&server->router, request, ret_methods);
    if (!entry)
        return 0;
    request->route = entry->route.pattern;
    request->flags = entry->route.flags;
    *ret_entry = entry;
    return 0;
}

// Whether a request may have the route that was found for it.
static int
request_check(struct http_connection *conn, struct http_request *request, uint64_t body_len,
              struct kg_error *err)
{
    if (identify_check(conn, request, err) < 0)
        return -1;
    return check_body(conn->server, request, body_len, err);
}

bool
request_reads_body(const struct http_head *head)
{
    return strcmp(head->method, "POST") == 0 || strcmp(head->method, "PUT") == 0 ||
           strcmp(head->method, "PATCH") == 0;
}

enum request_verdict
request_judge(struct http_connection *conn, const struct http_head *head)
{
    const struct http_server *server = conn->server;
    struct http_request probe = {.headers = &head->headers};
    for (size_t i = 0; i < KG_ARRAY_LEN(methods_known); i++)
        if (strcmp(methods_known[i].name, head->method) == 0)
            probe.method = methods_known[i].method;
    const struct http_router_entry *entry = NULL;
    int known;
    struct kg_error err;
    enum request_verdict verdict = REQUEST_REFUSED;
    bool found = origin_check(server, &probe, &err) == 0 &&
                 request_route(server, &probe, head->target, &entry, &known, &err) == 0 && entry;
    if (found && !conn->checked && identify_start(conn, &probe))
        verdict = REQUEST_LATER;
    else if (found && request_check(conn, &probe, conn->body_len, &err) == 0 && probe.owner[0])
        verdict = REQUEST_ADMITTED;
    request_fini(&probe);
    if (verdict == REQUEST_ADMITTED)
        connection_trust(conn);
    return verdict;
}

// After a head that announced a body which nobody reads, the connection cannot go on.
static bool
body_is_unread(const struct http_request *request)
{
    const struct http_connection *conn = request->conn;
    bool reads = request->method & (HTTP_POST | HTTP_PUT | HTTP_PATCH);
    return conn->body_cut || (!reads && conn->has_body);
}

// ---- Wrong keys -----------------------------------------------------------------------------

enum { SLOW_MS = 100, SLOWED_MAX = 256 };

static struct http_request *
slow_end(struct http_request *request)
{
    request->slowed_by->n_slowed--;
    request->slowed_by = NULL;
    return request;
}

static void
slow_on_gone(void *arg)
{
    http_request_abandon(slow_end(arg));
}

static void
slow_on_timer(void *arg)
{
    struct http_request *request = slow_end(arg);
    struct kg_error err;
    kg_error_set(&err, KG_UNAUTHORIZED, 0, "Invalid API key");
    http_request_on_gone(request, NULL, NULL);
    http_reply_error(request, &err);
}

// Trying keys is slow; beyond what may wait, each costs a connection.
static void
refuse_key(struct http_request *request, const struct kg_error *err)
{
    struct http_server *server = request->conn->server;
    bool slow = peer_failed(request->conn->peer, clock_mono_ms());
    if (slow && server->n_slowed < SLOWED_MAX) {
        server->n_slowed++;
        request->slowed_by = server;
        request->slow_timer = loop_timer_new(server->loop, slow_on_timer, request);
        loop_timer_start(request->slow_timer, SLOW_MS);
        http_request_on_gone(request, slow_on_gone, request);
        return;
    }
    if (slow)
        http_reply_header(request, "Connection", "close");
    http_reply_error(request, err);
}

// While the server drains, what starts work is refused; what watches or ends it is not.
static int
request_admit(const struct http_request *request, struct kg_error *err)
{
    struct http_server *server = request->conn->server;
    if (server->draining && (request->flags & HTTP_STARTS_WORK))
        return kg_error_set(err, KG_DRAINING, 0, "the gateway is shutting down");
    return http_server_admit(server, request->owner, err);
}

static void
start_handler(struct http_request *request, const struct http_router_entry *entry)
{
    request->handler = entry->route.handler;
    request->handler_arg = entry->arg;
    if (!json_work_start(request))
        request_call_handler(request);
}

void
request_call_handler(struct http_request *request)
{
    request->handler(request, request->handler_arg);
}

void
request_handle(struct http_connection *conn, struct evhttp_request *ev)
{
    struct http_server *server = conn->server;
    struct http_request *request = request_new(conn, ev);
    server->handling = request;
    const struct http_router_entry *entry;
    struct kg_error err;
    int known;
    if (body_is_unread(request)) {
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
    if (failed && err.code == KG_RATE_LIMITED && !body_is_unread(request))
        http_reply_header(request, "Connection", "close"); // its owner has too many
    if (request->owner[0])
        connection_trust(conn);
    if (!failed && conn->body_cut)
        failed = kg_error_set(&err, KG_UPLOAD_TOO_LARGE, 0,
                              "without an API key a body may have %d bytes, and its length must be "
                              "given",
                              HTTP_STRANGER_BYTES_MAX);
    if (!failed && !(request->flags & HTTP_PUBLIC))
        failed = request_admit(request, &err);
    if (failed && err.code == KG_UNAUTHORIZED && request->wrong_key)
        refuse_key(request, &err);
    else if (failed)
        http_reply_error(request, &err);
    else
        start_handler(request, entry);
}

// ---- Accessors ------------------------------------------------------------------------------

enum http_method
http_request_method(const struct http_request *request)
{
    return request->method;
}

const char *
http_request_path(const struct http_request *request)
{
    return request->raw_path;
}

const char *
http_request_param(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_params; i++) {
        const struct http_param *param = &request->params[i];
        if (strlen(name) == param->name_len && memcmp(name, param->name, param->name_len) == 0)
            return param->value;
    }
    abort(); // the handler asks for what its pattern does not name
}

const char *
http_request_query(const struct http_request *request, const char *name)
{
    const char *end = request->query + request->query_len;
    for (const char *at = request->query; at < end;) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

const char *
http_request_header(const struct http_request *request, const char *name)
{
    return evhttp_find_header(request->headers, name);
}

const char *
http_request_owner(const struct http_request *request)
{
    return request->owner[0] ? request->owner : NULL;
}

const char *
http_request_id(const struct http_request *request)
{
    return request->id;
}

const void *
http_request_body(struct http_request *request, size_t *ret_len)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(request->ev);
    *ret_len = evbuffer_get_length(body);
    return *ret_len ? evbuffer_pullup(body, -1) : (const unsigned char *)"";
}

size_t
http_request_body_len(const struct http_request *request)
{
    if (request->json)
        return request->json_len;
    return evbuffer_get_length(evhttp_request_get_input_buffer(request->ev));
}

size_t
http_request_body_read(struct http_request *request, void *to, size_t len)
{
    int n = evbuffer_remove(evhttp_request_get_input_buffer(request->ev), to, len);
    size_t taken = n > 0 ? (size_t)n : 0;
    if (request->conn)
        intake_give(request->conn, taken);
    return taken;
}

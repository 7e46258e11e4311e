// SPDX-License-Identifier: Apache-2.0
// A request: the checks that every one passes, and what handlers ask of it.

#include <assert.h>
#include <event2/keyvalq_struct.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"
#include "metrics.h"

// ---- Life -----------------------------------------------------------------------------------

static enum http_method
method_of(struct evhttp_request *ev)
{
    static const struct {
        enum evhttp_cmd_type type;
        enum http_method method;
    } methods[] = {
        {EVHTTP_REQ_GET, HTTP_GET},       {EVHTTP_REQ_HEAD, HTTP_HEAD},
        {EVHTTP_REQ_POST, HTTP_POST},     {EVHTTP_REQ_PUT, HTTP_PUT},
        {EVHTTP_REQ_DELETE, HTTP_DELETE}, {EVHTTP_REQ_OPTIONS, HTTP_OPTIONS},
        {EVHTTP_REQ_PATCH, HTTP_PATCH},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++)
        if (methods[i].type == evhttp_request_get_command(ev))
            return methods[i].method;
    abort(); // evhttp_set_allowed_methods() lets no other through
}

static struct http_request *
request_new(struct http_connection *conn, struct evhttp_request *ev)
{
    struct http_request *request = KG_NEW(struct http_request);
    request->conn = conn;
    request->ev = ev;
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

void
request_free(struct http_request *request)
{
    count_request(request);
    if (request->conn)
        request_detach(request);
    else
        evhttp_request_free(request->ev);
    loop_timer_free(request->drain_timer);
    free(request->raw_path);
    free(request->path);
    free(request->query);
    free(request);
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
    if (percent_decode(request->path, &len, false) || utf8_valid_prefix(request->path, len) < len)
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
    if (percent_decode(out, &len, true) || utf8_valid_prefix(out, len) < len)
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
parse_target(struct http_request *request, struct kg_error *err)
{
    const char *target = evhttp_request_get_uri(request->ev);
    size_t path_len = strcspn(target, "?#");
    request->raw_path = kg_strndup(target, path_len);
    if (target[0] != '/')
        return kg_error_set(err, KG_NOT_FOUND, 0, "no such path");
    if (parse_path(request, err))
        return -1;
    return target[path_len] == '?' ? parse_query(request, target + path_len + 1, err) : 0;
}

// evhttp reads no body after other methods: what came there would be taken for the next request.
static bool
has_unread_body(const struct http_request *request, bool coded, const char *length)
{
    bool reads = request->method & (HTTP_POST | HTTP_PUT | HTTP_PATCH);
    return !reads && (coded || (length && length[strspn(length, " \t0")]));
}

// RFC 9110, section 5.1. evhttp keeps a blank before the colon, and so knows no such header.
static bool
is_token(const char *name)
{
    return *name && !name[strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

// What evhttp lets pass although a proxy on the way may read it differently: where the request
// ends, and whom it is for. The connection ends with the answer.
static int
check_framing(struct http_request *request, struct kg_error *err)
{
    int hosts = 0, lengths = 0, codings = 0;
    const char *wrong = NULL;
    const struct evkeyval *header;
    TAILQ_FOREACH(header, evhttp_request_get_input_headers(request->ev), next) {
        hosts += strcasecmp(header->key, "Host") == 0;
        lengths += strcasecmp(header->key, "Content-Length") == 0;
        bool coding = strcasecmp(header->key, "Transfer-Encoding") == 0;
        codings += coding;
        if (coding && strcasecmp(header->value, "chunked") != 0)
            wrong = "Transfer-Encoding may be chunked only";
        else if (!is_token(header->key))
            wrong = "a header's name has a character that none may have";
    }
    if (!wrong && (hosts > 1 || lengths + codings > 1))
        wrong = "Host, and one of Content-Length and Transfer-Encoding, may stand only once";
    if (wrong || has_unread_body(request, codings, http_request_header(request, "Content-Length")))
        http_reply_header(request, "Connection", "close");
    return wrong ? kg_error_set(err, KG_INVALID, 0, "%s", wrong) : 0;
}

// ---- Dispatch -------------------------------------------------------------------------------

static void
answer_unrouted(struct http_request *request, int methods)
{
    struct kg_error err;
    char allow[64];
    router_format_methods(methods | HTTP_OPTIONS, allow, sizeof allow);
    if (methods == 0) {
        kg_error_set(&err, KG_NOT_FOUND, 0, "no such path");
        http_reply_error(request, &err);
        return;
    }
    http_reply_header(request, "Allow", allow);
    if (request->method == HTTP_OPTIONS) {
        http_reply(request, 204, NULL, NULL, 0);
        return;
    }
    kg_error_set(&err, KG_METHOD_NOT_ALLOWED, 0, "this path knows %s", allow);
    http_reply_error(request, &err);
}

static int
check_body(const struct http_request *request, struct kg_error *err)
{
    size_t max = request->conn->server->max_small_body_bytes;
    if (max == 0 || (request->flags & HTTP_LARGE_BODY) || http_request_body_len(request) <= max)
        return 0;
    return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0, "the body has more than %zu bytes", max);
}

void
request_handle(struct http_connection *conn, struct evhttp_request *ev)
{
    struct http_server *server = conn->server;
    struct http_request *request = request_new(conn, ev);
    server->handling = request;
    struct kg_error err;
    if (check_framing(request, &err) || origin_check(server, request, &err) ||
        parse_target(request, &err)) {
        http_reply_error(request, &err);
        return;
    }
    int methods;
    const struct http_router_entry *entry = router_find(&server->router, request, &methods);
    if (!entry) {
        answer_unrouted(request, methods);
        return;
    }
    request->route = entry->route.pattern;
    request->flags = entry->route.flags;
    if (check_body(request, &err) || keys_check(server->keys, request, entry->route.flags, &err) ||
        (server->gate && !(entry->route.flags & HTTP_PUBLIC) &&
         server->gate(request, server->gate_arg, &err))) {
        http_reply_error(request, &err);
        return;
    }
    entry->route.handler(request, entry->arg);
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
    return evhttp_find_header(evhttp_request_get_input_headers(request->ev), name);
}

const char *
http_request_owner(const struct http_request *request)
{
    return request->owner;
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
    return evbuffer_get_length(evhttp_request_get_input_buffer(request->ev));
}

size_t
http_request_body_take(struct http_request *request, void *to, size_t len)
{
    int n = evbuffer_remove(evhttp_request_get_input_buffer(request->ev), to, len);
    size_t taken = n > 0 ? (size_t)n : 0;
    if (request->conn)
        intake_give(request->conn, taken);
    return taken;
}

json_t *
http_request_json(struct http_request *request, struct kg_error *err)
{
    size_t len;
    const char *body = http_request_body(request, &len);
    return http_json_parse(body, len, err);
}

int
http_json_check(const char *body, size_t len, size_t max_value_bytes, struct kg_error *err)
{
    struct json_weight weight = json_weigh(body, len);
    if (weight.depth > HTTP_JSON_DEPTH_MAX)
        return kg_error_set(err, KG_INVALID, 0, "the JSON nests more than %d levels deep",
                            HTTP_JSON_DEPTH_MAX);
    if (weight.bytes > max_value_bytes)
        return kg_error_set(err, KG_INVALID, 0,
                            "the JSON has too many values: they would take %zu MiB of memory, at "
                            "most %zu are taken; send large data as a file",
                            weight.bytes >> 20, max_value_bytes >> 20);
    return 0;
}

json_t *
http_json_parse(const char *body, size_t len, struct kg_error *err)
{
    json_error_t error;
    json_t *value = NULL;
    if (len == 0)
        kg_error_set(err, KG_INVALID, 0, "the body is empty, JSON was expected");
    else if (memchr(body, '\0', len)) // which jansson overlooks behind a number
        kg_error_set(err, KG_INVALID, 0, "the body is not valid JSON: it has a NUL byte");
    else if (http_json_check(body, len, HTTP_JSON_VALUE_BYTES_MAX, err) == 0 &&
             !(value = json_loadb(body, len, JSON_REJECT_DUPLICATES, &error)))
        kg_error_set(err, KG_INVALID, 0, "the body is not valid JSON: line %d, column %d: %s",
                     error.line, error.column, error.text);
    return value;
}

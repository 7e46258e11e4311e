// SPDX-License-Identifier: Apache-2.0
// A request from its creation to the end of its answer, its target, and what handlers can ask about
// it.

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"
#include "metrics.h"

// ---- Methods --------------------------------------------------------------------------------

static const struct {
    enum http_method method;
    const char *name;
} methods[] = {
    {HTTP_GET, "GET"},       {HTTP_HEAD, "HEAD"},       {HTTP_POST, "POST"},   {HTTP_PUT, "PUT"},
    {HTTP_DELETE, "DELETE"}, {HTTP_OPTIONS, "OPTIONS"}, {HTTP_PATCH, "PATCH"},
};

enum http_method
method_by_name(const char *name)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++)
        if (strcmp(methods[i].name, name) == 0)
            return methods[i].method;
    return 0;
}

void
methods_format(int set, char *ret, size_t size)
{
    size_t len = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        if (!(set & (int)methods[i].method))
            continue;
        int n = snprintf(ret + len, size - len, "%s%s", len ? ", " : "", methods[i].name);
        assert(n > 0 && (size_t)n < size - len);
        len += (size_t)n;
    }
}

// ---- Life -----------------------------------------------------------------------------------

struct http_request *
request_new(struct http_connection *conn)
{
    struct http_request *request = KG_NEW(struct http_request);
    request->server = conn->server;
    request->conn = conn;
    request->body = evbuffer_new();
    if (!request->body)
        abort();
    id_random(request->id, HTTP_ID_LEN);
    conn->request = request;
    return request;
}

void
request_stop_drain(struct http_request *request)
{
    if (request->output_cb)
        evbuffer_remove_cb_entry(bufferevent_get_output(request->conn->bev), request->output_cb);
    request->output_cb = NULL;
    if (request->drain_timer)
        loop_timer_stop(request->drain_timer);
}

void
request_detach(struct http_request *request)
{
    request_stop_drain(request);
    request->conn->request = NULL;
    request->conn = NULL;
}

void
request_gone(struct http_request *request)
{
    loop_fn on_gone = KG_STEAL(request->on_gone);
    if (!request->is_handled || request->free_owned)
        request_free(request);
    else if (on_gone)
        on_gone(request->on_gone_arg);
}

static void
count_request(const struct http_request *request)
{
    static const char *const classes[] = {"gone", "1xx", "2xx", "3xx", "4xx", "5xx"};
    char method[8] = "other";
    assert(request->status < 600);
    if (request->method)
        methods_format((int)request->method, method, sizeof method);
    metric_add(METRIC_HTTP_REQUESTS, 1, request->route ? request->route : "none", method,
               classes[request->status / 100]);
}

void
request_free(struct http_request *request)
{
    if (request->is_handled)
        count_request(request);
    if (request->conn)
        request_detach(request);
    if (request->free_owned)
        request->free_owned(request->owned);
    loop_timer_free(request->drain_timer);
    loop_timer_free(request->flush_timer);
    loop_timer_free(request->slow_timer);
    loop_timer_free(request->idle_timer);
    gunzip_free(request->gunzip);
    gzip_free(request->gzip);
    parsed_free(request->json);
    json_decref(request->elsewhere);
    for (size_t i = 0; i < HTTP_SET_HEADERS_MAX; i++)
        free(request->set_headers[i]);
    free(request->raw_path);
    free(request->path);
    free(request->query);
    buf_fini(&request->answer);
    evbuffer_free(request->body);
    head_fini(&request->head);
    free(request);
}

void
http_request_abandon(struct http_request *request)
{
    assert(!request->conn);
    request_free(request);
}

void
http_request_own(struct http_request *request, void *state, loop_fn free_fn)
{
    assert(!request->free_owned && !request->on_gone);
    request->owned = state;
    request->free_owned = free_fn;
}

void
http_request_disown(struct http_request *request)
{
    request->free_owned = NULL;
}

void
http_request_on_gone(struct http_request *request, loop_fn on_gone, void *arg)
{
    assert(!request->free_owned);
    request->on_gone = on_gone;
    request->on_gone_arg = arg;
}

// ---- The target -----------------------------------------------------------------------------

static int
parse_path(struct http_request *request, struct kg_error *err)
{
    // Split before decoding: %2F is not a separator.
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

int
request_parse_target(struct http_request *request, const char *target, struct kg_error *err)
{
    size_t path_len = strcspn(target, "?#");
    request->raw_path = kg_strndup(target, path_len);
    if (target[0] != '/')
        return kg_error_set(err, KG_NOT_FOUND, 0, "no route has this path");
    if (parse_path(request, err))
        return -1;
    return target[path_len] == '?' ? parse_query(request, target + path_len + 1, err) : 0;
}

// ---- What handlers ask ----------------------------------------------------------------------

struct http_server *
http_request_server(const struct http_request *request)
{
    return request->server;
}

enum http_method
http_request_method(const struct http_request *request)
{
    return request->method;
}

const char *
http_request_param(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_params; i++) {
        const struct http_param *param = &request->params[i];
        if (strlen(name) == param->name_len && memcmp(name, param->name, param->name_len) == 0)
            return param->value;
    }
    abort(); // the pattern does not name it
}

// The first value of that name from `at` on, where a name begins.
static const char *
find_query(const struct http_request *request, const char *name, const char *at)
{
    const char *end = request->query + request->query_len;
    while (at < end) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

// It is in the head once at most, as handlers and replicas read it.
void
http_request_set_header(struct http_request *request, const char *name, const char *value)
{
    struct http_head *head = &request->head;
    size_t n = 0, free_one = 0;
    for (size_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) != 0)
            head->headers[n++] = head->headers[i];
    head->n_headers = n;
    while (request->set_headers[free_one])
        assert(++free_one < HTTP_SET_HEADERS_MAX);
    request->set_headers[free_one] = kg_strdup(value);
    head_add(head, name, request->set_headers[free_one]);
}

const char *
http_request_query(const struct http_request *request, const char *name)
{
    return find_query(request, name, request->query);
}

const char *
http_request_query_next(const struct http_request *request, const char *name, const char *previous)
{
    return find_query(request, name, previous + strlen(previous) + 1);
}

const char *
http_request_header(const struct http_request *request, const char *name)
{
    return head_find(&request->head, name);
}

const char *
http_request_owner(const struct http_request *request)
{
    return request->owner[0] ? request->owner : NULL;
}

// SPDX-License-Identifier: Apache-2.0
// Answers that are sent whole: bytes, JSON, problem details (RFC 9457).

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "http_priv.h"
#include "metrics.h"

void
http_reply_header(struct http_request *request, const char *name, const char *value)
{
    if (evhttp_add_header(evhttp_request_get_output_headers(request->ev), name, value))
        log_warning("answer header dropped", LOG_STR("request", request->id),
                    LOG_STR("name", name));
}

void
reply_add_common_headers(struct http_request *request, int status, const char *content_type)
{
    request->status = status;
    http_reply_header(request, "X-Request-Id", request->id);
    http_reply_header(request, "X-Content-Type-Options", "nosniff");
    if (content_type)
        http_reply_header(request, "Content-Type", content_type);
    log_debug("http answer", LOG_STR("request", request->id), LOG_STR("path", request->raw_path),
              LOG_INT("status", status));
}

// Takes the contents of `body`. A client that reads nothing of the answer for the idle timeout is
// disconnected; the whole answer may take longer.
static void
send_whole(struct http_request *request, int status, const char *content_type,
           struct evbuffer *body)
{
    struct http_connection *conn = request->conn;
    assert(!request->streaming);
    reply_add_common_headers(request, status, content_type);
    size_t len = evbuffer_get_length(body);
    if (request->method == HTTP_HEAD) {
        char text[24];
        snprintf(text, sizeof text, "%zu", len);
        http_reply_header(request, "Content-Length", text);
        evbuffer_drain(body, len);
    }
    struct evhttp_request *ev = request->ev;
    request_free(request);
    bufferevent_set_timeouts(conn->bev, NULL, &conn->server->idle_timeout);
    evhttp_send_reply(ev, status, NULL, body);
}

void
http_reply(struct http_request *request, int status, const char *content_type, const void *data,
           size_t len)
{
    if (!request->conn) {
        request_free(request);
        return;
    }
    struct evbuffer *body = request->conn->server->scratch;
    evbuffer_add(body, data, len);
    send_whole(request, status, content_type, body);
}

static void
free_reference(const void *data, size_t len, void *text)
{
    (void)data;
    (void)len;
    free(text);
}

void
http_reply_take(struct http_request *request, int status, const char *content_type, char *text,
                size_t len)
{
    if (!request->conn) {
        free(text);
        request_free(request);
        return;
    }
    struct evbuffer *body = request->conn->server->scratch;
    evbuffer_add_reference(body, text, len, free_reference, text);
    send_whole(request, status, content_type, body);
}

struct shared_bytes {
    loop_fn release;
    void *arg;
};

static void
shared_bytes_release(const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    struct shared_bytes *shared = arg;
    shared->release(shared->arg);
    free(shared);
}

void
reply_add_shared(struct evbuffer *to, const void *data, size_t len, loop_fn release, void *arg)
{
    struct shared_bytes *shared = KG_NEW(struct shared_bytes);
    *shared = (struct shared_bytes){.release = release, .arg = arg};
    evbuffer_add_reference(to, data, len, shared_bytes_release, shared);
}

void
http_reply_shared(struct http_request *request, int status, const char *content_type,
                  const void *data, size_t len, loop_fn release, void *arg)
{
    if (!request->conn) {
        release(arg);
        request_free(request);
        return;
    }
    struct evbuffer *body = request->conn->server->scratch;
    reply_add_shared(body, data, len, release, arg);
    send_whole(request, status, content_type, body);
}

static void
reply_json_as(struct http_request *request, int status, const char *content_type, json_t *value)
{
    // 17 digits, jansson's default, would make 9.5150000000000006 of 9.515.
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(15);
    char *text = request->conn ? json_dumps(value, flags) : NULL;
    json_decref(value);
    if (!text && request->conn)
        http_reply(request, 500, "text/plain", "cannot encode the answer", 24);
    else
        http_reply_take(request, status, content_type, text, text ? strlen(text) : 0);
}

void
http_reply_json(struct http_request *request, int status, json_t *body)
{
    reply_json_as(request, status, "application/json", body);
}

json_t *
problem_new(const struct kg_error *err)
{
    const struct kg_code_info *info = kg_code_info(err->code);
    return json_pack("{s:s, s:s, s:i, s:s, s:s}", "type", "about:blank", "title", info->title,
                     "status", info->http_status, "detail", err->message, "code", info->name);
}

void
http_reply_error(struct http_request *request, const struct kg_error *err)
{
    const struct kg_code_info *info = kg_code_info(err->code);
    if (request->conn)
        metric_add(METRIC_HTTP_PROBLEMS, 1, info->name);
    if (err->code == KG_UNAUTHORIZED)
        http_reply_header(request, "WWW-Authenticate", "Bearer");
    if (info->retryable && (info->http_status == 429 || info->http_status == 503)) {
        KG_AUTO_FREE char *seconds =
            kg_asprintf("%lld", (long long)(err->retry_after_s > 0 ? err->retry_after_s : 1));
        http_reply_header(request, "Retry-After", seconds);
    }
    reply_json_as(request, info->http_status, "application/problem+json", problem_new(err));
}

// SPDX-License-Identifier: Apache-2.0
// Answers that are sent whole: bytes, JSON, problem details (RFC 9457).

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"
#include "metrics.h"

void
http_reply_header(struct http_request *request, const char *name, const char *value)
{
    if (strpbrk(value, "\r\n")) {
        log_warning("answer header dropped", LOG_STR("request", request->id),
                    LOG_STR("name", name));
        return;
    }
    request->has_length |= strcasecmp(name, "Content-Length") == 0;
    buf_append_str(&request->answer, name);
    buf_append_str(&request->answer, ": ");
    buf_append_str(&request->answer, value);
    buf_append_str(&request->answer, "\r\n");
}

void
reply_close(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    if (!conn || conn->must_close)
        return;
    conn->must_close = request->has_connection = true;
    http_reply_header(request, "Connection", "close");
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

static bool
is_header(const char *line, const char *name)
{
    size_t len = strlen(name);
    return strncasecmp(line, name, len) == 0 && line[len] == ':';
}

void
reply_change_for_coding(struct http_request *request)
{
    static const char etag[] = "ETag: \"";
    struct buf kept = {0};
    for (const char *line = request->answer.data; line && *line; line = strchr(line, '\n') + 1) {
        if (is_header(line, "Content-Length") || is_header(line, "Accept-Ranges"))
            continue;
        bool is_strong = strncasecmp(line, etag, strlen(etag)) == 0;
        if (is_strong)
            buf_append_str(&kept, "ETag: W/");
        line += is_strong ? strlen(etag) - 1 : 0;
        buf_append(&kept, line, strcspn(line, "\n") + 1);
    }
    buf_fini(&request->answer);
    request->answer = kept;
    request->has_length = false;
}

// ---- The head -------------------------------------------------------------------------------

// RFC 9110, section 15; of the statuses that handlers and errors have.
static const char *
reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {302, "Found"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {409, "Conflict"},
        {410, "Gone"},
        {413, "Request Entity Too Large"},
        {415, "Unsupported Media Type"},
        {416, "Requested range not satisfiable"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Time-out"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Status"; // clients go by the number
}

// RFC 9110, sections 15.3.5 and 15.4.5.
static bool
has_content(int status)
{
    return status != 204 && status != 304;
}

static void
add_date(struct evbuffer *output)
{
    char date[40];
    evutil_date_rfc1123(date, sizeof date, NULL);
    evbuffer_add_printf(output, "Date: %s\r\n", date);
}

void
reply_write_head(struct http_request *request, int status, int64_t content_length)
{
    struct http_connection *conn = request->conn;
    const struct http_head *head = &request->head;
    struct evbuffer *output = bufferevent_get_output(conn->bev);
    if (body_is_left(request)) {
        conn->lingers = true; // the client may still be sending it
        reply_close(request);
    }
    bool keeps = !head->is_1_0 || head_has_token(head, "Connection", "keep-alive");
    // HTTP/1.0 has no chunks: the end of the connection is the end of the answer.
    bool is_open = content_length < 0 && !request->has_length && has_content(status);
    request->is_chunked = is_open && !head->is_1_0 && request->method != HTTP_HEAD;
    if (head_has_token(head, "Connection", "close") || !keeps || (is_open && head->is_1_0))
        conn->must_close = true;
    evbuffer_add_printf(output, "HTTP/1.%d %d %s\r\n", !head->is_1_0, status, reason_of(status));
    evbuffer_add(output, request->answer.data, request->answer.len);
    add_date(output);
    if (content_length >= 0 && !request->has_length && has_content(status))
        evbuffer_add_printf(output, "Content-Length: %lld\r\n", (long long)content_length);
    if (request->is_chunked)
        evbuffer_add_printf(output, "Transfer-Encoding: chunked\r\n");
    if (conn->must_close && !request->has_connection)
        evbuffer_add_printf(output, "Connection: close\r\n");
    else if (!conn->must_close && head->is_1_0)
        evbuffer_add_printf(output, "Connection: keep-alive\r\n");
    evbuffer_add(output, "\r\n", 2);
}

// ---- Whole answers --------------------------------------------------------------------------

// Writes the head of an answer with `len` bytes; returns where to write these, or NULL if they are
// not sent.
static struct evbuffer *
begin_whole(struct http_request *request, int status, const char *content_type, size_t len)
{
    assert(!request->is_streaming);
    reply_add_common_headers(request, status, content_type);
    if (request->method == HTTP_HEAD && has_content(status)) {
        char text[24];
        snprintf(text, sizeof text, "%zu", len);
        http_reply_header(request, "Content-Length", text);
    }
    reply_write_head(request, status, (int64_t)len);
    return request->method == HTTP_HEAD || !has_content(status)
               ? NULL
               : bufferevent_get_output(request->conn->bev);
}

static void
end_whole(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    request_free(request);
    connection_finish_answer(conn);
}

void
http_reply(struct http_request *request, int status, const char *content_type, const void *data,
           size_t len)
{
    if (!request->conn) {
        request_free(request);
        return;
    }
    struct evbuffer *to = begin_whole(request, status, content_type, len);
    if (to)
        evbuffer_add(to, data, len);
    end_whole(request);
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
    struct evbuffer *to = begin_whole(request, status, content_type, len);
    if (to)
        evbuffer_add_reference(to, text, len, free_reference, text);
    else
        free(text);
    end_whole(request);
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
    struct evbuffer *to = begin_whole(request, status, content_type, len);
    if (to)
        reply_add_shared(to, data, len, release, arg);
    else
        release(arg);
    end_whole(request);
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
    int status = info->http_status;
    if (request->dialect) {
        json_t *body = request->dialect->describe_error(request, err, &status);
        reply_json_as(request, status, "application/json", body);
        return;
    }
    reply_json_as(request, status, "application/problem+json", problem_new(err));
}

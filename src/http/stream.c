// SPDX-License-Identifier: Apache-2.0
// Streamed answers: their chunks, and the backlog that the client has not read yet.

#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <strings.h>

#include "http_priv.h"

// The head waits so long for what comes first, so that both are one write.
enum { HEAD_LINGER_MS = 10, FLUSH_BYTES = 1 << 20 };

static struct evbuffer *
output_of(const struct http_request *request)
{
    return bufferevent_get_output(request->conn->bev);
}

// ---- Writing to the socket ------------------------------------------------------------------

static void
stream_on_flush(void *arg)
{
    struct http_request *request = arg;
    if (request->conn)
        connection_flush(request->conn);
}

void
stream_init_flush(struct http_request *request)
{
    request->flush_timer = loop_timer_new(request->conn->server->loop, stream_on_flush, request);
}

// Before something is added to the output; it is written at the end of the turn.
static void
flush_later(struct http_request *request)
{
    loop_timer_fire(request->flush_timer);
}

// ---- Streams --------------------------------------------------------------------------------

void
http_stream_start(struct http_request *request, int status, const char *content_type)
{
    if (!request->conn)
        return;
    reply_add_common_headers(request, status, content_type);
    http_reply_header(request, "Cache-Control", "no-cache");
    http_reply_header(request, "X-Accel-Buffering", "no");
    stream_begin(request, status);
}

void
stream_begin(struct http_request *request, int status)
{
    assert(!request->is_streaming);
    request->is_streaming = true;
    request->status = status;
    stream_init_flush(request);
    loop_timer_start(request->flush_timer, HEAD_LINGER_MS);
    reply_write_head(request, status, -1);
}

// Writes to the connection's buffer directly: a buffer for every chunk would take many times the
// size of a short line.
void
http_stream_write(struct http_request *request, const void *data, size_t len)
{
    if (!request->conn)
        return;
    assert(request->is_streaming);
    if (len == 0 || (request->method == HTTP_HEAD && !request->conn->tunnelled))
        return;
    struct evbuffer *output = output_of(request);
    bool chunked = request->is_chunked;
    char size[24];
    int size_len = snprintf(size, sizeof size, "%zx\r\n", len);
    flush_later(request);
    if (chunked)
        evbuffer_add(output, size, (size_t)size_len);
    evbuffer_add(output, data, len);
    if (chunked)
        evbuffer_add(output, "\r\n", 2);
}

void
http_stream_write_shared(struct http_request *request, const void *data, size_t len,
                         loop_fn release, void *arg)
{
    if (!request->conn || len == 0 || request->method == HTTP_HEAD) {
        release(arg);
        return;
    }
    assert(request->is_streaming);
    struct evbuffer *output = output_of(request);
    flush_later(request);
    if (request->is_chunked)
        evbuffer_add_printf(output, "%zx\r\n", len);
    reply_add_shared(output, data, len, release, arg);
    if (request->is_chunked)
        evbuffer_add(output, "\r\n", 2);
}

size_t
http_stream_backlog(const struct http_request *request)
{
    return request->conn ? evbuffer_get_length(output_of(request)) : 0;
}

static void
on_drain_timer(void *arg)
{
    struct http_request *request = arg;
    request->on_drain(request->on_drain_arg);
}

// Runs within bufferevent's write, where nothing may be closed: hence the timer.
static void
stream_on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg)
{
    struct http_request *request = arg;
    if (info->orig_size > request->low_watermark &&
        evbuffer_get_length(output) <= request->low_watermark)
        loop_timer_start(request->drain_timer, 0);
}

void
http_stream_on_drain(struct http_request *request, size_t low_watermark, loop_fn on_drain,
                     void *arg)
{
    if (!request->conn)
        return;
    request_stop_drain(request);
    request->low_watermark = low_watermark;
    request->on_drain = on_drain;
    request->on_drain_arg = arg;
    if (!on_drain)
        return;
    if (!request->drain_timer)
        request->drain_timer = loop_timer_new(request->conn->server->loop, on_drain_timer, request);
    request->output_cb = evbuffer_add_cb(output_of(request), stream_on_output, request);
}

void
http_stream_end(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    assert(request->is_streaming || !conn);
    if (conn && request->is_chunked)
        evbuffer_add(output_of(request), "0\r\n\r\n", 5);
    request_free(request);
    if (conn)
        connection_finish_answer(conn);
}

void
http_stream_abort(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    if (conn) {
        request_detach(request); // it ends here, and not with the connection
        connection_close(conn);
    }
    request_free(request);
}

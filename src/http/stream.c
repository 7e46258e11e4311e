// SPDX-License-Identifier: Apache-2.0
// Streamed answers: their chunks, and the backlog that the client has not read yet.

#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
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

// Types whose content is compressed already.
static bool
is_compressed(const char *type)
{
    static const char *const types[] = {"audio/",
                                        "video/",
                                        "image/",
                                        "font/woff",
                                        "application/gzip",
                                        "application/pdf",
                                        "application/vnd.openxmlformats",
                                        "application/x-7z",
                                        "application/x-bzip",
                                        "application/x-gzip",
                                        "application/x-xz",
                                        "application/zip",
                                        "application/zstd"};
    if (strncasecmp(type, "image/svg", 9) == 0)
        return false;
    for (size_t i = 0; i < KG_ARRAY_LEN(types); i++)
        if (strncasecmp(type, types[i], strlen(types[i])) == 0)
            return true;
    return false;
}

// A part of a file is a part of what the file is without a coding (RFC 9110, section 14.2).
static void
choose_coding(struct http_request *request, int status, const char *content_type)
{
    if (!(request->flags & HTTP_GZIP_ANSWER) || status != 200 || !content_type ||
        is_compressed(content_type))
        return;
    http_reply_header(request, "Vary", "Accept-Encoding");
    if (!http_request_accepts_gzip(request))
        return;
    reply_change_for_coding(request);
    http_reply_header(request, "Content-Encoding", "gzip");
    request->gzip = gzip_new();
}

void
http_stream_start(struct http_request *request, int status, const char *content_type)
{
    if (!request->conn)
        return;
    choose_coding(request, status, content_type);
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
static void
write_piece(struct http_request *request, const void *data, size_t len)
{
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

static void
write_encoded(struct http_request *request, const void *data, size_t len, bool last)
{
    struct evbuffer *encoded = evbuffer_new();
    if (!encoded)
        abort();
    gzip_add(request->gzip, data, len, last, encoded);
    size_t n = evbuffer_get_length(encoded);
    if (n > 0)
        write_piece(request, evbuffer_pullup(encoded, -1), n);
    evbuffer_free(encoded);
}

void
http_stream_write(struct http_request *request, const void *data, size_t len)
{
    if (!request->conn)
        return;
    assert(request->is_streaming);
    if (len == 0 || (request->method == HTTP_HEAD && !request->conn->tunnelled))
        return;
    if (request->gzip)
        write_encoded(request, data, len, false);
    else
        write_piece(request, data, len);
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
    if (request->gzip) {
        write_encoded(request, data, len, false);
        release(arg);
        return;
    }
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
    if (conn && request->gzip && request->method != HTTP_HEAD)
        write_encoded(request, "", 0, true);
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

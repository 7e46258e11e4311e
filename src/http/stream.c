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

// The bufferevent would write in the next turn, and change twice for it what epoll watches. So it
// writes only what the socket did not take here; it also finds out why.
static void
flush(struct http_connection *conn)
{
    struct evbuffer *output = bufferevent_get_output(conn->bev);
    if (!(bufferevent_get_enabled(conn->bev) & EV_WRITE)) {
        evbuffer_unfreeze(output, 1); // only the bufferevent itself takes from it, otherwise
        evbuffer_write_atmost(output, conn->fd, FLUSH_BYTES);
        evbuffer_freeze(output, 1);
    }
    if (evbuffer_get_length(output) > 0)
        bufferevent_enable(conn->bev, EV_WRITE);
}

static void
stream_on_flush(void *arg)
{
    struct http_request *request = arg;
    if (request->conn)
        flush(request->conn);
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
    if (evbuffer_get_length(output_of(request)) == 0)
        bufferevent_disable(request->conn->bev, EV_WRITE);
    loop_timer_fire(request->flush_timer);
}

// ---- Streams --------------------------------------------------------------------------------

// evhttp_send_reply_start() would change twice what epoll watches. It would also make evhttp forget
// whom it calls when the last answer was written: until the end it is not called at all.
static void
write_head(const struct http_request *request, int status)
{
    struct evhttp_request *ev = request->ev;
    struct evkeyvalq *headers = evhttp_request_get_output_headers(ev);
    struct evbuffer *output = output_of(request);
    const char *connection = evhttp_find_header(request->headers, "Connection");
    bool is_1_0 = ev->major == 1 && ev->minor == 0;
    char date[40];
    evutil_date_rfc1123(date, sizeof date, NULL);
    evhttp_add_header(headers, "Date", date);
    ev->chunked =
        !is_1_0 && request->method != HTTP_HEAD && !evhttp_find_header(headers, "Content-Length");
    if (ev->chunked)
        evhttp_add_header(headers, "Transfer-Encoding", "chunked");
    if (connection && strcasecmp(connection, "close") == 0) {
        evhttp_remove_header(headers, "Connection");
        evhttp_add_header(headers, "Connection", "close");
    }
    evbuffer_add_printf(output, "HTTP/%d.%d %d %s\r\n", ev->major, ev->minor, status,
                        status == 206 ? "Partial Content" : "OK");
    struct evkeyval *header;
    TAILQ_FOREACH(header, headers, next)
        evbuffer_add_printf(output, "%s: %s\r\n", header->key, header->value);
    evbuffer_add(output, "\r\n", 2);
}

void
http_stream_start(struct http_request *request, int status, const char *content_type)
{
    if (!request->conn)
        return;
    assert(!request->streaming);
    request->streaming = true;
    reply_add_common_headers(request, status, content_type);
    http_reply_header(request, "Cache-Control", "no-cache");
    http_reply_header(request, "X-Accel-Buffering", "no");
    // HTTP/1.0 has no chunks: the end of the connection is the end of the answer.
    if (request->ev->major == 1 && request->ev->minor == 0)
        evhttp_remove_header(evhttp_request_get_input_headers(request->ev), "Connection");
    stream_init_flush(request);
    loop_timer_start(request->flush_timer, HEAD_LINGER_MS);
    bufferevent_disable(request->conn->bev, EV_WRITE);
    request->evhttp_write = connection_set_writer(request->conn, NULL);
    write_head(request, status);
}

// Writes to the connection's buffer directly: evhttp_send_reply_chunk() would allocate a buffer for
// every chunk, which takes many times the size of a short line.
void
http_stream_write(struct http_request *request, const void *data, size_t len)
{
    if (!request->conn)
        return;
    assert(request->streaming);
    if (len == 0 || (request->method == HTTP_HEAD && !request->conn->tunnelled))
        return;
    struct evbuffer *output = output_of(request);
    bool chunked = request->ev->chunked;
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
    assert(request->streaming);
    struct evbuffer *output = output_of(request);
    flush_later(request);
    if (request->ev->chunked)
        evbuffer_add_printf(output, "%zx\r\n", len);
    reply_add_shared(output, data, len, release, arg);
    if (request->ev->chunked)
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
on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg)
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
    request->output_cb = evbuffer_add_cb(output_of(request), on_output, request);
}

void
http_stream_end(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    assert(request->streaming || !conn);
    struct evhttp_request *ev = request->ev;
    bool in_handler = conn && conn->server->handling == request;
    if (conn)
        (void)connection_set_writer(conn, request->evhttp_write);
    request_free(request);
    if (!conn)
        return;
    // With its last chunk written here evhttp has nothing to wait for, if all was written. Within
    // the handler it must not end the request.
    if (ev->chunked) {
        evbuffer_add(bufferevent_get_output(conn->bev), "0\r\n\r\n", 5);
        ev->chunked = 0;
    }
    if (in_handler)
        bufferevent_enable(conn->bev, EV_WRITE);
    else
        flush(conn);
    bufferevent_set_timeouts(conn->bev, NULL, &conn->server->idle_timeout);
    evhttp_send_reply_end(ev);
}

void
http_stream_abort(struct http_request *request)
{
    request->on_gone = NULL;
    if (request->conn)
        connection_close(request->conn);
    request_free(request);
}

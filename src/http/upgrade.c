// SPDX-License-Identifier: Apache-2.0
// Upgraded connections: 101, and then bytes of another protocol both ways.

#include <assert.h>
#include <event2/event.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"

bool
http_upgrade_is_asked(const struct http_request *request, const char *protocol)
{
    const struct http_head *head = &request->head;
    return !head->is_1_0 && !request->body_is_unread && request->method == HTTP_GET &&
           head_has_token(head, "Connection", "upgrade") &&
           head_has_token(head, "Upgrade", protocol);
}

static void
write_head(struct http_request *request, const char *protocol)
{
    struct evbuffer *output = bufferevent_get_output(request->conn->bev);
    reply_add_common_headers(request, 101, NULL);
    evbuffer_add_printf(output,
                        "HTTP/1.1 101 Switching Protocols\r\n"
                        "Upgrade: %s\r\n"
                        "Connection: Upgrade\r\n",
                        protocol);
    evbuffer_add(output, request->answer.data, request->answer.len);
    evbuffer_add(output, "\r\n", 2);
}

void
upgrade_take(struct http_request *request, loop_fn on_data, void *arg)
{
    struct http_connection *conn = request->conn;
    assert(!request->is_streaming);
    request->is_streaming = true;
    request->is_chunked = false;
    request->on_data = on_data;
    request->on_data_arg = arg;
    conn->state = CONNECTION_UPGRADED;
    deadline_stop(conn); // of a streamed body
    conn->is_full = false;
    stream_init_flush(request);
    bufferevent_enable(conn->bev, EV_READ);
    connection_flush(conn);
    connection_look_soon(conn);
}

void
http_upgrade_start(struct http_request *request, const char *protocol, loop_fn on_data, void *arg)
{
    if (!request->conn)
        return;
    write_head(request, protocol);
    request->conn->server->n_busy--;
    upgrade_take(request, on_data, arg);
}

size_t
http_upgrade_read(struct http_request *request, void *to, size_t len)
{
    if (!request->conn)
        return 0;
    int n = evbuffer_remove(bufferevent_get_input(request->conn->bev), to, len);
    connection_drain(request->conn);
    return n > 0 ? (size_t)n : 0;
}

void
http_upgrade_pause(struct http_request *request, bool paused)
{
    if (!request->conn)
        return;
    request->conn->is_full = false;
    if (paused) {
        bufferevent_disable(request->conn->bev, EV_READ);
        return;
    }
    bufferevent_enable(request->conn->bev, EV_READ);
    connection_look_soon(request->conn);
}

// What the client still sends is read and dropped, or it could lose the last bytes by a reset.
void
http_upgrade_end(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    if (!conn) {
        http_request_abandon(request);
        return;
    }
    assert(conn->state == CONNECTION_UPGRADED);
    conn->server->n_busy += !conn->tunnelled; // an answer again, whose end is being sent
    conn->lingers = conn->must_close = true;
    bufferevent_disable(conn->bev, EV_READ);
    request_free(request);
    connection_finish_answer(conn);
}

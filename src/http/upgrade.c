// SPDX-License-Identifier: Apache-2.0
// Upgraded connections: 101, and then bytes of another protocol both ways. evhttp keeps its
// connection and its request, but neither reads nor writes any more: its callbacks are replaced,
// except that it still hears of the connection's end, by which the request becomes `gone`.

#include <assert.h>
#include <event2/event.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"

// Whether a header is a list of tokens (RFC 9110, 5.6.1) with that one among them.
static bool
has_token(const struct http_request *request, const char *name, const char *token)
{
    const struct evkeyval *header;
    TAILQ_FOREACH(header, request->headers, next) {
        if (strcasecmp(header->key, name) != 0)
            continue;
        for (const char *item = header->value; *item; item += *item == ',') {
            item += strspn(item, " \t");
            size_t len = strcspn(item, ",");
            size_t used = len;
            while (used > 0 && (item[used - 1] == ' ' || item[used - 1] == '\t'))
                used--;
            if (used == strlen(token) && strncasecmp(item, token, used) == 0)
                return true;
            item += len;
        }
    }
    return false;
}

bool
http_upgrade_is_asked(const struct http_request *request, const char *protocol)
{
    const struct evhttp_request *ev = request->ev;
    bool is_new = ev->major > 1 || (ev->major == 1 && ev->minor >= 1);
    bool has_body = request->conn && request->conn->body_unread;
    return is_new && !has_body && request->method == HTTP_GET &&
           has_token(request, "Connection", "upgrade") && has_token(request, "Upgrade", protocol);
}

static void
upgrade_on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct http_connection *conn = arg;
    struct http_request *request = conn->request;
    if (request && request->on_data)
        request->on_data(request->on_data_arg);
}

static void
upgrade_on_event(struct bufferevent *bev, short what, void *arg)
{
    const struct http_connection *conn = arg;
    conn->request->evhttp_event(bev, what, conn->evcon);
}

// Lets `on_data` look in a turn of its own, at what came before or during a pause.
static void
look_soon(const struct http_connection *conn)
{
    bufferevent_trigger(conn->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

static void
write_head(struct http_request *request, const char *protocol)
{
    struct evbuffer *output = bufferevent_get_output(request->conn->bev);
    const struct evkeyval *header;
    reply_add_common_headers(request, 101, NULL);
    evbuffer_add_printf(output,
                        "HTTP/1.1 101 Switching Protocols\r\n"
                        "Upgrade: %s\r\n"
                        "Connection: Upgrade\r\n",
                        protocol);
    TAILQ_FOREACH(header, evhttp_request_get_output_headers(request->ev), next)
        evbuffer_add_printf(output, "%s: %s\r\n", header->key, header->value);
    evbuffer_add(output, "\r\n", 2);
}

void
upgrade_take(struct http_request *request, loop_fn on_data, void *arg)
{
    struct http_connection *conn = request->conn;
    assert(!request->streaming);
    request->streaming = true;
    request->ev->chunked = 0;
    request->on_data = on_data;
    request->on_data_arg = arg;
    conn->upgraded = true;
    if (conn->server->handling == request)
        conn->server->handling = NULL; // nobody is to watch it for its end but this file
    stream_init_flush(request);
    bufferevent_getcb(conn->bev, NULL, NULL, &request->evhttp_event, NULL);
    bufferevent_setcb(conn->bev, upgrade_on_read, NULL, upgrade_on_event, conn);
    bufferevent_set_timeouts(conn->bev, NULL, NULL);
    bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
    look_soon(conn);
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
    return n > 0 ? (size_t)n : 0;
}

void
http_upgrade_pause(struct http_request *request, bool paused)
{
    if (!request->conn)
        return;
    if (paused) {
        bufferevent_disable(request->conn->bev, EV_READ);
        return;
    }
    bufferevent_enable(request->conn->bev, EV_READ);
    look_soon(request->conn);
}

static void
upgrade_on_ended(void *arg)
{
    http_request_abandon(arg);
}

// The request stays until the connection is closed, because evhttp's request then becomes ours.
// What the client still sends is read and dropped, or it could lose the last bytes by a reset.
void
http_upgrade_end(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    if (!conn) {
        http_request_abandon(request);
        return;
    }
    assert(conn->upgraded);
    request_stop_drain(request);
    http_request_on_gone(request, upgrade_on_ended, request);
    request->on_data = NULL;
    conn->upgraded = false; // an answer again, whose end is being sent
    conn->server->n_busy += !conn->tunnelled;
    conn->lingers = true;
    conn->closing = true; // refusal.c closes it when the output is empty
    bufferevent_disable(conn->bev, EV_READ);
    bufferevent_set_timeouts(conn->bev, NULL, &conn->server->idle_timeout);
    if (http_stream_backlog(request) == 0)
        connection_close(conn);
}

// SPDX-License-Identifier: Apache-2.0
// One connection of a client: its output, and its end.

#include <event2/event.h>

#include "http_priv.h"

void
connection_close(struct http_connection *conn)
{
    // Raises a socket error, which pipeline.c handles.
    bufferevent_trigger_event(conn->bev, BEV_EVENT_READING | BEV_EVENT_ERROR, 0);
}

void
connection_fill(struct http_connection *conn)
{
    bool reads = bufferevent_get_enabled(conn->bev) & EV_READ;
    if (!reads || evbuffer_get_length(bufferevent_get_input(conn->bev)) < HTTP_READ_AHEAD_MAX)
        return;
    conn->is_full = true;
    bufferevent_disable(conn->bev, EV_READ);
}

void
connection_drain(struct http_connection *conn)
{
    if (!conn->is_full)
        return;
    conn->is_full = false;
    bufferevent_enable(conn->bev, EV_READ);
}

void
connection_look_soon(const struct http_connection *conn)
{
    bufferevent_trigger(conn->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

void
connection_has_sent(struct http_connection *conn)
{
    if (conn->state != CONNECTION_SENDING && conn->state != CONNECTION_ENDING)
        return;
    struct http_server *server = conn->server;
    if (!conn->is_ready) {
        TAILQ_INSERT_TAIL(&server->ready, conn, ready_link);
        server->n_ready++;
    }
    conn->is_ready = true;
    if (!server->goes_on && !loop_timer_active(server->go_on_later))
        event_active(server->go_on, EV_TIMEOUT, 0);
}

// The bufferevent would write in the next turn, and change twice for it what epoll watches. So it
// writes only what the socket did not take here; it also finds out why.
void
connection_flush(struct http_connection *conn)
{
    struct evbuffer *output = bufferevent_get_output(conn->bev);
    if (!(bufferevent_get_enabled(conn->bev) & EV_WRITE)) {
        evbuffer_unfreeze(output, 1); // only the bufferevent itself takes from it, otherwise
        evbuffer_write_atmost(output, conn->fd, HTTP_TURN_BYTES);
        evbuffer_freeze(output, 1);
    }
    if (evbuffer_get_length(output) > 0)
        bufferevent_enable(conn->bev, EV_WRITE);
    else
        connection_has_sent(conn);
}

// A client that reads nothing of the answer for the idle timeout is disconnected; the whole answer
// may take longer.
void
connection_finish_answer(struct http_connection *conn)
{
    conn->state = conn->must_close ? CONNECTION_ENDING : CONNECTION_SENDING;
    bufferevent_set_timeouts(conn->bev, NULL, &conn->server->idle_timeout);
    connection_flush(conn);
}

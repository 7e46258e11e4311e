// SPDX-License-Identifier: Apache-2.0
// One connection of a client: what the files that watch it do to it.

#include "http_priv.h"

void
connection_close(struct http_connection *conn)
{
    // As if the client had closed: evhttp takes its hands off the request and frees the rest.
    bufferevent_trigger_event(conn->bev, BEV_EVENT_READING | BEV_EVENT_EOF, 0);
}

void
connection_trust(struct http_connection *conn)
{
    if (conn->trusted)
        return;
    peer_trust(conn->peer);
    place_trust(conn);
}

void
connection_set_reader(struct http_connection *conn, bufferevent_data_cb on_read)
{
    bufferevent_data_cb on_write;
    bufferevent_event_cb on_event;
    void *evcon;
    bufferevent_getcb(conn->bev, NULL, &on_write, &on_event, &evcon);
    bufferevent_setcb(conn->bev, on_read, on_write, on_event, evcon);
}

bufferevent_data_cb
connection_set_writer(struct http_connection *conn, bufferevent_data_cb on_write)
{
    bufferevent_data_cb on_read, before;
    bufferevent_event_cb on_event;
    void *evcon;
    bufferevent_getcb(conn->bev, &on_read, &before, &on_event, &evcon);
    bufferevent_setcb(conn->bev, on_read, on_write, on_event, evcon);
    return before;
}

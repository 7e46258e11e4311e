// SPDX-License-Identifier: Apache-2.0
// The places of connections. When they are short, a client that waits for nothing makes room: of
// those without a valid key so far, who have half of the places at most, the one that has been
// idle longest; then of the others. A request that drips in does not make its client less idle.

#include "http_priv.h"

static struct http_queue *
idle_of(struct http_connection *conn)
{
    struct http_places *places = &conn->server->places;
    return conn->trusted ? &places->idle : &places->idle_strangers;
}

void
places_init(struct http_places *places, int max)
{
    places->max = max;
    TAILQ_INIT(&places->idle);
    TAILQ_INIT(&places->idle_strangers);
}

bool
places_make_room(struct http_places *places)
{
    struct http_connection *stranger = TAILQ_FIRST(&places->idle_strangers);
    bool full = places->n >= places->max;
    if (!full && places->n_strangers < (places->max + 1) / 2)
        return true;
    struct http_connection *last = stranger || !full ? stranger : TAILQ_FIRST(&places->idle);
    if (last)
        connection_close(last);
    return last != NULL;
}

void
place_take(struct http_connection *conn)
{
    struct http_places *places = &conn->server->places;
    places->n++;
    places->n_strangers++;
    place_is_idle(conn);
}

void
place_trust(struct http_connection *conn)
{
    bool idle = conn->idle;
    if (conn->trusted)
        return;
    peer_trust(conn->peer);
    place_is_busy(conn);
    conn->trusted = true;
    conn->server->places.n_strangers--;
    if (idle)
        place_is_idle(conn);
}

void
place_is_idle(struct http_connection *conn)
{
    if (!conn->idle)
        TAILQ_INSERT_TAIL(idle_of(conn), conn, queue_link);
    conn->idle = true;
}

void
place_is_busy(struct http_connection *conn)
{
    if (conn->idle)
        TAILQ_REMOVE(idle_of(conn), conn, queue_link);
    conn->idle = false;
}

void
place_leave(struct http_connection *conn)
{
    struct http_places *places = &conn->server->places;
    place_is_busy(conn);
    places->n--;
    places->n_strangers -= !conn->trusted;
}

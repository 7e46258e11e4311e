// SPDX-License-Identifier: Apache-2.0
// evhttp reads a whole body before its handler runs. So what all connections together have read and
// not yet given away is bounded: beyond the bound only the one that has waited longest reads on,
// and it has to be quick about it.

#include <event2/event.h>

#include "http_priv.h"

enum {
    SMALL_BYTES = 64 << 10, // what every connection may hold; also what it reads at a time
    LARGE_READ_BYTES = 1 << 20,
    LOOK_MS = 5 * 1000,
    LEAST_PROGRESS = 2 << 20, // between two looks, of the one whom others wait for
};

static struct http_connection *
first_reader(const struct http_server *server)
{
    struct http_connection *conn;
    TAILQ_FOREACH(conn, &server->intake.large, intake_link) {
        if (!conn->busy)
            return conn;
    }
    return NULL;
}

static void
set_paused(struct http_connection *conn, bool paused)
{
    if (conn->busy || conn->intake_paused == paused)
        return;
    conn->intake_paused = paused;
    if (paused)
        bufferevent_disable(conn->bev, EV_READ);
    else
        bufferevent_enable(conn->bev, EV_READ);
}

static void
on_decide(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_server *server = arg;
    struct http_intake *intake = &server->intake;
    bool full = intake->held > intake->max;
    struct http_connection *first = first_reader(server);
    struct http_connection *conn;
    TAILQ_FOREACH(conn, &intake->large, intake_link)
        set_paused(conn, full && conn != first);
    if (!full || !first) {
        loop_timer_stop(intake->look);
    } else if (!loop_timer_active(intake->look)) {
        intake->first = first;
        intake->first_held = first->held;
        loop_timer_start(intake->look, LOOK_MS);
    }
}

static void
decide_soon(struct http_server *server)
{
    event_active(server->intake.decide, EV_TIMEOUT, 0);
}

static void
on_look(void *arg)
{
    struct http_server *server = arg;
    struct http_intake *intake = &server->intake;
    struct http_connection *first = first_reader(server);
    if (first && first == intake->first && first->held < intake->first_held + LEAST_PROGRESS) {
        log_warning("a client that sends too slowly was cut: others wait",
                    LOG_INT("bytes", (int64_t)first->held));
        connection_close(first);
    }
    decide_soon(server);
}

static void
on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *arg)
{
    (void)input;
    struct http_connection *conn = arg;
    if (info->n_added == 0 || conn->busy)
        return;
    struct http_intake *intake = &conn->server->intake;
    if (conn->held >= intake->max_body)
        return; // evhttp drops what is beyond a body's bound
    conn->held += info->n_added;
    intake->held += info->n_added;
    if (conn->held > SMALL_BYTES && !conn->is_large) {
        conn->is_large = true;
        TAILQ_INSERT_TAIL(&intake->large, conn, intake_link);
        bufferevent_set_max_single_read(conn->bev, LARGE_READ_BYTES);
    }
    if (intake->held > intake->max)
        decide_soon(conn->server);
}

void
intake_watch(struct http_connection *conn)
{
    bufferevent_set_max_single_read(conn->bev, SMALL_BYTES);
    evbuffer_add_cb(bufferevent_get_input(conn->bev), on_input, conn);
}

void
intake_give(struct http_connection *conn, size_t len)
{
    struct http_intake *intake = &conn->server->intake;
    size_t given = len < conn->held ? len : conn->held;
    conn->held -= given;
    intake->held -= given;
    if (!TAILQ_EMPTY(&intake->large))
        decide_soon(conn->server);
}

void
intake_forget(struct http_connection *conn)
{
    intake_give(conn, conn->held);
    if (conn->is_large)
        TAILQ_REMOVE(&conn->server->intake.large, conn, intake_link);
    if (conn->server->intake.first == conn)
        conn->server->intake.first = NULL;
    conn->is_large = false;
    conn->intake_paused = false;
}

void
intake_reset(struct http_connection *conn)
{
    intake_forget(conn);
    bufferevent_set_max_single_read(conn->bev, SMALL_BYTES);
}

void
intake_init(struct http_server *server, const struct http_server_settings *settings)
{
    struct http_intake *intake = &server->intake;
    TAILQ_INIT(&intake->large);
    intake->max_body = settings->max_body_bytes + settings->max_header_bytes;
    intake->max = settings->max_held_bytes ? settings->max_held_bytes : SIZE_MAX;
    intake->decide = event_new(loop_event_base(server->loop), -1, 0, on_decide, server);
    if (!intake->decide)
        abort();
    intake->look = loop_timer_new(server->loop, on_look, server);
}

void
intake_fini(struct http_server *server)
{
    event_free(server->intake.decide);
    loop_timer_free(server->intake.look);
}

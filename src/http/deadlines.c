// SPDX-License-Identifier: Apache-2.0
// The deadlines of requests: for the head, and for a body that comes without a valid key.

#include "http_priv.h"

enum { HEAD_TIMEOUT_S = 15 };

// All have the same time, so the list is in the order of the deadlines.
void
deadline_start(struct http_connection *conn)
{
    struct http_deadlines *deadlines = &conn->server->deadlines;
    if (conn->deadline_ms > 0)
        return;
    conn->deadline_ms = clock_mono_ms() + deadlines->timeout_ms;
    TAILQ_INSERT_TAIL(&deadlines->list, conn, deadline_link);
    if (!loop_timer_active(deadlines->timer))
        loop_timer_start(deadlines->timer, deadlines->timeout_ms);
}

void
deadline_stop(struct http_connection *conn)
{
    if (conn->deadline_ms > 0)
        TAILQ_REMOVE(&conn->server->deadlines.list, conn, deadline_link);
    conn->deadline_ms = 0;
}

static void
deadlines_on_timer(void *arg)
{
    struct http_deadlines *deadlines = arg;
    struct http_connection *conn;
    int64_t now_ms = clock_mono_ms();
    while ((conn = TAILQ_FIRST(&deadlines->list)) && conn->deadline_ms <= now_ms)
        connection_close(conn);
    if (conn)
        loop_timer_start(deadlines->timer, conn->deadline_ms - now_ms);
}

void
deadlines_init(struct http_deadlines *deadlines, struct loop *loop, int timeout_s)
{
    TAILQ_INIT(&deadlines->list);
    deadlines->timeout_ms = 1000 * (timeout_s ? timeout_s : HEAD_TIMEOUT_S);
    deadlines->timer = loop_timer_new(loop, deadlines_on_timer, deadlines);
}

void
deadlines_fini(struct http_deadlines *deadlines)
{
    loop_timer_free(deadlines->timer);
}

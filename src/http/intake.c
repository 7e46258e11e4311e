// SPDX-License-Identifier: Apache-2.0
// A body is read whole before its handler runs. So there is a bound on the bytes that all
// connections together hold, and half of it for each owner. Beyond the bound only the connections
// that have waited longest read on, at a minimum rate. Other large bodies have a lower minimum
// rate.

#include <event2/event.h>
#include <malloc.h>

#include "http_priv.h"

enum {
    SMALL_BYTES = 64 << 10, // every connection may hold so much; also the size of one read
    LARGE_READ_BYTES = 1 << 20,
    READERS_MAX = 4,
    LOOKS = 3,                       // within the head timeout
    LEAST_PROGRESS = 64 << 10,       // of a large body, between two looks
    LEAST_WAITED_PROGRESS = 2 << 20, // of a reader for which others wait
    TRIM_BYTES = 32 << 20,           // a peak above it makes us return memory to the system
};

// Connections that are not large are one owner together, of this name, which no other owner can
// have: who sends is not known from the start.
static const char small_ones[] = "small bodies";

static void
intake_hold(struct http_connection *conn, size_t bytes)
{
    struct http_intake *intake = &conn->server->intake;
    budget_hold_set(&conn->held, bytes);
    if (intake->bytes.held > TRIM_BYTES)
        intake->was_large = true;
}

// From now on its bytes are in the share of `owner`.
static void
intake_move(struct http_connection *conn, const char *owner)
{
    size_t bytes = conn->held.held;
    budget_hold_end(&conn->held);
    budget_hold_start(&conn->held, &conn->server->intake.bytes, owner);
    budget_hold_set(&conn->held, bytes);
}

static bool
intake_is_full(const struct http_intake *intake)
{
    return intake->bytes.held > intake->bytes.max;
}

// Whether all, or the connections of its owner, hold more than they may.
static bool
intake_is_short(const struct http_connection *conn)
{
    const struct http_intake *intake = &conn->server->intake;
    return intake_is_full(intake) || conn->held.share->held > intake->bytes.max_share;
}

static void
intake_pause(struct http_connection *conn, bool paused)
{
    if (conn->intake_paused == paused)
        return;
    conn->intake_paused = paused;
    conn->look_skipped = true;
    if (paused)
        bufferevent_disable(conn->bev, EV_READ);
    else
        bufferevent_enable(conn->bev, EV_READ);
}

// When there is no room for more, one connection per owner reads on, of a few owners: those whose
// large connections are oldest.
static void
intake_decide(struct http_intake *intake)
{
    bool full = intake_is_full(intake);
    int readers = 0;
    struct budget_share *share;
    struct http_connection *conn;
    LIST_FOREACH(share, &intake->bytes.shares, link)
        share->mark = false;
    TAILQ_FOREACH(conn, &intake->large, intake_link) {
        if (conn->busy)
            continue;
        share = conn->held.share;
        bool short_of = intake_is_short(conn);
        bool waits = short_of && (share->mark || (full && readers >= READERS_MAX));
        conn->is_waited_for = short_of && !waits;
        share->mark |= !waits;
        readers += !waits;
        intake_pause(conn, waits);
    }
}

static void
intake_on_decide(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_server *server = arg;
    struct http_intake *intake = &server->intake;
    intake_decide(intake);
    bool idle =
        TAILQ_EMPTY(&intake->large) && !(intake->was_large && intake->bytes.held < SMALL_BYTES);
    if (!idle && !loop_timer_active(intake->look))
        loop_timer_start(intake->look, intake->look_ms);
}

static void
decide_soon(struct http_server *server)
{
    event_active(server->intake.decide, EV_TIMEOUT, 0);
}

static bool
intake_is_slow(const struct http_connection *conn)
{
    size_t least = conn->is_waited_for ? LEAST_WAITED_PROGRESS : LEAST_PROGRESS;
    return !conn->busy && !conn->look_skipped && conn->received < conn->look_received + least;
}

// glibc keeps freed blocks below its mmap threshold. Returning 128 MiB takes about 6 ms, so this is
// done once after each peak, when no body is held.
static void
intake_trim(struct http_intake *intake)
{
    if (!intake->was_large || intake->bytes.held > SMALL_BYTES)
        return;
    intake->was_large = false;
    malloc_trim(TRIM_BYTES);
}

static void
intake_on_look(void *arg)
{
    struct http_server *server = arg;
    struct http_intake *intake = &server->intake;
    struct http_connection *conn, *next;
    for (conn = TAILQ_FIRST(&intake->large); conn; conn = next) {
        next = TAILQ_NEXT(conn, intake_link);
        bool slow = intake_is_slow(conn);
        conn->look_skipped = conn->intake_paused;
        conn->look_received = conn->received;
        if (!slow)
            continue;
        log_warning("a client sends its body too slowly and is disconnected",
                    LOG_INT("bytes", (int64_t)conn->received));
        connection_close(conn);
    }
    intake_trim(intake);
    decide_soon(server);
}

static void
intake_on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *arg)
{
    (void)input;
    struct http_connection *conn = arg;
    if (info->n_added == 0 || conn->busy)
        return;
    struct http_intake *intake = &conn->server->intake;
    conn->received += info->n_added;
    if (conn->held.held >= intake->max_body)
        return; // the body is too large, and is about to be refused
    intake_hold(conn, conn->held.held + info->n_added);
    if (conn->held.held > SMALL_BYTES && !conn->is_large) {
        conn->is_large = true;
        conn->look_skipped = true;
        intake_move(conn, conn->owner);
        TAILQ_INSERT_TAIL(&intake->large, conn, intake_link);
        bufferevent_set_max_single_read(conn->bev, LARGE_READ_BYTES);
        decide_soon(conn->server);
    } else if (conn->is_large && intake_is_short(conn)) {
        decide_soon(conn->server);
    }
}

void
intake_watch(struct http_connection *conn)
{
    budget_hold_start(&conn->held, &conn->server->intake.bytes, small_ones);
    bufferevent_set_max_single_read(conn->bev, SMALL_BYTES);
    evbuffer_add_cb(bufferevent_get_input(conn->bev), intake_on_input, conn);
}

void
intake_unpause(struct http_connection *conn)
{
    intake_pause(conn, false);
}

void
intake_give(struct http_connection *conn, size_t len)
{
    struct http_intake *intake = &conn->server->intake;
    size_t held = conn->held.held;
    budget_hold_set(&conn->held, held - (len < held ? len : held));
    if (!TAILQ_EMPTY(&intake->large))
        decide_soon(conn->server);
}

void
intake_change(struct http_connection *conn, size_t from, size_t to)
{
    size_t held = conn->held.held;
    intake_hold(conn, held - (from < held ? from : held) + to);
    if (!TAILQ_EMPTY(&conn->server->intake.large))
        decide_soon(conn->server);
}

void
intake_reset(struct http_connection *conn)
{
    intake_give(conn, conn->held.held);
    if (conn->is_large) {
        TAILQ_REMOVE(&conn->server->intake.large, conn, intake_link);
        intake_move(conn, small_ones);
    }
    conn->is_large = false;
    conn->received = conn->look_received = 0;
    conn->intake_paused = false;
    bufferevent_set_max_single_read(conn->bev, SMALL_BYTES);
}

void
intake_forget(struct http_connection *conn)
{
    intake_reset(conn);
    budget_hold_end(&conn->held);
}

void
intake_init(struct http_server *server, const struct http_server_settings *settings)
{
    struct http_intake *intake = &server->intake;
    TAILQ_INIT(&intake->large);
    intake->look_ms = server->deadlines.timeout_ms / LOOKS;
    intake->max_body = settings->max_body_bytes + settings->max_header_bytes;
    size_t max = settings->max_held_bytes ? settings->max_held_bytes : SIZE_MAX;
    budget_init(&intake->bytes, "http_body_bytes", max, max / 2);
    intake->decide = event_new(loop_event_base(server->loop), -1, 0, intake_on_decide, server);
    if (!intake->decide)
        abort();
    intake->look = loop_timer_new(server->loop, intake_on_look, server);
}

void
intake_fini(struct http_server *server)
{
    event_free(server->intake.decide);
    loop_timer_free(server->intake.look);
    budget_fini(&server->intake.bytes);
}

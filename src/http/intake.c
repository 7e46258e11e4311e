// SPDX-License-Identifier: Apache-2.0
// A body is read whole before its handler runs. So there is a bound on the bytes that all
// connections together hold, and half of it for each owner. Beyond the bound only the connections
// that have waited longest read on, at a minimum rate. Other large bodies have a lower minimum
// rate.

#include <assert.h>
#include <event2/event.h>
#include <malloc.h>
#include <string.h>

#include "budget.h"
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

// The bytes that the large connections of one owner hold.
struct http_share {
    char name[HTTP_OWNER_MAX + 1];
    size_t held;
    size_t n; // connections
    bool has_reader;
    LIST_ENTRY(http_share) link;
};

static struct http_share *
share_take(struct http_intake *intake, const char *owner)
{
    const char *name = budget_name(owner);
    struct http_share *share;
    LIST_FOREACH(share, &intake->shares, link) {
        if (strcmp(share->name, name) == 0)
            break;
    }
    if (!share) {
        share = KG_NEW(struct http_share);
        assert(strlen(name) <= HTTP_OWNER_MAX);
        strcpy(share->name, name);
        LIST_INSERT_HEAD(&intake->shares, share, link);
    }
    share->n++;
    return share;
}

static void
share_leave(struct http_share *share)
{
    if (--share->n > 0)
        return;
    LIST_REMOVE(share, link);
    free(share);
}

static void
intake_count(struct http_connection *conn, size_t more)
{
    struct http_intake *intake = &conn->server->intake;
    conn->held += more;
    intake->held += more;
    if (conn->share)
        conn->share->held += more;
    if (intake->held > TRIM_BYTES)
        intake->was_large = true;
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
    bool full = intake->held > intake->max;
    int readers = 0;
    struct http_share *share;
    struct http_connection *conn;
    LIST_FOREACH(share, &intake->shares, link)
        share->has_reader = false;
    TAILQ_FOREACH(conn, &intake->large, intake_link) {
        if (conn->busy)
            continue;
        bool short_of = full || conn->share->held > intake->max / 2;
        bool waits = short_of && (conn->share->has_reader || (full && readers >= READERS_MAX));
        conn->is_waited_for = short_of && !waits;
        conn->share->has_reader |= !waits;
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
    bool idle = TAILQ_EMPTY(&intake->large) && !(intake->was_large && intake->held < SMALL_BYTES);
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
    if (!intake->was_large || intake->held > SMALL_BYTES)
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
    if (conn->held >= intake->max_body)
        return; // the body is too large, and is about to be refused
    intake_count(conn, info->n_added);
    if (conn->held > SMALL_BYTES && !conn->is_large) {
        conn->is_large = true;
        conn->look_skipped = true;
        conn->share = share_take(intake, conn->owner);
        conn->share->held += conn->held;
        TAILQ_INSERT_TAIL(&intake->large, conn, intake_link);
        bufferevent_set_max_single_read(conn->bev, LARGE_READ_BYTES);
        decide_soon(conn->server);
    } else if (conn->is_large &&
               (intake->held > intake->max || conn->share->held > intake->max / 2)) {
        decide_soon(conn->server);
    }
}

void
intake_watch(struct http_connection *conn)
{
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
    size_t given = len < conn->held ? len : conn->held;
    conn->held -= given;
    intake->held -= given;
    if (conn->share)
        conn->share->held -= given;
    if (!TAILQ_EMPTY(&intake->large))
        decide_soon(conn->server);
}

void
intake_forget(struct http_connection *conn)
{
    intake_give(conn, conn->held);
    if (conn->is_large) {
        TAILQ_REMOVE(&conn->server->intake.large, conn, intake_link);
        share_leave(KG_STEAL(conn->share));
    }
    conn->is_large = false;
    conn->received = conn->look_received = 0;
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
    LIST_INIT(&intake->shares);
    intake->look_ms = server->deadlines.timeout_ms / LOOKS;
    intake->max_body = settings->max_body_bytes + settings->max_header_bytes;
    intake->max = settings->max_held_bytes ? settings->max_held_bytes : SIZE_MAX;
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
}

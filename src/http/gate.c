// SPDX-License-Identifier: Apache-2.0
// evhttp sends "100 Continue" and reads a whole body before its handler runs. So evhttp must not
// read a request before its head is complete and judged: if the body is not admitted, evhttp gets
// the same head without a body.

#include <event2/event.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"

enum { HEAD_TIMEOUT_S = 15 };

static void
gate_look_soon(struct http_connection *conn)
{
    if (!conn->gate_looks)
        LIST_INSERT_HEAD(&conn->server->gate.look, conn, gate_link);
    conn->gate_looks = true;
    event_active(conn->server->gate.look_event, EV_TIMEOUT, 0);
}

// ---- Deadlines ------------------------------------------------------------------------------

// All have the same time, so the list is in the order of the deadlines.
static void
gate_await(struct http_connection *conn)
{
    struct http_gate *gate = &conn->server->gate;
    if (conn->deadline_ms > 0)
        return;
    conn->deadline_ms = clock_mono_ms() + gate->timeout_ms;
    TAILQ_INSERT_TAIL(&gate->awaited, conn, awaited_link);
    if (!loop_timer_active(gate->timer))
        loop_timer_start(gate->timer, gate->timeout_ms);
}

void
gate_await_no_more(struct http_connection *conn)
{
    if (conn->deadline_ms > 0)
        TAILQ_REMOVE(&conn->server->gate.awaited, conn, awaited_link);
    conn->deadline_ms = 0;
}

static void
gate_on_deadline(void *arg)
{
    struct http_gate *gate = arg;
    struct http_connection *conn;
    int64_t now_ms = clock_mono_ms();
    while ((conn = TAILQ_FIRST(&gate->awaited)) && conn->deadline_ms <= now_ms) {
        gate_await_no_more(conn);
        connection_close(conn);
    }
    if (conn)
        loop_timer_start(gate->timer, conn->deadline_ms - now_ms);
}

// ---- Heads ----------------------------------------------------------------------------------

static void
gate_on_held(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

// Before evhttp reads: it stops watching the socket after the head, and watches it again for the
// body or for the client's end. A second event on the socket until the end of the turn makes that
// no change for epoll, which saves two system calls.
static void
gate_hold(struct http_connection *conn)
{
    struct http_gate *gate = &conn->server->gate;
    event_del(gate->hold);
    event_assign(gate->hold, loop_event_base(conn->server->loop), conn->fd, EV_READ | EV_PERSIST,
                 gate_on_held, NULL);
    event_add(gate->hold, NULL);
    event_active(gate->look_event, EV_TIMEOUT, 0);
}

static void
gate_open(struct http_connection *conn)
{
    bufferevent_data_cb evhttp_read = conn->server->gate.evhttp_read;
    conn->gated = false;
    conn->head_seen = 0;
    connection_set_reader(conn, evhttp_read);
    gate_hold(conn);
    evhttp_read(conn->bev, conn->evcon); // may free the connection
}

// Drops the body: evhttp calls dispatch_handle() with the head, where the same check fails again.
static void
gate_cut_body(struct http_connection *conn, const struct http_head *head)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    conn->body_cut = conn->body_unread = true;
    conn->chunks.state = CHUNKS_END;
    evbuffer_drain(input, evbuffer_get_length(input));
    evbuffer_unfreeze(input, 0); // otherwise only the bufferevent may add to it
    head_write_without_body(head, input);
    evbuffer_freeze(input, 0);
}

static bool
gate_scan(struct http_connection *conn, size_t from)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    struct evbuffer_ptr at;
    struct evbuffer_iovec piece;
    bool good = true;
    while (good && from < evbuffer_get_length(input) &&
           evbuffer_ptr_set(input, &at, from, EVBUFFER_PTR_SET) == 0 &&
           evbuffer_peek(input, -1, &at, &piece, 1) > 0) {
        good = chunks_scan(&conn->chunks, piece.iov_base, piece.iov_len);
        from += piece.iov_len;
    }
    return good;
}

static void
gate_refuse(struct http_connection *conn, const struct kg_error *err)
{
    gate_await_no_more(conn);
    refusal_send(conn, err);
}

static void
gate_refuse_chunks(struct http_connection *conn)
{
    struct kg_error err;
    kg_error_set(&err, KG_INVALID, 0,
                 "malformed HTTP request: the body is not a sequence of chunks without extensions "
                 "and trailers");
    conn->lingers = true;
    gate_refuse(conn, &err);
}

// Whether evhttp reads a body with this method.
static bool
reads_body(enum http_method method)
{
    return method & (HTTP_POST | HTTP_PUT | HTTP_PATCH);
}

// The credential was checked: judges the head again.
static void
gate_resume(struct http_connection *conn)
{
    conn->checked = true;
    conn->head_seen = 0;
    bufferevent_enable(conn->bev, EV_READ);
    gate_look_soon(conn);
}

static void
gate_judge(struct http_connection *conn, const struct http_head *head, size_t head_len)
{
    const char *expect = evhttp_find_header(&head->headers, "Expect");
    bool small = !head->chunked && head->content_length <= HTTP_STRANGER_BYTES_MAX &&
                 !(expect && strcasecmp(expect, "100-continue") == 0);
    bool reads = reads_body(method_by_name(head->method));
    conn->body_len = head->content_length > 0 ? (uint64_t)head->content_length : 0;
    bool has_body = head->chunked || conn->body_len > 0;
    conn->body_unread = has_body && !reads;
    enum dispatch_verdict verdict = dispatch_judge(conn, head, gate_resume);
    if (verdict == DISPATCH_LATER) {
        bufferevent_disable(conn->bev, EV_READ);
        return;
    }
    if (reads && head->chunked)
        conn->chunks = (struct http_chunks){.state = CHUNK_SIZE};
    if (!reads || !has_body || verdict == DISPATCH_ADMITTED)
        gate_await_no_more(conn);
    else if (!small)
        gate_cut_body(conn, head);
    if (!conn->body_cut && !gate_scan(conn, head_len))
        gate_refuse_chunks(conn);
    else
        gate_open(conn);
}

static void
gate_look(struct http_connection *conn)
{
    struct http_gate *gate = &conn->server->gate;
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    size_t len = evbuffer_get_length(input);
    struct kg_error err;
    if (len == 0)
        return;
    gate_await(conn);
    size_t window = len < gate->max_head ? len : gate->max_head;
    const char *text = (const char *)evbuffer_pullup(input, (ev_ssize_t)window);
    size_t end = head_end(text, window, conn->head_seen);
    conn->head_seen = window;
    if (end == 0 && len <= gate->max_head)
        return;
    if (end == 0) {
        kg_error_set(&err, KG_INVALID, 0,
                     "the head of the request is too large: at most %zu bytes are allowed",
                     gate->max_head);
        gate_refuse(conn, &err);
        return;
    }
    struct http_head head;
    if (head_parse(text, end, &head, &err) < 0)
        gate_refuse(conn, &err);
    else
        gate_judge(conn, &head, end);
    head_fini(&head);
}

// Puts back what came before the last request was answered, before what has come since.
static void
gate_put_back(struct http_connection *conn)
{
    struct evbuffer *early = KG_STEAL(conn->early);
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    if (!early)
        return;
    evbuffer_prepend_buffer(input, early);
    evbuffer_free(early);
}

static void
gate_on_look(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_server *server = arg;
    struct http_connection *conn;
    while ((conn = LIST_FIRST(&server->gate.look))) {
        LIST_REMOVE(conn, gate_link);
        conn->gate_looks = false;
        if (conn->chunks_bad) {
            gate_refuse_chunks(conn);
        } else if (conn->gated && !conn->closing && !conn->check) {
            connection_set_reader(conn, NULL);
            gate_put_back(conn);
            gate_look(conn);
        }
    }
    event_del(server->gate.hold);
}

// Runs before anything reads the input.
static void
gate_on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *arg)
{
    struct http_connection *conn = arg;
    if (info->n_added == 0 || conn->busy || conn->closing || conn->chunks_bad)
        return;
    if (conn->gated) {
        connection_set_reader(conn, NULL); // evhttp has set itself after the last request
        gate_look_soon(conn);
    } else if (conn->chunks.state != CHUNKS_END &&
               !gate_scan(conn, evbuffer_get_length(input) - info->n_added)) {
        conn->chunks_bad = true;
        connection_set_reader(conn, NULL);
        gate_look_soon(conn);
    } else {
        gate_hold(conn);
    }
}

// ---- Connections ----------------------------------------------------------------------------

void
gate_watch(struct http_connection *conn)
{
    bufferevent_data_cb evhttp_read;
    bufferevent_getcb(conn->bev, &evhttp_read, NULL, NULL, NULL);
    conn->server->gate.evhttp_read = evhttp_read;
    conn->chunks.state = CHUNKS_END;
    conn->gated = true;
    connection_set_reader(conn, NULL);
    gate_await(conn);
    evbuffer_add_cb(bufferevent_get_input(conn->bev), gate_on_input, conn);
}

// evhttp would read the next request at once if some of it has come: that is put aside.
void
gate_close_again(struct http_connection *conn)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    if (evbuffer_get_length(input) > 0) {
        conn->early = evbuffer_new();
        if (!conn->early || evbuffer_add_buffer(conn->early, input))
            abort();
    }
    conn->gated = true;
    conn->checked = false;
    identify_reset(conn);
    conn->chunks.state = CHUNKS_END;
    gate_look_soon(conn);
}

void
gate_forget(struct http_connection *conn)
{
    struct http_gate *gate = &conn->server->gate;
    gate_await_no_more(conn);
    if (event_get_fd(gate->hold) == conn->fd)
        event_del(gate->hold); // before the socket is closed
    if (conn->gate_looks)
        LIST_REMOVE(conn, gate_link);
    if (conn->early)
        evbuffer_free(conn->early);
}

void
gate_init(struct http_server *server, const struct http_server_settings *settings)
{
    struct http_gate *gate = &server->gate;
    LIST_INIT(&gate->look);
    TAILQ_INIT(&gate->awaited);
    gate->max_head = settings->max_header_bytes;
    gate->timeout_ms =
        1000 * (settings->head_timeout_s ? settings->head_timeout_s : HEAD_TIMEOUT_S);
    gate->look_event = event_new(loop_event_base(server->loop), -1, 0, gate_on_look, server);
    gate->hold = event_new(loop_event_base(server->loop), -1, 0, gate_on_held, NULL);
    if (!gate->look_event || !gate->hold)
        abort();
    gate->timer = loop_timer_new(server->loop, gate_on_deadline, gate);
}

void
gate_fini(struct http_server *server)
{
    event_free(server->gate.look_event);
    event_free(server->gate.hold);
    loop_timer_free(server->gate.timer);
}

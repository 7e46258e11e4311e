// SPDX-License-Identifier: Apache-2.0
// The requests of a connection, one after the other: reads the head and the body of one, lets it be
// answered, and goes on with the next. What comes in between waits in the input.

#include <event2/event.h>
#include <string.h>
#include <unistd.h>

#include "http_priv.h"
#include "metrics.h"

static struct evbuffer *
input_of(const struct http_connection *conn)
{
    return bufferevent_get_input(conn->bev);
}

static struct evbuffer *
output_of(const struct http_connection *conn)
{
    return bufferevent_get_output(conn->bev);
}

// ---- Reading --------------------------------------------------------------------------------

static void
write_refusal(struct evbuffer *output, const struct kg_error *err)
{
    const struct kg_code_info *info = kg_code_info(err->code);
    json_auto_t *problem = problem_new(err);
    KG_AUTO_FREE char *text = json_dumps(problem, JSON_COMPACT);
    char id[HTTP_ID_LEN + 1];
    id_random(id, HTTP_ID_LEN);
    metric_add(METRIC_HTTP_PROBLEMS, 1, info->name);
    evbuffer_add_printf(output,
                        "HTTP/1.1 %d %s\r\n"
                        "X-Request-Id: %s\r\n"
                        "X-Content-Type-Options: nosniff\r\n"
                        "Content-Type: application/problem+json\r\n"
                        "Content-Length: %zu\r\n"
                        "Connection: close\r\n\r\n%s",
                        info->http_status, info->title, id, strlen(text), text);
}

void
pipeline_refuse(struct http_connection *conn, const struct kg_error *err)
{
    struct http_request *request = conn->request;
    if (request) {
        request_detach(request);
        request_gone(request);
    }
    deadline_stop(conn);
    intake_reset(conn);
    evbuffer_drain(input_of(conn), evbuffer_get_length(input_of(conn)));
    bufferevent_disable(conn->bev, EV_READ);
    write_refusal(output_of(conn), err);
    conn->lingers = conn->must_close = true;
    connection_finish_answer(conn);
}

static void
take_head(struct http_connection *conn, const char *text, size_t len)
{
    struct kg_error err;
    struct http_request *request = request_new(conn);
    int failed = head_parse(text, len, &request->head, &err);
    evbuffer_drain(input_of(conn), len);
    conn->head_seen = 0;
    if (failed)
        pipeline_refuse(conn, &err);
    else
        dispatch_head(request);
}

// Old clients end a body with a line more (RFC 9112, section 2.2).
static void
skip_empty_lines(struct evbuffer *input)
{
    char first[2];
    for (ssize_t n; (n = evbuffer_copyout(input, first, sizeof first)) > 0;) {
        size_t empty = first[0] == '\n' ? 1 : n == 2 && memcmp(first, "\r\n", 2) == 0 ? 2 : 0;
        if (empty == 0)
            return;
        evbuffer_drain(input, empty);
    }
}

static void
read_head(struct http_connection *conn)
{
    struct kg_error err;
    struct evbuffer *input = input_of(conn);
    if (evbuffer_get_length(input) > 0)
        deadline_start(conn);
    skip_empty_lines(input);
    const size_t len = evbuffer_get_length(input), max = conn->server->max_head;
    size_t window = len < max ? len : max;
    const char *text = window ? (const char *)evbuffer_pullup(input, (ev_ssize_t)window) : "";
    size_t end = head_end(text, window, conn->head_seen);
    conn->head_seen = window;
    if (end > 0) {
        take_head(conn, text, end);
    } else if (len > max) {
        kg_error_set(&err, KG_INVALID, 0,
                     "the head of the request is too large: at most %zu bytes are allowed", max);
        pipeline_refuse(conn, &err);
    } else if (conn->is_half_closed) {
        connection_close(conn); // nothing more comes
    }
}

// The first thing after the head. A client that waits for it has sent nothing of the body.
static void
write_continue(struct http_connection *conn)
{
    if (evbuffer_get_length(input_of(conn)) > 0 || conn->request->head.is_1_0)
        return;
    evbuffer_add_printf(output_of(conn), "HTTP/1.1 100 Continue\r\n\r\n");
    connection_flush(conn);
}

static void
read_body(struct http_connection *conn)
{
    struct http_request *request = conn->request;
    struct kg_error err;
    if (request->body_is_streamed) {
        dispatch_handle(request);
        return;
    }
    if (!framing_take(&request->framing, input_of(conn), request->body)) {
        (void)framing_fail(&err);
        pipeline_refuse(conn, &err);
    } else if (evbuffer_get_length(request->body) + request->framing.left > request->max_body) {
        request->body_is_cut = true;
        dispatch_handle(request);
    } else if (request->framing.state == FRAMING_END) {
        dispatch_handle(request);
    }
}

void
pipeline_read_body(struct http_connection *conn)
{
    const char *expect = head_find(&conn->request->head, "Expect");
    struct kg_error err;
    conn->state = CONNECTION_BODY;
    bufferevent_setwatermark(conn->bev, EV_READ, 0, 0);
    connection_drain(conn);
    if (expect && strcasecmp(expect, "100-continue") != 0) {
        kg_error_set(&err, KG_INVALID, 0, "Expect: only 100-continue is supported");
        pipeline_refuse(conn, &err);
        return;
    }
    if (expect)
        write_continue(conn);
    read_body(conn);
}

// The body that a handler reads is malformed. If nothing was answered yet, this is the answer.
static void
refuse_rest(struct http_connection *conn)
{
    struct http_request *request = conn->request;
    const struct kg_error err = request->body_err;
    if (request->status) {
        connection_close(conn);
        return;
    }
    request->status = kg_code_info(err.code)->http_status; // in the metrics
    pipeline_refuse(conn, &err);
}

// What comes of a body, or of another protocol, while the request is being answered.
static void
hand_on(struct http_connection *conn)
{
    struct http_request *request = conn->request;
    connection_fill(conn);
    if (request->body_err.code) {
        refuse_rest(conn);
    } else if (conn->state == CONNECTION_ANSWERING) {
        body_has_more(request);
    } else {
        deadline_stop(conn); // of a streamed body
        if (request->on_data)
            request->on_data(request->on_data_arg);
    }
}

static void
step(struct http_connection *conn)
{
    switch (conn->state) {
    case CONNECTION_HEAD:
        read_head(conn);
        break;
    case CONNECTION_BODY:
        read_body(conn);
        break;
    case CONNECTION_UPGRADED:
    case CONNECTION_ANSWERING:
        hand_on(conn);
        break;
    case CONNECTION_CHECKING:
    case CONNECTION_SENDING:
    case CONNECTION_ENDING:
        connection_fill(conn);
        break; // the input waits
    }
}

static void
on_readable(struct bufferevent *bev, void *arg)
{
    (void)bev;
    step(arg);
}

static void
leave_ready(struct http_connection *conn)
{
    TAILQ_REMOVE(&conn->server->ready, conn, ready_link);
    conn->server->n_ready--;
    conn->is_ready = false;
}

static void
pipeline_end(struct http_connection *conn)
{
    struct http_server *server = conn->server;
    struct http_request *request = conn->request;
    if (conn->busy && (conn->state != CONNECTION_UPGRADED || conn->tunnelled))
        server->n_busy--;
    if (conn->is_ready)
        leave_ready(conn);
    intake_forget(conn);
    deadline_stop(conn);
    identify_forget(conn);
    place_leave(conn);
    peer_leave(&server->peers, conn->peer, conn->trusted, clock_mono_ms());
    if (conn->lingers && !server->ending)
        linger_start(server, conn->fd);
    LIST_REMOVE(conn, link);
    if (request)
        request_detach(request);
    bufferevent_free(conn->bev); // with the socket
    free(conn);
    if (request)
        request_gone(request);
}

static void
on_written(struct bufferevent *bev, void *arg)
{
    bufferevent_disable(bev, EV_WRITE); // see connection_flush()
    connection_has_sent(arg);
}

// What a client has sent before it closed its side is still answered, while it is complete; an
// answer that is not is not made any more.
static void
on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    struct http_connection *conn = arg;
    bool is_sending = conn->state == CONNECTION_SENDING || conn->state == CONNECTION_ENDING;
    if ((what & BEV_EVENT_EOF) && is_sending)
        conn->is_half_closed = true;
    else
        pipeline_end(conn);
}

// ---- The next request -----------------------------------------------------------------------

void
pipeline_is_handled(struct http_connection *conn)
{
    conn->state = CONNECTION_ANSWERING;
    conn->busy = true;
    conn->server->n_busy++;
    place_is_busy(conn);
    deadline_stop(conn);
    intake_unpause(conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, HTTP_READ_AHEAD_MAX);
    bufferevent_set_timeouts(conn->bev, NULL, NULL);
}

// The answer was sent.
static void
go_on(struct http_connection *conn)
{
    if (conn->state == CONNECTION_ENDING) {
        connection_close(conn);
        return;
    }
    conn->state = CONNECTION_HEAD;
    conn->busy = false;
    conn->server->n_busy--;
    place_is_idle(conn);
    intake_reset(conn);
    identify_reset(conn);
    connection_drain(conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, 0);
    bufferevent_set_timeouts(conn->bev, &conn->server->idle_timeout, &conn->server->idle_timeout);
    // Then libevent says it again, which ends a request that is not complete.
    if (conn->is_half_closed)
        bufferevent_enable(conn->bev, EV_READ);
    step(conn);
}

// Each once, and those that are ready again after the loop has looked at all others: what a client
// sends ahead must not keep others waiting.
void
pipelines_go_on(struct http_server *server)
{
    struct http_connection *conn;
    size_t n = server->n_ready;
    server->goes_on = true;
    for (; n > 0 && (conn = TAILQ_FIRST(&server->ready)); n--) {
        leave_ready(conn);
        go_on(conn);
    }
    server->goes_on = false;
    if (server->n_ready > 0)
        loop_timer_start(server->go_on_later, 0);
}

struct http_connection *
pipeline_new(struct http_server *server, int fd, struct http_peer *peer)
{
    struct http_connection *conn = KG_NEW(struct http_connection);
    conn->server = server;
    conn->fd = fd;
    conn->peer = peer;
    conn->bev = bufferevent_socket_new(loop_event_base(server->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    if (!conn->bev)
        abort();
    bufferevent_set_max_single_write(conn->bev, HTTP_TURN_BYTES);
    bufferevent_setcb(conn->bev, on_readable, on_written, on_event, conn);
    bufferevent_set_timeouts(conn->bev, &server->idle_timeout, &server->idle_timeout);
    LIST_INSERT_HEAD(&server->connections, conn, link);
    place_take(conn);
    intake_watch(conn);
    deadline_start(conn);
    bufferevent_disable(conn->bev, EV_WRITE); // see connection_flush()
    bufferevent_enable(conn->bev, EV_READ);
    return conn;
}

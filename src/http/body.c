// SPDX-License-Identifier: Apache-2.0
// The body of a request: its bytes, taken whole or in pieces, and its JSON. Large bodies are read
// on a worker.

#include <assert.h>

#include "http_priv.h"

// ---- In the request -------------------------------------------------------------------------

const void *
http_request_body(struct http_request *request, size_t *ret_len)
{
    assert(!request->body_is_streamed);
    *ret_len = evbuffer_get_length(request->body);
    return *ret_len ? evbuffer_pullup(request->body, -1) : (const unsigned char *)"";
}

size_t
http_request_body_len(const struct http_request *request)
{
    if (request->json)
        return request->json_len;
    size_t len = evbuffer_get_length(request->body);
    return request->body_is_streamed ? len + (size_t)request->framing.left : len;
}

// Moves what has come of a streamed body from the connection's input, which the client fills again.
// False: it is malformed.
static bool
pull(struct http_request *request)
{
    struct http_connection *conn = request->conn;
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    size_t before = evbuffer_get_length(input);
    bool sound = framing_take(&request->framing, input, request->body);
    connection_drain(conn);
    intake_give(conn, before - evbuffer_get_length(input));
    return sound;
}

// What a read returns of what was moved.
static int
take(struct http_request *request, void *to, size_t len, size_t *ret_len, struct kg_error *err)
{
    if (request->gunzip)
        return gunzip_take(request->gunzip, request->body, to, len, ret_len, err);
    int n = evbuffer_remove(request->body, to, len);
    *ret_len = n > 0 ? (size_t)n : 0;
    return 0;
}

// Reads until there are bytes, or nothing more has come.
static int
take_next(struct http_request *request, void *to, size_t len, size_t *ret_len, struct kg_error *err)
{
    const struct evbuffer *input = bufferevent_get_input(request->conn->bev);
    for (;;) {
        if (take(request, to, len, ret_len, err) < 0)
            return -1;
        bool is_over = request->framing.state == FRAMING_END;
        if (*ret_len > 0 || (!is_over && evbuffer_get_length(input) == 0))
            return 0;
        if (is_over)
            return request->gunzip && !gunzip_is_between(request->gunzip) ? gunzip_cut(err) : 0;
        if (!pull(request))
            return framing_fail(err);
    }
}

// While there is nothing, the client has a deadline.
static void
start_waiting(struct http_request *request)
{
    if (!request->idle_timer)
        deadline_start(request->conn);
    else if (!loop_timer_active(request->idle_timer))
        loop_timer_start(request->idle_timer, request->idle_ms);
}

static void
stop_waiting(struct http_request *request)
{
    deadline_stop(request->conn);
    if (request->idle_timer)
        loop_timer_stop(request->idle_timer);
}

static size_t
read_streamed(struct http_request *request, void *to, size_t len)
{
    size_t n;
    struct http_connection *conn = request->conn;
    if (!conn || request->body_err.code || len == 0)
        return 0;
    if (take_next(request, to, len, &n, &request->body_err) < 0) {
        stop_waiting(request);
        connection_look_soon(conn);
        return 0;
    }
    if (n == 0 && request->framing.state != FRAMING_END)
        start_waiting(request);
    return n;
}

bool
http_request_body_ended(const struct http_request *request)
{
    if (!request->body_is_streamed)
        return evbuffer_get_length(request->body) == 0;
    return !request->body_err.code && request->framing.state == FRAMING_END &&
           evbuffer_get_length(request->body) == 0 &&
           (!request->gunzip || gunzip_is_between(request->gunzip));
}

void
body_has_more(struct http_request *request)
{
    if (!request->body_is_streamed || request->framing.state == FRAMING_END)
        return;
    stop_waiting(request);
    if (request->on_body)
        request->on_body(request->on_body_arg);
}

bool
body_pass_on(struct http_request *request)
{
    gunzip_free(KG_STEAL(request->gunzip));
    return request->body_is_streamed && request->framing.chunked;
}

bool
body_is_left(struct http_request *request)
{
    if (!request->body_is_streamed)
        return false;
    stop_waiting(request);
    // The last chunk may be there, and nobody has read it.
    return request->framing.state != FRAMING_END &&
           (evbuffer_get_length(request->body) > 0 || !pull(request) ||
            request->framing.state != FRAMING_END);
}

void
http_request_on_body(struct http_request *request, loop_fn on_data, void *arg)
{
    request->on_body = on_data;
    request->on_body_arg = arg;
}

static void
body_on_idle(void *arg)
{
    const struct http_request *request = arg;
    if (request->conn)
        connection_close(request->conn);
}

void
http_request_body_idle(struct http_request *request, int64_t ms)
{
    if (!request->idle_timer)
        request->idle_timer = loop_timer_new(request->server->loop, body_on_idle, request);
    request->idle_ms = ms;
}

size_t
http_request_body_read(struct http_request *request, void *to, size_t len)
{
    if (request->body_is_streamed)
        return read_streamed(request, to, len);
    int n = evbuffer_remove(request->body, to, len);
    size_t taken = n > 0 ? (size_t)n : 0;
    if (request->conn)
        intake_give(request->conn, taken);
    return taken;
}

// ---- Taken whole ----------------------------------------------------------------------------

// Has its own evbuffer, to which the body's memory moves without a copy.
struct http_body {
    struct evbuffer *bytes;
};

static size_t
body_len(const struct http_body *body)
{
    return evbuffer_get_length(body->bytes);
}

struct http_body *
http_request_take_body(struct http_request *request)
{
    assert(!request->body_is_streamed);
    struct http_body *body = KG_NEW(struct http_body);
    body->bytes = evbuffer_new();
    if (!body->bytes || evbuffer_add_buffer(body->bytes, request->body))
        abort();
    request->taken_len = body_len(body);
    return body;
}

void
http_request_body_done(struct http_request *request)
{
    if (request->conn)
        intake_give(request->conn, request->taken_len);
    request->taken_len = 0;
}

void
http_request_give_body(struct http_request *request, struct http_body *body)
{
    if (evbuffer_add_buffer(request->body, body->bytes))
        abort();
    request->taken_len = 0;
    http_body_free(body);
}

const char *
http_body_data(const struct http_body *body, size_t *ret_len)
{
    *ret_len = body_len(body);
    return (const char *)evbuffer_pullup(body->bytes, -1);
}

char *
http_body_text(struct http_body *body, size_t *ret_len)
{
    size_t len = body_len(body);
    char *text = kg_realloc(NULL, len + 1); // bounded by the server
    evbuffer_remove(body->bytes, text, len);
    text[len] = '\0';
    *ret_len = len;
    http_body_free(body);
    return text;
}

void
http_body_free(struct http_body *body)
{
    if (!body)
        return;
    evbuffer_free(body->bytes);
    free(body);
}

// ---- On a worker ----------------------------------------------------------------------------

// While the work runs, only the worker touches it.
struct body_read {
    struct http_request *request;
    const struct http_body_reader *reader;
    void *job;
    struct http_body *body;
    struct loop_work *work;
};

static void
body_read_run(void *arg)
{
    struct body_read *read = arg;
    size_t len;
    KG_AUTO_FREE char *text = http_body_text(KG_STEAL(read->body), &len);
    read->reader->read(text, len, read->job);
}

static void
body_read_discard(void *arg)
{
    struct body_read *read = arg;
    http_body_free(read->body);
    read->reader->discard(read->job);
    free(read);
}

static void
body_read_cancel(void *arg)
{
    const struct body_read *read = arg;
    loop_work_cancel(read->work, body_read_discard);
}

static void
body_read_done(void *arg)
{
    KG_AUTO_FREE struct body_read *read = arg;
    http_request_disown(read->request);
    http_request_body_done(read->request);
    read->reader->done(read->request, read->job);
}

void
http_request_read_body(struct http_request *request, const struct http_body_reader *reader,
                       void *job)
{
    struct body_read *read = KG_NEW(struct body_read);
    read->request = request;
    read->reader = reader;
    read->job = job;
    read->body = http_request_take_body(request);
    if (body_len(read->body) <= HTTP_JSON_INLINE_MAX) {
        body_read_run(read);
        body_read_done(read);
        return;
    }
    read->work = loop_work_start(request->conn->server->loop, loop_lane_of(request->owner),
                                 body_read_run, body_read_done, read);
    http_request_own(request, read, body_read_cancel);
}

// ---- As JSON --------------------------------------------------------------------------------

json_t *
http_request_json(struct http_request *request, struct kg_error *err)
{
    struct http_parsed *parsed = request->json;
    if (!parsed) {
        size_t len;
        const char *body = http_request_body(request, &len);
        return http_json_parse(body, len, err);
    }
    if (err && !parsed->value)
        *err = parsed->err;
    return KG_STEAL(parsed->value);
}

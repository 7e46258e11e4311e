// SPDX-License-Identifier: Apache-2.0
// Streamable HTTP, as the specification's page about transports has it: each message is a POST,
// whose answer is JSON or a stream of events; a GET listens for what the server says unasked; both
// streams can break, and are resumed after the last event. Revisions before 2025-03-26, with two
// addresses, are not supported. Redirects are not followed: the operator has named the address.

#include <stdio.h>
#include <string.h>

#include "connection.h"
#include "event_reader.h"
#include "http_client.h"

enum {
    SESSION_ID_MAX = 512,
    HEADERS_MAX = 48,              // with those of the operator
    ANSWERS_MAX = 4 * MESSAGE_MAX, // bytes of one answer, with all that is said beside it
    LISTENED_MAX = 64 << 20,       // bytes of what a server says unasked; then it is asked again
    RESUME_MS = 1000,
    RESUMES_MAX = 10,
    LISTEN_AGAIN_MAX_MS = 60 * 1000,
    LINGER_MS = 2000, // for the end of a stream whose answer has come
    GOODBYE_MS = 5000,
};

struct http {
    struct connection *connection;
    char session_id[SESSION_ID_MAX + 1]; // "": none
    struct loop_timer *turn;             // has opened it
    struct loop_timer *listen_again;
    int64_t listen_again_ms;
    LIST_HEAD(, exchange) exchanges;
};

struct exchange {
    LIST_ENTRY(exchange) link;
    struct http *http;
    int64_t id;   // of the request, or 0
    bool listens; // the GET for what comes unasked
    bool is_initialize;
    struct http_call *call;
    struct loop_timer *again;
    struct event_reader reader;
    struct buf body;
    struct budget_hold hold;
    size_t n_bytes;
    int status;
    int resumes;
    bool stream;
    bool had_session; // it was sent in one
    bool too_large;
    bool lingers;
    bool is_refused; // by the client: the url makes no sense
    bool is_busy;    // its bytes are being taken
    bool gone;       // meanwhile: it is freed after that
};

static struct http *
http_of(struct connection *connection)
{
    return connection_data(connection);
}

static void
exchange_free(struct exchange *exchange)
{
    if (exchange->call)
        http_call_cancel(KG_STEAL(exchange->call));
    if (exchange->is_busy) {
        exchange->gone = true;
        return;
    }
    LIST_REMOVE(exchange, link);
    loop_timer_free(exchange->again);
    event_reader_fini(&exchange->reader);
    buf_fini(&exchange->body);
    budget_hold_end(&exchange->hold);
    free(exchange);
}

// ---- The head and the bytes of an answer ----------------------------------------------------

static void
http_take_session(struct http *http, const char *id)
{
    size_t len = id ? strlen(id) : 0;
    for (size_t i = 0; i < len; i++) {
        if (id[i] <= ' ' || id[i] >= 0x7f)
            len = 0;
    }
    if (len > 0 && len <= SESSION_ID_MAX)
        memcpy(http->session_id, id, len + 1);
}

static bool
exchange_on_head(struct http_call *call, int status, void *arg)
{
    struct exchange *exchange = arg;
    struct http *http = exchange->http;
    const char *type = http_call_header(call, "Content-Type");
    exchange->status = status;
    exchange->stream = status == 200 && type && strncasecmp(type, "text/event-stream", 17) == 0;
    if (exchange->is_initialize && status == 200)
        http_take_session(http, http_call_header(call, "Mcp-Session-Id"));
    if (exchange->listens && exchange->stream) {
        bool again = http->listen_again_ms > 0;
        http->listen_again_ms = RESUME_MS;
        connection_set_hears_changes(http->connection, true);
        if (again)
            connection_doubt_list(http->connection);
    }
    return true;
}

static void
exchange_on_event(const char *data, size_t len, void *arg)
{
    struct exchange *exchange = arg;
    if (!exchange->gone)
        connection_take(exchange->http->connection, data, len, exchange->id);
}

// A server that has answered should end the stream; one that does not is not waited for.
static void
exchange_linger(struct exchange *exchange)
{
    if (exchange->lingers || exchange->listens ||
        !connection_has_answer(exchange->http->connection, exchange->id))
        return;
    exchange->lingers = true;
    loop_timer_start(exchange->again, LINGER_MS);
}

static bool
exchange_take_events(struct exchange *exchange, const void *data, size_t len)
{
    exchange->is_busy = true;
    bool fits = event_reader_take(&exchange->reader, data, len, exchange_on_event, exchange);
    exchange->is_busy = false;
    if (exchange->gone) {
        exchange_free(exchange);
        return false;
    }
    exchange->too_large |= !fits;
    budget_hold_set(&exchange->hold, exchange->reader.line.len + exchange->reader.data.len);
    exchange_linger(exchange);
    return fits;
}

static bool
exchange_on_data(int status, const void *data, size_t len, void *arg)
{
    struct exchange *exchange = arg;
    (void)status;
    exchange->n_bytes += len;
    bool fits = exchange->n_bytes <= (exchange->listens ? (size_t)LISTENED_MAX : ANSWERS_MAX) &&
                budget_hold_has_room(&exchange->hold, len);
    if (fits && exchange->stream)
        return exchange_take_events(exchange, data, len);
    fits = fits && exchange->body.len + len <= MESSAGE_MAX;
    exchange->too_large |= !fits;
    if (!fits)
        return false;
    buf_append(&exchange->body, data, len);
    budget_hold_set(&exchange->hold, exchange->body.len);
    return true;
}

// ---- The end of an answer -------------------------------------------------------------------

static void exchange_start(struct exchange *exchange, const char *body, size_t len);
static void exchange_refuse(struct exchange *exchange);

// Waits and asks for what follows the last event, if there is one.
static bool
exchange_resume(struct exchange *exchange)
{
    if (!*exchange->reader.id || exchange->too_large || exchange->resumes >= RESUMES_MAX)
        return false;
    int64_t asked_ms = exchange->reader.retry_ms;
    exchange->resumes++;
    event_reader_rewind(&exchange->reader);
    loop_timer_start(exchange->again, asked_ms > 0 ? asked_ms : RESUME_MS);
    return true;
}

static void
exchange_on_again(void *arg)
{
    struct exchange *exchange = arg;
    if (exchange->lingers)
        exchange_free(exchange);
    else if (exchange->is_refused)
        exchange_refuse(exchange);
    else
        exchange_start(exchange, NULL, 0);
}

// Why the request has no answer.
static void
exchange_explain(const struct exchange *exchange, const struct kg_error *failed,
                 struct kg_error *err)
{
    int status = exchange->status;
    if (exchange->too_large)
        (void)kg_error_set(err, KG_INTERNAL, 0, "its answer is larger than %d MiB",
                           MESSAGE_MAX >> 20);
    else if (failed && failed->sys_errno)
        (void)kg_error_set(err, KG_INTERNAL, 0, "it cannot be reached");
    else if (failed)
        (void)kg_error_set(err, KG_INTERNAL, 0, "the connection has failed");
    else if (status >= 300 && status < 400)
        (void)kg_error_set(err, KG_INTERNAL, 0,
                           "it answers %d, a redirect, which is not followed: the file of the "
                           "setting mcp-servers must name the address itself",
                           status);
    else if (status == 401 || status == 403)
        (void)kg_error_set(err, KG_INTERNAL, 0,
                           "it answers %d: it does not take the headers that the file of the "
                           "setting mcp-servers has for it",
                           status);
    else if (status < 200 || status >= 300)
        (void)kg_error_set(err, KG_INTERNAL, 0, "it answers %d", status);
    else
        (void)kg_error_set(err, KG_INTERNAL, 0, "its answer has ended without a result");
}

static void
exchange_finish(struct exchange *exchange, const struct kg_error *failed)
{
    struct connection *connection = exchange->http->connection;
    struct kg_error err = {0};
    int64_t id = exchange->id;
    bool lost = exchange->status == 404 && exchange->had_session;
    // What some servers say of a session that they do not know, though it is to be 404.
    bool may_be_lost = exchange->status == 400 && exchange->had_session;
    exchange_explain(exchange, failed, &err);
    connection_note(connection, failed ? failed->message : err.message);
    // Errors may have a JSON-RPC message, too.
    bool has_message = !failed && !exchange->stream && exchange->body.len > 0 &&
                       (exchange->status == 200 || exchange->body.data[0] == '{');
    if (id && !lost && has_message) {
        exchange->is_busy = true;
        connection_take(connection, exchange->body.data, exchange->body.len, id);
        exchange->is_busy = false;
    }
    exchange_free(exchange);
    if (lost || (may_be_lost && !connection_has_answer(connection, id)))
        connection_lose_session(connection, id);
    else if (failed && failed->sys_errno && connection_is_up(connection))
        connection_fail(connection, &err); // nobody listens there
    else if (id)
        connection_end_answers(connection, id, &err);
}

static void
exchange_refuse(struct exchange *exchange)
{
    static const struct kg_error err = {.code = KG_INTERNAL, .message = "its url is not valid"};
    if (exchange->listens)
        exchange_free(exchange);
    else
        exchange_finish(exchange, &err);
}

static void
http_listen_later(struct http *http, const struct exchange *exchange)
{
    int64_t asked_ms = exchange->reader.retry_ms;
    loop_timer_start(http->listen_again,
                     asked_ms > http->listen_again_ms ? asked_ms : http->listen_again_ms);
    http->listen_again_ms *= 2;
    if (http->listen_again_ms > LISTEN_AGAIN_MAX_MS)
        http->listen_again_ms = LISTEN_AGAIN_MAX_MS;
}

// A server without such a stream answers 405; one that has been started again does not know the
// session, which the next request finds out.
static void
exchange_finish_listening(struct exchange *exchange)
{
    struct http *http = exchange->http;
    bool was_there = http->listen_again_ms > 0;
    connection_set_hears_changes(http->connection, false);
    if (was_there && (exchange->status == 200 || exchange->status == 0))
        http_listen_later(http, exchange);
    else if (was_there)
        connection_doubt_list(http->connection);
    exchange_free(exchange);
}

static void
exchange_on_done(const struct http_call_result *result, void *arg)
{
    struct exchange *exchange = arg;
    struct connection *connection = exchange->http->connection;
    exchange->call = NULL;
    loop_timer_stop(exchange->again);
    if (exchange->listens)
        exchange_finish_listening(exchange);
    else if (exchange->stream && !connection_has_answer(connection, exchange->id) &&
             exchange_resume(exchange))
        return;
    else
        exchange_finish(exchange, result->err);
}

// ---- The start of a request -----------------------------------------------------------------

struct headers {
    const char *lines[HEADERS_MAX + 1];
    char *own[4];
    size_t n, n_own;
};

static void
headers_add(struct headers *headers, const char *name, const char *value)
{
    if (!*value)
        return;
    headers->own[headers->n_own] = kg_asprintf("%s: %s", name, value);
    headers->lines[headers->n++] = headers->own[headers->n_own++];
}

static void
headers_init(struct headers *headers, const struct http *http, bool posts, const char *last_event)
{
    const struct server_spec *spec = connection_spec(http->connection);
    *headers = (struct headers){0};
    headers->lines[headers->n++] =
        posts ? "Accept: application/json, text/event-stream" : "Accept: text/event-stream";
    if (posts)
        headers->lines[headers->n++] = "Content-Type: application/json";
    headers_add(headers, "Mcp-Session-Id", http->session_id);
    headers_add(headers, "MCP-Protocol-Version", connection_version(http->connection));
    headers_add(headers, "Last-Event-ID", last_event);
    for (char **line = spec->headers; line && *line && headers->n < HEADERS_MAX; line++)
        headers->lines[headers->n++] = *line;
}

static void
headers_fini(struct headers *headers)
{
    for (size_t i = 0; i < headers->n_own; i++) {
        explicit_bzero(headers->own[i], strlen(headers->own[i]));
        free(headers->own[i]);
    }
}

// Without a body it listens, or resumes.
static void
exchange_start(struct exchange *exchange, const char *body, size_t len)
{
    struct http *http = exchange->http;
    struct headers headers;
    struct kg_error err = {0};
    headers_init(&headers, http, body, exchange->reader.id);
    const struct http_call_spec spec = {
        .method = body ? "POST" : "GET",
        .url = connection_spec(http->connection)->url,
        .headers = headers.lines,
        .body = body,
        .body_len = len,
        .on_head = exchange_on_head,
    };
    exchange->status = 0;
    exchange->n_bytes = 0;
    exchange->had_session = *http->session_id != '\0';
    exchange->call = http_call_start(connection_context(http->connection)->client, &spec,
                                     exchange_on_data, exchange_on_done, exchange, &err);
    headers_fini(&headers);
    if (exchange->call)
        return;
    exchange->is_refused = true;
    loop_timer_start(exchange->again, 0);
}

static struct exchange *
exchange_new(struct http *http, int64_t id)
{
    const struct connection_context *context = connection_context(http->connection);
    struct exchange *exchange = KG_NEW(struct exchange);
    exchange->http = http;
    exchange->id = id;
    exchange->reader.max = MESSAGE_MAX;
    exchange->again = loop_timer_new(context->loop, exchange_on_again, exchange);
    budget_hold_start(&exchange->hold, context->bytes, connection_spec(http->connection)->name);
    LIST_INSERT_HEAD(&http->exchanges, exchange, link);
    return exchange;
}

static void
http_listen(void *arg)
{
    struct http *http = arg;
    struct exchange *exchange = exchange_new(http, 0);
    exchange->listens = true;
    exchange_start(exchange, NULL, 0);
}

// ---- Operations -----------------------------------------------------------------------------

static void
http_on_turn(void *arg)
{
    struct http *http = arg;
    connection_opened(http->connection);
}

static void
http_stop_listening(struct http *http)
{
    struct exchange *exchange;
    loop_timer_stop(http->listen_again);
    http->listen_again_ms = 0;
    LIST_FOREACH(exchange, &http->exchanges, link) {
        if (!exchange->listens)
            continue;
        exchange_free(exchange);
        return;
    }
}

static void
http_open(struct connection *connection)
{
    struct http *http = http_of(connection);
    if (!http) {
        struct loop *loop = connection_context(connection)->loop;
        http = KG_NEW(struct http);
        http->connection = connection;
        http->turn = loop_timer_new(loop, http_on_turn, http);
        http->listen_again = loop_timer_new(loop, http_listen, http);
        LIST_INIT(&http->exchanges);
        connection_set_data(connection, http);
    }
    http->session_id[0] = '\0';
    http_stop_listening(http);
    loop_timer_start(http->turn, 0);
}

static void
http_send(struct connection *connection, char *text, size_t len, int64_t id)
{
    struct exchange *exchange = exchange_new(http_of(connection), id);
    exchange->is_initialize = id && connection_is_initialize(connection, id);
    exchange_start(exchange, text, len);
    free(text);
}

static void
http_withdraw(struct connection *connection, int64_t id)
{
    struct exchange *exchange;
    LIST_FOREACH(exchange, &http_of(connection)->exchanges, link) {
        if (exchange->id == id)
            break;
    }
    if (exchange)
        exchange_free(exchange);
}

static void
http_up(struct connection *connection)
{
    http_listen(http_of(connection));
}

static void
http_close(struct connection *connection)
{
    struct http *http = http_of(connection);
    if (!http)
        return;
    loop_timer_stop(http->turn);
    http_stop_listening(http);
    struct exchange *next;
    for (struct exchange *each = LIST_FIRST(&http->exchanges); each; each = next) {
        next = LIST_NEXT(each, link);
        exchange_free(each);
    }
}

static void
http_on_goodbye(const struct http_call_result *result, void *arg)
{
    (void)result;
    (void)arg;
}

// The server may forget the session.
static void
http_say_goodbye(const struct http *http)
{
    struct headers headers;
    struct kg_error err = {0};
    if (!*http->session_id)
        return;
    headers_init(&headers, http, false, "");
    const struct http_call_spec spec = {
        .method = "DELETE",
        .url = connection_spec(http->connection)->url,
        .headers = headers.lines,
        .timeout_ms = GOODBYE_MS,
    };
    if (!http_call_start(connection_context(http->connection)->client, &spec, NULL, http_on_goodbye,
                         NULL, &err))
        log_debug("an MCP server hears no goodbye", LOG_ERR(&err));
    headers_fini(&headers);
}

static void
http_free(struct connection *connection)
{
    struct http *http = http_of(connection);
    if (!http)
        return;
    http_say_goodbye(http);
    loop_timer_free(http->turn);
    loop_timer_free(http->listen_again);
    explicit_bzero(http->session_id, sizeof http->session_id);
    free(http);
}

const struct transport_ops http_transport = {
    .open = http_open,
    .send = http_send,
    .withdraw = http_withdraw,
    .up = http_up,
    .close = http_close,
    .free = http_free,
};

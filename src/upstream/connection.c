// SPDX-License-Identifier: Apache-2.0
// The lifecycle of a client, as the specification's page "Lifecycle" has it, and JSON-RPC. Requests
// wait until the connection is up; those that were sent when it ends fail, since nobody knows
// whether the server has carried them out.

#include "connection.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "message_reader.h"

enum {
    OPEN_TIMEOUT_MS = 30 * 1000,
    BACKOFF_MIN_MS = 1000,
    BACKOFF_MAX_MS = 60 * 1000,
    ASK_AGAIN_MS = 1000,    // a request opens a connection that is down, but not more often
    ASKED_PER_S_MAX = 1000, // requests, notifications and stray answers of the server
    SESSION_LEAST_MS = 500, // a session that is lost before is not replaced at once
    VERSION_MAX = 31,
    DETAIL_MAX = 239,
    TELL_LATER_MS = 0,
};

enum connection_state {
    CONNECTION_DOWN,
    CONNECTION_OPENING, // the transport
    CONNECTION_GREETING,
    CONNECTION_UP,
};

struct rpc_call {
    TAILQ_ENTRY(rpc_call) link;
    struct connection *connection;
    int64_t id;
    char *text; // kept until the answer comes, since the server may have lost its session
    size_t len;
    bool sent;
    bool sent_again;
    bool is_initialize;
    rpc_fn fn;
    void *arg;
};

struct connection {
    const struct connection_context *context;
    const struct server_spec *spec;
    size_t number;
    const struct transport_ops *transport;
    void *data; // the transport's
    const struct connection_events *events;
    void *arg;
    enum connection_state state;
    char version[VERSION_MAX + 1];
    bool keeps_trying;
    bool hears_changes;
    TAILQ_HEAD(rpc_calls_, rpc_call) calls; // in the order of their ids
    struct message_reader *reader;
    int64_t last_id;
    struct loop_timer *retry;
    struct loop_timer *timeout; // of an attempt
    struct loop_timer *failing; // of a failure that is found in the middle of something
    struct kg_error error;
    char detail[DETAIL_MAX + 1]; // of it; "": there is none
    int64_t backoff_ms;
    int64_t tried_ms;
    int64_t up_ms;     // since when it is up
    int64_t second_ms; // in which `n_asked` has been counted
    int n_asked;
};

static bool
edge_is_legal(enum connection_state from, enum connection_state to)
{
    switch (from) {
    case CONNECTION_DOWN:
        return to == CONNECTION_OPENING;
    case CONNECTION_OPENING:
        return to == CONNECTION_GREETING || to == CONNECTION_DOWN;
    case CONNECTION_GREETING:
        return to == CONNECTION_UP || to == CONNECTION_DOWN;
    case CONNECTION_UP:
        return to == CONNECTION_OPENING || to == CONNECTION_DOWN; // it has lost its session
    }
    return false;
}

static void
connection_set_state(struct connection *connection, enum connection_state state)
{
    assert(edge_is_legal(connection->state, state));
    connection->state = state;
}

// ---- Calls ----------------------------------------------------------------------------------

static void
call_free(struct rpc_call *call)
{
    TAILQ_REMOVE(&call->connection->calls, call, link);
    free(call->text);
    free(call);
}

static struct rpc_call *
call_find(const struct connection *connection, int64_t id)
{
    struct rpc_call *call;
    TAILQ_FOREACH(call, &connection->calls, link) {
        if (call->id == id)
            return call;
    }
    return NULL;
}

static void
call_end(struct rpc_call *call, struct message *message, const struct kg_error *err)
{
    rpc_fn fn = call->fn;
    void *arg = call->arg;
    bool sent = call->sent;
    call_free(call);
    fn(message, err, sent, arg);
}

// Says which server it is.
static void
call_fail(struct rpc_call *call, const struct kg_error *err)
{
    struct kg_error why = {0};
    if (call->is_initialize) {
        call_end(call, NULL, err);
        return;
    }
    (void)kg_error_set(&why, err->code, 0, "the MCP server %s: %.180s",
                       call->connection->spec->name, err->message);
    call_end(call, NULL, &why);
}

static void
call_send(struct rpc_call *call)
{
    struct connection *connection = call->connection;
    call->sent = true;
    connection->transport->send(connection, kg_memdup0(call->text, call->len), call->len, call->id);
}

static void
connection_say(struct connection *connection, json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    connection->transport->send(connection, text, strlen(text), 0);
}

static void
connection_notify(struct connection *connection, const char *method, json_t *params)
{
    json_t *message = json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method", method);
    if (params)
        json_object_set_new(message, "params", params);
    connection_say(connection, message);
}

static struct rpc_call *
call_new(struct connection *connection, const char *method, json_t *params, rpc_fn fn, void *arg)
{
    struct rpc_call *call = KG_NEW(struct rpc_call);
    call->connection = connection;
    call->id = ++connection->last_id;
    call->fn = fn;
    call->arg = arg;
    json_auto_t *message = json_pack("{s:s, s:I, s:s}", "jsonrpc", "2.0", "id",
                                     (json_int_t)call->id, "method", method);
    if (params)
        json_object_set_new(message, "params", params);
    call->text = json_dumps(message, JSON_COMPACT);
    call->len = strlen(call->text);
    TAILQ_INSERT_TAIL(&connection->calls, call, link);
    return call;
}

struct rpc_call *
connection_call(struct connection *connection, const char *method, json_t *params, rpc_fn fn,
                void *arg, struct kg_error *err)
{
    bool asks_again = clock_mono_ms() - connection->tried_ms >= ASK_AGAIN_MS;
    if (connection->state == CONNECTION_DOWN && !asks_again) {
        json_decref(params);
        if (err)
            *err = connection->error;
        return NULL;
    }
    struct rpc_call *call = call_new(connection, method, params, fn, arg);
    if (connection->state == CONNECTION_UP)
        call_send(call);
    else if (connection->state == CONNECTION_DOWN)
        connection_open(connection);
    return call;
}

void
rpc_call_cancel(struct rpc_call *call)
{
    if (!call)
        return;
    struct connection *connection = call->connection;
    int64_t id = call->id;
    bool sent = call->sent;
    call_free(call);
    if (sent)
        connection->transport->withdraw(connection, id);
    if (!sent || connection->state != CONNECTION_UP)
        return;
    connection_notify(connection, "notifications/cancelled",
                      json_pack("{s:I, s:s}", "requestId", (json_int_t)id, "reason",
                                "nobody waits for the answer"));
}

// ---- Its life -------------------------------------------------------------------------------

static void
connection_fail_calls(struct connection *connection, const struct kg_error *err)
{
    struct kg_error why = *err;
    struct rpc_call *last = TAILQ_LAST(&connection->calls, rpc_calls_);
    // Callbacks may make further calls, which are not of this failure.
    int64_t last_id = last ? last->id : 0;
    for (struct rpc_call *call; (call = TAILQ_FIRST(&connection->calls)) && call->id <= last_id;) {
        if (call->is_initialize)
            call_free(call);
        else
            call_end(call, NULL, &why);
    }
}

void
connection_fail(struct connection *connection, const struct kg_error *err)
{
    const char *name = connection->spec->name;
    struct kg_error why = {0};
    if (connection->state == CONNECTION_DOWN)
        return;
    bool was_up = connection->state == CONNECTION_UP;
    (void)kg_error_set(&why, KG_SERVER_DOWN, 0, "the MCP server %s is down: %.150s", name,
                       err->message);
    loop_timer_stop(connection->timeout);
    loop_timer_stop(connection->failing);
    connection->transport->close(connection);
    connection->hears_changes = false;
    if (was_up || connection->backoff_ms == 0) // not each attempt
        log_warning(was_up ? "the connection with an MCP server has ended"
                           : "an MCP server cannot be reached",
                    LOG_STR("server", name), LOG_STR("error", err->message),
                    LOG_STR("detail", connection->detail));
    connection_set_state(connection, CONNECTION_DOWN);
    connection->error = why;
    connection->tried_ms = clock_mono_ms();
    connection->backoff_ms =
        was_up || connection->backoff_ms == 0 ? BACKOFF_MIN_MS : 2 * connection->backoff_ms;
    if (connection->backoff_ms > BACKOFF_MAX_MS)
        connection->backoff_ms = BACKOFF_MAX_MS;
    if (connection->keeps_trying)
        loop_timer_start(connection->retry, connection->backoff_ms);
    connection_fail_calls(connection, &why);
    connection->events->on_down(connection, connection->arg);
}

static void
connection_on_timeout(void *arg)
{
    const struct kg_error err = {.code = KG_INTERNAL, .message = "it does not answer"};
    connection_fail(arg, &err);
}

// What is found wrong while a message is taken ends the connection in a later turn.
static int
connection_refuse(struct connection *connection, const char *why)
{
    (void)kg_error_set(&connection->error, KG_INTERNAL, 0, "%s", why);
    loop_timer_start(connection->failing, TELL_LATER_MS);
    return -1;
}

static void
connection_on_failing(void *arg)
{
    struct connection *connection = arg;
    const struct kg_error err = connection->error;
    connection_fail(connection, &err);
}

void
connection_open(struct connection *connection)
{
    if (connection->state != CONNECTION_DOWN)
        return;
    loop_timer_stop(connection->retry);
    connection->detail[0] = '\0';
    connection->tried_ms = clock_mono_ms();
    connection->version[0] = '\0';
    connection_set_state(connection, CONNECTION_OPENING);
    loop_timer_start(connection->timeout, OPEN_TIMEOUT_MS);
    connection->transport->open(connection);
}

static void
connection_on_retry(void *arg)
{
    connection_open(arg);
}

// ---- The greeting ---------------------------------------------------------------------------

static bool
version_is_known(const char *version)
{
    static const char *const known[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};
    for (size_t i = 0; i < KG_ARRAY_LEN(known); i++) {
        if (strcmp(version, known[i]) == 0)
            return true;
    }
    return false;
}

static int
check_greeting(struct connection *connection, const json_t *answer)
{
    const json_t *result = json_object_get(answer, "result");
    const char *version = json_string_value(json_object_get(result, "protocolVersion"));
    const char *said =
        json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
    if (said) {
        KG_AUTO_FREE char *why = kg_asprintf("it refuses initialize: %.120s", said);
        server_hide_values(connection->spec, why);
        return connection_refuse(connection, why);
    }
    if (!version || !version_is_known(version))
        return connection_refuse(connection,
                                 "it answers initialize with a protocolVersion that this client "
                                 "does not have: 2024-11-05 to 2025-11-25");
    if (!json_object_get(json_object_get(result, "capabilities"), "tools"))
        return connection_refuse(connection, "it offers no tools");
    snprintf(connection->version, sizeof connection->version, "%s", version);
    return 0;
}

static void
connection_on_greeted(struct message *message, const struct kg_error *err, bool sent, void *arg)
{
    struct connection *connection = arg;
    struct rpc_call *call;
    (void)sent;
    if (!message) {
        (void)connection_refuse(connection, err->message);
        return;
    }
    if (check_greeting(connection, message->json) < 0)
        return;
    loop_timer_stop(connection->timeout);
    connection_set_state(connection, CONNECTION_UP);
    connection->up_ms = clock_mono_ms();
    connection->backoff_ms = 0;
    connection->error = (struct kg_error){0};
    connection_notify(connection, "notifications/initialized", NULL);
    if (connection->transport->up)
        connection->transport->up(connection);
    TAILQ_FOREACH(call, &connection->calls, link) {
        if (!call->sent)
            call_send(call);
    }
    log_info("an MCP server is connected", LOG_STR("server", connection->spec->name),
             LOG_STR("revision", connection->version));
    connection->events->on_up(connection, connection->arg);
}

void
connection_opened(struct connection *connection)
{
    json_t *params =
        json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", "2025-11-25", "capabilities",
                  "clientInfo", "name", "kernelgate", "version", KG_VERSION);
    connection_set_state(connection, CONNECTION_GREETING);
    struct rpc_call *call =
        call_new(connection, "initialize", params, connection_on_greeted, connection);
    call->is_initialize = true;
    call_send(call);
}

// ---- What the server says -------------------------------------------------------------------

// Of what nobody has asked for; false: it is too much.
static bool
connection_count(struct connection *connection)
{
    int64_t now_ms = clock_mono_ms();
    if (now_ms - connection->second_ms >= 1000) {
        connection->second_ms = now_ms;
        connection->n_asked = 0;
    }
    return ++connection->n_asked <= ASKED_PER_S_MAX ||
           connection_refuse(connection, "it sends too many messages") == 0;
}

static void
connection_answer(struct connection *connection, struct message *message)
{
    const json_t *id = json_object_get(message->json, "id");
    struct rpc_call *call =
        json_is_integer(id) ? call_find(connection, json_integer_value(id)) : NULL;
    bool valid = json_object_get(message->json, "result") ||
                 json_is_object(json_object_get(message->json, "error"));
    if (call && call->sent && valid) {
        call_end(call, message, NULL);
        return;
    }
    log_debug("an MCP server answers what nobody has asked",
              LOG_STR("server", connection->spec->name));
    (void)connection_count(connection);
}

// This client has neither a model nor a user nor files for a server; ping is answered.
static void
connection_be_asked(struct connection *connection, const json_t *json, const char *method)
{
    const json_t *id = json_object_get(json, "id");
    if (!connection_count(connection))
        return;
    if (!id) {
        if (strcmp(method, "notifications/tools/list_changed") == 0)
            connection->events->on_list_changed(connection, connection->arg);
        return;
    }
    if (!json_is_integer(id) && !json_is_string(id))
        return;
    json_t *answer = json_pack("{s:s, s:O}", "jsonrpc", "2.0", "id", (json_t *)(uintptr_t)id);
    if (strcmp(method, "ping") == 0)
        json_object_set_new(answer, "result", json_object());
    else
        json_object_set_new(answer, "error",
                            json_pack("{s:i, s:s}", "code", -32601, "message",
                                      "kernelgate offers servers neither sampling, elicitation, "
                                      "nor roots"));
    connection_say(connection, answer);
}

static void
connection_take_message(struct connection *connection, struct message *message)
{
    const json_t *method = json_object_get(message->json, "method");
    if (connection->state == CONNECTION_DOWN)
        return;
    if (!method)
        connection_answer(connection, message);
    else if (json_is_string(method))
        connection_be_asked(connection, message->json, json_string_value(method));
}

// `id`: that of the request in answer to which it has come.
static void
connection_on_message(struct message *message, int64_t id, const struct kg_error *err, void *arg)
{
    struct connection *connection = arg;
    struct rpc_call *call = !message && id ? call_find(connection, id) : NULL;
    if (message)
        connection_take_message(connection, message);
    else if (call)
        call_fail(call, err);
    else
        log_debug("an MCP server sends what is not a message",
                  LOG_STR("server", connection->spec->name), LOG_STR("error", err->message));
}

void
connection_take(struct connection *connection, const char *text, size_t len, int64_t id)
{
    message_reader_take(connection->reader, text, len, id);
}

bool
connection_has_answer(const struct connection *connection, int64_t id)
{
    return message_reader_has(connection->reader, id) || !call_find(connection, id);
}

void
connection_end_answers(struct connection *connection, int64_t id, const struct kg_error *err)
{
    message_reader_end(connection->reader, id, err);
}

static void
connection_on_answers_end(int64_t id, const struct kg_error *why, void *arg)
{
    struct rpc_call *call = call_find(arg, id);
    if (call)
        call_fail(call, why);
}

void
connection_lose_session(struct connection *connection, int64_t id)
{
    static const struct kg_error again = {
        .code = KG_INTERNAL, .message = "it does not know the session that it has given"};
    struct rpc_call *call = call_find(connection, id);
    bool is_new = connection->state == CONNECTION_UP &&
                  clock_mono_ms() - connection->up_ms < SESSION_LEAST_MS;
    if (call && (call->sent_again || is_new)) {
        call_fail(call, &again);
        return;
    }
    if (call) {
        call->sent = false;
        call->sent_again = true;
    }
    if (connection->state == CONNECTION_UP) {
        log_info("an MCP server has forgotten the session: a new one begins",
                 LOG_STR("server", connection->spec->name));
        connection->version[0] = '\0';
        connection_set_state(connection, CONNECTION_OPENING);
        loop_timer_start(connection->timeout, OPEN_TIMEOUT_MS);
        connection->transport->open(connection);
    }
}

void
connection_doubt_list(struct connection *connection)
{
    connection->events->on_list_changed(connection, connection->arg);
}

// ---- Life -----------------------------------------------------------------------------------

struct connection *
connection_new(const struct connection_context *context, const struct server_spec *spec,
               size_t number, bool keeps_trying, const struct connection_events *events, void *arg)
{
    static const struct message_reader_events reader_events = {.on_message = connection_on_message,
                                                               .on_end = connection_on_answers_end};
    struct connection *connection = KG_NEW(struct connection);
    connection->reader =
        message_reader_new(context->loop, context->bytes, spec, &reader_events, connection);
    connection->context = context;
    connection->spec = spec;
    connection->number = number;
    connection->keeps_trying = keeps_trying;
    connection->transport = context->transports[spec->url ? CONNECTION_HTTP : CONNECTION_STDIO];
    connection->events = events;
    connection->arg = arg;
    connection->tried_ms = INT64_MIN / 2;
    TAILQ_INIT(&connection->calls);
    (void)kg_error_set(&connection->error, KG_SERVER_DOWN, 0,
                       "the MCP server %s is not connected yet", spec->name);
    connection->retry = loop_timer_new(context->loop, connection_on_retry, connection);
    connection->timeout = loop_timer_new(context->loop, connection_on_timeout, connection);
    connection->failing = loop_timer_new(context->loop, connection_on_failing, connection);
    return connection;
}

void
connection_free(struct connection *connection)
{
    if (!connection)
        return;
    connection->transport->close(connection);
    connection->transport->free(connection);
    message_reader_free(connection->reader);
    for (struct rpc_call *call; (call = TAILQ_FIRST(&connection->calls));)
        call_free(call);
    loop_timer_free(connection->retry);
    loop_timer_free(connection->timeout);
    loop_timer_free(connection->failing);
    free(connection);
}

bool
connection_is_up(const struct connection *connection)
{
    return connection->state == CONNECTION_UP;
}

bool
connection_has_failed(const struct connection *connection)
{
    return connection->backoff_ms > 0;
}

bool
connection_hears_changes(const struct connection *connection)
{
    return connection->hears_changes;
}

void
connection_set_hears_changes(struct connection *connection, bool hears)
{
    connection->hears_changes = hears;
}

const struct kg_error *
connection_error(const struct connection *connection)
{
    return &connection->error;
}

void
connection_note(struct connection *connection, const char *detail)
{
    if (connection->state != CONNECTION_UP)
        snprintf(connection->detail, sizeof connection->detail, "%s", detail);
}

const char *
connection_detail(const struct connection *connection)
{
    return *connection->detail ? connection->detail : connection->error.message;
}

bool
connection_is_initialize(const struct connection *connection, int64_t id)
{
    const struct rpc_call *call = call_find(connection, id);
    return call && call->is_initialize;
}

const char *
connection_version(const struct connection *connection)
{
    return connection->version;
}

const struct server_spec *
connection_spec(const struct connection *connection)
{
    return connection->spec;
}

size_t
connection_number(const struct connection *connection)
{
    return connection->number;
}

const struct connection_context *
connection_context(const struct connection *connection)
{
    return connection->context;
}

void *
connection_data(const struct connection *connection)
{
    return connection->data;
}

void
connection_set_data(struct connection *connection, void *data)
{
    connection->data = data;
}

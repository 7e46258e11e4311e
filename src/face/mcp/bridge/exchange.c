// SPDX-License-Identifier: Apache-2.0
// A message of the client, and the gateway's answer.

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "bridge_priv.h"
#include "mcp_message.h"

enum { HEADERS_MAX = 9 };

// The headers of an HTTP request.
struct headers {
    char *lines[HEADERS_MAX + 1];
    size_t n;
};

static void
headers_fini(struct headers *headers)
{
    for (size_t i = 0; i < headers->n; i++)
        free(headers->lines[i]);
}

static void
add_header(struct headers *headers, const char *name, const char *value)
{
    headers->lines[headers->n++] = kg_asprintf("%s: %s", name, value);
}

// A text that a header cannot contain is sent as base64.
static void
add_text_header(struct headers *headers, const char *name, const char *text)
{
    size_t len = strlen(text);
    bool plain = len > 0 && text[0] != ' ' && text[len - 1] != ' ' && text[0] != '=';
    for (const char *c = text; *c; c++)
        plain &= *c >= 0x20 && *c < 0x7f;
    if (plain) {
        add_header(headers, name, text);
        return;
    }
    size_t size = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
    KG_AUTO_FREE char *base64 = kg_calloc(1, size);
    sodium_bin2base64(base64, size, (const unsigned char *)text, len,
                      sodium_base64_VARIANT_ORIGINAL);
    headers->lines[headers->n++] = kg_asprintf("%s: =?base64?%s?=", name, base64);
}

static void
add_stateless_headers(struct headers *headers, const json_t *message, const char *version)
{
    const json_t *params = json_object_get(message, "params");
    const char *method = rpc_string(message, "method");
    const char *uri = rpc_string(params, "uri");
    const char *name = uri ? uri : rpc_string(params, "name");
    add_text_header(headers, "MCP-Protocol-Version", version);
    add_text_header(headers, "Mcp-Method", method ? method : "");
    if (name)
        add_text_header(headers, "Mcp-Name", name);
}

static void
make_headers(struct headers *headers, const struct exchange *exchange)
{
    const struct mcp_bridge *bridge = exchange->bridge;
    const char *claim = exchange->message ? mcp_claimed_version(exchange->message) : NULL;
    bool resumed = exchange->kind == EXCHANGE_NEWS || (exchange->stream && *exchange->reader.id);
    add_header(headers, "Accept",
               resumed ? "text/event-stream" : "application/json, text/event-stream");
    if (exchange->message)
        add_header(headers, "Content-Type", "application/json");
    if (bridge->api_key)
        headers->lines[headers->n++] = kg_asprintf("Authorization: Bearer %s", bridge->api_key);
    if (claim) {
        add_stateless_headers(headers, exchange->message, claim);
    } else if (exchange->kind != EXCHANGE_REOPEN && *bridge->session_id) {
        add_header(headers, "Mcp-Session-Id", bridge->session_id);
        if (*bridge->version)
            add_header(headers, "MCP-Protocol-Version", bridge->version);
    }
    if (resumed && *exchange->reader.id)
        add_header(headers, "Last-Event-ID", exchange->reader.id);
}

// ---- The answer -----------------------------------------------------------------------------

// Whether it is the response to the exchange's request, not another message.
static bool
is_own_response(const struct exchange *exchange, const json_t *message)
{
    const json_t *id = json_object_get(exchange->message, "id");
    return !json_object_get(message, "method") && id &&
           json_equal(json_object_get(message, "id"), id);
}

static void
take_message(struct exchange *exchange, const char *text, size_t len)
{
    struct kg_error err;
    json_auto_t *message = mcp_message_parse(text, len, &err);
    // Other answers of HTTP (an unknown key, a proxy) are not messages.
    if (!json_is_array(message) && !rpc_string(message, "jsonrpc"))
        return;
    // A batch is answered by an array.
    bool own = json_is_array(message) || is_own_response(exchange, message);
    const char *method = rpc_string(exchange->message, "method");
    if (own && method && strcmp(method, "initialize") == 0)
        bridge_opened(exchange->bridge, message);
    exchange->answered |= own;
    if (exchange->kind == EXCHANGE_REOPEN)
        return;
    size_t line_len;
    KG_AUTO_FREE char *line = rpc_dump(message, &line_len); // as one line
    if (line)
        bridge_pass(exchange->bridge, line, line_len);
}

static void
on_event(const char *data, size_t len, void *arg)
{
    take_message(arg, data, len);
}

static bool
on_head(struct http_call *call, int status, void *arg)
{
    struct exchange *exchange = arg;
    const char *type = http_call_header(call, "Content-Type");
    const char *session = http_call_header(call, "Mcp-Session-Id");
    exchange->status = status;
    if (exchange->kind == EXCHANGE_NEWS && status == 200)
        exchange->retries = 0;
    exchange->stream |= type && strncmp(type, "text/event-stream", 17) == 0;
    const char *method = rpc_string(exchange->message, "method");
    if (session && method && strcmp(method, "initialize") == 0)
        snprintf(exchange->bridge->session_id, sizeof exchange->bridge->session_id, "%s", session);
    return true;
}

static bool
on_data(int status, const void *data, size_t len, void *arg)
{
    struct exchange *exchange = arg;
    if (status == 200 && exchange->stream)
        return event_reader_take(&exchange->reader, data, len, on_event, exchange);
    if (exchange->body.len + len > ANSWER_MAX_BYTES)
        return false;
    buf_append(&exchange->body, data, len);
    return true;
}

// ---- The end of a call ----------------------------------------------------------------------

static void start_call(struct exchange *exchange);

// The event that was incomplete when the stream broke is sent again.
static void
exchange_on_again(void *arg)
{
    struct exchange *exchange = arg;
    event_reader_rewind(&exchange->reader);
    start_call(exchange);
}

// A stream of a session can be resumed; a stream of 2026-07-28 cannot.
static bool
try_again(struct exchange *exchange)
{
    bool news = exchange->kind == EXCHANGE_NEWS;
    bool lost = exchange->stream && *exchange->reader.id && !exchange->answered &&
                !mcp_claimed_version(exchange->message);
    if (!(news ? exchange->stream : lost) || exchange->retries >= RETRIES_MAX)
        return false;
    exchange->retries++;
    loop_timer_start(exchange->again, RETRY_MS);
    return true;
}

// Tells the client why its request has no answer.
static void
explain(const struct exchange *exchange, const json_t *request, const struct kg_error *err)
{
    if (!json_object_get(request, "method") || !json_object_get(request, "id"))
        return;
    KG_AUTO_BUF why = {0};
    if (err)
        buf_printf(&why, "the gateway cannot be reached: %s", err->message);
    else
        buf_printf(&why, "the gateway answered %d: %.300s", exchange->status,
                   exchange->body.data ? exchange->body.data : "");
    bridge_fail(exchange->bridge, request, why.data);
}

static void
finish_message(struct exchange *exchange, const struct kg_error *err)
{
    struct mcp_bridge *bridge = exchange->bridge;
    const char *method = rpc_string(exchange->message, "method");
    bool begins = method && strcmp(method, "initialize") == 0;
    bool in_session = !begins && !mcp_claimed_version(exchange->message);
    // A request that had begun in the lost session may have had effects, and is not sent again.
    if (exchange->status == 404 && in_session && !exchange->stream && bridge_may_reopen(bridge)) {
        bridge_reopen(bridge, json_incref(exchange->message));
        return;
    }
    if (!exchange->stream && exchange->body.len > 0)
        take_message(exchange, exchange->body.data, exchange->body.len);
    if (exchange->answered)
        return;
    if (begins)
        bridge_opened(bridge, NULL);
    explain(exchange, exchange->message, err);
    for (size_t i = 0; i < json_array_size(exchange->message); i++)
        explain(exchange, json_array_get(exchange->message, i), err);
}

static void
exchange_on_done(const struct http_call_result *result, void *arg)
{
    struct exchange *exchange = arg;
    exchange->call = NULL;
    // After another status the session is lost, and its stream cannot be resumed.
    if ((exchange->status == 200 || result->err) && try_again(exchange))
        return;
    struct mcp_bridge *bridge = exchange->bridge;
    enum exchange_kind kind = exchange->kind;
    if (kind == EXCHANGE_MESSAGE)
        finish_message(exchange, result->err);
    else if (kind == EXCHANGE_REOPEN) {
        if (exchange->status == 200 && !exchange->stream && exchange->body.len > 0)
            take_message(exchange, exchange->body.data, exchange->body.len);
        if (!exchange->answered)
            bridge_opened(bridge, NULL);
    }
    exchange_free(exchange);
    if (kind == EXCHANGE_GOODBYE)
        bridge_goodbye_said(bridge);
}

// ---- The start ------------------------------------------------------------------------------

static const char *
method_of(const struct exchange *exchange)
{
    bool resumed = exchange->message && exchange->stream;
    if (exchange->kind == EXCHANGE_GOODBYE)
        return "DELETE";
    return exchange->kind == EXCHANGE_NEWS || resumed ? "GET" : "POST";
}

static void
start_call(struct exchange *exchange)
{
    const char *method = method_of(exchange);
    bool posts = strcmp(method, "POST") == 0;
    struct headers headers = {0};
    make_headers(&headers, exchange);
    size_t len = 0;
    KG_AUTO_FREE char *body = posts ? rpc_dump(exchange->message, &len) : NULL;
    const struct http_call_spec spec = {
        .method = method,
        .url = exchange->bridge->url,
        .headers = (const char *const *)headers.lines,
        .body = body,
        .body_len = len,
        .timeout_ms = exchange->kind == EXCHANGE_GOODBYE ? GOODBYE_MS : 0,
        .on_head = on_head,
    };
    struct kg_error err;
    exchange->status = 0;
    exchange->call =
        http_call_start(exchange->bridge->client, &spec, on_data, exchange_on_done, exchange, &err);
    headers_fini(&headers);
    if (exchange->call)
        return;
    const struct http_call_result result = {.err = &err};
    exchange_on_done(&result, exchange);
}

void
exchange_start(struct mcp_bridge *bridge, enum exchange_kind kind, json_t *message)
{
    struct exchange *exchange = KG_NEW(struct exchange);
    exchange->bridge = bridge;
    exchange->kind = kind;
    exchange->message = message;
    exchange->again = loop_timer_new(bridge->loop, exchange_on_again, exchange);
    LIST_INSERT_HEAD(&bridge->exchanges, exchange, link);
    start_call(exchange);
}

void
exchange_free(struct exchange *exchange)
{
    if (exchange->call)
        http_call_cancel(exchange->call);
    LIST_REMOVE(exchange, link);
    loop_timer_free(exchange->again);
    event_reader_fini(&exchange->reader);
    buf_fini(&exchange->body);
    json_decref(exchange->message);
    free(exchange);
}

struct exchange *
exchange_find(struct mcp_bridge *bridge, const json_t *id)
{
    struct exchange *exchange;
    LIST_FOREACH(exchange, &bridge->exchanges, link) {
        if (exchange->kind == EXCHANGE_MESSAGE && id &&
            json_equal(json_object_get(exchange->message, "id"), id))
            return exchange;
    }
    return NULL;
}

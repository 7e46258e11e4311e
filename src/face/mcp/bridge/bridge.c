// SPDX-License-Identifier: Apache-2.0
// The bridge: takes the lines of the client, sends them in order, and keeps the MCP session.

#include <stdio.h>
#include <string.h>

#include "bridge_priv.h"
#include "mcp_message.h"

// ---- To the client --------------------------------------------------------------------------

void
bridge_pass(struct mcp_bridge *bridge, const char *text, size_t len)
{
    line_io_write(bridge->io, text, len);
}

void
bridge_fail(struct mcp_bridge *bridge, const json_t *request, const char *why)
{
    json_auto_t *answer = rpc_error(json_object_get(request, "id"), MCP_SERVER_ERROR, why, NULL);
    size_t len;
    KG_AUTO_FREE char *text = rpc_dump(answer, &len);
    bridge_pass(bridge, text, len);
}

// ---- The session ----------------------------------------------------------------------------

static void send_message(struct mcp_bridge *bridge, json_t *message);

static void
send_waiting(struct mcp_bridge *bridge)
{
    json_auto_t *waiting = bridge->waiting;
    bridge->waiting = json_array();
    for (size_t i = 0; i < json_array_size(waiting); i++)
        send_message(bridge, json_incref(json_array_get(waiting, i)));
}

void
bridge_opened(struct mcp_bridge *bridge, const json_t *answer)
{
    const char *version = rpc_string(json_object_get(answer, "result"), "protocolVersion");
    snprintf(bridge->version, sizeof bridge->version, "%s", version ? version : "");
    bridge->opening = false;
    bridge->opened_ms = clock_mono_ms();
    if (version && bridge->reopening)
        exchange_start(bridge, EXCHANGE_MESSAGE,
                       rpc_notification("notifications/initialized", NULL));
    bridge->reopening = false;
    if (version)
        exchange_start(bridge, EXCHANGE_NEWS, NULL);
    send_waiting(bridge);
}

bool
bridge_may_reopen(const struct mcp_bridge *bridge)
{
    return bridge->opening ||
           (bridge->initialize && clock_mono_ms() - bridge->opened_ms > RETRY_MS);
}

void
bridge_reopen(struct mcp_bridge *bridge, json_t *message)
{
    json_array_append_new(bridge->waiting, message);
    if (bridge->opening)
        return;
    bridge->opening = true;
    bridge->reopening = true;
    *bridge->session_id = '\0';
    struct exchange *exchange;
    LIST_FOREACH(exchange, &bridge->exchanges, link) {
        if (exchange->kind != EXCHANGE_NEWS)
            continue;
        exchange_free(exchange);
        break;
    }
    exchange_start(bridge, EXCHANGE_REOPEN, json_incref(bridge->initialize));
}

// ---- From the client ------------------------------------------------------------------------

// The bridge does not answer a cancelled request by itself. A request of 2026-07-28 is cancelled by
// the end of its connection: then the notification is not sent.
static bool
is_cancelled_here(struct mcp_bridge *bridge, const json_t *message)
{
    const char *method = rpc_string(message, "method");
    if (!method || strcmp(method, "notifications/cancelled") != 0)
        return false;
    const json_t *params = json_object_get(message, "params");
    struct exchange *exchange = exchange_find(bridge, json_object_get(params, "requestId"));
    if (!exchange)
        return false;
    exchange->answered = true;
    if (!mcp_claimed_version(exchange->message))
        return false;
    exchange_free(exchange);
    return true;
}

// Whether a request needs a session, and the last attempt to open one failed.
static bool
lacks_session(const struct mcp_bridge *bridge, const json_t *message)
{
    const char *method = rpc_string(message, "method");
    return method && strcmp(method, "initialize") != 0 && json_object_get(message, "id") &&
           !mcp_claimed_version(message) && !*bridge->version && bridge_may_reopen(bridge);
}

static void
send_message(struct mcp_bridge *bridge, json_t *message)
{
    const char *method = rpc_string(message, "method");
    if (bridge->opening) {
        json_array_append_new(bridge->waiting, message);
        return;
    }
    if (is_cancelled_here(bridge, message)) {
        json_decref(message);
        return;
    }
    if (lacks_session(bridge, message)) {
        bridge_reopen(bridge, message);
        return;
    }
    if (method && strcmp(method, "initialize") == 0) {
        bridge->opening = true;
        *bridge->session_id = '\0';
        json_decref(bridge->initialize);
        bridge->initialize = json_incref(message);
    }
    exchange_start(bridge, EXCHANGE_MESSAGE, message);
}

static void
bridge_on_line(const char *line, size_t len, void *arg)
{
    struct mcp_bridge *bridge = arg;
    struct kg_error err = {.message = "the line is too long"};
    json_t *message = line ? mcp_message_parse(line, len, &err) : NULL;
    if (message) {
        send_message(bridge, message);
        return;
    }
    json_auto_t *answer = rpc_error(NULL, MCP_PARSE_ERROR, err.message, NULL);
    size_t text_len;
    KG_AUTO_FREE char *text = rpc_dump(answer, &text_len);
    bridge_pass(bridge, text, text_len);
}

// ---- The end --------------------------------------------------------------------------------

static void
free_exchanges(struct mcp_bridge *bridge)
{
    struct exchange *exchange;
    while ((exchange = LIST_FIRST(&bridge->exchanges)))
        exchange_free(exchange);
}

void
bridge_goodbye_said(struct mcp_bridge *bridge)
{
    loop_timer_start(bridge->end_timer, 0);
}

static void
on_end_timer(void *arg)
{
    struct mcp_bridge *bridge = arg;
    bridge->on_end(bridge->arg);
}

static void
bridge_on_input_end(void *arg)
{
    struct mcp_bridge *bridge = arg;
    free_exchanges(bridge);
    if (*bridge->session_id)
        exchange_start(bridge, EXCHANGE_GOODBYE, NULL);
    else
        bridge_goodbye_said(bridge);
}

// ---- Life -----------------------------------------------------------------------------------

// The URL with a path and the profile.
static char *
make_url(const char *url, const char *profile, struct kg_error *err)
{
    const char *host = strncmp(url, "http://", 7) == 0    ? url + 7
                       : strncmp(url, "https://", 8) == 0 ? url + 8
                                                          : NULL;
    if (!host || !*host) {
        kg_error_set(err, KG_INVALID, 0, "setting connect: not an http:// or https:// URL: %s",
                     url);
        return NULL;
    }
    size_t end = strcspn(host, "/?");
    bool bare = !host[end] || (host[end] == '/' && !host[end + 1]);
    int len = bare ? (int)(host - url) + (int)end : (int)strlen(url);
    char separator = strchr(url, '?') ? '&' : '?';
    return profile
               ? kg_asprintf("%.*s%s%cprofile=%s", len, url, bare ? "/mcp" : "", separator, profile)
               : kg_asprintf("%.*s%s", len, url, bare ? "/mcp" : "");
}

struct mcp_bridge *
mcp_bridge_new(const struct mcp_bridge_settings *settings, loop_fn on_end, void *arg,
               struct kg_error *err)
{
    KG_AUTO_FREE char *url = make_url(settings->url, settings->profile, err);
    if (!url)
        return NULL;
    struct mcp_bridge *bridge = KG_NEW(struct mcp_bridge);
    bridge->io = line_io_new(settings->loop, settings->in, settings->out, bridge_on_line,
                             bridge_on_input_end, bridge, err);
    if (!bridge->io) {
        free(bridge);
        return NULL;
    }
    bridge->loop = settings->loop;
    bridge->client = settings->client;
    bridge->url = KG_STEAL(url);
    bridge->api_key = settings->api_key ? kg_strdup(settings->api_key) : NULL;
    bridge->waiting = json_array();
    bridge->end_timer = loop_timer_new(settings->loop, on_end_timer, bridge);
    bridge->on_end = on_end;
    bridge->arg = arg;
    return bridge;
}

void
mcp_bridge_free(struct mcp_bridge *bridge)
{
    if (!bridge)
        return;
    free_exchanges(bridge);
    loop_timer_free(bridge->end_timer);
    line_io_free(bridge->io);
    json_decref(bridge->waiting);
    json_decref(bridge->initialize);
    free(bridge->api_key);
    free(bridge->url);
    free(bridge);
}

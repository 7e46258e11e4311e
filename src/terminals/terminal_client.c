// SPDX-License-Identifier: Apache-2.0
// What a command shows, to one client; and the client's end.

#include <string.h>

#include "terminal_client_priv.h"

enum {
    RECHECK_MS = 5 * 1000,
    HOLD_MS = 2 * 1000,    // how long a slow client holds the command back
    MESSAGE_MAX = 1 << 20, // bytes of what a client says
    PROTOCOL_OK = 1000,    // RFC 6455, 7.4.1
    PROTOCOL_ERROR = 1011,
};

// ---- The end --------------------------------------------------------------------------------

void
terminal_client_free(void *arg)
{
    struct terminal_client *client = arg;
    TAILQ_REMOVE(&client->terminals->clients, client, link);
    terminal_input_fini(client);
    sandbox_call_cancel(client->starting);
    if (client->command)
        session_command_cancel(client->command);
    http_credential_free(client->key);
    loop_timer_free(client->recheck);
    loop_timer_free(client->slow);
    free(client);
}

void
terminal_client_close(struct terminal_client *client, int status, const char *reason)
{
    enum { REASON_MAX = 120 };
    KG_AUTO_FREE char *cut = kg_strdup(reason);
    cut[utf8_cut(cut, strlen(cut), REASON_MAX)] = '\0';
    websocket_close(client->ws, status, cut);
    terminal_client_free(client);
}

static void
client_on_end(void *arg)
{
    terminal_client_free(arg);
}

// ---- Output ---------------------------------------------------------------------------------

static void
client_pause(struct terminal_client *client, bool paused)
{
    if (client->paused == paused)
        return;
    client->paused = paused;
    session_command_pause(client->command, paused);
    if (paused)
        loop_timer_start(client->slow, HOLD_MS);
    else
        loop_timer_stop(client->slow);
}

static void
client_on_slow(void *arg)
{
    struct terminal_client *client = arg;
    client->skips = true;
    client_pause(client, false);
}

static void
client_on_drain(void *arg)
{
    struct terminal_client *client = arg;
    if (client->skipped > 0)
        client->dialect->write_missed(client->ws, client->skipped);
    client->skips = false;
    client->skipped = 0;
    if (client->command)
        client_pause(client, false);
}

static void
client_on_output(enum sandbox_stream stream, const char *data, size_t len, void *arg)
{
    struct terminal_client *client = arg;
    (void)stream;
    terminal_client_touch(client);
    if (client->skips) {
        client->skipped += (int64_t)len;
        return;
    }
    client->dialect->write_output(client->ws, &client->tail, data, len);
    if (websocket_backlog(client->ws) > WEBSOCKET_HIGH_WATERMARK)
        client_pause(client, true);
}

static void
client_on_missed(int64_t bytes, void *arg)
{
    struct terminal_client *client = arg;
    if (client->skips)
        client->skipped += bytes;
    else
        client->dialect->write_missed(client->ws, bytes);
}

static void
client_on_command_end(const struct sandbox_command_result *result, const struct kg_error *err,
                      void *arg)
{
    struct terminal_client *client = arg;
    client->command = NULL;
    if (!client->ws) {
        client->fail(client->request, err); // which frees the client
        return;
    }
    client->dialect->write_end(client->ws, result, err);
    terminal_client_close(client, err ? PROTOCOL_ERROR : PROTOCOL_OK, err ? err->message : "");
}

// ---- The begin ------------------------------------------------------------------------------

// The request is answered, and the client lives on by itself.
static void
client_on_started(const struct sandbox_command_start *start, void *arg)
{
    static const struct websocket_events events = {
        .on_message = terminal_on_message,
        .may_receive = terminal_may_receive,
        .on_drain = client_on_drain,
        .on_end = client_on_end,
    };
    struct terminal_client *client = arg;
    const char *subprotocol = client->dialect->subprotocol;
    if (subprotocol && !websocket_offers(client->request, subprotocol))
        subprotocol = NULL;
    http_request_disown(client->request);
    client->key = http_credential_new(client->request, terminal_on_key_checked, client);
    if (client->key)
        loop_timer_start(client->recheck, RECHECK_MS);
    client->ws = websocket_start(client->request, &(const struct websocket_settings){
                                                      .loop = client->terminals->loop,
                                                      .subprotocol = subprotocol,
                                                      .max_message_bytes = MESSAGE_MAX,
                                                      .events = &events,
                                                      .arg = client,
                                                  });
    client->dialect->write_start(client->ws, start);
}

struct terminal_client *
terminal_client_new(struct terminals *terminals, struct http_request *request,
                    const struct terminal_wish *wish)
{
    struct terminal_client *client = KG_NEW(struct terminal_client);
    client->terminals = terminals;
    client->request = request;
    client->dialect = wish->dialect;
    client->fail = wish->fail;
    client->session = wish->session;
    memcpy(client->id, wish->id, strlen(wish->id));
    client->recheck = loop_timer_new(terminals->loop, terminal_on_recheck, client);
    client->slow = loop_timer_new(terminals->loop, client_on_slow, client);
    terminal_input_init(client);
    TAILQ_INSERT_TAIL(&terminals->clients, client, link);
    http_request_own(request, client, terminal_client_free);
    return client;
}

void
terminal_client_join(struct terminal_client *client)
{
    static const struct sandbox_command_events events = {
        .on_started = client_on_started,
        .on_output = client_on_output,
        .on_end = client_on_command_end,
        .on_missed = client_on_missed,
    };
    struct kg_error err = {0};
    client->command =
        session_command_join(client->session, client->id, true, &events, client, &err);
    if (client->command)
        session_command_attend(client->command);
    else
        client->fail(client->request, &err);
}

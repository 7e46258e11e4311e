// SPDX-License-Identifier: Apache-2.0
// What a client types, to the command: in order, one call of the agent at a time.

#include <string.h>

#include "terminal_client_priv.h"

enum {
    RECHECK_MS = 5 * 1000,
    RETRY_MS = 50,
    TOUCH_MS = 1000,
    WAITING_HIGH = 64 << 10, // bytes: above it, the WebSocket is not read
    SENT_MAX = 256 << 10,    // in one call
};

static void pump(struct terminal_client *client);

void
terminal_client_touch(struct terminal_client *client)
{
    int64_t now = clock_mono_ms();
    if (now - client->touched_ms < TOUCH_MS)
        return;
    client->touched_ms = now;
    session_touch(client->session);
}

// ---- The key --------------------------------------------------------------------------------

static void
revoke(struct terminal_client *client)
{
    log_info("the key of a WebSocket is no longer valid", LOG_STR("terminal", client->id));
    terminal_client_close(client, WEBSOCKET_POLICY, "the API key is no longer valid");
}

// What was typed has waited for the answer.
void
terminal_on_key_checked(enum http_validity validity, void *arg)
{
    struct terminal_client *client = arg;
    if (validity == HTTP_INVALID)
        revoke(client);
    else if (validity == HTTP_VALID)
        pump(client);
}

void
terminal_on_recheck(void *arg)
{
    struct terminal_client *client = arg;
    loop_timer_start(client->recheck, RECHECK_MS);
    if (http_credential_check(client->key) == HTTP_INVALID)
        revoke(client);
    else
        pump(client); // if keys could not be checked before
}

// ---- To the command -------------------------------------------------------------------------

static void
count(struct terminal_client *client)
{
    struct terminal_input *input = &client->input;
    budget_hold_set(&input->hold, input->waiting.len + input->sending.len);
    if (client->ws)
        websocket_pause(client->ws, input->waiting.len > WAITING_HIGH);
}

static void
on_sent(const json_t *result, const struct kg_error *err, void *arg)
{
    struct terminal_client *client = arg;
    struct terminal_input *input = &client->input;
    (void)result;
    input->call = NULL;
    if (err && err->code == KG_SESSION_BUSY) {
        loop_timer_start(input->retry, RETRY_MS);
        return;
    }
    buf_fini(&input->sending); // taken, or the command has ended
    input->sending = (struct buf){0};
    pump(client);
}

// The next part of what waits becomes what is sent.
static void
take_part(struct terminal_input *input)
{
    if (input->waiting.len <= SENT_MAX) {
        input->sending = input->waiting;
        input->waiting = (struct buf){0};
        return;
    }
    buf_append(&input->sending, input->waiting.data, SENT_MAX);
    buf_consume(&input->waiting, SENT_MAX);
}

static void
send_part(void *arg)
{
    struct terminal_client *client = arg;
    struct terminal_input *input = &client->input;
    struct kg_error err = {0};
    struct sandbox *sandbox = session_commands_sandbox(client->session, &err);
    if (sandbox)
        input->call = sandbox_command_input(sandbox, client->id, input->sending.data,
                                            input->sending.len, on_sent, client, &err);
}

static void
on_resized(const json_t *result, const struct kg_error *err, void *arg)
{
    struct terminal_client *client = arg;
    (void)result;
    (void)err; // it has ended, or has no terminal
    client->input.resizing = NULL;
    pump(client);
}

static void
resize(struct terminal_client *client)
{
    struct terminal_input *input = &client->input;
    struct kg_error err = {0};
    struct sandbox *sandbox = session_commands_sandbox(client->session, &err);
    if (sandbox)
        input->resizing = sandbox_command_resize(sandbox, client->id, input->cols, input->rows,
                                                 on_resized, client, &err);
    input->cols = input->rows = 0;
}

// The client may be gone afterwards.
static void
pump(struct terminal_client *client)
{
    struct terminal_input *input = &client->input;
    bool has_input = input->waiting.len > 0 && !input->call && input->sending.len == 0;
    bool has_size = input->cols > 0 && !input->resizing;
    enum http_validity validity = HTTP_VALID;
    if (client->key && (has_input || has_size))
        validity = http_credential_check(client->key);
    if (validity == HTTP_INVALID) {
        revoke(client);
        return;
    }
    if (validity == HTTP_VALID && has_size)
        resize(client);
    if (validity == HTTP_VALID && has_input) {
        take_part(input);
        send_part(client);
    }
    count(client);
}

void
terminal_input_init(struct terminal_client *client)
{
    client->input.retry = loop_timer_new(client->terminals->loop, send_part, client);
    budget_hold_start(&client->input.hold, &client->terminals->input,
                      http_request_owner(client->request));
}

void
terminal_input_fini(struct terminal_client *client)
{
    struct terminal_input *input = &client->input;
    sandbox_call_cancel(input->call);
    sandbox_call_cancel(input->resizing);
    loop_timer_free(input->retry);
    buf_fini(&input->waiting);
    buf_fini(&input->sending);
    budget_hold_end(&input->hold);
}

// ---- From the client ------------------------------------------------------------------------

bool
terminal_may_receive(size_t len, void *arg)
{
    const struct terminal_client *client = arg;
    return budget_hold_has_room(&client->input.hold, len);
}

void
terminal_on_message(bool is_text, const void *data, size_t len, void *arg)
{
    struct terminal_client *client = arg;
    struct terminal_word word = {0};
    struct kg_error err = {0};
    if (client->dialect->read(is_text, data, len, &word, &err) < 0) {
        json_decref(word.owner);
        terminal_client_close(client, WEBSOCKET_BAD_DATA, err.message);
        return;
    }
    terminal_client_touch(client);
    if (word.kind == TERMINAL_INPUT && word.len > 0)
        buf_append(&client->input.waiting, word.data, word.len);
    if (word.kind == TERMINAL_RESIZE) {
        client->input.cols = word.cols;
        client->input.rows = word.rows;
    }
    json_decref(word.owner);
    pump(client);
}

// SPDX-License-Identifier: Apache-2.0
// The clients of a gateway, and how each begins: its command is started where it is not known.

#include "terminals.h"

#include <sodium.h>
#include <string.h>

#include "terminal_client_priv.h"

enum { INPUT_MAX = 32 << 20 };

struct terminals *
terminals_new(struct loop *loop)
{
    struct terminals *terminals = KG_NEW(struct terminals);
    terminals->loop = loop;
    TAILQ_INIT(&terminals->clients);
    budget_init(&terminals->input, "terminal_input_bytes", INPUT_MAX, INPUT_MAX / 2);
    return terminals;
}

void
terminals_disconnect(struct terminals *terminals)
{
    struct terminal_client *client, *next;
    for (client = TAILQ_FIRST(&terminals->clients); client; client = next) {
        next = TAILQ_NEXT(client, link);
        if (client->ws)
            terminal_client_close(client, WEBSOCKET_GOING_AWAY, "the gateway is shutting down");
    }
}

void
terminals_free(struct terminals *terminals)
{
    if (!terminals)
        return;
    terminals_disconnect(terminals);
    budget_fini(&terminals->input);
    free(terminals);
}

void
terminals_make_id(char ret[TERMINAL_ID_LEN + 1])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (int i = 0; i < TERMINAL_ID_LEN; i++)
        ret[i] = letters[randombytes_uniform(sizeof letters - 1)];
    ret[TERMINAL_ID_LEN] = '\0';
}

// One that is there already is joined as it is.
static void
on_command_started(const json_t *result, const struct kg_error *err, void *arg)
{
    struct terminal_client *client = arg;
    client->starting = NULL;
    if (result || err->code == KG_COMMAND_EXISTS)
        terminal_client_join(client);
    else
        client->fail(client->request, err);
}

void
terminals_open(struct terminals *terminals, struct http_request *request,
               const struct terminal_wish *wish)
{
    struct kg_error err = {0};
    char id[TERMINAL_ID_LEN + 1];
    struct terminal_wish named = *wish;
    terminals_make_id(id);
    if (!wish->id)
        named.id = id;
    struct terminal_client *client = terminal_client_new(terminals, request, &named);
    if (wish->only_joins) {
        terminal_client_join(client);
        return;
    }
    const struct sandbox_command_spec spec = {
        .id = client->id, .cwd = wish->cwd, .cols = wish->cols, .rows = wish->rows, .keep = true};
    client->starting =
        session_command_detach(wish->session, &spec, on_command_started, client, &err);
    if (!client->starting)
        client->fail(request, &err);
}

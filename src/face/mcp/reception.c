// SPDX-License-Identifier: Apache-2.0
// Parses and weighs the messages of clients, large ones on a worker.

#include "mcp_priv.h"

// ---- Freeing --------------------------------------------------------------------------------

static void
message_run_free(void *message)
{
    json_decref(message);
}

void
mcp_message_free(struct loop *loop, json_t *message, size_t weight)
{
    if (message && weight > MCP_LARGE_BYTES)
        loop_work_start(loop, LOOP_LANE_GATEWAY, message_run_free, NULL, message);
    else
        json_decref(message);
}

// ---- Parsing --------------------------------------------------------------------------------

void
mcp_received_fill(struct received *received, const char *data, size_t len)
{
    bool beyond;
    *received = (struct received){0};
    received->message = http_json_parse_within(data, len, MCP_VALUES_MAX, &beyond, &received->err);
    received->code = beyond ? MCP_INVALID_REQUEST : MCP_PARSE_ERROR;
    const json_t *message = received->message;
    if (!json_is_array(message))
        received->weight = received->weights[0] = message ? json_value_weight(message) : 0;
    for (size_t i = 0; json_is_array(message) && i < json_array_size(message); i++) {
        size_t weight = json_value_weight(json_array_get(message, i));
        received->weight += weight;
        if (i < MCP_BATCH_MAX)
            received->weights[i] = weight;
    }
}

void
mcp_received_fini(struct mcp *mcp, struct received *received)
{
    mcp_message_free(mcp->loop, KG_STEAL(received->message), received->weight);
}

// ---- On a worker ----------------------------------------------------------------------------

struct reception {
    struct loop *loop; // not for the worker
    struct loop_work *work;
    struct http_body *body; // the worker makes `text` of it; or NULL
    char *text;
    size_t len;
    struct received received;
    mcp_received_fn fn;
    void *arg;
};

static void
reception_run(void *arg)
{
    struct reception *reception = arg;
    if (reception->body)
        reception->text = http_body_text(KG_STEAL(reception->body), &reception->len);
    mcp_received_fill(&reception->received, reception->text, reception->len);
    free(KG_STEAL(reception->text));
}

static void
reception_discard(void *arg)
{
    struct reception *reception = arg;
    mcp_message_free(reception->loop, reception->received.message, reception->received.weight);
    http_body_free(reception->body);
    free(reception->text);
    free(reception);
}

static void
reception_done(void *arg)
{
    struct reception *reception = arg;
    reception->fn(&reception->received, reception->arg);
    reception_discard(reception);
}

static struct reception *
reception_new(const struct mcp *mcp, mcp_received_fn fn, void *arg)
{
    struct reception *reception = KG_NEW(struct reception);
    reception->loop = mcp->loop;
    reception->fn = fn;
    reception->arg = arg;
    return reception;
}

static struct reception *
reception_start(struct reception *reception, uint64_t lane)
{
    reception->work =
        loop_work_start(reception->loop, lane, reception_run, reception_done, reception);
    return reception;
}

struct reception *
mcp_receive_start(struct mcp *mcp, char *text, size_t len, mcp_received_fn fn, void *arg)
{
    struct reception *reception = reception_new(mcp, fn, arg);
    reception->text = text;
    reception->len = len;
    return reception_start(reception, LOOP_LANE_GATEWAY);
}

struct reception *
mcp_receive_body_start(struct mcp *mcp, const char *owner, struct http_body *body,
                       mcp_received_fn fn, void *arg)
{
    struct reception *reception = reception_new(mcp, fn, arg);
    reception->body = body;
    return reception_start(reception, loop_lane_of(owner));
}

void
mcp_receive_cancel(struct reception *reception)
{
    if (reception)
        loop_work_cancel(reception->work, reception_discard);
}

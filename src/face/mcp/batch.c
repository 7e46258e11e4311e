// SPDX-License-Identifier: Apache-2.0
// Batches (only in 2025-03-26): the answers of their requests are sent as one.

#include <string.h>

#include "mcp_priv.h"

const char *
mcp_batch_check(const json_t *messages, size_t *ret_requests)
{
    size_t n = json_array_size(messages);
    *ret_requests = 0;
    if (n == 0 || n > MCP_BATCH_MAX)
        return "a batch must have 1 to 64 messages";
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        const char *why;
        enum message_kind kind = rpc_kind(message, &why);
        if (kind == MESSAGE_INVALID)
            return why;
        if (kind != MESSAGE_REQUEST)
            continue;
        ++*ret_requests;
        if (strcmp(rpc_string(message, "method"), "initialize") == 0)
            return "initialize must not be in a batch";
    }
    return NULL;
}

// The outlet of the requests in a batch: gathers their answers.
struct batch {
    struct outlet base;
    struct mcp *mcp;
    struct budget_hold held; // of mcp->answers: those that are gathered
    struct outlet *parent;
    size_t expected;    // answers
    struct buf answers; // a JSON array without its end
};

static void
batch_send(struct outlet *outlet, json_t *message, bool minor)
{
    struct batch *batch = (struct batch *)outlet;
    batch->parent->ops->send(batch->parent, message, minor);
}

static void
batch_answer(struct outlet *outlet, struct payload *payload, int http_status)
{
    (void)http_status;
    struct batch *batch = (struct batch *)outlet;
    if (payload) {
        buf_append(&batch->answers, batch->answers.len ? "," : "[", 1);
        buf_append(&batch->answers, payload->text, payload->len);
        budget_hold_set(&batch->held, batch->held.held + payload->len);
        payload_unref(payload);
    }
    if (--batch->expected > 0)
        return;
    budget_hold_set(&batch->held, 0);
    struct payload *all = NULL;
    if (batch->answers.len > 0) {
        buf_append(&batch->answers, "]", 1);
        size_t len = batch->answers.len;
        all = payload_take(buf_take(&batch->answers), len);
        payload_count(all, batch->mcp, batch->held.share->name);
    }
    batch->parent->ops->answer(batch->parent, all, 200);
    budget_hold_end(&batch->held);
    free(batch);
}

// Small answers, such as errors, always fit.
static bool
batch_has_room(const struct outlet *outlet, size_t len)
{
    const struct batch *batch = (const struct batch *)outlet;
    return len <= MCP_LARGE_BYTES || batch->answers.len + len <= MCP_BATCH_ANSWERS_MAX;
}

static bool
batch_can_send(const struct outlet *outlet)
{
    const struct batch *batch = (const struct batch *)outlet;
    return batch->parent->ops->can_send(batch->parent);
}

static const struct outlet_ops batch_ops = {
    .send = batch_send,
    .answer = batch_answer,
    .has_room = batch_has_room,
    .can_send = batch_can_send,
};

static struct outlet *
batch_new(const struct origin *origin, size_t expected)
{
    struct batch *batch = KG_NEW(struct batch);
    batch->base.ops = &batch_ops;
    batch->mcp = origin->mcp;
    budget_hold_start(&batch->held, &origin->mcp->answers, origin->owner);
    batch->parent = origin->outlet;
    batch->expected = expected;
    return &batch->base;
}

// The transport has counted the batch as one request against the owner's rate; each further request
// in it counts, too.
static void
dispatch_one(const struct origin *origin, enum mcp_revision revision, json_t *message, bool first)
{
    const struct mcp *mcp = origin->mcp;
    struct kg_error err = {0};
    if (first || !mcp->admit || mcp->admit(origin->owner, mcp->admit_arg, &err) == 0)
        mcp_dispatch_request(origin, revision, message);
    else
        mcp_refuse(origin, message, 200, MCP_SERVER_ERROR, err.message,
                   json_pack("{s:s}", "code", kg_code_info(err.code)->name));
}

void
mcp_dispatch_batch(const struct origin *origin, enum mcp_revision revision, json_t *messages)
{
    struct origin each = *origin;
    bool first = true;
    size_t n_requests = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        n_requests += rpc_is_request(json_array_get(messages, i));
    if (n_requests > 0)
        each.outlet = batch_new(origin, n_requests);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_incref(json_array_get(messages, i));
        json_array_set_new(messages, i, json_null()); // it may be freed on a worker
        each.weights = origin->weights ? origin->weights + i : NULL;
        if (rpc_is_request(message)) {
            dispatch_one(&each, revision, message, first);
            first = false;
        } else {
            mcp_dispatch_other(&each, message);
        }
    }
    json_decref(messages);
}

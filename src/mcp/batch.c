// SPDX-License-Identifier: Apache-2.0
// Batches, which one revision has: their answers are sent as one.

#include <string.h>

#include "mcp_priv.h"

const char *
mcp_batch_check(const json_t *messages, size_t *ret_requests)
{
    size_t n = json_array_size(messages);
    *ret_requests = 0;
    if (n == 0 || n > MCP_BATCH_MAX)
        return "a batch has 1 to 64 messages";
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
            return "initialize stands alone, not in a batch";
    }
    return NULL;
}

// Collects the answers.
struct batch {
    struct outlet base;
    struct outlet *parent;
    size_t expected;
    json_t *answers;
};

static void
batch_send(struct outlet *outlet, json_t *message, bool minor)
{
    struct batch *batch = (struct batch *)outlet;
    batch->parent->ops->send(batch->parent, message, minor);
}

static void
batch_answer(struct outlet *outlet, json_t *message, int http_status)
{
    (void)http_status;
    struct batch *batch = (struct batch *)outlet;
    if (message)
        json_array_append_new(batch->answers, message);
    if (--batch->expected > 0)
        return;
    bool any = json_array_size(batch->answers) > 0;
    if (!any)
        json_decref(batch->answers);
    batch->parent->ops->answer(batch->parent, any ? batch->answers : NULL, 200);
    free(batch);
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
    .can_send = batch_can_send,
};

static struct outlet *
batch_new(struct outlet *parent, size_t expected)
{
    struct batch *batch = KG_NEW(struct batch);
    batch->base.ops = &batch_ops;
    batch->parent = parent;
    batch->expected = expected;
    batch->answers = json_array();
    return &batch->base;
}

// A batch is one request to the transport, and as many as stand in it to its owner's rate.
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
mcp_dispatch_batch(const struct origin *origin, enum mcp_revision revision, json_t *messages,
                   size_t n_requests)
{
    struct origin each = *origin;
    bool first = true;
    if (n_requests > 0)
        each.outlet = batch_new(origin->outlet, n_requests);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_incref(json_array_get(messages, i));
        const char *why;
        if (rpc_kind(message, &why) == MESSAGE_REQUEST) {
            dispatch_one(&each, revision, message, first);
            first = false;
        } else {
            mcp_dispatch_other(&each, message);
        }
    }
    json_decref(messages);
}

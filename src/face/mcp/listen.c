// SPDX-License-Identifier: Apache-2.0
// subscriptions/listen (2026-07-28). No provider reports changes, so a stream stays open without
// any.

#include "mcp_priv.h"

#define SUBSCRIPTION_ID MCP_META "subscriptionId"

// The client has left or cancelled.
static void
on_listener_gone(void *arg)
{
    struct mcp_call *call = arg;
    mcp_call_answer(call, NULL, 200);
}

void
mcp_end_listener(struct mcp_call *call)
{
    mcp_call_answer_result(call, json_pack("{s:{s:O}}", "_meta", SUBSCRIPTION_ID, call->id));
}

void
method_listen(struct mcp_call *call)
{
    if (!json_is_object(json_object_get(call->params, "notifications"))) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "notifications must be an object");
        return;
    }
    if (!call->outlet->ops->can_send(call->outlet)) {
        mcp_call_fail(call, MCP_INVALID_REQUEST, NULL,
                      "a client of subscriptions/listen must accept text/event-stream");
        return;
    }
    mcp_call_shrink(call);
    call->listens = true;
    LIST_INSERT_HEAD(&call->mcp->listeners, call, listening);
    mcp_call_on_cancel(call, on_listener_gone, call);
    json_t *params =
        json_pack("{s:{}, s:{s:O}}", "notifications", "_meta", SUBSCRIPTION_ID, call->id);
    call->outlet->ops->send(
        call->outlet, rpc_notification("notifications/subscriptions/acknowledged", params), false);
}

// SPDX-License-Identifier: Apache-2.0
// tools/call.

#include "mcp_priv.h"

static mcp_take_fn
pick_call_tool(const struct mcp_provider *provider)
{
    return provider->call_tool;
}

void
method_call_tool(struct mcp_call *call)
{
    if (call->mcp->draining) {
        mcp_call_answer(call,
                        rpc_error(call->id, MCP_SERVER_ERROR, "the gateway is shutting down",
                                  json_pack("{s:s}", "code", kg_code_info(KG_DRAINING)->name)),
                        kg_code_info(KG_DRAINING)->http_status);
        return;
    }
    if (!target_read(call, "name"))
        return;
    if (!target_offer(call, pick_call_tool))
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "Unknown tool: %.200s", call->name);
}

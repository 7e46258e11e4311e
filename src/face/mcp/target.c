// SPDX-License-Identifier: Apache-2.0
// Requests for something that a provider has by name: prompts/get, resources/read,
// completion/complete. For tools/call see call_tool.c.

#include <string.h>

#include "mcp_priv.h"

bool
target_read(struct mcp_call *call, const char *key)
{
    const char *name = rpc_string(call->params, key);
    const json_t *arguments = json_object_get(call->params, "arguments");
    if (!name || strlen(name) > MCP_NAME_MAX) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "%s must be a string of at most %d bytes",
                      key, MCP_NAME_MAX);
        return false;
    }
    if (arguments && !json_is_object(arguments) && !json_is_null(arguments)) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "arguments must be an object");
        return false;
    }
    call->name = name;
    if (json_is_object(arguments))
        call->arguments = arguments;
    return true;
}

bool
target_offer(struct mcp_call *call, mcp_take_fn (*pick)(const struct mcp_provider *provider))
{
    // A provider that takes the call may free it.
    struct mcp *mcp = call->mcp;
    for (size_t i = 0; i < mcp->n_providers; i++) {
        mcp_take_fn take = pick(mcp->providers[i].provider);
        if (take && take(call, mcp->providers[i].arg))
            return true;
    }
    return false;
}

static mcp_take_fn
pick_get_prompt(const struct mcp_provider *provider)
{
    return provider->get_prompt;
}

static mcp_take_fn
pick_read_resource(const struct mcp_provider *provider)
{
    return provider->read_resource;
}

static mcp_take_fn
pick_complete(const struct mcp_provider *provider)
{
    return provider->complete;
}

void
method_get_prompt(struct mcp_call *call)
{
    if (!target_read(call, "name"))
        return;
    if (!target_offer(call, pick_get_prompt))
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "Unknown prompt: %.200s", call->name);
}

void
method_read_resource(struct mcp_call *call)
{
    if (!target_read(call, "uri"))
        return;
    if (!target_offer(call, pick_read_resource))
        mcp_call_fail(call, revision_get(call->revision)->not_found,
                      json_pack("{s:s}", "uri", call->name), "Resource not found");
}

void
method_complete(struct mcp_call *call)
{
    const json_t *ref = json_object_get(call->params, "ref");
    const char *type = rpc_string(ref, "type");
    bool prompt = type && strcmp(type, "ref/prompt") == 0;
    bool resource = type && strcmp(type, "ref/resource") == 0;
    const char *name = rpc_string(ref, prompt ? "name" : "uri");
    const json_t *argument = json_object_get(call->params, "argument");
    if (!(prompt || resource) || !name || strlen(name) > MCP_NAME_MAX ||
        !rpc_string(argument, "name") || !rpc_string(argument, "value")) {
        mcp_call_fail(
            call, MCP_INVALID_PARAMS, NULL,
            "ref must be {type: ref/prompt, name} or {type: ref/resource, uri}, and argument "
            "{name, value}");
        return;
    }
    call->name = name;
    const json_t *filled = json_object_get(json_object_get(call->params, "context"), "arguments");
    if (json_is_object(filled))
        call->arguments = filled;
    if (!target_offer(call, pick_complete))
        mcp_call_answer_result(call, mcp_completion(json_array()));
}

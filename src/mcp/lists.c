// SPDX-License-Identifier: Apache-2.0
// Methods that providers answer: their lists joined, their tools called, their resources read.

#include <string.h>

#include "mcp_priv.h"

// ---- Lists ----------------------------------------------------------------------------------

// No list here has a second page.
static bool
cursor_is_refused(struct mcp_call *call)
{
    const json_t *cursor = json_object_get(call->params, "cursor");
    if (!cursor || json_is_null(cursor))
        return false;
    mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "unknown cursor");
    return true;
}

static json_t *
part_of(const struct provider_entry *entry, const char *profile, enum mcp_list list, bool templates)
{
    const struct mcp_provider *provider = entry->provider;
    json_t *(*lister)(const char *, void *) = templates ? provider->list_resource_templates
                                              : list == MCP_LIST_TOOLS   ? provider->list_tools
                                              : list == MCP_LIST_PROMPTS ? provider->list_prompts
                                                                         : NULL;
    return lister ? lister(profile, entry->arg) : NULL;
}

json_t *
lists_join(struct mcp *mcp, const char *profile, enum mcp_list list, bool templates)
{
    json_t *joined = json_array();
    for (size_t i = 0; i < mcp->n_providers; i++) {
        json_auto_t *part = part_of(&mcp->providers[i], profile, list, templates);
        if (part)
            json_array_extend(joined, part);
    }
    return joined;
}

// `shared`: its elements are a provider's.
static void
answer_list(struct mcp_call *call, const char *key, json_t *list, bool shared)
{
    revision_strip(call->revision, call->method->name, list);
    call->shares_answer = shared;
    mcp_call_answer_result(call, json_pack("{s:o}", key, list));
}

void
method_list_tools(struct mcp_call *call)
{
    if (!cursor_is_refused(call))
        answer_list(call, "tools", lists_join(call->mcp, call->profile, MCP_LIST_TOOLS, false),
                    true);
}

void
method_list_prompts(struct mcp_call *call)
{
    if (!cursor_is_refused(call))
        answer_list(call, "prompts", lists_join(call->mcp, call->profile, MCP_LIST_PROMPTS, false),
                    true);
}

void
method_list_templates(struct mcp_call *call)
{
    if (!cursor_is_refused(call))
        answer_list(call, "resourceTemplates",
                    lists_join(call->mcp, call->profile, MCP_LIST_RESOURCES, true), true);
}

// Asks the next provider that lists resources; each answers in its own time.
static void
ask_next_for_resources(struct mcp_call *call)
{
    while (!call->cancelled && call->provider < call->mcp->n_providers) {
        const struct provider_entry *entry = &call->mcp->providers[call->provider++];
        if (entry->provider->list_resources) {
            entry->provider->list_resources(call, entry->arg);
            return;
        }
    }
    json_t *joined = KG_STEAL(call->joined);
    answer_list(call, "resources", joined, false);
}

void
lists_resources_part(struct mcp_call *call, json_t *result)
{
    json_array_extend(call->joined, json_object_get(result, "resources"));
    json_decref(result);
    call->on_cancel = NULL;
    ask_next_for_resources(call);
}

void
method_list_resources(struct mcp_call *call)
{
    if (cursor_is_refused(call))
        return;
    call->joined = json_array();
    ask_next_for_resources(call);
}

// ---- Calls ----------------------------------------------------------------------------------

// Sets the name and the arguments of the call; false: answered.
static bool
read_target(struct mcp_call *call, const char *key)
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

// The state that a retried call brings back; false: answered.
static bool
read_state(struct mcp_call *call)
{
    const json_t *state = json_object_get(call->params, "requestState");
    if (!state || !revision_get(call->revision)->stateless)
        return true;
    if (json_is_string(state))
        call->state = mcp_unseal_state(call->mcp, call, json_string_value(state));
    if (call->state)
        return true;
    mcp_call_fail(call, MCP_INVALID_PARAMS, NULL,
                  "requestState is not what this server gave for this request, or too old");
    return false;
}

typedef bool (*take_fn)(struct mcp_call *call, void *arg);

static bool
somebody_takes(struct mcp_call *call, take_fn (*pick)(const struct mcp_provider *provider))
{
    // The call may be gone once it is taken.
    struct mcp *mcp = call->mcp;
    for (size_t i = 0; i < mcp->n_providers; i++) {
        take_fn take = pick(mcp->providers[i].provider);
        if (take && take(call, mcp->providers[i].arg))
            return true;
    }
    return false;
}

static take_fn
pick_call_tool(const struct mcp_provider *provider)
{
    return provider->call_tool;
}

static take_fn
pick_get_prompt(const struct mcp_provider *provider)
{
    return provider->get_prompt;
}

static take_fn
pick_read_resource(const struct mcp_provider *provider)
{
    return provider->read_resource;
}

static take_fn
pick_complete(const struct mcp_provider *provider)
{
    return provider->complete;
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
    if (!read_target(call, "name") || !read_state(call))
        return;
    if (!somebody_takes(call, pick_call_tool))
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "Unknown tool: %.200s", call->name);
}

void
method_get_prompt(struct mcp_call *call)
{
    if (!read_target(call, "name") || !read_state(call))
        return;
    if (!somebody_takes(call, pick_get_prompt))
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "Unknown prompt: %.200s", call->name);
}

void
method_read_resource(struct mcp_call *call)
{
    if (!read_target(call, "uri") || !read_state(call))
        return;
    if (!somebody_takes(call, pick_read_resource))
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
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL,
                      "completion needs ref {type: ref/prompt, name} or {type: ref/resource, uri}, "
                      "and argument {name, value}");
        return;
    }
    call->name = name;
    const json_t *filled = json_object_get(json_object_get(call->params, "context"), "arguments");
    if (json_is_object(filled))
        call->arguments = filled;
    if (!somebody_takes(call, pick_complete))
        mcp_call_answer_result(call, mcp_completion(json_array()));
}

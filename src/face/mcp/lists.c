// SPDX-License-Identifier: Apache-2.0
// Joins the lists of all providers: tools, prompts, resources, resource templates.

#include <string.h>

#include "mcp_priv.h"

// No list has a second page.
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
part_of(const struct provider_entry *entry, const char *profile, enum mcp_list list)
{
    const struct mcp_provider *provider = entry->provider;
    json_t *(*const listers[])(const char *, void *) = {
        [MCP_LIST_TOOLS] = provider->list_tools,
        [MCP_LIST_PROMPTS] = provider->list_prompts,
        [MCP_LIST_TEMPLATES] = provider->list_resource_templates,
    };
    return listers[list] ? listers[list](profile, entry->arg) : NULL;
}

json_t *
lists_join(struct mcp *mcp, const char *profile, enum mcp_list list)
{
    json_t *joined = json_array();
    for (size_t i = 0; i < mcp->n_providers; i++) {
        json_auto_t *part = part_of(&mcp->providers[i], profile, list);
        if (part)
            json_array_extend(joined, part);
    }
    return joined;
}

// `shared`: a provider has references to the elements.
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
        answer_list(call, "tools", lists_join(call->mcp, call->profile, MCP_LIST_TOOLS), true);
}

void
method_list_prompts(struct mcp_call *call)
{
    if (!cursor_is_refused(call))
        answer_list(call, "prompts", lists_join(call->mcp, call->profile, MCP_LIST_PROMPTS), true);
}

void
method_list_templates(struct mcp_call *call)
{
    if (!cursor_is_refused(call))
        answer_list(call, "resourceTemplates",
                    lists_join(call->mcp, call->profile, MCP_LIST_TEMPLATES), true);
}

static void take_resources(struct mcp_call *call, json_t *result);

// Asks the next provider that lists resources. It may answer later.
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

// A provider has answered.
static void
take_resources(struct mcp_call *call, json_t *result)
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
    call->on_result = take_resources;
    ask_next_for_resources(call);
}

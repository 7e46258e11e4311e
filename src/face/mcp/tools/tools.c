// SPDX-License-Identifier: Apache-2.0
// The provider: finds the profile and the tool of each call.

#include <string.h>

#include "tools_priv.h"

// The default one first.
static const struct profile *const profiles[] = {&kernelgate_profile, &code_sandbox_profile,
                                                 &mcp_code_sandbox_profile, &mcp_sandbox_profile,
                                                 &sandbox_mcp_profile};

const char *const mcp_tools_profiles[] = {"code-sandbox", "mcp-code-sandbox", "mcp-sandbox",
                                          "sandbox-mcp", NULL};

static const struct profile *
find_profile(const char *name)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(profiles); i++) {
        if (strcmp(profiles[i]->name, name) == 0)
            return profiles[i];
    }
    return profiles[0];
}

static bool
is_offered(const struct mcp_tools *tools, const struct tool *tool)
{
    return !tool->language || kernelspecs_find(tools->settings.face->specs, tool->language, NULL);
}

static const struct tool *
find_tool(const struct mcp_tools *tools, const struct profile *profile, const char *name)
{
    for (const struct tool *tool = profile->tools; tool->name; tool++) {
        if (strcmp(tool->name, name) == 0 && is_offered(tools, tool))
            return tool;
    }
    return NULL;
}

// ---- The provider ---------------------------------------------------------------------------

static char *
instructions(const char *profile, void *arg)
{
    return fill_in(arg, find_profile(profile)->instructions);
}

static json_t *
list_tools(const char *profile, void *arg)
{
    const struct mcp_tools *tools = arg;
    return json_incref(json_object_get(tools->lists, find_profile(profile)->name));
}

static bool
call_tool(struct mcp_call *call, void *arg)
{
    struct mcp_tools *tools = arg;
    const struct profile *profile = find_profile(mcp_call_profile(call));
    const struct tool *tool = find_tool(tools, profile, mcp_call_name(call));
    if (!tool)
        return false;
    struct job *job = job_new(tools, call, profile->error_result);
    struct kg_error err = {0};
    if (tool_check(tools, tool, (json_t *)(uintptr_t)job->args, &err) < 0)
        job_fail(job, &err);
    else
        tool->run(job);
    return true;
}

// ---- Resources, prompts and completions of profiles ------------------------------------------

static const struct mcp_provider *
more_of(const char *profile)
{
    return find_profile(profile)->more;
}

static json_t *
list_prompts(const char *profile, void *arg)
{
    const struct mcp_provider *more = more_of(profile);
    return more->list_prompts ? more->list_prompts(profile, arg) : NULL;
}

static bool
get_prompt(struct mcp_call *call, void *arg)
{
    const struct mcp_provider *more = more_of(mcp_call_profile(call));
    return more->get_prompt && more->get_prompt(call, arg);
}

static json_t *
list_resource_templates(const char *profile, void *arg)
{
    const struct mcp_provider *more = more_of(profile);
    return more->list_resource_templates ? more->list_resource_templates(profile, arg) : NULL;
}

static void
list_resources(struct mcp_call *call, void *arg)
{
    const struct mcp_provider *more = more_of(mcp_call_profile(call));
    if (more->list_resources)
        more->list_resources(call, arg);
    else
        mcp_call_finish(call, json_pack("{s:[]}", "resources"));
}

static bool
read_resource(struct mcp_call *call, void *arg)
{
    const struct mcp_provider *more = more_of(mcp_call_profile(call));
    return more->read_resource && more->read_resource(call, arg);
}

static bool
complete(struct mcp_call *call, void *arg)
{
    const struct mcp_provider *more = more_of(mcp_call_profile(call));
    return more->complete && more->complete(call, arg);
}

// ---- Several gateways -----------------------------------------------------------------------

static bool
lists_sessions(const char *name)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(profiles); i++) {
        for (const struct tool *tool = profiles[i]->tools; tool->name; tool++) {
            if (strcmp(tool->name, name) == 0 && (tool->hints & TOOL_LISTS_SESSIONS))
                return true;
        }
    }
    return false;
}

// A file is where its session is, and an output where its execution ran.
static void
concern_of_uri(const char *uri, struct http_concern *ret, char **ret_name)
{
    KG_AUTO_FREE char *path = NULL;
    const char *output = output_uri_id(uri);
    if (file_uri_parse(uri, ret_name, &path)) {
        ret->kind = HTTP_CONCERNS_SESSION;
    } else if (output) {
        ret->kind = HTTP_CONCERNS_MADE;
        *ret_name = kg_strdup(output);
    }
}

static void
concern(const char *method, const char *params, size_t len, struct http_concern *ret,
        char **ret_name, void *arg)
{
    const struct mcp_tools *tools = arg;
    if (strcmp(method, "tools/call") == 0) {
        size_t args_len = 0;
        const char *args = json_member(params, len, "arguments", &args_len);
        KG_AUTO_FREE char *name = mcp_member_string(params, len, "name");
        KG_AUTO_FREE char *path = mcp_member_string(args, args_len, "path");
        if (path)
            concern_of_uri(path, ret, ret_name);
        if (name && strcmp(name, "continue_execution") == 0) {
            ret->kind = HTTP_CONCERNS_MADE;
            *ret_name = mcp_member_string(args, args_len, "execution_id");
        }
        if (name && lists_sessions(name)) {
            ret->kind = HTTP_CONCERNS_ALL;
            ret->target = tools->settings.sessions_target;
        }
    } else if (strcmp(method, "resources/read") == 0) {
        KG_AUTO_FREE char *uri = mcp_member_string(params, len, "uri");
        if (uri)
            concern_of_uri(uri, ret, ret_name);
    }
}

static const char *const session_arguments[] = {"session_id", "sandbox_id", NULL};
static const struct mcp_provider provider = {
    .instructions = instructions,
    .list_tools = list_tools,
    .call_tool = call_tool,
    .list_prompts = list_prompts,
    .get_prompt = get_prompt,
    .list_resource_templates = list_resource_templates,
    .list_resources = list_resources,
    .read_resource = read_resource,
    .complete = complete,
    .session_arguments = session_arguments,
    .concern = concern,
};

// ---- Its life -------------------------------------------------------------------------------

static json_t *
describe_tools(const struct mcp_tools *tools, const struct profile *profile)
{
    json_t *list = json_array();
    for (const struct tool *tool = profile->tools; tool->name; tool++) {
        if (is_offered(tools, tool))
            json_array_append_new(list, tool_describe(tools, tool));
    }
    return list;
}

struct mcp_tools *
mcp_tools_new(const struct mcp_tools_settings *settings)
{
    struct mcp_tools *tools = KG_NEW(struct mcp_tools);
    tools->settings = *settings;
    TAILQ_INIT(&tools->jobs);
    TAILQ_INIT(&tools->made);
    outputs_init(tools);
    tools->names = json_object();
    tools->lists = json_object();
    for (size_t i = 0; i < KG_ARRAY_LEN(profiles); i++)
        json_object_set_new(tools->lists, profiles[i]->name, describe_tools(tools, profiles[i]));
    return tools;
}

void
mcp_tools_free(struct mcp_tools *tools)
{
    if (!tools)
        return;
    while (!TAILQ_EMPTY(&tools->jobs))
        job_free(TAILQ_FIRST(&tools->jobs));
    made_sessions_fini(tools);
    outputs_fini(tools);
    json_decref(tools->lists);
    json_decref(tools->names);
    free(tools);
}

void
mcp_tools_register(struct mcp_tools *tools, struct mcp *mcp)
{
    mcp_add_provider(mcp, &provider, tools);
}

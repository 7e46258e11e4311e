// SPDX-License-Identifier: Apache-2.0
// Methods that the core answers: initialize, discover, ping, log level.

#include <string.h>

#include "mcp_priv.h"

// ---- Capabilities ---------------------------------------------------------------------------

struct offered {
    bool tools;
    bool prompts;
    bool resources;
    bool completions;
};

static struct offered
what_is_offered(const struct mcp *mcp)
{
    struct offered offered = {0};
    for (size_t i = 0; i < mcp->n_providers; i++) {
        const struct mcp_provider *provider = mcp->providers[i].provider;
        offered.tools |= provider->list_tools != NULL;
        offered.prompts |= provider->list_prompts != NULL;
        offered.resources |= provider->list_resources || provider->list_resource_templates;
        offered.completions |= provider->complete != NULL;
    }
    return offered;
}

static void
add_capability(json_t *capabilities, const char *name, bool offered)
{
    if (offered)
        json_object_set_new(capabilities, name, json_object());
}

static json_t *
make_capabilities(const struct mcp *mcp, enum mcp_revision revision)
{
    struct offered offered = what_is_offered(mcp);
    json_t *capabilities = json_pack("{s:{}}", "logging");
    add_capability(capabilities, "tools", offered.tools);
    add_capability(capabilities, "prompts", offered.prompts);
    add_capability(capabilities, "resources", offered.resources);
    add_capability(capabilities, "completions",
                   offered.completions && revision_get(revision)->completions);
    return capabilities;
}

static json_t *
make_instructions(const struct mcp *mcp, const char *profile)
{
    KG_AUTO_BUF text = {0};
    for (size_t i = 0; i < mcp->n_providers; i++) {
        const struct provider_entry *entry = &mcp->providers[i];
        KG_AUTO_FREE char *part = entry->provider->instructions
                                      ? entry->provider->instructions(profile, entry->arg)
                                      : NULL;
        if (part)
            buf_printf(&text, "%s%s", text.len ? "\n\n" : "", part);
    }
    return text.len ? json_stringn(text.data, text.len) : NULL;
}

// ---- Simple methods -------------------------------------------------------------------------

void
method_initialize(struct mcp_call *call)
{
    struct mcp_session *session = call->session;
    const char *requested = rpc_string(call->params, "protocolVersion");
    json_t *capabilities = json_object_get(call->params, "capabilities");
    if (!requested || (capabilities && !json_is_object(capabilities))) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL,
                      "protocolVersion must be a string, and capabilities an object");
        return;
    }
    int revision = revision_find(requested);
    bool known = revision >= 0 && !revision_get((enum mcp_revision)revision)->stateless;
    session->revision = known ? (enum mcp_revision)revision : MCP_2025_11_25;
    session->initialized = true;
    json_t *result =
        json_pack("{s:s, s:o, s:o, s:o*}", "protocolVersion", revision_get(session->revision)->name,
                  "capabilities", make_capabilities(call->mcp, session->revision), "serverInfo",
                  mcp_server_info(), "instructions", make_instructions(call->mcp, call->profile));
    if (session->revision < MCP_2025_06_18)
        json_object_del(json_object_get(result, "serverInfo"), "title");
    mcp_call_answer_result(call, result);
}

void
method_discover(struct mcp_call *call)
{
    mcp_call_answer_result(call,
                           json_pack("{s:[s], s:o, s:o*}", "supportedVersions",
                                     revision_get(MCP_2026_07_28)->name, "capabilities",
                                     make_capabilities(call->mcp, call->revision), "instructions",
                                     make_instructions(call->mcp, call->profile)));
}

void
method_ping(struct mcp_call *call)
{
    mcp_call_answer_result(call, json_object());
}

void
method_set_level(struct mcp_call *call)
{
    int level = mcp_log_level_find(rpc_string(call->params, "level"));
    if (level < 0) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL,
                      "level must be debug, info, notice, warning, error, critical, alert or "
                      "emergency");
        return;
    }
    call->session->log_level = (enum mcp_log_level)level;
    mcp_call_answer_result(call, json_object());
}

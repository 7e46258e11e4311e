// SPDX-License-Identifier: Apache-2.0
// Methods that the core answers: initialize, discover, ping, log level, subscriptions.

#include <string.h>

#include "mcp_priv.h"

// ---- Capabilities ---------------------------------------------------------------------------

struct offered {
    bool tools;
    bool prompts;
    bool resources;
    bool subscribe;
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
        offered.subscribe |= provider->can_subscribe != NULL;
        offered.completions |= provider->complete != NULL;
    }
    return offered;
}

unsigned
mcp_changing_lists(const struct mcp *mcp)
{
    unsigned lists = 0;
    for (size_t i = 0; i < mcp->n_providers; i++)
        lists |= mcp->providers[i].provider->changing_lists;
    return lists;
}

static void
add_capability(json_t *capabilities, const char *name, bool offered, bool list_changed)
{
    if (!offered)
        return;
    json_t *capability = json_object();
    if (list_changed)
        json_object_set_new(capability, "listChanged", json_true());
    json_object_set_new(capabilities, name, capability);
}

static json_t *
make_capabilities(const struct mcp *mcp, enum mcp_revision revision)
{
    struct offered offered = what_is_offered(mcp);
    unsigned changes = mcp_changing_lists(mcp);
    json_t *capabilities = json_pack("{s:{}}", "logging");
    add_capability(capabilities, "tools", offered.tools, changes & 1u << MCP_LIST_TOOLS);
    add_capability(capabilities, "prompts", offered.prompts, changes & 1u << MCP_LIST_PROMPTS);
    add_capability(capabilities, "resources", offered.resources,
                   changes & 1u << MCP_LIST_RESOURCES);
    if (offered.resources && offered.subscribe)
        json_object_set_new(json_object_get(capabilities, "resources"), "subscribe", json_true());
    add_capability(capabilities, "completions",
                   offered.completions && revision_get(revision)->completions, false);
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

// The capabilities that are kept: those that this server may use. A client can send any number.
static json_t *
known_capabilities(const json_t *said)
{
    static const char *const known[] = {"elicitation", "sampling", "roots"};
    json_t *kept = json_object();
    for (size_t i = 0; i < KG_ARRAY_LEN(known); i++) {
        if (json_object_get(said, known[i]))
            json_object_set_new(kept, known[i], json_object());
    }
    return kept;
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
    json_decref(session->client_capabilities);
    session->client_capabilities = known_capabilities(capabilities);
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

// ---- Subscriptions of a session -------------------------------------------------------------

// NULL: answered with an error.
static const char *
subscribed_uri(struct mcp_call *call)
{
    const char *uri = rpc_string(call->params, "uri");
    if (uri && strlen(uri) <= MCP_NAME_MAX)
        return uri;
    mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "uri must be a string of at most %d bytes",
                  MCP_NAME_MAX);
    return NULL;
}

bool
mcp_can_subscribe(const struct mcp *mcp, const char *owner, const char *uri)
{
    for (size_t i = 0; i < mcp->n_providers; i++) {
        const struct provider_entry *entry = &mcp->providers[i];
        if (entry->provider->can_subscribe &&
            entry->provider->can_subscribe(owner, uri, entry->arg))
            return true;
    }
    return false;
}

void
method_subscribe(struct mcp_call *call)
{
    json_t *subscriptions = call->session->subscriptions;
    const char *uri = subscribed_uri(call);
    if (!uri)
        return;
    if (!mcp_can_subscribe(call->mcp, call->owner, uri)) {
        mcp_call_fail(call, revision_get(call->revision)->not_found, json_pack("{s:s}", "uri", uri),
                      "uri: changes of this resource are not reported");
        return;
    }
    if (json_object_size(subscriptions) >= MCP_SUBSCRIPTIONS_MAX) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL,
                      "an MCP session can have at most %d subscriptions", MCP_SUBSCRIPTIONS_MAX);
        return;
    }
    json_object_set_new(subscriptions, uri, json_true());
    mcp_call_answer_result(call, json_object());
}

void
method_unsubscribe(struct mcp_call *call)
{
    const char *uri = subscribed_uri(call);
    if (!uri)
        return;
    json_object_del(call->session->subscriptions, uri);
    mcp_call_answer_result(call, json_object());
}

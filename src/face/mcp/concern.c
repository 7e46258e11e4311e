// SPDX-License-Identifier: Apache-2.0
// What a POST concerns, where an installation has several gateways (struct http_concern). An MCP
// session is at one of them, and what its requests name may be at another.

#include <assert.h>
#include <string.h>

#include "mcp_priv.h"

enum { READ_MAX = 64 << 10 }; // no method or name is looked for in a larger body

static const char *const told_headers[] = {"Content-Type", "Accept", MCP_SESSION_HEADER,
                                           MCP_VERSION_HEADER, NULL};

char *
mcp_member_string(const char *text, size_t len, const char *name)
{
    text = text ? json_member(text, len, name, &len) : NULL;
    json_auto_t *value = text ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    const char *string = json_string_value(value);
    return string ? kg_strdup(string) : NULL;
}

// Only its own gateway knows whether an MCP session has ended, or never was.
static bool
lacks_session(struct mcp *mcp, const struct http_request *request, const char *id)
{
    const char *owner = http_request_owner(request);
    if (!id || (http_request_is_forwarded(request) && !mcp_made_id(mcp, id)))
        return false;
    return !owner || !mcp_session_find(mcp, owner, id);
}

static void
ask_providers(const struct mcp *mcp, const char *method, const char *body, size_t len,
              struct http_concern *ret, char **ret_name)
{
    const char *params = json_member(body, len, "params", &len);
    for (size_t i = 0; params && !ret->kind && i < mcp->n_providers; i++) {
        const struct provider_entry *entry = &mcp->providers[i];
        if (entry->provider->concern)
            entry->provider->concern(method, params, len, ret, ret_name, entry->arg);
    }
}

static void
ask(struct http_request *request, struct http_concern *ret, char **ret_name, void *arg)
{
    struct mcp *mcp = arg;
    size_t len;
    const char *id = http_request_header(request, MCP_SESSION_HEADER);
    const char *body = http_request_body(request, &len);
    KG_AUTO_FREE char *method = len <= READ_MAX ? mcp_member_string(body, len, "method") : NULL;
    if (lacks_session(mcp, request, id)) {
        ret->kind = HTTP_CONCERNS_HERE; // which says so
    } else if (method && strcmp(method, "notifications/cancelled") == 0) {
        ret->kind = id && mcp_made_id(mcp, id) ? HTTP_CONCERNS_EACH : HTTP_CONCERNS_HERE;
        ret->headers = told_headers;
    } else if (method) {
        ask_providers(mcp, method, body, len, ret, ret_name);
    }
}

void
mcp_concerns_init(struct mcp *mcp)
{
    struct http_concern *next = mcp->post_concerns;
    *next++ = (struct http_concern){
        .kind = HTTP_CONCERNS_MADE, .part = HTTP_IN_HEADER, .name = MCP_SESSION_HEADER};
    *next++ = (struct http_concern){.kind = HTTP_CONCERNS_ASKED, .ask = ask};
    for (size_t i = 0; i < mcp->n_providers; i++) {
        const char *const *name = mcp->providers[i].provider->session_arguments;
        for (; name && *name; name++) {
            assert(next < mcp->post_concerns + MCP_CONCERNS_MAX - 1);
            *next++ = (struct http_concern){.kind = HTTP_CONCERNS_SESSION,
                                            .part = HTTP_IN_BODY,
                                            .within = "/params/arguments",
                                            .name = *name};
        }
    }
}

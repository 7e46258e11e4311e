// SPDX-License-Identifier: Apache-2.0
// The methods of each revision, and the dispatch of messages to them.

#include <string.h>

#include "mcp_priv.h"
#include "metrics.h"

enum {
    LATER = -1,
    // Lists are constant while the gateway runs.
    LIST_TTL_MS = 5 * 60 * 1000,
};

static const struct method methods[] = {
    {"initialize", MCP_2024_11_05, MCP_2025_11_25, method_initialize, LATER},
    {"ping", MCP_2024_11_05, MCP_2025_11_25, method_ping, LATER},
    {"logging/setLevel", MCP_2024_11_05, MCP_2025_11_25, method_set_level, LATER},
    {"server/discover", MCP_2026_07_28, MCP_2026_07_28, method_discover, LIST_TTL_MS},
    {"subscriptions/listen", MCP_2026_07_28, MCP_2026_07_28, method_listen, LATER},
    {"tools/list", MCP_2024_11_05, MCP_2026_07_28, method_list_tools, LIST_TTL_MS},
    {"tools/call", MCP_2024_11_05, MCP_2026_07_28, method_call_tool, LATER},
    {"prompts/list", MCP_2024_11_05, MCP_2026_07_28, method_list_prompts, LIST_TTL_MS},
    {"prompts/get", MCP_2024_11_05, MCP_2026_07_28, method_get_prompt, LATER},
    {"resources/list", MCP_2024_11_05, MCP_2026_07_28, method_list_resources, 0},
    {"resources/templates/list", MCP_2024_11_05, MCP_2026_07_28, method_list_templates,
     LIST_TTL_MS},
    {"resources/read", MCP_2024_11_05, MCP_2026_07_28, method_read_resource, 0},
    {"completion/complete", MCP_2024_11_05, MCP_2026_07_28, method_complete, LATER},
};

const struct method *
method_find(const char *name, enum mcp_revision revision)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        const struct method *method = &methods[i];
        if (strcmp(method->name, name) == 0 && revision >= method->since &&
            revision <= method->until)
            return method;
    }
    return NULL;
}

static size_t
weight_of(const struct origin *origin, const json_t *message)
{
    return origin->weights ? *origin->weights : json_value_weight(message);
}

void
mcp_refuse(const struct origin *origin, json_t *message, int status, int code, const char *text,
           json_t *data)
{
    struct payload *error = payload_of(rpc_error(json_object_get(message, "id"), code, text, data));
    mcp_message_free(origin->mcp->loop, message, weight_of(origin, message));
    origin->outlet->ops->answer(origin->outlet, error, status);
}

// Neither the client nor `notifications/cancelled` could tell two running calls of one id apart.
static bool
id_is_running(const struct mcp_session *session, const json_t *id)
{
    const struct mcp_call *call;
    LIST_FOREACH(call, &session->calls, in_session) {
        if (json_equal(call->id, id))
            return true;
    }
    return false;
}

// A message is kept as a whole until its call is answered.
static bool
is_too_much(const struct origin *origin, size_t weight)
{
    const struct budget *requests = &origin->mcp->requests;
    if (weight <= MCP_SMALL_MESSAGE)
        return false;
    if (budget_held_by(requests, origin->owner) <= MCP_SMALL_MESSAGE)
        return requests->held + weight > requests->max;
    return !budget_has_room(requests, origin->owner, weight);
}

void
mcp_dispatch_request(const struct origin *origin, enum mcp_revision revision, json_t *message)
{
    const struct mcp_session *session = origin->session;
    size_t weight = weight_of(origin, message);
    const struct method *method = method_find(rpc_string(message, "method"), revision);
    metric_add(METRIC_MCP_REQUESTS, 1, method ? method->name : "unknown");
    if (!method) {
        int status = revision_get(revision)->stateless ? 404 : 200;
        mcp_refuse(origin, message, status, MCP_METHOD_NOT_FOUND, "method not found", NULL);
        return;
    }
    if (session && session->n_calls >= MCP_SESSION_CALLS_MAX) {
        mcp_refuse(origin, message, 200, MCP_SERVER_ERROR,
                   "too many requests of this MCP session are running: wait until one has ended",
                   NULL);
        return;
    }
    if (session && id_is_running(session, json_object_get(message, "id"))) {
        mcp_refuse(origin, message, 200, MCP_INVALID_REQUEST,
                   "a request with this id is already running", NULL);
        return;
    }
    if (is_too_much(origin, weight)) {
        mcp_refuse(origin, message, 200, MCP_SERVER_ERROR,
                   "the running requests hold too much memory: try again later",
                   json_pack("{s:s}", "code", kg_code_info(KG_RATE_LIMITED)->name));
        return;
    }
    struct mcp_call *call = mcp_call_new(origin, revision, message, weight, method);
    method->handle(call);
}

// ---- Stateless requests ---------------------------------------------------------------------

void
mcp_dispatch_stateless(const struct origin *origin, json_t *message)
{
    const char *claim = mcp_claimed_version(message);
    const json_t *meta = json_object_get(json_object_get(message, "params"), "_meta");
    int revision = revision_find(claim);
    if (revision < 0 || !revision_get((enum mcp_revision)revision)->stateless) {
        json_t *data = json_pack("{s:[s], s:s}", "supported", revision_get(MCP_2026_07_28)->name,
                                 "requested", claim);
        mcp_refuse(origin, message, 400, MCP_UNSUPPORTED_VERSION, "unsupported protocol version",
                   data);
    } else if (!json_is_object(json_object_get(meta, MCP_META "clientCapabilities"))) {
        mcp_refuse(origin, message, 400, MCP_INVALID_PARAMS,
                   "_meta must carry " MCP_META "clientCapabilities, an object", NULL);
    } else {
        mcp_dispatch_request(origin, (enum mcp_revision)revision, message);
    }
}

// ---- Notifications and responses ------------------------------------------------------------

static void
cancel_call(struct mcp_session *session, const json_t *id)
{
    struct mcp_call *call;
    LIST_FOREACH(call, &session->calls, in_session) {
        // A client must not cancel initialize; it has been answered anyway.
        if (!id || !json_equal(call->id, id))
            continue;
        mcp_call_cancel(call);
        return;
    }
}

void
mcp_dispatch_other(const struct origin *origin, json_t *message)
{
    const char *method = rpc_string(message, "method");
    struct mcp_session *session = origin->session;
    if (session && method && strcmp(method, "notifications/cancelled") == 0)
        cancel_call(session, json_object_get(json_object_get(message, "params"), "requestId"));
    mcp_message_free(origin->mcp->loop, message, weight_of(origin, message));
}

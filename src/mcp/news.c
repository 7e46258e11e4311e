// SPDX-License-Identifier: Apache-2.0
// Notifications of changed lists and resources: to sessions, and to listeners of 2026-07-28.

#include <string.h>

#include "mcp_priv.h"

#define SUBSCRIPTION_ID MCP_META "subscriptionId"

static const struct {
    const char *method;
    const char *filter;
} list_news[] = {
    [MCP_LIST_TOOLS] = {"notifications/tools/list_changed", "toolsListChanged"},
    [MCP_LIST_PROMPTS] = {"notifications/prompts/list_changed", "promptsListChanged"},
    [MCP_LIST_RESOURCES] = {"notifications/resources/list_changed", "resourcesListChanged"},
};

static void
send_to_listener(struct mcp_call *call, const char *method, json_t *params)
{
    json_object_set_new(params, "_meta", json_pack("{s:O}", SUBSCRIPTION_ID, call->id));
    call->outlet->ops->send(call->outlet, rpc_notification(method, params), false);
}

// ---- subscriptions/listen -------------------------------------------------------------------

// The part of the wish that providers report. URIs become the keys of an object. NULL: answered
// with an error.
static json_t *
make_filter(struct mcp_call *call, const json_t *wish)
{
    json_t *filter = json_object();
    unsigned changes = mcp_changing_lists(call->mcp);
    for (size_t i = 0; i < KG_ARRAY_LEN(list_news); i++) {
        if (changes & 1u << i && json_is_true(json_object_get(wish, list_news[i].filter)))
            json_object_set_new(filter, list_news[i].filter, json_true());
    }
    const json_t *uris = json_object_get(wish, "resourceSubscriptions");
    if (!uris)
        return filter;
    if (!json_is_array(uris) || json_array_size(uris) > MCP_SUBSCRIPTIONS_MAX) {
        json_decref(filter);
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL,
                      "resourceSubscriptions must be an array of at most %d URIs",
                      MCP_SUBSCRIPTIONS_MAX);
        return NULL;
    }
    json_t *granted = json_object();
    for (size_t i = 0; i < json_array_size(uris); i++) {
        const char *uri = json_string_value(json_array_get(uris, i));
        if (uri && mcp_can_subscribe(call->mcp, call->owner, uri))
            json_object_set_new(granted, uri, json_true());
    }
    if (json_object_size(granted) > 0)
        json_object_set(filter, "resourceSubscriptions", granted);
    json_decref(granted);
    return filter;
}

static json_t *
filter_as_answer(json_t *filter)
{
    json_t *answer = json_copy(filter);
    json_t *granted = json_object_get(filter, "resourceSubscriptions");
    if (!granted)
        return answer;
    json_t *uris = json_array();
    const char *uri;
    json_t *value;
    json_object_foreach(granted, uri, value) {
        json_array_append_new(uris, json_string(uri));
    }
    json_object_set_new(answer, "resourceSubscriptions", uris);
    return answer;
}

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
    const json_t *wish = json_object_get(call->params, "notifications");
    if (!json_is_object(wish)) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "notifications must be an object");
        return;
    }
    if (!call->outlet->ops->can_send(call->outlet)) {
        mcp_call_fail(call, MCP_INVALID_REQUEST, NULL,
                      "a client of subscriptions/listen must accept text/event-stream");
        return;
    }
    json_t *filter = make_filter(call, wish);
    if (!filter)
        return;
    call->filter = filter;
    mcp_call_shrink(call);
    LIST_INSERT_HEAD(&call->mcp->listeners, call, listening);
    mcp_call_on_cancel(call, on_listener_gone, call);
    send_to_listener(call, "notifications/subscriptions/acknowledged",
                     json_pack("{s:o}", "notifications", filter_as_answer(filter)));
}

// ---- Changes -------------------------------------------------------------------------------

#ifdef KG_MCP_ASKS
static bool
concerns(const char *owner, const char *whose)
{
    return !owner || strcmp(owner, whose) == 0;
}

static void
send_to_session(struct mcp_session *session, const char *method, json_t *params)
{
    session->news->ops->send(session->news, rpc_notification(method, params), false);
}

void
mcp_resource_updated(struct mcp *mcp, const char *owner, const char *uri)
{
    static const char method[] = "notifications/resources/updated";
    struct mcp_session *session;
    LIST_FOREACH(session, &mcp->sessions, link) {
        if (session->news && concerns(owner, session->owner) &&
            json_object_get(session->subscriptions, uri))
            send_to_session(session, method, json_pack("{s:s}", "uri", uri));
    }
    struct mcp_call *call;
    LIST_FOREACH(call, &mcp->listeners, listening) {
        if (!call->cancelled && concerns(owner, call->owner) &&
            json_object_get(json_object_get(call->filter, "resourceSubscriptions"), uri))
            send_to_listener(call, method, json_pack("{s:s}", "uri", uri));
    }
}

void
mcp_list_changed(struct mcp *mcp, const char *owner, enum mcp_list list)
{
    struct mcp_session *session;
    LIST_FOREACH(session, &mcp->sessions, link) {
        if (session->news && session->initialized && concerns(owner, session->owner))
            send_to_session(session, list_news[list].method, NULL);
    }
    struct mcp_call *call;
    LIST_FOREACH(call, &mcp->listeners, listening) {
        if (!call->cancelled && concerns(owner, call->owner) &&
            json_is_true(json_object_get(call->filter, list_news[list].filter)))
            send_to_listener(call, list_news[list].method, json_object());
    }
}
#endif

// SPDX-License-Identifier: Apache-2.0
// The answer of a call: a result or an error, in the shape of its revision.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"
#include "metrics.h"

// ---- Delivery -------------------------------------------------------------------------------

// Returns the large answer, or an error if there is no room for it.
static struct payload *
within_bounds(const struct mcp_call *call, struct payload *payload)
{
    const struct outlet *outlet = call->outlet;
    const char *why = NULL;
    if (outlet->ops->has_room && !outlet->ops->has_room(outlet, payload->len))
        why = "the answers of this batch are too large: send this request on its own";
    else if (!budget_has_room(&call->mcp->answers, call->owner, payload->len))
        why = "too many bytes of earlier answers were not read: read them, and try again";
    if (!why) {
        payload_count(payload, call->mcp, call->owner);
        return payload;
    }
    payload_unref(payload);
    return payload_of(rpc_error(call->id, MCP_SERVER_ERROR, why,
                                json_pack("{s:s}", "code", kg_code_info(KG_RATE_LIMITED)->name)));
}

// Gives the answer (taken; NULL: there is none) to the outlet. The call is gone afterwards.
static void
deliver(struct mcp_call *call, struct payload *payload, int http_status)
{
    struct mcp_session *session = call->session;
    struct outlet *outlet = call->outlet;
    budget_hold_end(&call->held);
    LIST_REMOVE(call, in_mcp);
    metric_add(METRIC_MCP_CALLS, -1);
    if (session) {
        LIST_REMOVE(call, in_session);
        session->n_calls--;
    }
    if (outlet->call == call)
        outlet->call = NULL;
    if (call->cancelled) {
        payload_unref(payload);
        payload = NULL;
    }
    if (payload && payload->len > MCP_LARGE_BYTES)
        payload = within_bounds(call, payload);
    outlet->ops->answer(outlet, payload, http_status);
    if (!call->holding)
        mcp_call_free(call);
    if (session)
        mcp_session_release(session);
}

static void
call_on_encoded(struct payload *payload, void *arg)
{
    struct mcp_call *call = arg;
    call->encoding = NULL;
    deliver(call, payload, call->http_status);
}

void
mcp_call_drop_answer(struct mcp_call *call)
{
    encoding_cancel(KG_STEAL(call->encoding));
    deliver(call, NULL, call->http_status);
}

void
mcp_call_answer(struct mcp_call *call, json_t *message, int http_status)
{
    assert(!call->ended);
    call->ended = true;
    if (call->listens)
        LIST_REMOVE(call, listening);
    if (call->cancelled)
        json_decref(KG_STEAL(message));
    bool large = call->weight > MCP_LARGE_BYTES || call->attachments.n > 0 ||
                 (message && json_value_weight(message) > MCP_LARGE_BYTES);
    if (!message || !large || call->shares_answer) {
        deliver(call, message ? payload_with(message, &call->attachments) : NULL, http_status);
        return;
    }
    json_t *request = mcp_call_take_message(call);
    budget_hold_set(&call->held, 0);
    call->weight = 0;
    call->http_status = http_status;
    call->encoding = encoding_start(call->mcp, call->owner, message, request, &call->attachments,
                                    call_on_encoded, call);
}

json_t *
mcp_call_attach(struct mcp_call *call, const char *text, size_t len, loop_fn release, void *arg)
{
    const struct attachment attachment = {.text = text, .len = len, .release = release, .arg = arg};
    return attachments_add(&call->attachments, &attachment);
}

// ---- Results --------------------------------------------------------------------------------

// Adds what 2026-07-28 requires in every result.
static void
complete_result(const struct mcp_call *call, json_t *result)
{
    json_object_set_new(result, "resultType", json_string("complete"));
    json_t *meta = json_object_get(result, "_meta");
    if (!json_is_object(meta)) {
        meta = json_object();
        json_object_set_new(result, "_meta", meta);
    }
    json_object_set_new(meta, MCP_META "serverInfo", mcp_server_info());
    if (call->method->ttl_ms < 0)
        return;
    json_object_set_new(result, "ttlMs", json_integer(call->method->ttl_ms));
    json_object_set_new(result, "cacheScope", json_string("private"));
}

void
mcp_call_answer_result(struct mcp_call *call, json_t *result)
{
    if (!json_is_object(result)) {
        // A defect of a provider must cost one answer only.
        log_error("mcp: a result is not an object", LOG_STR("method", call->method->name));
        json_decref(result);
        mcp_call_answer(call, rpc_error(call->id, MCP_INTERNAL_ERROR, "internal error", NULL), 200);
        return;
    }
    if (revision_get(call->revision)->stateless)
        complete_result(call, result);
    else
        revision_adapt_result(call->revision, result);
    mcp_call_answer(call, rpc_result(call->id, result), 200);
}

void
mcp_call_finish(struct mcp_call *call, json_t *result)
{
    if (call->on_result)
        call->on_result(call, result);
    else
        mcp_call_answer_result(call, result);
}

// Some errors have an HTTP status of their own in 2026-07-28.
static int
status_of(const struct mcp_call *call, int code)
{
    if (!revision_get(call->revision)->stateless)
        return 200;
    switch (code) {
    case MCP_METHOD_NOT_FOUND:
        return 404;
    case MCP_HEADER_MISMATCH:
    case MCP_UNSUPPORTED_VERSION:
        return 400;
    default:
        return 200;
    }
}

void
mcp_call_fail(struct mcp_call *call, int code, json_t *data, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    mcp_call_answer(call, rpc_error(call->id, code, text, data), status_of(call, code));
}

// SPDX-License-Identifier: Apache-2.0
// Asking the client during a call: questions before MCP_2026_07_28, results that require input
// since then. Only the providers of tests do so.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"

// ---- Questions ------------------------------------------------------------------------------

bool
mcp_call_ask(struct mcp_call *call, const char *method, json_t *params, mcp_answer_fn fn, void *arg)
{
    struct mcp_session *session = call->session;
    assert(!*call->question.id);
    if (!session || revision_get(call->revision)->stateless || !call_can_send(call)) {
        json_decref(params);
        return false;
    }
    struct question *question = &call->question;
    snprintf(question->id, sizeof question->id, "kernelgate-%u", ++session->last_question);
    question->fn = fn;
    question->arg = arg;
    json_t *message = json_pack("{s:s, s:s, s:s, s:o}", "jsonrpc", "2.0", "id", question->id,
                                "method", method, "params", params);
    call->outlet->ops->send(call->outlet, message, false);
    return true;
}

void
mcp_call_take_response(struct mcp_session *session, const json_t *message)
{
    const char *id = rpc_string(message, "id");
    struct mcp_call *call;
    LIST_FOREACH(call, &session->calls, in_session) {
        if (!id || !*call->question.id || strcmp(call->question.id, id) != 0)
            continue;
        struct question question = call->question;
        *call->question.id = '\0';
        const json_t *result = json_object_get(message, "result");
        const char *why = rpc_string(json_object_get(message, "error"), "message");
        question.fn(json_is_object(result) ? result : NULL, why ? why : "the client refused",
                    question.arg);
        return;
    }
}

void
mcp_call_close_stream(struct mcp_call *call)
{
    if (!call->cancelled && call->outlet->ops->close_stream)
        call->outlet->ops->close_stream(call->outlet);
}

// ---- Results that require input -------------------------------------------------------------

const json_t *
mcp_call_input_responses(const struct mcp_call *call)
{
    const json_t *responses = json_object_get(call->params, "inputResponses");
    bool known = revision_get(call->revision)->stateless && json_is_object(responses);
    return known ? responses : NULL;
}

const json_t *
mcp_call_state(const struct mcp_call *call)
{
    return call->state;
}

void
mcp_call_fail_capability(struct mcp_call *call, const char *capability)
{
    bool stateless = revision_get(call->revision)->stateless;
    json_t *data = stateless ? json_pack("{s:{s:{}}}", "requiredCapabilities", capability) : NULL;
    mcp_call_fail(call, stateless ? MCP_CAPABILITY_MISSING : MCP_SERVER_ERROR, data,
                  "the client does not declare the capability %s", capability);
}

static const char *
capability_of(const char *method)
{
    static const struct {
        const char *method;
        const char *capability;
    } table[] = {
        {"elicitation/create", "elicitation"},
        {"sampling/createMessage", "sampling"},
        {"roots/list", "roots"},
    };
    for (size_t i = 0; method && i < KG_ARRAY_LEN(table); i++) {
        if (strcmp(table[i].method, method) == 0)
            return table[i].capability;
    }
    return NULL;
}

// The first capability that `requests` need and the client does not have, or NULL.
static const char *
missing_capability(const struct mcp_call *call, json_t *requests)
{
    const char *key;
    json_t *request;
    json_object_foreach(requests, key, request) {
        const char *capability = capability_of(rpc_string(request, "method"));
        if (capability && !json_object_get(mcp_call_client_capabilities(call), capability))
            return capability;
    }
    return NULL;
}

void
mcp_call_require_input(struct mcp_call *call, json_t *requests, json_t *state)
{
    const char *missing = missing_capability(call, requests);
    bool known = revision_get(call->revision)->stateless && call->method->asks_input;
    if (missing || !known) {
        json_decref(requests);
        json_decref(state);
        if (known)
            mcp_call_fail_capability(call, missing);
        else
            mcp_call_fail(call, MCP_SERVER_ERROR, NULL, "the client cannot be asked for input");
        return;
    }
    json_t *result =
        json_pack("{s:s, s:o}", "resultType", "input_required", "inputRequests", requests);
    if (state) {
        KG_AUTO_FREE char *sealed = mcp_seal_state(call->mcp, call, state);
        json_object_set_new(result, "requestState", json_string(sealed));
        json_decref(state);
    }
    mcp_call_answer_result(call, result);
}

// SPDX-License-Identifier: Apache-2.0
// Messages of a client whose answers share one stream (the old SSE, stdio), and batches.

#include <string.h>

#include "mcp_priv.h"

json_t *
mcp_receive_parse(const char *data, size_t len, int *ret_code, struct kg_error *err)
{
    *ret_code = MCP_INVALID_REQUEST;
    if (http_json_check(data, len, MCP_VALUES_MAX, err) < 0)
        return NULL;
    *ret_code = MCP_PARSE_ERROR;
    return mcp_message_parse(data, len, err);
}

const char *
mcp_receive_check(const struct mcp_session *session, const json_t *message)
{
    const char *why = NULL;
    size_t n_requests;
    if (json_is_array(message) && !revision_get(session->revision)->batches)
        return "this revision has no batches: send one message at a time";
    if (json_is_array(message))
        return mcp_batch_check(message, &n_requests);
    enum message_kind kind = rpc_kind(message, &why);
    if (kind != MESSAGE_REQUEST || session->initialized || mcp_claimed_version(message))
        return why;
    const char *method = rpc_string(message, "method");
    bool early = strcmp(method, "initialize") == 0 || strcmp(method, "ping") == 0;
    return early ? NULL : "send initialize first, or say the revision in _meta";
}

void
mcp_receive(struct mcp_session *session, struct outlet *outlet, json_t *message)
{
    const struct origin origin = {.mcp = session->mcp,
                                  .session = session,
                                  .owner = session->owner,
                                  .profile = session->profile,
                                  .outlet = outlet};
    const char *why;
    size_t n_requests;
    if (json_is_array(message)) {
        mcp_batch_check(message, &n_requests);
        mcp_dispatch_batch(&origin, session->revision, message, n_requests);
    } else if (rpc_kind(message, &why) != MESSAGE_REQUEST) {
        mcp_dispatch_other(&origin, message);
    } else if (mcp_claimed_version(message)) {
        mcp_dispatch_stateless(&origin, message);
    } else {
        mcp_dispatch_request(&origin, session->revision, message);
    }
}

// SPDX-License-Identifier: Apache-2.0
// Checks and dispatches the messages and batches of an MCP session.

#include <string.h>

#include "mcp_priv.h"

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
    return early ? NULL : "send initialize first, or name the revision in _meta";
}

void
mcp_receive(struct mcp_session *session, struct outlet *outlet, json_t *message,
            const size_t *weights, json_t *elsewhere)
{
    const struct origin origin = {.mcp = session->mcp,
                                  .session = session,
                                  .owner = session->owner,
                                  .profile = session->profile,
                                  .outlet = outlet,
                                  .weights = weights,
                                  .elsewhere = elsewhere};
    if (json_is_array(message)) {
        mcp_dispatch_batch(&origin, session->revision, message);
    } else if (!rpc_is_request(message)) {
        mcp_dispatch_other(&origin, message);
    } else if (mcp_claimed_version(message)) {
        mcp_dispatch_stateless(&origin, message);
    } else {
        mcp_dispatch_request(&origin, session->revision, message);
    }
}

// SPDX-License-Identifier: Apache-2.0
// MCP on two descriptors, handed on to a gateway that runs: each line a POST to its /mcp, each
// message of its answers a line. Where the gateway was restarted, the session is opened again with
// what the client had said at its beginning.
#pragma once

#include "base.h"
#include "http_client.h"
#include "loop.h"

struct mcp_bridge_settings {
    struct loop *loop;
    struct http_client *client;
    const char *url;     // of the gateway; without a path /mcp is meant
    const char *api_key; // or NULL
    const char *profile; // or NULL
    int in;
    int out;
};
struct mcp_bridge;
// `on_end` fires once, when the input has ended and the gateway was told so.
KG_MUST_CHECK struct mcp_bridge *mcp_bridge_new(const struct mcp_bridge_settings *settings,
                                                loop_fn on_end, void *arg, struct kg_error *err);
void mcp_bridge_free(struct mcp_bridge *bridge);
KG_DEFINE_AUTO(mcp_bridge, mcp_bridge_free)

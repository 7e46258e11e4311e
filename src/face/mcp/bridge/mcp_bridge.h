// SPDX-License-Identifier: Apache-2.0
// Connects a stdio client to a running gateway: each line becomes a POST to /mcp, each message of
// the answers becomes a line. After a restart of the gateway the bridge opens a new MCP session
// with the client's initialize.
#pragma once

#include "base.h"
#include "http_client.h"
#include "loop.h"

struct mcp_bridge_settings {
    struct loop *loop;
    struct http_client *client;
    const char *url;     // of the gateway; its path is /mcp by default
    const char *api_key; // or NULL
    const char *profile; // or NULL
    int in;
    int out;
};
struct mcp_bridge;
// Borrows the settings' loop, client and descriptors. `on_end` is called once, after the input has
// ended and the session was deleted. Fails if the URL or a descriptor is invalid.
KG_MUST_CHECK struct mcp_bridge *mcp_bridge_new(const struct mcp_bridge_settings *settings,
                                                loop_fn on_end, void *arg, struct kg_error *err);
void mcp_bridge_free(struct mcp_bridge *bridge);
KG_DEFINE_AUTO(mcp_bridge, mcp_bridge_free)

// SPDX-License-Identifier: Apache-2.0
// The provider of the MCP face: tools, resources and a prompt for kernel sessions, and the
// profiles, which have the tools of other systems. All functions run on the loop.
#pragma once

#include "base.h"
#include "mcp.h"

struct face_context;
struct http_server;
struct loop;

// All members are borrowed.
struct mcp_tools_settings {
    const struct face_context *face;
    struct loop *loop;
    const char *image;       // of sandboxes
    bool network;            // sandboxes can connect to it
    int max_image_side;      // pixels of images in results; 0: no limit
    int64_t evict_idle_ms;   // after which a client that is silent may have left; 0: never
    const char *sessions_target; // the gateway lists the client's sessions there, for tools that do
    const char *upload_root; // files of this machine below it may be uploaded; NULL: none
};

struct mcp_tools;
struct mcp_tools *mcp_tools_new(const struct mcp_tools_settings *settings);
// Frees running jobs without an answer. After mcp_free().
void mcp_tools_free(struct mcp_tools *tools);
KG_DEFINE_AUTO(mcp_tools, mcp_tools_free)
void mcp_tools_register(struct mcp_tools *tools, struct mcp *mcp);
// Adds the route /sandbox/file, for clients of the profile mcp-sandbox.
void mcp_tools_serve_http(struct mcp_tools *tools, struct http_server *server);
// The profiles without the default one, NULL-terminated, for struct mcp_settings.
extern const char *const mcp_tools_profiles[];

// SPDX-License-Identifier: Apache-2.0
// What the MCP face offers: tools, resources and a prompt on kernel sessions, and the profiles that
// speak as other systems do.
#pragma once

#include "base.h"
#include "mcp.h"

struct face_context;
struct http_server;
struct loop;

// All borrowed.
struct mcp_tools_settings {
    const struct face_context *face;
    struct loop *loop;
    const char *image;       // what sandboxes are made of
    bool network;            // they reach it, outgoing
    const char *upload_root; // below which files of this machine may be uploaded; NULL: none
};

struct mcp_tools;
struct mcp_tools *mcp_tools_new(const struct mcp_tools_settings *settings);
// After mcp_free(): what still ran is dropped without an answer.
void mcp_tools_free(struct mcp_tools *tools);
KG_DEFINE_AUTO(mcp_tools, mcp_tools_free)
void mcp_tools_register(struct mcp_tools *tools, struct mcp *mcp);
// Adds /sandbox/file, which clients of the profile mcp-sandbox ask for.
void mcp_tools_serve_http(struct mcp_tools *tools, struct http_server *server);
// The profiles beside the default one, NULL-terminated: for struct mcp_settings.
extern const char *const mcp_tools_profiles[];

// SPDX-License-Identifier: Apache-2.0
// The MCP adapter of a gateway: its bounds, its providers.

#include <string.h>

#include "api.h"
#include "core.h"
#include "mcp.h"
#include "mcp_tools.h"
#include "provisioner_replicas.h"

enum {
    MAX_MCP_SESSIONS = 4096,
    MAX_MCP_SESSIONS_PER_OWNER = 1024,
    MAX_REPLAY_BYTES = 1 << 20,
};

struct mcp_face {
    struct mcp *mcp;
    struct mcp_tools *tools;
};

static struct mcp_tools *
make_tools(const struct core *core, const char *upload_root)
{
    const struct config *config = core->config;
    const struct mcp_tools_settings settings = {
        .face = &core->face,
        .loop = core->loop,
        .network = strcmp(config->network, "egress") == 0,
        .image = config->image,
        .sessions_target = API_SESSIONS_PATH,
        .upload_root = upload_root,
        .max_image_side = (int)core->config->mcp_max_image_side,
        .evict_idle_ms = core->config->mcp_evict_idle_s * 1000,
    };
    return mcp_tools_new(&settings);
}

struct mcp_face *
mcp_face_new(struct core *core, const char *upload_root)
{
    struct mcp_face *face = KG_NEW(struct mcp_face);
    const struct mcp_settings settings = {
        .loop = core->loop,
        .profiles = mcp_tools_profiles,
        .max_sessions = MAX_MCP_SESSIONS,
        .max_sessions_per_owner = MAX_MCP_SESSIONS_PER_OWNER,
        .session_idle_ms = core->config->idle_timeout_s * 1000,
        .id_suffix = provisioner_replica_id(core->provisioner),
        .max_replay_bytes = MAX_REPLAY_BYTES,
    };
    face->mcp = mcp_new(&settings);
    face->tools = make_tools(core, upload_root);
    mcp_tools_register(face->tools, face->mcp);
    return face;
}

struct mcp *
mcp_face_mcp(const struct mcp_face *face)
{
    return face->mcp;
}

void
mcp_face_serve_http(struct mcp_face *face, struct http_server *server)
{
    mcp_serve_http(face->mcp, server);
    mcp_tools_serve_http(face->tools, server);
}

void
mcp_face_free(struct mcp_face *face)
{
    if (!face)
        return;
    mcp_free(face->mcp);
    mcp_tools_free(face->tools);
    free(face);
}

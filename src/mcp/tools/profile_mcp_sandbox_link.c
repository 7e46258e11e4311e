// SPDX-License-Identifier: Apache-2.0
// The profile `mcp-sandbox`: links to files, as its clients put them together by themselves.

#include "file_links.h"
#include "profile_mcp_sandbox.h"

// Leads to the link that is signed, which is served elsewhere.
static void
handle_link(struct http_request *request, void *arg)
{
    const struct mcp_tools *tools = arg;
    const char *owner = http_request_owner(request);
    const char *id = http_request_query(request, "sandbox_id");
    const char *path = http_request_query(request, "file_path");
    struct kg_error err = {0};
    if (!id || !path)
        kg_error_set(&err, KG_INVALID, 0, "sandbox_id and file_path are needed");
    else if (mcp_sandbox_path(path, &path, &err) == 0 &&
             sessions_find(tools->settings.face->sessions, owner, id, &err)) {
        KG_AUTO_FREE char *url = file_links_make(tools->settings.face->links, owner, id, path);
        http_reply_header(request, "Location", url);
        http_reply(request, 302, NULL, NULL, 0);
        return;
    }
    http_reply_error(request, &err);
}

void
mcp_tools_serve_http(struct mcp_tools *tools, struct http_server *server)
{
    static const struct http_route route = {HTTP_GET, "/sandbox/file", handle_link,
                                            HTTP_KEY_IN_QUERY};
    http_server_add_routes(server, &route, 1, tools);
}

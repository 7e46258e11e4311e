// SPDX-License-Identifier: Apache-2.0
// Hosts of a site: the way of their requests is not that of the server's routes.

#include <string.h>

#include "http_priv.h"

void
http_server_set_site(struct http_server *server, const struct http_site *site)
{
    server->site = *site;
}

// The target stays as it is: it need not be one that a route could have.
static int
set_target(struct http_request *request, struct kg_error *err)
{
    const char *target = request->head.target;
    request->raw_path = kg_strndup(target, strcspn(target, "?#"));
    if (target[0] != '/')
        return kg_error_set(err, KG_INVALID, 0, "the target of the request must be a path");
    return 0;
}

static bool
is_server(struct http_request *request, const struct http_site *site, const char *host)
{
    char value[HTTP_NAMED_MAX + 1] = "";
    if (!site->is_server || !site->is_server(host, value, site->arg))
        return false;
    request->to_own_name = true;
    if (*value)
        http_request_set_header(request, site->named_in, value);
    return true;
}

bool
site_take(struct http_request *request, struct kg_error *err)
{
    const struct http_site *site = &request->server->site;
    const char *host = http_request_header(request, "Host");
    char owner[HTTP_OWNER_MAX + 1] = "";
    if (!site->handler || !host || is_server(request, site, host) || !site->claims(host, site->arg))
        return false;
    request->route = site->name;
    request->flags = HTTP_PUBLIC | HTTP_LARGE_BODY | HTTP_STREAMED_BODY;
    request->handler = site->handler;
    request->handler_arg = site->arg;
    request->concerns = site->concerns;
    if (set_target(request, err) == 0)
        (void)site->admit(request, owner, &request->is_trusted, site->arg, err);
    identify_as_owner(request->conn, owner);
    return true;
}

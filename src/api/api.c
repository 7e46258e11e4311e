// SPDX-License-Identifier: Apache-2.0
// The endpoints, registered with the server.

#include "api_priv.h"

#define ROUTE(method, path, handler, flags) {HTTP_##method, path, handler, flags},
static const struct http_route routes[] = {API_ROUTES(ROUTE)};
static const struct http_route account_routes[] = {API_ACCOUNT_ROUTES(ROUTE)};
#undef ROUTE

void
api_register(struct http_server *server, struct api_context *context)
{
    http_server_add_routes(server, routes, KG_ARRAY_LEN(routes), context);
    if (context->accounts)
        http_server_add_routes(server, account_routes, KG_ARRAY_LEN(account_routes), context);
}

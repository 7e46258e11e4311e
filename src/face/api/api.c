// SPDX-License-Identifier: Apache-2.0
// The endpoints, registered with the server.

#include "api_priv.h"

// What requests concern: see struct http_concern.
static const struct http_concern nothing[] = {{0}};
static const struct http_concern session_in_path[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_PATH, .name = "id"}, {0}};
static const struct http_concern session_in_body[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_BODY, .name = "session_id"}, {0}};
static const struct http_concern session_of_link[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_PATH, .name = "id", .owner = "owner"}, {0}};
static const struct http_concern execution[] = {
    {.kind = HTTP_CONCERNS_MADE, .part = HTTP_IN_PATH, .name = "id"}, {0}};
static const struct http_concern all_sessions[] = {{.kind = HTTP_CONCERNS_ALL}, {0}};

#define ROUTE(method, path, handler, flags, concerns)                                              \
    {HTTP_##method, path, handler, flags, concerns},
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

// SPDX-License-Identifier: Apache-2.0
// The face: its routes.

#include "opensandbox_priv.h"

// What requests concern: see struct http_concern.
static const struct http_concern nothing[] = {{0}};
static const struct http_concern of_sandbox[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_PATH, .name = "id"}, {0}};
// Whoever asks filters, and divides the list into pages.
static const struct http_concern all_sandboxes[] = {
    {.kind = HTTP_CONCERNS_ALL, .target = SANDBOXES "?pageSize=10000"}, {0}};

#define ROUTE(method, path, handler, flags, concerns)                                              \
    {HTTP_##method, path, handler, flags, concerns},
static const struct http_route routes[] = {OPENSANDBOX_ROUTES(ROUTE)};
#undef ROUTE

struct opensandbox *
opensandbox_new(const struct opensandbox_settings *settings)
{
    struct opensandbox *self = KG_NEW(struct opensandbox);
    self->settings = *settings;
    return self;
}

void
opensandbox_free(struct opensandbox *self)
{
    free(self);
}

void
opensandbox_serve_http(struct opensandbox *self, struct http_server *server)
{
    http_server_add_dialect(server, &opensandbox_dialect, routes, KG_ARRAY_LEN(routes), self);
}

// SPDX-License-Identifier: Apache-2.0
// The face's routes.

#include "e2b_priv.h"

const int e2b_own_ports[] = {E2B_ENVD_PORT, E2B_CODE_PORT, 0};

struct e2b *
e2b_new(const struct e2b_settings *settings)
{
    struct e2b *e2b = KG_NEW(struct e2b);
    e2b->settings = *settings;
    return e2b;
}

void
e2b_free(struct e2b *e2b)
{
    free(e2b);
}

const struct face_context *
e2b_face(const struct e2b *e2b)
{
    return e2b->settings.face;
}

struct loop *
e2b_loop(const struct e2b *e2b)
{
    return e2b->settings.loop;
}

// 204 of envd, and the code interpreter's "OK". No sandbox: 502.
static void
handle_health(struct http_request *request, void *arg)
{
    const struct e2b *e2b = arg;
    struct kg_error err;
    const char *id = http_request_header(request, E2B_SANDBOX_HEADER);
    if (id && !sessions_find_by_sandbox(e2b->settings.face->sessions, id)) {
        kg_error_set(&err, KG_SESSION_NOT_FOUND, 0, "there is no such sandbox");
        http_reply_error(request, &err);
    } else if (e2b_is_for_code(request)) {
        http_reply(request, 200, "application/json", "\"OK\"", 4);
    } else {
        http_reply(request, 204, NULL, NULL, 0);
    }
}

// What requests concern: see struct http_concern.
static const struct http_concern nothing[] = {{0}};
static const struct http_concern in_path[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_PATH, .name = "id"}, {0}};
static const struct http_concern in_header[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_HEADER, .name = E2B_SANDBOX_HEADER}, {0}};
static const struct http_concern anyones[] = {
    {.kind = HTTP_CONCERNS_SANDBOX, .part = HTTP_IN_HEADER, .name = E2B_SANDBOX_HEADER}, {0}};
static const struct http_concern creation[] = {
    {.kind = HTTP_CONCERNS_ASKED, .ask = creation_concern}, {0}};
static const struct http_concern all[] = {{.kind = HTTP_CONCERNS_ALL}, {0}};

#define ROUTE(method, path, handler, flags, concerns)                                              \
    {HTTP_##method, path, handler, flags, concerns},
#define MISSING(method, path) ROUTE(method, path, handle_missing, 0, nothing)
// clang-format off
static const struct http_route control_routes[] = {
    ROUTE(POST, "/v2/sandboxes", handle_sandbox_create, HTTP_STARTS_WORK, creation)
    ROUTE(POST, "/sandboxes", handle_sandbox_create_old, HTTP_STARTS_WORK, creation)
    ROUTE(GET, "/v2/sandboxes", handle_sandbox_list, 0, all)
    ROUTE(GET, "/sandboxes", handle_sandbox_list, 0, all)
    ROUTE(POST, "/v2/sandboxes/{id}/connect", handle_sandbox_connect, 0, in_path)
    ROUTE(POST, "/sandboxes/{id}/connect", handle_sandbox_connect, 0, in_path)
    ROUTE(GET, "/sandboxes/{id}", handle_sandbox_show, 0, in_path)
    ROUTE(DELETE, "/sandboxes/{id}", handle_sandbox_delete, 0, in_path)
    ROUTE(POST, "/sandboxes/{id}/timeout", handle_sandbox_timeout, 0, in_path)
    ROUTE(POST, "/sandboxes/{id}/refreshes", handle_sandbox_refresh, 0, in_path)
    ROUTE(GET, "/sandboxes/{id}/metrics", handle_sandbox_metrics, 0, in_path)
    MISSING(PUT, "/sandboxes/{id}/network")
    MISSING(POST, "/sandboxes/{id}/pause")
    MISSING(POST, "/sandboxes/{id}/resume")
    MISSING(POST, "/sandboxes/{id}/snapshots")
    MISSING(POST, "/sandboxes/{id}/fork")
    MISSING(GET, "/snapshots")
    MISSING(DELETE, "/templates/{id...}")
    MISSING(GET, "/templates/{id...}")
    MISSING(POST, "/templates/{id...}")
    MISSING(POST, "/v2/templates/{id...}")
    MISSING(POST, "/v3/templates")
    MISSING(GET, "/secrets")
    MISSING(POST, "/secrets")
    MISSING(GET, "/secrets/{id}")
    MISSING(POST, "/secrets/{id}")
    MISSING(DELETE, "/secrets/{id}")
    MISSING(GET, "/volumes")
    MISSING(POST, "/volumes")
    MISSING(GET, "/volumes/{id}")
    MISSING(DELETE, "/volumes/{id}")
};
static const struct http_route sandbox_routes[] = {
    ROUTE(GET, "/health", handle_health, HTTP_PUBLIC, anyones)
    ROUTE(POST, "/execute", handle_e2b_execute,
            HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, in_header)
    ROUTE(GET, "/contexts", handle_context_list, HTTP_SCOPE_PORTS, in_header)
    ROUTE(POST, "/contexts", handle_context_create, HTTP_STARTS_WORK | HTTP_SCOPE_PORTS, in_header)
    ROUTE(POST, "/contexts/{context}/restart", handle_context_restart, HTTP_SCOPE_PORTS, in_header)
    ROUTE(DELETE, "/contexts/{context}", handle_context_delete, HTTP_SCOPE_PORTS, in_header)
};
// clang-format on

void
e2b_serve_http(struct e2b *e2b, struct http_server *server)
{
    http_server_add_dialect(server, &e2b_dialect, control_routes, KG_ARRAY_LEN(control_routes),
                            e2b);
    http_server_add_dialect(server, &e2b_sandbox_dialect, sandbox_routes,
                            KG_ARRAY_LEN(sandbox_routes), e2b);
}

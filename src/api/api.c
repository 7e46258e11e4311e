// SPDX-License-Identifier: Apache-2.0
// The routes.

#include "api_priv.h"

static const struct http_route routes[] = {
    {HTTP_POST, "/api/v1/execute", handle_execute, HTTP_STARTS_WORK},
    {HTTP_POST, "/api/v1/execute_sync", handle_execute_sync, HTTP_STARTS_WORK},
    {HTTP_GET, "/api/v1/executions/{id}", handle_execution_join, HTTP_KEY_IN_QUERY},
    {HTTP_POST, "/api/v1/executions/{id}/interrupt", handle_execution_interrupt, 0},
    {HTTP_POST, "/api/v1/sessions", handle_session_create, HTTP_STARTS_WORK | HTTP_JSON_BODY},
    {HTTP_GET, "/api/v1/sessions", handle_session_list, HTTP_KEY_IN_QUERY},
    {HTTP_GET, "/api/v1/sessions/{id}", handle_session_show, HTTP_KEY_IN_QUERY},
    {HTTP_DELETE, "/api/v1/sessions/{id}", handle_session_delete, 0},
    {HTTP_POST, "/api/v1/sessions/{id}/interrupt", handle_session_interrupt, 0},
    {HTTP_POST, "/api/v1/sessions/{id}/restart", handle_session_restart, 0},
    {HTTP_POST, "/api/v1/sessions/{id}/commands", handle_session_command,
     HTTP_STARTS_WORK | HTTP_JSON_BODY},
    {HTTP_POST, "/api/v1/sessions/{id}/touch", handle_session_touch, 0},
    {HTTP_POST, "/api/v1/sessions/{id}/packages", handle_packages_install,
     HTTP_STARTS_WORK | HTTP_JSON_BODY},
    {HTTP_GET, "/api/v1/sessions/{id}/packages", handle_packages_list, HTTP_KEY_IN_QUERY},
    {HTTP_GET, "/api/v1/sessions/{id}/packages/{name}", handle_package_show, HTTP_KEY_IN_QUERY},
    {HTTP_GET, "/api/v1/sessions/{id}/files", handle_file_list, HTTP_KEY_IN_QUERY},
    {HTTP_GET, "/api/v1/sessions/{id}/files/{path...}", handle_file_get, HTTP_KEY_IN_QUERY},
    {HTTP_PUT, "/api/v1/sessions/{id}/files/{path...}", handle_file_put, HTTP_LARGE_BODY},
    {HTTP_DELETE, "/api/v1/sessions/{id}/files/{path...}", handle_file_delete, 0},
    {HTTP_GET, "/files/{id}/{path...}", handle_file_link, HTTP_PUBLIC | HTTP_KEY_IN_QUERY},
    {HTTP_GET, "/api/v1/kernelspecs", handle_kernelspecs, HTTP_KEY_IN_QUERY},
    {HTTP_GET, "/api/v1/health", handle_health, HTTP_PUBLIC},
    {HTTP_GET, "/healthz", handle_alive, HTTP_PUBLIC},
    {HTTP_GET, "/readyz", handle_ready, HTTP_PUBLIC},
    {HTTP_GET, "/metrics", handle_metrics, HTTP_PUBLIC},
};

void
api_register(struct http_server *server, struct api_context *context)
{
    http_server_add_routes(server, routes, KG_ARRAY_LEN(routes), context);
}

// SPDX-License-Identifier: Apache-2.0
// All endpoints. Each row makes the handler's prototype and the server's route. Those of accounts
// are there with the setting accounts-file.
#pragma once

// clang-format off
#define API_ROUTES(ROUTE)                                                                          \
    ROUTE(POST, "/api/v1/execute", handle_execute, HTTP_STARTS_WORK)                               \
    ROUTE(POST, "/api/v1/execute_sync", handle_execute_sync, HTTP_STARTS_WORK)                     \
    ROUTE(GET, "/api/v1/executions/{id}", handle_execution_join, HTTP_KEY_IN_QUERY)                \
    ROUTE(POST, "/api/v1/executions/{id}/interrupt", handle_execution_interrupt, 0)                \
    ROUTE(POST, "/api/v1/sessions", handle_session_create, HTTP_STARTS_WORK | HTTP_JSON_BODY)      \
    ROUTE(GET, "/api/v1/sessions", handle_session_list, HTTP_KEY_IN_QUERY)                         \
    ROUTE(GET, "/api/v1/sessions/{id}", handle_session_show, HTTP_KEY_IN_QUERY)                    \
    ROUTE(DELETE, "/api/v1/sessions/{id}", handle_session_delete, 0)                               \
    ROUTE(GET, "/api/v1/sessions/{id}/executions", handle_execution_list, HTTP_KEY_IN_QUERY)       \
    ROUTE(POST, "/api/v1/sessions/{id}/interrupt", handle_session_interrupt, 0)                    \
    ROUTE(POST, "/api/v1/sessions/{id}/restart", handle_session_restart, 0)                        \
    ROUTE(POST, "/api/v1/sessions/{id}/commands", handle_session_command,                          \
          HTTP_STARTS_WORK | HTTP_JSON_BODY)                                                       \
    ROUTE(POST, "/api/v1/sessions/{id}/touch", handle_session_touch, 0)                            \
    ROUTE(POST, "/api/v1/sessions/{id}/packages", handle_packages_install,                         \
          HTTP_STARTS_WORK | HTTP_JSON_BODY)                                                       \
    ROUTE(GET, "/api/v1/sessions/{id}/packages", handle_packages_list, HTTP_KEY_IN_QUERY)          \
    ROUTE(GET, "/api/v1/sessions/{id}/packages/{name}", handle_package_show, HTTP_KEY_IN_QUERY)    \
    ROUTE(GET, "/api/v1/sessions/{id}/files", handle_file_list, HTTP_KEY_IN_QUERY)                 \
    ROUTE(GET, "/api/v1/sessions/{id}/files/{path...}", handle_file_get, HTTP_KEY_IN_QUERY)        \
    ROUTE(PUT, "/api/v1/sessions/{id}/files/{path...}", handle_file_put, HTTP_LARGE_BODY)          \
    ROUTE(DELETE, "/api/v1/sessions/{id}/files/{path...}", handle_file_delete, 0)                  \
    ROUTE(GET, "/files/{id}/{path...}", handle_file_link, HTTP_PUBLIC | HTTP_KEY_IN_QUERY)         \
    ROUTE(GET, "/api/v1/kernelspecs", handle_kernelspecs, HTTP_KEY_IN_QUERY)                       \
    ROUTE(GET, "/api/v1/health", handle_health, HTTP_PUBLIC)                                       \
    ROUTE(GET, "/healthz", handle_alive, HTTP_PUBLIC)                                              \
    ROUTE(GET, "/readyz", handle_ready, HTTP_PUBLIC)                                               \
    ROUTE(GET, "/metrics", handle_metrics, HTTP_PUBLIC)
#define API_ACCOUNT_ROUTES(ROUTE)                                                                  \
    ROUTE(GET, "/api/v1/keys", handle_key_list, HTTP_KEY_IN_QUERY)                                 \
    ROUTE(POST, "/api/v1/keys", handle_key_create, 0)                                              \
    ROUTE(DELETE, "/api/v1/keys/{id}", handle_key_revoke, 0)                                       \
    ROUTE(GET, "/api/v1/users", handle_user_list, HTTP_KEY_IN_QUERY)                               \
    ROUTE(POST, "/api/v1/users", handle_user_create, 0)                                            \
    ROUTE(PATCH, "/api/v1/users/{id}", handle_user_change, 0)                                      \
    ROUTE(DELETE, "/api/v1/users/{id}", handle_user_remove, 0)                                     \
    ROUTE(POST, "/api/v1/users/{id}/keys", handle_user_key_create, 0)                              \
    ROUTE(DELETE, "/api/v1/users/{id}/sessions", handle_user_sessions_end, 0)                      \
    ROUTE(PUT, "/api/v1/users/{id}/password", handle_user_password, 0)                             \
    ROUTE(POST, "/api/v1/login", handle_login, HTTP_PUBLIC)                                        \
    ROUTE(GET, "/api/v1/login", handle_login_show, 0)                                              \
    ROUTE(POST, "/api/v1/logout", handle_logout, 0)                                                \
    ROUTE(PUT, "/api/v1/password", handle_password_change, 0)                                      \
    ROUTE(GET, "/api/v1/registration", handle_registration_show, HTTP_PUBLIC)                      \
    ROUTE(POST, "/api/v1/registration", handle_register, HTTP_PUBLIC)
// clang-format on

// SPDX-License-Identifier: Apache-2.0
// All endpoints. Each row makes the handler's prototype and the server's route; its last column
// says what a request concerns (api.c). Those of accounts are there with the setting accounts-file.
#pragma once

// clang-format off
#define API_ROUTES(ROUTE)                                                                          \
    ROUTE(POST, "/api/v1/execute", handle_execute,                                                 \
          HTTP_STARTS_WORK | HTTP_SCOPE_RUN, session_in_body)                                      \
    ROUTE(POST, "/api/v1/execute_sync", handle_execute_sync,                                       \
          HTTP_STARTS_WORK | HTTP_SCOPE_RUN, session_in_body)                                      \
    ROUTE(GET, "/api/v1/executions/{id}", handle_execution_join,                                   \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, execution)                                          \
    ROUTE(POST, "/api/v1/executions/{id}/interrupt", handle_execution_interrupt,                   \
          HTTP_SCOPE_RUN, execution)                                                               \
    ROUTE(POST, "/api/v1/executions/{id}/input", handle_execution_input,                           \
          HTTP_JSON_BODY | HTTP_SCOPE_RUN, execution)                                              \
    ROUTE(POST, "/api/v1/executions/{id}/tool_results", handle_tool_results,                       \
          HTTP_SCOPE_RUN, execution)                                                               \
    ROUTE(POST, API_SESSIONS_PATH, handle_session_create,                                          \
          HTTP_STARTS_WORK | HTTP_JSON_BODY, session_in_body)                                      \
    ROUTE(GET, API_SESSIONS_PATH, handle_session_list, HTTP_KEY_IN_QUERY, all_sessions)            \
    ROUTE(GET, "/api/v1/sessions/{id}", handle_session_show,                                       \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                                    \
    ROUTE(PATCH, "/api/v1/sessions/{id}", handle_session_change, HTTP_JSON_BODY, session_in_path)  \
    ROUTE(DELETE, "/api/v1/sessions/{id}", handle_session_delete, 0, session_in_path)              \
    ROUTE(GET, "/api/v1/sessions/{id}/executions", handle_execution_list,                          \
          HTTP_KEY_IN_QUERY, session_in_path)                                                      \
    ROUTE(POST, "/api/v1/sessions/{id}/interrupt", handle_session_interrupt,                       \
          HTTP_SCOPE_RUN, session_in_path)                                                         \
    ROUTE(POST, "/api/v1/sessions/{id}/restart", handle_session_restart,                           \
          HTTP_SCOPE_RUN, session_in_path)                                                         \
    ROUTE(POST, "/api/v1/sessions/{id}/commands", handle_session_command,                          \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                     \
    ROUTE(GET, "/api/v1/sessions/{id}/commands", handle_command_list,                              \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                                    \
    ROUTE(GET, "/api/v1/sessions/{id}/commands/{command}", handle_command_show,                    \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                                    \
    ROUTE(DELETE, "/api/v1/sessions/{id}/commands/{command}", handle_command_end,                  \
          HTTP_SCOPE_RUN, session_in_path)                                                         \
    ROUTE(GET, "/api/v1/sessions/{id}/commands/{command}/output", handle_command_output,           \
          HTTP_STARTS_WORK | HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                 \
    ROUTE(POST, "/api/v1/sessions/{id}/commands/{command}/input", handle_command_input,            \
          HTTP_SCOPE_RUN, session_in_path)                                                         \
    ROUTE(POST, "/api/v1/sessions/{id}/commands/{command}/signal", handle_command_signal,          \
          HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                                        \
    ROUTE(POST, "/api/v1/sessions/{id}/commands/{command}/resize", handle_command_resize,          \
          HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                                        \
    ROUTE(GET, "/api/v1/sessions/{id}/terminal", handle_terminal,                                  \
          HTTP_STARTS_WORK | HTTP_KEY_IN_QUERY | HTTP_SCOPE_TERMINAL, session_in_path)             \
    ROUTE(GET, "/api/v1/sessions/{id}/ports", handle_port_list,                                    \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_PORTS, session_in_path)                                   \
    ROUTE(POST, "/api/v1/sessions/{id}/ports/{port}", handle_port_link,                            \
          HTTP_SCOPE_PORTS, session_in_path)                                                       \
    ROUTE(POST, "/api/v1/sessions/{id}/touch", handle_session_touch,                               \
          HTTP_SCOPE_RUN, session_in_path)                                                         \
    ROUTE(POST, "/api/v1/sessions/{id}/tokens", handle_token_make,                                 \
          HTTP_JSON_BODY, session_in_path)                                                         \
    ROUTE(GET, "/api/v1/sessions/{id}/tokens", handle_token_list,                                  \
          HTTP_KEY_IN_QUERY, session_in_path)                                                      \
    ROUTE(DELETE, "/api/v1/sessions/{id}/tokens/{token}", handle_token_revoke,                     \
          0, session_in_path)                                                                      \
    ROUTE(POST, "/api/v1/sessions/{id}/complete", handle_session_complete,                         \
          HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                                        \
    ROUTE(POST, "/api/v1/sessions/{id}/inspect", handle_session_inspect,                           \
          HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                                        \
    ROUTE(POST, "/api/v1/sessions/{id}/savepoints", handle_savepoint_make,                         \
          HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                                        \
    ROUTE(GET, "/api/v1/sessions/{id}/savepoints", handle_savepoint_list,                          \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                                    \
    ROUTE(DELETE, "/api/v1/sessions/{id}/savepoints/{savepoint}", handle_savepoint_drop,           \
          HTTP_SCOPE_RUN, session_in_path)                                                         \
    ROUTE(POST, "/api/v1/sessions/{id}/savepoints/{savepoint}/restore", handle_savepoint_restore,  \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                     \
    ROUTE(POST, "/api/v1/sessions/{id}/branches", handle_branch_open,                              \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                     \
    ROUTE(GET, "/api/v1/sessions/{id}/branches", handle_branch_list,                               \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                                    \
    ROUTE(DELETE, "/api/v1/sessions/{id}/branches/{branch}", handle_branch_end,                    \
          HTTP_SCOPE_RUN, session_in_path)                                                         \
    ROUTE(POST, "/api/v1/sessions/{id}/branches/{branch}/promote", handle_branch_promote,          \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                     \
    ROUTE(POST, "/api/v1/sessions/{id}/packages", handle_packages_install,                         \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, session_in_path)                     \
    ROUTE(GET, "/api/v1/sessions/{id}/packages", handle_packages_list,                             \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                                    \
    ROUTE(GET, "/api/v1/sessions/{id}/packages/{name}", handle_package_show,                       \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_READ, session_in_path)                                    \
    ROUTE(GET, "/api/v1/sessions/{id}/files", handle_file_list,                                    \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_FILES_READ, session_in_path)                              \
    ROUTE(POST, "/api/v1/sessions/{id}/files", handle_file_upload,                                 \
          HTTP_LARGE_BODY | HTTP_SCOPE_FILES, session_in_path)                                     \
    ROUTE(GET, "/api/v1/sessions/{id}/files/{path...}", handle_file_get,                           \
          HTTP_KEY_IN_QUERY | HTTP_SCOPE_FILES_READ, session_in_path)                              \
    ROUTE(PUT, "/api/v1/sessions/{id}/files/{path...}", handle_file_put,                           \
          HTTP_LARGE_BODY | HTTP_STREAMED_BODY | HTTP_SCOPE_FILES, session_in_path)                \
    ROUTE(POST, "/api/v1/sessions/{id}/files/{path...}", handle_file_action,                       \
          HTTP_JSON_BODY | HTTP_SCOPE_FILES, session_in_path)                                      \
    ROUTE(DELETE, "/api/v1/sessions/{id}/files/{path...}", handle_file_delete,                     \
          HTTP_SCOPE_FILES, session_in_path)                                                       \
    ROUTE(GET, "/api/v1/sessions/{id}/watch", handle_watch,                                        \
          HTTP_STARTS_WORK | HTTP_KEY_IN_QUERY | HTTP_SCOPE_FILES_READ, session_in_path)           \
    ROUTE(GET, FILE_LINKS_ROUTE, handle_file_link,                                                 \
          HTTP_PUBLIC | HTTP_KEY_IN_QUERY, session_of_link)                                        \
    ROUTE(GET, "/api/v1/kernelspecs", handle_kernelspecs, HTTP_KEY_IN_QUERY, nothing)              \
    ROUTE(GET, "/api/v1/limits", handle_limits, HTTP_KEY_IN_QUERY, nothing)                        \
    ROUTE(GET, "/api/v1/health", handle_health, HTTP_PUBLIC, nothing)                              \
    ROUTE(GET, "/healthz", handle_alive, HTTP_PUBLIC, nothing)                                     \
    ROUTE(GET, "/readyz", handle_ready, HTTP_PUBLIC, nothing)                                      \
    ROUTE(GET, "/metrics", handle_metrics, HTTP_PUBLIC, nothing)
#define API_ACCOUNT_ROUTES(ROUTE)                                                                  \
    ROUTE(GET, "/api/v1/keys", handle_key_list, HTTP_KEY_IN_QUERY, nothing)                        \
    ROUTE(POST, "/api/v1/keys", handle_key_create, 0, nothing)                                     \
    ROUTE(DELETE, "/api/v1/keys/{id}", handle_key_revoke, 0, nothing)                              \
    ROUTE(GET, "/api/v1/users", handle_user_list, HTTP_KEY_IN_QUERY, nothing)                      \
    ROUTE(POST, "/api/v1/users", handle_user_create, 0, nothing)                                   \
    ROUTE(PATCH, "/api/v1/users/{id}", handle_user_change, 0, nothing)                             \
    ROUTE(DELETE, "/api/v1/users/{id}", handle_user_remove, 0, nothing)                            \
    ROUTE(POST, "/api/v1/users/{id}/keys", handle_user_key_create, 0, nothing)                     \
    ROUTE(DELETE, "/api/v1/users/{id}/sessions", handle_user_sessions_end, 0, nothing)             \
    ROUTE(PUT, "/api/v1/users/{id}/password", handle_user_password, 0, nothing)                    \
    ROUTE(POST, "/api/v1/login", handle_login, HTTP_PUBLIC, nothing)                               \
    ROUTE(GET, "/api/v1/login", handle_login_show, 0, nothing)                                     \
    ROUTE(POST, "/api/v1/logout", handle_logout, 0, nothing)                                       \
    ROUTE(PUT, "/api/v1/password", handle_password_change, 0, nothing)                             \
    ROUTE(GET, "/api/v1/registration", handle_registration_show, HTTP_PUBLIC, nothing)             \
    ROUTE(POST, "/api/v1/registration", handle_register, HTTP_PUBLIC, nothing)
// clang-format on

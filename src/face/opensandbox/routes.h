// SPDX-License-Identifier: Apache-2.0
// All endpoints of this face. Each row makes the handler's prototype and the server's route; its
// last column says what a request concerns (opensandbox.c).
#pragma once

#define SANDBOXES "/v1/sandboxes"

// clang-format off
#define OPENSANDBOX_ROUTES(ROUTE)                                                                  \
    ROUTE(POST, SANDBOXES, handle_os_create,                                                       \
          HTTP_STARTS_WORK | HTTP_JSON_BODY, nothing)                                              \
    ROUTE(GET, SANDBOXES, handle_os_list,                                                          \
          0, all_sandboxes)                                                                        \
    ROUTE(GET, "/v1/sandboxes/{id}", handle_os_show,                                               \
          0, of_sandbox)                                                                           \
    ROUTE(DELETE, "/v1/sandboxes/{id}", handle_os_delete,                                          \
          0, of_sandbox)                                                                           \
    ROUTE(PATCH, "/v1/sandboxes/{id}/metadata", handle_os_metadata,                                \
          HTTP_JSON_BODY, of_sandbox)                                                              \
    ROUTE(POST, "/v1/sandboxes/{id}/renew-expiration", handle_os_renew,                            \
          HTTP_JSON_BODY, of_sandbox)                                                              \
    ROUTE(POST, "/v1/sandboxes/{id}/pause", handle_os_pause,                                       \
          0, of_sandbox)                                                                           \
    ROUTE(POST, "/v1/sandboxes/{id}/resume", handle_os_pause,                                      \
          0, of_sandbox)                                                                           \
    ROUTE(POST, "/v1/sandboxes/{id}/snapshots", handle_os_snapshot,                                \
          0, of_sandbox)                                                                           \
    ROUTE(GET, "/v1/sandboxes/{id}/endpoints/{port}", handle_os_endpoint,                          \
          0, of_sandbox)                                                                           \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/18080/policy", handle_os_policy,                          \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/18080/policy", handle_os_policy,                         \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(PATCH, "/v1/sandboxes/{id}/proxy/18080/policy", handle_os_policy,                        \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(DELETE, "/v1/sandboxes/{id}/proxy/18080/policy", handle_os_policy,                       \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/ping", handle_os_ping,                              \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/code", handle_os_code,                             \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, of_sandbox)                          \
    ROUTE(DELETE, "/v1/sandboxes/{id}/proxy/44772/code", handle_os_code_interrupt,                 \
          HTTP_SCOPE_RUN, of_sandbox)                                                              \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/code/context", handle_os_context_create,           \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, of_sandbox)                          \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/code/contexts", handle_os_context_list,             \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(DELETE, "/v1/sandboxes/{id}/proxy/44772/code/contexts", handle_os_contexts_delete,       \
          HTTP_SCOPE_RUN, of_sandbox)                                                              \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/code/contexts/{context}", handle_os_context_show,   \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(DELETE, "/v1/sandboxes/{id}/proxy/44772/code/contexts/{context}", handle_os_context_delete,\
          HTTP_SCOPE_RUN, of_sandbox)                                                              \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/session", handle_os_shell,                         \
          HTTP_SCOPE_RUN, of_sandbox)                                                              \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/command", handle_os_command,                       \
          HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_RUN, of_sandbox)                          \
    ROUTE(DELETE, "/v1/sandboxes/{id}/proxy/44772/command", handle_os_command_interrupt,           \
          HTTP_SCOPE_RUN, of_sandbox)                                                              \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/command/status/{command}", handle_os_command_status,\
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/command/{command}/logs", handle_os_command_logs,    \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/metrics", handle_os_metrics,                        \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/files/info", handle_os_file_info,                   \
          HTTP_SCOPE_FILES_READ, of_sandbox)                                                       \
    ROUTE(DELETE, "/v1/sandboxes/{id}/proxy/44772/files", handle_os_file_delete,                   \
          HTTP_SCOPE_FILES, of_sandbox)                                                            \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/files/permissions", handle_os_file_chmod,          \
          HTTP_JSON_BODY | HTTP_SCOPE_FILES, of_sandbox)                                           \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/files/mv", handle_os_file_move,                    \
          HTTP_JSON_BODY | HTTP_SCOPE_FILES, of_sandbox)                                           \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/files/search", handle_os_file_search,               \
          HTTP_SCOPE_FILES_READ, of_sandbox)                                                       \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/files/replace", handle_os_file_replace,            \
          HTTP_JSON_BODY | HTTP_SCOPE_FILES, of_sandbox)                                           \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/files/upload", handle_os_file_upload,              \
          HTTP_LARGE_BODY | HTTP_SCOPE_FILES, of_sandbox)                                          \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/files/download", handle_os_file_download,           \
          HTTP_SCOPE_FILES_READ, of_sandbox)                                                       \
    ROUTE(GET, "/v1/sandboxes/{id}/proxy/44772/directories/list", handle_os_folder_list,           \
          HTTP_SCOPE_FILES_READ, of_sandbox)                                                       \
    ROUTE(POST, "/v1/sandboxes/{id}/proxy/44772/directories", handle_os_folder_make,               \
          HTTP_JSON_BODY | HTTP_SCOPE_FILES, of_sandbox)                                           \
    ROUTE(DELETE, "/v1/sandboxes/{id}/proxy/44772/directories", handle_os_folder_delete,           \
          HTTP_SCOPE_FILES, of_sandbox)                                                            \
    ROUTE(GET, "/v1/sandboxes/{id}/{path...}", handle_os_unknown,                                  \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(POST, "/v1/sandboxes/{id}/{path...}", handle_os_unknown,                                 \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(PUT, "/v1/sandboxes/{id}/{path...}", handle_os_unknown,                                  \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(PATCH, "/v1/sandboxes/{id}/{path...}", handle_os_unknown,                                \
          HTTP_SCOPE_READ, of_sandbox)                                                             \
    ROUTE(DELETE, "/v1/sandboxes/{id}/{path...}", handle_os_unknown,                               \
          HTTP_SCOPE_READ, of_sandbox)
// clang-format on

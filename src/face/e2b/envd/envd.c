// SPDX-License-Identifier: Apache-2.0
// The routes of envd.
#include "envd_priv.h"

// ---- Routes ---------------------------------------------------------------------------------

// The environment of all processes, beside their own: a client that starts some adds to it.
static void
handle_envs(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    if (envd_sandbox(request, arg, &err))
        http_reply_json(request, 200, json_object());
    else
        http_reply_error(request, &err);
}

static const struct http_concern in_header[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_HEADER, .name = E2B_SANDBOX_HEADER}, {0}};

#define FILESYSTEM(name, handler, flags)                                                           \
    {HTTP_POST, "/filesystem.Filesystem/" name, handler, flags, in_header},
#define PROCESS(name, handler, flags)                                                              \
    {HTTP_POST, "/process.Process/" name, handler, flags, in_header},
// clang-format off
static const struct http_route file_routes[] = {
    {HTTP_GET, "/files", handle_envd_file_get, HTTP_GZIP_ANSWER | HTTP_SCOPE_FILES_READ, in_header},
    {HTTP_POST, "/files", handle_envd_file_post, HTTP_LARGE_BODY | HTTP_GZIP_BODY | HTTP_SCOPE_FILES, in_header},
    {HTTP_GET, "/envs", handle_envs, HTTP_SCOPE_READ, in_header},
};
static const struct http_route call_routes[] = {
    FILESYSTEM("Stat", handle_stat, HTTP_JSON_BODY | HTTP_SCOPE_FILES_READ)
    FILESYSTEM("MakeDir", handle_make_dir, HTTP_JSON_BODY | HTTP_SCOPE_FILES)
    FILESYSTEM("Move", handle_move, HTTP_JSON_BODY | HTTP_SCOPE_FILES)
    FILESYSTEM("Remove", handle_remove, HTTP_JSON_BODY | HTTP_SCOPE_FILES)
    FILESYSTEM("ListDir", handle_list_dir, HTTP_JSON_BODY | HTTP_SCOPE_FILES_READ)
    FILESYSTEM("WatchDir", handle_watch_dir, HTTP_STARTS_WORK | HTTP_SCOPE_FILES_READ)
    FILESYSTEM("CreateWatcher", handle_create_watcher,
               HTTP_STARTS_WORK | HTTP_JSON_BODY | HTTP_SCOPE_FILES_READ)
    FILESYSTEM("GetWatcherEvents", handle_watcher_events, HTTP_JSON_BODY | HTTP_SCOPE_FILES_READ)
    FILESYSTEM("RemoveWatcher", handle_remove_watcher, HTTP_JSON_BODY | HTTP_SCOPE_FILES_READ)
    PROCESS("Start", handle_process_start, HTTP_STARTS_WORK | HTTP_SCOPE_RUN)
    PROCESS("Connect", handle_process_connect, HTTP_STARTS_WORK | HTTP_SCOPE_READ)
    PROCESS("List", handle_process_list, HTTP_JSON_BODY | HTTP_SCOPE_READ)
    PROCESS("Update", handle_process_update, HTTP_JSON_BODY | HTTP_SCOPE_RUN)
    PROCESS("SendSignal", handle_process_signal, HTTP_JSON_BODY | HTTP_SCOPE_RUN)
    PROCESS("CloseStdin", handle_process_close_stdin, HTTP_JSON_BODY | HTTP_SCOPE_RUN)
    PROCESS("SendInput", handle_process_input, HTTP_JSON_BODY | HTTP_SCOPE_RUN)
    PROCESS("StreamInput", handle_process_stream_input,
            HTTP_OPEN_BODY | HTTP_SCOPE_RUN)
};
// clang-format on

struct envd *
envd_new(const struct e2b *e2b)
{
    struct envd *envd = KG_NEW(struct envd);
    envd->e2b = e2b;
    envd->sweep = loop_timer_new(e2b_loop(e2b), watchers_on_sweep, envd);
    return envd;
}

void
envd_free(struct envd *envd)
{
    if (!envd)
        return;
    watchers_end(envd);
    loop_timer_free(envd->sweep);
    free(envd);
}

void
envd_serve_http(struct envd *envd, struct http_server *server)
{
    http_server_add_dialect(server, &envd_file_dialect, file_routes, KG_ARRAY_LEN(file_routes),
                            envd);
    http_server_add_dialect(server, &envd_call_dialect, call_routes, KG_ARRAY_LEN(call_routes),
                            envd);
}

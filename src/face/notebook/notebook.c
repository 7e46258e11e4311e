// SPDX-License-Identifier: Apache-2.0
// The face: its routes, and what they say of the server.

#include <string.h>

#include "contents_priv.h"
#include "notebook_priv.h"

enum { PREFIX_BYTES_MAX = 64 };

// ---- The server -----------------------------------------------------------------------------

static void
handle_version(struct http_request *request, void *arg)
{
    (void)arg;
    http_reply_json(request, 200, json_pack("{s:s}", "version", KG_VERSION));
}

static json_t *
rfc3339(int64_t wall_ms)
{
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(wall_ms, text);
    return json_string(text);
}

static void
handle_status(struct http_request *request, void *arg)
{
    const struct notebook *notebook = arg;
    json_auto_t *models = kernel_models(notebook, http_request_owner(request));
    json_auto_t *last = rfc3339(notebook->started_wall_ms);
    json_int_t connections = 0;
    size_t i;
    json_t *model;
    json_array_foreach(models, i, model) {
        json_t *active = json_object_get(model, "last_activity");
        connections += json_integer_value(json_object_get(model, "connections"));
        if (strcmp(json_string_value(active), json_string_value(last)) > 0) {
            json_decref(last);
            last = json_incref(active);
        }
    }
    http_reply_json(request, 200,
                    json_pack("{s:o, s:O, s:i, s:I}", "started", rfc3339(notebook->started_wall_ms),
                              "last_activity", last, "kernels", (int)json_array_size(models),
                              "connections", connections));
}

static void
handle_me(struct http_request *request, void *arg)
{
    (void)arg;
    const char *owner = http_request_owner(request);
    http_reply_json(request, 200,
                    json_pack("{s:{s:s, s:s, s:s, s:s%, s:n, s:n}, s:{}}", "identity", "username",
                              owner, "name", owner, "display_name", owner, "initials", owner,
                              utf8_cut(owner, strlen(owner), 2), "avatar_url", "color",
                              "permissions"));
}

static void
handle_kernelspec_list(struct http_request *request, void *arg)
{
    const struct face_context *face = ((const struct notebook *)arg)->face;
    json_t *specs = json_object();
    for (size_t i = 0; i < kernelspecs_count(face->specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(face->specs, i);
        json_object_set_new(specs, kernelspec_name(spec), kernelspec_model(spec));
    }
    http_reply_json(request, 200,
                    json_pack("{s:s, s:o}", "default", kernelspec_name(face->default_spec),
                              "kernelspecs", specs));
}

static void
handle_kernelspec_show(struct http_request *request, void *arg)
{
    const struct face_context *face = ((const struct notebook *)arg)->face;
    struct kg_error err = {0};
    const struct kernelspec *spec =
        kernelspecs_find(face->specs, http_request_param(request, "name"), &err);
    if (spec)
        http_reply_json(request, 200, kernelspec_model(spec));
    else
        reply_failure(request, &err);
}

// ---- The face -------------------------------------------------------------------------------

// What requests concern: see struct http_concern. A kernel's id begins with its session's; the
// first folder of a path is a session. A notebook's session is known only to the replica that has
// made it; a notebook that has one keeps it, and a new one is made where its kernel is.
static const struct http_concern of_kernel[] = {{.kind = HTTP_CONCERNS_ASKED, .ask = kernel_id_ask},
                                                {0}};
static const struct http_concern of_file[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_PATH, .name = "path"}, {0}};
static const struct http_concern of_session[] = {
    {.kind = HTTP_CONCERNS_ENTRY, .part = HTTP_IN_PATH, .name = "id", .member = "id"}, {0}};
static const struct http_concern of_new_session[] = {
    {.kind = HTTP_CONCERNS_ENTRY, .part = HTTP_IN_BODY, .name = "path", .member = "path"},
    {.kind = HTTP_CONCERNS_ASKED, .ask = notebook_session_ask},
    {0}};
static const struct http_concern of_terminal[] = {
    {.kind = HTTP_CONCERNS_ASKED, .ask = notebook_terminal_ask}, {0}};
static const struct http_concern of_new_terminal[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_BODY, .name = "session_id"},
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_BODY, .name = "kernel_id"},
    {0}};
static const struct http_concern of_all[] = {{.kind = HTTP_CONCERNS_ALL}, {0}};

static const struct http_route routes[] = {
    {HTTP_GET, "/api", handle_version, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/api/status", handle_status, HTTP_TOKEN_KEY, NULL},
    {HTTP_GET, "/api/me", handle_me, HTTP_TOKEN_KEY, NULL},
    {HTTP_GET, "/api/kernelspecs", handle_kernelspec_list, HTTP_TOKEN_KEY, NULL},
    {HTTP_GET, "/api/kernelspecs/{name}", handle_kernelspec_show, HTTP_TOKEN_KEY, NULL},
    {HTTP_GET, "/api/kernels", handle_kernel_list, HTTP_TOKEN_KEY, of_all},
    {HTTP_POST, "/api/kernels", handle_kernel_start,
     HTTP_TOKEN_KEY | HTTP_STARTS_WORK | HTTP_JSON_BODY, NULL},
    {HTTP_GET, "/api/kernels/{id}", handle_kernel_show, HTTP_TOKEN_KEY, of_kernel},
    {HTTP_DELETE, "/api/kernels/{id}", handle_kernel_delete, HTTP_TOKEN_KEY, of_kernel},
    {HTTP_POST, "/api/kernels/{id}/interrupt", handle_kernel_interrupt, HTTP_TOKEN_KEY, of_kernel},
    {HTTP_POST, "/api/kernels/{id}/restart", handle_kernel_restart, HTTP_TOKEN_KEY, of_kernel},
    {HTTP_GET, "/api/kernels/{id}/channels", handle_kernel_channels,
     HTTP_TOKEN_KEY | HTTP_STARTS_WORK, of_kernel},
    {HTTP_GET, "/api/sessions", handle_notebook_session_list, HTTP_TOKEN_KEY, of_all},
    {HTTP_POST, "/api/sessions", handle_notebook_session_create,
     HTTP_TOKEN_KEY | HTTP_STARTS_WORK | HTTP_JSON_BODY, of_new_session},
    {HTTP_GET, "/api/sessions/{id}", handle_notebook_session_show, HTTP_TOKEN_KEY, of_session},
    {HTTP_PATCH, "/api/sessions/{id}", handle_notebook_session_change,
     HTTP_TOKEN_KEY | HTTP_STARTS_WORK | HTTP_JSON_BODY, of_session},
    {HTTP_DELETE, "/api/sessions/{id}", handle_notebook_session_delete, HTTP_TOKEN_KEY, of_session},
    {HTTP_GET, "/api/terminals", handle_notebook_terminal_list, HTTP_TOKEN_KEY, of_all},
    {HTTP_POST, "/api/terminals", handle_notebook_terminal_start,
     HTTP_TOKEN_KEY | HTTP_STARTS_WORK | HTTP_JSON_BODY, of_new_terminal},
    {HTTP_GET, "/api/terminals/{name}", handle_notebook_terminal_show, HTTP_TOKEN_KEY, of_terminal},
    {HTTP_DELETE, "/api/terminals/{name}", handle_notebook_terminal_delete, HTTP_TOKEN_KEY,
     of_terminal},
    {HTTP_GET, "/terminals/websocket/{name}", handle_notebook_terminal_connect,
     HTTP_TOKEN_KEY | HTTP_STARTS_WORK, of_terminal},
    {HTTP_GET, "/api/contents", handle_contents_show_root, HTTP_TOKEN_KEY, of_all},
    {HTTP_POST, "/api/contents", handle_contents_post_root, HTTP_TOKEN_KEY | HTTP_JSON_BODY, NULL},
    {HTTP_GET, "/api/contents/{path...}", handle_contents_show, HTTP_TOKEN_KEY, of_file},
    {HTTP_POST, "/api/contents/{path...}", handle_contents_post, HTTP_TOKEN_KEY | HTTP_JSON_BODY,
     of_file},
    {HTTP_PUT, "/api/contents/{path...}", handle_contents_put, HTTP_TOKEN_KEY | HTTP_LARGE_BODY,
     of_file},
    {HTTP_PATCH, "/api/contents/{path...}", handle_contents_rename, HTTP_TOKEN_KEY | HTTP_JSON_BODY,
     of_file},
    {HTTP_DELETE, "/api/contents/{path...}", handle_contents_delete, HTTP_TOKEN_KEY, of_file},
};

static int
check_prefix(const char *prefix, struct kg_error *err)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    size_t len = strlen(prefix);
    if (len < 2 || len > PREFIX_BYTES_MAX || prefix[0] != '/' || prefix[len - 1] == '/' ||
        strstr(prefix, "//") || strstr(prefix, "/.") || strspn(prefix, plain) != len)
        return kg_error_set(err, KG_INVALID, 0,
                            "setting jupyter-api-prefix: it must be a path like /jupyter, of at "
                            "most %d characters A-Z, a-z, 0-9, -, ., _, ~ and /, without a slash "
                            "at its end, not \"%.40s\"",
                            PREFIX_BYTES_MAX, prefix);
    return 0;
}

struct notebook *
notebook_new(const struct notebook_settings *settings, struct kg_error *err)
{
    if (settings->prefix && check_prefix(settings->prefix, err) < 0)
        return NULL;
    KG_AUTO(notebook) notebook = KG_NEW(struct notebook);
    notebook->loop = settings->loop;
    notebook->face = settings->face;
    notebook->replay_ms = settings->replay_ms;
    notebook->hold_ms = settings->hold_ms;
    notebook->id_is_key = settings->id_is_key;
    notebook->prefix = settings->prefix ? kg_strdup(settings->prefix) : NULL;
    notebook->records_dir = kg_asprintf("%s/notebooks", settings->state_dir);
    notebook->started_wall_ms = clock_wall_ms();
    TAILQ_INIT(&notebook->sockets);
    TAILQ_INIT(&notebook->records);
    notebook->terminal_sessions = json_object();
    kernel_channels_init(&notebook->channels);
    budget_init(&notebook->contents, "notebook_contents_bytes", CONTENTS_HELD_MAX,
                CONTENTS_HELD_MAX / 2);
    return session_records_load(notebook, err) == 0 ? KG_STEAL(notebook) : NULL;
}

void
notebook_free(struct notebook *notebook)
{
    if (!notebook)
        return;
    kernel_channels_fini(&notebook->channels);
    kernel_sockets_close(notebook);
    session_records_free(notebook);
    budget_fini(&notebook->contents); // answers that are still being sent keep their shares
    for (size_t i = 0; notebook->prefixed && i < KG_ARRAY_LEN(routes); i++)
        free(notebook->prefixed[i]);
    json_decref(notebook->terminal_sessions);
    free(notebook->prefixed);
    free(notebook->records_dir);
    free(notebook->prefix);
    free(notebook);
}

void
notebook_disconnect(struct notebook *notebook)
{
    kernel_channels_refuse(&notebook->channels);
    kernel_sockets_close(notebook);
}

static void
add_route(struct notebook *notebook, struct http_server *server, struct http_route route)
{
    if (route.handler == handle_kernel_channels && notebook->id_is_key)
        route.flags |= HTTP_PUBLIC; // the handler checks the id
    http_server_add_routes(server, &route, 1, notebook);
}

void
notebook_serve_http(struct notebook *notebook, struct http_server *server)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(routes); i++)
        add_route(notebook, server, routes[i]);
    if (!notebook->prefix)
        return;
    notebook->prefixed = kg_calloc(KG_ARRAY_LEN(routes), sizeof *notebook->prefixed);
    for (size_t i = 0; i < KG_ARRAY_LEN(routes); i++) {
        struct http_route route = routes[i];
        notebook->prefixed[i] = kg_asprintf("%s%s", notebook->prefix, route.pattern);
        route.pattern = notebook->prefixed[i];
        add_route(notebook, server, route);
    }
}

// SPDX-License-Identifier: Apache-2.0
// Decides where a request is answered: here, or by the replica that holds what the request names.
#include <string.h>

#include "replicas_priv.h"

// What carries a replica's id at its end.
static bool
follow_id(struct replicas *replicas, struct http_request *request, const char *id)
{
    size_t len = id ? strlen(id) : 0;
    if (len <= PROVISIONER_REPLICA_ID_LEN)
        return false;
    const struct provisioner_place place = provisioner_replica_place(
        replicas->settings.provisioner, id + len - PROVISIONER_REPLICA_ID_LEN,
        PROVISIONER_REPLICA_ID_LEN);
    if (place.holder != HOLDER_OTHER)
        return false;
    replicas_send(replicas, request, &place, NULL);
    return true;
}

// The owner in a signed link counts, not the owner of the key that is sent with it. The holder
// checks the signature.
static const char *
owner_of(const struct http_request *request)
{
    const char *owner = NULL;
    if (begins(http_request_route(request), "/files/"))
        owner = http_request_query(request, "owner");
    if (!owner)
        owner = http_request_owner(request);
    return owner;
}

// Whether a request of that route names its session in its body.
static bool
has_body_of_session(const char *route)
{
    static const char *const routes[] = {"/api/v1/execute", "/api/v1/execute_sync",
                                         "/api/v1/sessions", "/mcp"};
    return is_among(route, routes, KG_ARRAY_LEN(routes));
}

static bool
on_request(struct http_request *request, void *arg)
{
    struct replicas *replicas = arg;
    const char *route = http_request_route(request);
    const char *mcp_session = http_request_header(request, "Mcp-Session-Id");
    const char *jupyter = replicas_jupyter_resource(replicas, route);
    int n_forwards = replicas_times_forwarded(replicas, request);
    bool is_list =
        strcmp(route, "/api/v1/sessions") == 0 && http_request_method(request) == HTTP_GET;
    if (n_forwards < 0 || (replicas->left && is_list)) {
        replicas_reply_lost(request);
        return true;
    }
    if (n_forwards > 0)
        http_request_set_forwarded(request);
    if (begins(route, "/api/v1/sessions/{id}") || begins(route, "/files/{id}"))
        return inquiry_start(replicas, request, owner_of(request),
                             http_request_param(request, "id"));
    if (begins(route, "/api/v1/executions/{id}"))
        return follow_id(replicas, request, http_request_param(request, "id"));
    if (strcmp(route, "/mcp") == 0 && mcp_session && n_forwards > 0)
        return false; // either the MCP session is here, or the session of the tool
    if (strcmp(route, "/mcp") == 0 && mcp_session && follow_id(replicas, request, mcp_session))
        return true;
    if (begins(route, "/messages"))
        return follow_id(replicas, request, http_request_query(request, "session_id"));
    if (jupyter)
        return replicas_on_jupyter_request(replicas, request, jupyter, n_forwards > 0);
    if (http_request_method(request) == HTTP_POST && has_body_of_session(route))
        return inquiry_start_by_body(replicas, request);
    if (is_list && n_forwards == 0) {
        survey_start_list(replicas, request);
        return true;
    }
    return false;
}

static bool
is_fellow(const struct sockaddr *from, void *arg)
{
    const struct replicas *replicas = arg;
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    size_t n = provisioner_other_replicas(replicas->settings.provisioner, places);
    for (size_t i = 0; i < n; i++)
        if (replicas_is_from(from, places[i].address))
            return true;
    return false;
}

struct replicas *
replicas_new(const struct replicas_settings *settings, struct http_server *server)
{
    struct replicas *replicas = KG_NEW(struct replicas);
    replicas->settings = *settings;
    replicas->server = server;
    http_server_set_forward(server, on_request, replicas);
    http_server_set_fellow(server, is_fellow, replicas);
    return replicas;
}

void
replicas_leave(struct replicas *replicas)
{
    replicas->left = true;
    replicas->left_ms = clock_mono_ms();
}

void
replicas_free(struct replicas *replicas)
{
    free(replicas);
}

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
    return replicas_follow(replicas, request, &place);
}

// Whether a request of that route is about sessions by its path.
static bool
names_session(const struct replicas *replicas, const char *route)
{
    return begins(route, "/api/v1/sessions") || begins(route, "/files/") ||
           replicas_jupyter_resource(replicas, route);
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
    const char *mark = http_request_header(request, FORWARDED_HEADER);
    const char *jupyter = replicas_jupyter_resource(replicas, route);
    bool is_mine =
        mark && strcmp(mark, provisioner_replica_id(replicas->settings.provisioner)) == 0;
    if ((mark && (!is_mine || replicas->left)) ||
        (replicas->left && names_session(replicas, route))) {
        replicas_refuse_lost(request);
        return true;
    }
    if (begins(route, "/api/v1/sessions/{id}") || begins(route, "/files/{id}"))
        return replicas_look(replicas, request, owner_of(request),
                             http_request_param(request, "id"));
    if (begins(route, "/api/v1/executions/{id}"))
        return follow_id(replicas, request, http_request_param(request, "id"));
    if (mark)
        http_request_set_forwarded(request);
    if (strcmp(route, "/mcp") == 0 && mcp_session && mark)
        return false; // either the MCP session is here, or the session of the tool
    if (strcmp(route, "/mcp") == 0 && mcp_session && follow_id(replicas, request, mcp_session))
        return true;
    if (begins(route, "/messages"))
        return follow_id(replicas, request, http_request_query(request, "session_id"));
    if (jupyter)
        return replicas_on_jupyter_request(replicas, request, jupyter, mark != NULL);
    if (http_request_method(request) == HTTP_POST && has_body_of_session(route))
        return replicas_look_by_body(replicas, request);
    if (strcmp(route, "/api/v1/sessions") == 0 && !mark) {
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
    http_server_set_forward(server, on_request, replicas);
    http_server_set_fellow(server, is_fellow, replicas);
    return replicas;
}

void
replicas_leave(struct replicas *replicas)
{
    replicas->left = true;
}

void
replicas_free(struct replicas *replicas)
{
    free(replicas);
}

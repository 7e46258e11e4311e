// SPDX-License-Identifier: Apache-2.0
// Decides where a request is answered: here, or by the replica that holds what the request names.
#include <string.h>

#include "replicas_priv.h"

// Where that is which carries a replica's id at its end.
static struct provisioner_place
place_of_id(const struct replicas *replicas, const char *id)
{
    const size_t own_len = PROVISIONER_REPLICA_ID_LEN;
    size_t len = id ? strlen(id) : 0;
    if (len <= own_len)
        return (struct provisioner_place){.holder = HOLDER_NOBODY};
    return provisioner_replica_place(replicas->settings.provisioner, id + len - own_len, own_len);
}

static bool
follow_id(struct replicas *replicas, struct http_request *request, const char *id)
{
    const struct provisioner_place place = place_of_id(replicas, id);
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
                                         "/api/v1/sessions"};
    return is_among(route, routes, KG_ARRAY_LEN(routes));
}

// What all replicas know together. One that has left no longer does.
static bool
list_of_all(struct replicas *replicas, struct http_request *request, const char *target)
{
    if (replicas->left)
        replicas_reply_lost(request);
    else
        survey_start_list(replicas, request, target);
    return true;
}

// ---- MCP ------------------------------------------------------------------------------------

static bool
is_list_of_sessions(struct http_request *request)
{
    static const char *const tools[] = {"list_sessions", "list_active_sessions"};
    json_auto_t *name = replicas_read_string(request, "params", "name");
    return name && is_among(json_string_value(name), tools, KG_ARRAY_LEN(tools));
}

static bool
is_cancellation(struct http_request *request)
{
    json_auto_t *method = replicas_read_string(request, "method", NULL);
    return method && strcmp(json_string_value(method), "notifications/cancelled") == 0;
}

// Whether the MCP session of a request has ended, or never was. Only its replica knows.
static bool
lacks_mcp_session(const struct replicas *replicas, const struct http_request *request,
                  const char *mcp_session, bool is_forwarded)
{
    const struct replicas_settings *settings = &replicas->settings;
    const char *owner = http_request_owner(request);
    if (!mcp_session || (is_forwarded && place_of_id(replicas, mcp_session).holder != HOLDER_SELF))
        return false;
    return !owner || !settings->use_mcp_session(owner, mcp_session, settings->arg);
}

// An MCP session is at one replica, and its tools where their sessions are.
static bool
on_mcp_request(struct replicas *replicas, struct http_request *request, const char *mcp_session,
               bool is_forwarded)
{
    if (mcp_session && !is_forwarded && follow_id(replicas, request, mcp_session))
        return true;
    if (http_request_method(request) != HTTP_POST ||
        lacks_mcp_session(replicas, request, mcp_session, is_forwarded))
        return false;
    if (is_list_of_sessions(request))
        return list_of_all(replicas, request, "/api/v1/sessions");
    if (is_cancellation(request)) {
        if (place_of_id(replicas, mcp_session).holder == HOLDER_SELF)
            survey_tell(replicas, request);
        return false;
    }
    return inquiry_start_by_body(replicas, request);
}

// ---- All requests ---------------------------------------------------------------------------

static bool
on_request(struct http_request *request, void *arg)
{
    struct replicas *replicas = arg;
    const char *route = http_request_route(request);
    const char *jupyter = replicas_jupyter_resource(replicas, route);
    int n_forwards = replicas_times_forwarded(replicas, request);
    if (n_forwards < 0) {
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
    if (strcmp(route, "/mcp") == 0)
        return on_mcp_request(replicas, request, http_request_header(request, "Mcp-Session-Id"),
                              n_forwards > 0);
    if (begins(route, "/messages"))
        return follow_id(replicas, request, http_request_query(request, "session_id"));
    if (jupyter)
        return replicas_on_jupyter_request(replicas, request, jupyter, n_forwards > 0);
    if (http_request_method(request) == HTTP_POST && has_body_of_session(route))
        return inquiry_start_by_body(replicas, request);
    if (strcmp(route, "/api/v1/sessions") == 0 && http_request_method(request) == HTTP_GET &&
        (n_forwards == 0 || replicas->left))
        return list_of_all(replicas, request, http_request_target(request));
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
replicas_leave(struct replicas *replicas, int64_t ends_ms)
{
    replicas->left = true;
    replicas->ends_ms = ends_ms;
}

void
replicas_free(struct replicas *replicas)
{
    free(replicas);
}

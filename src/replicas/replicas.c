// SPDX-License-Identifier: Apache-2.0
// Decides where a request is answered: here, or by the replica that holds what the request names.
#include <string.h>

#include "replicas_priv.h"
#include "sessions.h"

enum { INLINE_BODY_BYTES = 64 << 10 };

// A request whose session is being looked for.
struct inquiry {
    struct replicas *replicas;
    struct http_request *request;
    struct provisioner_search *search;
    struct loop_work *work; // reads the session's id in a large body
    bool of_mcp;
    char *body;
    size_t body_len;
    char owner[HTTP_OWNER_MAX + 1];
    char session_id[SESSION_MAX_ID_LEN + 1]; // empty: none
};

static void
inquiry_free(void *arg)
{
    struct inquiry *inquiry = arg;
    free(inquiry->body);
    free(inquiry);
}

static void
inquiry_on_gone(void *arg)
{
    struct inquiry *inquiry = arg;
    http_request_abandon(inquiry->request);
    if (inquiry->search)
        provisioner_search_cancel(inquiry->search);
    if (inquiry->work)
        loop_work_cancel(inquiry->work, inquiry_free);
    else
        inquiry_free(inquiry);
}

// ---- To where the session is ----------------------------------------------------------------

static void
reply_lost(struct http_request *request)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "the session is being taken over from a replica that has ended; try again");
    http_reply_error(request, &err);
}

// False: it is for this replica.
static bool
follow(struct replicas *replicas, struct http_request *request,
       const struct provisioner_place *place)
{
    switch (place->holder) {
    case HOLDER_NOBODY:
    case HOLDER_SELF:
        return false;
    case HOLDER_OTHER:
        if (http_request_header(request, FORWARDED_HEADER)) // the session has just left this one
            reply_lost(request);
        else
            forward_start(replicas, request, place);
        return true;
    case HOLDER_LOST:
        reply_lost(request);
        return true;
    }
    return false;
}

static void
on_found(const struct provisioner_place *place, const struct kg_error *err, void *arg)
{
    struct inquiry *inquiry = arg;
    struct http_request *request = inquiry->request;
    struct replicas *replicas = inquiry->replicas;
    http_request_on_gone(request, NULL, NULL);
    inquiry_free(inquiry);
    if (err)
        http_reply_error(request, err);
    else if (!follow(replicas, request, place))
        http_request_handle(request);
}

static bool
is_here(const struct replicas *replicas, const char *owner, const char *session_id)
{
    struct kg_error err = {0};
    return sessions_find(replicas->settings.sessions, owner, session_id, &err) ||
           err.code != KG_SESSION_NOT_FOUND;
}

// Looks in the cache, then asks the API server. False: the request is for this replica. Takes the
// inquiry.
static bool
look(struct inquiry *inquiry)
{
    struct replicas *replicas = inquiry->replicas;
    struct http_request *request = inquiry->request;
    struct provisioner *provisioner = replicas->settings.provisioner;
    struct provisioner_place place;
    struct kg_error err = {0};
    if (!inquiry->session_id[0] || is_here(replicas, inquiry->owner, inquiry->session_id)) {
        inquiry_free(inquiry);
        return false;
    }
    if (provisioner_session_place(provisioner, inquiry->owner, inquiry->session_id, &place)) {
        inquiry_free(inquiry);
        return follow(replicas, request, &place);
    }
    if (!http_request_owner(request)) { // a stranger costs no call of the API server
        inquiry_free(inquiry);
        return false;
    }
    inquiry->search = provisioner_search_start(provisioner, inquiry->owner, inquiry->session_id,
                                               on_found, inquiry, &err);
    if (inquiry->search) {
        http_request_on_gone(request, inquiry_on_gone, inquiry);
        return true;
    }
    inquiry_free(inquiry);
    http_reply_error(request, &err);
    return true;
}

static struct inquiry *
inquiry_new(struct replicas *replicas, struct http_request *request, const char *owner,
            const char *session_id)
{
    struct inquiry *inquiry = KG_NEW(struct inquiry);
    inquiry->replicas = replicas;
    inquiry->request = request;
    if (strlen(owner) < sizeof inquiry->owner)
        memcpy(inquiry->owner, owner, strlen(owner));
    if (session_id && inquiry->owner[0] && strlen(session_id) < sizeof inquiry->session_id)
        memcpy(inquiry->session_id, session_id, strlen(session_id));
    return inquiry;
}

// ---- The session that a body names ----------------------------------------------------------

// The body may be anything; the request's handler checks it. That of MCP names the session in the
// arguments of a tool.
void
replicas_read_session_id(bool of_mcp, const char *body, size_t body_len,
                         char ret[SESSION_MAX_ID_LEN + 1])
{
    static const char *const way[] = {"params", "arguments", "session_id"};
    const char *text = body;
    size_t len = body_len;
    for (size_t i = of_mcp ? 0 : KG_ARRAY_LEN(way) - 1; text && i < KG_ARRAY_LEN(way); i++)
        text = json_member(text, len, way[i], &len);
    // Only an id is decoded: each of its characters takes at most six ("\u0061").
    bool is_id = text && len <= 6 * SESSION_MAX_ID_LEN + 2 && *text == '"';
    json_auto_t *value = is_id ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    const char *id = json_string_value(value);
    ret[0] = '\0';
    if (id && strlen(id) <= SESSION_MAX_ID_LEN)
        memcpy(ret, id, strlen(id) + 1);
}

static void
on_worker(void *arg)
{
    struct inquiry *inquiry = arg;
    replicas_read_session_id(inquiry->of_mcp, inquiry->body, inquiry->body_len,
                             inquiry->session_id);
}

static void
on_body_read(void *arg)
{
    struct inquiry *inquiry = arg;
    struct http_request *request = inquiry->request;
    inquiry->work = NULL;
    free(KG_STEAL(inquiry->body));
    http_request_on_gone(request, NULL, NULL);
    if (!look(inquiry))
        http_request_handle(request);
}

static bool
look_by_body(struct replicas *replicas, struct http_request *request)
{
    size_t len;
    const char *body = http_request_body(request, &len);
    struct inquiry *inquiry = inquiry_new(replicas, request, http_request_owner(request), NULL);
    inquiry->of_mcp = strcmp(http_request_route(request), "/mcp") == 0;
    if (len <= INLINE_BODY_BYTES) {
        replicas_read_session_id(inquiry->of_mcp, body, len, inquiry->session_id);
        return look(inquiry);
    }
    inquiry->body = kg_realloc(NULL, len); // bounded by the server
    memcpy(inquiry->body, body, len);
    inquiry->body_len = len;
    inquiry->work = loop_work_start(replicas->settings.loop, loop_lane_of(inquiry->owner),
                                    on_worker, on_body_read, inquiry);
    http_request_on_gone(request, inquiry_on_gone, inquiry);
    return true;
}

// ---- Requests -------------------------------------------------------------------------------

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
    return follow(replicas, request, &place);
}

static bool
begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

// Whether a request of that route is about sessions by its path.
static bool
names_session(const char *route)
{
    return begins(route, "/api/v1/sessions") || begins(route, "/files/");
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
    return owner ? owner : "";
}

// Whether a request of that route names its session in its body.
static bool
has_body_of_session(const char *route)
{
    static const char *const routes[] = {"/api/v1/execute", "/api/v1/execute_sync",
                                         "/api/v1/sessions", "/mcp"};
    for (size_t i = 0; i < KG_ARRAY_LEN(routes); i++)
        if (strcmp(route, routes[i]) == 0)
            return true;
    return false;
}

static bool
on_request(struct http_request *request, void *arg)
{
    struct replicas *replicas = arg;
    const char *route = http_request_route(request);
    const char *mcp_session = http_request_header(request, "Mcp-Session-Id");
    const char *mark = http_request_header(request, FORWARDED_HEADER);
    bool is_mine =
        mark && strcmp(mark, provisioner_replica_id(replicas->settings.provisioner)) == 0;
    if ((mark && (!is_mine || replicas->left)) || (replicas->left && names_session(route))) {
        reply_lost(request);
        return true;
    }
    if (begins(route, "/api/v1/sessions/{id}") || begins(route, "/files/{id}"))
        return look(
            inquiry_new(replicas, request, owner_of(request), http_request_param(request, "id")));
    if (begins(route, "/api/v1/executions/{id}"))
        return follow_id(replicas, request, http_request_param(request, "id"));
    if (strcmp(route, "/mcp") == 0 && mcp_session)
        return follow_id(replicas, request, mcp_session);
    if (http_request_method(request) == HTTP_POST && has_body_of_session(route))
        return look_by_body(replicas, request);
    if (strcmp(route, "/api/v1/sessions") == 0 && !mark) {
        session_list_start(replicas, request);
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

// SPDX-License-Identifier: Apache-2.0
// Where the session is that a request names: here, or at the replica to which the request goes
// then.
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

void
replicas_refuse_lost(struct http_request *request)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "the session is being taken over from a replica that has ended; try again");
    http_reply_error(request, &err);
}

bool
replicas_follow(struct replicas *replicas, struct http_request *request,
                const struct provisioner_place *place)
{
    switch (place->holder) {
    case HOLDER_NOBODY:
    case HOLDER_SELF:
        return false;
    case HOLDER_OTHER:
        if (http_request_header(request, FORWARDED_HEADER)) // the session has just left this one
            replicas_refuse_lost(request);
        else
            forward_start(replicas, request, place);
        return true;
    case HOLDER_LOST:
        replicas_refuse_lost(request);
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
    else if (!replicas_follow(replicas, request, place))
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
        return replicas_follow(replicas, request, &place);
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
    if (owner && strlen(owner) < sizeof inquiry->owner)
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
    static const char *const way[] = {"params", "arguments"};
    const char *holder = body;
    size_t holder_len = body_len, len = 0;
    for (size_t i = 0; of_mcp && holder && i < KG_ARRAY_LEN(way); i++)
        holder = json_member(holder, holder_len, way[i], &holder_len);
    const char *text = holder ? json_member(holder, holder_len, "session_id", &len) : NULL;
    if (of_mcp && holder && !text) // of the tools of profile sandbox-mcp
        text = json_member(holder, holder_len, "sandbox_id", &len);
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

bool
replicas_look(struct replicas *replicas, struct http_request *request, const char *owner,
              const char *session_id)
{
    return look(inquiry_new(replicas, request, owner, session_id));
}

bool
replicas_look_by_body(struct replicas *replicas, struct http_request *request)
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

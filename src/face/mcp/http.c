// SPDX-License-Identifier: Apache-2.0
// The transport streamable HTTP, on /mcp: with MCP sessions, and stateless (2026-07-28).

#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"

// False: answered with an error.
static bool
check_version(struct http_request *request, const json_t *id)
{
    const char *version = http_request_header(request, MCP_VERSION_HEADER);
    if (!version || revision_find(version) >= 0)
        return true;
    mcp_http_answer_error(request, 400, id, MCP_INVALID_REQUEST,
                          "unsupported " MCP_VERSION_HEADER "; initialize returns a supported one");
    return false;
}

// The session that the headers name; NULL: answered with an error. Also refuses unknown versions.
static struct mcp_session *
session_of(struct mcp *mcp, struct http_request *request, const json_t *id)
{
    if (!check_version(request, id))
        return NULL;
    const char *header = http_request_header(request, MCP_SESSION_HEADER);
    if (!header) {
        mcp_http_answer_error(request, 400, id, MCP_INVALID_REQUEST,
                              MCP_SESSION_HEADER " is missing: send initialize first, and then the "
                                                 "id from its answer with every request");
        return NULL;
    }
    struct mcp_session *session = mcp_session_find(mcp, http_request_owner(request), header);
    if (!session)
        mcp_http_answer_error(request, 404, id, MCP_SESSION_UNKNOWN,
                              "this MCP session does not exist or has ended: initialize again");
    return session;
}

// ---- POST -----------------------------------------------------------------------------------

static void
post_initialize(struct mcp *mcp, struct http_request *request, struct received *received,
                const char *profile, struct accepted accepted)
{
    struct kg_error err = {0};
    struct mcp_session *session = mcp_session_new(mcp, http_request_owner(request), profile);
    session->base_url = mcp_http_base_url(request);
    if (mcp_session_register(session, &err) < 0) {
        mcp_session_close(session);
        http_reply_error(request, &err);
        return;
    }
    http_reply_header(request, MCP_SESSION_HEADER, session->id);
    mcp_receive(session, mcp_post_new(mcp, session, request, accepted), KG_STEAL(received->message),
                received->weights, NULL);
    if (!session->initialized)
        mcp_session_close(session);
}

// Handles a message or a batch within a session. `answers`: it contains requests.
static void
receive_in_session(struct mcp_session *session, struct http_request *request,
                   struct received *received, bool answers, struct accepted accepted)
{
    struct outlet *outlet = NULL;
    json_t *elsewhere = NULL;
    if (answers) {
        elsewhere = http_request_elsewhere(request);
        outlet = mcp_post_new(session->mcp, session, request, accepted);
    } else {
        http_reply(request, 202, NULL, NULL, 0);
    }
    mcp_receive(session, outlet, KG_STEAL(received->message), received->weights, elsewhere);
}

// Whether another replica has the request's MCP session, and has forwarded it to where the tool's
// session is.
static bool
is_of_guest(const struct mcp *mcp, const struct http_request *request)
{
    const char *id = http_request_header(request, MCP_SESSION_HEADER);
    return http_request_is_forwarded(request) && id && !mcp_made_id(mcp, id);
}

// Clients name the revision with each request since 2025-06-18; without a name it is 2025-03-26
// (2025-06-18, Transports, "Protocol Version Header").
static void
receive_of_guest(struct mcp *mcp, struct http_request *request, struct received *received,
                 const char *profile, struct accepted accepted)
{
    const char *version = http_request_header(request, MCP_VERSION_HEADER);
    if (!check_version(request, json_object_get(received->message, "id")))
        return;
    struct mcp_session *session = mcp_session_new(mcp, http_request_owner(request), profile);
    session->host_id = kg_strdup(http_request_header(request, MCP_SESSION_HEADER));
    session->initialized = true;
    session->revision = version ? (enum mcp_revision)revision_find(version) : MCP_2025_03_26;
    session->base_url = mcp_http_base_url(request);
    receive_in_session(session, request, received, true, accepted);
    mcp_session_release(session); // its call may have ended, or never begun
}

// Of a call of another replica's MCP session that may run here: HTTP_CONCERNS_EACH.
static void
notify_guests(struct mcp *mcp, struct http_request *request, const struct received *received)
{
    const char *owner = http_request_owner(request);
    const char *host_id = http_request_header(request, MCP_SESSION_HEADER);
    struct mcp_session *guest = NULL;
    while ((guest = mcp_session_next_guest(mcp, guest, owner, host_id)))
        mcp_receive(guest, NULL, json_deep_copy(received->message), NULL, NULL);
    http_reply(request, 202, NULL, NULL, 0);
}

static void
post_batch(struct mcp *mcp, struct http_request *request, struct received *received,
           struct accepted accepted)
{
    struct mcp_session *session = session_of(mcp, request, NULL);
    if (!session)
        return;
    if (!revision_get(session->revision)->batches) {
        mcp_http_answer_error(request, 400, NULL, MCP_INVALID_REQUEST,
                              "revision %s has no batches: send one message per body",
                              revision_get(session->revision)->name);
        return;
    }
    size_t n_requests;
    const char *why = mcp_batch_check(received->message, &n_requests);
    if (why)
        mcp_http_answer_error(request, 400, NULL, MCP_INVALID_REQUEST, "%s", why);
    else
        receive_in_session(session, request, received, n_requests > 0, accepted);
}

// Handles a message of 2026-07-28, which carries its own metadata.
static void
post_stateless(struct mcp *mcp, struct http_request *request, struct received *received,
               const char *profile, struct accepted accepted)
{
    if (mcp_headers_check(mcp, request, received->message, profile) < 0)
        return;
    if (!json_object_get(received->message, "id")) { // notifications have no effect any more
        http_reply(request, 202, NULL, NULL, 0);
        return;
    }
    KG_AUTO_FREE char *base_url = mcp_http_base_url(request);
    const struct origin origin = {
        .mcp = mcp,
        .owner = http_request_owner(request),
        .profile = profile,
        .base_url = base_url,
        .outlet = mcp_post_new(mcp, NULL, request, accepted),
        .weights = received->weights,
        .elsewhere = http_request_elsewhere(request),
    };
    mcp_dispatch_stateless(&origin, KG_STEAL(received->message));
}

static bool
claims_stateless_header(const struct http_request *request)
{
    int revision = revision_find(http_request_header(request, MCP_VERSION_HEADER));
    return revision >= 0 && revision_get((enum mcp_revision)revision)->stateless;
}

// Refuses a request whose header claims 2026-07-28 and whose body does not.
static void
refuse_missing_claim(struct http_request *request, const json_t *message)
{
    const char *method = rpc_string(message, "method");
    bool initialize = strcmp(method, "initialize") == 0;
    mcp_http_answer_error(request, 400, json_object_get(message, "id"),
                          initialize ? MCP_HEADER_MISMATCH : MCP_INVALID_PARAMS,
                          initialize ? "the revision in the header " MCP_VERSION_HEADER
                                       " has no initialize"
                                     : "_meta must carry " MCP_META "protocolVersion");
}

static void
post_message(struct mcp *mcp, struct http_request *request, struct received *received,
             const char *profile, struct accepted accepted)
{
    const char *why;
    const json_t *message = received->message;
    enum message_kind kind = rpc_kind(message, &why);
    bool is_request = kind == MESSAGE_REQUEST;
    struct mcp_session *session;
    if (kind == MESSAGE_INVALID)
        mcp_http_answer_error(request, 400, NULL, MCP_INVALID_REQUEST, "%s", why);
    else if (kind != MESSAGE_RESPONSE && mcp_claimed_version(message))
        post_stateless(mcp, request, received, profile, accepted);
    else if (is_request && claims_stateless_header(request))
        refuse_missing_claim(request, message);
    else if (is_request && strcmp(rpc_string(message, "method"), "initialize") == 0)
        post_initialize(mcp, request, received, profile, accepted);
    else if (is_request && is_of_guest(mcp, request))
        receive_of_guest(mcp, request, received, profile, accepted);
    else if (kind == MESSAGE_NOTIFICATION && is_of_guest(mcp, request))
        notify_guests(mcp, request, received);
    else if ((session = session_of(mcp, request, json_object_get(message, "id"))))
        receive_in_session(session, request, received, is_request, accepted);
}

static void
post_received(struct mcp *mcp, struct http_request *request, struct received *received)
{
    struct accepted accepted = mcp_http_accepted(request);
    const char *profile = mcp_http_profile(mcp, request);
    if (json_is_array(received->message))
        post_batch(mcp, request, received, accepted);
    else
        post_message(mcp, request, received, profile, accepted);
}

static void
handle_post(struct http_request *request, void *arg)
{
    struct mcp *mcp = arg;
    struct accepted accepted = mcp_http_accepted(request);
    if (!accepted.json && !accepted.stream) {
        mcp_http_answer_error(request, 406, NULL, MCP_INVALID_REQUEST,
                              "Accept must name application/json and text/event-stream");
        return;
    }
    if (!mcp_http_content_is_json(request)) {
        mcp_http_answer_error(request, 415, NULL, MCP_INVALID_REQUEST,
                              "Content-Type must be application/json");
        return;
    }
    if (mcp_http_profile(mcp, request))
        mcp_body_receive(mcp, request, post_received);
}

// ---- GET and DELETE -------------------------------------------------------------------------

// "3-17": event 17 of stream 3.
static bool
parse_event_id(const char *text, unsigned *ret_stream, unsigned *ret_seq)
{
    int used = 0;
    bool digits = strspn(text, "0123456789-") == strlen(text) && strlen(text) <= 21;
    return digits && sscanf(text, "%u-%u%n", ret_stream, ret_seq, &used) == 2 && !text[used];
}

static void
resume(struct mcp_session *session, struct http_request *request, const char *last_event_id)
{
    unsigned number = 0;
    unsigned seq = 0;
    struct sse *sse = NULL;
    if (parse_event_id(last_event_id, &number, &seq))
        sse = sse_find(session, number);
    if (sse && sse->kept)
        sse_connect(sse, request, seq);
    else
        mcp_http_answer_error(request, 400, NULL, MCP_INVALID_REQUEST,
                              "Last-Event-ID is unknown in this MCP session, or too old");
}

static void
handle_get(struct http_request *request, void *arg)
{
    struct mcp *mcp = arg;
    const char *accept = http_request_header(request, "Accept");
    bool streams = accept && strcasestr(accept, "text/event-stream");
    if (!streams || http_request_method(request) == HTTP_HEAD) {
        http_reply_header(request, "Allow", "POST, DELETE");
        mcp_http_answer_error(request, 405, NULL, MCP_INVALID_REQUEST,
                              "a GET must accept text/event-stream");
        return;
    }
    struct mcp_session *session = session_of(mcp, request, NULL);
    if (!session)
        return;
    const char *last_event_id = http_request_header(request, "Last-Event-ID");
    struct sse *news = (struct sse *)session->news;
    if (last_event_id) {
        resume(session, request, last_event_id);
    } else if (news && news->request) {
        mcp_http_answer_error(request, 409, NULL, MCP_INVALID_REQUEST,
                              "this MCP session already has a GET stream");
    } else {
        if (!news)
            news = mcp_session_stream(session, true);
        session->news = &news->base;
        sse_connect(news, request, news->last_seq);
        if (revision_get(session->revision)->priming_event)
            sse_prime(news);
    }
}

static void
handle_delete(struct http_request *request, void *arg)
{
    struct mcp *mcp = arg;
    struct mcp_session *session = session_of(mcp, request, NULL);
    if (!session)
        return;
    mcp_session_close(session);
    http_reply(request, 204, NULL, NULL, 0);
}

// An MCP session is at one gateway of an installation.
static const struct http_concern of_session[] = {
    {.kind = HTTP_CONCERNS_MADE, .part = HTTP_IN_HEADER, .name = MCP_SESSION_HEADER}, {0}};
static const struct http_concern of_old_session[] = {
    {.kind = HTTP_CONCERNS_MADE, .part = HTTP_IN_QUERY, .name = "session_id"}, {0}};
static const struct http_route routes[] = {
    {HTTP_GET, "/mcp", handle_get, HTTP_KEY_IN_QUERY, of_session},
    {HTTP_DELETE, "/mcp", handle_delete, HTTP_KEY_IN_QUERY, of_session},
    {HTTP_GET, "/sse", old_sse_handle_stream, HTTP_KEY_IN_QUERY, NULL},
    {HTTP_POST, "/messages/", old_sse_handle_message, HTTP_KEY_IN_QUERY, of_old_session},
    {HTTP_POST, "/messages", old_sse_handle_message, HTTP_KEY_IN_QUERY, of_old_session},
};

void
mcp_serve_http(struct mcp *mcp, struct http_server *server)
{
    const struct http_route post = {HTTP_POST, "/mcp", handle_post,
                                    HTTP_KEY_IN_QUERY | HTTP_CAN_MOVE, mcp->post_concerns};
    mcp_concerns_init(mcp);
    http_server_add_routes(server, &post, 1, mcp);
    http_server_add_routes(server, routes, KG_ARRAY_LEN(routes), mcp);
}

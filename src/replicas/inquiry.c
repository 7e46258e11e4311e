// SPDX-License-Identifier: Apache-2.0
// Where a session is that a request names: here, at another replica, or for the moment nowhere,
// since the replica that held it ends or has ended. Then the request waits until the session has
// arrived somewhere, so that clients do not notice that a replica is replaced.
#include <sodium.h>
#include <string.h>

#include "replicas_priv.h"
#include "sessions.h"

enum {
    INLINE_BODY_BYTES = 64 << 10, // names, paths and ids come in shorter ones
    WAIT_MS = 10000,
    LOOK_MS = 50,
    DIAL_AGAIN_MS = 250,
};

// A request whose session is being looked for.
struct inquiry {
    struct replicas *replicas;
    struct http_request *request;
    struct provisioner_search *search;
    struct loop_work *work;   // reads the session's id in a large body
    struct loop_timer *timer; // NULL: it has not waited
    int64_t until_ms;
    bool of_mcp;
    char *body;
    size_t body_len;
    char owner[HTTP_OWNER_MAX + 1];
    char session_id[SESSION_MAX_ID_LEN + 1]; // empty: none
};

static bool look(struct inquiry *inquiry);

static void
inquiry_free(void *arg)
{
    struct inquiry *inquiry = arg;
    if (!inquiry)
        return;
    loop_timer_free(inquiry->timer);
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

static void
look_or_handle(struct inquiry *inquiry)
{
    struct http_request *request = inquiry->request;
    http_request_on_gone(request, NULL, NULL);
    if (!look(inquiry))
        http_request_handle(request);
}

// ---- Waiting --------------------------------------------------------------------------------

static void
on_wait(void *arg)
{
    look_or_handle(arg);
}

static bool
ends_now(const struct replicas *replicas, int64_t now_ms)
{
    return replicas->left && now_ms >= replicas->ends_ms;
}

static void
wait_for(struct inquiry *inquiry, const struct kg_error *err, int64_t delay_ms)
{
    struct http_request *request = inquiry->request;
    const int64_t now_ms = clock_mono_ms();
    if (!inquiry->timer) {
        inquiry->timer = loop_timer_new(inquiry->replicas->settings.loop, on_wait, inquiry);
        inquiry->until_ms = now_ms + WAIT_MS;
    }
    if (now_ms >= inquiry->until_ms || ends_now(inquiry->replicas, now_ms)) {
        const struct kg_error answer = *err;
        inquiry_free(inquiry);
        http_reply_error(request, &answer);
        return;
    }
    http_request_on_gone(request, inquiry_on_gone, inquiry);
    loop_timer_start(inquiry->timer, delay_ms);
}

static void
wait_for_holder(struct inquiry *inquiry)
{
    struct kg_error err = {0};
    replicas_lost_error(&err);
    wait_for(inquiry, &err, LOOK_MS);
}

// ---- To where the session is ----------------------------------------------------------------

static void
on_unreachable(const struct kg_error *err, void *arg)
{
    wait_for(arg, err, DIAL_AGAIN_MS);
}

void
replicas_send(struct replicas *replicas, struct http_request *request,
              const struct provisioner_place *place, struct inquiry *inquiry)
{
    int n = replicas_times_forwarded(replicas, request) + 1;
    const struct forward_retry retry = {on_unreachable, inquiry_free, inquiry};
    if (n <= MAX_FORWARDS) {
        forward_start(replicas, request, place, n, inquiry ? &retry : NULL);
        return;
    }
    inquiry_free(inquiry);
    replicas_reply_lost(request);
}

// The API's work, and what begins at MCP.
static bool
starts_work(const struct http_request *request)
{
    return http_request_starts_work(request) || strcmp(http_request_route(request), "/mcp") == 0;
}

// This replica ends: another one, whichever, does the work. False: there is none. Takes the
// inquiry if there is.
static bool
send_elsewhere(struct inquiry *inquiry)
{
    struct replicas *replicas = inquiry->replicas;
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    size_t n = provisioner_other_replicas(replicas->settings.provisioner, places);
    if (!n)
        return false;
    replicas_send(replicas, inquiry->request, &places[randombytes_uniform((uint32_t)n)], inquiry);
    return true;
}

static bool
has_others(const struct replicas *replicas)
{
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    return provisioner_other_replicas(replicas->settings.provisioner, places) > 0;
}

// False: it is for this replica. Takes the inquiry.
static bool
follow(struct inquiry *inquiry, const struct provisioner_place *place)
{
    struct replicas *replicas = inquiry->replicas;
    bool ends = http_server_is_draining(replicas->server);
    switch (place->holder) {
    case HOLDER_NOBODY:
        if (ends && starts_work(inquiry->request) && send_elsewhere(inquiry))
            return true;
        break;
    case HOLDER_SELF: // while this replica ends, the session follows
        if (ends && has_others(replicas) && (replicas->left || starts_work(inquiry->request))) {
            wait_for_holder(inquiry);
            return true;
        }
        break;
    case HOLDER_OTHER:
        replicas_send(replicas, inquiry->request, place, inquiry);
        return true;
    case HOLDER_LOST:
        wait_for_holder(inquiry);
        return true;
    }
    inquiry_free(inquiry);
    return false;
}

static void
on_found(const struct provisioner_place *place, const struct kg_error *err, void *arg)
{
    struct inquiry *inquiry = arg;
    struct http_request *request = inquiry->request;
    inquiry->search = NULL;
    http_request_on_gone(request, NULL, NULL);
    if (err) {
        inquiry_free(inquiry);
        http_reply_error(request, err);
    } else if (!follow(inquiry, place)) {
        http_request_handle(request);
    }
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
    struct provisioner_place place = {.holder = HOLDER_NOBODY};
    struct kg_error err = {0};
    if (!inquiry->session_id[0])
        return follow(inquiry, &place);
    if (is_here(replicas, inquiry->owner, inquiry->session_id)) {
        place.holder = HOLDER_SELF;
        return follow(inquiry, &place);
    }
    if (provisioner_session_place(provisioner, inquiry->owner, inquiry->session_id, &place))
        return follow(inquiry, &place);
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

bool
inquiry_start(struct replicas *replicas, struct http_request *request, const char *owner,
              const char *session_id)
{
    return look(inquiry_new(replicas, request, owner, session_id));
}

// ---- The session that a body names ----------------------------------------------------------

json_t *
replicas_read_string(struct http_request *request, const char *name, const char *inner)
{
    size_t len;
    const char *text = http_request_body(request, &len);
    if (!text || len > INLINE_BODY_BYTES)
        return NULL;
    text = json_member(text, len, name, &len);
    if (text && inner)
        text = json_member(text, len, inner, &len);
    json_t *value = text ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    if (json_is_string(value))
        return value;
    json_decref(value);
    return NULL;
}

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
    inquiry->work = NULL;
    free(KG_STEAL(inquiry->body));
    look_or_handle(inquiry);
}

bool
inquiry_start_by_body(struct replicas *replicas, struct http_request *request)
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

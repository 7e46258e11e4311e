// SPDX-License-Identifier: Apache-2.0
// Where a session is that a request names: here, at another replica, or for the moment nowhere,
// since the replica that held it ends or has ended. Then the request waits until the session has
// arrived somewhere, so that clients do not notice that a replica is replaced.
#include <sodium.h>
#include <string.h>

#include "replicas_priv.h"
#include "sessions.h"

enum {
    WAIT_MS = 10000,
    LOOK_MS = 50,
    DIAL_AGAIN_MS = 250,
};

// A request whose session is being looked for.
struct lookup {
    struct replicas *replicas;
    struct http_request *request;
    struct provisioner_search *search;
    struct loop_timer *timer; // NULL: it has not waited
    int64_t until_ms;
    char owner[HTTP_OWNER_MAX + 1];
    char session_id[SESSION_MAX_ID_LEN + 1]; // empty: none
};

static bool look(struct lookup *lookup);

static void
lookup_free(void *arg)
{
    struct lookup *lookup = arg;
    if (!lookup)
        return;
    if (lookup->search)
        provisioner_search_cancel(lookup->search);
    loop_timer_free(lookup->timer);
    free(lookup);
}

static void
look_or_handle(struct lookup *lookup)
{
    struct http_request *request = lookup->request;
    http_request_disown(request);
    if (!look(lookup))
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
wait_for(struct lookup *lookup, const struct kg_error *err, int64_t delay_ms)
{
    struct http_request *request = lookup->request;
    const int64_t now_ms = clock_mono_ms();
    if (!lookup->timer) {
        lookup->timer = loop_timer_new(lookup->replicas->settings.loop, on_wait, lookup);
        lookup->until_ms = now_ms + WAIT_MS;
    }
    if (now_ms >= lookup->until_ms || ends_now(lookup->replicas, now_ms)) {
        const struct kg_error answer = *err;
        lookup_free(lookup);
        http_reply_error(request, &answer);
        return;
    }
    http_request_own(request, lookup, lookup_free);
    loop_timer_start(lookup->timer, delay_ms);
}

static void
wait_for_holder(struct lookup *lookup)
{
    struct kg_error err = {0};
    replicas_lost_error(&err);
    wait_for(lookup, &err, LOOK_MS);
}

// ---- To where the session is ----------------------------------------------------------------

static void
on_unreachable(const struct kg_error *err, void *arg)
{
    wait_for(arg, err, DIAL_AGAIN_MS);
}

void
replicas_send(struct replicas *replicas, struct http_request *request,
              const struct provisioner_place *place, struct lookup *lookup)
{
    int n = replicas_times_forwarded(replicas, request) + 1;
    const struct forward_retry retry = {on_unreachable, lookup_free, lookup};
    if (n <= MAX_FORWARDS) {
        forward_start(replicas, request, place, n, lookup ? &retry : NULL);
        return;
    }
    lookup_free(lookup);
    replicas_reply_lost(request);
}

// This replica is shutting down: any other one does the work. False: there is none. Takes the
// lookup if there is.
static bool
send_elsewhere(struct lookup *lookup)
{
    struct replicas *replicas = lookup->replicas;
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    size_t n = provisioner_other_replicas(replicas->settings.provisioner, places);
    if (!n)
        return false;
    replicas_send(replicas, lookup->request, &places[randombytes_uniform((uint32_t)n)], lookup);
    return true;
}

static bool
has_others(const struct replicas *replicas)
{
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    return provisioner_other_replicas(replicas->settings.provisioner, places) > 0;
}

// False: it is for this replica. Takes the lookup.
static bool
follow(struct lookup *lookup, const struct provisioner_place *place)
{
    struct replicas *replicas = lookup->replicas;
    bool ends = http_server_is_draining(replicas->server);
    switch (place->holder) {
    case HOLDER_NOBODY:
        if (ends && http_request_can_move(lookup->request) && send_elsewhere(lookup))
            return true;
        break;
    case HOLDER_SELF: // while this replica ends, the session follows
        if (ends && has_others(replicas) &&
            (replicas->left || http_request_can_move(lookup->request))) {
            wait_for_holder(lookup);
            return true;
        }
        break;
    case HOLDER_OTHER:
        replicas_send(replicas, lookup->request, place, lookup);
        return true;
    case HOLDER_LOST:
        wait_for_holder(lookup);
        return true;
    }
    lookup_free(lookup);
    return false;
}

static void
on_found(const struct provisioner_place *place, const struct kg_error *err, void *arg)
{
    struct lookup *lookup = arg;
    struct http_request *request = lookup->request;
    lookup->search = NULL;
    if (err) {
        http_reply_error(request, err);
        return;
    }
    http_request_disown(request);
    if (!follow(lookup, place))
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
// lookup.
static bool
look(struct lookup *lookup)
{
    struct replicas *replicas = lookup->replicas;
    struct http_request *request = lookup->request;
    struct provisioner *provisioner = replicas->settings.provisioner;
    struct provisioner_place place = {.holder = HOLDER_NOBODY};
    struct kg_error err = {0};
    if (!lookup->session_id[0])
        return follow(lookup, &place);
    if (is_here(replicas, lookup->owner, lookup->session_id)) {
        place.holder = HOLDER_SELF;
        return follow(lookup, &place);
    }
    if (provisioner_session_place(provisioner, lookup->owner, lookup->session_id, &place))
        return follow(lookup, &place);
    if (!http_request_owner(request)) { // a stranger costs no call of the API server
        lookup_free(lookup);
        return false;
    }
    lookup->search = provisioner_search_start(provisioner, lookup->owner, lookup->session_id,
                                              on_found, lookup, &err);
    if (lookup->search) {
        http_request_own(request, lookup, lookup_free);
        return true;
    }
    lookup_free(lookup);
    http_reply_error(request, &err);
    return true;
}

static struct lookup *
lookup_new(struct replicas *replicas, struct http_request *request, const char *owner,
           const char *session_id)
{
    struct lookup *lookup = KG_NEW(struct lookup);
    lookup->replicas = replicas;
    lookup->request = request;
    if (owner && strlen(owner) < sizeof lookup->owner)
        memcpy(lookup->owner, owner, strlen(owner));
    if (session_id && lookup->owner[0] && strlen(session_id) < sizeof lookup->session_id)
        memcpy(lookup->session_id, session_id, strlen(session_id));
    return lookup;
}

bool
lookup_start(struct replicas *replicas, struct http_request *request, const char *owner,
             const char *session_id)
{
    return look(lookup_new(replicas, request, owner, session_id));
}

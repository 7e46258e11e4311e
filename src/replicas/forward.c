// SPDX-License-Identifier: Apache-2.0
// One forwarded request: a connection to the other replica, to which the head and the body go, and
// from which the answer comes as it is. Each side waits for the other, so what is kept is bounded,
// and each side's end is the other's.
#include <string.h>

#include "http_client.h"
#include "pump.h"
#include "replicas_priv.h"

enum {
    DIAL_TIMEOUT_MS = 3000,
    LOOK_MS = 1000,
    ENDING_MS = 10000, // for an answer of a replica that has removed its Lease
    STATUS_LEN = 12,   // "HTTP/1.1 200"
};

struct forward {
    struct http_request *request;
    struct replicas *replicas;
    struct http_call *dial;
    struct http_pump *pump;  // NULL: there is no connection yet
    char *head;              // until then
    struct loop_timer *look; // whether the other replica lives
    int64_t until_ms;        // for an answer; 0: the replica does not end
    struct provisioner_place place;
    struct forward_retry retry; // `fn` NULL: there is no other place
    char first[STATUS_LEN];
    size_t n_first;
    bool started;  // the answer
    bool upgrades; // the client goes on to speak
};

static void
forward_free(void *arg)
{
    struct forward *forward = arg;
    http_call_cancel(forward->dial);
    http_pump_free(forward->pump);
    free(forward->head);
    loop_timer_free(forward->look);
    if (forward->retry.fn)
        forward->retry.discard(forward->retry.arg);
    free(forward);
}

static void
forward_fail(struct forward *forward, const char *why)
{
    struct http_request *request = forward->request;
    // What was not sent has not run, so another replica may get it.
    const struct forward_retry retry = forward->pump ? (struct forward_retry){0} : forward->retry;
    struct kg_error err = {0};
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "the replica that holds this does not answer (%s); if it has ended, another one "
                 "takes over within 20 seconds",
                 why);
    if (!retry.fn) {
        http_reply_error(request, &err);
        return;
    }
    http_request_disown(request);
    forward->retry.fn = NULL;
    forward_free(forward);
    retry.fn(&err, retry.arg);
}

// Of the other replica, or of the connection to it.
static void
forward_end(struct forward *forward, const char *why)
{
    if (forward->started)
        http_upgrade_end(forward->request);
    else
        forward_fail(forward, why);
}

// One that was stopped, or is cut off, keeps its connections. What it holds is taken over.
static void
on_look(void *arg)
{
    struct forward *forward = arg;
    const struct provisioner *provisioner = forward->replicas->settings.provisioner;
    const char *id = forward->place.id;
    const int64_t now_ms = clock_mono_ms();
    bool lives = provisioner_replica_place(provisioner, id, strlen(id)).holder == HOLDER_OTHER;
    if (lives)
        forward->until_ms = 0;
    else if (forward->until_ms == 0)
        forward->until_ms = now_ms + ENDING_MS;
    if (lives || (now_ms < forward->until_ms && !provisioner_replica_is_silent(provisioner, id)))
        loop_timer_start(forward->look, LOOK_MS);
    else
        forward_end(forward, "it does not renew its lease");
}

// ---- From the other replica -----------------------------------------------------------------

// The status of "HTTP/1.1 200 …"; 0: it is not one.
static int
status_of(const char first[STATUS_LEN])
{
    char digits[4] = {first[9], first[10], first[11], '\0'};
    if (memcmp(first, "HTTP/1.", 7) != 0 || first[8] != ' ' || strspn(digits, "0123456789") != 3)
        return 0;
    int status = atoi(digits);
    return status >= 100 && status < 600 ? status : 0;
}

// False: what comes is not an answer.
static bool
start_answer(struct forward *forward)
{
    int status = status_of(forward->first);
    if (status == 0)
        return false;
    forward->started = true;
    http_pump_tunnel(forward->pump, status, forward->upgrades);
    http_stream_write(forward->request, forward->first, sizeof forward->first);
    return true;
}

static bool
forward_on_data(const char *data, size_t len, void *arg)
{
    struct forward *forward = arg;
    if (!forward->started) {
        size_t room = sizeof forward->first - forward->n_first;
        size_t n = len < room ? len : room;
        memcpy(forward->first + forward->n_first, data, n);
        forward->n_first += n;
        if (forward->n_first < sizeof forward->first)
            return true;
        if (!start_answer(forward)) {
            forward_fail(forward, "its answer is not HTTP");
            return false;
        }
        data += n;
        len -= n;
    }
    http_stream_write(forward->request, data, len);
    return true;
}

static void
forward_on_end(const char *why, void *arg)
{
    forward_end(arg, why ? why : "it closed the connection");
}

static void
on_connected(int fd, const struct kg_error *err, void *arg)
{
    struct forward *forward = arg;
    forward->dial = NULL;
    if (fd < 0) {
        forward_fail(forward, err->message);
        return;
    }
    static const struct http_pump_events events = {forward_on_data, forward_on_end};
    forward->pump = http_pump_new(forward->replicas->settings.loop, forward->request, fd,
                                  forward->head, &events, forward);
}

void
forward_start(struct replicas *replicas, struct http_request *request,
              const struct provisioner_place *place, int n, const struct forward_retry *retry)
{
    struct forward *forward = KG_NEW(struct forward);
    KG_AUTO_FREE char *forwarded = replicas_forwarded_line(place, n);
    int port;
    KG_AUTO_FREE char *host = replicas_host(place->address, &port);
    const char *upgrade = http_request_header(request, "Upgrade");
    struct kg_error err = {0};
    forward->request = request;
    forward->replicas = replicas;
    forward->place = *place;
    if (retry)
        forward->retry = *retry;
    forward->upgrades = upgrade && http_upgrade_is_asked(request, upgrade);
    forward->look = loop_timer_new(replicas->settings.loop, on_look, forward);
    loop_timer_start(forward->look, LOOK_MS);
    const struct http_tunnel_rule rule = {.extra = forwarded,
                                          .upgrade = forward->upgrades ? upgrade : NULL};
    forward->head = http_tunnel_head(request, &rule);
    http_request_own(request, forward, forward_free);
    forward->dial = http_dial_start(replicas->settings.client, host, port, NULL, DIAL_TIMEOUT_MS,
                                    on_connected, forward, &err);
    if (!forward->dial)
        forward_fail(forward, err.message);
}

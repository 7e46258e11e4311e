// SPDX-License-Identifier: Apache-2.0
// One forwarded request: a connection to the other replica, to which the head and the body go, and
// from which the answer comes as it is. Each side waits for the other, so what is kept is bounded,
// and each side's end is the other's.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_client.h"
#include "replicas_priv.h"

enum {
    DIAL_TIMEOUT_MS = 3000,
    PIECE_BYTES = 64 << 10,
    HIGH_WATERMARK = 256 << 10,
    LOW_WATERMARK = 64 << 10,
    LOOK_MS = 1000,
    ENDING_MS = 10000, // for an answer of a replica that has removed its Lease
    STATUS_LEN = 12,   // "HTTP/1.1 200"
};

struct forward {
    struct http_request *request;
    struct replicas *replicas;
    struct http_call *dial;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *look; // whether the other replica lives
    int64_t until_ms;        // for an answer; 0: the replica does not end
    struct provisioner_place place;
    struct forward_retry retry; // `fn` NULL: there is no other place
    struct buf out;             // for the other replica
    size_t sent;                // of that
    char first[STATUS_LEN];
    size_t n_first;
    bool started;  // the answer
    bool upgrades; // the client goes on to speak
    bool full;     // the client does not read
};

// Shared by all: what is read is written or copied before the next read.
static char scratch[PIECE_BYTES];

static void
forward_free(void *arg)
{
    struct forward *forward = arg;
    http_call_cancel(forward->dial);
    loop_fd_free(forward->watch);
    loop_timer_free(forward->look);
    if (forward->fd >= 0)
        close(forward->fd);
    buf_fini(&forward->out);
    if (forward->retry.fn)
        forward->retry.discard(forward->retry.arg);
    free(forward);
}

static void
forward_fail(struct forward *forward, const char *why)
{
    struct http_request *request = forward->request;
    // What was not sent has not run, so another replica may get it.
    const struct forward_retry retry = forward->fd < 0 ? forward->retry : (struct forward_retry){0};
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

static void
update_watch(struct forward *forward)
{
    bool writes = forward->out.len > forward->sent;
    loop_fd_set(forward->watch, (forward->full ? 0 : LOOP_READ) | (writes ? LOOP_WRITE : 0));
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

// ---- To the other replica -------------------------------------------------------------------

static void
refill(struct forward *forward)
{
    struct http_request *request = forward->request;
    size_t n = http_request_body_read(request, scratch, sizeof scratch);
    forward->out.len = forward->sent = 0;
    if (n == 0 && forward->started && forward->upgrades)
        n = http_upgrade_read(request, scratch, sizeof scratch);
    buf_append(&forward->out, scratch, n);
}

// False: it has failed.
static bool
send_more(struct forward *forward)
{
    for (;;) {
        if (forward->out.len == forward->sent)
            refill(forward);
        if (forward->out.len == 0)
            return true;
        ssize_t n = send(forward->fd, forward->out.data + forward->sent,
                         forward->out.len - forward->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        forward->sent += (size_t)n;
    }
}

// More of the client's body has come. That the other replica does not take it is no failure: it may
// have refused the request, and its answer is there, too.
static void
on_client_body(void *arg)
{
    struct forward *forward = arg;
    if (!forward->watch || forward->out.len > forward->sent)
        return;
    if (!send_more(forward))
        forward->out.len = forward->sent = 0;
    update_watch(forward);
}

// The client goes on, or sends another request, which this connection will not answer.
static void
on_client_data(void *arg)
{
    struct forward *forward = arg;
    if (http_request_body_len(forward->request) > 0) {
        on_client_body(forward);
        return;
    }
    if (!forward->upgrades) {
        while (http_upgrade_read(forward->request, scratch, sizeof scratch) > 0)
            ;
        return;
    }
    if (forward->out.len > forward->sent) // at most 64 KiB wait in the connection
        return;
    if (send_more(forward))
        update_watch(forward);
    else
        forward_end(forward, strerror(errno));
}

// ---- From the other replica -----------------------------------------------------------------

static void
on_client_drained(void *arg)
{
    struct forward *forward = arg;
    forward->full = false;
    update_watch(forward);
}

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
    http_tunnel_start(forward->request, status, on_client_data, forward);
    http_stream_on_drain(forward->request, LOW_WATERMARK, on_client_drained, forward);
    http_stream_write(forward->request, forward->first, sizeof forward->first);
    return true;
}

// False: it has ended.
static bool
take_answer(struct forward *forward, const char *data, size_t len)
{
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
    forward->full = http_stream_backlog(forward->request) > HIGH_WATERMARK;
    return true;
}

static void
on_socket(int fd, int events, void *arg)
{
    struct forward *forward = arg;
    if (events & LOOP_READ) {
        ssize_t n = recv(fd, scratch, sizeof scratch, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            forward_end(forward, n == 0 ? "it closed the connection" : strerror(errno));
            return;
        }
        if (n > 0 && !take_answer(forward, scratch, (size_t)n))
            return;
    }
    // It may refuse a body before it has read all of it: then its answer is there, too.
    if (!send_more(forward))
        forward->out.len = forward->sent = 0;
    update_watch(forward);
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
    forward->fd = fd;
    forward->watch = loop_fd_new(forward->replicas->settings.loop, fd, LOOP_READ | LOOP_WRITE,
                                 on_socket, forward);
}

void
forward_start(struct replicas *replicas, struct http_request *request,
              const struct provisioner_place *place, int n, const struct forward_retry *retry)
{
    struct forward *forward = KG_NEW(struct forward);
    KG_AUTO_FREE char *forwarded = replicas_forwarded_line(place, n);
    KG_AUTO_FREE char *head = http_tunnel_head(request, forwarded);
    int port;
    KG_AUTO_FREE char *host = replicas_host(place->address, &port);
    const char *upgrade = http_request_header(request, "Upgrade");
    struct kg_error err = {0};
    forward->request = request;
    forward->replicas = replicas;
    forward->fd = -1;
    forward->place = *place;
    if (retry)
        forward->retry = *retry;
    forward->upgrades = upgrade && http_upgrade_is_asked(request, upgrade);
    forward->look = loop_timer_new(replicas->settings.loop, on_look, forward);
    loop_timer_start(forward->look, LOOK_MS);
    buf_append_str(&forward->out, head);
    http_request_own(request, forward, forward_free);
    http_request_on_body(request, on_client_body, forward);
    forward->dial = http_dial_start(replicas->settings.client, host, port, NULL, DIAL_TIMEOUT_MS,
                                    on_connected, forward, &err);
    if (!forward->dial)
        forward_fail(forward, err.message);
}

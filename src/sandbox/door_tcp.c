// SPDX-License-Identifier: Apache-2.0
// A door through which the gateway dials the agent: one TCP connection for each link. The agent
// begins with a challenge, which the gateway signs together with its request (link_hello.h).
#include "door_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link_hello.h"

enum {
    MAX_DIALS = 8, // at a time: a quarter of the agent's connections without a hello (listener.c)
    GREETING_MS = 5000, // for the connection and the challenge
    RETRY_MIN_MS = 20,
    RETRY_MAX_MS = 320,
    WAYS_OUT = 8,
    WAYS_FOR_TOOLS = 2, // where code can do nothing else with them
    WAY_OUT_TIMEOUT_MS = 10 * 1000,
    WAY_OUT_PAUSE_MS = 20, // bounds how often an agent makes the gateway dial
    ALIVE_IDLE_S = 15,
    ALIVE_INTERVAL_S = 5,
    ALIVE_PROBES = 3,
};

// A connection that waits for its challenge; the first call that waits then takes it.
struct dial {
    TAILQ_ENTRY(dial) entry;
    struct door_tcp *door;
    int fd;
    bool connected;
    uint64_t epoch;
    struct loop_fd *watch;
    struct loop_timer *timer;
    unsigned char challenge[LINK_CHALLENGE_LEN];
    size_t len;
};

// A link that waits until the sandbox sends on it: being opened (`call`), open (`fd`), or neither.
struct way_out {
    struct door_tcp *door;
    struct door_call *call;
    int fd;
    struct loop_fd *watch;
};

struct door_tcp {
    struct door base;
    struct door_tcp_settings settings;
    TAILQ_HEAD(, dial) dials;
    size_t n_dials;
    struct loop_timer *retry;
    int64_t retry_ms;
    struct way_out ways[WAYS_OUT];
    struct loop_timer *open_ways;
};

static void tcp_serve(struct door *base);

// ---- Dialling -------------------------------------------------------------------------------

// Returns the connection's descriptor.
static int
dial_release(struct dial *dial)
{
    int fd = dial->fd;

    TAILQ_REMOVE(&dial->door->dials, dial, entry);
    dial->door->n_dials--;
    loop_fd_free(dial->watch);
    loop_timer_free(dial->timer);
    free(dial);
    return fd;
}

static void
retry_later(struct door_tcp *door)
{
    if (loop_timer_active(door->retry))
        return;
    loop_timer_start(door->retry, door->retry_ms);
    door->retry_ms = door->retry_ms * 2 < RETRY_MAX_MS ? door->retry_ms * 2 : RETRY_MAX_MS;
}

static void
dial_failed(void *arg)
{
    struct dial *dial = arg;
    struct door_tcp *door = dial->door;

    close(dial_release(dial));
    retry_later(door);
}

static struct door_call *
first_waiting(const struct door_tcp *door)
{
    struct door_call *call;

    TAILQ_FOREACH(call, &door->base.calls, entry) {
        if (call->fd < 0)
            return call;
    }
    return NULL;
}

static void
dial_greeted(struct dial *dial)
{
    struct door_tcp *door = dial->door;
    struct door_call *call = first_waiting(door);
    unsigned char message[LINK_HELLO_TCP_LEN];
    struct link_hello_tcp hello = {.epoch = dial->epoch};

    door->retry_ms = RETRY_MIN_MS;
    if (!call) { // it was cancelled
        close(dial_release(dial));
        return;
    }
    memcpy(hello.sandbox, door->settings.sandbox, strlen(door->settings.sandbox));
    memcpy(hello.target, call->target, strlen(call->target));
    link_hello_sign(&hello, dial->challenge, door->settings.key, message);
    // An empty socket takes all of it.
    ssize_t sent = send(dial->fd, message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != (ssize_t)sizeof message) {
        dial_failed(dial);
        return;
    }
    door_call_asked(call, dial_release(dial));
    tcp_serve(&door->base);
}

static bool
has_connected(struct dial *dial)
{
    const int on = 1, idle = ALIVE_IDLE_S, interval = ALIVE_INTERVAL_S, probes = ALIVE_PROBES;
    int failure = 0;
    socklen_t len = sizeof failure;

    // A machine that is switched off does not close its connections.
    return getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &failure, &len) == 0 && failure == 0 &&
           setsockopt(dial->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
           setsockopt(dial->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0 &&
           setsockopt(dial->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0 &&
           setsockopt(dial->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval) == 0 &&
           setsockopt(dial->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) == 0;
}

static void
on_dial_fd(int fd, int events, void *arg)
{
    struct dial *dial = arg;
    (void)events;

    if (!dial->connected) {
        dial->connected = true;
        if (has_connected(dial))
            loop_fd_set(dial->watch, LOOP_READ);
        else
            dial_failed(dial);
        return;
    }
    // Bytes after the challenge stay in the socket.
    ssize_t n =
        recv(fd, dial->challenge + dial->len, sizeof dial->challenge - dial->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        dial->len += (size_t)n;
    if (n <= 0 || !link_challenge_check(dial->challenge, dial->len))
        dial_failed(dial);
    else if (dial->len == sizeof dial->challenge)
        dial_greeted(dial);
}

static int
dial_start(struct door_tcp *door)
{
    uint64_t epoch = 0;
    int fd = door->settings.dial(&epoch, door->settings.arg);

    if (fd < 0)
        return -1;
    struct dial *dial = KG_NEW(struct dial);
    dial->door = door;
    dial->fd = fd;
    dial->epoch = epoch;
    dial->watch = loop_fd_new(door->base.loop, fd, LOOP_WRITE, on_dial_fd, dial);
    dial->timer = loop_timer_new(door->base.loop, dial_failed, dial);
    loop_timer_start(dial->timer, GREETING_MS);
    TAILQ_INSERT_TAIL(&door->dials, dial, entry);
    door->n_dials++;
    return 0;
}

static void
tcp_serve(struct door *base)
{
    struct door_tcp *door = (struct door_tcp *)base;
    const struct door_call *call;
    size_t n_waiting = 0;

    if (loop_timer_active(door->retry))
        return;
    TAILQ_FOREACH(call, &base->calls, entry)
        n_waiting += call->fd < 0;
    while (door->n_dials < n_waiting && door->n_dials < MAX_DIALS) {
        if (dial_start(door) != 0) {
            retry_later(door);
            return;
        }
    }
}

static void
on_retry(void *arg)
{
    tcp_serve(arg);
}

// ---- The way out ----------------------------------------------------------------------------

static void
way_close(struct way_out *way)
{
    door_call_cancel(KG_STEAL(way->call));
    loop_fd_free(KG_STEAL(way->watch));
    if (way->fd >= 0)
        close(KG_STEAL_FD(way->fd));
}

static void
open_ways_later(struct door_tcp *door)
{
    if (!loop_timer_active(door->open_ways))
        loop_timer_start(door->open_ways, WAY_OUT_PAUSE_MS);
}

// The sandbox has sent something, or the link has ended.
static void
on_way_fd(int fd, int events, void *arg)
{
    struct way_out *way = arg;
    struct door_tcp *door = way->door;
    char hello[LINK_HELLO_LEN];
    (void)events;

    // The agent sends its hello in one piece. Bytes after it are the program's and stay in the
    // socket.
    ssize_t n = recv(fd, hello, sizeof hello, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    open_ways_later(door);
    const struct door_events *to = &door->base.events;
    enum link_hello kind = n > 0 ? link_hello_check(hello, (size_t)n) : LINK_HELLO_BAD;
    void (*fn)(int fd, void *arg) = kind == LINK_HELLO_DIAL_DONE    ? to->on_way_out
                                    : kind == LINK_HELLO_TOOLS_DONE ? to->on_tools
                                                                    : NULL;
    if (!fn) {
        way_close(way);
        return;
    }
    loop_fd_free(KG_STEAL(way->watch));
    fn(KG_STEAL_FD(way->fd), to->arg);
}

static void
on_way_opened(int fd, const struct kg_error *err, void *arg)
{
    struct way_out *way = arg;
    (void)err;

    way->call = NULL;
    if (fd < 0) {
        open_ways_later(way->door);
        return;
    }
    way->fd = fd;
    way->watch = loop_fd_new(way->door->base.loop, fd, LOOP_READ, on_way_fd, way);
}

static void
on_open_ways(void *arg)
{
    struct door_tcp *door = arg;

    size_t n = door->base.events.on_way_out ? WAYS_OUT : WAYS_FOR_TOOLS;
    for (size_t i = 0; i < n; i++) {
        struct way_out *way = &door->ways[i];
        if (!way->call && way->fd < 0)
            way->call = door_open(&door->base, "egress", WAY_OUT_TIMEOUT_MS, on_way_opened, way);
    }
}

// The first link shows that the agent listens.
static void
tcp_opened(struct door *base)
{
    struct door_tcp *door = (struct door_tcp *)base;

    if ((base->events.on_way_out || base->events.on_tools) && !loop_timer_active(door->open_ways))
        loop_timer_start(door->open_ways, 0);
}

// ---- Its life -------------------------------------------------------------------------------

static void
tcp_fini(struct door *base)
{
    struct door_tcp *door = (struct door_tcp *)base;
    struct dial *dial;

    for (size_t i = 0; i < WAYS_OUT; i++)
        way_close(&door->ways[i]);
    while ((dial = TAILQ_FIRST(&door->dials)))
        close(dial_release(dial));
    loop_timer_free(door->retry);
    loop_timer_free(door->open_ways);
}

static const struct door_ops tcp_ops = {tcp_serve, tcp_opened, tcp_fini};

struct door *
door_tcp_new(struct loop *loop, const struct door_tcp_settings *settings,
             const struct door_events *events)
{
    struct door_tcp *door = KG_NEW(struct door_tcp);

    door_init(&door->base, &tcp_ops, loop, events);
    door->settings = *settings;
    TAILQ_INIT(&door->dials);
    door->retry = loop_timer_new(loop, on_retry, door);
    door->retry_ms = RETRY_MIN_MS;
    door->open_ways = loop_timer_new(loop, on_open_ways, door);
    for (size_t i = 0; i < WAYS_OUT; i++)
        door->ways[i] = (struct way_out){.door = door, .fd = -1};
    return &door->base;
}

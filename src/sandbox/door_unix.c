// SPDX-License-Identifier: Apache-2.0
// A door that the agent dials: a Unix socket for each sandbox.
#include "door_priv.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_LINKS = 16,
    ACCEPTS_PER_S = 50,
    COST_OF_LINK = 1000, // in thousandths, as tokens are counted
    COST_OF_CLOSED = 100,
    TOKENS_MAX = ACCEPTS_PER_S * COST_OF_LINK,
    PAUSE_MS = 100,
    HELLO_MS = 2000,
};

// Idle once it has sent its hello: `timer` is then NULL.
struct link {
    TAILQ_ENTRY(link) entry;
    struct door_unix *door;
    int fd;
    pid_t peer;
    struct loop_fd *watch;
    struct loop_timer *timer;
    char hello[LINK_HELLO_LEN];
    size_t len;
};

struct door_unix {
    struct door base;
    char *path; // NULL: the socket is another process's
    int fd;     // -1: it has not come yet
    struct loop_fd *watch;
    struct loop_timer *pause;
    TAILQ_HEAD(, link) links;
    int n_links;
    // The first peer with a hello that may be the agent; 0: unknown (another PID namespace).
    pid_t agent;
    int64_t tokens; // thousandths of an accept
    int64_t refilled_ms;
};

// Returns the link's descriptor.
static int
link_release(struct link *link)
{
    int fd = link->fd;

    TAILQ_REMOVE(&link->door->links, link, entry);
    link->door->n_links--;
    loop_fd_free(link->watch);
    loop_timer_free(link->timer);
    free(link);
    return fd;
}

static void
link_close(struct link *link)
{
    close(link_release(link));
}

static void
on_hello_timeout(void *arg)
{
    link_close(arg);
}

// The agent is process 1 of its PID namespace. In a sandbox that is adopted, a tenant's code
// already runs and may dial first. If this cannot be determined, the peer may be the agent: a
// process of another namespace has no number here, /proc may hide it, and the tests' agent is in
// our namespace. The agent lives as long as its sandbox, so a peer that has ended (its children
// hold the socket) is not the agent.
static bool
may_be_agent(pid_t pid)
{
    enum { STATUS_MAX = 16 << 10 };
    KG_AUTO_BUF status = {0};
    KG_AUTO_FREE char *path = kg_asprintf("/proc/%d/status", (int)pid);
    if (pid <= 0)
        return true;
    if (file_read(path, STATUS_MAX, &status, NULL) < 0)
        return kill(pid, 0) == 0 || errno != ESRCH;
    const char *numbers = strstr(status.data, "\nNSpid:\t");
    if (!numbers)
        return true;
    KG_AUTO_FREE char *line = kg_strndup(numbers + 1, strcspn(numbers + 1, "\n"));
    const char *innermost = strrchr(line, '\t');
    return innermost == strchr(line, '\t') || strcmp(innermost, "\t1") == 0;
}

static bool
is_welcome(const struct door_unix *door, pid_t peer)
{
    return door->agent ? peer == door->agent : may_be_agent(peer);
}

static struct link *
find_idle(const struct door_unix *door)
{
    struct link *link;

    TAILQ_FOREACH(link, &door->links, entry) {
        if (!link->timer)
            return link;
    }
    return NULL;
}

// Requests the call's target on the first idle link that takes it.
static void
ask(struct door_unix *door, struct door_call *call)
{
    char line[LINK_TARGET_MAX + 1];
    size_t len = strlen(call->target);
    struct link *link;

    memcpy(line, call->target, len);
    line[len] = '\n';
    while ((link = find_idle(door))) {
        int fd = link_release(link);
        if (send(fd, line, len + 1, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len + 1) {
            door_call_asked(call, fd);
            return;
        }
        close(fd);
    }
}

static void
serve(struct door *base)
{
    struct door_unix *door = (struct door_unix *)base;
    struct door_call *call;

    TAILQ_FOREACH(call, &base->calls, entry) {
        if (call->fd < 0)
            ask(door, call);
    }
}

// A link that was used does not count against the pace.
static void
opened(struct door *base)
{
    struct door_unix *door = (struct door_unix *)base;

    if (door->tokens < TOKENS_MAX)
        door->tokens += COST_OF_LINK;
}

static void
link_greeted(struct link *link)
{
    struct door_unix *door = link->door;

    // The peer may have ended since it dialled.
    if (!is_welcome(door, link->peer)) {
        link_close(link);
        return;
    }
    loop_timer_free(KG_STEAL(link->timer));
    door->agent = link->peer;
    serve(&door->base);
}

// The sandbox sends next.
static void
link_dials(struct link *link, bool for_tools)
{
    struct door_unix *door = link->door;
    const struct door_events *events = &door->base.events;
    void (*fn)(int fd, void *arg) = for_tools ? events->on_tools : events->on_way_out;

    if (!fn || !is_welcome(door, link->peer)) {
        link_close(link);
        return;
    }
    fn(link_release(link), events->arg);
}

static void
on_link_fd(int fd, int events, void *arg)
{
    struct link *link = arg;
    (void)events;

    // Bytes after the hello of a connection out stay in the socket, for its new owner. An idle link
    // sends nothing.
    char bytes[LINK_HELLO_LEN];
    ssize_t n = recv(fd, bytes, link->timer ? sizeof bytes - link->len : 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !link->timer) {
        link_close(link);
        return;
    }
    memcpy(link->hello + link->len, bytes, (size_t)n);
    link->len += (size_t)n;
    switch (link_hello_check(link->hello, link->len)) {
    case LINK_HELLO_BAD:
        link_close(link);
        break;
    case LINK_HELLO_MORE:
        break;
    case LINK_HELLO_DONE:
        link_greeted(link);
        break;
    case LINK_HELLO_DIAL_DONE:
        link_dials(link, false);
        break;
    case LINK_HELLO_TOOLS_DONE:
        link_dials(link, true);
        break;
    }
}

// Those of tools need no place among the idle links: many may come at once, and each leaves in the
// next turn.
static bool
is_for_tools(int fd)
{
    char hello[LINK_HELLO_LEN];
    ssize_t n = recv(fd, hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 && link_hello_check(hello, (size_t)n) == LINK_HELLO_TOOLS_DONE;
}

// Returns its cost in tokens. Closing a link at once costs little, and keeps the queue short in
// which the agent waits too.
static int64_t
link_add(struct door_unix *door, int fd)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 ||
        (door->n_links >= MAX_LINKS && !is_for_tools(fd)) || !is_welcome(door, peer.pid)) {
        close(fd);
        return COST_OF_CLOSED;
    }
    struct link *link = KG_NEW(struct link);
    link->door = door;
    link->fd = fd;
    link->peer = peer.pid;
    link->watch = loop_fd_new(door->base.loop, fd, LOOP_READ, on_link_fd, link);
    link->timer = loop_timer_new(door->base.loop, on_hello_timeout, link);
    loop_timer_start(link->timer, HELLO_MS);
    TAILQ_INSERT_TAIL(&door->links, link, entry);
    door->n_links++;
    return COST_OF_LINK;
}

static void
refill(struct door_unix *door)
{
    int64_t now = clock_mono_ms();

    door->tokens += (now - door->refilled_ms) * ACCEPTS_PER_S * COST_OF_LINK / 1000;
    if (door->tokens > TOKENS_MAX)
        door->tokens = TOKENS_MAX;
    door->refilled_ms = now;
}

static void
on_door(int fd, int events, void *arg)
{
    struct door_unix *door = arg;
    (void)events;

    refill(door);
    while (door->tokens >= COST_OF_LINK) {
        int link = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (link < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return;
        if (link < 0) {
            log_warning("cannot accept a link", LOG_INT("errno", errno));
            break;
        }
        door->tokens -= link_add(door, link);
    }
    loop_fd_set(door->watch, 0);
    loop_timer_start(door->pause, PAUSE_MS);
}

static void
on_pause_over(void *arg)
{
    struct door_unix *door = arg;
    loop_fd_set(door->watch, LOOP_READ);
}

static void
close_socket(struct door_unix *door)
{
    loop_timer_stop(door->pause);
    loop_fd_free(KG_STEAL(door->watch));
    if (door->fd >= 0)
        close(KG_STEAL_FD(door->fd));
}

static void
fini(struct door *base)
{
    struct door_unix *door = (struct door_unix *)base;
    struct link *link;

    while ((link = TAILQ_FIRST(&door->links)))
        link_close(link);
    close_socket(door);
    loop_timer_free(door->pause);
    if (door->path)
        (void)unlink(door->path);
    free(door->path);
}

static const struct door_ops unix_ops = {serve, opened, fini};

void
door_unix_listen(struct door *base, int fd)
{
    struct door_unix *door = (struct door_unix *)base;
    assert(base->ops == &unix_ops);
    close_socket(door);
    door->fd = fd;
    door->watch = loop_fd_new(base->loop, fd, LOOP_READ, on_door, door);
}

struct door *
door_unix_new(struct loop *loop, const char *path, const struct door_events *events,
              struct kg_error *err)
{
    // The sandbox's user is not the gateway's.
    int fd = path ? unix_listen(path, SOCK_STREAM, 0666, DOOR_BACKLOG, err) : -1;

    if (path && fd < 0)
        return NULL;
    struct door_unix *door = KG_NEW(struct door_unix);
    door_init(&door->base, &unix_ops, loop, events);
    door->path = path ? kg_strdup(path) : NULL;
    door->fd = -1;
    door->tokens = TOKENS_MAX;
    door->refilled_ms = clock_mono_ms();
    TAILQ_INIT(&door->links);
    door->pause = loop_timer_new(loop, on_pause_over, door);
    if (fd >= 0)
        door_unix_listen(&door->base, fd);
    return &door->base;
}

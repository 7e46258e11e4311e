// SPDX-License-Identifier: Apache-2.0
// Accepting gateways over TCP.
#include "listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_GUESTS = 32,
    HELLO_MS = 5000,
    BACKLOG = 64,
    ACCEPTS_PER_TURN = 8,
    PAUSE_MS = 100,
    ALIVE_IDLE_S = 15,
    ALIVE_INTERVAL_S = 5,
    ALIVE_PROBES = 3,
    UNSENT_MAX = 128 * 1024,
};

static const char overtaken[] = "ERR overtaken: another gateway holds this sandbox\n";

// A connection whose hello has not come yet.
struct guest {
    TAILQ_ENTRY(guest) entry;
    struct listener *listener;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *timer;
    unsigned char challenge[LINK_CHALLENGE_LEN];
    unsigned char hello[LINK_HELLO_TCP_LEN];
    size_t len;
};

struct listener {
    struct loop *loop;
    struct listener_settings settings;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *pause;
    TAILQ_HEAD(guest_list, guest) guests; // the one that has waited longest first
    int n_guests;
    uint64_t epoch; // the highest that was seen
};

// Returns the connection's descriptor.
static int
guest_release(struct guest *guest)
{
    int fd = guest->fd;

    TAILQ_REMOVE(&guest->listener->guests, guest, entry);
    guest->listener->n_guests--;
    loop_fd_free(guest->watch);
    loop_timer_free(guest->timer);
    free(guest);
    return fd;
}

static void
guest_close(void *arg)
{
    close(guest_release(arg));
}

static void
guest_greeted(struct guest *guest)
{
    struct listener *listener = guest->listener;
    const struct listener_settings *settings = &listener->settings;
    struct link_hello_tcp hello;

    if (link_hello_open(guest->hello, guest->challenge, settings->public_key, &hello) != 0 ||
        strcmp(hello.sandbox, settings->sandbox) != 0) {
        guest_close(guest);
        return;
    }
    if (hello.epoch < listener->epoch) {
        (void)send(guest->fd, overtaken, sizeof overtaken - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        guest_close(guest);
        return;
    }
    listener->epoch = hello.epoch;
    settings->on_link(guest_release(guest), hello.epoch, hello.target, settings->arg);
}

static void
on_guest(int fd, int events, void *arg)
{
    struct guest *guest = arg;
    (void)events;

    // No byte more than the hello has.
    ssize_t n = recv(fd, guest->hello + guest->len, sizeof guest->hello - guest->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        guest_close(guest);
        return;
    }
    guest->len += (size_t)n;
    if (guest->len == sizeof guest->hello)
        guest_greeted(guest);
}

// A gateway that was switched off, or cut off, says nothing at the end of its links. Of what it
// does not read the machine holds little beyond its window.
static int
set_options(int fd)
{
    const int on = 1, idle = ALIVE_IDLE_S, interval = ALIVE_INTERVAL_S, probes = ALIVE_PROBES;
    const int unsent = UNSENT_MAX;

    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
                   setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent) == 0 &&
                   setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0 &&
                   setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0 &&
                   setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval) == 0 &&
                   setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) == 0
               ? 0
               : -1;
}

static void
guest_add(struct listener *listener, int fd)
{
    struct guest *guest = KG_NEW(struct guest);

    if (listener->n_guests == MAX_GUESTS)
        guest_close(TAILQ_FIRST(&listener->guests));
    guest->listener = listener;
    guest->fd = fd;
    guest->watch = loop_fd_new(listener->loop, fd, LOOP_READ, on_guest, guest);
    guest->timer = loop_timer_new(listener->loop, guest_close, guest);
    loop_timer_start(guest->timer, HELLO_MS);
    TAILQ_INSERT_TAIL(&listener->guests, guest, entry);
    listener->n_guests++;
    link_challenge_make(guest->challenge);
    ssize_t sent = send(fd, guest->challenge, sizeof guest->challenge, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != (ssize_t)sizeof guest->challenge || set_options(fd) != 0)
        guest_close(guest);
}

static void
on_listener(int fd, int events, void *arg)
{
    struct listener *listener = arg;
    (void)events;

    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int guest = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (guest >= 0) {
            guest_add(listener, guest);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            loop_fd_set(listener->watch, 0);
            loop_timer_start(listener->pause, PAUSE_MS);
            return;
        } else {
            return;
        }
    }
}

static void
on_pause_over(void *arg)
{
    struct listener *listener = arg;
    loop_fd_set(listener->watch, LOOP_READ);
}

static int
listen_in(int family, int port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const struct sockaddr *addr =
        family == AF_INET6 ? (const struct sockaddr *)&six : (const struct sockaddr *)&four;
    const int on = 1, off = 0;

    KG_AUTO_FD fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
        bind(fd, addr, family == AF_INET6 ? sizeof six : sizeof four) != 0 ||
        listen(fd, BACKLOG) != 0)
        return -1;
    return KG_STEAL_FD(fd);
}

struct listener *
listener_new(struct loop *loop, const struct listener_settings *settings, struct kg_error *err)
{
    // IPv6 takes IPv4 too; a machine may have IPv4 alone.
    int fd = listen_in(AF_INET6, settings->port);
    if (fd < 0)
        fd = listen_in(AF_INET, settings->port);
    if (fd < 0) {
        (void)kg_error_set(err, KG_INTERNAL, errno, "cannot listen on port %d", settings->port);
        return NULL;
    }
    struct listener *listener = KG_NEW(struct listener);
    listener->loop = loop;
    listener->settings = *settings;
    listener->fd = fd;
    TAILQ_INIT(&listener->guests);
    listener->watch = loop_fd_new(loop, fd, LOOP_READ, on_listener, listener);
    listener->pause = loop_timer_new(loop, on_pause_over, listener);
    return listener;
}

void
listener_free(struct listener *listener)
{
    struct guest *guest;

    if (!listener)
        return;
    while ((guest = TAILQ_FIRST(&listener->guests)))
        guest_close(guest);
    loop_fd_free(listener->watch);
    loop_timer_free(listener->pause);
    close(listener->fd);
    free(listener);
}

// SPDX-License-Identifier: Apache-2.0
// A connection to a port. A server that accepts nothing lets it wait, so it does not block.
#include "port_dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct port_dial {
    struct loop *loop;
    int port;
    bool is_v6; // the second attempt
    int fd;
    struct loop_fd *watch;
    struct loop_timer *timeout;
    struct loop_timer *step; // what is known at once is reported in a turn of its own
    port_dial_fn fn;
    void *arg;
};

static void
close_attempt(struct port_dial *dial)
{
    loop_fd_free(KG_STEAL(dial->watch));
    if (dial->fd >= 0)
        close(KG_STEAL_FD(dial->fd));
}

void
port_dial_cancel(struct port_dial *dial)
{
    if (!dial)
        return;
    close_attempt(dial);
    loop_timer_free(dial->timeout);
    loop_timer_free(dial->step);
    free(dial);
}

// Ends it with the connection, or with `err`.
static void
dial_end(struct port_dial *dial, const struct kg_error *err)
{
    port_dial_fn fn = dial->fn;
    void *arg = dial->arg;
    int fd = -1;

    if (!err) {
        loop_fd_free(KG_STEAL(dial->watch));
        fd = KG_STEAL_FD(dial->fd);
    }
    port_dial_cancel(dial);
    fn(fd, err, arg);
}

static void
on_dial_timeout(void *arg)
{
    struct port_dial *dial = arg;
    struct kg_error err;

    (void)kg_error_set(&err, KG_PORT_TIMEOUT, 0, "what listens on port %d accepts no connection",
                       dial->port);
    dial_end(dial, &err);
}

// This address does not answer: the next one, if there is one.
static void
next_address(struct port_dial *dial)
{
    struct kg_error err;

    close_attempt(dial);
    if (!dial->is_v6) {
        dial->is_v6 = true;
        loop_timer_start(dial->step, 0);
        return;
    }
    (void)kg_error_set(&err, KG_PORT_CLOSED, 0, "nothing listens on port %d", dial->port);
    dial_end(dial, &err);
}

static void
on_dial_fd(int fd, int events, void *arg)
{
    struct port_dial *dial = arg;
    int failure = 0;
    socklen_t len = sizeof failure;
    (void)events;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) != 0 || failure != 0)
        next_address(dial);
    else
        dial_end(dial, NULL);
}

// Returns a socket that connects, -1 if there can be none.
static int
connect_to(int port, bool is_v6)
{
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_loopback};
    const struct sockaddr *addr =
        is_v6 ? (const struct sockaddr *)&six : (const struct sockaddr *)&four;
    const int on = 1;

    KG_AUTO_FD fd =
        socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        (connect(fd, addr, is_v6 ? sizeof six : sizeof four) != 0 && errno != EINPROGRESS))
        return -1;
    return KG_STEAL_FD(fd);
}

static void
on_dial_step(void *arg)
{
    struct port_dial *dial = arg;

    dial->fd = connect_to(dial->port, dial->is_v6);
    if (dial->fd < 0)
        next_address(dial);
    else
        dial->watch = loop_fd_new(dial->loop, dial->fd, LOOP_WRITE, on_dial_fd, dial);
}

struct port_dial *
port_dial_start(struct loop *loop, int port, port_dial_fn fn, void *arg)
{
    struct port_dial *dial = KG_NEW(struct port_dial);

    dial->loop = loop;
    dial->port = port;
    dial->fd = -1;
    dial->fn = fn;
    dial->arg = arg;
    dial->timeout = loop_timer_new(loop, on_dial_timeout, dial);
    dial->step = loop_timer_new(loop, on_dial_step, dial);
    loop_timer_start(dial->timeout, PORT_DIAL_TIMEOUT_MS);
    loop_timer_start(dial->step, 0);
    return dial;
}

// SPDX-License-Identifier: Apache-2.0
// Connections that are closed while their client may still be sending. The system would answer
// further bytes with a reset, and the client could lose our answer. So these bytes are read and
// dropped, for a limited time and up to a limited number.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_priv.h"

enum {
    LINGER_MS = 10 * 1000,
    LINGER_BYTES_MAX = 64 << 20, // more than max-upload-bytes allows by default
    LINGERS_MAX = 64,
    DROPPED_AT_A_TIME = 256 << 10,
};

struct http_linger {
    struct http_server *server;
    int fd;
    size_t n_dropped;
    struct loop_fd *watch;
    struct loop_timer *timer;
    TAILQ_ENTRY(http_linger) link;
};

static void
linger_end(void *arg)
{
    struct http_linger *linger = arg;
    TAILQ_REMOVE(&linger->server->lingers, linger, link);
    linger->server->n_lingers--;
    loop_fd_free(linger->watch);
    loop_timer_free(linger->timer);
    close(linger->fd);
    free(linger);
}

static void
linger_on_readable(int fd, int events, void *arg)
{
    (void)events;
    static char dropped[DROPPED_AT_A_TIME];
    struct http_linger *linger = arg;
    ssize_t n = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
    linger->n_dropped += n > 0 ? (size_t)n : 0;
    if (n <= 0 || linger->n_dropped >= LINGER_BYTES_MAX)
        linger_end(linger);
}

void
linger_start(struct http_server *server, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return;
    shutdown(own, SHUT_WR);
    if (server->n_lingers == LINGERS_MAX)
        linger_end(TAILQ_FIRST(&server->lingers));
    struct http_linger *linger = KG_NEW(struct http_linger);
    linger->server = server;
    linger->fd = own;
    linger->watch = loop_fd_new(server->loop, own, LOOP_READ, linger_on_readable, linger);
    linger->timer = loop_timer_new(server->loop, linger_end, linger);
    loop_timer_start(linger->timer, LINGER_MS);
    TAILQ_INSERT_TAIL(&server->lingers, linger, link);
    server->n_lingers++;
}

void
linger_end_all(struct http_server *server)
{
    while (!TAILQ_EMPTY(&server->lingers))
        linger_end(TAILQ_FIRST(&server->lingers));
}

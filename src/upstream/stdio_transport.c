// SPDX-License-Identifier: Apache-2.0
// A program that speaks on stdin and stdout ("stdio" in the specification's page about transports):
// a message is a line. Both are one socket. What is not JSON is ignored, since programs print
// things; while the server does not read, what it should read waits, bounded.

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"

enum {
    READ_BYTES = 64 << 10,
    UNREAD_MAX = 32 << 20, // bytes that the server has not read
};

struct stdio {
    struct connection *connection;
    void *start; // under way, or NULL
    int fd;      // -1: none
    struct loop_fd *watch;
    struct loop_timer *turn; // reports that it has not started
    struct kg_error why;
    struct budget_hold hold;
    struct buf in, out;
};

static void
stdio_fail(struct stdio *stdio, const char *why)
{
    struct kg_error err = {0};
    (void)kg_error_set(&err, KG_INTERNAL, 0, "%s", why);
    connection_fail(stdio->connection, &err);
}

// ---- What it says ---------------------------------------------------------------------------

static void
stdio_take_lines(struct stdio *stdio)
{
    size_t taken = 0;
    while (taken < stdio->in.len) {
        const char *at = stdio->in.data + taken;
        const char *end = memchr(at, '\n', stdio->in.len - taken);
        if (!end)
            break;
        size_t len = (size_t)(end - at);
        if (len > 0 && at[0] == '{')
            connection_take(stdio->connection, at, len, 0);
        taken += len + 1;
    }
    buf_consume(&stdio->in, taken);
    budget_hold_set(&stdio->hold, stdio->in.len + stdio->out.len);
}

static void
stdio_read(struct stdio *stdio)
{
    ssize_t n = recv(stdio->fd, buf_reserve(&stdio->in, READ_BYTES), READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        connection_note(stdio->connection, "its process has ended; kernelgate doctor shows what it "
                                           "writes on stderr");
        stdio_fail(stdio, "its process has ended");
        return;
    }
    stdio->in.len += (size_t)n;
    stdio_take_lines(stdio);
    if (stdio->in.len > MESSAGE_MAX)
        stdio_fail(stdio, "it has sent a line that is too long for a message");
}

static void
stdio_flush(struct stdio *stdio)
{
    size_t sent = 0;
    while (sent < stdio->out.len) {
        ssize_t n = send(stdio->fd, stdio->out.data + sent, stdio->out.len - sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR)
            break; // that it has ended is read
        if (n > 0)
            sent += (size_t)n;
    }
    buf_consume(&stdio->out, sent);
    loop_fd_set(stdio->watch, LOOP_READ | (stdio->out.len > 0 ? LOOP_WRITE : 0));
    budget_hold_set(&stdio->hold, stdio->in.len + stdio->out.len);
}

static void
stdio_on_ready(int fd, int events, void *arg)
{
    struct stdio *stdio = arg;
    (void)fd;
    if (events & LOOP_WRITE)
        stdio_flush(stdio);
    if (events & LOOP_READ)
        stdio_read(stdio);
}

// ---- Operations -----------------------------------------------------------------------------

static struct stdio *
stdio_of(struct connection *connection)
{
    return connection_data(connection);
}

static void
stdio_on_turn(void *arg)
{
    struct stdio *stdio = arg;
    connection_fail(stdio->connection, &stdio->why);
}

static void
stdio_on_started(int fd, const struct kg_error *err, void *arg)
{
    struct stdio *stdio = arg;
    const struct connection_context *context = connection_context(stdio->connection);
    struct kg_error why = {0};
    stdio->start = NULL;
    if (fd < 0 || fd_set_nonblocking(fd, &why) < 0) {
        if (fd >= 0)
            close(fd);
        connection_fail(stdio->connection, fd < 0 ? err : &why);
        return;
    }
    stdio->fd = fd;
    stdio->watch = loop_fd_new(context->loop, fd, LOOP_READ, stdio_on_ready, stdio);
    budget_hold_start(&stdio->hold, context->bytes, connection_spec(stdio->connection)->name);
    connection_opened(stdio->connection);
}

static void
stdio_open(struct connection *connection)
{
    const struct connection_context *context = connection_context(connection);
    struct stdio *stdio = stdio_of(connection);
    if (!stdio) {
        stdio = KG_NEW(struct stdio);
        stdio->connection = connection;
        stdio->fd = -1;
        stdio->turn = loop_timer_new(context->loop, stdio_on_turn, stdio);
        connection_set_data(connection, stdio);
    }
    connection_set_hears_changes(connection, true);
    stdio->start = context->start(connection_number(connection), stdio_on_started, stdio,
                                  context->start_arg, &stdio->why);
    if (!stdio->start)
        loop_timer_start(stdio->turn, 0);
}

static void
stdio_send(struct connection *connection, char *text, size_t len, int64_t id)
{
    struct stdio *stdio = stdio_of(connection);
    (void)id;
    if (stdio->fd >= 0 && stdio->out.len + len <= UNREAD_MAX) {
        buf_append(&stdio->out, text, len);
        buf_append_str(&stdio->out, "\n");
        stdio_flush(stdio);
    }
    // What does not fit is not answered: the caller's time limit ends it.
    free(text);
}

static void
stdio_withdraw(struct connection *connection, int64_t id)
{
    (void)connection;
    (void)id;
}

// The end of its input ends the program.
static void
stdio_close(struct connection *connection)
{
    struct stdio *stdio = stdio_of(connection);
    if (!stdio)
        return;
    const struct connection_context *context = connection_context(connection);
    if (stdio->start)
        context->stop(KG_STEAL(stdio->start), context->start_arg);
    loop_timer_stop(stdio->turn);
    loop_fd_free(KG_STEAL(stdio->watch));
    if (stdio->fd >= 0)
        close(KG_STEAL_FD(stdio->fd));
    budget_hold_end(&stdio->hold);
    buf_fini(&stdio->in);
    buf_fini(&stdio->out);
}

static void
stdio_free(struct connection *connection)
{
    struct stdio *stdio = stdio_of(connection);
    if (!stdio)
        return;
    loop_timer_free(stdio->turn);
    free(stdio);
}

const struct transport_ops stdio_transport = {
    .open = stdio_open,
    .send = stdio_send,
    .withdraw = stdio_withdraw,
    .close = stdio_close,
    .free = stdio_free,
};

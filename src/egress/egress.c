// SPDX-License-Identifier: Apache-2.0
// Connections of sandboxes on their way out.

#include "egress.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect_head.h"
#include "metrics.h"
#include "splice.h"

enum {
    MAX_CONNECTIONS = 512,
    MAX_CONNECTIONS_OF_USER = 32,
    HEAD_MS = 10 * 1000,
    DIAL_MS = 15 * 1000,
};

enum state {
    STATE_HEAD,     // the request's head is being read
    STATE_DIALLING, // the other side is being connected to
    STATE_JOINED,
};

struct connection {
    LIST_ENTRY(connection) link;
    struct egress_user *user;
    enum state state;
    int fd; // the sandbox's; -1 once the splice has it
    struct loop_fd *watch;
    struct loop_timer *timer;
    struct buf in;
    struct connect_head head;
    struct http_call *call;
    struct splice *splice;
};

struct egress_user {
    struct egress *egress;
    LIST_HEAD(, connection) connections;
    int n;
};

struct egress {
    struct loop *loop;
    struct http_client *http;
    const struct address_policy *policy;
    int n;
};

static void
connection_free(struct connection *connection)
{
    LIST_REMOVE(connection, link);
    connection->user->n--;
    connection->user->egress->n--;
    http_call_cancel(connection->call);
    loop_fd_free(connection->watch);
    loop_timer_free(connection->timer);
    splice_free(connection->splice);
    if (connection->fd >= 0)
        close(connection->fd);
    buf_fini(&connection->in);
    connect_head_fini(&connection->head);
    free(connection);
}

// ---- Answers --------------------------------------------------------------------------------

static void
send_answer(int fd, int status, const char *reason, const char *message)
{
    KG_AUTO_BUF answer = {0};
    buf_printf(&answer,
               "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
               "Connection: close\r\n\r\nkernelgate: %s\n",
               status, reason, strlen(message) + sizeof "kernelgate: \n" - 1, message);
    // A new connection takes that much at once, or its client does not care.
    (void)send(fd, answer.data, answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void
refuse(struct connection *connection, int status, const char *reason, const struct kg_error *err)
{
    bool forbidden = status == 403;
    metric_add(METRIC_EGRESS_CONNECTIONS, 1, forbidden ? "refused" : "failed");
    send_answer(connection->fd, status, reason, err->message);
    connection_free(connection);
}

// ---- Joined ---------------------------------------------------------------------------------

static void
on_spliced(void *arg)
{
    connection_free(arg);
}

static int
send_all(int fd, const char *data, size_t len)
{
    return len == 0 || send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len ? 0 : -1;
}

// Both sides are new: they take a head's worth at once.
static void
on_dialled(int fd, const struct kg_error *err, void *arg)
{
    static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    struct connection *connection = arg;
    struct connect_head *head = &connection->head;
    connection->call = NULL;
    if (err && err->code == KG_INVALID) {
        refuse(connection, 403, "Forbidden", err);
        return;
    }
    if (err) {
        refuse(connection, 502, "Bad Gateway", err);
        return;
    }
    metric_add(METRIC_EGRESS_CONNECTIONS, 1, "ok");
    bool tunnel = head->request.len == 0;
    if ((tunnel && send_all(connection->fd, established, sizeof established - 1) < 0) ||
        send_all(fd, head->request.data, head->request.len) < 0 ||
        send_all(fd, connection->in.data + head->len, connection->in.len - head->len) < 0) {
        close(fd);
        connection_free(connection);
        return;
    }
    connection->state = STATE_JOINED;
    buf_fini(&connection->in);
    connection->splice = splice_new(connection->user->egress->loop, KG_STEAL_FD(connection->fd), fd,
                                    SPLICE_HALF_CLOSED_MS, on_spliced, connection);
}

// ---- The head -------------------------------------------------------------------------------

static void
dial(struct connection *connection)
{
    const struct egress *egress = connection->user->egress;
    const struct connect_head *head = &connection->head;
    struct kg_error err = {0};
    connection->state = STATE_DIALLING;
    loop_timer_stop(connection->timer);
    loop_fd_free(KG_STEAL(connection->watch));
    connection->call = http_dial_start(egress->http, head->host, head->port, egress->policy,
                                       DIAL_MS, on_dialled, connection, &err);
    if (!connection->call)
        refuse(connection, 400, "Bad Request", &err);
}

static void
on_head(int fd, int events, void *arg)
{
    struct connection *connection = arg;
    struct buf *in = &connection->in;
    struct kg_error err = {0};
    (void)events;
    size_t room = CONNECT_HEAD_MAX - in->len;
    ssize_t n = recv(fd, buf_reserve(in, room), room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        connection_free(connection);
        return;
    }
    in->len += (size_t)n;
    connect_head_fini(&connection->head);
    int result = connect_head_parse(in->data, in->len, &connection->head, &err);
    if (result < 0)
        refuse(connection, 400, "Bad Request", &err);
    else if (result > 0)
        dial(connection);
}

static void
on_head_timeout(void *arg)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_INVALID, 0, "no request came");
    refuse(arg, 408, "Request Timeout", &err);
}

void
egress_user_take(struct egress_user *user, int fd)
{
    struct egress *egress = user->egress;
    if (user->n >= MAX_CONNECTIONS_OF_USER || egress->n >= MAX_CONNECTIONS) {
        metric_add(METRIC_EGRESS_CONNECTIONS, 1, "refused");
        send_answer(fd, 503, "Service Unavailable", "too many connections");
        close(fd);
        return;
    }
    struct connection *connection = KG_NEW(struct connection);
    connection->user = user;
    connection->fd = fd;
    connection->watch = loop_fd_new(egress->loop, fd, LOOP_READ, on_head, connection);
    connection->timer = loop_timer_new(egress->loop, on_head_timeout, connection);
    loop_timer_start(connection->timer, HEAD_MS);
    LIST_INSERT_HEAD(&user->connections, connection, link);
    user->n++;
    egress->n++;
}

// ---- Users ----------------------------------------------------------------------------------

struct egress *
egress_new(struct loop *loop, struct http_client *http, const struct address_policy *policy)
{
    struct egress *egress = KG_NEW(struct egress);
    egress->loop = loop;
    egress->http = http;
    egress->policy = policy;
    return egress;
}

void
egress_free(struct egress *egress)
{
    assert(!egress || egress->n == 0);
    free(egress);
}

struct egress_user *
egress_user_new(struct egress *egress)
{
    struct egress_user *user = KG_NEW(struct egress_user);
    user->egress = egress;
    LIST_INIT(&user->connections);
    return user;
}

void
egress_user_free(struct egress_user *user)
{
    if (!user)
        return;
    for (struct connection *connection; (connection = LIST_FIRST(&user->connections));)
        connection_free(connection);
    free(user);
}

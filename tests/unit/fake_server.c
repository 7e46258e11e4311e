// SPDX-License-Identifier: Apache-2.0
#include "fake_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { SECOND_HALF_MS = 20 };

struct guest {
    struct fake_server *server;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *later;
    struct buf in;
    const char *rest;
};

struct fake_server {
    struct loop *loop;
    fake_server_fn answer;
    void *arg;
    int listener, port;
    struct loop_fd *watch;
    struct guest guests[FAKE_SERVER_MAX_REQUESTS];
    size_t n_guests;
};

static void
hang_up(struct guest *guest)
{
    loop_fd_free(KG_STEAL(guest->watch));
    loop_timer_free(KG_STEAL(guest->later));
    buf_fini(&guest->in);
    guest->in = (struct buf){0};
    if (guest->fd >= 0)
        close(KG_STEAL_FD(guest->fd));
}

static void
say_rest(void *arg)
{
    struct guest *guest = arg;
    (void)!send(guest->fd, guest->rest, strlen(guest->rest), MSG_NOSIGNAL);
    hang_up(guest);
}

static void
say_in_halves(struct guest *guest, const struct fake_answer *answer, const char *body)
{
    size_t half = strlen(body) / 2;
    KG_AUTO_FREE char *text = kg_asprintf(
        "HTTP/1.1 %d Said\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n%.*s",
        answer->status, strlen(body), answer->header ? answer->header : "", (int)half, body);
    (void)!send(guest->fd, text, strlen(text), MSG_NOSIGNAL);
    guest->rest = body + half;
    loop_fd_free(KG_STEAL(guest->watch));
    guest->later = loop_timer_new(guest->server->loop, say_rest, guest);
    loop_timer_start(guest->later, SECOND_HALF_MS);
}

static void
say(struct guest *guest, const struct fake_answer *answer)
{
    const char *body = answer->body ? answer->body : "{}";
    if (answer->silent)
        return;
    if (answer->in_halves) {
        say_in_halves(guest, answer, body);
        return;
    }
    KG_AUTO_FREE char *text =
        kg_asprintf("HTTP/1.1 %d Said\r\nConnection: close\r\n%s\r\n%s", answer->status,
                    answer->header ? answer->header : "", body);
    (void)!send(guest->fd, text, strlen(text), MSG_NOSIGNAL);
    if (!answer->open)
        hang_up(guest);
}

static bool
is_complete(const struct buf *in)
{
    const char *end = strstr(in->data, "\r\n\r\n");
    const char *length = strstr(in->data, "Content-Length: ");
    size_t body_len = length ? strtoul(length + strlen("Content-Length: "), NULL, 10) : 0;
    return end && in->len >= (size_t)(end + 4 - in->data) + body_len;
}

static void
on_request(int fd, int events, void *arg)
{
    struct guest *guest = arg;
    char piece[4096];
    (void)events;
    ssize_t n = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n <= 0) {
        hang_up(guest);
        return;
    }
    buf_append(&guest->in, piece, (size_t)n);
    if (!is_complete(&guest->in))
        return;
    const struct fake_answer answer = guest->server->answer(guest->in.data, guest->server->arg);
    say(guest, &answer);
}

static void
on_accept(int fd, int events, void *arg)
{
    struct fake_server *server = arg;
    (void)events;
    assert_true(server->n_guests < FAKE_SERVER_MAX_REQUESTS);
    struct guest *guest = &server->guests[server->n_guests++];
    *guest = (struct guest){.server = server, .fd = accept(fd, NULL, NULL)};
    assert_true(guest->fd >= 0);
    guest->watch = loop_fd_new(server->loop, guest->fd, LOOP_READ, on_request, guest);
}

static int
listen_on_path(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static int
listen_on_port(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

struct fake_server *
fake_server_new(struct loop *loop, const char *path, fake_server_fn answer, void *arg)
{
    struct fake_server *server = KG_NEW(struct fake_server);
    server->loop = loop;
    server->answer = answer;
    server->arg = arg;
    server->listener = path ? listen_on_path(path) : listen_on_port(&server->port);
    assert_int_equal(listen(server->listener, 16), 0);
    server->watch = loop_fd_new(loop, server->listener, LOOP_READ, on_accept, server);
    return server;
}

int
fake_server_port(const struct fake_server *server)
{
    return server->port;
}

void
fake_server_free(struct fake_server *server)
{
    for (size_t i = 0; i < server->n_guests; i++)
        hang_up(&server->guests[i]);
    loop_fd_free(server->watch);
    close(server->listener);
    free(server);
}

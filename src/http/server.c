// SPDX-License-Identifier: Apache-2.0
// The server: its listening socket, and what it is made of.

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_priv.h"

enum { LISTEN_BACKLOG = 512, ACCEPT_PAUSE_MS = 100, UNSENT_MAX = 128 * 1024 };

// ---- Listening ------------------------------------------------------------------------------

static int
bind_address(const struct addrinfo *ai)
{
    KG_AUTO_FD fd =
        socket(ai->ai_family, ai->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_protocol);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on))
        return -1;
    // Accepted sockets inherit these three: small writes are sent at once, dead clients are
    // noticed, and of what a client does not read the machine holds little beyond the client's own
    // window.
    int unsent = UNSENT_MAX;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent))
        return -1;
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, LISTEN_BACKLOG))
        return -1;
    return KG_STEAL_FD(fd);
}

int
http_listen(const char *host, int port, struct kg_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0)
        return kg_error_set(err, KG_INVALID, 0, "cannot listen on %s: %s", host, gai_strerror(rc));
    int fd = -1;
    int saved_errno = 0;
    for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next) {
        fd = bind_address(ai);
        saved_errno = errno;
    }
    freeaddrinfo(list);
    if (fd < 0)
        return kg_error_set(err, KG_INVALID, saved_errno, "cannot listen on %s:%d", host, port);
    return fd;
}

static int
socket_port(int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    if (getsockname(fd, (struct sockaddr *)&addr, &len))
        return 0;
    if (addr.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
    return ntohs(((struct sockaddr_in *)&addr)->sin_port);
}

static void
on_accept_resume(void *arg)
{
    struct http_server *server = arg;
    evconnlistener_enable(server->listener);
}

// For example, no descriptors are left: without a pause the loop would spin.
static void
on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct http_server *server = arg;
    log_warning("cannot accept connections", LOG_STR("error", strerror(errno)));
    evconnlistener_disable(listener);
    loop_timer_start(server->accept_pause, ACCEPT_PAUSE_MS);
}

static void
on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int len,
          void *arg)
{
    (void)listener;
    (void)len;
    struct http_server *server = arg;
    bool is_replica = server->is_replica && server->is_replica(from, server->replica_arg);
    struct http_peer *peer = peer_take(&server->peers, from, is_replica);
    if (peer && !places_make_room(&server->places)) {
        peer_leave(&server->peers, peer, false, clock_mono_ms());
        peer = NULL;
    }
    if (!peer) {
        close(fd);
        return;
    }
    struct http_connection *conn = pipeline_new(server, fd, peer);
    if (is_replica)
        place_trust(conn);
}

static int
server_listen(struct http_server *server, const struct http_server_settings *settings,
              struct kg_error *err)
{
    int fd = settings->socket ? settings->socket : http_listen(settings->host, settings->port, err);
    if (fd < 0)
        return -1;
    server->port = socket_port(fd);
    server->listener = evconnlistener_new(loop_event_base(server->loop), on_accept, server,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!server->listener)
        abort();
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    return 0;
}

bool
http_server_stop_listening(struct http_server *server)
{
    if (!server->listener)
        return true;
    struct pollfd waiting = {.fd = evconnlistener_get_fd(server->listener), .events = POLLIN};
    if (poll(&waiting, 1, 0) != 0)
        return false;
    loop_timer_stop(server->accept_pause);
    evconnlistener_free(KG_STEAL(server->listener));
    return true;
}

bool
http_server_is_receiving(const struct http_server *server)
{
    const struct http_connection *conn;
    LIST_FOREACH(conn, &server->connections, link)
        if ((conn->state == CONNECTION_HEAD && conn->deadline_ms > 0) ||
            conn->state == CONNECTION_CHECKING || conn->state == CONNECTION_BODY)
            return true;
    return false;
}

// ---- The server -----------------------------------------------------------------------------

static char **
copy_strings(const char *const *strings)
{
    size_t n = 0;
    while (strings && strings[n])
        n++;
    char **copy = kg_calloc(n + 1, sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = kg_strdup(strings[i]);
    return copy;
}

static void
free_strings(char **strings)
{
    for (char **s = strings; s && *s; s++)
        free(*s);
    free(strings);
}

static void
on_go_on(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    pipelines_go_on(arg);
}

static void
pipelines_on_timer(void *arg)
{
    pipelines_go_on(arg);
}

struct http_server *
http_server_new(struct loop *loop, const struct http_server_settings *settings,
                struct kg_error *err)
{
    // libevent writes without MSG_NOSIGNAL: a reset by a client would end the process.
    signal(SIGPIPE, SIG_IGN);
    KG_AUTO(http_server) server = KG_NEW(struct http_server);
    server->loop = loop;
    places_init(&server->places, settings->max_connections);
    server->idle_timeout.tv_sec = settings->idle_timeout_s;
    server->check_origin_and_host = settings->check_origin_and_host;
    server->allowed_origins = copy_strings(settings->allowed_origins);
    server->allowed_hosts = copy_strings(settings->allowed_hosts);
    TAILQ_INIT(&server->ready);
    LIST_INIT(&server->connections);
    server->go_on_later = loop_timer_new(loop, pipelines_on_timer, server);
    server->go_on = event_new(loop_event_base(loop), -1, 0, on_go_on, server);
    if (!server->go_on)
        abort();
    server->accept_pause = loop_timer_new(loop, on_accept_resume, server);
    server->max_body_bytes = settings->max_body_bytes;
    server->max_small_body_bytes = settings->max_small_body_bytes;
    server->anonymous_quota = settings->anonymous_quota;
    owners_init(&server->owners);
    TAILQ_INIT(&server->lingers);
    server->max_head = settings->max_header_bytes;
    deadlines_init(&server->deadlines, loop, settings->head_timeout_s);
    intake_init(server, settings);
    peers_init(&server->peers, settings->max_strangers);
    if (proxies_init(&server->proxies, settings->trusted_proxies, err) < 0 ||
        server_listen(server, settings, err))
        return NULL;
    return KG_STEAL(server);
}

void
http_server_free(struct http_server *server)
{
    if (!server)
        return;
    server->ending = true;
    linger_end_all(server);
    while (!LIST_EMPTY(&server->connections))
        connection_close(LIST_FIRST(&server->connections));
    if (server->listener)
        evconnlistener_free(server->listener);
    loop_timer_free(server->accept_pause);
    event_free(server->go_on);
    loop_timer_free(server->go_on_later);
    deadlines_fini(&server->deadlines);
    intake_fini(server);
    peers_fini(&server->peers);
    proxies_fini(&server->proxies);
    owners_fini(&server->owners);
    free_strings(server->allowed_origins);
    free_strings(server->allowed_hosts);
    free(server->router.entries);
    free(server);
}

int
http_server_port(const struct http_server *server)
{
    return server->port;
}

int
http_server_open_requests(const struct http_server *server)
{
    return server->n_busy;
}

void
http_server_set_authenticator(struct http_server *server, struct http_authenticator *authenticator)
{
    server->authenticator = authenticator;
}

void
http_server_drain(struct http_server *server)
{
    server->draining = true;
}

bool
http_server_is_draining(const struct http_server *server)
{
    return server->draining;
}

// SPDX-License-Identifier: Apache-2.0
// The server: its listening socket and its connections. evhttp speaks the protocol. Added here: a
// limit on the number of connections, and a callback when one closes.

#include <assert.h>
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

#include "http_priv.h"

enum { LISTEN_BACKLOG = 512, ACCEPT_PAUSE_MS = 100, UNSENT_MAX = 128 * 1024 };

// ---- Connections ----------------------------------------------------------------------------

static void
on_closed(struct evhttp_connection *evcon, void *arg)
{
    (void)evcon;
    struct http_connection *conn = arg;
    struct http_server *server = conn->server;
    server->by_fd[conn->fd] = NULL;
    if (conn->busy && (!conn->upgraded || conn->tunnelled))
        server->n_busy--;
    refusal_forget(conn);
    intake_forget(conn);
    gate_forget(conn);
    identify_forget(conn);
    place_leave(conn);
    peer_leave(&server->peers, conn->peer, conn->trusted, clock_mono_ms());
    if (conn->lingers && !server->ending)
        linger_start(server, conn->fd);
    LIST_REMOVE(conn, link);
    if (conn->request)
        request_gone(conn->request);
    free(conn);
}

static void
remember_by_fd(struct http_server *server, struct http_connection *conn)
{
    size_t fd = (size_t)conn->fd;
    if (fd >= server->by_fd_len) {
        size_t len = (fd + 1) * 2;
        server->by_fd = kg_realloc(server->by_fd, len * sizeof *server->by_fd);
        memset(server->by_fd + server->by_fd_len, 0,
               (len - server->by_fd_len) * sizeof *server->by_fd);
        server->by_fd_len = len;
    }
    server->by_fd[fd] = conn;
}

static void
adopt_connection(struct http_server *server, struct http_connection *conn)
{
    void *evcon = NULL;
    bufferevent_getcb(conn->bev, NULL, NULL, NULL, &evcon);
    struct sockaddr_storage from = {0};
    socklen_t from_len = sizeof from;
    bool is_fellow = false;
    // evhttp may have freed the connection already; then only our reference keeps `bev`.
    if (evcon &&
        getpeername(bufferevent_getfd(conn->bev), (struct sockaddr *)&from, &from_len) == 0) {
        is_fellow = server->fellow && server->fellow((struct sockaddr *)&from, server->fellow_arg);
        if (places_make_room(&server->places))
            conn->peer = peer_take(&server->peers, (struct sockaddr *)&from, is_fellow);
    }
    if (!conn->peer) {
        if (evcon)
            evhttp_connection_free(evcon);
        bufferevent_decref(conn->bev);
        free(conn);
        return;
    }
    conn->evcon = evcon;
    conn->fd = bufferevent_getfd(conn->bev);
    bufferevent_decref(conn->bev);
    remember_by_fd(server, conn);
    LIST_INSERT_HEAD(&server->connections, conn, link);
    place_take(conn);
    if (is_fellow)
        connection_trust(conn);
    refusal_watch(conn);
    intake_watch(conn);
    gate_watch(conn);
    evhttp_connection_set_closecb(evcon, on_closed, conn);
}

static void
on_adopt(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_server *server = arg;
    struct http_connection *conn;
    while ((conn = TAILQ_FIRST(&server->fresh))) {
        TAILQ_REMOVE(&server->fresh, conn, queue_link);
        adopt_connection(server, conn);
    }
}

// evhttp asks for a bufferevent for each accepted socket, which is the only hook it has there. Its
// own connection is known to the bufferevent a moment later only, hence `adopt`.
static struct bufferevent *
on_accept(struct event_base *base, void *arg)
{
    struct http_server *server = arg;
    struct bufferevent *bev = bufferevent_socket_new(base, -1, 0);
    if (!bev)
        return NULL;
    // libevent's default of 16 KiB a turn would delay streams while other work makes turns long.
    enum { TURN_BYTES = 1 << 20 };
    bufferevent_set_max_single_write(bev, TURN_BYTES);
    bufferevent_incref(bev);
    struct http_connection *conn = KG_NEW(struct http_connection);
    conn->server = server;
    conn->bev = bev;
    TAILQ_INSERT_TAIL(&server->fresh, conn, queue_link);
    event_active(server->adopt, EV_TIMEOUT, 0);
    return bev;
}

static void
on_answer_sent(struct evhttp_request *ev, void *arg)
{
    (void)ev;
    struct http_connection *conn = arg;
    conn->busy = false;
    place_is_idle(conn);
    conn->server->n_busy--;
    intake_reset(conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, 0);
    bufferevent_set_timeouts(conn->bev, &conn->server->idle_timeout, &conn->server->idle_timeout);
    gate_close_again(conn);
}

// Until the handler has answered, the connection still reads, so that we notice when the client
// disconnects. evhttp does not read: it would abort over bytes in that state. They wait, bounded by
// HTTP_READ_AHEAD_MAX.
static void
watch_for_close(struct http_connection *conn)
{
    connection_set_reader(conn, NULL);
    bufferevent_set_timeouts(conn->bev, NULL, NULL);
    bufferevent_enable(conn->bev, EV_READ);
}

static void
on_request(struct evhttp_request *ev, void *arg)
{
    struct http_server *server = arg;
    struct evhttp_connection *evcon = evhttp_request_get_connection(ev);
    struct http_connection *conn =
        server->by_fd[bufferevent_getfd(evhttp_connection_get_bufferevent(evcon))];
    assert(conn && conn->evcon == evcon);
    conn->busy = true;
    place_is_busy(conn);
    server->n_busy++;
    gate_await_no_more(conn);
    evhttp_request_set_on_complete_cb(ev, on_answer_sent, conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, HTTP_READ_AHEAD_MAX);
    dispatch_handle(conn, ev);
    if (server->handling)
        watch_for_close(conn);
    server->handling = NULL;
}

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

static int
bind_tcp(const char *host, int port, struct kg_error *err)
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

static int
server_listen(struct http_server *server, const struct http_server_settings *settings,
              struct kg_error *err)
{
    int fd = bind_tcp(settings->host, settings->port, err);
    if (fd < 0)
        return -1;
    server->port = socket_port(fd);
    server->listener = evconnlistener_new(loop_event_base(server->loop), NULL, NULL,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!server->listener ||
        !(server->bound = evhttp_bind_listener(server->evhttp, server->listener)))
        abort();
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    return 0;
}

bool
http_server_stop_listening(struct http_server *server)
{
    if (!server->bound)
        return true;
    struct pollfd waiting = {.fd = evconnlistener_get_fd(server->listener), .events = POLLIN};
    if (poll(&waiting, 1, 0) != 0)
        return false;
    loop_timer_stop(server->accept_pause);
    evhttp_del_accept_socket(server->evhttp, KG_STEAL(server->bound)); // frees the listener, too
    server->listener = NULL;
    return true;
}

bool
http_server_is_receiving(const struct http_server *server)
{
    const struct http_connection *conn;
    LIST_FOREACH(conn, &server->connections, link)
        if (!conn->busy && !conn->upgraded && !conn->closing && !conn->refused &&
            (conn->deadline_ms > 0 || !conn->gated))
            return true;
    return !TAILQ_EMPTY(&server->fresh);
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
set_up_evhttp(struct http_server *server, const struct http_server_settings *settings)
{
    struct evhttp *evhttp = evhttp_new(loop_event_base(server->loop));
    if (!evhttp)
        abort();
    server->evhttp = evhttp;
    evhttp_set_bevcb(evhttp, on_accept, server);
    evhttp_set_gencb(evhttp, on_request, server);
    evhttp_set_default_content_type(evhttp, NULL);
    evhttp_set_max_body_size(evhttp, (ev_ssize_t)settings->max_body_bytes);
    evhttp_set_max_headers_size(evhttp, (ev_ssize_t)settings->max_header_bytes);
    evhttp_set_timeout(evhttp, settings->idle_timeout_s);
    // A body that is too large is read to its end and dropped, so that the client gets the 413.
    evhttp_set_flags(evhttp, EVHTTP_SERVER_LINGERING_CLOSE);
    evhttp_set_allowed_methods(evhttp, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                           EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS |
                                           EVHTTP_REQ_PATCH);
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
    TAILQ_INIT(&server->fresh);
    LIST_INIT(&server->connections);
    LIST_INIT(&server->requests);
    server->scratch = evbuffer_new();
    server->adopt = event_new(loop_event_base(loop), -1, 0, on_adopt, server);
    if (!server->scratch || !server->adopt)
        abort();
    server->accept_pause = loop_timer_new(loop, on_accept_resume, server);
    server->max_body_bytes = settings->max_body_bytes;
    server->max_small_body_bytes = settings->max_small_body_bytes;
    server->anonymous_quota = settings->anonymous_quota;
    owners_init(&server->owners);
    TAILQ_INIT(&server->lingers);
    refusal_init(server);
    gate_init(server, settings);
    intake_init(server, settings);
    peers_init(&server->peers, settings->max_strangers);
    set_up_evhttp(server, settings);
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
    struct http_request *request;
    while ((request = LIST_FIRST(&server->requests)))
        connection_close(request->conn);
    on_adopt(-1, 0, server);
    evhttp_free(server->evhttp);
    loop_timer_free(server->accept_pause);
    event_free(server->adopt);
    refusal_fini(server);
    gate_fini(server);
    intake_fini(server);
    peers_fini(&server->peers);
    proxies_fini(&server->proxies);
    owners_fini(&server->owners);
    evbuffer_free(server->scratch);
    free_strings(server->allowed_origins);
    free_strings(server->allowed_hosts);
    free(server->by_fd);
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

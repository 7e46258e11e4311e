// SPDX-License-Identifier: Apache-2.0
// Connections out of the sandbox. Each has a link of its own, on which the gateway hears the
// program itself.
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relays.h"

enum { MAX_CONNECTIONS = 32, BACKLOG = 32, PAUSE_MS = 50 };

struct proxy {
    struct loop *loop;
    proxy_link_fn open_link;
    void *arg;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *pause; // while there are too many, or no link is to be had
    struct relays *relays;
};

static void
rest(struct proxy *proxy)
{
    loop_fd_set(proxy->watch, 0);
    loop_timer_start(proxy->pause, PAUSE_MS);
}

// The link comes first: where there is none now, the client waits in the queue.
static void
on_listener(int fd, int events, void *arg)
{
    struct proxy *proxy = arg;
    (void)events;

    const int on = 1;
    KG_AUTO_FD link = relays_room(proxy->relays) > 0 ? proxy->open_link(proxy->arg) : -1;
    if (link < 0) {
        rest(proxy);
        return;
    }
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client >= 0) {
        (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        relays_join(proxy->relays, client, KG_STEAL_FD(link));
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        rest(proxy);
    }
}

static void
on_pause_over(void *arg)
{
    struct proxy *proxy = arg;
    loop_fd_set(proxy->watch, LOOP_READ);
}

static void
set_environment(int port)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
    static const char *const exceptions[] = {"no_proxy", "NO_PROXY"};
    KG_AUTO_FREE char *url = kg_asprintf("http://127.0.0.1:%d", port);

    for (size_t i = 0; i < KG_ARRAY_LEN(proxies); i++)
        (void)setenv(proxies[i], url, 1);
    for (size_t i = 0; i < KG_ARRAY_LEN(exceptions); i++)
        (void)setenv(exceptions[i], "localhost,127.0.0.1,::1", 1);
}

static int
listen_on(int port, struct kg_error *err)
{
    const struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr = {htonl(INADDR_LOOPBACK)},
    };
    const int on = 1;

    KG_AUTO_FD fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&addr, sizeof addr) != 0 || listen(fd, BACKLOG) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot listen on port %d", port);
    return KG_STEAL_FD(fd);
}

struct proxy *
proxy_new(struct loop *loop, int port, proxy_link_fn open_link, void *arg, struct kg_error *err)
{
    int fd = listen_on(port, err);

    if (fd < 0)
        return NULL;
    struct proxy *proxy = KG_NEW(struct proxy);
    proxy->loop = loop;
    proxy->open_link = open_link;
    proxy->arg = arg;
    proxy->fd = fd;
    proxy->watch = loop_fd_new(loop, fd, LOOP_READ, on_listener, proxy);
    proxy->pause = loop_timer_new(loop, on_pause_over, proxy);
    proxy->relays = relays_new(loop, MAX_CONNECTIONS);
    set_environment(port);
    return proxy;
}

void
proxy_free(struct proxy *proxy)
{
    if (!proxy)
        return;
    relays_free(proxy->relays);
    loop_fd_free(proxy->watch);
    loop_timer_free(proxy->pause);
    close(proxy->fd);
    free(proxy);
}

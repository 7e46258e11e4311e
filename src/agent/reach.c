// SPDX-License-Identifier: Apache-2.0
// Tries what a sandbox can reach.
#include "reach.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ip_network.h"

enum { TRY_MS = 2000, ATTEMPTS = 4, PAUSE_MS = 1000, PORT_MAX = 65535 };

struct target {
    const char *text; // its name, up to the first '='
    size_t name_len;
    struct sockaddr_in6 address; // also of IPv4
    int fd;                      // -1: not under way
    bool answers;
};

static bool
parse(const char *text, struct target *ret)
{
    const char *equals = strchr(text, '=');
    const char *colon = equals ? strrchr(equals, ':') : NULL;
    struct ip_network host;
    char *end;
    if (!colon)
        return false;
    KG_AUTO_FREE char *name = kg_strndup(equals + 1, (size_t)(colon - equals - 1));
    long port = strtol(colon + 1, &end, 10);
    if (strchr(name, '/') || !ip_network_parse(name, &host) || *end || port < 1 || port > PORT_MAX)
        return false;
    *ret = (struct target){
        .text = text,
        .name_len = (size_t)(equals - text),
        .address = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)},
        .fd = -1,
    };
    memcpy(&ret->address.sin6_addr, host.bytes, sizeof host.bytes);
    return true;
}

static void
reach_start(struct target *target)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = target->address.sin6_port};
    const unsigned char *bytes = target->address.sin6_addr.s6_addr;
    bool is_v4 = ip_address_is_v4(bytes);
    memcpy(&four.sin_addr, bytes + 12, sizeof four.sin_addr);
    target->answers = false;
    target->fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int result = is_v4 ? connect(target->fd, (const struct sockaddr *)&four, sizeof four)
                       : connect(target->fd, (const struct sockaddr *)&target->address,
                                 sizeof target->address);
    if (result != 0 && errno != EINPROGRESS && target->fd >= 0) {
        close(target->fd);
        target->fd = -1;
    }
}

static void
reach_finish(struct target *target)
{
    int failure = 0;
    socklen_t len = sizeof failure;
    target->answers =
        getsockopt(target->fd, SOL_SOCKET, SO_ERROR, &failure, &len) == 0 && failure == 0;
    close(target->fd);
    target->fd = -1;
}

// Returns how many answer.
static int
try_all(struct target *targets, int n)
{
    struct pollfd polled[REACH_MAX];
    const int64_t end_ms = clock_mono_ms() + TRY_MS;
    int n_open = n, n_answers = 0;
    for (int i = 0; i < n; i++)
        reach_start(&targets[i]);
    while (n_open > 0) {
        n_open = 0;
        for (int i = 0; i < n; i++) {
            polled[i] = (struct pollfd){.fd = targets[i].fd, .events = POLLOUT};
            n_open += targets[i].fd >= 0;
        }
        int64_t left_ms = end_ms - clock_mono_ms();
        if (n_open == 0 || left_ms <= 0 || poll(polled, (nfds_t)n, (int)left_ms) < 0)
            break;
        for (int i = 0; i < n; i++) {
            if (polled[i].revents)
                reach_finish(&targets[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        n_answers += targets[i].answers;
        if (targets[i].fd >= 0)
            close(targets[i].fd);
    }
    return n_answers;
}

int
reach_main(const char *const *texts, int n)
{
    struct target targets[REACH_MAX];
    for (int i = 0; i < n; i++) {
        if (!parse(texts[i], &targets[i])) {
            printf("not NAME=ADDRESS:PORT: %s\n", texts[i]);
            return 2;
        }
    }
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (attempt > 0)
            poll(NULL, 0, PAUSE_MS);
        if (try_all(targets, n) == 0)
            return 0;
    }
    const char *between = "";
    for (int i = 0; i < n; i++) {
        if (!targets[i].answers)
            continue;
        printf("%s%.*s", between, (int)targets[i].name_len, targets[i].text);
        between = ", ";
    }
    return 1;
}

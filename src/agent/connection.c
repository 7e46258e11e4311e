// SPDX-License-Identifier: Apache-2.0
// Connection files. The tenant has the same user as the agent and may put anything in the place of
// a kernel's socket: what a dial reaches is never more than something of that sandbox.
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { TCP_CONNECT_MS = 50 };

// Ports that are free now: bound together, so that they differ, and let go for the kernel.
static int
pick_ports(int ports[TARGET_N_CHANNELS], struct kg_error *err)
{
    int fds[TARGET_N_CHANNELS];
    int result = 0;

    for (int c = TARGET_SHELL; c < TARGET_N_CHANNELS; c++) {
        struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t len = sizeof addr;
        fds[c] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[c] < 0 || bind(fds[c], (const struct sockaddr *)&addr, sizeof addr) != 0 ||
            getsockname(fds[c], (struct sockaddr *)&addr, &len) != 0)
            result = kg_error_set(err, KG_INTERNAL, errno, "cannot find a free port");
        ports[c] = ntohs(addr.sin_port);
    }
    for (int c = TARGET_SHELL; c < TARGET_N_CHANNELS; c++) {
        if (fds[c] >= 0)
            close(fds[c]);
    }
    return result;
}

static int
write_file(const struct connection *connection, const char *kernel, const char *key,
           struct kg_error *err)
{
    json_auto_t *content = json_pack("{s:s, s:s, s:s, s:s, s:s}", "transport",
                                     connection->tcp ? "tcp" : "ipc", "ip", connection->ip, "key",
                                     key, "signature_scheme", "hmac-sha256", "kernel_name", kernel);
    for (enum target_channel c = TARGET_SHELL; c < TARGET_N_CHANNELS; c++) {
        KG_AUTO_FREE char *name = kg_asprintf("%s_port", target_channel_name(c));
        json_object_set_new(content, name, json_integer(connection->ports[c]));
    }
    KG_AUTO_FREE char *text = json_dumps(content, JSON_COMPACT);
    return file_write_atomic(connection->file, text, strlen(text), 0600, err);
}

int
connection_make(const char *tmp_dir, const char *kernel, const char *id, bool tcp, const char *key,
                struct connection *ret, struct kg_error *err)
{
    *ret = (struct connection){.tcp = tcp};
    ret->dir = kg_asprintf("%s/.kg-%s-%s", tmp_dir, kernel, id);
    ret->file = kg_asprintf("%s/connection.json", ret->dir);
    ret->ip = tcp ? kg_strdup("127.0.0.1") : kg_asprintf("%s/k", ret->dir);
    for (int c = TARGET_SHELL; c < TARGET_N_CHANNELS; c++)
        ret->ports[c] = c;

    int result = 0;
    if (mkdir(ret->dir, 0700) != 0)
        result = kg_error_set(err, KG_INTERNAL, errno, "cannot make %.100s", ret->dir);
    if (result == 0 && tcp)
        result = pick_ports(ret->ports, err);
    if (result == 0)
        result = write_file(ret, kernel, key, err);
    if (result != 0)
        connection_fini(ret);
    return result;
}

int
connection_make_output(const struct connection *connection, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/output", connection->dir);

    if (mkfifo(path, 0600) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make %.100s", path);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 ? fd : kg_error_set(err, KG_INTERNAL, errno, "cannot open %.100s", path);
}

void
connection_fini(struct connection *connection)
{
    struct kg_error err;

    if (connection->dir && path_remove_tree(connection->dir, &err) != 0)
        log_warning("cannot remove a connection folder", LOG_ERR(&err));
    free(connection->dir);
    free(connection->file);
    free(connection->ip);
    *connection = (struct connection){0};
}

static int
dial_ipc(const struct connection *connection, enum target_channel channel)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int number = channel == TARGET_SAVEPOINT ? (int)TARGET_SAVEPOINT : connection->ports[channel];
    KG_AUTO_FREE char *path = kg_asprintf("%s-%d", connection->ip, number);

    if (strlen(path) >= sizeof addr.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(addr.sun_path, path, strlen(path) + 1);
    KG_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof addr) != 0)
        return -1;
    return KG_STEAL_FD(fd);
}

// On loopback the handshake is over when connect() returns; the wait is only a bound.
static int
wait_connected(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof errno;
    int failure = ETIMEDOUT;

    if (poll(&item, 1, TCP_CONNECT_MS) == 1)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len);
    errno = failure;
    return failure ? -1 : 0;
}

static int
dial_tcp(const struct connection *connection, enum target_channel channel)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)connection->ports[channel]),
        .sin_addr = {htonl(INADDR_LOOPBACK)},
    };
    const int on = 1;

    KG_AUTO_FD fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) != 0 &&
        (errno != EINPROGRESS || wait_connected(fd) != 0))
        return -1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        return -1;
    return KG_STEAL_FD(fd);
}

int
connection_dial(const struct connection *connection, enum target_channel channel,
                struct kg_error *err)
{
    bool by_tcp = connection->tcp && channel != TARGET_SAVEPOINT;
    int fd = by_tcp ? dial_tcp(connection, channel) : dial_ipc(connection, channel);

    if (fd < 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno, "not ready");
    return fd;
}

// SPDX-License-Identifier: Apache-2.0
// Dialling an agent over TCP, for the tests of the TCP door. A sandbox has only loopback, in a
// network namespace of its own. The gateway makes its end of the connection inside that namespace,
// which replaces a network between the two; it needs the right to enter namespaces (root).
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "oci_priv.h"

// Only the calling thread changes its namespace. A socket stays in the namespace in which it was
// created.
static int
socket_in(int namespace_fd)
{
    KG_AUTO_FD own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

    if (own < 0 || setns(namespace_fd, CLONE_NEWNET) != 0)
        return -1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (setns(own, CLONE_NEWNET) != 0)
        abort(); // the gateway's later connections would be in the sandbox's namespace
    return fd;
}

int
netns_dial(int pid, int port, struct kg_error *err)
{
    const struct sockaddr_in addr = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr = {htonl(INADDR_LOOPBACK)},
    };
    KG_AUTO_FREE char *path = kg_asprintf("/proc/%d/ns/net", pid);
    KG_AUTO_FD inside = open(path, O_RDONLY | O_CLOEXEC);

    if (inside < 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno,
                            "cannot find the network of the sandbox");
    KG_AUTO_FD fd = socket_in(inside);
    if (fd < 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno,
                            "cannot enter the network of the sandbox");
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) != 0 && errno != EINPROGRESS)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno, "cannot connect to the agent");
    return KG_STEAL_FD(fd);
}

// SPDX-License-Identifier: Apache-2.0
// Addresses of the other replicas, as connections from them have them.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "replicas_priv.h"

char *
replicas_host(const char *address, int *ret_port)
{
    const char *colon = strrchr(address, ':');
    size_t bracket = address[0] == '[' && colon > address + 2;
    *ret_port = atoi(colon + 1);
    return kg_strndup(address + bracket, (size_t)(colon - address) - 2 * bracket);
}

// As IPv6; IPv4 is mapped into it.
static bool
parse_host(const char *host, struct in6_addr *ret)
{
    KG_AUTO_FREE char *mapped = kg_asprintf("::ffff:%s", host);
    return inet_pton(AF_INET6, host, ret) == 1 || inet_pton(AF_INET6, mapped, ret) == 1;
}

static bool
read_address(const struct sockaddr *from, struct in6_addr *ret)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(ret->s6_addr, mapped, sizeof mapped);
    if (from->sa_family == AF_INET)
        memcpy(ret->s6_addr + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    else if (from->sa_family == AF_INET6)
        *ret = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    return from->sa_family == AF_INET || from->sa_family == AF_INET6;
}

bool
replicas_is_from(const struct sockaddr *from, const char *address)
{
    struct in6_addr one, two;
    int port;
    KG_AUTO_FREE char *host = replicas_host(address, &port);
    return read_address(from, &one) && parse_host(host, &two) && IN6_ARE_ADDR_EQUAL(&one, &two);
}

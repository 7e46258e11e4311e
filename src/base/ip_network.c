// SPDX-License-Identifier: Apache-2.0
// IP addresses and networks.

#include "ip_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { V4_OFFSET = 12, V4_BITS = 32, BITS = 128 };

void
ip_address_from_v4(unsigned char ret[IP_ADDRESS_LEN], const void *v4)
{
    static const unsigned char prefix[V4_OFFSET] = {[10] = 0xff, [11] = 0xff};
    memcpy(ret, prefix, V4_OFFSET);
    memcpy(ret + V4_OFFSET, v4, 4);
}

bool
ip_address_is_v4(const unsigned char bytes[IP_ADDRESS_LEN])
{
    unsigned char mapped[IP_ADDRESS_LEN];
    ip_address_from_v4(mapped, bytes + V4_OFFSET);
    return memcmp(mapped, bytes, IP_ADDRESS_LEN) == 0;
}

bool
ip_address_of(const struct sockaddr *from, unsigned char ret[IP_ADDRESS_LEN])
{
    if (from->sa_family == AF_INET)
        ip_address_from_v4(ret, &((const struct sockaddr_in *)(const void *)from)->sin_addr);
    else if (from->sa_family == AF_INET6)
        memcpy(ret, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, IP_ADDRESS_LEN);
    else
        return false;
    return true;
}

bool
ip_address_is_loopback(const unsigned char bytes[IP_ADDRESS_LEN])
{
    struct in6_addr v6;
    memcpy(&v6, bytes, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6) ||
           (ip_address_is_v4(bytes) && bytes[V4_OFFSET] == IN_LOOPBACKNET);
}

void
ip_network_of_client(const unsigned char address[IP_ADDRESS_LEN], struct ip_network *ret)
{
    bool whole = ip_address_is_v4(address) || ip_address_is_loopback(address);
    *ret = (struct ip_network){.bits = whole ? BITS : IP_CLIENT_BITS};
    memcpy(ret->bytes, address, (size_t)ret->bits / 8);
}

bool
ip_network_parse(const char *text, struct ip_network *ret)
{
    char address[INET6_ADDRSTRLEN];
    unsigned char v4[4];
    size_t len = strcspn(text, "/");
    if (len >= sizeof address)
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    int max = BITS;
    if (inet_pton(AF_INET, address, v4) == 1) {
        ip_address_from_v4(ret->bytes, v4);
        max = V4_BITS;
    } else if (inet_pton(AF_INET6, address, ret->bytes) != 1) {
        return false;
    }
    char *end;
    long bits = text[len] ? strtol(text + len + 1, &end, 10) : max;
    if (text[len] && (end == text + len + 1 || *end || bits < 0 || bits > max))
        return false;
    ret->bits = (int)bits + (BITS - max);
    return true;
}

bool
ip_network_has(const struct ip_network *network, const unsigned char bytes[IP_ADDRESS_LEN])
{
    size_t whole = (size_t)network->bits / 8;
    unsigned mask = (0xff00U >> (network->bits % 8)) & 0xff;
    return memcmp(network->bytes, bytes, whole) == 0 &&
           (mask == 0 || ((unsigned)(network->bytes[whole] ^ bytes[whole]) & mask) == 0);
}

const char *
ip_network_format(const struct ip_network *network, char ret[IP_NETWORK_TEXT_SIZE])
{
    bool v4 = network->bits >= BITS - V4_BITS && ip_address_is_v4(network->bytes);
    inet_ntop(v4 ? AF_INET : AF_INET6, network->bytes + (v4 ? V4_OFFSET : 0), ret,
              INET6_ADDRSTRLEN);
    if (network->bits < BITS)
        snprintf(ret + strlen(ret), IP_NETWORK_TEXT_SIZE - strlen(ret), "/%d",
                 v4 ? network->bits - (BITS - V4_BITS) : network->bits);
    return ret;
}

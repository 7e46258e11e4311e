// SPDX-License-Identifier: Apache-2.0
// IP addresses and networks, both families in one form: an IPv4 address as the IPv6 address
// ::ffff:a.b.c.d (RFC 4291, section 2.5.5.2).
#pragma once

#include "base.h"

struct sockaddr;

enum {
    IP_ADDRESS_LEN = 16,
    IP_CLIENT_BITS = 64,       // of IPv6, which one client usually has
    IP_NETWORK_TEXT_SIZE = 50, // with its NUL
};
struct ip_network {
    unsigned char bytes[IP_ADDRESS_LEN];
    int bits;
};

// `v4`: four bytes.
void ip_address_from_v4(unsigned char ret[IP_ADDRESS_LEN], const void *v4);
bool ip_address_is_v4(const unsigned char bytes[IP_ADDRESS_LEN]);
// False: neither an IPv4 nor an IPv6 address.
bool ip_address_of(const struct sockaddr *from, unsigned char ret[IP_ADDRESS_LEN]);
bool ip_address_is_loopback(const unsigned char bytes[IP_ADDRESS_LEN]);
// What one client usually has: an IPv4 address, or 64 bits of IPv6, but ::1 is loopback's only.
void ip_network_of_client(const unsigned char address[IP_ADDRESS_LEN], struct ip_network *ret);
// An address, which is a network of one, or 10.0.0.0/8 or 2001:db8::/32. False: `text` is neither.
bool ip_network_parse(const char *text, struct ip_network *ret);
bool ip_network_has(const struct ip_network *network, const unsigned char bytes[IP_ADDRESS_LEN]);
// As ip_network_parse() reads it; a network of one without its length. Returns `ret`.
const char *ip_network_format(const struct ip_network *network, char ret[IP_NETWORK_TEXT_SIZE]);

// SPDX-License-Identifier: Apache-2.0
// The rule for outgoing connections: tables of networks, this machine's addresses, and exceptions.

#include "address_policy.h"

#include <ifaddrs.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "ip_network.h"

enum { MAX_HOST_LEN = 253, OWN_MS = 1000 };

// The addresses of this machine's interfaces, as they were at most OWN_MS ago.
struct own_addresses {
    unsigned char (*bytes)[IP_ADDRESS_LEN]; // NULL: they could not be read
    size_t n;
    int64_t read_ms; // clock_mono_ms(); 0: never
};

struct address_policy {
    struct ip_network *networks; // allowed
    size_t n_networks;
    char **hosts;
    size_t n_hosts;
    struct ip_network *special; // the table below, parsed
    struct own_addresses *own;
};

// The networks that the registries of special-purpose addresses (RFC 6890) do not list as globally
// reachable. The IPv4 networks for documentation are left out, since no host has an address there.
// `v4_at` is 0, or where the addresses contain an IPv4 address, which the same rule applies to.
static const struct {
    const char *network;
    size_t v4_at;
} special[] = {
    {"0.0.0.0/8", 0},       // this network
    {"10.0.0.0/8", 0},      // private
    {"100.64.0.0/10", 0},   // carrier's NAT
    {"127.0.0.0/8", 0},     // loopback
    {"168.63.129.16", 0},   // the host of an Azure machine
    {"169.254.0.0/16", 0},  // link-local, and the metadata services of clouds
    {"172.16.0.0/12", 0},   // private
    {"192.0.0.0/24", 0},    // protocol assignments
    {"192.88.99.0/24", 0},  // relays of 6to4
    {"192.168.0.0/16", 0},  // private
    {"198.18.0.0/15", 0},   // benchmarks within a site
    {"224.0.0.0/4", 0},     // multicast
    {"240.0.0.0/4", 0},     // reserved, and broadcast
    {"::/128", 0},          // unspecified
    {"::ffff:0:0:0/96", 0}, // IPv4-translated
    {"::1/128", 0},         // loopback
    {"64:ff9b:1::/48", 0},  // a site's own NAT64
    {"100::/64", 0},        // discard
    {"2001::/32", 0},       // Teredo
    {"2001:2::/48", 0},     // benchmarks within a site
    {"2001:db8::/32", 0},   // documentation
    {"3fff::/20", 0},       // documentation
    {"5f00::/16", 0},       // segment routing
    {"fc00::/7", 0},        // unique local
    {"fe80::/10", 0},       // link-local
    {"fec0::/10", 0},       // site-local
    {"ff00::/8", 0},        // multicast
    {"::/96", 12},          // IPv4-compatible
    {"64:ff9b::/96", 12},   // NAT64
    {"2002::/16", 2},       // 6to4
};

// ---- The rule -------------------------------------------------------------------------------

static void
own_read(struct own_addresses *own)
{
    struct ifaddrs *interfaces;
    own->read_ms = clock_mono_ms();
    free(own->bytes);
    own->bytes = NULL;
    own->n = 0;
    if (getifaddrs(&interfaces) != 0)
        return;
    size_t max = 0;
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next)
        max++;
    own->bytes = kg_calloc(max + 1, sizeof own->bytes[0]);
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
        if (i->ifa_addr && ip_address_of(i->ifa_addr, own->bytes[own->n]))
            own->n++;
    }
    freeifaddrs(interfaces);
}

// A service that listens on all addresses of this machine is reachable at its public ones, too.
static bool
own_has(struct own_addresses *own, const unsigned char bytes[IP_ADDRESS_LEN])
{
    if (!own->read_ms || clock_mono_ms() - own->read_ms >= OWN_MS)
        own_read(own);
    if (!own->bytes)
        return true; // unknown
    for (size_t i = 0; i < own->n; i++) {
        if (memcmp(own->bytes[i], bytes, IP_ADDRESS_LEN) == 0)
            return true;
    }
    return false;
}

static bool
is_forbidden(const struct address_policy *policy, const unsigned char bytes[IP_ADDRESS_LEN])
{
    for (size_t i = 0; i < KG_ARRAY_LEN(special); i++) {
        unsigned char carried[IP_ADDRESS_LEN];
        ip_address_from_v4(carried, bytes + special[i].v4_at);
        if (ip_network_has(&policy->special[i], bytes) &&
            (special[i].v4_at == 0 || is_forbidden(policy, carried)))
            return true;
    }
    return own_has(policy->own, bytes);
}

static bool
names_host(const struct address_policy *policy, const char *host)
{
    for (size_t i = 0; i < policy->n_hosts; i++) {
        if (strcasecmp(policy->hosts[i], host) == 0)
            return true;
    }
    return false;
}

bool
address_policy_allows(const struct address_policy *policy, const char *host,
                      const struct sockaddr *address)
{
    unsigned char bytes[IP_ADDRESS_LEN];
    if (!ip_address_of(address, bytes))
        return false;
    if (!is_forbidden(policy, bytes) || names_host(policy, host))
        return true;
    for (size_t i = 0; i < policy->n_networks; i++) {
        // ::/0 does not allow IPv4 addresses: their mapped form is internal.
        bool same_family = policy->networks[i].bits >= 96 || !ip_address_is_v4(bytes);
        if (same_family && ip_network_has(&policy->networks[i], bytes))
            return true;
    }
    return false;
}

// ---- What is allowed ------------------------------------------------------------------------

static bool
is_host_name(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= MAX_HOST_LEN && text[0] != '-' && text[0] != '.' &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == len;
}

static int
address_policy_add(struct address_policy *policy, const char *item, struct kg_error *err)
{
    struct ip_network network;
    if (ip_network_parse(item, &network))
        policy->networks[policy->n_networks++] = network;
    else if (is_host_name(item))
        policy->hosts[policy->n_hosts++] = kg_strdup(item);
    else
        return kg_error_set(err, KG_INVALID, 0,
                            "\"%.80s\" is not an address, network (10.0.0.0/8) or host name", item);
    return 0;
}

struct address_policy *
address_policy_new(const char *const *allow, struct kg_error *err)
{
    KG_AUTO(address_policy) policy = KG_NEW(struct address_policy);
    policy->own = KG_NEW(struct own_addresses);
    policy->special = kg_calloc(KG_ARRAY_LEN(special), sizeof policy->special[0]);
    for (size_t i = 0; i < KG_ARRAY_LEN(special); i++)
        if (!ip_network_parse(special[i].network, &policy->special[i]))
            abort();
    size_t n = 0;
    while (allow && allow[n])
        n++;
    policy->networks = kg_calloc(n + 1, sizeof policy->networks[0]);
    policy->hosts = kg_calloc(n + 1, sizeof policy->hosts[0]);
    for (size_t i = 0; i < n; i++) {
        if (address_policy_add(policy, allow[i], err) < 0)
            return NULL;
    }
    return KG_STEAL(policy);
}

void
address_policy_free(struct address_policy *policy)
{
    if (!policy)
        return;
    for (size_t i = 0; i < policy->n_hosts; i++)
        free(policy->hosts[i]);
    free(policy->hosts);
    free(policy->networks);
    free(policy->special);
    free(policy->own->bytes);
    free(policy->own);
    free(policy);
}

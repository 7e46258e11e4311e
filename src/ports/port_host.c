// SPDX-License-Identifier: Apache-2.0
// Hosts of ports. What only looks like one is told from all other hosts, so that no page that a
// browser takes for a port's is ever the gateway's.

#include <string.h>
#include <strings.h>

#include "ports_priv.h"

static const char digits[] = "0123456789";
static const char id_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

// The length of the name before ".<domain>"; 0: it is not below the domain.
static size_t
prefix_len(const char *name, size_t len, const char *domain)
{
    size_t domain_len = strlen(domain);
    if (domain_len == 0 || len < domain_len + 2 || name[len - domain_len - 1] != '.' ||
        strncasecmp(name + len - domain_len, domain, domain_len) != 0)
        return 0;
    return len - domain_len - 1;
}

// Whether a label begins as one of a port.
static bool
looks_like_port(const char *label)
{
    size_t n = strspn(label, digits);
    return n > 0 && label[n] == '-';
}

static int
parse_label(const char *label, struct port_host *ret)
{
    enum { DIGITS_MAX = 5, PORT_MAX = 65535 };
    size_t n = strspn(label, digits);
    const char *id = label + n + 1;
    size_t id_len = strlen(id);
    if (n > DIGITS_MAX || label[0] == '0' || atoi(label) > PORT_MAX || id_len == 0 ||
        id_len > PORT_HOST_ID_MAX || strspn(id, id_letters) != id_len)
        return -1;
    ret->port = atoi(label);
    memcpy(ret->id, id, id_len + 1);
    return 0;
}

enum port_host_kind
port_host_parse(const char *host, const char *domain, struct port_host *ret)
{
    size_t len = strcspn(host, ":");
    bool is_clean =
        !host[len] || (host[len + 1] && !host[len + 1 + strspn(host + len + 1, digits)]);
    bool has_dot = len > 0 && host[len - 1] == '.'; // of the root: the same name to DNS
    size_t n = prefix_len(host, len - has_dot, domain);
    if (n == 0)
        return PORT_HOST_OTHER;
    KG_AUTO_FREE char *prefix = kg_strndup(host, n);
    for (char *c = prefix; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    const char *dot = strrchr(prefix, '.');
    if (!looks_like_port(dot ? dot + 1 : prefix))
        return PORT_HOST_OTHER;
    if (dot || has_dot || !is_clean || parse_label(prefix, ret) < 0)
        return PORT_HOST_BAD;
    return PORT_HOST_OK;
}

bool
port_host_is_api(const char *host, const char *domain)
{
    static const char api[] = "api";
    size_t len = strcspn(host, ":");
    bool is_clean = host[len + strspn(host + len, ":0123456789")] == '\0';
    return is_clean && prefix_len(host, len, domain) == strlen(api) &&
           strncasecmp(host, api, strlen(api)) == 0;
}

int
ports_check_domain(const char *domain, struct kg_error *err)
{
    enum { DOMAIN_MAX = 180 };
    size_t len = strlen(domain);
    bool is_valid = len <= DOMAIN_MAX;
    for (const char *label = domain; is_valid && *label;) {
        size_t n = strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789-");
        is_valid = n > 0 && n < 64 && label[0] != '-' && label[n - 1] != '-' &&
                   (label[n] == '\0' || (label[n] == '.' && label[n + 1]));
        label += n + (label[n] == '.');
    }
    return is_valid ? 0
                    : kg_error_set(err, KG_INVALID, 0,
                                   "setting ports-domain: \"%.80s\" is not a name of lower-case "
                                   "letters, digits, - and dots, such as ports.example.org",
                                   domain);
}

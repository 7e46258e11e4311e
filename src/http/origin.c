// SPDX-License-Identifier: Apache-2.0
// Keeps other sites' web pages from calling a local gateway: checks Origin and Host (DNS
// rebinding), and answers CORS. Also recognizes requests that a proxy on this machine forwards from
// another one.

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"

static const char *const loopback_names[] = {"localhost", "127.0.0.1", "[::1]"};

// The length of a Host header's name, without its port; 0: malformed.
static size_t
host_name_len(const char *host)
{
    size_t len = strcspn(host, host[0] == '[' ? "]" : ":");
    if (host[0] == '[')
        len += host[len] == ']';
    const char *port = host + len;
    if (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")]))
        return 0;
    return len;
}

static bool
host_known(const struct http_server *server, const char *host)
{
    size_t len = host_name_len(host);
    if (len == 0)
        return false;
    for (size_t i = 0; i < KG_ARRAY_LEN(loopback_names); i++)
        if (strlen(loopback_names[i]) == len && strncasecmp(host, loopback_names[i], len) == 0)
            return true;
    for (char **allowed = server->allowed_hosts; *allowed; allowed++) {
        if (strcmp(*allowed, "*") == 0 || strcasecmp(*allowed, host) == 0)
            return true;
        if (strlen(*allowed) == len && strncasecmp(host, *allowed, len) == 0)
            return true;
    }
    return false;
}

static bool
origin_is_own(const char *origin, const char *host)
{
    const char *authority = NULL;
    if (strncasecmp(origin, "http://", 7) == 0)
        authority = origin + 7;
    else if (strncasecmp(origin, "https://", 8) == 0)
        authority = origin + 8;
    return authority && strcasecmp(authority, host) == 0;
}

static bool
origin_allowed(const struct http_server *server, const char *origin)
{
    for (char **allowed = server->allowed_origins; *allowed; allowed++)
        if (strcasecmp(*allowed, origin) == 0)
            return true;
    return false;
}

int
origin_check(const struct http_server *server, const struct http_request *request,
             struct kg_error *err)
{
    if (!server->check_origin_and_host)
        return 0;
    const char *host = http_request_header(request, "Host");
    if (!host || !host_known(server, host))
        return kg_error_set(
            err, KG_FORBIDDEN_HOST, 0,
            "Host: this name does not belong to the gateway; add it to allowed-hosts");
    const char *origin = http_request_header(request, "Origin");
    if (!origin || origin_is_own(origin, host))
        return 0;
    if (!origin_allowed(server, origin))
        return kg_error_set(
            err, KG_FORBIDDEN_ORIGIN, 0,
            "Origin: pages of this origin may not call the gateway; add it to allowed-origins");
    return 0;
}

void
origin_add_headers(struct http_request *request)
{
    const struct http_server *server = request->conn->server;
    const char *origin = http_request_header(request, "Origin");
    if (!server->check_origin_and_host || !origin || !origin_allowed(server, origin) ||
        origin_is_own(origin, http_request_header(request, "Host")))
        return;
    http_reply_header(request, "Access-Control-Allow-Origin", origin);
    http_reply_header(request, "Access-Control-Expose-Headers", "*");
    http_reply_header(request, "Vary", "Origin");
    if (request->method != HTTP_OPTIONS)
        return;
    http_reply_header(request, "Access-Control-Allow-Methods",
                      "GET, HEAD, POST, PUT, DELETE, PATCH");
    const char *headers = http_request_header(request, "Access-Control-Request-Headers");
    if (headers)
        http_reply_header(request, "Access-Control-Allow-Headers", headers);
    http_reply_header(request, "Access-Control-Max-Age", "600");
}

// ---- Proxies --------------------------------------------------------------------------------

// An address in the forms that proxies write: 127.0.0.1, ::1, ::ffff:127.0.0.1, with a port
// 127.0.0.1:80 or [::1]:80, in a Forwarded header maybe in quotation marks.
static bool
is_loopback(const char *text, size_t len)
{
    char address[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    const char *begin = text + strspn(text, " \t\"");
    bool bracketed = *begin == '[';
    begin += bracketed;
    size_t n = strcspn(begin, bracketed ? "]" : " \t\",;");
    const char *colon = memchr(begin, ':', n);
    if (!bracketed && colon && !memchr(colon + 1, ':', n - (size_t)(colon + 1 - begin)))
        n = (size_t)(colon - begin); // a single colon begins a port
    if (begin + n + bracketed > text + len || n >= sizeof address)
        return false;
    memcpy(address, begin, n);
    address[n] = '\0';
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, address, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) ||
           (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
}

// Whether all addresses in a list are; of a Forwarded header (RFC 7239) those after "for=".
static bool
are_loopback(const char *list, bool is_forwarded)
{
    for (const char *item = list; *item; item += *item != '\0') {
        item += strspn(item, " \t");
        size_t len = strcspn(item, is_forwarded ? ",;" : ",");
        size_t skip = 0;
        if (is_forwarded)
            skip = strncasecmp(item, "for=", 4) == 0 ? 4 : len;
        if (skip < len && !is_loopback(item + skip, len - skip))
            return false;
        item += len;
    }
    return true;
}

bool
origin_is_elsewhere(const struct http_request *request)
{
    const struct evkeyval *header;
    TAILQ_FOREACH(header, request->headers, next) {
        bool is_forwarded = strcasecmp(header->key, "Forwarded") == 0;
        if ((is_forwarded || strcasecmp(header->key, "X-Forwarded-For") == 0 ||
             strcasecmp(header->key, "X-Real-IP") == 0) &&
            !are_loopback(header->value, is_forwarded))
            return true;
    }
    return false;
}

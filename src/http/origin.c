// SPDX-License-Identifier: Apache-2.0
// Keeps other sites' web pages from calling a local gateway: checks Origin and Host (DNS
// rebinding), and answers CORS.

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
is_loopback_name(const char *host, size_t len)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(loopback_names); i++)
        if (strlen(loopback_names[i]) == len && strncasecmp(host, loopback_names[i], len) == 0)
            return true;
    return false;
}

bool
http_request_is_to_loopback(const struct http_request *request)
{
    const char *host = http_request_header(request, "Host");
    return host && is_loopback_name(host, host_name_len(host));
}

static bool
host_known(const struct http_server *server, const char *host)
{
    size_t len = host_name_len(host);
    if (len == 0)
        return false;
    if (is_loopback_name(host, len))
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

bool
http_request_has_own_origin(const struct http_request *request)
{
    const char *origin = http_request_header(request, "Origin");
    const char *host = http_request_header(request, "Host");
    return !origin || (host && origin_is_own(origin, host));
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
    if (!host || !(request->to_own_name || host_known(server, host)))
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
    char methods[HTTP_METHODS_TEXT_SIZE];
    methods_format(~(int)HTTP_OPTIONS, methods, sizeof methods);
    http_reply_header(request, "Access-Control-Allow-Methods", methods);
    const char *headers = http_request_header(request, "Access-Control-Request-Headers");
    if (headers)
        http_reply_header(request, "Access-Control-Allow-Headers", headers);
    http_reply_header(request, "Access-Control-Max-Age", "600");
}

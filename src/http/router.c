// SPDX-License-Identifier: Apache-2.0
// Finds the route of a decoded path: matches patterns with {name} and {name...}.

#include <assert.h>
#include <string.h>

#include "http_priv.h"

// Only where there are several gateways is a parameter looked up that a route's concerns name, so a
// wrong name would not be found out before.
static bool
concerns_what_it_has(const struct http_route *route)
{
    for (const struct http_concern *rule = route->concerns; rule && rule->kind; rule++) {
        if (rule->part == HTTP_IN_BODY && (route->flags & (HTTP_OPEN_BODY | HTTP_GZIP_BODY)))
            return false; // it is not there, or not readable, when rules are tried
        if (rule->part != HTTP_IN_PATH)
            continue;
        KG_AUTO_FREE char *one = kg_asprintf("{%s}", rule->name);
        KG_AUTO_FREE char *rest = kg_asprintf("{%s...}", rule->name);
        if (!strstr(route->pattern, one) && !strstr(route->pattern, rest))
            return false;
    }
    return true;
}

void
http_server_add_dialect(struct http_server *server, const struct http_dialect *dialect,
                        const struct http_route *routes, size_t n, void *arg)
{
    struct http_router *router = &server->router;
    router->entries = kg_realloc(router->entries, (router->n + n) * sizeof *router->entries);
    for (size_t i = 0; i < n; i++) {
        assert(routes[i].pattern[0] == '/');
        assert(concerns_what_it_has(&routes[i]));
        router->entries[router->n++] = (struct http_router_entry){routes[i], dialect, arg};
    }
}

void
http_server_add_routes(struct http_server *server, const struct http_route *routes, size_t n,
                       void *arg)
{
    http_server_add_dialect(server, NULL, routes, n, arg);
}

static void
add_param(struct http_request *request, const char *segment, size_t name_len, char *value)
{
    assert(request->n_params < HTTP_PARAMS_MAX);
    request->params[request->n_params++] = (struct http_param){segment + 1, name_len, value};
}

// Compares segment by segment. Those of the pattern end at a slash, those of the path at a NUL.
static bool
match(const char *pattern, struct http_request *request)
{
    char *segment = request->path;
    const char *end = request->path + request->path_len;
    const char *p = pattern + 1;
    request->n_params = 0;
    for (;;) {
        size_t len = strcspn(p, "/");
        if (len > 5 && p[0] == '{' && memcmp(p + len - 4, "...}", 4) == 0) {
            add_param(request, p, len - 5, segment);
            return true;
        }
        if (p[0] == '{' && *segment)
            add_param(request, p, len - 2, segment);
        else if (strlen(segment) != len || memcmp(segment, p, len) != 0)
            return false;
        p += len;
        segment += strlen(segment);
        if (!*p || segment == end)
            return !*p && segment == end;
        p++;
        segment++;
    }
}

// A trailing {name...} takes several segments: restores the slashes between them.
static void
join_rest(struct http_request *request)
{
    if (request->n_params == 0)
        return;
    struct http_param *last = &request->params[request->n_params - 1];
    if (strncmp(last->name + last->name_len, "...}", 4) != 0)
        return;
    for (char *c = last->value; c < request->path + request->path_len; c++)
        if (!*c)
            *c = '/';
}

static const struct http_router_entry *
find(const struct http_router *router, struct http_request *request, int *ret_methods)
{
    *ret_methods = 0;
    for (size_t i = 0; i < router->n; i++) {
        const struct http_router_entry *entry = &router->entries[i];
        int methods = (int)entry->route.method;
        if (methods & HTTP_GET)
            methods |= HTTP_HEAD;
        if (!match(entry->route.pattern, request))
            continue;
        if (methods & (int)request->method) {
            join_rest(request);
            return entry;
        }
        *ret_methods |= methods;
    }
    return NULL;
}

// A trailing slash makes no difference.
const struct http_router_entry *
router_find(const struct http_router *router, struct http_request *request, int *ret_methods)
{
    const struct http_router_entry *entry = find(router, request, ret_methods);
    bool ends_with_slash = request->path_len > 1 && !request->path[request->path_len - 1];
    if (entry || *ret_methods || !ends_with_slash)
        return entry;
    request->path_len--;
    entry = find(router, request, ret_methods);
    request->path_len++;
    return entry;
}

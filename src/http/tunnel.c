// SPDX-License-Identifier: Apache-2.0
// Requests that another server answers: what is sent to it, and the connection that then carries
// its answer as it comes.

#include <string.h>
#include <strings.h>

#include "http_priv.h"

void
http_server_set_forward(struct http_server *server, http_forward_fn fn, void *arg)
{
    server->forward = fn;
    server->forward_arg = arg;
}

void
http_server_set_replica(struct http_server *server, http_replica_fn fn, void *arg)
{
    server->is_replica = fn;
    server->replica_arg = arg;
}

void
http_request_set_forwarded(struct http_request *request)
{
    request->forwarded = true;
}

bool
http_request_is_forwarded(const struct http_request *request)
{
    return request->forwarded;
}

void
http_request_set_elsewhere(struct http_request *request, json_t *bodies)
{
    json_decref(request->elsewhere);
    request->elsewhere = bodies;
}

json_t *
http_request_elsewhere(const struct http_request *request)
{
    return request->elsewhere;
}

const char *
http_request_route(const struct http_request *request)
{
    return request->route;
}

const char *
http_request_target(const struct http_request *request)
{
    return request->head.target;
}

bool
http_header_is_hop(const char *name)
{
    static const char *const names[] = {"Connection",
                                        "Keep-Alive",
                                        "Transfer-Encoding",
                                        "TE",
                                        "Trailer",
                                        "Content-Length",
                                        "Expect",
                                        "Upgrade",
                                        "Proxy-Connection",
                                        "Proxy-Authenticate",
                                        "Proxy-Authorization"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool
has_name(const char *line, const char *name)
{
    size_t len = strlen(name);
    return strncasecmp(line, name, len) == 0 && line[len] == ':';
}

void
http_append_header(struct buf *head, const char *name, const char *value)
{
    buf_append_str(head, name);
    buf_append_str(head, ": ");
    buf_append_str(head, value);
    buf_append_str(head, "\r\n");
}

char *
http_tunnel_head(const struct http_request *request, const struct http_tunnel_rule *rule)
{
    KG_AUTO_BUF head = {0};
    char method[32];
    methods_format(request->method, method, sizeof method);
    buf_append_str(&head, method);
    buf_append_str(&head, " ");
    buf_append_str(&head, request->head.target);
    buf_append_str(&head, request->head.is_1_0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
    for (size_t i = 0; i < request->head.n_headers; i++) {
        const struct http_header *header = &request->head.headers[i];
        if (http_header_is_hop(header->name) || has_name(rule->extra, header->name) ||
            (rule->append && head_has_token(&request->head, "Connection", header->name)))
            continue;
        if (rule->append)
            rule->append(&head, header->name, header->value, request);
        else
            http_append_header(&head, header->name, header->value);
    }
    if (rule->upgrade)
        http_append_header(&head, "Upgrade", rule->upgrade);
    http_append_header(&head, "Connection", rule->upgrade ? "Upgrade" : "close");
    if (request->body_is_streamed && request->framing.chunked)
        buf_append_str(&head, "Transfer-Encoding: chunked\r\n");
    else if (http_request_body_len(request) > 0 || (request->method & HTTP_METHODS_WITH_BODY))
        buf_printf(&head, "Content-Length: %zu\r\n", http_request_body_len(request));
    buf_append_str(&head, rule->extra);
    buf_append_str(&head, "\r\n\r\n");
    return buf_take(&head);
}

void
http_tunnel_start(struct http_request *request, int status, loop_fn on_data, void *arg)
{
    if (!request->conn)
        return;
    request->status = status;
    request->conn->tunnelled = true;
    upgrade_take(request, on_data, arg);
}

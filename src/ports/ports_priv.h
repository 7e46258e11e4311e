// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     ports.c           hosts, links, and what becomes of a request
//     port_forward.c    one request on its way
//     port_access.c     tokens of links, cookies, other origins
//     port_headers.c    what is left out of heads
//     port_host.c       names of hosts
#pragma once

#include <sys/queue.h>

#include "http.h"
#include "ports.h"

// ---- port_host.c ----------------------------------------------------------------------------

enum { PORT_HOST_ID_MAX = 32 };
struct port_host {
    int port;
    char id[PORT_HOST_ID_MAX + 1];
};
enum port_host_kind {
    PORT_HOST_OTHER, // not a port's
    PORT_HOST_BAD,   // it looks like a port's, so it is nobody else's, either
    PORT_HOST_OK,
};
// Reads a Host header: <port>-<id>.<domain>, and maybe a port of the server's.
enum port_host_kind port_host_parse(const char *host, const char *domain, struct port_host *ret);

// Whether it is api.<domain>.
bool port_host_is_api(const char *host, const char *domain);

// ---- port_headers.c -------------------------------------------------------------------------

#define PORT_COOKIE "kernelgate_port"
// The name behind TLS, where no other host can set it.
#define PORT_SECURE_COOKIE "__Host-" PORT_COOKIE
#define PORT_TOKEN_PARAM "kernelgate_token"
// Whether a cookie's name is one of the gateway's, or looks like it.
bool port_cookie_is_own(const char *name, size_t len);
// For struct http_tunnel_rule: leaves out what is the gateway's own.
void port_request_header(struct buf *head, const char *name, const char *value,
                         const struct http_request *request);
// For struct http_relay_settings: leaves out what would reach beyond the port's own host.
void port_answer_header(struct http_request *request, const char *name, const char *value);

// ---- port_access.c --------------------------------------------------------------------------

enum { PORT_TOKEN_LEN = 32 };
struct port_token;
TAILQ_HEAD(port_tokens, port_token);

// Makes a token that is valid once, for some minutes.
const char *port_token_make(struct port_tokens *tokens, const struct port_host *host,
                            int64_t *ret_ends_ms);
// Whether it is valid; then it no longer is.
KG_MUST_CHECK bool port_token_take(struct port_tokens *tokens, const struct port_host *host,
                                   const char *token);
void port_tokens_fini(struct port_tokens *tokens);

// Adds the cookie of a port's host to the answer.
void port_reply_cookie(struct http_request *request, const struct file_links *links,
                       const struct port_host *host);
bool port_has_cookie(const struct http_request *request, const struct file_links *links,
                     const struct port_host *host);
// Whether the page that sends the request may: KG_FORBIDDEN_ORIGIN. Another host's page may only
// lead its user to a page of the port; of a public port, only its WebSockets are the host's own.
KG_MUST_CHECK int port_check_origin(const struct http_request *request, bool is_public,
                                    struct kg_error *err);
// The token in a target's query, to be freed; NULL: none. `ret_rest`: the target without it.
char *port_target_token(const char *target, char **ret_rest);

// ---- port_forward.c -------------------------------------------------------------------------

// Answers the request with what listens on that port.
void port_forward_start(struct loop *loop, struct http_request *request, struct session *session,
                        int port);

// SPDX-License-Identifier: Apache-2.0
// Servers that code has started in sandboxes, for browsers: each port of a session has a host of
// its own, <port>-<id>.<domain>, whose requests go to what listens there. The id is that of the
// session's sandbox: random, never of another session, and chosen by no client.
//
// What such a page says is hostile. It is never on the gateway's origin, gets none of the gateway's
// credentials, and its answers are read strictly. A port is private: its host wants a cookie of its
// own, for which a link is exchanged once. Its session's owner can make it public.
#pragma once

#include "base.h"

struct file_links;
struct http_request;
struct http_server;
struct loop;
struct ports;
struct session;
struct session_tokens;
struct sessions;

// All borrowed.
struct ports_settings {
    struct loop *loop;
    struct sessions *sessions;
    const struct file_links *links; // has the secret that signs cookies
    const char *domain;             // "": ports have no hosts
    // What is at the hosts of these ports is the gateway's own, for the session that the host
    // names: their requests go to the server's routes, with the id in the header `named_in`. So do
    // those of the host api.<domain>, which names none.
    const int *own_ports; // ended by 0
    const char *named_in;
    // A private port also opens to a session's token with the scope ports in this header.
    const char *token_header;
};
struct ports *ports_new(const struct ports_settings *settings);
void ports_free(struct ports *ports);
// Whether a domain can be the setting's: names of a-z, 0-9 and -, with dots between.
KG_MUST_CHECK int ports_check_domain(const char *domain, struct kg_error *err);
// The hosts of ports are the server's site from now on. `tokens` is borrowed.
void ports_serve_http(struct ports *ports, struct http_server *server,
                      const struct session_tokens *tokens);
// What the hosts of ports end with for the client of that request: the domain, and the port of the
// gateway's own host if it has one. To be freed; NULL: they have no hosts that it could reach.
char *ports_domain(const struct ports *ports, const struct http_request *request);

// A port's URL for the client of a request to the gateway, to be freed. NULL with
// KG_PORT_FORBIDDEN: it has none that the client could reach.
char *ports_url(const struct ports *ports, const struct http_request *request,
                const struct session *session, int port, struct kg_error *err);
// The same with a token that lets one browser in, once, until `ret_ends_ms` (of clock_wall_ms()).
char *ports_link(struct ports *ports, const struct http_request *request,
                 const struct session *session, int port, int64_t *ret_ends_ms,
                 struct kg_error *err);

// SPDX-License-Identifier: Apache-2.0
// Connections to what listens on ports of a session's sandbox, and who may use these ports.
#pragma once

#include "sandbox.h"

struct session;

enum {
    SESSION_PORT_MAX = 65535,
    SESSION_PORT_LINKS_MAX = 64, // open at a time; others wait
};

// One connection. It waits while the session, its owner or all have too many.
struct session_port;
// Fires once, never before session_port_open() returns. The callback owns `fd`, a connected
// non-blocking socket; -1 with `err`: KG_PORT_CLOSED, KG_PORT_FORBIDDEN, KG_PORT_TIMEOUT, or the
// sandbox cannot be reached, and then the handle is invalid. After a connection it may fire once
// more, with an error: the session has ended, and the handle is invalid.
typedef void (*session_port_fn)(int fd, const struct kg_error *err, void *arg);
struct session_port *session_port_open(struct session *session, int port, session_port_fn fn,
                                       void *arg);
// Bytes have moved: use of the session.
void session_port_used(struct session_port *port);
// The descriptor is the caller's. NULL is fine.
void session_port_close(struct session_port *port);

// Everybody may use a public port, until the session or the gateway ends. KG_INVALID: too many are.
KG_MUST_CHECK int session_port_set_public(struct session *session, int port, bool is_public,
                                          struct kg_error *err);
bool session_port_is_public(const struct session *session, int port);

// Asks what listens. The result, checked: session_port_list_parse().
KG_MUST_CHECK struct sandbox_call *session_port_list(struct session *session, sandbox_agent_fn fn,
                                                     void *arg, struct kg_error *err);
// [{"port", "address", "public"}], one of each port, in their order: a new reference. NULL: the
// agent does not tell the truth.
KG_MUST_CHECK json_t *session_port_list_parse(const struct session *session, const json_t *result,
                                              struct kg_error *err);

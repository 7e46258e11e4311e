// SPDX-License-Identifier: Apache-2.0
// The OpenSandbox face: sandboxes for the clients of that protocol, below /v1.
// Source: OpenSandbox, specs/sandbox-lifecycle.yml and specs/execd-api.yaml; docs/opensandbox.md
// says what is served.
//
// A sandbox is a session, whose id is the sandbox's. What OpenSandbox's daemon in the sandbox
// (execd) answers on port 44772, the gateway answers below /v1/sandboxes/{id}/proxy/44772.
#pragma once

#include "base.h"

struct face_context;
struct http_server;
struct loop;
struct opensandbox;
struct session_tokens;

// Pointers are borrowed.
struct opensandbox_settings {
    struct loop *loop;
    const struct face_context *face;
    const struct session_tokens *tokens; // the endpoints' headers have them
    const char *port_header;             // with a token that opens a private port
    bool network;                        // sandboxes have a way out
    int64_t memory_mb;                   // of a sandbox
    double cpus;                         // of a sandbox; 0: no limit
};
struct opensandbox *opensandbox_new(const struct opensandbox_settings *settings);
// After the server.
void opensandbox_free(struct opensandbox *self);
// Adds the routes; `self` must outlive the server.
void opensandbox_serve_http(struct opensandbox *self, struct http_server *server);

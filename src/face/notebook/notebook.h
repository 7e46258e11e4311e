// SPDX-License-Identifier: Apache-2.0
// The Jupyter face: the REST API and the WebSockets of a Jupyter server, for its kernels' clients.
// Source: jupyter_server's API, "Jupyter Server REST API", and its services/kernels.
//
// A kernel is a session whose id has the form of a UUID, with the kernel that it was opened with.
// So kernels have the sessions' owners, limits and expiry, and outlive the gateway as they do.
#pragma once

#include "base.h"

struct face_context;
struct http_server;
struct loop;
struct notebook;

// The loop and the face are borrowed.
struct notebook_settings {
    struct loop *loop;
    const struct face_context *face;
    const char *state_dir; // contains the records of notebook sessions
    const char *prefix;    // the API is also served below this path, as in "/jupyter"; or NULL
    // How long messages are kept for a disconnected client; 0: not at all.
    int64_t replay_ms;
    // How long a connected client keeps its kernel from expiring without any messages; 0: for ever.
    int64_t hold_ms;
    // Whether the id of a kernel that was started with a key is sufficient for its WebSocket.
    bool id_is_key;
};

// Must be called after the recovery of the sessions.
KG_MUST_CHECK struct notebook *notebook_new(const struct notebook_settings *settings,
                                            struct kg_error *err);
// After the server, before the sessions.
void notebook_free(struct notebook *notebook);
KG_DEFINE_AUTO(notebook, notebook_free)
// Closes all WebSockets, as the gateway is about to end: clients connect again to the next one.
void notebook_disconnect(struct notebook *notebook);
// Adds the routes; `notebook` must outlive the server.
void notebook_serve_http(struct notebook *notebook, struct http_server *server);

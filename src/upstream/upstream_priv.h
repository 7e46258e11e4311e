// SPDX-License-Identifier: Apache-2.0
// Shared by upstream.c and upstream_call.c.
#pragma once

#include "upstream.h"

// The connections of a server with "per_session".
struct own_connection {
    LIST_ENTRY(own_connection) link;
    const void *session;
    struct connection *connection;
};

struct upstream {
    const struct connection_context *context;
    const struct server_spec *spec;
    size_t number;
    int64_t timeout_ms; // of a call
    struct connection
        *connection; // which lists, and calls for all sessions unless each has its own
    LIST_HEAD(, own_connection) own;
    size_t n_own;
    struct offer offer;
    struct rpc_call *listing; // tools/list under way, or NULL
    json_t *pages;            // of it
    size_t n_pages;
    bool list_again;              // it has changed meanwhile
    struct loop_timer *list_soon; // begins to list
    struct loop_timer *list_timeout;
    TAILQ_HEAD(, upstream_call) waiting; // for a place
    TAILQ_HEAD(, upstream_call) running;
    size_t n_waiting, n_running;
};

// The connection for calls of that session; NULL with `err`: there are too many.
struct connection *upstream_connection_for(struct upstream *upstream, const void *session,
                                           struct kg_error *err);

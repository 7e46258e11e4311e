// SPDX-License-Identifier: Apache-2.0
// A call of a server's tool, which upstreams.h starts.
#pragma once

#include <jansson.h>

#include "base.h"

struct upstream_call;
struct upstream_call_spec {
    const char *owner;
    const void *session; // whose code calls: sessions do not share the connections of some servers
    const char *session_id;
    const char *name; // "server.tool"
    const json_t *arguments;
};
struct upstream_result {
    const json_t *value; // NULL: it has failed
    const char *text;    // the value as JSON, where it is known; or NULL
    const char *error;   // what the server says, or why there is no result
    const char *code;    // `tool_error`, `timeout`, `server_down`, …
    const char *status;  // `ok`, `error`, `timeout`: how it has ended
};
// `result` is borrowed.
typedef void (*upstream_fn)(const struct upstream_result *result, void *arg);
// The code does not want it any more. `fn` is not called. NULL is fine.
void upstream_call_cancel(struct upstream_call *call);

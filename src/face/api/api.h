// SPDX-License-Identifier: Apache-2.0
// The REST API: the endpoints below /api/v1, file links, probes and metrics.
#pragma once

#include <sys/queue.h>

#include "base.h"

struct accounts;
struct command_stream;
struct face_context;
struct http_server;
struct login_limits;
struct loop;
struct passwords;
struct session_tokens;

// The objects that the endpoints use, all borrowed.
struct api_context {
    const struct face_context *face;
    struct loop *loop;
    struct accounts *accounts;         // NULL: there are none, nor their routes
    struct passwords *passwords;       // with accounts
    struct login_limits *login_limits; // with accounts
    const struct session_tokens *tokens;
    bool registration_is_open;
    int64_t max_registered_users;     // 0: no limit
    int64_t unused_accounts_ms;       // until such an account may be removed; 0: never
    int64_t max_sessions;             // of all owners
    int64_t memory_mb, disk_mb, pids; // of a sandbox
    double cpus;                      // the same
    int64_t tool_call_timeout_s;
    int64_t max_tool_calls;        // of an execution
    int64_t max_tool_result_bytes; // that become a value
    const char *provisioner;
    int64_t started_ms; // clock_mono_ms()
    // Streams of commands that go on without their clients (command_stream.c); {0} at first.
    LIST_HEAD(, command_stream) followers;
};

// GET lists the client's sessions.
#define API_SESSIONS_PATH "/api/v1/sessions"
// Adds the routes; the context must outlive the server.
void api_register(struct http_server *server, struct api_context *context);
// The server drains: ends the streams that would last as long as a command does which goes on.
void api_drain(struct api_context *context);

// SPDX-License-Identifier: Apache-2.0
// The parts of the agent, for its own files.
#pragma once

#include "agent.h"
#include "changes.h"
#include "children.h"
#include "commands.h"
#include "events.h"
#include "http.h"
#include "kernels.h"
#include "links.h"
#include "listener.h"
#include "proxy.h"

struct uploads;

struct agent {
    struct loop *loop;
    struct agent_settings settings;
    loop_fn on_end;
    void *arg;
    int64_t started_ms;
    struct children *children;
    struct events *events;
    struct commands *commands;
    struct kernels *kernels;
    struct links *links;
    struct listener *listener; // NULL: the agent dials a door
    struct proxy *proxy; // of the way out; or NULL
    struct changes *changes;
    struct uploads *uploads;
    struct http_server *api;
    int api_socket; // O_PATH: the API's socket, whose name was removed
};

// Adds the routes of the agent's HTTP API.
void api_add_routes(struct agent *agent);
// {"error", "code"}, with the code's status.
void api_reply_error(struct http_request *request, const struct kg_error *err);
// A string for the operating system: at most `max` bytes, without a NUL.
bool api_is_plain_string(const json_t *value, size_t max);
// `env` is an object of variables, or NULL.
KG_MUST_CHECK int api_check_env(json_t *env, struct kg_error *err);
// Fills `ret` with the strings of a list of 1 to `max` of them, and a NULL.
KG_MUST_CHECK int api_check_argv(const json_t *argv, size_t max, size_t max_len, const char **ret,
                                 struct kg_error *err);

// POST /exec (exec.c).
void post_exec(struct http_request *request, void *arg);

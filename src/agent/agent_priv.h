// SPDX-License-Identifier: Apache-2.0
// The parts of the agent, for its own files.
#pragma once

#include "agent.h"
#include "children.h"
#include "events.h"
#include "http.h"
#include "kernels.h"
#include "links.h"

struct agent {
    struct loop *loop;
    struct agent_settings settings;
    loop_fn on_end;
    void *arg;
    int64_t started_ms;
    struct children *children;
    struct events *events;
    struct kernels *kernels;
    struct links *links;
    struct http_server *api;
    int api_socket; // O_PATH: the API's socket, whose name was removed
};

// Adds the routes of the agent's HTTP API.
void api_add_routes(struct agent *agent);

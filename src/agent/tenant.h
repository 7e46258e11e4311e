// SPDX-License-Identifier: Apache-2.0
// What code in the sandbox asks the gateway for, on an abstract Unix socket in the sandbox's
// network namespace, which kernels, forked kernels and commands reach alike. The agent does not
// know the methods: it bounds and passes on, the gateway checks. One request a connection, in lines
// of JSON:
//
//     code     {"method": "packages", "params": {…}}          at most TENANT_LINE_MAX bytes
//     gateway  {"type": …}, any number                        passed on as they come
//     gateway  {"type": "result", …}                          the last one, or
//              {"type": "error", "message", "code"}
//
// A connection whose line has the method `tools` goes on to the gateway itself, which hears what
// follows (src/tools/tool_link.h); where that is not possible, it gets an error line as above.
//
// The end of the connection withdraws the request. All of the tenant's connections together cost
// little: few wait for their line at a time, and a new one takes the place of the one that has
// waited longest; few requests are under way; and each connection has a deadline.
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base.h"

struct events;
struct loop;
struct tenant;

enum {
    TENANT_LINE_MAX = 16 * 1024,
    TENANT_REQUESTS_MAX = 4,      // under way at a time
    TENANT_TOOL_CALLERS_MAX = 64, // connections that call tools
};

struct tenant_settings {
    const char *name; // of the abstract socket
    // Requests go to the gateway as events; borrowed, and must outlive the tenant.
    struct events *events;
    // A link to the gateway for the tools that the process `pid` calls: a non-blocking descriptor,
    // the caller's; -1: there is none now.
    int (*open_tools)(pid_t pid, void *arg);
    void *arg;
};
KG_MUST_CHECK struct tenant *tenant_new(struct loop *loop, const struct tenant_settings *settings,
                                        struct kg_error *err);
void tenant_free(struct tenant *tenant);
// The gateway that listens to the events now answers requests, or is one that does not know them.
void tenant_set_gateway(struct tenant *tenant, bool answers);
// Passes lines (objects, borrowed) of the gateway on to the request `id`; `last`: no more follow.
// Returns whether its code still waits, or has got its last line.
bool tenant_answer(struct tenant *tenant, int64_t id, const json_t *lines, bool last);

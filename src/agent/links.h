// SPDX-License-Identifier: Apache-2.0
// The links to the gateway. Where the agent dials a door, a few idle ones are always up, and each
// that the gateway takes becomes a splice. Where gateways dial the agent (listener.h), each comes
// with its target.
#pragma once

#include "loop.h"
#include "request.h"
#include "target.h"

struct links;

struct links_settings {
    const char *door_path; // borrowed; NULL: gateways dial
    int idle_timeout_s;
    // Connects to a target inside the sandbox: a non-blocking descriptor, which passes to the
    // caller, or -1 with `err`.
    int (*connect)(const struct target *target, void *arg, struct kg_error *err);
    // Whether a port is the agent's own, or a kernel's: then nothing connects to it.
    bool (*port_is_own)(int port, void *arg);
    struct server *server;   // of the links that carry calls
    loop_fn on_idle_timeout; // no link was up for idle_timeout_s
    void *arg;
};

struct links *links_new(struct loop *loop, const struct links_settings *settings);
void links_free(struct links *links);
// The process of that kernel has ended: its links end when what it said has been passed on.
void links_finish_kernel(struct links *links, const char *kernel);
// Closes every link to that kernel.
void links_close_kernel(struct links *links, const char *kernel);

// Takes a link (non-blocking; its hello is read) of the gateway that holds this sandbox with
// `epoch`. Ends those of lower epochs.
void links_take(struct links *links, int fd, uint64_t epoch, const char *target);
// A link on which the sandbox speaks first, for a connection out of it or for code that calls
// tools: a non-blocking descriptor, the caller's; -1 where there is none now.
enum links_purpose { LINKS_OUT, LINKS_TOOLS };
int links_open(struct links *links, enum links_purpose purpose);

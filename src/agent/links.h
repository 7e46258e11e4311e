// SPDX-License-Identifier: Apache-2.0
// The links to the gateway: a few idle ones are always up, each taken one becomes a splice.
#pragma once

#include "loop.h"
#include "target.h"

struct links;

struct links_settings {
    const char *door_path; // borrowed
    int idle_timeout_s;
    // Connects to a target inside the sandbox: a non-blocking descriptor, which passes to the
    // caller, or -1 with `err`.
    int (*connect)(const struct target *target, void *arg, struct kg_error *err);
    loop_fn on_idle_timeout; // no link was up for idle_timeout_s
    void *arg;
};

struct links *links_new(struct loop *loop, const struct links_settings *settings);
void links_free(struct links *links);
// Closes every link to that kernel.
void links_close_kernel(struct links *links, const char *kernel);

// Dials the door and says `hello`. Returns a non-blocking descriptor; -1 with errno.
int link_dial(const char *door_path, const char *hello);

// SPDX-License-Identifier: Apache-2.0
// The link for the stdin channel of a kernel. It is made beside a process that is up, for taps and
// for executions that may ask for input.
#pragma once

#include "jupyter.h"
#include "kernel.h"
#include "sandbox.h"

enum stdin_link_state {
    STDIN_LINK_NONE,
    STDIN_LINK_ASKED,      // the sandbox
    STDIN_LINK_CONNECTING, // waits for the kernel's end of the channel
    STDIN_LINK_OPEN,
    STDIN_LINK_MISSING, // the kernel has no such channel, or lost it
};

struct stdin_link {
    struct sandbox *sandbox;
    const char *kernel;            // its name; not owned
    void (*on_settled)(void *arg); // open or missing
    void *arg;
    enum stdin_link_state state;
    struct jupyter_channels *channels; // not owned; NULL: never made
    struct sandbox_call *call;
    struct loop_timer *retry;
    int n_tries;
};

void stdin_link_init(struct stdin_link *link, struct loop *loop, struct sandbox *sandbox,
                     const char *kernel, void (*on_settled)(void *arg), void *arg);
void stdin_link_fini(struct stdin_link *link);
// Makes the link for `channels`, which stay until stdin_link_close(). Does nothing in any state but
// NONE.
void stdin_link_open(struct stdin_link *link, struct jupyter_channels *channels);
// The channel was lost, or there will be none.
void stdin_link_lose(struct stdin_link *link);
// Back to NONE, before the channels are freed; without on_settled.
void stdin_link_close(struct stdin_link *link);
// Requests that may ask for input wait while this is true: a kernel's ROUTER drops what it sends to
// a peer that is not there yet.
bool stdin_link_is_pending(const struct stdin_link *link);

// SPDX-License-Identifier: Apache-2.0
// Where gateways dial the agent, over TCP. The tenant can connect too, and so can the neighbours of
// a network that lets them: nothing is read from a connection but one message of a constant size,
// signed by the installation's key (link_hello.h). Few connections wait for theirs at a time, and
// none for long; a new one takes the place of the one that has waited longest.
#pragma once

#include "link_hello.h"
#include "loop.h"

struct listener;

struct listener_settings {
    int port; // on all addresses
    unsigned char public_key[LINK_KEY_LEN];
    const char *sandbox; // its id; borrowed
    // A link of the gateway that holds this sandbox: owns `fd` (non-blocking). `epoch` is that of
    // the call before, or higher; the links of lower epochs have to end then.
    void (*on_link)(int fd, uint64_t epoch, const char *target, void *arg);
    void *arg;
};

KG_MUST_CHECK struct listener *
listener_new(struct loop *loop, const struct listener_settings *settings, struct kg_error *err);
void listener_free(struct listener *listener);

// SPDX-License-Identifier: Apache-2.0
// The processes beside a gateway: a starter, which only waits and starts the helper again, and the
// helper.
#pragma once

#include "helper.h"

// `confine` runs in the starter's process: it gives up what neither of the two needs, and logs why
// if it cannot. `serve` runs in the helper's process. It gets the connection with the gateway,
// which it owns, and returns the exit code.
struct starter_settings {
    int (*confine)(void *arg); // -1: the starter ends
    int (*serve)(int fd, void *arg);
    void *arg;
};

// Forks the starter, which forks the helper; the caller must have one thread. Blocks until the
// helper has started, or fails if it does not. Starter and helper end with this process, however it
// ends, and hold until then what they have inherited: the lock of the state folder.
KG_MUST_CHECK int starter_start(const struct starter_settings *settings, struct helper_link *ret,
                                struct kg_error *err);

// SPDX-License-Identifier: Apache-2.0
// What the files of the loop share.
#pragma once

#include "loop.h"

struct work_pool;

struct loop {
    struct event_base *base;
    struct work_pool *pool; // NULL until the first work is started
    bool stopped;           // loop_stop() was called in this run
    loop_fn turn_fn;        // NULL: none
    void *turn_arg;
};

// Ends the threads. Work that is still running is waited for; all of it must have been cancelled.
void work_pool_free(struct work_pool *pool);

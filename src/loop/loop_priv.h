// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this module.
#pragma once

#include <sys/queue.h>

#include "loop.h"

struct work_pool;

struct loop {
    struct event_base *base;
    struct work_pool *pool; // NULL until the first work is started
    bool stopped;           // loop_stop() was called in this run
    loop_fn turn_fn;        // NULL: none
    void *turn_arg;
    LIST_HEAD(, later) later; // the calls of loop_later() that have not been made
};

// Ends the threads. All work must have been cancelled; waits for work that is running.
void work_pool_free(struct work_pool *pool);

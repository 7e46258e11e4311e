// SPDX-License-Identifier: Apache-2.0
// A kernel: its process (process_priv.h), the hub through which its messages pass (hub_priv.h), and
// the runner of executions (runner_priv.h).
#pragma once

#include "hub_priv.h"
#include "kernel.h"
#include "process_priv.h"
#include "runner_priv.h"

struct kernel {
    struct kernel_process process;
    struct kernel_hub hub;
    struct kernel_runner runner;
    const struct kernel_events *events;
    void *arg;
    bool has_started; // was ready once
    bool reported_started;
    const struct process_end *end; // while it is reported; NULL: its end was asked for
    int64_t replaced_ms;           // clock_wall_ms(); 0: its process is the first one
    char *replaced_why;
    struct savepoint_making *making;  // NULL: none is being made
    struct kernel_question *question; // NULL: none is asked
    char *end_reason; // why the last process ended by itself; NULL: its end was asked for
    kernel_restart_fn on_restarted;
    void *on_restarted_arg;
};

// ---- savepoint_make.c -----------------------------------------------------------------------

// The kernel has answered the request for a savepoint; NULL with the reason: it will not.
void savepoint_making_on_asked(struct savepoint_making *making, const json_t *content,
                               const char *failure);
// Ends it, and calls back; NULL is fine.
void savepoint_making_fail(struct savepoint_making *making, const char *why);

// SPDX-License-Identifier: Apache-2.0
// An execution as its kernel and the registry see it.
#pragma once

#include <sys/queue.h>

#include "kernel.h"
#include "output_priv.h"

enum { EXECUTION_ID_LEN = 24 };

struct execution {
    int refs;
    char id[EXECUTION_ID_LEN + 1];
    char *owner;
    char *session_id;
    char *code;
    json_t *variables; // or NULL
    json_t *env;       // or NULL
    int64_t timeout_ms;
    bool keep_running;
    bool session_ends;
    int64_t more_files; // beyond those that have lines
    enum execution_state state;
    enum execution_status stop_status; // while interrupting or killing: how it will have ended
    int64_t count;                     // the kernel's execution_count
    int64_t started_us;
    int64_t ended_ms;
    struct output_log log;
    struct kernel *kernel; // NULL once done
    TAILQ_ENTRY(execution) in_queue;
    struct executions *executions; // NULL once forgotten
    TAILQ_ENTRY(execution) in_registry;
};

// Makes a queued execution, known to the registry. The caller holds a reference.
struct execution *execution_new(struct executions *executions, struct kernel *kernel,
                                const struct execution_request *request);
void execution_set_state(struct execution *execution, enum execution_state state);
// Appends the `done` line; the execution's kernel has no more to do with it.
void execution_finish(struct execution *execution, enum execution_status status,
                      bool kernel_restarted);

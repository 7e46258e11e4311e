// SPDX-License-Identifier: Apache-2.0
// The executions of taps: each execute_request that a tap has sent to its kernel is one, with a log
// that others can read. Its client does not depend on it, and gets the kernel's messages as they
// are.
#pragma once

#include <sys/queue.h>

#include "cell_priv.h"
#include "process_priv.h"
#include "tap_header_priv.h"

struct tap_run;

struct tap_runs {
    struct loop *loop;
    struct executions *executions;
    struct kernel_process *process;
    tap_answer_fn answer; // says what the kernel leaves out
    void *arg;
    TAILQ_HEAD(, tap_run) list; // in the order in which they were sent
    int n;
};

// The request: whose it is, and its header's session, msg_id and subshell_id (NULL: none).
struct tap_run_request {
    const char *owner;
    const char *session_id;
    const char *header_session;
    const char *msg_id;
    const char *subshell;
    const char *header; // as JSON
};

void tap_runs_init(struct tap_runs *runs, const struct kernel_context *context,
                   struct kernel_process *process, tap_answer_fn answer, void *arg);
// An execute_request was sent to the kernel on shell.
void tap_runs_add(struct tap_runs *runs, const struct tap_run_request *request);
// A message of the kernel, on any channel. Takes its lines if it is about one of the requests.
void tap_runs_on_message(struct tap_runs *runs, enum jupyter_channel channel,
                         struct jupyter_message *message);
// The same about a request of the gateway.
void tap_runs_on_own_message(struct tap_runs *runs, enum jupyter_channel channel,
                             const struct jupyter_message *message);
// The kernel is being interrupted: what runs ends as `interrupted`.
void tap_runs_on_interrupt(struct tap_runs *runs);
// Ends all; `why` is the end of a process that has died, else NULL.
void tap_runs_end(struct tap_runs *runs, enum cell_end end, const struct process_end *why,
                  bool kernel_restarted);

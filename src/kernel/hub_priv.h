// SPDX-License-Identifier: Apache-2.0
// The hub of a kernel: where every message of the process comes in, and from where it gets to the
// runner and to the taps; and where the messages of taps go out.
#pragma once

#include "execution_priv.h"
#include "kernel_tap.h"
#include "process_priv.h"
#include "tap_runs_priv.h"

struct hub_events {
    // A message whose parent is a message of the gateway's own.
    void (*on_own_message)(enum jupyter_channel channel, struct jupyter_message *message,
                           void *arg);
    // No execute_request of a tap is unanswered any more.
    void (*on_idle)(void *arg);
    // A message of a tap waits although it could be sent, but for hub_hold().
    void (*on_held)(void *arg);
};

TAILQ_HEAD(tap_requests, tap_request);

// What a kernel has not answered.
struct hub_load {
    int n;
    size_t bytes;
};

struct kernel_hub {
    struct loop *loop;
    struct executions *executions;
    struct kernel_process *process;
    const struct hub_events *events;
    void *arg;
    struct tap_runs runs;
    TAILQ_HEAD(, kernel_tap) taps;
    int n_taps;
    struct tap_requests unanswered;  // sent on shell or control, in their order
    struct hub_load main, subshells; // of those, messages to the main shell and to subshells
    int n_executing;                 // execute_requests
    bool is_held;
    bool was_used;            // a tap has sent something to this process
    bool was_up;              // the process
    bool replaced_by_request; // the process, last time
    bool is_flushing;
};

void hub_init(struct kernel_hub *hub, const struct kernel_context *context,
              struct kernel_process *process, const struct hub_events *events, void *arg);
// Ends every tap, and its executions as `died`, because of `evalue`.
void hub_fini(struct kernel_hub *hub, const char *evalue);
// While it is held nothing of a tap is sent on shell.
void hub_hold(struct kernel_hub *hub, bool hold);
// Whether a tap has an execute_request that is unanswered, or waits to be sent.
bool hub_is_busy(const struct kernel_hub *hub);
// Whether the kernel has an execute_request of a tap that an interrupt reaches: not in a subshell.
bool hub_can_be_interrupted(const struct kernel_hub *hub);
// Sends what can be sent.
void hub_flush(struct kernel_hub *hub);

// What the process reports.
void hub_on_message(struct kernel_hub *hub, enum jupyter_channel channel,
                    struct jupyter_message *message);
void hub_on_ready(struct kernel_hub *hub);
// `end` is NULL where a client has asked for it.
void hub_on_replacing(struct kernel_hub *hub, const struct process_end *end);
void hub_on_dead(struct kernel_hub *hub);

// What a tap is told of the process, by its state.
enum kernel_tap_kind hub_tap_kind(const struct kernel_hub *hub, enum process_state state);

// kernel_tap_open() on a hub.
KG_MUST_CHECK struct kernel_tap *hub_open_tap(struct kernel_hub *hub,
                                              const struct kernel_tap_settings *settings,
                                              loop_fn on_ready, void *arg, struct kg_error *err);

// SPDX-License-Identifier: Apache-2.0
// A call under way, as the two files that carry it out see it: opening a link (call.c), and the
// call on it (agent_call.c).
#pragma once

#include <sys/queue.h>

#include "door.h"
#include "rpc.h"
#include "sandbox.h"

// Waits for a link (`opening`); that is all for `link_fn`. Else `agent` makes its call on the link,
// or on an earlier call's.
struct sandbox_call {
    TAILQ_ENTRY(sandbox_call) entry;
    struct sandbox *sandbox;
    struct door_call *opening;
    struct loop_timer *timer; // of the agent's answer

    sandbox_link_fn link_fn;
    struct agent_call *agent;
    void *arg;
};

// NULL with `err` where the sandbox has ended.
KG_MUST_CHECK struct sandbox_call *sandbox_call_new(struct sandbox *sandbox, void *arg,
                                                    struct kg_error *err);
// Begins to look for a link. Calls nobody back.
void sandbox_call_open(struct sandbox_call *call, const char *target, int64_t timeout_ms);
// Ends a call with an error: its callback fires, which may free its sandbox.
void call_fail(struct sandbox_call *call, const struct kg_error *err);

// ---- The call on the link (agent_call.c) ----------------------------------------------------

void agent_call_free(struct agent_call *agent);
// The link is open: takes its descriptor.
void agent_call_on_link(struct sandbox_call *call, int fd);
// Ends the call and fires its callback.
void agent_call_fail(struct sandbox_call *call, const struct kg_error *err);

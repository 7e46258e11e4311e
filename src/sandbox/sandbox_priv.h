// SPDX-License-Identifier: Apache-2.0
// A sandbox as its own files see it.
#pragma once

#include <sys/queue.h>

#include "door.h"
#include "loop.h"
#include "provisioner.h"
#include "sandbox.h"

struct egress_user;
struct event_stream;
struct wire;

struct sandbox {
    LIST_ENTRY(sandbox) link; // if the context has a list
    struct sandbox_context context;
    struct sandbox_events events;
    void *arg;
    char id[17];
    char *door_path;
    char *dir;
    enum sandbox_state state;
    bool adopted_claimed;
    bool lost;       // another gateway has it now
    bool overtaken;  // its agent has said so while it was being claimed
    bool made;       // the provisioner has created it
    bool answered;   // the agent has answered
    char *looked_by; // sandbox_note_look(); NULL: nobody yet
    int64_t looked_us;
    int64_t memory_bytes;             // as the agent last reported; -1: it has not
    struct sandbox_activity activity; // as the agent last reported
    struct door *door;
    struct egress_user *egress; // or NULL
    TAILQ_HEAD(, sandbox_call) calls;
    struct sandbox_call *info_call;
    struct event_stream *event_stream;
    struct wire *idle_wire; // the link of a call that has ended, for the next one; or NULL
    struct loop_timer *ready_timer;
    struct provisioner_op *op; // the create, claim or destroy, or NULL
    sandbox_claim_fn on_claimed;
    void *on_claimed_arg;
    // After the end: first the calls under way fail, then on_gone or on_destroyed fires.
    struct loop_timer *end_timer;
    struct kg_error end_reason;
    provisioner_done_fn on_destroyed;
    void *on_destroyed_arg;
};

// ---- Calls (call.c) -------------------------------------------------------------------------

// Fails one call with `reason`; false if none is left. The call's callback may free the sandbox.
bool sandbox_fail_call(struct sandbox *sandbox, const struct kg_error *reason);

// ---- The agent's events (event_stream.c) ----------------------------------------------------

struct event_stream *event_stream_new(struct sandbox *sandbox);
void event_stream_free(struct event_stream *stream);

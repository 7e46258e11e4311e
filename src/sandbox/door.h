// SPDX-License-Identifier: Apache-2.0
// How links to one sandbox's agent come about, whatever joins the two: the agent dials a Unix
// socket on which the gateway listens (door_unix.c), or the gateway dials the agent over TCP
// (door_tcp.c). Who opens links does not know which.
#pragma once

#include "base.h"
#include "loop.h"

struct door;
struct link_key;

struct door_events {
    // A connection out of the sandbox, on which the sandbox speaks first; owns `fd`. NULL: there is
    // no way out, and such connections are closed.
    void (*on_way_out)(int fd, void *arg);
    // The agent has refused a link because a gateway with a higher epoch holds this sandbox: the
    // owner frees the door, from within. The call that was refused does not end by itself.
    void (*on_overtaken)(void *arg);
    void *arg;
};

// Listens at `path`, in place of what may be there. The tenant can dial it too: idle links are few,
// accepts are paced, a link that does not say hello is closed, and where the peer's process can be
// told, it must be the agent's, and alive until the hello.
KG_MUST_CHECK struct door *door_unix_new(struct loop *loop, const char *path,
                                         const struct door_events *events, struct kg_error *err);

// All borrowed.
struct door_tcp_settings {
    const char *sandbox; // its id
    const struct link_key *key;
    // Begins a connection to the agent: a non-blocking socket, the door's, which may still be
    // connecting, and the epoch with which this gateway holds the sandbox; -1: not now.
    int (*dial)(uint64_t *ret_epoch, void *arg);
    void *arg;
};
struct door *door_tcp_new(struct loop *loop, const struct door_tcp_settings *settings,
                          const struct door_events *events);

// Closes what was not handed over. Calls that are under way never end; they still have to be
// cancelled.
void door_free(struct door *door);
KG_DEFINE_AUTO(door, door_free)

// A link that is being opened. The callback fires exactly once, never before door_open() returns;
// then the handle is gone. The callback owns `fd` (non-blocking; nothing after the agent's OK is
// read), which is -1 with `err` where the agent refused or did not answer in time.
struct door_call;
typedef void (*door_link_fn)(int fd, const struct kg_error *err, void *arg);
struct door_call *door_open(struct door *door, const char *target, int64_t timeout_ms,
                            door_link_fn fn, void *arg);
void door_call_cancel(struct door_call *call);

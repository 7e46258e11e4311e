// SPDX-License-Identifier: Apache-2.0
// Opens links to one sandbox's agent, over either of two transports: the agent dials a Unix socket
// on which the gateway listens (door_unix.c), or the gateway dials the agent over TCP (door_tcp.c).
#pragma once

#include "base.h"
#include "loop.h"

struct door;
struct link_key;

struct door_events {
    // A connection out of the sandbox, on which the sandbox sends first. The callback owns `fd`.
    // NULL: such connections are closed.
    void (*on_way_out)(int fd, void *arg);
    // The same, of code that calls tools (src/tools/tool_link.h).
    void (*on_tools)(int fd, void *arg);
    // The agent has refused a link because a gateway with a higher epoch holds this sandbox. The
    // callback must free the door. The call that was refused does not end by itself.
    void (*on_overtaken)(void *arg);
    void *arg;
};

enum { DOOR_BACKLOG = 16 };
// Listens at `path`; an existing file there is replaced. NULL: it waits for door_unix_listen(). The
// tenant can dial it too. Therefore idle
// links are few, accepts are paced, a link without a hello is closed, and the peer's process, if it
// can be determined, must be the agent and must be alive at the hello.
KG_MUST_CHECK struct door *door_unix_new(struct loop *loop, const char *path,
                                         const struct door_events *events, struct kg_error *err);

// Goes on with another listening socket (non-blocking, owned); of a door without a path.
void door_unix_listen(struct door *door, int fd);

// All borrowed.
struct door_tcp_settings {
    const char *sandbox; // its id
    const struct link_key *key;
    // Begins a connection to the agent. Returns a non-blocking socket, which the door owns and
    // which may still be connecting, or -1 to try again later. `ret_epoch` is the epoch with which
    // this gateway holds the sandbox.
    int (*dial)(uint64_t *ret_epoch, void *arg);
    void *arg;
};
struct door *door_tcp_new(struct loop *loop, const struct door_tcp_settings *settings,
                          const struct door_events *events);

// Closes all connections that were not passed to a callback. Calls under way never end; the caller
// still has to cancel them.
void door_free(struct door *door);
KG_DEFINE_AUTO(door, door_free)

// A link that is being opened. The callback fires exactly once, never before door_open() returns;
// the handle is then invalid. The callback owns `fd` (non-blocking; nothing after the agent's OK
// has been read), which is -1 with `err` if the agent refused or did not answer in time.
struct door_call;
typedef void (*door_link_fn)(int fd, const struct kg_error *err, void *arg);
struct door_call *door_open(struct door *door, const char *target, int64_t timeout_ms,
                            door_link_fn fn, void *arg);
void door_call_cancel(struct door_call *call);

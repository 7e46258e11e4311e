// SPDX-License-Identifier: Apache-2.0
// A door as its transports see it: the part that they share (door.c), and their operations.
#pragma once

#include <sys/queue.h>

#include "door.h"
#include "link_line.h"

struct door_ops {
    // Calls wait for a connection: assigns idle ones to them, or begins new ones.
    void (*serve)(struct door *door);
    // The agent has accepted a link; may be NULL.
    void (*opened)(struct door *door);
    // Frees the transport's part.
    void (*fini)(struct door *door);
};

// The first member of each transport's own struct.
struct door {
    const struct door_ops *ops;
    struct loop *loop;
    struct door_events events;
    TAILQ_HEAD(, door_call) calls; // oldest first
    bool proven;                   // a link was opened once
    struct loop_timer *overtaken;
};

// Waits for a connection (`fd` -1), then for the agent's answer on it.
struct door_call {
    TAILQ_ENTRY(door_call) entry;
    struct door *door; // NULL once that is freed
    char target[LINK_TARGET_MAX + 1];
    int64_t deadline_ms;
    struct loop_timer *timer;
    int fd;
    struct loop_fd *watch;
    char answer[LINK_ANSWER_MAX];
    size_t answer_len;
    door_link_fn fn;
    void *arg;
};

void door_init(struct door *door, const struct door_ops *ops, struct loop *loop,
               const struct door_events *events);
// The call's target was requested on `fd`, which the call owns from now on: the agent's answer is
// next.
void door_call_asked(struct door_call *call, int fd);

// SPDX-License-Identifier: Apache-2.0
// A door's parts: what both transports share (door.c), and what each fills in.
#pragma once

#include <sys/queue.h>

#include "door.h"
#include "link_line.h"

struct door_ops {
    // Calls wait for a connection: gives them what there is, or makes it.
    void (*serve)(struct door *door);
    // The agent said OK to a link; may be NULL.
    void (*opened)(struct door *door);
    // Frees the transport's own.
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
// The call was asked for on `fd`, which it owns: the agent's answer comes next.
void door_call_asked(struct door_call *call, int fd);

// SPDX-License-Identifier: Apache-2.0
// The socket on which the gateway waits for the links of one sandbox. The tenant can dial it too:
// idle links are few, accepts are paced, a link that does not say hello is closed, and where the
// peer's process can be told, it must be the agent's, and alive until the hello.
#pragma once

#include "base.h"
#include "loop.h"

struct door;

// Listens at `path`, in place of what may be there. `on_link` fires whenever an idle link has come.
KG_MUST_CHECK struct door *door_new(struct loop *loop, const char *path, loop_fn on_link, void *arg,
                                    struct kg_error *err);
// Takes connections out of the sandbox too: `fn` owns the descriptor, on which the sandbox goes on
// speaking. Without it they are closed.
typedef void (*door_dial_fn)(int fd, void *arg);
void door_set_dial(struct door *door, door_dial_fn fn, void *arg);
// Closes the idle links too and removes the socket.
void door_free(struct door *door);
KG_DEFINE_AUTO(door, door_free)
// Hands over an idle link (non-blocking, nothing read after its hello); -1 where there is none.
int door_take(struct door *door);
// Says that a link which was taken was of use: it no longer counts against the pace.
void door_reward(struct door *door);
int door_n_idle(const struct door *door);

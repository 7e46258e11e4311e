// SPDX-License-Identifier: Apache-2.0
// Connections in the sandbox, each joined with a link of its own to the gateway. The agent moves
// the bytes of both, and reads none of them.
#pragma once

#include "loop.h"

struct relays;

// At most `max` at a time.
struct relays *relays_new(struct loop *loop, int max);
// Closes them all. NULL is fine.
void relays_free(struct relays *relays);
// How many more may be joined.
int relays_room(const struct relays *relays);
// Owns both descriptors (non-blocking). There must be room.
void relays_join(struct relays *relays, int client, int link);

// SPDX-License-Identifier: Apache-2.0
// A guard moves bytes between a link, at whose other end a kernel's ZeroMQ socket listens, and our
// own ZeroMQ socket. It protects libzmq from an untrusted kernel, because libzmq limits neither the
// length of a message nor what waits to be read. A message above the bound arrives without the
// frames that exceed it; one above 1 MiB whose peer is too slow arrives without its end
// (zmtp_priv.h).
#pragma once

#include "base.h"
#include "loop.h"

struct guard;

// The link ended or was cut, and every message that came before has been read (guard_taken).
// The guard may be freed from inside.
typedef void (*guard_end_fn)(const struct kg_error *reason, void *arg);

// Takes both descriptors, which become non-blocking; `inner_fd` leads to our ZeroMQ socket.
struct guard *guard_new(struct loop *loop, int link_fd, int inner_fd, size_t max_message_bytes,
                        guard_end_fn on_end, void *arg);
void guard_free(struct guard *guard);
KG_DEFINE_AUTO(guard, guard_free)

// Reports that the reader has taken messages of this cost (zmtp_frame_cost() of their frames) from
// the ZeroMQ socket and is done with them. At most a window of 1 MiB, or one larger message, has
// been passed on and not been taken; all guards together have at most four of these larger
// messages.
void guard_taken(struct guard *guard, uint64_t cost);

// Whether a message has begun to arrive, or has arrived and not been taken.
bool guard_is_receiving(const struct guard *guard);
// Whether a message has been passed on, or is about to be, and has not been taken.
bool guard_has_untaken(const struct guard *guard);

// Small reads between two messages are first given to `sift`, which removes from them the messages
// that the reader does not need, and returns the length that is left. `arg` is that of guard_new().
typedef size_t (*guard_sift_fn)(char *bytes, size_t len, void *arg);
void guard_set_sift(struct guard *guard, guard_sift_fn sift);

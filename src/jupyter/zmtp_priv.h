// SPDX-License-Identifier: Apache-2.0
// Follows a peer's ZMTP 3 byte stream ("ZMTP 3.1", rfc.zeromq.org/spec/37): finds where messages
// end, and removes frames that make a message too large. It is a pure function over bytes, which
// may come in pieces of any size.
//
// A frame that would make its message cost more than the bound is replaced by its size in decimal
// digits (zmtp_replaced_size()). The message still arrives, so that it can be attributed.
//
// An abandoned message (zmtp_abandon()) is completed with NUL bytes; its rest is removed when it
// arrives.
#pragma once

#include "base.h"

enum {
    ZMTP_GREETING_LEN = 64,
    ZMTP_MAX_COMMAND = 4096,
    // What libzmq allocates for a frame in addition to its bytes: a slot, a header, rounding.
    ZMTP_FRAME_OVERHEAD = 128
};
// A frame that announces more than this ends the connection.
#define ZMTP_MAX_REPLACED ((uint64_t)1 << 30)

enum zmtp_state { ZMTP_GREETING, ZMTP_FLAGS, ZMTP_SIZE, ZMTP_COMMAND, ZMTP_BODY };

// `head` collects the bytes that a state needs together (`head_want` of them).
struct zmtp_follower {
    enum zmtp_state state;
    unsigned char head[ZMTP_GREETING_LEN];
    size_t head_len;
    size_t head_want;
    unsigned char flags;   // of the current frame
    bool replaced;         // the current frame: its body is removed
    bool abandoned;        // the current message: its remaining frames are removed
    uint64_t body_left;    // bytes of the current frame that have not arrived
    size_t frames;         // of the current message
    uint64_t message_cost; // of the current message, including the whole of its current frame
    uint64_t max_message_cost;
    size_t max_frames;
};

void zmtp_init(struct zmtp_follower *follower, size_t max_message_bytes, size_t max_frames);

// Follows `len` bytes and appends to `out` those that the reader may see. `ret_cost` is the cost of
// all messages that ended in them. On failure (KG_INVALID_CONTENT) `out` has what came before the
// violation, and the follower must not be used again.
KG_MUST_CHECK int zmtp_follow(struct zmtp_follower *follower, const void *data, size_t len,
                              struct buf *out, uint64_t *ret_cost, struct kg_error *err);

// Whether a part of a message has passed, but not its end.
static inline bool
zmtp_is_inside_message(const struct zmtp_follower *follower)
{
    return follower->message_cost > 0;
}

// Whether only whole messages and commands have passed.
static inline bool
zmtp_is_between_messages(const struct zmtp_follower *follower)
{
    return follower->state == ZMTP_FLAGS && follower->head_len == 0 && !follower->abandoned &&
           !zmtp_is_inside_message(follower);
}

// Ends a message before all of it has arrived. The caller sends the reader `*ret_nuls` NUL bytes,
// which complete it: the rest of the current frame and, if frames were to follow, an empty last
// frame (its flags and size are both zero). `ret_cost` is the message's cost then. Fails in the
// middle of a command, which cannot be completed in this way.
KG_MUST_CHECK int zmtp_abandon(struct zmtp_follower *follower, uint64_t *ret_nuls,
                               uint64_t *ret_cost, struct kg_error *err);

// The size of a metadata or content frame that did not arrive complete: it was replaced, or its end
// is NUL bytes. 0 if it is what the peer sent, since a JSON object is neither.
uint64_t zmtp_replaced_size(const void *data, size_t len);

static inline uint64_t
zmtp_frame_cost(uint64_t size)
{
    return size + ZMTP_FRAME_OVERHEAD;
}

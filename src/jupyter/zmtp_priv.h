// SPDX-License-Identifier: Apache-2.0
// Follows a peer's ZMTP 3 byte stream ("ZMTP 3.1", rfc.zeromq.org/spec/37), to see where messages
// end, and to take out of it what makes a message too large. A pure function over bytes: it may be
// fed in any pieces.
//
// A frame that would make its message cost more than the bound is replaced by its size in decimal
// digits (zmtp_replaced_size()): the message still comes, so that its header can be attributed.
//
// A message whose rest is not waited for (zmtp_abandon()) is completed with NUL bytes instead, and
// the rest is left out when it comes.
#pragma once

#include "base.h"

enum {
    ZMTP_GREETING_LEN = 64,
    ZMTP_MAX_COMMAND = 4096,
    // What a frame costs libzmq beside its bytes: a message slot, a block's header, rounding.
    ZMTP_FRAME_OVERHEAD = 128
};
// A frame that announces more than this ends the connection: nobody waits for so much.
#define ZMTP_MAX_REPLACED ((uint64_t)1 << 30)

enum zmtp_state { ZMTP_GREETING, ZMTP_FLAGS, ZMTP_SIZE, ZMTP_COMMAND, ZMTP_BODY };

// `head` gathers the bytes that a state needs as a whole (`head_want` of them).
struct zmtp_follower {
    enum zmtp_state state;
    unsigned char head[ZMTP_GREETING_LEN];
    size_t head_len;
    size_t head_want;
    unsigned char flags;   // of the current frame
    bool replaced;         // the current frame: its body is left out
    bool abandoned;        // the current message: the frames that still come are left out
    uint64_t body_left;    // bytes of the current frame still to come
    size_t frames;         // of the current message
    uint64_t message_cost; // of the current message, as zmtp_frame_cost() counts, its current
                           // frame as a whole
    uint64_t n_messages;   // that have ended
    uint64_t max_message_cost;
    size_t max_frames;
};

void zmtp_init(struct zmtp_follower *follower, size_t max_message_bytes, size_t max_frames);

// Follows `len` bytes and appends to `out` what a reader may see of them. `ret_cost` is what the
// messages that ended in them cost together. On failure (KG_INVALID_CONTENT) `out` has what came
// before the offence, and the follower is not used again.
KG_MUST_CHECK int zmtp_follow(struct zmtp_follower *follower, const void *data, size_t len,
                              struct buf *out, uint64_t *ret_cost, struct kg_error *err);

// Whether a part of a message has passed, and its end has not.
static inline bool
zmtp_is_inside_message(const struct zmtp_follower *follower)
{
    return follower->message_cost > 0;
}

// Whether everything that has passed is whole messages and commands.
static inline bool
zmtp_is_between_messages(const struct zmtp_follower *follower)
{
    return follower->state == ZMTP_FLAGS && follower->head_len == 0 && !follower->abandoned &&
           !zmtp_is_inside_message(follower);
}

// Ends the message that is coming in before all of it has come. The caller sends the reader
// `*ret_nuls` NUL bytes, which complete it: the rest of the current frame, and an empty last frame
// where others were to follow (whose flags and size are both zero). `ret_cost` is what the message
// costs then. Fails in the middle of a command, which cannot be completed so.
KG_MUST_CHECK int zmtp_abandon(struct zmtp_follower *follower, uint64_t *ret_nuls,
                               uint64_t *ret_cost, struct kg_error *err);

// The size of a metadata or content frame that did not come as a whole: it was replaced, or its end
// is NUL bytes. 0 where it is what the peer sent: a JSON object is neither.
uint64_t zmtp_replaced_size(const void *data, size_t len);

static inline uint64_t
zmtp_frame_cost(uint64_t size)
{
    return size + ZMTP_FRAME_OVERHEAD;
}

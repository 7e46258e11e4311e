// SPDX-License-Identifier: Apache-2.0
// Follows a peer's ZMTP 3 byte stream ("ZMTP 3.1", rfc.zeromq.org/spec/37) without keeping any of
// it, to see where messages end and to notice one that grows out of bounds. A pure function over
// bytes: it may be fed in any pieces.
#pragma once

#include "base.h"

enum {
    ZMTP_GREETING_LEN = 64,
    ZMTP_MAX_COMMAND = 4096,
    // What a frame costs libzmq beside its bytes: a message slot, a block's header, rounding.
    ZMTP_FRAME_OVERHEAD = 128
};

enum zmtp_state { ZMTP_GREETING, ZMTP_FLAGS, ZMTP_SIZE, ZMTP_COMMAND, ZMTP_BODY };

// `head` gathers the bytes that a state needs as a whole (`head_want` of them).
struct zmtp_follower {
    enum zmtp_state state;
    unsigned char head[ZMTP_GREETING_LEN];
    size_t head_len;
    size_t head_want;
    unsigned char flags;   // of the current frame
    uint64_t body_left;    // bytes of the current frame still to come
    size_t frames;         // of the current message
    uint64_t message_cost; // of the current message, as zmtp_frame_cost() counts
    uint64_t max_message_cost;
    size_t max_frames;
};

void zmtp_init(struct zmtp_follower *follower, size_t max_message_bytes, size_t max_frames);

// Follows `len` bytes. `ret_cost` is what the messages that ended in them cost together; `ret_len`
// is how many bytes were fine: all, or, on failure (KG_INVALID_CONTENT), those before the offence.
// After a failure the follower is not used again.
KG_MUST_CHECK int zmtp_follow(struct zmtp_follower *follower, const void *data, size_t len,
                              size_t *ret_len, uint64_t *ret_cost, struct kg_error *err);

static inline uint64_t
zmtp_frame_cost(uint64_t size)
{
    return size + ZMTP_FRAME_OVERHEAD;
}

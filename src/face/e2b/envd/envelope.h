// SPDX-License-Identifier: Apache-2.0
// Envelopes of the Connect protocol (connectrpc.com/docs/protocol, "Streaming RPCs"): a message in
// a stream is one byte of flags, its length in 4 bytes, big-endian, and so many bytes.
#pragma once

#include "base.h"

enum {
    ENVELOPE_HEAD_BYTES = 5,
    ENVELOPE_COMPRESSED = 1, // a flag: the message is compressed
    ENVELOPE_END = 2,        // a flag: the last message of a server's stream
};

enum envelope_state {
    ENVELOPE_WHOLE,
    ENVELOPE_CUT,       // more bytes must come
    ENVELOPE_TOO_LARGE, // its head announces more than the bound
    ENVELOPE_IS_COMPRESSED,
    ENVELOPE_BAD_FLAGS, // others than a client may set
};
// Of ENVELOPE_WHOLE; borrowed from the bytes.
struct envelope {
    const char *data;
    size_t len;
    size_t taken; // bytes, with the head
};
// Reads the first envelope that a client has sent; `max`: of its message. Decides as soon as the
// head is there, so no more than ENVELOPE_HEAD_BYTES and `max` bytes are ever waited for.
enum envelope_state envelope_read(const char *bytes, size_t len, size_t max, struct envelope *ret);
void envelope_write(struct buf *ret, int flags, const char *data, size_t len);

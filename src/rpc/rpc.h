// SPDX-License-Identifier: Apache-2.0
// The protocol between the gateway and the agent of a sandbox, as both sides read and write it: on
// a link to the target RPC_TARGET, in frames. A frame is one byte for its kind, three bytes
// (big-endian) for the length of its content, and the content.
//
//   gateway  REQUEST {"method", "params", "body"}  `body`, which may be absent, is a number of
//   bytes
//            DATA, DATA, …                         that many bytes in all
//   agent    HEAD {…}, DATA, DATA, …               only where the method's answer is a stream
//            RESULT {…}                            the end of the answer, or
//            ERROR {"code", "error"}               at any time, in place of the rest of the answer
//
// A link carries one call at a time. After RESULT or ERROR it takes the next one; what was not read
// of a body by then is dropped. Either side ends a call early by closing the link, and holds the
// other one back by not reading.
#pragma once

#include "base.h"
#include "loop.h"

// Its number is the protocol's version. An agent that does not know it refuses the link.
#define RPC_TARGET "rpc/1"

// ---- Frames (frame.c) -----------------------------------------------------------------------

enum frame_kind {
    FRAME_REQUEST = 1,
    FRAME_DATA,
    FRAME_HEAD,
    FRAME_RESULT,
    FRAME_ERROR,
    FRAME_N_KINDS,
};

// The most bytes of a content; only DATA and HEAD may be sent again and again.
enum {
    FRAME_HEADER_LEN = 4,
    FRAME_REQUEST_MAX = 1 << 20,
    FRAME_DATA_MAX = 128 << 10,
    FRAME_HEAD_MAX = 4 << 10,
    FRAME_RESULT_MAX = 1 << 20,
    FRAME_ERROR_MAX = 4 << 10,
};

enum rpc_side { RPC_GATEWAY, RPC_AGENT };

struct frame {
    enum frame_kind kind;
    const char *data; // borrowed from what was read; not NUL-terminated
    size_t len;
};

void frame_header(enum frame_kind kind, size_t len, unsigned char ret[FRAME_HEADER_LEN]);
// Reads the frame at the start of `data`, as `reader` may receive it. Returns how many bytes it
// has, 0 where more must come first, -1 where it is malformed: of no kind that this side receives,
// or too long.
KG_MUST_CHECK int frame_read(enum rpc_side reader, const char *data, size_t len, struct frame *ret);

// ---- A link that carries frames (wire.c) ----------------------------------------------------

struct wire;

// Bytes that wait to be sent: above the high mark a sender should stop, at the low one go on.
enum { WIRE_HIGH = 256 << 10, WIRE_LOW = 64 << 10 };

// All fire from the loop, and may free the wire.
struct wire_events {
    void (*on_frame)(const struct frame *frame, void *arg);
    // Once, the last: the link has ended or, with `err`, what came was malformed.
    void (*on_end)(const struct kg_error *err, void *arg);
    // See wire_want(); may be NULL.
    void (*on_room)(void *arg);
};

// Owns `fd`, a connected non-blocking stream socket.
struct wire *wire_new(struct loop *loop, int fd, enum rpc_side side,
                      const struct wire_events *events, void *arg);
// Whose events these are from now on.
void wire_set_events(struct wire *wire, const struct wire_events *events, void *arg);
// Closes the link at once, whatever waits to be sent.
void wire_free(struct wire *wire);
// Sends a frame, whose content is what both parts hold, or keeps what does not fit into the socket.
void wire_send(struct wire *wire, enum frame_kind kind, const void *data, size_t len);
void wire_send2(struct wire *wire, enum frame_kind kind, const void *data, size_t len,
                const void *more, size_t more_len);
size_t wire_backlog(const struct wire *wire);
// Asks for one on_room: in a later turn of the loop, when at most WIRE_LOW bytes wait.
void wire_want(struct wire *wire);
// Receives nothing until it is undone; on_frame does not fire from inside.
void wire_pause(struct wire *wire, bool paused);
// Whether it can be handed to the next call: nothing waits to be read, to be sent, or for room.
bool wire_is_quiet(const struct wire *wire);

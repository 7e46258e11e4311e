// SPDX-License-Identifier: Apache-2.0
// How messages of the Jupyter protocol are put into WebSocket messages. Two forms:
//   - v1 (the subprotocol v1.kernel.websocket.jupyter.org): binary; offsets of 64 bits, little
//     endian, then the channel's name and the kernel's own parts.
//   - legacy (no subprotocol): a text message with one JSON object; a binary one where there are
//     buffers: offsets of 32 bits, big endian, then that object and the buffers.
// Source: jupyter_server, services/kernels/connection/base.py.
#pragma once

#include "jupyter.h"
#include "kernel_tap.h"

#define FRAMING_V1 "v1.kernel.websocket.jupyter.org"

// A message of a client; everything is borrowed from the bytes that it was read from. Parts that
// are absent are empty; no part was looked into.
struct framed {
    struct kernel_message message;
    struct kernel_bytes buffers[JUPYTER_MAX_BUFFERS];
};

// Reads a whole WebSocket message, with every length and offset checked. KG_INVALID: it is cut,
// offsets are wrong, the channel is unknown or there are too many buffers.
KG_MUST_CHECK int framing_read_v1(const void *data, size_t len, struct framed *ret,
                                  struct kg_error *err);
KG_MUST_CHECK int framing_read_text(const void *data, size_t len, struct framed *ret,
                                    struct kg_error *err);
KG_MUST_CHECK int framing_read_binary(const void *data, size_t len, struct framed *ret,
                                      struct kg_error *err);

// A WebSocket message for a client: `head`, then `n_parts` parts, borrowed from the kernel's
// message, except those in `head`. Binary unless `is_text`.
enum { FRAMING_MAX_PARTS = 16 + JUPYTER_MAX_BUFFERS };
struct framed_out {
    bool is_text;
    struct buf head;
    size_t n_parts;
    struct kernel_bytes parts[FRAMING_MAX_PARTS];
    size_t len; // of all
};
void framing_write_v1(const struct kernel_message *message, struct framed_out *ret);
void framing_write_legacy(const struct kernel_message *message, struct framed_out *ret);
static inline void
framed_out_auto_(struct framed_out *out)
{
    buf_fini(&out->head);
}
#define KG_AUTO_FRAMED __attribute__((cleanup(framed_out_auto_))) struct framed_out

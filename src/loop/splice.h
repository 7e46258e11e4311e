// SPDX-License-Identifier: Apache-2.0
// Moves bytes both ways between two connected stream sockets, with bounded memory.
#pragma once

#include "base.h"
#include "loop.h"

struct splice;

enum { SPLICE_HALF_CLOSED_MS = 30 * 1000 };

// Owns both descriptors (non-blocking). `on_end` fires once: when both directions have ended or
// failed, or when one direction has and the other one was silent for `half_closed_ms`. The owner
// then frees the splice.
struct splice *splice_new(struct loop *loop, int a, int b, int64_t half_closed_ms, loop_fn on_end,
                          void *arg);
// Small reads from `b` for which `fn` returns true are kept for 10 ms at most, and sent with what
// follows them. NULL: none are.
typedef bool (*splice_linger_fn)(const char *data, size_t len);
void splice_set_linger(struct splice *splice, splice_linger_fn fn);
// The process behind `b` has ended: what its socket holds is the last that it said. It is passed
// on, and then the end, though another process may hold the socket open.
void splice_finish(struct splice *splice);
// Closes both descriptors; bytes that were not sent are lost.
void splice_free(struct splice *splice);

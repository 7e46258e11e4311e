// SPDX-License-Identifier: Apache-2.0
// Moves bytes both ways between two connected stream sockets, with bounded memory.
#pragma once

#include "base.h"
#include "loop.h"

struct splice;

// Owns both descriptors (non-blocking). `on_end` fires once, when both directions have ended or one
// side failed; the owner then frees the splice.
struct splice *splice_new(struct loop *loop, int a, int b, loop_fn on_end, void *arg);
// Closes both descriptors, whatever is still on its way.
void splice_free(struct splice *splice);

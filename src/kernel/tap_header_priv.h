// SPDX-License-Identifier: Apache-2.0
// Checks of a message that a tap sends: its client is not trusted. Pure functions.
#pragma once

#include <jansson.h>

#include "jupyter.h"
#include "kernel_tap.h"

// The header as the kernel gets it ("General Message Format"), a new reference: what kernels need
// is there, and further members are kept. NULL with KG_INVALID. `own_session` may not be used.
json_t *tap_header_read(const struct kernel_bytes *text, const char *own_session,
                        struct kg_error *err);
// The message with that header, copied. Its other parts have not been checked to be JSON yet:
// jupyter_raw_repair(). NULL with KG_INVALID.
struct jupyter_raw *tap_raw_new(const struct kernel_message *message, const json_t *header,
                                struct kg_error *err);
size_t tap_message_bytes(const struct kernel_message *message);

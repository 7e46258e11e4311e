// SPDX-License-Identifier: Apache-2.0
// Checks of a message that a tap sends: its client is not trusted; and messages to a tap that are
// not its kernel's. Pure functions.
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

// What a client's request gets in its kernel's place: of an error on iopub, the reply, and the idle
// status, those that the kernel has left out.
struct tap_answer {
    enum jupyter_channel channel; // of the request
    const char *type;
    const char *session;
    const char *header; // as JSON
    const char *status; // of the reply: "error" or "aborted" ("Request-Reply" in the protocol)
    const char *ename;
    const char *evalue;
    bool needs_error;
    bool needs_reply;
    bool needs_idle;
};
typedef void (*tap_answer_fn)(const struct tap_answer *answer, void *arg);

// A message with that parent header; takes `content`.
struct jupyter_raw *tap_raw_answer(const char *type, const char *parent_header, json_t *content);

// SPDX-License-Identifier: Apache-2.0
// Taps: clients that speak the Jupyter messaging protocol with a kernel, beside its executions.
// Protocol: jupyter_client's "Messaging in Jupyter", 5.3 and later.
//
// A tap sends messages with headers of its own, and gets what the kernel says:
//   - iopub: every message, those of executions and of other taps included;
//   - shell, control, stdin: the messages whose parent header names a session that this tap has
//     used in a header. Two taps that use the same session both get them.
// Messages come from a tenant's process: each part is a legal JSON object, and nothing more is
// certain about it.
//
// All functions belong to the loop's thread. Taps do not disturb executions: an execution starts
// when no execute_request of a tap is unanswered, and no request of a tap gets between the requests
// of one execution.
#pragma once

#include "base.h"
#include "loop.h"

struct kernel;
struct kernel_tap;

enum kernel_channel { KERNEL_SHELL, KERNEL_IOPUB, KERNEL_CONTROL, KERNEL_STDIN };

struct kernel_bytes {
    const void *data;
    size_t len;
};

// One message, both ways. Each of the four parts is the text of a JSON object.
struct kernel_message {
    enum kernel_channel channel;
    struct kernel_bytes header;
    struct kernel_bytes parent_header;
    struct kernel_bytes metadata;
    struct kernel_bytes content;
    size_t n_buffers;
    const struct kernel_bytes *buffers;
};

// ---- Life -----------------------------------------------------------------------------------

enum { KERNEL_MAX_TAPS = 32 }; // of one kernel

struct kernel_tap_settings {
    const char *owner;      // whose share of all that waits for kernels the messages count in
    const char *session_id; // that the kernel belongs to
    // Of the messages that wait to be taken; 0: as much as the log of an execution holds.
    size_t max_bytes;
    // Another tap of the same client, whose sessions this one has used as well; NULL: none.
    const struct kernel_tap *twin;
};

// Opens a tap on a kernel in any state. The first item reports that state. `on_ready` fires when
// kernel_tap_next() has something again after it returned false, for the first item, and when the
// tap has ended; always from a loop iteration of its own, so anything may be done in it. Fails with
// KG_SESSION_BUSY where the kernel has KERNEL_MAX_TAPS.
KG_MUST_CHECK struct kernel_tap *kernel_tap_open(struct kernel *kernel,
                                                 const struct kernel_tap_settings *settings,
                                                 loop_fn on_ready, void *arg, struct kg_error *err);
// Closes a tap, also one that has ended. What it has sent still runs, and keeps the kernel busy.
void kernel_tap_close(struct kernel_tap *tap);
KG_DEFINE_AUTO(kernel_tap, kernel_tap_close)
// Whether the kernel does not exist any longer; items may still wait.
bool kernel_tap_has_ended(const struct kernel_tap *tap);

// ---- Sending --------------------------------------------------------------------------------

// Sends a message on shell, control or stdin; everything is copied. An execute_request on shell
// becomes an execution (kernel.h) when the kernel gets it, with the tap's owner and session, which
// does not depend on the tap. The header needs `msg_id` and
// `msg_type`, strings of 1 to 128 and 1 to 64 bytes, and `session` of 1 to 128; `username`, `date`
// and `version` are filled in where they are missing or of no use. An absent `parent_header` or
// `metadata` (len 0) is {}. Signed with the kernel's key.
//
// A message waits while the kernel starts or is replaced by request of others, and while the kernel
// takes no more. In a kernel that could not be started it causes another try. A restart discards
// what was sent before it. Messages of one channel keep their order.
//
// Fails with KG_INVALID (channel, header, sizes, an input_reply that no input_request of this tap
// waits for), KG_INVALID_CONTENT (not JSON), KG_SESSION_BUSY (too much waits), or
// KG_SESSION_ENDED (the tap has ended). Content above 64 KiB is checked later, on a worker: if it
// is not JSON the tap gets a KERNEL_TAP_REFUSED item.
KG_MUST_CHECK int kernel_tap_send(struct kernel_tap *tap, const struct kernel_message *message,
                                  struct kg_error *err);
// Whether messages that were sent still wait: kernel_tap_close() discards them.
bool kernel_tap_is_sending(const struct kernel_tap *tap);

// ---- Receiving ------------------------------------------------------------------------------

enum kernel_tap_kind {
    KERNEL_TAP_MESSAGE,
    // Messages were dropped here, oldest first, since this tap or all readers together held too
    // much, or since one was too large. Only iopub messages other than `status` are dropped for
    // want of room.
    KERNEL_TAP_LOST,
    KERNEL_TAP_REFUSED,    // a message that was sent was not JSON; it was discarded
    KERNEL_TAP_STARTING,   // the kernel's process is being started
    KERNEL_TAP_READY,      // it takes requests
    KERNEL_TAP_RESTARTING, // the process is being replaced: unanswered requests get no answer
    KERNEL_TAP_REQUESTED,  // the same, because kernel_restart() asked for it
    KERNEL_TAP_DEAD,       // no process could be started
    KERNEL_TAP_CUT,        // too many messages that cannot be dropped waited. The last item.
    KERNEL_TAP_ENDED,      // the kernel does not exist any longer. The last item.
};

struct kernel_tap_item {
    enum kernel_tap_kind kind;
    const struct kernel_message *message; // MESSAGE only; borrowed until the next call
    uint64_t lost_messages;               // LOST only
    uint64_t lost_bytes;
};

// Takes the next item; false: the queue is empty.
bool kernel_tap_next(struct kernel_tap *tap, struct kernel_tap_item *ret);
// Lets go of the message that was taken last, for a reader that takes nothing for a while.
void kernel_tap_let_go(struct kernel_tap *tap);
// Keeps the message that was taken last, so that it can be sent without a copy, until
// kernel_message_release(). It counts as held by readers until then.
void *kernel_tap_hold(struct kernel_tap *tap);
void kernel_message_release(void *held);
// Whether readers hold more than may be kept altogether: one that does not send what it holds
// should then be cut.
bool kernel_tap_is_crowded(const struct kernel_tap *tap);

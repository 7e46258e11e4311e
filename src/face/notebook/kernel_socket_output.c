// SPDX-License-Identifier: Apache-2.0
// What the kernel says, to the client of a WebSocket.

#include <string.h>

#include "framing_priv.h"
#include "kernel_socket_priv.h"

enum { SHARED_MIN_BYTES = 16 << 10 };

// What a client held is freed after its turn of the loop. Until then others do not count as slow:
// on a busy machine their timers may run in the same turn.
static bool
was_another_cut(const struct notebook *notebook)
{
    return notebook->cut_ms > 0 && clock_mono_ms() - notebook->cut_ms < HTTP_CROWDED_TICK_MS;
}

static bool
socket_is_crowded(const void *arg)
{
    const struct kernel_socket *socket = arg;
    return kernel_tap_is_crowded(socket->tap) && !was_another_cut(socket->notebook);
}

static void
socket_on_slow(void *arg)
{
    struct kernel_socket *socket = arg;
    socket->notebook->cut_ms = clock_mono_ms();
    http_pace_free(KG_STEAL(socket->crowded));
    websocket_abort(socket->ws);
    kernel_socket_leave(socket);
}

const struct http_pace_rule kernel_socket_crowded_rule = {
    .tick_ms = HTTP_CROWDED_TICK_MS,
    .max_ticks = HTTP_CROWDED_TICKS,
    .min_bytes = HTTP_CROWDED_TICK_BYTES,
    .rests = true,
    .counts = socket_is_crowded,
    .on_slow = socket_on_slow,
};

// A large part is sent as it is, and counts as held until then.
static void
write_shared(struct kernel_socket *socket, const struct kernel_bytes *part)
{
    websocket_write_shared(socket->ws, part->data, part->len, kernel_message_release,
                           kernel_tap_hold(socket->tap));
    http_pace_start(socket->crowded);
}

// `is_held`: the message is the tap's, not one that was made here.
static void
write_message(struct kernel_socket *socket, const struct kernel_message *message, bool is_held)
{
    KG_AUTO_FRAMED out;
    (socket->is_v1 ? framing_write_v1 : framing_write_legacy)(message, &out);
    websocket_begin(socket->ws, out.is_text, out.len);
    struct buf small = out.head;
    out.head = (struct buf){0};
    for (size_t i = 0; i < out.n_parts; i++) {
        if (!is_held || out.parts[i].len < SHARED_MIN_BYTES) {
            buf_append(&small, out.parts[i].data, out.parts[i].len);
            continue;
        }
        websocket_write(socket->ws, small.data, small.len);
        small.len = 0;
        write_shared(socket, &out.parts[i]);
    }
    websocket_write(socket->ws, small.data, small.len);
    buf_fini(&small);
}

// Takes `content`.
void
kernel_socket_write_own(struct kernel_socket *socket, enum kernel_channel channel, const char *type,
                        struct kernel_bytes parent_header, char *content)
{
    struct own_message own;
    own_message_init(&own, channel, type, socket->kernel_id, parent_header, content);
    write_message(socket, &own.message, false);
    own_message_fini(&own);
}

static const struct kernel_bytes no_parent = {"", 0};

void
kernel_socket_write_state(struct kernel_socket *socket, const char *state)
{
    kernel_socket_write_own(socket, KERNEL_IOPUB, "status", no_parent, own_status(state));
}

static void
write_stderr(struct kernel_socket *socket, const char *text)
{
    kernel_socket_write_own(socket, KERNEL_IOPUB, "stream", no_parent, own_stderr(text));
}

static void
write_loss(struct kernel_socket *socket, const struct kernel_tap_item *item)
{
    KG_AUTO_FREE char *text =
        kg_asprintf("[kernelgate dropped %llu messages (%llu bytes) of output that this client did "
                    "not read in time]\n",
                    (unsigned long long)item->lost_messages, (unsigned long long)item->lost_bytes);
    write_stderr(socket, text);
}

// The process has ended: `state` is "restarting" or "dead".
static void
write_end(struct kernel_socket *socket, const char *state)
{
    const struct kernel *kernel = kernel_socket_kernel(socket);
    const char *reason = kernel ? kernel_end_reason(kernel) : NULL;
    KG_AUTO_FREE char *text =
        reason ? kg_asprintf("[kernelgate: the kernel is %s: %s]\n", state, reason) : NULL;
    if (text)
        write_stderr(socket, text);
    socket->owes_idle = true;
    kernel_socket_write_state(socket, state);
}

// False: the socket is gone.
static bool
write_item(struct kernel_socket *socket, const struct kernel_tap_item *item)
{
    switch (item->kind) {
    case KERNEL_TAP_MESSAGE:
        write_message(socket, item->message, true);
        return true;
    case KERNEL_TAP_LOST:
        write_loss(socket, item);
        return true;
    case KERNEL_TAP_RESTARTING:
        write_end(socket, "restarting");
        return true;
    case KERNEL_TAP_DEAD:
        write_end(socket, "dead");
        return true;
    case KERNEL_TAP_READY:
        // Its own status may have been published before iopub was connected, which a kernel greets
        // with iopub_welcome.
        if (socket->owes_idle)
            kernel_socket_write_state(socket, kernel_first_state(kernel_socket_kernel(socket)));
        socket->owes_idle = false;
        return true;
    case KERNEL_TAP_STARTING:
    case KERNEL_TAP_REQUESTED: // clients take `restarting` for the kernel's death
        return true;
    case KERNEL_TAP_REFUSED:
        kernel_socket_close(socket, WEBSOCKET_BAD_DATA, "the message is not JSON");
        return false;
    case KERNEL_TAP_CUT:
        kernel_socket_close(socket, WEBSOCKET_TRY_LATER, "the client reads too slowly");
        return false;
    case KERNEL_TAP_ENDED:
        kernel_socket_close(socket, WEBSOCKET_GOING_AWAY, "the kernel has ended");
        return false;
    }
    return true;
}

void
kernel_socket_pump(struct kernel_socket *socket)
{
    struct kernel_tap_item item;
    while (websocket_backlog(socket->ws) <= WEBSOCKET_HIGH_WATERMARK) {
        if (!kernel_tap_next(socket->tap, &item))
            return;
        kernel_socket_touch(socket);
        if (!write_item(socket, &item))
            return;
    }
}

// Later changes wait in the tap.
void
kernel_socket_write_first_state(struct kernel_socket *socket)
{
    const char *state = kernel_first_state(kernel_socket_kernel(socket));
    if (strcmp(state, "idle") != 0)
        socket->owes_idle = true;
    kernel_socket_write_state(socket, state);
}

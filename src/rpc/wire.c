// SPDX-License-Identifier: Apache-2.0
// Frames over a socket: one read a turn of the loop, and a send as soon as there is something.
#include "rpc.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_BYTES = 128 << 10 };

struct wire {
    struct loop *loop;
    int fd;
    enum rpc_side side;
    struct wire_events events;
    void *arg;
    struct loop_fd *watch;
    int watched;
    struct loop_timer *resume; // there may be frames in `in`
    struct buf in;             // the start of a frame, or what came before a pause
    struct buf out;
    bool paused;
    bool wants;
    bool broken; // nothing can be sent any more: the other side's end is about to be read
    bool ended;  // on_end has fired
    bool *freed; // set by wire_free() from inside a callback
};

static void
watch_update(struct wire *wire)
{
    int events = 0;

    if (!wire->paused && !wire->ended)
        events |= LOOP_READ;
    if (!wire->ended && (wire->out.len > 0 || (wire->wants && !wire->broken)))
        events |= LOOP_WRITE;
    if (events != wire->watched)
        loop_fd_set(wire->watch, events);
    wire->watched = events;
}

// ---- Receiving ------------------------------------------------------------------------------

static void
wire_end(struct wire *wire, const struct kg_error *err)
{
    wire->ended = true;
    watch_update(wire);
    wire->events.on_end(err, wire->arg);
}

// Hands over the frames that `data` begins with. Returns how many bytes they have; -1 where the
// wire was freed or has ended.
static ssize_t
hand_over(struct wire *wire, const char *data, size_t len)
{
    struct frame frame;
    struct kg_error err;
    bool freed = false;
    size_t at = 0;
    int n;

    wire->freed = &freed;
    while (!wire->paused && (n = frame_read(wire->side, data + at, len - at, &frame)) != 0) {
        if (n < 0) {
            wire->freed = NULL;
            (void)kg_error_set(&err, KG_INTERNAL, 0, "a malformed frame");
            wire_end(wire, &err);
            return -1;
        }
        at += (size_t)n;
        wire->events.on_frame(&frame, wire->arg);
        if (freed)
            return -1;
    }
    wire->freed = NULL;
    return (ssize_t)at;
}

// Hands over what was kept. Returns false where the wire was freed or has ended.
static bool
hand_over_kept(struct wire *wire)
{
    if (wire->in.len == 0)
        return true;
    ssize_t used = hand_over(wire, wire->in.data, wire->in.len);
    if (used > 0)
        buf_consume(&wire->in, (size_t)used);
    if (used > 0 && wire->in.len == 0)
        buf_fini(&wire->in);
    return used >= 0;
}

static void
on_resume(void *arg)
{
    struct wire *wire = arg;

    if (!wire->ended)
        (void)hand_over_kept(wire);
}

// What is complete is handed over where it was read to; only the start of a frame is copied.
static void
receive(struct wire *wire)
{
    static char scratch[READ_BYTES];

    ssize_t n = recv(wire->fd, scratch, sizeof scratch, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        // The frames of a pause that has just ended come before the end; on a new pause it waits.
        if (hand_over_kept(wire) && !wire->paused)
            wire_end(wire, NULL);
        return;
    }
    if (wire->in.len > 0) {
        buf_append(&wire->in, scratch, (size_t)n);
        (void)hand_over_kept(wire);
        return;
    }
    ssize_t used = hand_over(wire, scratch, (size_t)n);
    if (used >= 0 && used < n)
        buf_append(&wire->in, scratch + used, (size_t)(n - used));
}

void
wire_pause(struct wire *wire, bool paused)
{
    wire->paused = paused;
    if (!paused && wire->in.len > 0)
        loop_timer_start(wire->resume, 0);
    watch_update(wire);
}

// ---- Sending --------------------------------------------------------------------------------

static void
sending_failed(struct wire *wire)
{
    wire->broken = true;
    wire->out.len = 0;
}

void
wire_send2(struct wire *wire, enum frame_kind kind, const void *data, size_t len, const void *more,
           size_t more_len)
{
    unsigned char header[FRAME_HEADER_LEN];
    const struct iovec parts[] = {
        {header, sizeof header},
        {(void *)(uintptr_t)data, len},
        {(void *)(uintptr_t)more, more_len},
    };
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts,
                                   .msg_iovlen = KG_ARRAY_LEN(parts)};
    ssize_t sent = 0;

    if (wire->broken || wire->ended)
        return;
    frame_header(kind, len + more_len, header);
    if (wire->out.len == 0)
        sent = sendmsg(wire->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        sending_failed(wire);
        return;
    }
    size_t skip = sent > 0 ? (size_t)sent : 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(parts); i++) {
        size_t part = parts[i].iov_len;
        size_t gone = skip < part ? skip : part;
        if (gone < part)
            buf_append(&wire->out, (const char *)parts[i].iov_base + gone, part - gone);
        skip -= gone;
    }
    watch_update(wire);
}

void
wire_send(struct wire *wire, enum frame_kind kind, const void *data, size_t len)
{
    wire_send2(wire, kind, data, len, NULL, 0);
}

static void
flush(struct wire *wire)
{
    struct buf *out = &wire->out;

    if (out->len == 0)
        return;
    ssize_t n = send(wire->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        sending_failed(wire);
    else if (n > 0)
        buf_consume(out, (size_t)n);
    if (out->len == 0)
        buf_fini(out);
}

size_t
wire_backlog(const struct wire *wire)
{
    return wire->out.len;
}

void
wire_want(struct wire *wire)
{
    wire->wants = true;
    watch_update(wire);
}

// ---- Both -----------------------------------------------------------------------------------

static void
on_fd(int fd, int events, void *arg)
{
    struct wire *wire = arg;
    bool freed = false;
    (void)fd;

    if (events & LOOP_WRITE) {
        flush(wire);
        if (wire->wants && !wire->broken && wire->out.len <= WIRE_LOW) {
            wire->wants = false;
            wire->freed = &freed;
            wire->events.on_room(wire->arg);
            if (freed)
                return;
            wire->freed = NULL;
        }
        watch_update(wire);
    }
    if ((events & LOOP_READ) && !wire->paused && !wire->ended)
        receive(wire);
}

bool
wire_is_quiet(const struct wire *wire)
{
    return wire->in.len == 0 && wire->out.len == 0 && !wire->wants && !wire->broken && !wire->ended;
}

void
wire_set_events(struct wire *wire, const struct wire_events *events, void *arg)
{
    wire->events = *events;
    wire->arg = arg;
}

struct wire *
wire_new(struct loop *loop, int fd, enum rpc_side side, const struct wire_events *events, void *arg)
{
    struct wire *wire = KG_NEW(struct wire);

    wire->loop = loop;
    wire->fd = fd;
    wire->side = side;
    wire->events = *events;
    wire->arg = arg;
    wire->watch = loop_fd_new(loop, fd, LOOP_READ, on_fd, wire);
    wire->watched = LOOP_READ;
    wire->resume = loop_timer_new(loop, on_resume, wire);
    return wire;
}

void
wire_free(struct wire *wire)
{
    if (!wire)
        return;
    if (wire->freed)
        *wire->freed = true;
    loop_fd_free(wire->watch);
    loop_timer_free(wire->resume);
    close(wire->fd);
    buf_fini(&wire->in);
    buf_fini(&wire->out);
    free(wire);
}

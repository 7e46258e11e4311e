// SPDX-License-Identifier: Apache-2.0
// The guard of one channel: two byte pumps with backpressure, the follower on the kernel's side of
// them, and the end of the link, which is told only after its last message was read.

#include "guard_priv.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "jupyter.h"
#include "zmtp_priv.h"

enum {
    CHUNK = 128 * 1024,
    // Whole messages inside libzmq that nobody has read yet, as zmtp_frame_cost() counts.
    WINDOW = 8 * 1024 * 1024
};

struct guard {
    int link_fd;
    int inner_fd;
    struct loop_fd *link_watch;
    struct loop_fd *inner_watch;
    int link_events; // what is watched for
    int inner_events;
    struct buf inward; // read from one side and not yet taken by the other; less than CHUNK each
    struct buf outward;
    struct zmtp_follower follower;
    uint64_t in_flight; // cost of the messages that went inward and were not taken
    bool ending;        // nothing more comes from the link; `reason` says why
    struct kg_error reason;
    struct loop_timer *end_timer;
    guard_end_fn on_end;
    void *arg;
};

static void
on_end_timer(void *arg)
{
    struct guard *guard = arg;
    guard->on_end(&guard->reason, guard->arg);
}

static void
set_events(struct loop_fd *watch, int *current, int wanted)
{
    if (*current == wanted)
        return;
    *current = wanted;
    loop_fd_set(watch, wanted);
}

// After every step: watches for what can be done next, or ends.
static void
settle(struct guard *guard)
{
    int link = 0, inner = 0;

    if (guard->ending && guard->inward.len == 0 && guard->in_flight == 0) {
        loop_timer_start(guard->end_timer, 0);
    } else {
        if (!guard->ending && guard->inward.len == 0 && guard->in_flight <= WINDOW)
            link |= LOOP_READ;
        if (guard->outward.len > 0)
            link |= LOOP_WRITE;
        if (guard->outward.len == 0)
            inner |= LOOP_READ;
        if (guard->inward.len > 0)
            inner |= LOOP_WRITE;
    }
    set_events(guard->link_watch, &guard->link_events, link);
    set_events(guard->inner_watch, &guard->inner_events, inner);
}

static void
begin_end(struct guard *guard, const struct kg_error *reason)
{
    if (guard->ending)
        return;
    guard->ending = true;
    guard->reason = *reason;
}

// libzmq closed its end: it reads nothing any more.
static void
inner_lost(struct guard *guard)
{
    struct kg_error reason;
    (void)kg_error_set(&reason, KG_INVALID_CONTENT, 0, "ZeroMQ refused the peer");
    begin_end(guard, &reason);
    buf_fini(&guard->inward);
    guard->in_flight = 0;
}

static void
link_lost(struct guard *guard, int sys_errno)
{
    struct kg_error reason;
    (void)kg_error_set(&reason, KG_PROVISIONER_UNAVAILABLE, sys_errno, "the link ended");
    begin_end(guard, &reason);
    buf_fini(&guard->outward);
}

// Sends what it can and keeps the rest in `rest`, which is empty before. Returns an errno or 0.
static int
pass_on(int fd, const char *data, size_t len, struct buf *rest)
{
    ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return errno;
    size_t sent = n < 0 ? 0 : (size_t)n;
    if (sent < len)
        buf_append(rest, data + sent, len - sent);
    return 0;
}

static int
pass_rest(int fd, struct buf *rest)
{
    ssize_t n = send(fd, rest->data, rest->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : errno;
    if ((size_t)n == rest->len)
        buf_fini(rest);
    else
        buf_consume(rest, (size_t)n);
    return 0;
}

// What is fine before an offence still goes through, so that no earlier message is lost.
static void
read_link(struct guard *guard)
{
    char chunk[CHUNK];
    ssize_t n = recv(guard->link_fd, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        link_lost(guard, n < 0 ? errno : 0);
        return;
    }

    size_t len;
    uint64_t cost;
    struct kg_error reason;
    if (zmtp_follow(&guard->follower, chunk, (size_t)n, &len, &cost, &reason) != 0)
        begin_end(guard, &reason);
    guard->in_flight += cost;
    if (len > 0 && pass_on(guard->inner_fd, chunk, len, &guard->inward) != 0)
        inner_lost(guard);
}

// A link that takes nothing any more may still have something to say: reading finds its end.
static void
read_inner(struct guard *guard)
{
    char chunk[CHUNK];
    ssize_t n = recv(guard->inner_fd, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        inner_lost(guard);
    else if (!guard->ending)
        (void)pass_on(guard->link_fd, chunk, (size_t)n, &guard->outward);
}

static void
on_link(int fd, int events, void *arg)
{
    struct guard *guard = arg;
    (void)fd;
    if ((events & LOOP_WRITE) != 0 && guard->outward.len > 0 &&
        pass_rest(guard->link_fd, &guard->outward) != 0)
        buf_fini(&guard->outward);
    if ((events & LOOP_READ) != 0 && (guard->link_events & LOOP_READ) != 0)
        read_link(guard);
    settle(guard);
}

static void
on_inner(int fd, int events, void *arg)
{
    struct guard *guard = arg;
    (void)fd;
    if ((events & LOOP_WRITE) != 0 && guard->inward.len > 0 &&
        pass_rest(guard->inner_fd, &guard->inward) != 0)
        inner_lost(guard);
    if ((events & LOOP_READ) != 0 && (guard->inner_events & LOOP_READ) != 0)
        read_inner(guard);
    settle(guard);
}

struct guard *
guard_new(struct loop *loop, int link_fd, int inner_fd, size_t max_message_bytes,
          guard_end_fn on_end, void *arg)
{
    struct guard *guard = KG_NEW(struct guard);

    guard->link_fd = link_fd;
    guard->inner_fd = inner_fd;
    guard->link_events = guard->inner_events = LOOP_READ;
    guard->link_watch = loop_fd_new(loop, link_fd, LOOP_READ, on_link, guard);
    guard->inner_watch = loop_fd_new(loop, inner_fd, LOOP_READ, on_inner, guard);
    guard->end_timer = loop_timer_new(loop, on_end_timer, guard);
    zmtp_init(&guard->follower, max_message_bytes, JUPYTER_MAX_FRAMES);
    guard->on_end = on_end;
    guard->arg = arg;
    return guard;
}

void
guard_free(struct guard *guard)
{
    if (guard == NULL)
        return;
    loop_timer_free(guard->end_timer);
    loop_fd_free(guard->link_watch);
    loop_fd_free(guard->inner_watch);
    buf_fini(&guard->inward);
    buf_fini(&guard->outward);
    close(guard->link_fd);
    close(guard->inner_fd);
    free(guard);
}

void
guard_taken(struct guard *guard, uint64_t cost)
{
    guard->in_flight -= cost < guard->in_flight ? cost : guard->in_flight;
    settle(guard);
}

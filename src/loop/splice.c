// SPDX-License-Identifier: Apache-2.0
// A splice writes at once what it has read, and waits for writability only if a side is slow. So a
// message costs one wake-up, one recv and one send.
#include "splice.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

// CHUNK is also the bound of what is kept for a slow side.
enum { CHUNK = 128 * 1024, LINGER_MS = 10, LINGER_BYTES = 16 * 1024 };
// More than a socket holds: what a process left behind that has ended.
enum { LAST_BYTES = 8 * 1024 * 1024 };

// One side. `pending` came from the other side and did not fit into this socket, or lingers. While
// this side is blocked, the other one is not read.
struct end {
    struct splice *splice;
    struct end *other;
    int fd;
    struct loop_fd *watch;
    int watched;
    struct buf pending;
    size_t sent; // of pending
    bool eof;    // all was read
    bool shut;   // all was written, or it takes no more
    bool last;   // nothing comes after what the socket holds
    size_t left; // how much of that is read
};

struct splice {
    struct end ends[2];
    // A dead peer may never close its other half. The timer starts when one direction has ended,
    // and again whenever bytes move.
    struct loop_timer *half_closed;
    int64_t half_closed_ms;
    splice_linger_fn can_linger;     // NULL: nothing lingers
    struct loop_timer *linger_timer; // active while what is pending for ends[0] lingers
    loop_fn on_end;
    void *arg;
};

// Shared by all splices: what is read is written or copied before the next read.
static char scratch[CHUNK];

static bool
has_pending(const struct end *end)
{
    return end->pending.len > end->sent;
}

static bool
lingers(const struct end *end)
{
    return end == &end->splice->ends[0] && loop_timer_active(end->splice->linger_timer);
}

// Whether bytes wait for the socket to take them.
static bool
is_blocked(const struct end *end)
{
    return has_pending(end) && !lingers(end);
}

static bool
can_read(const struct end *end)
{
    return !end->eof && !is_blocked(end->other);
}

static void
watch_update(struct end *end)
{
    int events = 0;

    if (can_read(end))
        events |= LOOP_READ;
    if (is_blocked(end))
        events |= LOOP_WRITE;
    if (events != end->watched) {
        end->watched = events;
        loop_fd_set(end->watch, events);
    }
}

// Returns how many bytes were sent; -1 if the socket has failed.
static ssize_t
send_some(int fd, const char *data, size_t len)
{
    ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return n;
}

// Bytes have moved, or a direction has ended.
static void
note_progress(struct splice *splice)
{
    if (splice->ends[0].eof || splice->ends[1].eof)
        loop_timer_start(splice->half_closed, splice->half_closed_ms);
}

static void
shut_if_over(struct end *end)
{
    if (end->other->eof && !has_pending(end) && !end->shut) {
        end->shut = true;
        shutdown(end->fd, SHUT_WR);
    }
}

// The socket takes no more. What can be read from it still goes to the other side.
static void
give_up_writing(struct end *end)
{
    buf_fini(&end->pending);
    end->sent = 0;
    end->shut = true;
    end->other->eof = true;
    note_progress(end->splice);
}

static void
write_pending(struct end *end)
{
    ssize_t n = send_some(end->fd, end->pending.data + end->sent, end->pending.len - end->sent);

    if (n < 0) {
        give_up_writing(end);
        return;
    }
    end->sent += (size_t)n;
    note_progress(end->splice);
    if (!has_pending(end)) {
        buf_fini(&end->pending);
        end->sent = 0;
        shut_if_over(end);
    }
}

// Keeps a piece that lingers; false where it is to be sent, behind what has lingered.
static bool
keep_lingering(struct end *to, const char *data, size_t len)
{
    struct splice *splice = to->splice;
    if (!splice->can_linger || to != &splice->ends[0] || to->pending.len + len > LINGER_BYTES ||
        !splice->can_linger(data, len))
        return false;
    buf_append(&to->pending, data, len);
    if (!loop_timer_active(splice->linger_timer))
        loop_timer_start(splice->linger_timer, LINGER_MS);
    return true;
}

static void
stop_lingering(struct splice *splice)
{
    loop_timer_stop(splice->linger_timer);
    if (has_pending(&splice->ends[0]))
        write_pending(&splice->ends[0]);
}

static void
finish_reading(struct end *end)
{
    end->eof = true;
    note_progress(end->splice);
    if (lingers(end->other))
        stop_lingering(end->splice);
    shut_if_over(end->other);
}

static void
read_from(struct end *end)
{
    struct end *to = end->other;
    size_t most = end->last && end->left < sizeof scratch ? end->left : sizeof scratch;
    ssize_t n = most > 0 ? recv(end->fd, scratch, most, MSG_DONTWAIT) : 0;

    if (n < 0 && (errno == EINTR || (errno == EAGAIN && !end->last)))
        return;
    if (n <= 0) {
        finish_reading(end);
        return;
    }
    end->left -= end->last ? (size_t)n : 0;
    note_progress(end->splice);
    if (keep_lingering(to, scratch, (size_t)n))
        return;
    if (lingers(to)) {
        buf_append(&to->pending, scratch, (size_t)n);
        stop_lingering(end->splice);
        return;
    }
    ssize_t sent = send_some(to->fd, scratch, (size_t)n);
    if (sent < 0)
        give_up_writing(to);
    else if (sent < n)
        buf_append(&to->pending, scratch + sent, (size_t)(n - sent));
}

// After every step. No event reports that a socket is empty that is held open.
static void
settle(struct splice *splice)
{
    struct end *end = &splice->ends[1];
    while (end->last && can_read(end))
        read_from(end);
    watch_update(&splice->ends[0]);
    watch_update(&splice->ends[1]);
}

static bool
is_over(const struct splice *splice)
{
    return splice->ends[0].shut && splice->ends[1].shut;
}

static void
on_fd(int fd, int events, void *arg)
{
    struct end *end = arg;
    struct splice *splice = end->splice;
    (void)fd;

    if ((events & LOOP_WRITE) && is_blocked(end))
        write_pending(end);
    if ((events & LOOP_READ) && can_read(end))
        read_from(end);
    settle(splice);
    if (is_over(splice))
        splice->on_end(splice->arg);
}

static void
on_half_closed(void *arg)
{
    struct splice *splice = arg;
    splice->on_end(splice->arg);
}

static void
on_linger_timer(void *arg)
{
    struct splice *splice = arg;
    stop_lingering(splice);
    settle(splice);
}

struct splice *
splice_new(struct loop *loop, int a, int b, int64_t half_closed_ms, loop_fn on_end, void *arg)
{
    struct splice *splice = KG_NEW(struct splice);
    const int fds[2] = {a, b};

    splice->half_closed_ms = half_closed_ms;
    splice->on_end = on_end;
    splice->arg = arg;
    splice->half_closed = loop_timer_new(loop, on_half_closed, splice);
    splice->linger_timer = loop_timer_new(loop, on_linger_timer, splice);
    for (int i = 0; i < 2; i++) {
        struct end *end = &splice->ends[i];
        end->splice = splice;
        end->other = &splice->ends[1 - i];
        end->fd = fds[i];
        end->watched = LOOP_READ;
        end->watch = loop_fd_new(loop, fds[i], LOOP_READ, on_fd, end);
    }
    return splice;
}

void
splice_set_linger(struct splice *splice, splice_linger_fn fn)
{
    splice->can_linger = fn;
}

void
splice_finish(struct splice *splice)
{
    struct end *end = &splice->ends[1];

    if (end->last)
        return;
    end->last = true;
    end->left = LAST_BYTES;
    settle(splice);
    if (is_over(splice))
        loop_timer_start(splice->half_closed, 0);
}

void
splice_free(struct splice *splice)
{
    if (!splice)
        return;
    if (lingers(&splice->ends[0]))
        stop_lingering(splice); // the last output of a process that was killed, say
    for (int i = 0; i < 2; i++) {
        loop_fd_free(splice->ends[i].watch);
        close(splice->ends[i].fd);
        buf_fini(&splice->ends[i].pending);
    }
    loop_timer_free(splice->half_closed);
    loop_timer_free(splice->linger_timer);
    free(splice);
}

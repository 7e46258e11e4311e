// SPDX-License-Identifier: Apache-2.0
// The guard of one channel: a byte pump in each direction, with backpressure. A follower checks the
// frames that come from the kernel. The end of the link is reported after its last message was
// taken.
//
// libzmq holds up to WINDOW bytes for each channel. A larger message needs a slot, from the moment
// its size is known until it has been taken:
//
// - All guards share one fast slot. A guard that has it must receive quickly, so that the next in
//   the queue gets it within half a second. It holds the slot for one message: the peer's next
//   large message waits behind those of other peers.
// - A guard that is too slow for it gets one of SLOW_SLOTS, where it must receive a minimum every
//   SLOW_MS.
// - If it is too slow even for that, or no slow slot is free, the message is abandoned: libzmq gets
//   NUL bytes for the rest, and the reader sees a message that was too large (zmtp_abandon()).
//
// So all large messages together take at most (1 + SLOW_SLOTS) times the bound of one.

#include "guard_priv.h"

#include <errno.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "jupyter.h"
#include "zmtp_priv.h"

enum {
    CHUNK = 128 * 1024,
    // Cost (zmtp_frame_cost()) of the whole messages inside libzmq that have not been taken.
    WINDOW = 1024 * 1024,
    FAST_SLOTS = 1,
    SLOW_SLOTS = 3,
    // The minimum that a guard with the fast slot must receive in FAST_MS, while it reads.
    FAST_MS = 50,
    FAST_BYTES = 256 * 1024,
    // So many checks for one message: half a second.
    MAX_FAST_CHECKS = 10,
    // The same for a slow slot; the number of checks is not limited.
    SLOW_MS = 2000,
    SLOW_BYTES = 128 * 1024,
    SIFT_BYTES = 16 * 1024, // the largest read that is sifted
};

enum slot { SLOT_NONE, SLOT_WAITING, SLOT_FAST, SLOT_SLOW };

struct guard {
    int link_fd;
    int inner_fd;
    struct loop_fd *link_watch;
    struct loop_fd *inner_watch;
    int link_events; // what is watched for
    int inner_events;
    struct buf
        inward; // read from one side and not yet written to the other; at most about CHUNK each
    struct buf outward;
    struct zmtp_follower follower;
    uint64_t in_flight; // cost of the messages that went inward and have not been taken
    uint64_t nuls_left; // NUL bytes that complete an abandoned message; sent after `inward`
    enum slot slot;
    bool slot_done;                   // its message has gone inward completely
    TAILQ_ENTRY(guard) in_slot_queue; // in SLOT_WAITING
    struct loop_timer *pace_timer;    // in SLOT_FAST and SLOT_SLOW
    int64_t pace_begin_ms;            // clock_mono_ms()
    size_t moved;                     // bytes that went inward since the timer was started
    bool was_paused;                  // since then, at least for a moment
    int fast_checks;
    guard_sift_fn sift; // NULL: all is passed on
    bool ending;        // nothing more comes from the link; `reason` says why
    struct kg_error reason;
    struct loop_timer *end_timer;
    guard_end_fn on_end;
    void *arg;
};

// All guards of the process, which has one loop.
static TAILQ_HEAD(, guard) slot_queue = TAILQ_HEAD_INITIALIZER(slot_queue);
static int fast_slots_held, slow_slots_held;

static void guard_settle(struct guard *guard);

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

static void
begin_end(struct guard *guard, const struct kg_error *reason)
{
    if (guard->ending)
        return;
    guard->ending = true;
    guard->reason = *reason;
}

// ---- Slots ----------------------------------------------------------------------------------

static void
pace_start(struct guard *guard, int64_t ms)
{
    guard->moved = 0;
    guard->pace_begin_ms = clock_mono_ms();
    guard->was_paused = (guard->link_events & LOOP_READ) == 0;
    loop_timer_start(guard->pace_timer, ms);
}

static void
fast_slots_grant(void)
{
    struct guard *first;
    while (fast_slots_held < FAST_SLOTS && (first = TAILQ_FIRST(&slot_queue)) != NULL) {
        TAILQ_REMOVE(&slot_queue, first, in_slot_queue);
        first->slot = SLOT_FAST;
        first->fast_checks = 0;
        fast_slots_held++;
        pace_start(first, FAST_MS);
        guard_settle(first);
    }
}

static void
guard_set_slot(struct guard *guard, enum slot slot)
{
    enum slot before = guard->slot;
    guard->slot = slot;
    if (before == SLOT_WAITING)
        TAILQ_REMOVE(&slot_queue, guard, in_slot_queue);
    fast_slots_held -= before == SLOT_FAST;
    slow_slots_held -= before == SLOT_SLOW;
    loop_timer_stop(guard->pace_timer);
    if (slot == SLOT_WAITING)
        TAILQ_INSERT_TAIL(&slot_queue, guard, in_slot_queue);
    if (slot == SLOT_SLOW) {
        slow_slots_held++;
        pace_start(guard, SLOW_MS);
    }
    fast_slots_grant();
}

static void
guard_abandon(struct guard *guard)
{
    uint64_t cost;
    struct kg_error err;
    if (zmtp_abandon(&guard->follower, &guard->nuls_left, &cost, &err) != 0) {
        begin_end(guard, &err);
    } else {
        guard->in_flight += cost;
        guard->slot_done = true;
    }
    guard_settle(guard);
}

// Only the peer's time counts, not the time in which the guard did not read, or a complete message
// waited to be taken. If the timer fires late by half its time, this process was not run, and could
// not read.
static void
guard_on_pace_timer(void *arg)
{
    struct guard *guard = arg;
    bool fast = guard->slot == SLOT_FAST;
    int64_t pace_ms = fast ? FAST_MS : SLOW_MS;
    bool late = clock_mono_ms() - guard->pace_begin_ms > pace_ms + pace_ms / 2;
    bool counts = !late && !guard->was_paused && !guard->slot_done;
    bool is_last_check = fast && counts && ++guard->fast_checks >= MAX_FAST_CHECKS;
    bool is_slow = is_last_check || guard->moved < (fast ? FAST_BYTES : SLOW_BYTES);
    if (counts && is_slow && fast && slow_slots_held < SLOW_SLOTS)
        guard_set_slot(guard, SLOT_SLOW);
    else if (counts && is_slow && (!fast || is_last_check))
        guard_abandon(guard);
    else
        pace_start(guard, pace_ms);
}

// Whether the guard may read. Asks for a slot when a large message has begun, and returns the slot
// when that has been taken; a large message behind it asks again.
static bool
guard_has_room(struct guard *guard)
{
    bool large = guard->follower.message_cost > WINDOW && !guard->ending;
    bool taken = guard->in_flight <= WINDOW;
    if (taken && guard->slot != SLOT_NONE && (!large || guard->slot_done)) {
        guard->slot_done = false;
        guard_set_slot(guard, SLOT_NONE);
    }
    if (large && guard->slot == SLOT_NONE)
        guard_set_slot(guard, SLOT_WAITING);
    return taken && guard->slot != SLOT_WAITING;
}

// ---- Pumps ----------------------------------------------------------------------------------

// Called after every step: watches for what can be done next, or ends.
static void
guard_settle(struct guard *guard)
{
    int link = 0, inner = 0;
    bool room = guard_has_room(guard);
    bool has_inward = guard->inward.len > 0 || guard->nuls_left > 0;

    if (guard->ending && !has_inward && guard->in_flight == 0) {
        loop_timer_start(guard->end_timer, 0);
    } else {
        if (!guard->ending && !has_inward && room)
            link |= LOOP_READ;
        if (guard->outward.len > 0)
            link |= LOOP_WRITE;
        if (guard->outward.len == 0)
            inner |= LOOP_READ;
        if (has_inward)
            inner |= LOOP_WRITE;
    }
    guard->was_paused |= (link & LOOP_READ) == 0;
    set_events(guard->link_watch, &guard->link_events, link);
    set_events(guard->inner_watch, &guard->inner_events, inner);
}

// libzmq has closed its end.
static void
inner_lost(struct guard *guard)
{
    struct kg_error reason;
    (void)kg_error_set(&reason, KG_INVALID_CONTENT, 0, "ZeroMQ refused the peer");
    begin_end(guard, &reason);
    buf_fini(&guard->inward);
    guard->in_flight = guard->nuls_left = 0;
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

// Bytes before a violation are still passed on, so that no earlier message is lost.
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

    uint64_t cost;
    size_t len = (size_t)n;
    struct kg_error reason;
    if (guard->sift != NULL && len <= SIFT_BYTES && zmtp_is_between_messages(&guard->follower))
        len = guard->sift(chunk, len, guard->arg);
    if (zmtp_follow(&guard->follower, chunk, len, &guard->inward, &cost, &reason) != 0)
        begin_end(guard, &reason);
    guard->moved += guard->inward.len; // what is replaced does not count
    guard->in_flight += cost;
    guard->slot_done |= cost > WINDOW && guard->slot != SLOT_NONE;
    if (guard->inward.len > 0 && pass_rest(guard->inner_fd, &guard->inward) != 0)
        inner_lost(guard);
}

// If the link no longer accepts bytes it may still deliver some: its end is found by reading.
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
    guard_settle(guard);
}

// Completes an abandoned message.
static int
pass_nuls(struct guard *guard)
{
    static const char nuls[CHUNK];
    size_t len = guard->nuls_left < CHUNK ? (size_t)guard->nuls_left : CHUNK;
    ssize_t n = send(guard->inner_fd, nuls, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : errno;
    guard->nuls_left -= (uint64_t)n;
    return 0;
}

static int
pass_inward(struct guard *guard)
{
    if (guard->inward.len > 0)
        return pass_rest(guard->inner_fd, &guard->inward);
    return guard->nuls_left > 0 ? pass_nuls(guard) : 0;
}

static void
on_inner(int fd, int events, void *arg)
{
    struct guard *guard = arg;
    (void)fd;
    if ((events & LOOP_WRITE) != 0 && pass_inward(guard) != 0)
        inner_lost(guard);
    if ((events & LOOP_READ) != 0 && (guard->inner_events & LOOP_READ) != 0)
        read_inner(guard);
    guard_settle(guard);
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
    guard->pace_timer = loop_timer_new(loop, guard_on_pace_timer, guard);
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
    guard_set_slot(guard, SLOT_NONE);
    loop_timer_free(guard->end_timer);
    loop_timer_free(guard->pace_timer);
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
    guard_settle(guard);
}

void
guard_set_sift(struct guard *guard, guard_sift_fn sift)
{
    guard->sift = sift;
}

bool
guard_has_untaken(const struct guard *guard)
{
    return guard->in_flight > 0;
}

bool
guard_is_receiving(const struct guard *guard)
{
    return zmtp_is_inside_message(&guard->follower) || guard_has_untaken(guard);
}

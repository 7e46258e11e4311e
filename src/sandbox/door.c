// SPDX-License-Identifier: Apache-2.0
// The calls of a door. Every callback is the last thing that its function does, since it may free
// the door.
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "door_priv.h"

// How long a call waits for a connection to an agent that was there before.
enum { NO_LINK_MS = 10 * 1000 };

static void
drop_connection(struct door_call *call)
{
    loop_fd_free(KG_STEAL(call->watch));
    if (call->fd >= 0)
        close(KG_STEAL_FD(call->fd));
    call->answer_len = 0;
}

void
door_call_cancel(struct door_call *call)
{
    if (!call)
        return;
    if (call->door)
        TAILQ_REMOVE(&call->door->calls, call, entry);
    drop_connection(call);
    loop_timer_free(call->timer);
    free(call);
}

// Ends the call with its connection, or with `err`.
static void
door_finish(struct door_call *call, const struct kg_error *err)
{
    door_link_fn fn = call->fn;
    void *arg = call->arg;
    int fd = -1;

    if (!err) {
        loop_fd_free(KG_STEAL(call->watch));
        fd = KG_STEAL_FD(call->fd);
    }
    door_call_cancel(call);
    fn(fd, err, arg);
}

static void
door_on_timeout(void *arg)
{
    struct door_call *call = arg;
    struct kg_error err;

    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's agent %s",
                       call->fd < 0 ? "cannot be reached" : "did not answer in time");
    door_finish(call, &err);
}

static void
start_timer(struct door_call *call)
{
    int64_t left = call->deadline_ms - clock_mono_ms();

    if (call->fd < 0 && call->door->proven && left > NO_LINK_MS)
        left = NO_LINK_MS;
    loop_timer_start(call->timer, left > 0 ? left : 0);
}

// Bytes after the answer's newline are from the target and stay in the socket. Returns 1 when the
// answer is complete, 0 if there is more to read, -1 if the link has ended.
static int
read_answer(struct door_call *call)
{
    char *at = call->answer + call->answer_len;
    size_t room = sizeof call->answer - call->answer_len;

    ssize_t n = recv(call->fd, at, room, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    const char *newline = memchr(at, '\n', (size_t)n);
    size_t take = newline ? (size_t)(newline - at) + 1 : (size_t)n;
    if (recv(call->fd, at, take, MSG_DONTWAIT) != (ssize_t)take)
        return -1;
    call->answer_len += take;
    return newline || take == room ? 1 : 0;
}

static void
on_answer(int fd, int events, void *arg)
{
    struct door_call *call = arg;
    struct door *door = call->door;
    struct kg_error err = {0};
    (void)fd;
    (void)events;

    int got = read_answer(call);
    if (got == 0)
        return;
    if (got < 0) {
        // It may have been closed just before it was used: another one may work.
        drop_connection(call);
        start_timer(call);
        door->ops->serve(door);
        return;
    }
    enum link_answer answer = link_answer_parse(call->answer, call->answer_len - 1, &err);
    if (answer == LINK_ANSWER_OVERTAKEN) {
        drop_connection(call); // the owner ends this call with all others
        loop_timer_start(door->overtaken, 0);
        return;
    }
    if (answer == LINK_ANSWER_OK) {
        door->proven = true;
        if (door->ops->opened)
            door->ops->opened(door);
    }
    door_finish(call, answer == LINK_ANSWER_OK ? NULL : &err);
}

void
door_call_asked(struct door_call *call, int fd)
{
    call->fd = fd;
    call->watch = loop_fd_new(call->door->loop, fd, LOOP_READ, on_answer, call);
    start_timer(call);
}

struct door_call *
door_open(struct door *door, const char *target, int64_t timeout_ms, door_link_fn fn, void *arg)
{
    assert(link_target_valid(target) && timeout_ms > 0);
    struct door_call *call = KG_NEW(struct door_call);
    call->door = door;
    memcpy(call->target, target, strlen(target) + 1);
    call->deadline_ms = clock_mono_ms() + timeout_ms;
    call->timer = loop_timer_new(door->loop, door_on_timeout, call);
    call->fd = -1;
    call->fn = fn;
    call->arg = arg;
    TAILQ_INSERT_TAIL(&door->calls, call, entry);
    start_timer(call);
    door->ops->serve(door);
    return call;
}

static void
on_overtaken(void *arg)
{
    const struct door *door = arg;
    door->events.on_overtaken(door->events.arg);
}

void
door_init(struct door *door, const struct door_ops *ops, struct loop *loop,
          const struct door_events *events)
{
    door->ops = ops;
    door->loop = loop;
    door->events = *events;
    TAILQ_INIT(&door->calls);
    door->overtaken = loop_timer_new(loop, on_overtaken, door);
}

void
door_free(struct door *door)
{
    struct door_call *call;

    if (!door)
        return;
    while ((call = TAILQ_FIRST(&door->calls))) {
        TAILQ_REMOVE(&door->calls, call, entry);
        call->door = NULL;
        drop_connection(call);
        loop_timer_stop(call->timer);
    }
    door->ops->fini(door);
    loop_timer_free(door->overtaken);
    free(door);
}

// SPDX-License-Identifier: Apache-2.0
// Clocks and timers of the agent in unit tests, which are linked in place of kg_base's and
// kg_loop's: the machine's time, and what the test has added to it (agent_clock_advance()).

#include <event2/event.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "loop_priv.h"

// Written by the test.
static const atomic_int_least64_t *added_ms;

__attribute__((constructor)) static void
agent_clock_init(void)
{
    static const atomic_int_least64_t nothing;
    const char *path = getenv("AGENT_CLOCK");
    KG_AUTO_FD fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *shared =
        fd >= 0 ? mmap(NULL, sizeof *added_ms, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    added_ms = shared == MAP_FAILED ? &nothing : shared;
}

static int64_t
now_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + *added_ms * 1000;
}

int64_t
clock_mono_us(void)
{
    return now_us(CLOCK_MONOTONIC);
}

int64_t
clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t
clock_wall_ms(void)
{
    return now_us(CLOCK_REALTIME) / 1000;
}

// ---- Timers ---------------------------------------------------------------------------------

struct loop_timer {
    struct event *event;
    int64_t due_us; // 0: at once
    loop_fn fn;
    void *arg;
};

// Nothing says that the test has added to the time, so a timer looks.
static void
wait_on(struct loop_timer *timer)
{
    enum { LOOK_US = 10 * 1000 };
    int64_t left_us = timer->due_us - clock_mono_us();
    int64_t wait_us = left_us < 0 ? 0 : left_us < LOOK_US ? left_us : LOOK_US;
    event_add(timer->event, &(const struct timeval){.tv_usec = (suseconds_t)wait_us});
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop_timer *timer = arg;
    (void)fd;
    (void)what;
    if (timer->due_us > clock_mono_us())
        wait_on(timer);
    else
        timer->fn(timer->arg);
}

struct loop_timer *
loop_timer_new(struct loop *loop, loop_fn fn, void *arg)
{
    struct loop_timer *timer = KG_NEW(struct loop_timer);
    timer->fn = fn;
    timer->arg = arg;
    timer->event = event_new(loop->base, -1, 0, on_timer, timer);
    if (!timer->event)
        abort();
    return timer;
}

void
loop_timer_free(struct loop_timer *timer)
{
    if (!timer)
        return;
    event_free(timer->event);
    free(timer);
}

void
loop_timer_start(struct loop_timer *timer, int64_t delay_ms)
{
    timer->due_us = clock_mono_us() + (delay_ms > 0 ? delay_ms * 1000 : 0);
    wait_on(timer);
}

void
loop_timer_fire(struct loop_timer *timer)
{
    timer->due_us = 0;
    event_active(timer->event, EV_TIMEOUT, 0);
}

void
loop_timer_stop(struct loop_timer *timer)
{
    event_del(timer->event);
}

bool
loop_timer_active(const struct loop_timer *timer)
{
    return event_pending(timer->event, EV_TIMEOUT, NULL) != 0;
}

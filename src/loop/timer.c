// SPDX-License-Identifier: Apache-2.0
// Timers on libevent. This file defines nothing else: a unit test that moves the time is linked
// with other timers.

#include <event2/event.h>
#include <stdlib.h>

#include "loop_priv.h"

struct loop_timer {
    struct event *event;
    loop_fn fn;
    void *arg;
};

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct loop_timer *timer = arg;
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
    if (delay_ms < 0)
        delay_ms = 0;
    struct timeval delay = {.tv_sec = (time_t)(delay_ms / 1000),
                            .tv_usec = (suseconds_t)(delay_ms % 1000 * 1000)};
    event_add(timer->event, &delay);
}

void
loop_timer_fire(struct loop_timer *timer)
{
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

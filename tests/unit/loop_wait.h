// SPDX-License-Identifier: Apache-2.0
// Waits in a test whose fixture has a `loop`. They go by the machine's clock, also in a test that
// moves its own (virtual_clock.h), and do not move that. After <cmocka.h>.
#pragma once

#include <event2/event.h>
#include <time.h>

#include "loop.h"

enum { PATIENCE_MS = 60 * 1000 }; // under valgrind, beside other jobs, much takes long

static inline int64_t
wait_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline void
loop_wait_on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    loop_stop(arg);
}

// Lets the loop work for a moment.
static inline void
loop_turn(struct loop *loop)
{
    static const struct timeval moment = {.tv_usec = 1000};
    struct event *tick = event_new(loop_event_base(loop), -1, 0, loop_wait_on_tick, loop);
    event_add(tick, &moment);
    loop_run(loop);
    event_free(tick);
}

#define WAIT_FOR(f, condition) UNTIL_(condition, loop_turn((f)->loop))

#define UNTIL_(condition, turn)                                                                    \
    for (int64_t give_up_ = wait_now_ms() + PATIENCE_MS; !(condition); turn)                       \
    assert_true(wait_now_ms() < give_up_)

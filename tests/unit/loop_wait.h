// SPDX-License-Identifier: Apache-2.0
// Waits in a test whose fixture has a `loop`. After <cmocka.h>.
#pragma once

#include "loop.h"

enum { PATIENCE_MS = 60 * 1000 }; // under valgrind, beside other jobs, much takes long

static inline void
loop_wait_on_tick(void *arg)
{
    loop_stop(arg);
}

// Lets the loop work for a moment.
static inline void
loop_turn(struct loop *loop)
{
    struct loop_timer *tick = loop_timer_new(loop, loop_wait_on_tick, loop);
    loop_timer_start(tick, 1);
    loop_run(loop);
    loop_timer_free(tick);
}

#define WAIT_FOR(f, condition)                                                                     \
    for (int64_t give_up_ = clock_mono_ms() + PATIENCE_MS; !(condition); loop_turn((f)->loop))     \
    assert_true(clock_mono_ms() < give_up_)

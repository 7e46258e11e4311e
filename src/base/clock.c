// SPDX-License-Identifier: Apache-2.0
// The two clocks: monotonic and wall-clock. This file defines nothing else: a unit test that moves
// the time is linked with other clocks.

#include <time.h>

#include "base.h"

int64_t
clock_mono_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t
clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t
clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

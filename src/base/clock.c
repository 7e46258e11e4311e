// SPDX-License-Identifier: Apache-2.0
// The two clocks: monotonic and wall-clock.

#include <stdio.h>
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

void
clock_format_rfc3339(int64_t wall_ms, char ret[CLOCK_RFC3339_LEN])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t len = strftime(ret, CLOCK_RFC3339_LEN, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(ret + len, CLOCK_RFC3339_LEN - len, ".%03uZ", (unsigned)(wall_ms % 1000) % 1000);
}

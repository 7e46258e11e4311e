// SPDX-License-Identifier: Apache-2.0
// Times as text.

#include <stdio.h>
#include <time.h>

#include "base.h"

void
clock_format_rfc3339(int64_t wall_ms, char ret[CLOCK_RFC3339_LEN])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t len = strftime(ret, CLOCK_RFC3339_LEN, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(ret + len, CLOCK_RFC3339_LEN - len, ".%03uZ", (unsigned)(wall_ms % 1000) % 1000);
}

// SPDX-License-Identifier: Apache-2.0
// Times as text.

#include <stdio.h>
#include <string.h>
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

int
clock_parse_rfc3339(const char *text, int64_t *ret_wall_ms)
{
    struct tm utc = {0};
    int hours = 0, minutes = 0, n = 0;
    int64_t ms = 0;
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    if (!at)
        return -1;
    if (*at == '.') {
        size_t digits = strspn(++at, "0123456789");
        if (digits == 0)
            return -1;
        for (size_t i = 0; i < 3; i++)
            ms = 10 * ms + (i < digits ? at[i] - '0' : 0);
        at += digits;
    }
    bool is_zulu = strcmp(at, "Z") == 0 || strcmp(at, "z") == 0;
    if (!is_zulu && ((*at != '+' && *at != '-') ||
                     sscanf(at + 1, "%2d:%2d%n", &hours, &minutes, &n) != 2 || at[1 + n]))
        return -1;
    int64_t offset_s = (int64_t)(hours * 60 + minutes) * 60 * (*at == '-' ? -1 : 1);
    *ret_wall_ms = ((int64_t)timegm(&utc) - offset_s) * 1000 + ms;
    return 0;
}

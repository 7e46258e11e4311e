// SPDX-License-Identifier: Apache-2.0
// Times as text.

#include <stdio.h>
#include <stdlib.h>
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

// Reads "+01:30" as minutes; -1: it has another form.
static int
parse_offset(const char *text, int *ret_minutes)
{
    static const char digits[] = "0123456789";
    if (strlen(text) != strlen("+00:00") || !strchr("+-", text[0]) ||
        strspn(text + 1, digits) != 2 || text[3] != ':' || strspn(text + 4, digits) != 2)
        return -1;
    int hours = atoi(text + 1), minutes = atoi(text + 4);
    *ret_minutes = (hours * 60 + minutes) * (text[0] == '-' ? -1 : 1);
    return hours < 24 && minutes < 60 ? 0 : -1;
}

int
clock_parse_rfc3339(const char *text, int64_t *ret_wall_ms)
{
    enum { SECONDS_LEN = 19 }; // strptime() also takes numbers with fewer digits
    struct tm utc = {0};
    int offset_min = 0;
    int64_t ms = 0;
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    if (!at || at - text != SECONDS_LEN || strchr(text, ' '))
        return -1;
    if (*at == '.') {
        size_t digits = strspn(++at, "0123456789");
        if (digits == 0)
            return -1;
        for (size_t i = 0; i < 3; i++)
            ms = 10 * ms + (i < digits ? at[i] - '0' : 0);
        at += digits;
    }
    if (strcmp(at, "Z") != 0 && strcmp(at, "z") != 0 && parse_offset(at, &offset_min) < 0)
        return -1;
    *ret_wall_ms = ((int64_t)timegm(&utc) - (int64_t)offset_min * 60) * 1000 + ms;
    return 0;
}

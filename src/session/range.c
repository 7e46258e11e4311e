// SPDX-License-Identifier: Apache-2.0
// The Range header.

#include "range.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "session_files.h"

enum { DIGITS_MAX = 18 }; // fits into an int64_t

// Moves `*text` past the number. -1: there is none.
static int64_t
take_number(const char **text)
{
    size_t len = strspn(*text, "0123456789");
    if (len == 0 || len > DIGITS_MAX)
        return -1;
    int64_t value = strtoll(*text, NULL, 10);
    *text += len;
    return value;
}

bool
range_parse(const char *text, struct session_file_range *ret)
{
    static const char unit[] = "bytes=";
    if (strncasecmp(text, unit, sizeof unit - 1) != 0)
        return false;
    const char *at = text + sizeof unit - 1;
    at += strspn(at, " \t");
    int64_t first = take_number(&at);
    if (*at++ != '-')
        return false;
    bool has_last = *at >= '0' && *at <= '9';
    int64_t last = take_number(&at);
    at += strspn(at, " \t");
    if (*at || (has_last && last < 0) || (first < 0 && !has_last) ||
        (first >= 0 && has_last && last < first))
        return false;
    // If the first number is too long, its digits were still there, and not a `-`.
    ret->first = first;
    ret->last = last;
    return true;
}

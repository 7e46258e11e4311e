// SPDX-License-Identifier: Apache-2.0
// Lines of NDJSON.

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "base.h"

// The escape of the character at `c`, where it is one that JSON allows as it stands, but at which
// readers that split lines as Unicode does (Python's str.splitlines, httpx) would cut a line.
static const char *
escape_of_separator(const char *c)
{
    if (strncmp(c, "\xc2\x85", 2) == 0)
        return "\\u0085";
    if (strncmp(c, "\xe2\x80\xa8", 3) == 0)
        return "\\u2028";
    if (strncmp(c, "\xe2\x80\xa9", 3) == 0)
        return "\\u2029";
    return NULL;
}

char *
json_line(const json_t *line, size_t flags)
{
    char *json = json_dumps(line, JSON_COMPACT | flags);
    assert(json); // jansson holds nothing that it cannot write
    KG_AUTO_BUF escaped = {0};
    const char *rest = json;
    for (const char *c = json; (c = strpbrk(c, "\xc2\xe2")); c++) {
        const char *escape = escape_of_separator(c);
        if (!escape)
            continue;
        buf_append(&escaped, rest, (size_t)(c - rest));
        buf_append_str(&escaped, escape);
        rest = c + (*c == '\xc2' ? 2 : 3);
    }
    if (rest == json)
        return json;
    buf_append_str(&escaped, rest);
    free(json);
    return buf_take(&escaped);
}

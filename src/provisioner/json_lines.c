// SPDX-License-Identifier: Apache-2.0
// Event streams of engines: one JSON document a line.
#include <string.h>

#include "provisioner_engine.h"

// A pod with all its annotations has less.
#define LINE_MAX_BYTES ((size_t)2 << 20)

bool
json_lines_feed(struct json_lines *lines, const void *data, size_t len, json_line_fn fn, void *arg)
{
    buf_append(&lines->rest, data, len);
    for (const char *end;
         lines->rest.len && (end = memchr(lines->rest.data, '\n', lines->rest.len));) {
        size_t line_len = (size_t)(end - lines->rest.data);
        json_auto_t *line = json_loadb(lines->rest.data, line_len, 0, NULL);
        buf_consume(&lines->rest, line_len + 1);
        if (line)
            fn(line, arg);
    }
    return lines->rest.len <= LINE_MAX_BYTES;
}

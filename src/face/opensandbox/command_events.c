// SPDX-License-Identifier: Apache-2.0
// A command's output in lines.

#include <string.h>

#include "opensandbox_priv.h"

enum { LINE_MAX_BYTES = 32 << 10 }; // a longer one is divided, between characters

static void
flush(struct command_lines *lines, struct buf *events, const char *type)
{
    event_add_string(events, type, "text", lines->partial.data, lines->partial.len);
    lines->partial.len = 0;
}

// \r\n ends one line, and each of both alone, too.
static void
append_end(struct command_lines *lines, struct buf *events, const char *type, char end)
{
    if (lines->partial.len > 0)
        flush(lines, events, type);
    else if (!(end == '\n' && lines->after_cr))
        event_add_string(events, type, "text", "\n", 1);
    lines->after_cr = end == '\r';
}

void
command_lines_append(struct command_lines *lines, struct buf *events, const char *type,
                     const char *text, size_t len)
{
    const char *end = text + len;
    while (text < end) {
        size_t n = 0, left = (size_t)(end - text);
        while (n < left && text[n] != '\n' && text[n] != '\r')
            n++;
        if (n > 0) {
            size_t room = LINE_MAX_BYTES - lines->partial.len;
            if (n > room)
                n = utf8_cut(text, n, room);
            if (n == 0) {
                flush(lines, events, type);
                continue;
            }
            buf_append(&lines->partial, text, n);
            lines->after_cr = false;
            text += n;
        } else {
            append_end(lines, events, type, *text++);
        }
    }
}

void
command_lines_end(struct command_lines *lines, struct buf *events, const char *type)
{
    if (lines->partial.len > 0)
        flush(lines, events, type);
}

// SPDX-License-Identifier: Apache-2.0
// Text for a model: without escape sequences and text that a carriage return overwrote. Only the
// beginning and the end of a long text are kept.
#pragma once

#include "base.h"

// Bounded in memory. `max_head` and `max_tail` are bytes.
struct text {
    size_t max_head;
    size_t max_tail;
    int escape;           // enum escape
    size_t escape_len;    // bytes of the escape sequence until now
    bool returned;        // after a carriage return: the next text overwrites the line
    struct buf line;      // not finished
    struct buf last_line; // the newest one that is not blank, shortened
    struct buf head;
    struct buf tail;
    size_t n_cut; // bytes that were left out
};

void text_init(struct text *text, size_t max_head, size_t max_tail);
void text_fini(struct text *text);
// Adds UTF-8 in whole characters. Escape sequences and lines may be split anywhere.
void text_add(struct text *text, const char *data, size_t len);
// Appends the text to `ret`, with a note in place of what was left out. Returns the number of bytes
// left out. More text can be added afterwards.
size_t text_append_to(const struct text *text, struct buf *ret);
bool text_is_empty(const struct text *text);
// The newest line that is not blank, shortened; "": none.
const char *text_newest_line(struct text *text);
// The length of `data` without a character that is cut at the end.
size_t text_whole(const char *data, size_t len);
// The number of bytes at the start of `data` that belong to an earlier character.
size_t text_begin(const char *data, size_t len);
// Whether `data` is UTF-8 without NULs.
bool text_is_readable(const char *data, size_t len);

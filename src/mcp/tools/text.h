// SPDX-License-Identifier: Apache-2.0
// Text as a model should read it: without escape sequences and what a carriage return overwrote,
// and of a long one the beginning and the end.
#pragma once

#include "base.h"

// Bounded in memory, whatever comes in. `max_head` and `max_tail` are bytes.
struct text {
    size_t max_head;
    size_t max_tail;
    int escape;           // where in an escape sequence we are
    size_t escape_len;    // how long that is by now
    bool returned;        // a carriage return came; what follows overwrites the line
    struct buf line;      // the one under way
    struct buf last_line; // the newest one with something in it, cut
    struct buf head;
    struct buf tail;
    size_t n_cut; // bytes that were in neither
};

void text_init(struct text *text, size_t max_head, size_t max_tail);
void text_fini(struct text *text);
// UTF-8, whole characters; escape sequences and lines may be split anywhere.
void text_add(struct text *text, const char *data, size_t len);
// Appends the text, and where some was left out, a line that says so in its place. Returns how many
// bytes were. Takes more afterwards.
size_t text_append_to(const struct text *text, struct buf *ret);
bool text_is_empty(const struct text *text);
// The newest line with something in it, cut; "" where there was none.
const char *text_newest_line(struct text *text);
// How much of `data` is whole characters, if a character is cut at its end.
size_t text_whole(const char *data, size_t len);
// How many bytes at the start belong to a character that began before.
size_t text_begin(const char *data, size_t len);
// Whether it is UTF-8 without NULs.
bool text_is_readable(const char *data, size_t len);

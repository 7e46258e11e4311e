// SPDX-License-Identifier: Apache-2.0
// Parses a stream of server-sent events (the HTML standard, 9.2.6), whose lines end with LF or
// CRLF, as a client reads them in pieces.
#pragma once

#include "base.h"

// Zeroed, it is ready for use.
struct event_reader {
    struct buf line;
    struct buf data;
    char id[128]; // of the last complete event with an id; "": none
    char coming_id[128];
    int64_t retry_ms; // that the server has asked for last; 0: it has not
    size_t max;       // bytes of an event, a longer one is an error; 0: 256 MiB
    bool has_data;
};
typedef void (*event_fn)(const char *data, size_t len, void *arg);
void event_reader_fini(struct event_reader *reader);
// Drops the incomplete event, and keeps the id.
void event_reader_rewind(struct event_reader *reader);
// Calls `fn` for each complete event that has data; it must not free the reader. False: an event is
// too long.
KG_MUST_CHECK bool event_reader_take(struct event_reader *reader, const char *bytes, size_t len,
                                     event_fn fn, void *arg);

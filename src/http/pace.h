// SPDX-License-Identifier: Apache-2.0
// Clients that read too slowly: how long a client may read too little of a stream or of an upgraded
// connection, and what happens then. On the loop's thread.
#pragma once

#include "base.h"
#include "loop.h"

struct http_request;

// The backlog (http_stream_backlog()) is looked at every `tick_ms`. A tick is slow if the backlog
// is not empty, has not grown, and has lost less than `min_bytes` since the last tick.
struct http_pace_rule {
    int64_t tick_ms;
    int max_ticks; // slow ones in a row, after which the client is too slow; 0: see
                   // http_pace_limit()
    size_t min_bytes;
    bool owes_answer; // an empty backlog and one that grows are slow, too
    bool rests;       // the looks end when the backlog is empty, until http_pace_start()
    // Whether a tick that is slow counts now; NULL: it does.
    bool (*counts)(const void *arg);
    // After each tick in which the client is not too slow, with the backlog in bytes; may be NULL.
    // It may free the pace.
    void (*on_tick)(size_t backlog, void *arg);
    // The client is too slow: fires once, and must free the pace.
    loop_fn on_slow;
};

// When memory is short, these clients are too slow (`counts` says whether it is).
enum {
    HTTP_CROWDED_TICK_MS = 500,
    HTTP_CROWDED_TICKS = 2,
    HTTP_CROWDED_TICK_BYTES = 64 << 10,
};

// Copies `rule`. Borrows the request, which must outlive the pace. The looks begin with
// http_pace_start().
struct http_pace;
struct http_pace *http_pace_new(struct loop *loop, const struct http_request *request,
                                const struct http_pace_rule *rule, void *arg);
void http_pace_free(struct http_pace *pace);
// Begins to look, with no slow ticks so far; the first tick is `tick_ms` from now. It does
// nothing if it has begun already.
void http_pace_start(struct http_pace *pace);
// The next tick is `tick_ms` from now; slow ticks so far still count.
void http_pace_put_off(struct http_pace *pace);
// If more than `max_backlog` bytes wait for the client, it is too far behind: `on_slow` fires with
// the next tick, at most `tick_ms` from now, whatever the client reads until then.
void http_pace_limit(struct http_pace *pace, size_t max_backlog);
bool http_pace_is_behind(const struct http_pace *pace);

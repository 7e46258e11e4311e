// SPDX-License-Identifier: Apache-2.0
// A call under way, as the two files that carry it out see it: links and JSON calls (call.c),
// streamed ones (call_stream.c).
#pragma once

#include <sys/queue.h>

#include "door.h"
#include "http_client.h"
#include "link_line.h"
#include "sandbox.h"

struct call_stream;

// Waits for a link (`opening`), then, where `agent_fn` or `stream` is set, for the answer to the HTTP
// call.
struct sandbox_call {
    TAILQ_ENTRY(sandbox_call) entry;
    struct sandbox *sandbox;
    int64_t deadline_ms;
    struct door_call *opening;
    struct loop_timer *timer; // of the HTTP call
    int fd;
    struct http_call *http_call;

    sandbox_link_fn link_fn;
    sandbox_agent_fn agent_fn;
    struct call_stream *stream;
    void *arg;
    char *method;
    char *url;
    char *body;
    size_t body_len;
};

// Ends a call with an error: its callback fires, which may free its sandbox.
void call_fail(struct sandbox_call *call, const struct kg_error *err);

// ---- Streamed calls (call_stream.c) ---------------------------------------------------------

struct call_stream *call_stream_new(const struct sandbox_stream_spec *spec,
                                    const struct sandbox_stream_events *events);
void call_stream_free(struct call_stream *stream);
// The call's link is open: sends the request.
void call_stream_start(struct sandbox_call *call);
// Frees the call and tells its owner; `err` may be NULL.
void call_stream_end(struct sandbox_call *call, const struct kg_error *err);

// SPDX-License-Identifier: Apache-2.0
// The REST face: what is served below /api/v1, and the probes.
#pragma once

#include "base.h"

struct face_context;
struct http_server;
struct loop;

// Requests an owner may make a second; 0: any number. Probes are not counted.
struct rate_limiter;
struct rate_limiter *rate_limiter_new(double per_second);
void rate_limiter_free(struct rate_limiter *limiter);
KG_DEFINE_AUTO(rate_limiter, rate_limiter_free)
// Counts one request; KG_RATE_LIMITED where it is one too many.
KG_MUST_CHECK int rate_limiter_take(struct rate_limiter *limiter, const char *owner,
                                    struct kg_error *err);

// What the endpoints work on; all borrowed.
struct api_context {
    const struct face_context *face;
    struct loop *loop;
    const char *provisioner;
    int64_t pool_size;
    struct rate_limiter *rate;
    int64_t started_ms; // clock_mono_ms()
    bool draining;      // no new work is taken
};

// Adds the routes and the gate; the context must outlive the server.
void api_register(struct http_server *server, struct api_context *context);

// SPDX-License-Identifier: Apache-2.0
// Where every session's sandbox comes from: some wait ready, their kernel warm, and who asks gets
// the next one. A sandbox is never given back.
#pragma once

#include "base.h"
#include "loop.h"

struct kernel;
struct kernel_context;
struct kernelspec;
struct pool;
struct sandbox;
struct sandbox_context;

// All borrowed.
struct pool_settings {
    const struct sandbox_context *sandboxes;
    const struct kernel_context *kernels;
    const struct kernelspec *spec; // whose kernel is started beforehand
    int64_t size;                  // how many wait ready
    int64_t agent_idle_timeout_s;
    bool network;
    int64_t sandbox_timeout_ms; // for a sandbox to get ready
    int64_t wait_timeout_ms;    // for a request to get one
};

struct pool *pool_new(struct loop *loop, const struct pool_settings *settings);
// Starts to make sandboxes.
void pool_start(struct pool *pool);
// Takes up an unclaimed sandbox of an earlier gateway; and the end of its container.
KG_MUST_CHECK int pool_adopt(struct pool *pool, const char *sandbox_id, struct kg_error *err);
void pool_on_sandbox_exit(struct pool *pool, const char *sandbox_id);
// Lets go of what waits; the sandboxes live on. No request may be under way.
void pool_free(struct pool *pool);

// Asks for a sandbox; `with_kernel`: with the pooled kernelspec's kernel, ready. Requests are
// served in their order, but those of several owners (`owner` is copied) in turn. The callback
// fires once and never before this returns; the caller owns what it gets, and has to set its events
// at once. Or with `err`.
struct pool_request;
typedef void (*pool_fn)(struct sandbox *sandbox, struct kernel *kernel, const struct kg_error *err,
                        void *arg);
struct pool_request *pool_ask(struct pool *pool, const char *owner, bool with_kernel, pool_fn fn,
                              void *arg);
void pool_request_cancel(struct pool_request *request);

size_t pool_n_ready(const struct pool *pool);
// Being made, or their kernel started.
size_t pool_n_starting(const struct pool *pool);
// Whether a request would probably be served: its kernels have got ready, and the last start
// worked.
bool pool_can_serve(const struct pool *pool);
// Makes nothing new; what is asked for fails.
void pool_stop(struct pool *pool);
// Destroys what waits and makes nothing new; what is asked for fails. `on_done` fires once, when
// nothing is left.
void pool_end(struct pool *pool, loop_fn on_done, void *arg);

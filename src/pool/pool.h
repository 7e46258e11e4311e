// SPDX-License-Identifier: Apache-2.0
// Sandboxes for sessions: some are ready in advance, with a warm kernel or without one, and each
// request gets the next one. One that was claimed is never returned to the pool.
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
    const struct kernelspec *spec; // its kernel is started in advance
    int64_t size;                  // sandboxes kept ready, with a warm kernel
    int64_t n_bare;                // besides these, without a kernel
    int64_t max_forks;             // kernels started at a time; 0: by exec, with their sandboxes
    int64_t agent_idle_timeout_s;
    bool network;
    int64_t sandbox_timeout_ms; // for a sandbox to get ready
    int64_t wait_timeout_ms;    // for a request to get one
};

// How large a pool should be.
struct pool_size {
    int64_t size;
    int64_t n_bare;
};
// Where the settings leave that open (-1): by exec 2 sandboxes and no bare ones; by fork as many as
// the machine's memory and processors allow, and twice as many bare ones, which cost nearly
// nothing.
struct pool_size pool_size_for(int64_t size, int64_t n_bare, int64_t max_sessions,
                               int64_t memory_bytes, int64_t n_processors, bool forks);

struct pool *pool_new(struct loop *loop, const struct pool_settings *settings);
// Starts to make sandboxes.
void pool_start(struct pool *pool);
// Whether this gateway keeps sandboxes ready (the default). If not, another one does for all: a
// request takes one of those, if there is one, and what no request needs is handed over.
void pool_set_filling(struct pool *pool, bool filling);
// Sandboxes with a warm kernel that should be ready here.
int64_t pool_target(const struct pool *pool);
// Adopts an unclaimed sandbox of an earlier gateway; and reports the exit of its container.
KG_MUST_CHECK int pool_adopt(struct pool *pool, const char *sandbox_id, struct kg_error *err);
void pool_on_sandbox_exit(struct pool *pool, const char *sandbox_id);
// Detaches all sandboxes, which keep running. No request may be pending.
void pool_free(struct pool *pool);

// Requests a sandbox; `with_kernel`: with a ready kernel of the pool's kernelspec. Owners take
// turns; the requests of one owner (`owner` is copied) are served in order. The callback fires
// once, never before this returns, with `err` or with a sandbox, which the caller owns and whose
// events it must set at once.
struct pool_request;
typedef void (*pool_fn)(struct sandbox *sandbox, struct kernel *kernel, const struct kg_error *err,
                        void *arg);
struct pool_request *pool_ask(struct pool *pool, const char *owner, bool with_kernel, pool_fn fn,
                              void *arg);
void pool_request_cancel(struct pool_request *request);
// Takes back what a request got, and what has not been claimed. `kernel` may be NULL.
void pool_give_back(struct pool *pool, struct sandbox *sandbox, struct kernel *kernel);

size_t pool_n_ready(const struct pool *pool);
// Sandboxes that are being created, or whose kernel is being started.
size_t pool_n_starting(const struct pool *pool);
// Fails unless a request would probably be served: sandboxes can be used, a kernel has started
// before, and the last start did not fail.
KG_MUST_CHECK int pool_check_ready(const struct pool *pool, struct kg_error *err);
// Stops creating sandboxes; all requests fail.
void pool_stop(struct pool *pool);
// The same, and destroys all sandboxes. `on_done` fires once, after the last one is gone.
void pool_end(struct pool *pool, loop_fn on_done, void *arg);

// SPDX-License-Identifier: Apache-2.0
// The pool's parts: pending requests (pool_request.c), sandboxes being prepared (pool_entry.c), the
// matching of both (pool.c), and its default size (pool_size.c).
#pragma once

#include <sys/queue.h>

#include "kernel.h"
#include "pool.h"
#include "sandbox.h"

enum pool_entry_state {
    ENTRY_SANDBOX, // the sandbox is being created
    ENTRY_BARE,    // the sandbox is ready, and has no kernel
    ENTRY_KERNEL,  // its kernel is being started
    ENTRY_WARMING, // ready, but its kernel is still warming up
    ENTRY_READY,
    ENTRY_FAILED, // about to be destroyed
};

struct pool_entry {
    TAILQ_ENTRY(pool_entry) link;
    struct pool *pool;
    enum pool_entry_state state;
    bool adopted; // another gateway has made it, and the kernel in it
    bool offered; // to other gateways
    struct sandbox *sandbox;
    struct kernel *kernel;
};

struct pool_request {
    TAILQ_ENTRY(pool_request) link;
    struct pool *pool;
    char *owner;
    bool with_kernel;
    struct loop_timer *deadline;
    pool_fn fn;
    void *arg;
};

struct pool {
    struct loop *loop;
    struct pool_settings settings;
    TAILQ_HEAD(, pool_entry) entries;
    TAILQ_HEAD(, pool_request) requests;
    struct loop_timer *work; // on_work(): serves requests, destroys and creates sandboxes
    int64_t backoff_ms;      // 0: the last start did not fail
    int64_t not_before_ms;   // the next start
    size_t n_destroying;
    char *last_owner; // owner of the request that was served last; or NULL
    bool filling;     // pool_set_filling()
    bool started;     // else nothing is made while no request waits
    bool proven;      // a kernel has started once
    bool ending;
    loop_fn on_ended;
    void *on_ended_arg;
};

// ---- pool_request.c -------------------------------------------------------------------------

// The next request: the oldest one of an owner other than the last served, else the oldest one;
// NULL: none.
struct pool_request *pool_first_request(const struct pool *pool, bool with_kernel);
// Ends the request.
void pool_request_answer(struct pool_request *request, struct sandbox *sandbox,
                         struct kernel *kernel, const struct kg_error *err);

// ---- pool_entry.c ---------------------------------------------------------------------------

// Adds an entry with a new sandbox, or with the existing sandbox `id`.
KG_MUST_CHECK int pool_entry_new(struct pool *pool, const char *id, struct kg_error *err);
// Adds one that another gateway keeps ready; fails if none is known.
KG_MUST_CHECK int pool_entry_take(struct pool *pool, struct kg_error *err);
// Of a bare one.
void pool_entry_start_kernel(struct pool_entry *entry);
// Asserts that the transition is legal; a failed entry stays failed.
void pool_entry_set_state(struct pool_entry *entry, enum pool_entry_state state);
void pool_entry_destroy(struct pool_entry *entry);
// Frees the entry, and leaves its sandbox to another gateway.
void pool_entry_hand_over(struct pool_entry *entry);
// Hands sandbox and kernel to the request's callback, and frees the entry.
void pool_entry_give(struct pool_entry *entry, struct pool_request *request);

// ---- pool.c ---------------------------------------------------------------------------------

// Counts and logs a failed start; the next start waits, longer each time.
void pool_back_off(struct pool *pool, const struct kg_error *err);
// The same, and the next request for a kernel fails, unless one is ready.
void pool_on_kernel_failed(struct pool *pool, const struct kg_error *err);
// The same for a sandbox, which would have been for a request without a kernel first.
void pool_on_sandbox_failed(struct pool *pool, const struct kg_error *err);
void pool_look_whether_ended(struct pool *pool);

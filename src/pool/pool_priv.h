// SPDX-License-Identifier: Apache-2.0
// The pool's parts: requests that wait (pool_request.c), sandboxes that get ready (pool_entry.c),
// and what brings them together (pool.c).
#pragma once

#include <sys/queue.h>

#include "kernel.h"
#include "pool.h"
#include "sandbox.h"

enum pool_entry_state {
    ENTRY_SANDBOX, // the sandbox is being made
    ENTRY_KERNEL,  // its kernel is being started
    ENTRY_WARMING, // can be given away already
    ENTRY_READY,
    ENTRY_FAILED, // waits to be destroyed
};

struct pool_entry {
    TAILQ_ENTRY(pool_entry) link;
    struct pool *pool;
    enum pool_entry_state state;
    bool bare;    // for a request that wants no kernel
    bool adopted; // made by an earlier gateway
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
    struct loop_timer *work; // gives, clears away and makes what there is to
    int64_t backoff_ms;      // since the last start failed; 0: it did not
    int64_t not_before_ms;   // the next start
    size_t n_destroying;
    char *last_owner; // whose request was served last; or NULL
    bool proven;      // a kernel of it has got ready once
    bool ending;
    loop_fn on_ended;
    void *on_ended_arg;
};

// ---- pool_request.c -------------------------------------------------------------------------

// The one that is next: the longest waiting one of another owner than the last, else the longest
// waiting one; NULL: none.
struct pool_request *pool_first_request(const struct pool *pool, bool with_kernel);
// Ends the request.
void pool_request_answer(struct pool_request *request, struct sandbox *sandbox,
                         struct kernel *kernel, const struct kg_error *err);

// ---- pool_entry.c ---------------------------------------------------------------------------

// Makes an entry of a new sandbox, or of the one that has `id` already.
KG_MUST_CHECK int pool_entry_new(struct pool *pool, bool bare, const char *id,
                                 struct kg_error *err);
// Asserts that the state machine has this edge; a failed entry stays so.
void pool_entry_set_state(struct pool_entry *entry, enum pool_entry_state state);
void pool_entry_destroy(struct pool_entry *entry);
// The request's callback owns the sandbox and the kernel; the entry is gone.
void pool_entry_give(struct pool_entry *entry, struct pool_request *request);

// ---- pool.c ---------------------------------------------------------------------------------

// Counts and logs a start that failed; the next one has to wait, longer each time.
void pool_back_off(struct pool *pool, const struct kg_error *err);
// The same, and the request that has waited longest for such a sandbox gets the error, unless
// another sandbox is ready for it.
void pool_on_start_failed(struct pool *pool, bool with_kernel, const struct kg_error *err);
void pool_look_whether_ended(struct pool *pool);

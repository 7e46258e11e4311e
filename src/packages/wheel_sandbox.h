// SPDX-License-Identifier: Apache-2.0
// A sandbox of the gateway's own, which downloads or unpacks wheels: it belongs to no session, has
// no kernels, and does one thing at a time. On the loop's thread.
#pragma once

#include <jansson.h>

#include "base.h"

struct packages;
struct wheel_sandbox;

// What is to be done next. May start the next thing, but must not free the sandbox.
typedef void (*wheel_sandbox_fn)(void *arg);
struct wheel_sandbox_events {
    // What was being done has failed, or the sandbox is gone; `next` of that thing does not fire.
    // May come before the function that began it has returned; must not free the sandbox.
    void (*on_failed)(const struct kg_error *err, void *arg);
    void (*on_text)(const char *text, size_t len, void *arg); // stderr of a run; or NULL
    // A piece of a file; NULL if none is read. With -1 and `err` reading fails.
    int (*on_data)(const void *data, size_t len, void *arg, struct kg_error *err);
};

// `network`: with a way out, as egress.h allows. `next`: it is ready. NULL with `err` if it cannot
// be made.
KG_MUST_CHECK struct wheel_sandbox *wheel_sandbox_new(const struct packages *packages, bool network,
                                                      const struct wheel_sandbox_events *events,
                                                      void *arg, wheel_sandbox_fn next,
                                                      struct kg_error *err);
// Ends it, and what is being done there. NULL is fine.
void wheel_sandbox_free(struct wheel_sandbox *own);

// Copies a file of the cache into it, as packages_deliver() does.
void wheel_sandbox_deliver(struct wheel_sandbox *own, const char *path, wheel_sandbox_fn next);
// Runs a program to its end: one that fails is a failure. Takes `argv`, of pip_argv() or
// unpack_argv().
void wheel_sandbox_run(struct wheel_sandbox *own, char **argv, const json_t *env, int timeout_ms,
                       wheel_sandbox_fn next);
// What the last run has written to stdout. Untrusted; borrowed.
const struct buf *wheel_sandbox_result(const struct wheel_sandbox *own);
// Reads a file of it, to on_data.
void wheel_sandbox_read(struct wheel_sandbox *own, const char *path, wheel_sandbox_fn next);

// SPDX-License-Identifier: Apache-2.0
// Zygotes: warm processes, one for each kernelspec that offers it, that fork kernels into
// sandboxes. Each runs in a container of its own (provisioner.h). All calls and callbacks are on
// the loop's thread.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

struct provisioner;

struct zygotes_settings {
    struct provisioner *provisioner; // borrowed
    const char *library_path;        // of kernelgate-enter.so
    loop_fn on_change;               // zygotes_ready() may have changed; NULL: nobody wants to know
    void *arg;
};

struct zygotes;
struct zygotes *zygotes_new(struct loop *loop, const struct zygotes_settings *settings);

// How kernels of one kernelspec are forked; all borrowed until zygotes_add() returns.
struct zygote_spec {
    const char *kernel;        // the kernelspec's name
    const json_t *argv;        // of the zygote
    const json_t *kernel_argv; // of the kernelspec
    const json_t *env;         // of its kernels: an object of strings
    const json_t *late;        // modules that a kernel imports itself; or NULL
    const char *prepare;       // MODULE.FUNCTION that it calls after the imports; or NULL
    const char *warmup;        // code of the rehearsal; or NULL
};
void zygotes_add(struct zygotes *zygotes, const struct zygote_spec *spec);
// Starts a zygote for each spec, and calls `on_settled` once, when each of them is ready or has
// failed: at once if there is nothing to wait for. A zygote that ends is replaced, with a delay if
// it failed to start. One that has forked often, or is old, is replaced when the next one is ready.
void zygotes_start(struct zygotes *zygotes, loop_fn on_settled, void *arg);
// Ends them all; the removal of their containers continues in the background. Forks under way fail.
void zygotes_stop(struct zygotes *zygotes);
// After zygotes_stop(), or if they were never started. NULL is fine.
void zygotes_free(struct zygotes *zygotes);

// Whether kernels of that kernelspec are forked when a zygote is ready.
bool zygotes_have(const struct zygotes *zygotes, const char *kernel);
// Whether a zygote is ready to fork; if not, `err` says why.
KG_MUST_CHECK int zygotes_ready(const struct zygotes *zygotes, const char *kernel,
                                struct kg_error *err);

// Forks a kernel into a sandbox where the agent expects it: `id` is that of kernels.expect
// (src/agent/methods.c). The callback fires once, unless cancelled, and never before this returns:
// with the kernel's process id inside, or with `err`.
struct zygote_fork;
typedef void (*zygote_forked_fn)(int pid, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct zygote_fork *zygotes_fork(struct zygotes *zygotes, const char *kernel,
                                               const char *sandbox_id, const char *id,
                                               zygote_forked_fn fn, void *arg,
                                               struct kg_error *err);
// `fork` may be NULL. The kernel may be forked nevertheless: it ends with its sandbox, or when the
// agent stops the kernel of that name.
void zygote_fork_cancel(struct zygote_fork *fork);

// SPDX-License-Identifier: Apache-2.0
// Kernels that are forked into sandboxes: the zygotes (src/zygote) are the helper's, and this is
// what the gateway sees of them. All calls and callbacks are on the loop's thread.
#pragma once

#include "base.h"
#include "loop.h"

struct helper;
struct forks;

// `kernels`: the names of the kernelspecs that have zygotes, in the order of the helper's
// (helper_server.h); borrowed for the time of the call.
struct forks *forks_new(struct loop *loop, struct helper *helper, const char *const *kernels,
                        size_t n);
// After forks_stop(), or if they were never started. NULL is fine.
void forks_free(struct forks *forks);
// Starts a zygote for each kernelspec, and calls `on_settled` once, when each of them is ready or
// has failed. Those of another helper are started again.
void forks_start(struct forks *forks, loop_fn on_settled, void *arg);
// Ends them all. Forks under way fail.
void forks_stop(struct forks *forks);
// Whether zygotes are still being removed after forks_stop().
bool forks_are_stopping(const struct forks *forks);

// Whether kernels of that kernelspec are forked when a zygote is ready. `forks` may be NULL.
bool forks_have(const struct forks *forks, const char *kernel);
// Whether a zygote is ready to fork; if not, `err` says why.
KG_MUST_CHECK int forks_ready(const struct forks *forks, const char *kernel, struct kg_error *err);

// Forks a kernel into a sandbox where the agent expects it: `id` is that of kernels.expect
// (src/agent/methods.c). The callback fires once, unless cancelled, and never before this returns:
// with the kernel's process id inside, or with `err`.
struct kernel_fork;
typedef void (*kernel_forked_fn)(int pid, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct kernel_fork *forks_ask(struct forks *forks, const char *kernel,
                                            const char *sandbox_id, const char *id,
                                            kernel_forked_fn fn, void *arg, struct kg_error *err);
// `fork` may be NULL. The kernel may be forked nevertheless: it ends with its sandbox, or when the
// agent stops the kernel of that name.
void kernel_fork_cancel(struct kernel_fork *fork);

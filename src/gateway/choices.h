// SPDX-License-Identifier: Apache-2.0
// What the settings leave to the machine, and what is on.
#pragma once

#include "config.h"
#include "kernel.h"
#include "pool.h"
#include "provisioner.h"

// max-sessions, or how many the engine has memory for.
int64_t choose_max_sessions(const struct config *config, const struct provisioner_traits *traits);
// pool-size and pool-bare, or what suits the machine; `forks`: the pool's kernels are forked.
struct pool_size choose_pool_size(const struct config *config, bool forks);
// Whether kernels of this kernelspec are forked, once their zygote is ready.
bool kernels_fork(const struct config *config, const struct provisioner_traits *traits,
                  const struct kernelspec *spec);

struct choices {
    const struct config *config;
    const struct kernelspecs *specs;
    const struct kernelspec *default_spec;
    struct provisioner_traits traits;
};
// Calls `fn` for each part of the gateway: whether it is on, and how, or why not.
typedef void (*choice_fn)(const char *what, bool on, const char *detail, void *arg);
void choices_say(const struct choices *of, choice_fn fn, void *arg);

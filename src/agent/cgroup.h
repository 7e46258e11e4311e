// SPDX-License-Identifier: Apache-2.0
// The counters of the sandbox's own cgroup: version 1, version 2, and both at once.
#pragma once

#include "base.h"

// -1 where the engine does not tell.
struct cgroup_usage {
    int64_t memory_bytes;
    int64_t cpu_us;
    int64_t pids;
};

void cgroup_usage(const char *root, struct cgroup_usage *ret);
// Its memory_bytes alone.
int64_t cgroup_memory(const char *root);
// How many processes the out-of-memory killer has taken so far; -1 where unknown.
int64_t cgroup_oom_kills(const char *root);

// SPDX-License-Identifier: Apache-2.0
// How large a pool should be.

#include "pool.h"

enum { BY_EXEC = 2, BARE_FOR_EACH = 4 };

// A warm kernel by fork takes about 20 MiB, one by exec, where no zygote is ready, 100.
static const int64_t memory_for_each = INT64_C(512) << 20;

static int64_t
within(int64_t number, int64_t least, int64_t most)
{
    if (number > most)
        number = most;
    return number < least ? least : number;
}

struct pool_size
pool_size_for(int64_t size, int64_t n_bare, int64_t max_sessions, int64_t memory_bytes, bool forks)
{
    if (size < 0)
        size = forks ? within(memory_bytes / memory_for_each, BY_EXEC, max_sessions) : BY_EXEC;
    if (!forks)
        n_bare = 0;
    else if (n_bare < 0)
        n_bare = within(max_sessions - size, 0, size * BARE_FOR_EACH);
    return (struct pool_size){.size = size, .n_bare = n_bare};
}

// SPDX-License-Identifier: Apache-2.0
// How large a pool should be.

#include "pool.h"

enum { BY_EXEC = 2, FOR_EACH_PROCESSOR = 4, BARE_FOR_EACH = 2 };

// A warm kernel by fork takes about 20 MiB, one by exec, where no zygote is ready, 100. More than
// the processors can put to use within the time that a new one takes would only cost memory.
static const int64_t memory_for_each = INT64_C(512) << 20;

static int64_t
within(int64_t number, int64_t least, int64_t most)
{
    if (number > most)
        number = most;
    return number < least ? least : number;
}

struct pool_size
pool_size_for(int64_t size, int64_t n_bare, int64_t max_sessions, int64_t memory_bytes,
              int64_t n_processors, bool forks)
{
    if (size < 0) {
        int64_t most = within(n_processors * FOR_EACH_PROCESSOR, BY_EXEC, max_sessions);
        size = forks ? within(memory_bytes / memory_for_each, BY_EXEC, most) : BY_EXEC;
    }
    if (!forks)
        n_bare = 0;
    else if (n_bare < 0)
        n_bare = within(max_sessions - size, 0, size * BARE_FOR_EACH);
    return (struct pool_size){.size = size, .n_bare = n_bare};
}
